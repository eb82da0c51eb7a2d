//! `GET /commands/snapshot`: the state in ZooKeeper's own file format.
//!
//! *Owns* the statuses, headers and words, which are ZooKeeper's. *Invariant*: it is given to those alone who have
//! proved to be operators, because it holds what access control lists keep from others. *Never* makes it: the server
//! does.
//!
//! Reproduces `Commands.SnapshotCommand`.

use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::Value;

use super::asked::{Asked, By, Shown, finish};
use crate::admin::http::{Answer, AnswerBody, Question, json_page};
use crate::admin::{NoBackup, SnapshotStream};

/// The zxid of the snapshot, as text.
const LAST_ZXID: &str = "last_zxid";
/// Its bytes.
const SNAPSHOT_SIZE: &str = "snapshot_size";

/// `restore`, which exists only by name.
pub(super) fn restore(_: &Asked<'_>) -> Option<Shown> {
    let words = "restore is disabled: it would replace the tree of one server under its clients; \
                 `lockkeeper snapshot restore` begins a new ensemble with a backup";
    Some(Shown::Error(words.to_owned()))
}

/// `snapshot`, which answers a stream.
pub(super) async fn snapshot(asked: &Asked<'_>) -> Option<Shown> {
    let By::Request(question) = asked.by else { return None };
    Some(Shown::Page(Box::new(answer(question).await)))
}

async fn answer(question: &Question<'_>) -> Answer {
    let Question { head, asker, source, options } = *question;
    let guard = &options.guard;
    if let Err((status, words)) = guard.judge_snapshot(&head.headers, asker) {
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
    let streaming = question.parameter("streaming");
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
    json_page(status, &finish(Value::Null, "snapshot", error))
}

#[cfg(test)]
mod tests {
    use crate::admin::fake::Fake;
    use crate::admin::http::served::{Reply, Served};
    use crate::admin::{Guard, Options};

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
