//! What is under which path of the HTTP port: the console and what it asks for, `/commands`, `/locks`, `/sessions`,
//! `/metrics`, `/livez`, `/readyz`, `/pre_stop`, `/upgrade`, `/snapshot`.
//!
//! *Owns* the paths, the methods that each allows, and what answers look like. *Never* reads a body,
//! and never knows what a command answers.

use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::Semaphore;
use tokio::time::{Duration, sleep};

use super::Source;
use super::backup;
use super::body::AnswerBody;
use super::change::{self, Change, Refused};
use super::command::Command;
use super::commands;
use super::console::File;
use super::guard::{Asker, Asks, Refusal};
use super::http::{Options, Surface};
use super::locks;
use super::metrics::{self, Reading};
use super::migration::{self, Migrate};
use super::pre_stop::{self, Asked, Verdict};
use super::words::is_running;
use super::{overview, tree_view, upgrade, zookeeper_snapshot};
use crate::locks::Scope;

/// What a request is answered with.
pub(super) type Answer = Response<AnswerBody>;

/// Answers a request: one of a health check at once, others when it is their turn.
pub(super) async fn respond(
    (request, asker): (&Request<Incoming>, Asker),
    source: &dyn Source,
    options: &Options,
    turns: &Semaphore,
) -> Answer {
    let Some(route) = Route::of(request.uri().path(), options) else { return not_found() };
    if let Some(refusal) = refusal(request.method(), route.methods()) {
        return refusal;
    }
    if let Err(refusal) = options.guard.judge(route.asks(), request.headers(), asker) {
        return refused(refusal);
    }
    if route.changes()
        && let Err(refusal) = options.guard.judge_change(request.headers(), asker)
    {
        return refused(refusal);
    }
    let _turn = match route {
        // Of backups, one is made at a time, and it may take minutes.
        Route::Liveness | Route::Readiness | Route::Snapshot => None,
        // Fails when it is closed, which it never is.
        Route::Metrics
        | Route::Console(_)
        | Route::Overview
        | Route::PreStop
        | Route::Locks
        | Route::History
        | Route::Change(_)
        | Route::Upgrade
        | Route::Migration(_)
        | Route::Sessions
        | Route::Watches
        | Route::Znodes
        | Route::Commands
        | Route::Command(_) => turns.acquire().await.ok(),
    };
    match route {
        Route::Metrics => metrics_page(source).await,
        Route::Liveness => liveness(source).await,
        Route::Readiness => readiness(source),
        Route::Console(file) => file.answer(),
        Route::Overview => shown(overview::answer(source).await),
        Route::PreStop => stoppable(request, source).await,
        Route::Locks => lock_view(request, source).await,
        Route::History => lock_history(request, source).await,
        Route::Change(what) => lock_change((request, asker), what, source).await,
        Route::Upgrade => finish_upgrade(asker, source).await,
        Route::Migration(what) => {
            let asked = (what, asker.remote);
            told(migration::answer(asked, &|name| parameter(request, name), source).await)
        }
        Route::Snapshot => backup::answer(parameter(request, "subtree").as_deref(), source).await,
        Route::Watches => shown(tree_view::watches(source).await),
        Route::Znodes => znode((request, asker), source, options).await,
        Route::Sessions => view(Scope::Sessions, source).await,
        Route::Commands => command_list(&options.commands_path),
        Route::Command(name) => command((request, asker), &name, source, options).await,
    }
}

/// What a path leads to.
enum Route {
    Metrics,
    Liveness,
    Readiness,
    Console(File),
    Overview,
    PreStop,
    Locks,
    History,
    Change(Change),
    Upgrade,
    Migration(Migrate),
    Snapshot,
    Sessions,
    Watches,
    Znodes,
    Commands,
    /// Whether it exists or not.
    Command(String),
}

impl Route {
    /// Whether it changes something: who asks is looked at once more.
    fn changes(&self) -> bool {
        match self {
            Route::Change(_) | Route::Upgrade => true,
            Route::Migration(what) => *what != Migrate::Status,
            _ => false,
        }
    }

    fn of(path: &str, options: &Options) -> Option<Route> {
        match path {
            "/metrics" => return Some(Route::Metrics),
            _ if options.surface == Surface::Metrics => return None,
            "/livez" => return Some(Route::Liveness),
            "/readyz" => return Some(Route::Readiness),
            "/pre_stop" => return Some(Route::PreStop),
            // Unless the commands are there.
            "/" if options.commands_path.is_empty() => {}
            "/overview" => return Some(Route::Overview),
            "/locks" => return Some(Route::Locks),
            "/locks/history" => return Some(Route::History),
            "/locks/break" => return Some(Route::Change(Change::Break)),
            "/locks/revoke" => return Some(Route::Change(Change::Revoke)),
            "/upgrade" => return Some(Route::Upgrade),
            "/migration" => return Some(Route::Migration(Migrate::Status)),
            "/migration/follow" => return Some(Route::Migration(Migrate::Follow)),
            "/migration/cutover" => return Some(Route::Migration(Migrate::CutOver)),
            "/migration/abort" => return Some(Route::Migration(Migrate::Abort)),
            "/snapshot" => return Some(Route::Snapshot),
            "/sessions" => return Some(Route::Sessions),
            "/watches" => return Some(Route::Watches),
            "/znodes" => return Some(Route::Znodes),
            _ => {
                if let Some(file) = File::find(path) {
                    return Some(Route::Console(file));
                }
            }
        }
        match path.strip_prefix(options.commands_path.as_str())? {
            "" | "/" => Some(Route::Commands),
            rest => rest.strip_prefix('/').map(|name| Route::Command(percent_decoded(name))),
        }
    }

    /// What it shows.
    fn asks(&self) -> Asks {
        match self {
            Route::Metrics | Route::Liveness | Route::Readiness | Route::PreStop => Asks::Figures,
            Route::Console(_) | Route::Overview | Route::Commands | Route::Command(_) => {
                Asks::Commands
            }
            Route::Locks
            | Route::History
            | Route::Change(_)
            | Route::Upgrade
            | Route::Migration(_)
            | Route::Sessions
            | Route::Watches
            | Route::Znodes => Asks::Znodes,
            Route::Snapshot => Asks::Everything,
        }
    }

    /// Those that it may be asked with, as a header has them.
    fn methods(&self) -> &'static str {
        match self {
            Route::Metrics
            | Route::Liveness
            | Route::Readiness
            | Route::Console(_)
            | Route::Overview
            | Route::PreStop
            | Route::Locks
            | Route::History
            | Route::Sessions
            | Route::Watches
            | Route::Znodes
            | Route::Commands => READING,
            Route::Snapshot => "GET",
            Route::Migration(Migrate::Status) => READING,
            Route::Change(_) | Route::Upgrade | Route::Migration(_) => WRITING,
            Route::Command(_) => "GET, HEAD, POST",
        }
    }
}

/// hyper leaves out the body of the answer to the latter.
const READING: &str = "GET, HEAD";
/// As ZooKeeper has it for what changes the server.
const WRITING: &str = "POST";

async fn metrics_page(source: &dyn Source) -> Answer {
    let text = metrics::prometheus(&Reading::with_questions(source.status(), source).await);
    page(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
}

/// A server lives unless a thread of it has panicked, or its driver does not come to an end of what it
/// is doing: a restart mends both. What it waits for (a disk, another server) is no reason to kill it.
async fn liveness(source: &dyn Source) -> Answer {
    if let Some(why) = source.failure() {
        return plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"));
    }
    let is_dead = || source.stalled().filter(|stalled| *stalled >= STALLED_DEAD);
    if is_dead().is_some() {
        // A process that was stopped, and goes on, has not had its turn yet.
        sleep(SECOND_LOOK).await;
    }
    match is_dead() {
        None => plain(StatusCode::OK, "ok\n"),
        Some(stalled) => plain(StatusCode::SERVICE_UNAVAILABLE, stall(stalled) + "\n"),
    }
}

fn stall(stalled: Duration) -> String {
    format!("the driver has not come to the end of a turn for {} s", stalled.as_secs())
}

/// A driver that is busy for so long with one turn is dead. The longest that are known (a state of
/// gigabytes that is replaced, a disk that takes its time) take a few seconds.
pub(super) const STALLED_DEAD: Duration = Duration::from_secs(30);
/// And a server that is busy for so long serves no client at the moment.
const STALLED_UNREADY: Duration = Duration::from_secs(5);
/// Time before a driver that seems dead is looked at again.
const SECOND_LOOK: Duration = Duration::from_millis(200);

fn readiness(source: &dyn Source) -> Answer {
    let (status, mut conditions) = (source.status(), source.conditions());
    conditions.extend(source.failure());
    conditions.extend(source.stalled().filter(|time| *time >= STALLED_UNREADY).map(stall));
    if status.serving && conditions.is_empty() {
        return plain(StatusCode::OK, "ok\n");
    }
    let mut text = match status.serving {
        true => "not ready\n".to_string(),
        false => format!("not serving: this server is {}\n", status.mode.name()),
    };
    for condition in conditions {
        text += &format!("{condition}\n");
    }
    plain(StatusCode::SERVICE_UNAVAILABLE, text)
}

/// Whether a server may be stopped: this one, or that of the parameter `server`.
async fn stoppable(request: &Request<Incoming>, source: &dyn Source) -> Answer {
    let ids = |name| {
        let text = parameter(request, name).unwrap_or_default();
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
    let verdict = pre_stop::judge(source, &Asked { server, ignored }).await;
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
async fn lock_view(request: &Request<Incoming>, source: &dyn Source) -> Answer {
    let prefix = parameter(request, "prefix");
    match locks::prefix(prefix.as_deref()) {
        Ok(prefix) => view(Scope::Locks { prefix }, source).await,
        Err(reason) => plain(StatusCode::BAD_REQUEST, format!("prefix: {reason}\n")),
    }
}

async fn view(scope: Scope, source: &dyn Source) -> Answer {
    match locks::answer(scope, source).await {
        Some(answer) => page(StatusCode::OK, "application/json", answer),
        None => stopping(),
    }
}

/// An answer that is there unless the server is stopping.
fn shown(answer: Option<serde_json::Value>) -> Answer {
    answer.map_or_else(stopping, |answer| json_page(StatusCode::OK, &answer))
}

fn stopping() -> Answer {
    plain(StatusCode::SERVICE_UNAVAILABLE, "not serving: this server is stopping\n")
}

/// Who held the locks in the directory `path` before.
async fn lock_history(request: &Request<Incoming>, source: &dyn Source) -> Answer {
    match locks::prefix(parameter(request, "path").as_deref()) {
        Ok(path) => shown(tree_view::history(path, source).await),
        Err(reason) => plain(StatusCode::BAD_REQUEST, format!("path: {reason}\n")),
    }
}

/// The znode at `path` and its children behind the name `after`, `limit` of them.
async fn znode(
    (request, asker): (&Request<Incoming>, Asker),
    source: &dyn Source,
    options: &Options,
) -> Answer {
    if options.guard.hides_tree {
        let words = "the tree is not shown: lockkeeper.adminBrowser is false\n";
        return plain(StatusCode::FORBIDDEN, words);
    }
    let path = match locks::prefix(parameter(request, "path").as_deref()) {
        Ok(path) => path,
        Err(reason) => return plain(StatusCode::BAD_REQUEST, format!("path: {reason}\n")),
    };
    let (after, limit) = (parameter(request, "after"), parameter(request, "limit"));
    let shows_all = options.guard.has_proof(request.headers(), asker);
    let question = tree_view::ask(path, after, limit.as_deref(), shows_all);
    match tree_view::znode(question, source).await {
        Some(Some(answer)) => json_page(StatusCode::OK, &answer),
        Some(None) => plain(StatusCode::NOT_FOUND, "no such znode\n"),
        None => stopping(),
    }
}

/// Takes a lock away from the contender `node`, or asks for it, if its czxid is `token`.
async fn lock_change(
    (request, asker): (&Request<Incoming>, Asker),
    what: Change,
    source: &dyn Source,
) -> Answer {
    let (node, token) = (parameter(request, "node"), parameter(request, "token"));
    let (Some(node), Some(Ok(token))) = (node, token.map(|text| text.parse::<i64>())) else {
        return plain(StatusCode::BAD_REQUEST, "node and token say which contender\n");
    };
    let done = change::run(what, &node, token, source.facts()).await;
    let outcome = done.as_ref().map_or_else(|refused| refused.1.as_str(), |_| "done");
    tracing::info!(?what, node, token, remote = %asker.remote, outcome, "an operator changes a lock");
    match done {
        Ok(answer) => json_page(StatusCode::OK, &answer),
        Err(Refused(status, words)) => plain(status, words + "\n"),
    }
}

/// Finishes the upgrade of the ensemble to this release.
async fn finish_upgrade(asker: Asker, source: &dyn Source) -> Answer {
    let done = upgrade::finish(source).await;
    let outcome = done.as_ref().map_or_else(|(_, words)| words.as_str(), |_| "done");
    tracing::info!(remote = %asker.remote, outcome, "an operator finishes the upgrade");
    told(done)
}

/// What came of it, or why nothing did.
fn told(done: Result<serde_json::Value, (StatusCode, String)>) -> Answer {
    match done {
        Ok(answer) => json_page(StatusCode::OK, &answer),
        Err((status, words)) => plain(status, words + "\n"),
    }
}

async fn command(
    (request, asker): (&Request<Incoming>, Asker),
    name: &str,
    source: &dyn Source,
    options: &Options,
) -> Answer {
    let Some(command) = Command::find(name) else {
        return json_page(StatusCode::OK, &commands::unknown(name));
    };
    let methods = if command.is_post() { WRITING } else { READING };
    if let Some(refusal) = refusal(request.method(), methods) {
        return refusal;
    }
    if command == Command::Snapshot && is_running(&source.status()) {
        let streaming = parameter(request, "streaming");
        let asked = (request.headers(), asker, streaming.as_deref());
        return zookeeper_snapshot::answer(asked, source, &options.guard).await;
    }
    let trace_mask = parameter(request, "traceMask");
    let answer = commands::run(command, trace_mask.as_deref(), source).await;
    let disabled = command.is_disabled();
    json_page(if disabled { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }, &answer)
}

/// The first value of a parameter of a query.
fn parameter(request: &Request<Incoming>, name: &str) -> Option<String> {
    let query = request.uri().query().unwrap_or("");
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key == name).then(|| percent_decoded(value))
    })
}

/// `%41` becomes `A`; what is no valid escape stays, what is no UTF-8 is replaced.
fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digit =
            |offset: usize| bytes.get(at + offset).and_then(|&byte| char::from(byte).to_digit(16));
        match (bytes[at], digit(1), digit(2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, _, _) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

pub(super) fn json_page(status: StatusCode, value: &serde_json::Value) -> Answer {
    page(status, "application/json", format!("{value:#}"))
}

fn refused(Refusal { status, words, challenge }: Refusal) -> Answer {
    let mut answer = plain(status, words + "\n");
    if let Some((name, value)) = challenge {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

fn not_found() -> Answer {
    plain(StatusCode::NOT_FOUND, "not found\n")
}

/// `None` if the method is one of those that are allowed.
fn refusal(method: &Method, allowed: &'static str) -> Option<Answer> {
    if allowed.split(", ").any(|allowed| method == allowed) {
        return None;
    }
    let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, format!("allowed here: {allowed}\n"));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    Some(answer)
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    page(status, "text/plain; charset=utf-8", text)
}

pub(super) fn page(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Answer {
    let mut answer = Response::new(AnswerBody::whole(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

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

    #[tokio::test]
    async fn readiness_follows_serving_and_liveness_does_not() {
        let served = Served::new().await;
        assert_eq!(served.get("/readyz").await.status, 200);
        served.fake.paused.store(true, Ordering::Relaxed);
        let answer = served.get("/readyz").await;
        assert_eq!(answer.status, 503);
        assert!(answer.body.starts_with("not serving: "), "{}", answer.body);
        assert_eq!(served.get("/livez").await.status, 200);
        let command = served.get("/commands/srvr").await;
        assert_eq!(command.status, 200);
        assert_eq!(
            command.json()["error"],
            "This ZooKeeper instance is not currently serving requests"
        );
        served.fake.paused.store(false, Ordering::Relaxed);
        assert_eq!(served.get("/readyz").await.status, 200);
    }

    #[tokio::test]
    async fn a_server_with_a_panicked_thread_or_a_driver_that_is_stuck_is_not_alive() {
        let asked = async |fake| {
            let served = Served::with(fake, Options::default()).await;
            (served.get("/livez").await, served.get("/readyz").await)
        };
        let failure = Some("defect in driver".to_owned());
        let (live, ready) = asked(Fake { failure, ..Fake::standalone() }).await;
        assert_eq!((live.status, live.body.as_str()), (503, "defect in driver\n"));
        assert_eq!(ready.status, 503);
        for (seconds, statuses) in [(4, (200, 200)), (6, (200, 503)), (31, (503, 503))] {
            let stalled = Some(Duration::from_secs(seconds));
            let (live, ready) = asked(Fake { stalled, ..Fake::standalone() }).await;
            assert_eq!((live.status, ready.status), statuses, "{seconds}");
            let says_so = format!("the driver has not come to the end of a turn for {seconds} s");
            assert_eq!(ready.body.contains(&says_so), seconds > 5, "{}", ready.body);
        }
    }

    #[tokio::test]
    async fn a_server_with_something_wrong_says_what_and_is_not_ready() {
        let served = Served::new().await;
        served.fake.conditions.lock().unwrap().push("the disk hangs".to_string());
        let answer = served.get("/readyz").await;
        assert_eq!((answer.status, answer.body.as_str()), (503, "not ready\nthe disk hangs\n"));
        served.fake.paused.store(true, Ordering::Relaxed);
        let answer = served.get("/readyz").await;
        assert!(answer.body.starts_with("not serving: "), "{}", answer.body);
        assert!(answer.body.ends_with("\nthe disk hangs\n"), "{}", answer.body);
        served.fake.conditions.lock().unwrap().clear();
        served.fake.paused.store(false, Ordering::Relaxed);
        assert_eq!(served.get("/readyz").await.status, 200);
    }
}
