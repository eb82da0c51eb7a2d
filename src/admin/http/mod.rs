//! The HTTP port.
//!
//! *Owns* the listener's connections and their limits. *Invariants*: a request's head, the connections
//! and the time that a client may take are bounded; a new connection is served however many are held
//! open (`places.rs`); the body of a request is never read; nothing that a client sends makes it panic.
//! It can be bound more than once (a port for metrics alone). *Never* knows what a path leads to: it is
//! given a router.
//!
//! Reproduces `JettyAdminServer` and the servlet of `PrometheusMetricsProvider`.

mod answer;
mod body;
mod guard;
mod idle;
mod options;
mod places;
mod route;
mod secure;

#[cfg(test)]
pub(super) mod served;

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

pub(super) use self::answer::{Answer, json_page, page, plain, refusal, shown, stopping, told};
pub(super) use self::body::AnswerBody;
pub use self::guard::Guard;
pub(crate) use self::guard::read_token;
pub(super) use self::guard::{Asker, Asks};
use self::idle::{Patience, Phase};
pub(crate) use self::options::Surface;
pub use self::options::{CONNECTIONS_MAX, Options};
use self::places::{Place, Places};
use self::route::respond;
pub(super) use self::route::{Question, READING, Route, Router, WRITING, percent_decoded};
pub(crate) use self::secure::PortTls;
use super::Source;
use crate::supervision::{Task, TaskSet};

/// Bytes of a request's line and headers.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Number of a request's headers.
const HEADERS_MAX: usize = 64;
/// Answers that are made at once, those to health checks aside: they do not wait for many long ones.
const ANSWERS_MAX: usize = 4;
/// How long answers that are under way may take when the server stops.
const STOP_GRACE: Duration = Duration::from_millis(500);
/// Pause after the system refused to accept (no descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// State that the connections of a port share.
struct Port {
    source: Arc<dyn Source>,
    options: Options,
    router: Router,
    turns: Semaphore,
}

/// Serves a port until `shutdown` is ready; then ends within half a second.
pub(super) async fn serve(
    listener: TcpListener,
    source: Arc<dyn Source>,
    options: Options,
    router: Router,
    shutdown: impl Future<Output = ()>,
) {
    let connections_max = options.connections_max;
    let turns = Semaphore::new(ANSWERS_MAX);
    let port = Arc::new(Port { source, options, router, turns });
    let (stop, stopping) = watch::channel(false);
    let mut connections = TaskSet::default();
    let mut places = Places::new(connections_max);
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            // One that has panicked ends the server.
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, remote)) => {
                    let remote = remote.ip().to_canonical();
                    let place = places.take(remote);
                    // One that has yielded has closed its socket before this one is served.
                    while connections.len() >= connections_max {
                        connections.join_next().await;
                    }
                    let number = place.number();
                    let serve = connection((stream, remote), place, Arc::clone(&port), stopping.clone());
                    places.runs(number, connections.spawn(Task::HttpConnection, serve));
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
    (stream, remote): (TcpStream, IpAddr),
    place: Place,
    port: Arc<Port>,
    mut stopping: watch::Receiver<bool>,
) {
    let Port { source, options, router, turns } = &*port;
    let patience = Patience {
        request: options.request_timeout,
        idle: options.idle_timeout,
        write: options.write_timeout,
    };
    let activity = Arc::clone(&place.activity);
    let stream = match secure::open(stream, activity, patience, options.tls.as_ref()).await {
        Ok(stream) => stream,
        Err(error) => {
            return tracing::debug!(%remote, %error, "a handshake of TLS with the HTTP port failed");
        }
    };
    let asker = Asker { remote, is_proven: stream.certificate().is_some() };
    let stream = TokioIo::new(stream);
    let activity = &place.activity;
    let service = service_fn(move |request: Request<Incoming>| async move {
        activity.set(Phase::Answering);
        // The body is kept until the answer is made, and is not read.
        let (head, _body) = request.into_parts();
        let question = Question { head: &head, asker, source: source.as_ref(), options };
        let answer = respond(&question, *router, turns).await;
        activity.set(Phase::Writing);
        Ok::<_, Infallible>(answer.map(|body| body.on(activity)))
    });
    let connection = http1::Builder::new()
        // The stream has deadlines of its own, which begin with a connection or a request.
        .header_read_timeout(None::<Duration>)
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::served::{Reply, Served, all};
    use super::*;
    use crate::admin::fake::Fake;

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
        let short = Duration::from_millis(50);
        let options = Options { idle_timeout: short, request_timeout: short, ..Options::default() };
        let served = Served::with(Fake::standalone(), options).await;
        for head in [&b""[..], b"GET /livez HT", b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"] {
            let mut stream = served.connect().await;
            stream.write_all(head).await.unwrap();
            let text = all(&mut stream).await;
            assert_eq!(text.contains("200 OK"), head.ends_with(b"\r\n\r\n"), "{text}");
        }
    }

    /// Those that strangers hold open: idle ones, half a request, a request whose answer is not read.
    #[tokio::test]
    async fn a_new_connection_is_served_whatever_is_held_open() {
        let served = Served::new().await;
        let mut held = Vec::new();
        for number in 0..3 * CONNECTIONS_MAX {
            let mut stream = served.connect().await;
            let bytes = match number % 3 {
                0 => &b""[..],
                1 => b"GET /livez HT",
                _ => b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
            };
            stream.write_all(bytes).await.unwrap();
            held.push(stream);
            assert!(number % 32 > 0 || served.get("/livez").await.status == 200);
        }
        for path in ["/livez", "/readyz", "/metrics"] {
            assert_eq!(served.get(path).await.status, 200, "{path}");
        }
        // The oldest have yielded, the newest are served.
        assert_eq!(all(&mut held[0]).await, "");
        let idle = held.iter_mut().rev().nth(2).unwrap();
        idle.write_all(b"GET /livez HTTP/1.0\r\n\r\n").await.unwrap();
        assert_eq!(Reply::parse(&all(idle).await).status, 200);
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
