//! `GET /snapshot`: a backup of the state, or of a part of the tree, while the server runs.
//!
//! *Owns* the statuses and the words. *Invariants*: it is given to those alone who have proved to be operators, because
//! it holds what access control lists keep from others, and the passwords of sessions; one is made at a time. *Never*
//! makes it: the server does.

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};

use super::http::{Answer, AnswerBody, Asks, Question, Route, plain};
use super::{BackupStream, NoBackup};
use crate::backup::Selection;

/// The page of backups.
pub(super) const ROUTES: &[Route] =
    &[Route::reads("/snapshot", Asks::Everything, |asked| Box::pin(answer(asked)))
        .at_once()
        .by("GET")];

/// Begins one.
async fn answer(asked: &Question<'_>) -> Answer {
    let subtree = asked.parameter("subtree");
    let selection =
        match subtree.map_or_else(|| Ok(Selection::all()), |path| Selection::below(&path)) {
            Ok(selection) => selection,
            Err(reason) => return text(StatusCode::BAD_REQUEST, &format!("subtree: {reason}")),
        };
    match asked.source.backup(selection).await {
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
    plain(status, format!("{words}\n"))
}
