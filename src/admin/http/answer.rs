//! Answers of the HTTP port: pages, JSON, refusals.

use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response, StatusCode};

use super::body::AnswerBody;
use super::guard::Refusal;

/// Answer to a request.
pub(in crate::admin) type Answer = Response<AnswerBody>;

/// A whole answer.
pub(in crate::admin) fn page(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Answer {
    let mut answer = Response::new(AnswerBody::whole(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

pub(in crate::admin) fn json_page(status: StatusCode, value: &serde_json::Value) -> Answer {
    page(status, "application/json", format!("{value:#}"))
}

pub(in crate::admin) fn plain(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    page(status, "text/plain; charset=utf-8", text)
}

pub(super) fn not_found() -> Answer {
    plain(StatusCode::NOT_FOUND, "not found\n")
}

/// An answer that is there unless the server is stopping.
pub(in crate::admin) fn shown(answer: Option<serde_json::Value>) -> Answer {
    answer.map_or_else(stopping, |answer| json_page(StatusCode::OK, &answer))
}

pub(in crate::admin) fn stopping() -> Answer {
    plain(StatusCode::SERVICE_UNAVAILABLE, "not serving: this server is stopping\n")
}

/// Result of an order, or the status and the reason of its failure.
pub(in crate::admin) fn told(done: Result<serde_json::Value, (StatusCode, String)>) -> Answer {
    match done {
        Ok(answer) => json_page(StatusCode::OK, &answer),
        Err((status, words)) => plain(status, words + "\n"),
    }
}

pub(super) fn refused(Refusal { status, words, challenge }: Refusal) -> Answer {
    let mut answer = plain(status, words + "\n");
    if let Some((name, value)) = challenge {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// `None` if the method is one of those that are allowed.
pub(in crate::admin) fn refusal(method: &Method, allowed: &'static str) -> Option<Answer> {
    if allowed.split(", ").any(|allowed| method == allowed) {
        return None;
    }
    let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, format!("allowed here: {allowed}\n"));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    Some(answer)
}
