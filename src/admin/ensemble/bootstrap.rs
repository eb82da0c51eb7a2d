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
    match asked.source.bootstrap(without).await {
        Some(Ok(ensemble)) => Ok(json!({ "ensemble": format!("{ensemble:032x}") })),
        Some(Err(reasons)) => Err((StatusCode::CONFLICT, reasons)),
        None => Err((StatusCode::SERVICE_UNAVAILABLE, "this server is stopping".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use crate::admin::http::served::{Reply, Served};

    #[tokio::test]
    async fn the_servers_that_are_left_out_are_named_by_numbers_and_a_refusal_says_why() {
        let served = Served::new().await;
        let change = async |target: &str| {
            let head = "Host: localhost\r\nX-Lockkeeper-Change: yes\r\n\r\n";
            Reply::parse(&served.raw(format!("POST {target} HTTP/1.1\r\n{head}").as_bytes()).await)
        };
        for query in ["", "?without=", "?without=one", "?without=1,", "?without=256"] {
            assert_eq!(change(&format!("/bootstrap{query}")).await.status, 400, "{query}");
        }
        assert!(served.fake.asked.lock().unwrap().is_empty());
        let refused = change("/bootstrap?without=1,4").await;
        assert_eq!((refused.status, refused.body.as_str()), (409, "it belongs to an ensemble\n"));
        assert_eq!(*served.fake.asked.lock().unwrap(), ["bootstrap without [1, 4]"]);
    }
}
