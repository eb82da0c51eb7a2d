//! `GET /snapshot`: a backup of the state, or of a part of the tree, while the server runs.
//!
//! *Owns* the statuses and the words. *Invariants*: it is given to those alone who have proved to be operators, because
//! it holds what access control lists keep from others, and the passwords of sessions; one is made at a time. *Never*
//! makes it: the server does.

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use tokio::sync::mpsc;

use super::Source;
use super::answer::{Answer, page};
use super::body::{AnswerBody, Piece};
use crate::backup::{Header, Selection};

/// A backup that is being made.
#[derive(Debug)]
pub struct BackupStream {
    /// What it says of itself.
    pub header: Header,
    /// Its bytes. They are a backup once there are no more, and none of them is an error.
    pub pieces: mpsc::Receiver<Piece>,
}

/// Why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoBackup {
    /// Another one is being made.
    Busy,
    /// No majority has confirmed in time that this server is up to date.
    NotServing,
    /// The server keeps nothing on a disk.
    InMemory,
    /// It failed.
    Failed(String),
}

/// Begins one.
pub(super) async fn answer(subtree: Option<&str>, source: &dyn Source) -> Answer {
    let selection = match subtree.map_or_else(|| Ok(Selection::all()), Selection::below) {
        Ok(selection) => selection,
        Err(reason) => return text(StatusCode::BAD_REQUEST, &format!("subtree: {reason}")),
    };
    match source.backup(selection).await {
        Ok(BackupStream { header, pieces }) => {
            let mut answer = Answer::new(AnswerBody::stream(pieces));
            let headers = answer.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
            if let Ok(zxid) = HeaderValue::from_str(&format!("{:#x}", header.zxid)) {
                headers.insert("x-lockkeeper-zxid", zxid);
            }
            answer
        }
        Err(NoBackup::Busy) => text(
            StatusCode::TOO_MANY_REQUESTS,
            "this server is making another backup: repeat this when that is done, or ask another server",
        ),
        Err(NoBackup::NotServing) => text(
            StatusCode::SERVICE_UNAVAILABLE,
            "not serving: no majority has confirmed in time that this server is up to date. The data of a server \
             that does not run is saved with --offline",
        ),
        Err(NoBackup::InMemory) => {
            text(StatusCode::NOT_IMPLEMENTED, "this server keeps its data in memory alone")
        }
        Err(NoBackup::Failed(reason)) => text(StatusCode::INTERNAL_SERVER_ERROR, &reason),
    }
}

fn text(status: StatusCode, words: &str) -> Answer {
    page(status, "text/plain; charset=utf-8", format!("{words}\n"))
}
