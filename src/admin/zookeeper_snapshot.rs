//! `GET /commands/snapshot`: the state in ZooKeeper's own file format.
//!
//! *Owns* the statuses, headers and words, which are ZooKeeper's. *Invariant*: it is given to those alone who have
//! proved to be operators, because it holds what access control lists keep from others. *Never* makes it: the server
//! does.
//!
//! Reproduces `Commands.SnapshotCommand`.

use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::Source;
use super::answer::{Answer, json_page};
use super::backup::NoBackup;
use super::body::{AnswerBody, Piece};
use super::command::Command;
use super::commands::finish;
use super::guard::{Asker, Guard};

/// The zxid of the snapshot, as text.
const LAST_ZXID: &str = "last_zxid";
/// Its bytes.
const SNAPSHOT_SIZE: &str = "snapshot_size";

/// A snapshot that is being made.
#[derive(Debug)]
pub struct SnapshotStream {
    /// Its zxid.
    pub zxid: i64,
    /// Its size.
    pub bytes: u64,
    /// Its bytes.
    pub pieces: mpsc::Receiver<Piece>,
}

/// Answers a server that serves. The last of `asked` is the parameter `streaming`.
pub(super) async fn answer(
    (headers, asker, streaming): (&HeaderMap, Asker, Option<&str>),
    source: &dyn Source,
    guard: &Guard,
) -> Answer {
    if let Err((status, words)) = guard.judge_snapshot(headers, asker) {
        return json(status, Some(words));
    }
    if guard.hides_snapshot {
        return json(StatusCode::SERVICE_UNAVAILABLE, None);
    }
    let SnapshotStream { zxid, bytes, pieces } = match source.zookeeper_snapshot().await {
        Ok(stream) => stream,
        Err(NoBackup::Busy) => return json(StatusCode::TOO_MANY_REQUESTS, None),
        Err(NoBackup::InMemory) => {
            let words = "this server keeps its data in memory alone";
            return json(StatusCode::INTERNAL_SERVER_ERROR, Some(words));
        }
        Err(NoBackup::NotServing) => {
            let words = "no majority has confirmed in time that this server is up to date";
            return json(StatusCode::INTERNAL_SERVER_ERROR, Some(words));
        }
        Err(NoBackup::Failed(reason)) => {
            return json(StatusCode::INTERNAL_SERVER_ERROR, Some(&reason));
        }
    };
    let is_streamed = streaming.is_none_or(|value| value.eq_ignore_ascii_case("true"));
    let mut answer = match is_streamed {
        false => json(StatusCode::OK, None),
        true => {
            let mut answer = Response::new(AnswerBody::stream(pieces));
            let headers = answer.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
            // So a client notices that a part is missing.
            headers.insert(CONTENT_LENGTH, bytes.into());
            answer
        }
    };
    let headers = answer.headers_mut();
    if let Ok(zxid) = HeaderValue::from_str(&format!("{zxid:#x}")) {
        headers.insert(LAST_ZXID, zxid);
    }
    headers.insert(SNAPSHOT_SIZE, bytes.into());
    answer
}

/// An answer without a snapshot.
fn json(status: StatusCode, error: Option<&str>) -> Answer {
    let value: Value = finish(Map::new(), Command::Snapshot.name(), error.map(str::to_owned));
    json_page(status, &value)
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::super::options::Options;
    use super::super::served::{Reply, Served};
    use super::*;

    const SUPER: &str = "Authorization: digest super:test\r\n";

    async fn served(hides_snapshot: bool) -> Served {
        let super_digest = Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned());
        let guard = Guard { super_digest, hides_snapshot, ..Guard::default() };
        Served::with(Fake::standalone(), Options { guard, ..Options::default() }).await
    }

    async fn ask(served: &Served, query: &str, header: &str) -> String {
        let request =
            format!("GET /commands/snapshot{query} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
        served.raw(request.as_bytes()).await
    }

    #[tokio::test]
    async fn a_snapshot_has_zookeepers_headers_and_is_streamed_unless_told_otherwise() {
        let served = served(false).await;
        for (query, is_streamed) in [
            ("", true),
            ("?streaming=true", true),
            ("?streaming=TRUE", true),
            ("?streaming=false", false),
            ("?streaming=1", false),
        ] {
            let text = ask(&served, query, SUPER).await;
            for line in
                ["HTTP/1.1 200 OK\r\n", "last_zxid: 0x100000002\r\n", "snapshot_size: 4\r\n"]
            {
                assert!(text.contains(line), "{query}: {text}");
            }
            assert_eq!(text.contains("\r\n\r\nZKSN"), is_streamed, "{query}: {text}");
            assert_eq!(text.contains("application/octet-stream"), is_streamed);
        }
    }

    #[tokio::test]
    async fn who_may_not_have_it_is_told_in_zookeepers_words() {
        let served = served(false).await;
        for (header, status, error) in [
            ("", 401, "Auth info is missing for the command"),
            ("Authorization: digest root:x\r\n", 403, "Not authorized"),
            ("Authorization: nosuch x\r\n", 401, "Not authenticated"),
        ] {
            let reply = Reply::parse(&ask(&served, "", header).await);
            assert_eq!((reply.status, &reply.json()["error"]), (status, &error.into()));
            assert_eq!(reply.json()["command"], "snapshot");
        }
        let hidden = self::served(true).await;
        assert_eq!(Reply::parse(&ask(&hidden, "", SUPER).await).status, 503);
        assert_eq!(hidden.ask("POST", "/commands/snapshot").await.status, 405);
    }
}
