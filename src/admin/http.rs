//! The HTTP port: `/commands`, `/metrics`, `/livez`, `/readyz`.
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
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Source;
use super::commands::{self, Command};
use super::idle::IdleStream;
use super::metrics::{self, Reading};

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
    let path = request.uri().path();
    if path == "/metrics" {
        return read_only(request.method(), || metrics_page(source));
    }
    if options.surface == Surface::Metrics {
        return not_found();
    }
    match path {
        "/livez" => return read_only(request.method(), || plain(StatusCode::OK, "ok\n")),
        "/readyz" => return read_only(request.method(), || readiness(source)),
        _ => {}
    }
    match path.strip_prefix(options.commands_path.as_str()) {
        Some("" | "/") => read_only(request.method(), || command_list(&options.commands_path)),
        Some(rest) => match rest.strip_prefix('/') {
            Some(name) => command(request, &percent_decoded(name), source).await,
            None => not_found(),
        },
        None => not_found(),
    }
}

/// Runs `page` for GET and HEAD (hyper leaves out the body of the latter).
fn read_only(method: &Method, page: impl FnOnce() -> Answer) -> Answer {
    if is_read(method) { page() } else { method_not_allowed("GET, HEAD") }
}

fn is_read(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

fn metrics_page(source: &dyn Source) -> Answer {
    let text = metrics::prometheus(&Reading::now(source.status(), source));
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

async fn command(request: &Request<Incoming>, name: &str, source: &dyn Source) -> Answer {
    let method = request.method();
    if !is_read(method) && *method != Method::POST {
        return method_not_allowed("GET, HEAD, POST");
    }
    let Some(command) = Command::find(name) else {
        return json_page(StatusCode::OK, &commands::unknown(name));
    };
    if command.is_post() != (*method == Method::POST) {
        return method_not_allowed(if command.is_post() { "POST" } else { "GET, HEAD" });
    }
    let trace_mask = parameter(request.uri().query().unwrap_or(""), "traceMask");
    let answer = commands::run(command, trace_mask.as_deref(), source).await;
    let disabled = command.is_disabled();
    json_page(if disabled { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }, &answer)
}

/// The first value of a parameter of a query.
fn parameter(query: &str, name: &str) -> Option<String> {
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

fn json_page(status: StatusCode, value: &serde_json::Value) -> Answer {
    page(status, "application/json", format!("{value:#}"))
}

fn not_found() -> Answer {
    plain(StatusCode::NOT_FOUND, "not found\n")
}

fn method_not_allowed(allowed: &'static str) -> Answer {
    let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, format!("allowed here: {allowed}\n"));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
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
