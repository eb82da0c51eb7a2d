//! Routes of the HTTP port: the console and what it asks for, `/commands`, `/locks`, `/sessions`, `/metrics`, `/livez`,
//! `/readyz`, `/pre_stop`, `/upgrade`, `/migration`, `/snapshot`.
//!
//! *Owns* the table of routes: the path, the methods, the permission and the handler of each. *Never* reads a body, and
//! never knows what a command answers.

use std::pin::Pin;

use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use tokio::sync::Semaphore;

use super::Source;
use super::answer::{
    Answer, json_page, not_found, page, plain, refusal, refused, shown, stopping, told,
};
use super::backup;
use super::change::{self, Change, Refused};
use super::command::Command;
use super::commands;
use super::console::File;
use super::guard::{Asker, Asks};
use super::health::{liveness, readiness};
use super::locks;
use super::migration::{self, Migrate};
use super::options::{Options, Surface};
use super::pre_stop::{self, Asked, Verdict};
use super::query::{parameter, percent_decoded};
use super::words::is_running;
use super::{metrics, overview, scrape, tree_view, upgrade, zookeeper_snapshot};
use crate::locks::Scope;

/// A request, as handlers see it.
#[derive(Clone, Copy)]
struct Question<'a> {
    request: &'a Request<Incoming>,
    asker: Asker,
    source: &'a dyn Source,
    options: &'a Options,
}

impl Question<'_> {
    fn parameter(&self, name: &str) -> Option<String> {
        parameter(self.request, name)
    }
}

/// A handler's answer, once it is awaited.
type Answering<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// A route.
struct Route {
    path: &'static str,
    /// Methods that it may be asked with, as a header has them.
    methods: &'static str,
    /// Permission that it needs: what it shows.
    shows: Asks,
    /// Whether it changes something: who asks is looked at once more.
    changes: bool,
    /// Whether it waits for its turn. Health checks do not, and of backups one is made at a time anyway.
    waits: bool,
    answer: for<'a> fn(&'a Question<'a>) -> Answering<'a>,
}

impl Route {
    const fn reads(
        path: &'static str,
        shows: Asks,
        answer: for<'a> fn(&'a Question<'a>) -> Answering<'a>,
    ) -> Self {
        Self { path, methods: READING, shows, changes: false, waits: true, answer }
    }

    const fn changes(
        path: &'static str,
        answer: for<'a> fn(&'a Question<'a>) -> Answering<'a>,
    ) -> Self {
        Self { path, methods: WRITING, shows: Asks::Znodes, changes: true, waits: true, answer }
    }

    /// A health check: answered at once, whatever else is asked.
    const fn at_once(self) -> Self {
        Self { waits: false, ..self }
    }

    const fn by(self, methods: &'static str) -> Self {
        Self { methods, ..self }
    }
}

/// Routes with a path of their own.
const ROUTES: &[Route] = &[
    METRICS,
    Route::reads("/livez", Asks::Figures, |asked| Box::pin(liveness(asked.source))).at_once(),
    Route::reads("/readyz", Asks::Figures, |asked| Box::pin(async { readiness(asked.source) }))
        .at_once(),
    Route::reads("/pre_stop", Asks::Figures, |asked| Box::pin(stoppable(asked))),
    Route::reads("/overview", Asks::Commands, |asked| {
        Box::pin(async { shown(overview::answer(asked.source).await) })
    }),
    Route::reads("/locks", Asks::Znodes, |asked| Box::pin(lock_view(asked))),
    Route::reads("/locks/history", Asks::Znodes, |asked| Box::pin(lock_history(asked))),
    Route::changes("/locks/break", |asked| Box::pin(lock_change(asked, Change::Break))),
    Route::changes("/locks/revoke", |asked| Box::pin(lock_change(asked, Change::Revoke))),
    Route::changes("/upgrade", |asked| Box::pin(finish_upgrade(asked))),
    Route::reads("/migration", Asks::Znodes, |asked| Box::pin(migrate(asked, Migrate::Status))),
    Route::changes("/migration/follow", |asked| Box::pin(migrate(asked, Migrate::Follow))),
    Route::changes("/migration/cutover", |asked| Box::pin(migrate(asked, Migrate::CutOver))),
    Route::changes("/migration/abort", |asked| Box::pin(migrate(asked, Migrate::Abort))),
    Route::reads("/snapshot", Asks::Everything, |asked| Box::pin(snapshot(asked)))
        .at_once()
        .by("GET"),
    Route::reads("/sessions", Asks::Znodes, |asked| Box::pin(view(Scope::Sessions, asked.source))),
    Route::reads("/watches", Asks::Znodes, |asked| {
        Box::pin(async { shown(tree_view::watches(asked.source).await) })
    }),
    Route::reads("/znodes", Asks::Znodes, |asked| Box::pin(znode(asked))),
];
/// Route of a port for metrics alone.
const METRICS: Route =
    Route::reads("/metrics", Asks::Figures, |asked| Box::pin(metrics_page(asked)));
/// Files of the console, by paths of their own.
const CONSOLE: Route = Route::reads("", Asks::Commands, |asked| {
    Box::pin(async { File::find(asked.request.uri().path()).map_or_else(not_found, File::answer) })
});
/// The list of ZooKeeper's commands, below the path that the configuration says.
const COMMANDS: Route = Route::reads("", Asks::Commands, |asked| {
    Box::pin(async { command_list(&asked.options.commands_path) })
});
/// One of them, whether it exists or not.
const COMMAND: Route =
    Route::reads("", Asks::Commands, |asked| Box::pin(command(asked))).by("GET, HEAD, POST");

/// Route of a path.
fn route(path: &str, options: &Options) -> Option<&'static Route> {
    if options.surface == Surface::Metrics {
        return (path == METRICS.path).then_some(&METRICS);
    }
    if let Some(route) = ROUTES.iter().find(|route| route.path == path) {
        return Some(route);
    }
    // Unless the commands are there.
    let is_root_of_commands = path == "/" && options.commands_path.is_empty();
    if !is_root_of_commands && File::find(path).is_some() {
        return Some(&CONSOLE);
    }
    match path.strip_prefix(options.commands_path.as_str())? {
        "" | "/" => Some(&COMMANDS),
        rest => rest.starts_with('/').then_some(&COMMAND),
    }
}

/// Answers a request: one of a health check at once, others when it is their turn.
pub(super) async fn respond(
    (request, asker): (&Request<Incoming>, Asker),
    source: &dyn Source,
    options: &Options,
    turns: &Semaphore,
) -> Answer {
    let Some(route) = route(request.uri().path(), options) else { return not_found() };
    if let Some(refusal) = refusal(request.method(), route.methods) {
        return refusal;
    }
    if let Err(refusal) = options.guard.judge(route.shows, request.headers(), asker) {
        return refused(refusal);
    }
    if route.changes
        && let Err(refusal) = options.guard.judge_change(request.headers(), asker)
    {
        return refused(refusal);
    }
    // Fails when it is closed, which it never is.
    let _turn = if route.waits { turns.acquire().await.ok() } else { None };
    (route.answer)(&Question { request, asker, source, options }).await
}

/// hyper leaves out the body of the answer to the latter.
const READING: &str = "GET, HEAD";
/// As ZooKeeper has it for what changes the server.
const WRITING: &str = "POST";

async fn metrics_page(asked: &Question<'_>) -> Answer {
    let source = asked.source;
    let text = metrics::prometheus(&scrape::reading(source).await);
    page(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
}

/// Whether a server may be stopped: this one, or that of the parameter `server`.
async fn stoppable(asked: &Question<'_>) -> Answer {
    let ids = |name| {
        let text = asked.parameter(name).unwrap_or_default();
        let ids = text.split(',').filter(|id| !id.is_empty()).map(str::parse::<u8>);
        ids.collect::<Result<Vec<_>, _>>().ok()
    };
    let (Some(servers), Some(ignored)) = (ids("server"), ids("ignore")) else {
        return plain(StatusCode::BAD_REQUEST, "server, ignore: expected the N of server.N\n");
    };
    let server = match servers.as_slice() {
        [] => None,
        [server] => Some(*server),
        _ => return plain(StatusCode::BAD_REQUEST, "server: one at a time\n"),
    };
    let verdict = pre_stop::judge(asked.source, &Asked { server, ignored }).await;
    let status = match verdict {
        Verdict::Yes(_) => StatusCode::OK,
        Verdict::NotNow(_) | Verdict::Never(_) => StatusCode::SERVICE_UNAVAILABLE,
        Verdict::Unknown => StatusCode::NOT_FOUND,
    };
    plain(status, verdict.text())
}

fn command_list(commands_path: &str) -> Answer {
    let mut text = String::new();
    for command in Command::ALL.into_iter().filter(|command| !command.is_disabled()) {
        let name = command.name();
        text.push_str(&format!("<a href=\"{commands_path}/{name}\">{name}</a>\n<br/>\n"));
    }
    page(StatusCode::OK, "text/html; charset=utf-8", text)
}

/// The locks below the parameter `prefix`.
async fn lock_view(asked: &Question<'_>) -> Answer {
    let prefix = asked.parameter("prefix");
    match locks::prefix(prefix.as_deref()) {
        Ok(prefix) => view(Scope::Locks { prefix }, asked.source).await,
        Err(reason) => plain(StatusCode::BAD_REQUEST, format!("prefix: {reason}\n")),
    }
}

async fn view(scope: Scope, source: &dyn Source) -> Answer {
    match locks::answer(scope, source).await {
        Some(answer) => page(StatusCode::OK, "application/json", answer),
        None => stopping(),
    }
}

/// Who held the locks in the directory `path` before.
async fn lock_history(asked: &Question<'_>) -> Answer {
    match locks::prefix(asked.parameter("path").as_deref()) {
        Ok(path) => shown(tree_view::history(path, asked.source).await),
        Err(reason) => plain(StatusCode::BAD_REQUEST, format!("path: {reason}\n")),
    }
}

/// The znode at `path` and its children behind the name `after`, `limit` of them.
async fn znode(asked: &Question<'_>) -> Answer {
    let guard = &asked.options.guard;
    if guard.hides_tree {
        let words = "the tree is not shown: lockkeeper.adminBrowser is false\n";
        return plain(StatusCode::FORBIDDEN, words);
    }
    let path = match locks::prefix(asked.parameter("path").as_deref()) {
        Ok(path) => path,
        Err(reason) => return plain(StatusCode::BAD_REQUEST, format!("path: {reason}\n")),
    };
    let (after, limit) = (asked.parameter("after"), asked.parameter("limit"));
    let shows_all = guard.has_proof(asked.request.headers(), asked.asker);
    let question = tree_view::ask(path, after, limit.as_deref(), shows_all);
    match tree_view::znode(question, asked.source).await {
        Some(Some(answer)) => json_page(StatusCode::OK, &answer),
        Some(None) => plain(StatusCode::NOT_FOUND, "no such znode\n"),
        None => stopping(),
    }
}

/// Takes a lock away from the contender `node`, or asks for it, if its czxid is `token`.
async fn lock_change(asked: &Question<'_>, what: Change) -> Answer {
    let (node, token) = (asked.parameter("node"), asked.parameter("token"));
    let (Some(node), Some(Ok(token))) = (node, token.map(|text| text.parse::<i64>())) else {
        return plain(StatusCode::BAD_REQUEST, "node and token say which contender\n");
    };
    let done = change::run(what, &node, token, asked.source.facts()).await;
    let outcome = done.as_ref().map_or_else(|refused| refused.1.as_str(), |_| "done");
    let remote = asked.asker.remote;
    tracing::info!(?what, node, token, %remote, outcome, "an operator changes a lock");
    match done {
        Ok(answer) => json_page(StatusCode::OK, &answer),
        Err(Refused(status, words)) => plain(status, words + "\n"),
    }
}

/// Finishes the upgrade of the ensemble to this release.
async fn finish_upgrade(asked: &Question<'_>) -> Answer {
    let done = upgrade::finish(asked.source).await;
    let outcome = done.as_ref().map_or_else(|(_, words)| words.as_str(), |_| "done");
    tracing::info!(remote = %asked.asker.remote, outcome, "an operator finishes the upgrade");
    told(done)
}

/// A live migration: what it has come to, or a step of it.
async fn migrate(asked: &Question<'_>, what: Migrate) -> Answer {
    let order = (what, asked.asker.remote);
    told(migration::answer(order, &|name| asked.parameter(name), asked.source).await)
}

/// A backup.
async fn snapshot(asked: &Question<'_>) -> Answer {
    backup::answer(asked.parameter("subtree").as_deref(), asked.source).await
}

async fn command(asked: &Question<'_>) -> Answer {
    let Question { request, asker, source, options } = *asked;
    let name = request.uri().path().strip_prefix(options.commands_path.as_str());
    let name = percent_decoded(name.and_then(|rest| rest.strip_prefix('/')).unwrap_or_default());
    let Some(command) = Command::find(&name) else {
        return json_page(StatusCode::OK, &commands::unknown(&name));
    };
    let methods = if command.is_post() { WRITING } else { READING };
    if let Some(refusal) = refusal(request.method(), methods) {
        return refusal;
    }
    if command == Command::Snapshot && is_running(&source.status()) {
        let streaming = asked.parameter("streaming");
        let question = (request.headers(), asker, streaming.as_deref());
        return zookeeper_snapshot::answer(question, source, &options.guard).await;
    }
    let trace_mask = asked.parameter("traceMask");
    let answer = commands::run(command, trace_mask.as_deref(), source).await;
    let disabled = command.is_disabled();
    json_page(if disabled { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }, &answer)
}

#[cfg(test)]
mod tests {
    use hyper::body::Bytes;
    use serde_json::{Value, json};

    use super::super::fake::Fake;
    use super::super::guard::Guard;
    use super::super::served::{Reply, Served};
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
