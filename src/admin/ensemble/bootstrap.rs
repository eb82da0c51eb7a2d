//! `POST /bootstrap`: an operator has a server that waits found its ensemble without some participants.
//!
//! *Owns* the parameter of the request and the JSON of the answer. *Never* judges: the founding protocol does.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::admin::http::{Answer, Question, told};

/// Passes the word on, and waits for what becomes of it.
pub(super) async fn answer(asked: &Question<'_>) -> Answer {
    let text = asked.parameter("without").unwrap_or_default();
    let done = bootstrap(asked, &text).await;
    let outcome = done.as_ref().map_or_else(|(_, words)| words.as_str(), |_| "done");
    tracing::info!(target: "lockkeeper::admin::routes", remote = %asked.asker.remote, without = %text, outcome,
        "an operator founds an ensemble without servers");
    told(done)
}

async fn bootstrap(asked: &Question<'_>, text: &str) -> Result<Value, (StatusCode, String)> {
    let ids: Result<Vec<u8>, _> = text.split(',').map(|id| id.trim().parse()).collect();
    let Ok(without) = ids else {
        let words =
            "without is to name the servers that are left out, as in without=1 or without=1,4";
        return Err((StatusCode::BAD_REQUEST, words.to_owned()));
    };
    match asked.source.bootstrap(without.clone()).await {
        Some(Ok(ensemble)) => {
            Ok(json!({ "ensemble": format!("{ensemble:032x}"), "without": without }))
        }
        Some(Err(reasons)) => Err((StatusCode::CONFLICT, reasons)),
        None => Err((StatusCode::SERVICE_UNAVAILABLE, "this server is stopping".to_owned())),
    }
}
