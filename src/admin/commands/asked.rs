//! A command that is asked for, and what it is answered with.

use std::net::SocketAddr;

use serde_json::{Map, Value, json};

use crate::admin::Source;
use crate::admin::http::{Answer, Question};
use crate::replica::Status;

/// Way in which a command is asked for.
#[derive(Clone, Copy)]
pub(in crate::admin) enum By<'a> {
    /// By a four-letter word: the bytes after it, and who has sent it.
    Word(&'a [u8], SocketAddr),
    /// By a request to the HTTP port.
    Request(&'a Question<'a>),
}

/// A command that is asked for.
pub(super) struct Asked<'a> {
    pub(super) by: By<'a>,
    pub(super) status: Status,
    pub(super) source: &'a dyn Source,
}

impl Asked<'_> {
    /// Facts: as text to the word, as JSON to the request.
    pub(super) fn shown(
        &self,
        text: impl FnOnce() -> String,
        data: impl FnOnce() -> Value,
    ) -> Option<Shown> {
        Some(match self.by {
            By::Word(..) => Shown::Text(text()),
            By::Request(_) => Shown::Data(data()),
        })
    }
}

/// Answer to a command.
pub(in crate::admin) enum Shown {
    /// The whole text of a four-letter word.
    Text(String),
    /// The command's own keys.
    Data(Value),
    /// The command's error.
    Error(String),
    /// An answer that is no JSON.
    Page(Box<Answer>),
}

/// The JSON of an answer: data first, then `command` and `error`.
pub(super) fn finish(data: Value, name: &str, error: Option<&str>) -> Value {
    let mut data = match data {
        Value::Object(data) => data,
        _ => Map::new(),
    };
    data.insert("command".to_string(), json!(name));
    data.insert("error".to_string(), json!(error));
    Value::Object(data)
}
