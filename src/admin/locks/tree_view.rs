//! `/znodes`, `/watches` and `/locks/history`: the tree, who watches what, and who held a lock before.
//!
//! *Owns* the keys of their JSON, which are stable: docs/CONSOLE.md lists them. *Invariants*: what was left out
//! is said; data are bytes, written so that every one of them survives. *Never* decides who may ask.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::view::{prefix, session_id};
use crate::admin::http::{Answer, Question, json_page, plain, shown, stopping};
use crate::admin::source::question;
use crate::admin::{LeaderChange, Source};
use crate::locks::history::{Held, Stay, stays};
use crate::locks::snapshot::Directory;
use crate::proto::Acl;
use crate::proto::acl::perms;
use crate::replica::inspect::znode::{CHILDREN_MAX, DATA_BYTES_MAX};
use crate::replica::inspect::{ChildReport, ZnodeQuestion, ZnodeReport};

/// Sessions in one answer about watches.
const SESSIONS_MAX: usize = 1_000;
/// Paths of one session there.
const PATHS_MAX: usize = 200;

/// The znode at `path` and its children behind the name `after`, `limit` of them.
pub(super) async fn znode(asked: &Question<'_>) -> Answer {
    let guard = &asked.options.guard;
    if guard.hides_tree {
        let words = "the tree is not shown: lockkeeper.adminBrowser is false\n";
        return plain(StatusCode::FORBIDDEN, words);
    }
    let path = match prefix(asked.parameter("path").as_deref()) {
        Ok(path) => path,
        Err(reason) => return plain(StatusCode::BAD_REQUEST, format!("path: {reason}\n")),
    };
    let question = ZnodeQuestion {
        path: path.clone(),
        after: asked.parameter("after").unwrap_or_default(),
        children: asked
            .parameter("limit")
            .and_then(|text| text.parse().ok())
            .unwrap_or(CHILDREN_MAX),
        shows_all: guard.has_proof(&asked.head.headers, asked.asker),
    };
    match question::znode(asked.source, question).await {
        Some(Some(report)) => json_page(StatusCode::OK, &znode_json(&path, &report)),
        Some(None) => plain(StatusCode::NOT_FOUND, "no such znode\n"),
        None => stopping(),
    }
}

fn znode_json(path: &str, report: &ZnodeReport) -> Value {
    let ZnodeReport { zxid, stat, acl, data, is_hidden, children, has_more, is_cut } = report;
    let bytes = data.as_deref();
    let text = bytes.and_then(text_of);
    json!({
        "path": path,
        "zxid": zxid,
        "stat": {
            "czxid": stat.czxid, "mzxid": stat.mzxid, "pzxid": stat.pzxid,
            "ctime_ms": stat.ctime, "mtime_ms": stat.mtime,
            "version": stat.version, "cversion": stat.cversion, "aversion": stat.aversion,
            "session": (stat.ephemeral_owner != 0).then(|| session_id(stat.ephemeral_owner)),
            "data_bytes": stat.data_length, "children": stat.num_children,
        },
        "acl": acl.iter().map(entry).collect::<Value>(),
        "data": {
            "hex": bytes.map(hex),
            "text": text,
            "hidden": *is_hidden && data.is_none(),
            "cut": bytes.is_some_and(|bytes| {
                bytes.len() == DATA_BYTES_MAX && stat.data_length as usize > DATA_BYTES_MAX
            }),
        },
        "children": children.iter().map(child).collect::<Value>(),
        "more": has_more,
        "cut": is_cut,
    })
}

fn child(child: &ChildReport) -> Value {
    json!({
        "name": child.name,
        "children": child.children,
        "data_bytes": child.data_bytes,
        "session": (child.session != 0).then(|| session_id(child.session)),
    })
}

fn entry(acl: &Acl) -> Value {
    let letters = [
        (perms::CREATE, 'c'),
        (perms::DELETE, 'd'),
        (perms::READ, 'r'),
        (perms::WRITE, 'w'),
        (perms::ADMIN, 'a'),
    ];
    let letters = letters.into_iter().filter(|(bit, _)| acl.perms & bit != 0);
    let shown: String = letters.map(|(_, letter)| letter).collect();
    json!({ "scheme": acl.scheme.as_str(), "id": acl.id.as_str(), "permissions": shown })
}

/// The text that they are; the end may be cut off within a character.
fn text_of(bytes: &[u8]) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() && bytes.len() == DATA_BYTES_MAX => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Who watches what at this server; `None` while it is stopping.
pub(super) async fn watches(source: &dyn Source) -> Option<Value> {
    let report = question::watches(source).await?;
    let mut is_cut = report.by_session.len() > SESSIONS_MAX;
    let sessions = report.by_session.iter().take(SESSIONS_MAX).map(|(session, paths)| {
        is_cut |= paths.len() > PATHS_MAX;
        let shown: Vec<_> = paths.iter().take(PATHS_MAX).collect();
        json!({ "session": session_id(*session), "count": paths.len(), "paths": shown })
    });
    let sessions: Vec<Value> = sessions.collect();
    Some(json!({
        "server": source.facts().server_id,
        "connections": report.connections,
        "paths": report.paths,
        "total": report.total,
        "sessions": sessions,
        "cut": is_cut,
    }))
}

/// Earlier holders of the locks in the directory `path`.
pub(super) async fn history(asked: &Question<'_>) -> Answer {
    match prefix(asked.parameter("path").as_deref()) {
        Ok(path) => shown(departures(path, asked.source).await),
        Err(reason) => plain(StatusCode::BAD_REQUEST, format!("path: {reason}\n")),
    }
}

/// Who has left the locks of a directory; `None` while the server is stopping.
async fn departures(directory: String, source: &dyn Source) -> Option<Value> {
    let snapshot = question::departures(source, directory).await?;
    let known = snapshot.directories.first();
    let left: Vec<Value> =
        known.map(|known| stays(known).iter().map(|stay| left(known, stay)).collect())?;
    Some(json!({
        "server": source.facts().server_id,
        "time_ms": snapshot.wall_ms,
        "path": known.map(|known| known.path.as_str()),
        "known_since_ms": known.map(|known| known.known_since_ms),
        "left": left,
        "elections": source.elections().iter().map(LeaderChange::json).collect::<Value>(),
    }))
}

fn left(directory: &Directory, Stay { departure, lock, held }: &Stay<'_>) -> Value {
    let (has_held, since_ms) = match held {
        Held::Never => (false, None),
        Held::Since(since_ms) => (true, *since_ms),
    };
    json!({
        "node": directory.child(&departure.name),
        "lock": lock,
        "session": (departure.session != 0).then(|| session_id(departure.session)),
        "token": departure.czxid,
        "created_ms": departure.ctime_ms,
        "held": has_held,
        "held_since_ms": since_ms,
        "ended_ms": departure.time_ms,
        "end": departure.end.name(),
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::proto::{Stat, Text};

    fn report(data: &[u8]) -> ZnodeReport {
        ZnodeReport {
            zxid: 7,
            stat: Stat { data_length: data.len() as i32, num_children: 2, ..Stat::default() },
            acl: vec![Acl {
                perms: perms::READ | perms::CREATE,
                scheme: Text::from("world".to_owned()),
                id: Text::from("anyone".to_owned()),
            }],
            data: Some(Bytes::copy_from_slice(&data[..data.len().min(DATA_BYTES_MAX)])),
            is_hidden: false,
            children: vec![ChildReport {
                name: "a".to_owned(),
                children: 1,
                data_bytes: 2,
                session: 16,
            }],
            has_more: true,
            is_cut: false,
        }
    }

    #[test]
    fn data_are_a_text_if_they_are_one_and_always_bytes() {
        let value = znode_json("/p", &report("\u{e4}b".as_bytes()));
        assert_eq!(
            value["data"],
            json!({ "hex": "c3a462", "text": "\u{e4}b", "hidden": false, "cut": false })
        );
        assert_eq!(
            value["acl"][0],
            json!({ "scheme": "world", "id": "anyone", "permissions": "cr" })
        );
        assert_eq!(value["children"][0]["session"], "0x10");
        assert_eq!(znode_json("/p", &report(&[0xff, 0]))["data"]["text"], Value::Null);
        let mut hidden = report(b"x");
        (hidden.data, hidden.is_hidden) = (None, true);
        assert_eq!(znode_json("/p", &hidden)["data"]["hidden"], true);
    }

    #[test]
    fn long_data_are_cut_and_that_is_said() {
        let value = znode_json("/p", &report("\u{20ac}".repeat(DATA_BYTES_MAX).as_bytes()));
        assert_eq!(value["data"]["cut"], true);
        assert_eq!(value["data"]["text"].as_str().unwrap().len(), DATA_BYTES_MAX / 3 * 3);
        assert_eq!(znode_json("/p", &report(&[b'a'; DATA_BYTES_MAX]))["data"]["cut"], false);
    }
}
