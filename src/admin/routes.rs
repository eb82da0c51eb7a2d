//! Routes of the HTTP port: the console and what it asks for, `/commands`, `/locks`, `/sessions`, `/metrics`, `/livez`,
//! `/readyz`, `/pre_stop`, `/bootstrap`, `/upgrade`, `/migration`, `/snapshot`.
//!
//! *Owns* which rooms' routes there are, and which route a path leads to. *Never* answers anything but `/metrics`
//! itself.

use std::future::Future;
use std::sync::Arc;

use hyper::StatusCode;
use tokio::net::TcpListener;

use super::http::{self, Answer, Asks, Options, Question, Route, Surface, page};
use super::{Source, backup, commands, console, ensemble, locks, metrics, scrape};

/// Route of a port for metrics alone.
const METRICS: Route =
    Route::reads("/metrics", Asks::Figures, |asked| Box::pin(metrics_page(asked)));
/// The list of commands, and one of them: below the path that the configuration says.
static COMMANDS: [Route; 2] = [commands::LIST, commands::COMMAND];
/// Routes with a path of their own.
static ROUTES: [&[Route]; 5] =
    [&[METRICS], ensemble::ROUTES, locks::ROUTES, backup::ROUTES, console::ROUTES];

/// Serves a port until `shutdown` is ready; then ends within half a second.
pub async fn serve(
    listener: TcpListener,
    source: Arc<dyn Source>,
    options: Options,
    shutdown: impl Future<Output = ()>,
) {
    http::serve(listener, source, options, route, shutdown).await;
}

/// Route of a path.
fn route(path: &str, options: &Options) -> Option<&'static Route> {
    let known = || ROUTES.iter().copied().flatten().find(|route| route.path == path);
    if options.surface == Surface::Metrics {
        return known().filter(|route| route.path == METRICS.path);
    }
    // The page is there unless the commands are.
    let is_root_of_commands = path == "/" && options.commands_path.is_empty();
    if !is_root_of_commands && let Some(route) = known() {
        return Some(route);
    }
    let [list, command] = &COMMANDS;
    match path.strip_prefix(options.commands_path.as_str())? {
        "" | "/" => Some(list),
        rest => rest.starts_with('/').then_some(command),
    }
}

async fn metrics_page(asked: &Question<'_>) -> Answer {
    let source = asked.source;
    let text = metrics::prometheus(&scrape::reading(source).await);
    page(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
}

#[cfg(test)]
mod tests {
    use hyper::body::Bytes;
    use serde_json::{Value, json};

    use super::super::Guard;
    use super::super::fake::Fake;
    use super::super::http::served::{Reply, Served};
    use super::*;
    use crate::replica::inspect::ZnodeReport;

    #[tokio::test]
    async fn under_a_strange_name_only_figures_are_shown() {
        let served = Served::new().await;
        for (path, status) in [
            ("/locks", 403),
            ("/sessions", 403),
            ("/", 403),
            ("/commands/dump", 403),
            ("/metrics", 200),
            ("/livez", 200),
        ] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: rebound.example.com\r\n\r\n");
            assert_eq!(
                Reply::parse(&served.raw(request.as_bytes()).await).status,
                status,
                "{path}"
            );
        }
    }

    #[tokio::test]
    async fn the_list_of_commands_links_to_those_that_work() {
        let served = Served::new().await;
        let list = served.get("/commands").await;
        assert_eq!(list.status, 200);
        assert!(list.body.starts_with(
            "<a href=\"/commands/configuration\">configuration</a>\n<br/>\n\
             <a href=\"/commands/connection_stat_reset\">connection_stat_reset</a>\n<br/>\n"
        ));
        assert!(!list.body.contains("/restore\""));
        assert_eq!(served.get("/commands/").await.body, list.body);
        for link in list.body.lines().filter_map(|line| line.split('"').nth(1)) {
            let status = if link.ends_with("/snapshot") { 401 } else { 200 };
            assert_eq!(served.get(link).await.status, status, "{link}");
        }
    }

    #[tokio::test]
    async fn commands_answer_in_indented_json_by_every_name() {
        let served = Served::new().await;
        let answer = served.get("/commands/watch_summary").await;
        assert_eq!(
            answer.body,
            "{\n  \"num_connections\": 2,\n  \"num_paths\": 2,\n  \"num_total_watches\": 3,\n  \
             \"command\": \"watch_summary\",\n  \"error\": null\n}"
        );
        assert_eq!(served.get("/commands/wchs").await.body, answer.body);
        assert_eq!(served.get("/commands/wchs?x=1&traceMask=%zz").await.body, answer.body);
    }

    #[tokio::test]
    async fn an_unknown_command_is_answered_with_200_and_its_name() {
        let served = Served::new().await;
        for (target, name) in [
            ("/commands/nosuch", "nosuch"),
            ("/commands/RUOK", "RUOK"),
            ("/commands/shed_connections", "shed_connections"),
            ("/commands/a%22%3Cb%2f%zz%4", "a\"<b/%zz%4"),
            ("/commands/%ff", "\u{fffd}"),
        ] {
            let answer = served.get(target).await;
            assert_eq!(answer.status, 200);
            let error = format!("Unknown command: {name}");
            assert_eq!(answer.json(), json!({ "command": name, "error": error }), "{target}");
        }
    }

    #[tokio::test]
    async fn commands_that_do_not_exist_yet_are_disabled() {
        let served = Served::new().await;
        for (method, name) in [("POST", "restore"), ("POST", "rest")] {
            let answer = served.ask(method, &format!("/commands/{name}")).await;
            assert_eq!(answer.status, 503, "{name}");
            let error = answer.json()["error"].as_str().unwrap().to_string();
            assert!(
                error.contains("is disabled: ") && error.contains("lockkeeper snapshot"),
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn a_backup_needs_the_token_on_this_machine_too() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "sixteen-characters").unwrap();
        let guard = Guard { token_file: Some(file), ..Guard::default() };
        let options = Options { guard, ..Options::default() };
        let served = Served::with(Fake::standalone(), options).await;
        let ask = async |target: &str, header: &str| {
            let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
            Reply::parse(&served.raw(request.as_bytes()).await).status
        };
        let token = "Authorization: Bearer sixteen-characters\r\n";
        assert_eq!(ask("/snapshot", "").await, 401);
        assert_eq!(ask("/snapshot", token).await, 429, "the server is busy");
        assert_eq!(ask("/snapshot?subtree=a", token).await, 400);
        assert_eq!(Served::new().await.get("/snapshot").await.status, 403, "there is no token");
        assert_eq!(served.ask("POST", "/snapshot").await.status, 405);
    }

    #[tokio::test]
    async fn only_reading_methods_are_allowed_but_for_restore() {
        let served = Served::new().await;
        for (method, target, allow) in [
            ("POST", "/commands/ruok", "get, head"),
            ("PUT", "/commands/ruok", "get, head, post"),
            ("TRACE", "/commands/ruok", "get, head, post"),
            ("GET", "/commands/restore", "post"),
            ("POST", "/commands", "get, head"),
            ("POST", "/metrics", "get, head"),
            ("DELETE", "/livez", "get, head"),
            ("BREW", "/readyz", "get, head"),
        ] {
            let answer = served.ask(method, target).await;
            assert_eq!(answer.status, 405, "{method} {target}");
            assert!(answer.head.contains(&format!("allow: {allow}\r\n")), "{}", answer.head);
        }
        assert!(served.fake.asked.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn head_has_the_length_and_no_body() {
        let served = Served::new().await;
        let got = served.get("/commands/conf").await;
        let head = served.ask("HEAD", "/commands/conf").await;
        assert_eq!(head.status, 200);
        assert_eq!(head.body, "");
        assert!(head.head.contains(&format!("content-length: {}", got.body.len())));
    }

    #[tokio::test]
    async fn other_paths_are_not_found() {
        let served = Served::new().await;
        for target in ["/commandsruok", "/metrics/", "/livez2", "*", "/..", "/favicon.ico"] {
            assert_eq!(served.get(target).await.status, 404, "{target}");
        }
    }

    #[tokio::test]
    async fn the_console_runs_its_own_script_and_asks_this_server_alone() {
        let served = Served::new().await;
        for (path, content_type) in
            [("/", "text/html"), ("/console.css", "text/css"), ("/console.js", "text/javascript")]
        {
            let file = served.get(path).await;
            assert_eq!(file.status, 200, "{path}");
            assert!(file.head.contains(&format!("content-type: {content_type}")), "{}", file.head);
            assert!(
                file.head
                    .contains("content-security-policy: default-src 'none'; script-src 'self'; ")
            );
            assert!(!file.head.contains("unsafe"), "{}", file.head);
            // The namespace of SVG is a name.
            let body = file.body.replace("http://www.w3.org/2000/svg", "");
            assert!(!body.contains("://"), "nothing is loaded from elsewhere: {path}");
            assert!(!body.contains("innerHTML"), "what clients have written is text");
        }
        let page = served.get("/").await.body;
        assert!(
            !page.contains("<script>") && !page.contains("style=") && !page.contains(" onclick")
        );
        let locks = served.get("/locks?prefix=/a%20b").await;
        let answer: Value = serde_json::from_str(&locks.body).unwrap();
        assert_eq!((&answer["prefix"], &answer["locks"]), (&json!("/a b"), &json!([])));
        assert_eq!(served.get("/locks?prefix=a").await.status, 400);
        for path in ["/locks", "/locks/history", "/sessions", "/watches", "/znodes", "/overview"] {
            assert_eq!(served.ask("POST", path).await.status, 405, "{path}");
        }
        assert_eq!(served.get("/overview").await.json()["mode"], "standalone");
        assert_eq!(served.get("/watches").await.json()["total"], 3);
    }

    #[tokio::test]
    async fn a_znode_is_shown_unless_it_is_not_there_or_the_tree_is_not_to_be_browsed() {
        let znode = ZnodeReport {
            zxid: 7,
            stat: crate::proto::Stat::default(),
            acl: Vec::new(),
            data: Some(Bytes::from_static(b"x")),
            is_hidden: false,
            children: Vec::new(),
            has_more: false,
            is_cut: false,
        };
        let fake = || Fake { znode: Some(znode.clone()), ..Fake::standalone() };
        let served = Served::with(fake(), Options::default()).await;
        let shown = served.get("/znodes?path=/a%2Fb&after=c&limit=7").await;
        assert_eq!((shown.status, &shown.json()["data"]["text"]), (200, &json!("x")));
        let asked = served.fake.asked.lock().unwrap().clone();
        assert_eq!(
            asked,
            [
                "Znode(ZnodeQuestion { path: \"/a/b\", after: \"c\", children: 7, shows_all: false })"
            ]
        );
        assert_eq!(served.get("/znodes?path=a").await.status, 400);
        assert_eq!(Served::new().await.get("/znodes?path=/a").await.status, 404);
        let guard = Guard { hides_tree: true, ..Guard::default() };
        let served = Served::with(fake(), Options { guard, ..Options::default() }).await;
        assert_eq!(served.get("/znodes?path=/a").await.status, 403);
        assert!(served.fake.asked.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn locks_are_changed_by_post_from_no_other_site_and_only_contenders() {
        let served = Served::new().await;
        let ask = async |method: &str, target: &str, header: &str| {
            let request = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
            Reply::parse(&served.raw(request.as_bytes()).await).status
        };
        let lock = "/locks/break?node=/p/lock-0000000001&token=7";
        let change = "X-Lockkeeper-Change: yes\r\n";
        assert_eq!(ask("GET", lock, change).await, 405);
        assert_eq!(ask("POST", lock, "").await, 403);
        let other_site = format!("{change}Origin: http://example.com\r\n");
        assert_eq!(ask("POST", lock, &other_site).await, 403);
        let other_port = format!("{change}Sec-Fetch-Site: same-site\r\n");
        assert_eq!(ask("POST", lock, &other_port).await, 403);
        for wrong in ["/locks/break", "/locks/break?node=/p/lock-0000000001&token=x"] {
            assert_eq!(ask("POST", wrong, change).await, 400, "{wrong}");
        }
        assert_eq!(ask("POST", "/locks/revoke?node=/p/data&token=7", change).await, 400);
    }

    #[tokio::test]
    async fn metrics_are_in_the_text_format() {
        let served = Served::new().await;
        let answer = served.get("/metrics").await;
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains("content-type: text/plain; version=0.0.4"));
        assert!(answer.body.contains("\n# TYPE znode_count gauge\nznode_count 5\n"));
    }

    #[tokio::test]
    async fn a_port_for_metrics_offers_nothing_else() {
        let options = Options { surface: Surface::Metrics, ..Options::default() };
        let served = Served::with(Fake::standalone(), options).await;
        assert_eq!(served.get("/metrics").await.status, 200);
        for target in ["/commands", "/commands/ruok", "/livez", "/readyz"] {
            assert_eq!(served.get(target).await.status, 404, "{target}");
        }
    }

    #[tokio::test]
    async fn the_commands_can_be_elsewhere() {
        let options = Options { commands_path: "/zk".to_string(), ..Options::default() };
        let served = Served::with(Fake::standalone(), options).await;
        assert!(served.get("/zk").await.body.starts_with("<a href=\"/zk/configuration\">"));
        assert_eq!(served.get("/zk/ruok").await.status, 200);
        assert_eq!(served.get("/commands/ruok").await.status, 404);
    }
}
