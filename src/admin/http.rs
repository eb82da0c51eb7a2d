//! The HTTP port: the page of locks, `/commands`, `/locks`, `/sessions`, `/metrics`, `/livez`, `/readyz`.
//!
//! *Owns* the listener's connections and everything that is HTTP: routes, methods, limits.
//! *Invariants*: a request's head, the connections and their idle time are bounded; the body of a
//! request is never read; nothing that a client sends makes it panic. It can be bound more than
//! once (a port for metrics alone). *Never* knows what a command answers.
//!
//! Reproduces `JettyAdminServer` and the servlet of `PrometheusMetricsProvider`.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Source;
use super::command::Command;
use super::commands;
use super::idle::IdleStream;
use super::locks;
use super::metrics::{self, Reading};
use crate::locks::Scope;

/// Connections served at once; one more is closed at once.
pub const CONNECTIONS_MAX: usize = 128;
/// Bytes of a request's line and headers.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Number of a request's headers.
pub const HEADERS_MAX: usize = 64;
/// Longest time for which nothing may move on a connection, as ZooKeeper's `admin.idleTimeout`.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long answers that are under way may take when the server stops.
const STOP_GRACE: Duration = Duration::from_millis(500);
/// Pause after the system refused to accept (no descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a port offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Surface {
    /// Everything.
    #[default]
    All,
    /// `/metrics` alone.
    Metrics,
}

/// Options of one port.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is offered.
    pub surface: Surface,
    /// Where the commands are, without a slash at the end (`admin.commandURL`).
    pub commands_path: String,
    /// Longest time for which nothing may move on a connection (`admin.idleTimeout`).
    pub idle_timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            surface: Surface::All,
            commands_path: "/commands".to_string(),
            idle_timeout: IDLE_TIMEOUT,
        }
    }
}

/// Serves a port until `shutdown` is ready; then ends within half a second.
pub async fn serve(
    listener: TcpListener,
    source: Arc<dyn Source>,
    options: Options,
    shutdown: impl Future<Output = ()>,
) {
    let options = Arc::new(options);
    let (stop, stopping) = watch::channel(false);
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "an HTTP connection's task failed");
                }
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) if connections.len() >= CONNECTIONS_MAX => {
                    tracing::warn!(%peer, max = CONNECTIONS_MAX, "too many HTTP connections");
                    drop(stream);
                }
                Ok((stream, _)) => {
                    let (source, options) = (Arc::clone(&source), Arc::clone(&options));
                    connections.spawn(connection(stream, source, options, stopping.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an HTTP connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    stop.send_replace(true);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_GRACE, drained).await.is_err() {
        connections.shutdown().await;
    }
}

async fn connection(
    stream: TcpStream,
    source: Arc<dyn Source>,
    options: Arc<Options>,
    mut stopping: watch::Receiver<bool>,
) {
    let stream = TokioIo::new(IdleStream::new(stream, options.idle_timeout));
    let idle_timeout = options.idle_timeout;
    let service = service_fn(move |request| {
        let (source, options) = (Arc::clone(&source), Arc::clone(&options));
        async move { Ok::<_, Infallible>(respond(&request, source.as_ref(), &options).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(idle_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        // `nc` closes its side as soon as it has sent the request.
        .half_close(true)
        .serve_connection(stream, service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = stopping.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP connection ended early");
    }
}

type Answer = Response<Full<Bytes>>;

async fn respond(request: &Request<Incoming>, source: &dyn Source, options: &Options) -> Answer {
    let Some(route) = Route::of(request.uri().path(), options) else { return not_found() };
    if let Some(refusal) = refusal(request.method(), route.methods()) {
        return refusal;
    }
    match route {
        Route::Metrics => metrics_page(source).await,
        Route::Liveness => plain(StatusCode::OK, "ok\n"),
        Route::Readiness => readiness(source),
        Route::Page => lock_page(),
        Route::Locks => lock_view(request, source).await,
        Route::Sessions => view(Scope::Sessions, source).await,
        Route::Commands => command_list(&options.commands_path),
        Route::Command(name) => command(request, &name, source).await,
    }
}

/// What a path leads to.
#[derive(Debug)]
enum Route {
    Metrics,
    Liveness,
    Readiness,
    Page,
    Locks,
    Sessions,
    Commands,
    /// Whether it exists or not.
    Command(String),
}

impl Route {
    fn of(path: &str, options: &Options) -> Option<Route> {
        match path {
            "/metrics" => return Some(Route::Metrics),
            _ if options.surface == Surface::Metrics => return None,
            "/livez" => return Some(Route::Liveness),
            "/readyz" => return Some(Route::Readiness),
            // Unless the commands are there.
            "/" if !options.commands_path.is_empty() => return Some(Route::Page),
            "/locks" => return Some(Route::Locks),
            "/sessions" => return Some(Route::Sessions),
            _ => {}
        }
        match path.strip_prefix(options.commands_path.as_str())? {
            "" | "/" => Some(Route::Commands),
            rest => rest.strip_prefix('/').map(|name| Route::Command(percent_decoded(name))),
        }
    }

    /// Those that it may be asked with, as a header has them.
    fn methods(&self) -> &'static str {
        match self {
            Route::Metrics
            | Route::Liveness
            | Route::Readiness
            | Route::Page
            | Route::Locks
            | Route::Sessions
            | Route::Commands => READING,
            Route::Command(_) => "GET, HEAD, POST",
        }
    }
}

/// hyper leaves out the body of the answer to the latter.
const READING: &str = "GET, HEAD";
/// As ZooKeeper has it for what changes the server.
const WRITING: &str = "POST";

async fn metrics_page(source: &dyn Source) -> Answer {
    let text = metrics::prometheus(&Reading::with_locks(source.status(), source).await);
    page(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
}

fn readiness(source: &dyn Source) -> Answer {
    let status = source.status();
    if status.serving {
        return plain(StatusCode::OK, "ok\n");
    }
    let text = format!("not serving: this server is {}\n", status.mode.name());
    plain(StatusCode::SERVICE_UNAVAILABLE, text)
}

fn command_list(commands_path: &str) -> Answer {
    let mut text = String::new();
    for command in Command::ALL.into_iter().filter(|command| !command.is_disabled()) {
        let name = command.name();
        text.push_str(&format!("<a href=\"{commands_path}/{name}\">{name}</a>\n<br/>\n"));
    }
    page(StatusCode::OK, "text/html; charset=utf-8", text)
}

/// The page that people look at. What it shows, it asks for itself.
fn lock_page() -> Answer {
    let mut answer = page(StatusCode::OK, "text/html; charset=utf-8", include_str!("page.html"));
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
    answer
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
        None => plain(StatusCode::SERVICE_UNAVAILABLE, "not serving: this server is stopping\n"),
    }
}

async fn command(request: &Request<Incoming>, name: &str, source: &dyn Source) -> Answer {
    let Some(command) = Command::find(name) else {
        return json_page(StatusCode::OK, &commands::unknown(name));
    };
    let methods = if command.is_post() { WRITING } else { READING };
    if let Some(refusal) = refusal(request.method(), methods) {
        return refusal;
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

/// What the page may do: be itself, and ask this server.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                           connect-src 'self'; frame-ancestors 'none'; base-uri 'none'";

fn json_page(status: StatusCode, value: &serde_json::Value) -> Answer {
    page(status, "application/json", format!("{value:#}"))
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

fn page(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::Ordering;

    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;

    use super::super::fake::Fake;
    use super::*;

    struct Served {
        address: SocketAddr,
        fake: Arc<Fake>,
        stop: Option<oneshot::Sender<()>>,
        task: JoinHandle<()>,
    }

    impl Served {
        async fn with(fake: Fake, options: Options) -> Served {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let fake = Arc::new(fake);
            let (stop, stopped) = oneshot::channel();
            let source: Arc<dyn Source> = fake.clone();
            let task = tokio::spawn(serve(listener, source, options, async move {
                stopped.await.ok();
            }));
            Served { address, fake, stop: Some(stop), task }
        }

        async fn new() -> Served {
            Served::with(Fake::standalone(), Options::default()).await
        }

        async fn connect(&self) -> TcpStream {
            TcpStream::connect(self.address).await.unwrap()
        }

        /// Sends bytes, closes the sending side, and returns all that comes back.
        async fn raw(&self, bytes: &[u8]) -> String {
            let mut stream = self.connect().await;
            stream.write_all(bytes).await.unwrap();
            stream.shutdown().await.unwrap();
            all(&mut stream).await
        }

        async fn ask(&self, method: &str, target: &str) -> Reply {
            let text =
                self.raw(format!("{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await;
            Reply::parse(&text)
        }

        async fn get(&self, target: &str) -> Reply {
            self.ask("GET", target).await
        }
    }

    /// A reset counts as an end: it is how a server cuts who still sends.
    async fn all(stream: &mut TcpStream) -> String {
        let mut bytes = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut bytes));
        let _: std::io::Result<usize> = ended.await.expect("the server closes");
        String::from_utf8(bytes).unwrap()
    }

    #[derive(Debug)]
    struct Reply {
        status: u16,
        head: String,
        body: String,
    }

    impl Reply {
        fn parse(text: &str) -> Reply {
            let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            Reply { status, head: head.to_ascii_lowercase(), body: body.to_string() }
        }

        fn json(&self) -> Value {
            assert!(self.head.contains("content-type: application/json"), "{}", self.head);
            serde_json::from_str(&self.body).unwrap()
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
        assert!(!list.body.contains("/snapshot\""));
        assert_eq!(served.get("/commands/").await.body, list.body);
        for link in list.body.lines().filter_map(|line| line.split('"').nth(1)) {
            assert_eq!(served.get(link).await.status, 200, "{link}");
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
        for (method, name) in [("GET", "snapshot"), ("GET", "snap"), ("POST", "restore")] {
            let answer = served.ask(method, &format!("/commands/{name}")).await;
            assert_eq!(answer.status, 503, "{name}");
            let error = answer.json()["error"].as_str().unwrap().to_string();
            assert!(error.ends_with("is disabled: this server cannot do it yet"), "{error}");
        }
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
    async fn the_page_of_locks_asks_this_server_alone() {
        let served = Served::new().await;
        let page = served.get("/").await;
        assert_eq!(page.status, 200);
        assert!(page.head.contains("content-type: text/html"), "{}", page.head);
        assert!(page.head.contains("content-security-policy: default-src 'none'"));
        assert!(!page.body.contains("://"), "nothing is loaded from elsewhere");
        let locks = served.get("/locks?prefix=/a%20b").await;
        let answer: Value = serde_json::from_str(&locks.body).unwrap();
        assert_eq!((&answer["prefix"], &answer["locks"]), (&json!("/a b"), &json!([])));
        assert_eq!(served.get("/locks?prefix=a").await.status, 400);
        assert_eq!(served.ask("POST", "/locks").await.status, 405);
        assert_eq!(served.ask("POST", "/sessions").await.status, 405);
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
    async fn a_connection_serves_one_request_after_another() {
        let served = Served::new().await;
        let requests = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n".repeat(3);
        let text = served.raw(requests.as_bytes()).await;
        assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 3, "{text}");
    }

    #[tokio::test]
    async fn malformed_requests_are_refused_or_cut() {
        let served = Served::new().await;
        let long_path = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(2 * HEAD_BYTES_MAX));
        let long_header = format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(HEAD_BYTES_MAX));
        let headers = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1));
        for (request, statuses) in [
            (&b"\x00\x00\x00\x2c\x00\x00\x00\x00"[..], &[400][..]),
            (b"ruok\r\n\r\n", &[400]),
            (b"GET /metrics HTTP/9.9\r\n\r\n", &[400]),
            (b"GET /metrics HTTP/1.1\r\nContent-Length: -1\r\n\r\n", &[400]),
            (b"GET \xff\xfe HTTP/1.1\r\n\r\n", &[400]),
            (b"GET /metrics HTTP/1.1\r\nA\x00: b\r\n\r\n", &[400]),
            (long_path.as_bytes(), &[414, 431]),
            (long_header.as_bytes(), &[431]),
            (headers.as_bytes(), &[431]),
        ] {
            let mut stream = served.connect().await;
            // The server may close before it has read everything.
            let _: std::io::Result<()> = stream.write_all(request).await;
            let text = all(&mut stream).await;
            assert!(
                (text.is_empty() && request.len() > HEAD_BYTES_MAX)
                    || statuses.contains(&Reply::parse(&text).status),
                "{text} for {}",
                String::from_utf8_lossy(&request[..request.len().min(60)])
            );
        }
        assert_eq!(served.get("/livez").await.status, 200);
    }

    #[tokio::test]
    async fn as_many_headers_as_allowed_are_accepted() {
        let served = Served::new().await;
        let headers = "A: b\r\n".repeat(HEADERS_MAX);
        let text = served.raw(format!("GET /livez HTTP/1.1\r\n{headers}\r\n").as_bytes()).await;
        assert_eq!(Reply::parse(&text).status, 200);
    }

    #[tokio::test]
    async fn the_body_of_a_request_is_not_waited_for() {
        let served = Served::new().await;
        let mut stream = served.connect().await;
        let head = b"POST /commands/restore HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n";
        stream.write_all(head).await.unwrap();
        assert_eq!(Reply::parse(&all(&mut stream).await).status, 503);
    }

    #[tokio::test]
    async fn a_silent_or_slow_client_is_cut() {
        let options = Options { idle_timeout: Duration::from_millis(50), ..Options::default() };
        let served = Served::with(Fake::standalone(), options).await;
        for head in [&b""[..], b"GET /livez HT", b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"] {
            let mut stream = served.connect().await;
            stream.write_all(head).await.unwrap();
            let text = all(&mut stream).await;
            assert_eq!(text.contains("200 OK"), head.ends_with(b"\r\n\r\n"), "{text}");
        }
    }

    #[tokio::test]
    async fn one_connection_too_many_is_closed_and_room_is_made_again() {
        let served = Served::new().await;
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            held.push(served.connect().await);
        }
        assert_eq!(all(&mut served.connect().await).await, "");
        let last = held.last_mut().unwrap();
        last.write_all(b"GET /livez HTTP/1.0\r\n\r\n").await.unwrap();
        assert_eq!(Reply::parse(&all(last).await).status, 200);
        // Its place is free as soon as the server has seen its end.
        let probe = b"GET /livez HTTP/1.0\r\n\r\n";
        let served_again = async {
            loop {
                let mut stream = served.connect().await;
                let sent = stream.write_all(probe).await;
                if sent.is_ok() && !all(&mut stream).await.is_empty() {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(10), served_again).await.expect("room again");
    }

    #[tokio::test]
    async fn stopping_ends_idle_connections_and_the_port() {
        let mut served = Served::new().await;
        let mut silent = served.connect().await;
        let mut kept = served.connect().await;
        kept.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut first = [0; 12];
        kept.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        served.stop.take().unwrap().send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(10), &mut served.task)
            .await
            .expect("stops in time")
            .unwrap();
        assert_eq!(all(&mut silent).await, "");
        all(&mut kept).await;
        assert!(TcpStream::connect(served.address).await.is_err());
    }
}
