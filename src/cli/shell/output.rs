//! What a command answers: for people as zkCli prints it, or as one JSON object.
//!
//! *Owns* [`Answer`] and how Stats, lists and data are written. *Invariant*: an answer has both
//! forms, whichever is asked for. Reproduces `StatPrinter` and the output formatters.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::admin::java_date;
use crate::proto::Stat;

/// Whether a command has set a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Watch {
    #[default]
    No,
    /// It fires once.
    Once,
    /// It fires until it is removed.
    Lasting,
}

impl Watch {
    /// One that fires once, if there is one.
    pub(super) fn once(is_set: bool) -> Self {
        if is_set { Self::Once } else { Self::No }
    }
}

/// What a command answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Answer {
    /// Whole lines, or nothing.
    pub text: Vec<u8>,
    /// The same, and what zkCli does not say.
    pub json: Map<String, Value>,
    pub watch: Watch,
}

impl Answer {
    /// Nothing to say.
    pub(super) fn silent() -> Self {
        Self::default()
    }

    /// A line for people.
    pub(super) fn line(mut self, line: impl AsRef<[u8]>) -> Self {
        self.text.extend_from_slice(line.as_ref());
        self.text.push(b'\n');
        self
    }

    /// A field for programs.
    pub(super) fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.json.insert(name.to_string(), value.into());
        self
    }

    /// For people only if they have asked for it, for programs always.
    pub(super) fn stat(mut self, stat: &Stat, asked_for: bool) -> Self {
        if asked_for {
            for (name, text, _) in stat_rows(stat) {
                self = self.line(format!("{name} = {text}"));
            }
        }
        self.field("stat", stat_json(stat))
    }

    pub(super) fn watch(mut self, watch: Watch) -> Self {
        self.watch = watch;
        self
    }
}

/// As Java prints a list.
pub(super) fn list(names: &[String]) -> String {
    format!("[{}]", names.join(", "))
}

/// Data for programs: text as `data`, anything else in base64.
pub(super) fn data_field(data: Option<&Bytes>) -> (&'static str, Value) {
    match data.map(|data| (std::str::from_utf8(data), data)) {
        None => ("data", Value::Null),
        Some((Ok(text), _)) => ("data", text.into()),
        Some((Err(_), bytes)) => ("dataBase64", base64(bytes).into()),
    }
}

/// The usual alphabet, with padding.
pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// # Errors
/// It is none.
pub(super) fn from_base64(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|error| format!("that is not base64: {error}"))
}

/// A Stat for programs.
pub(super) fn stat_json(stat: &Stat) -> Value {
    stat_rows(stat).into_iter().map(|(name, _, value)| (name, value)).collect()
}

/// Each field for people and for programs: times in milliseconds; sessions as text, because they are too large for many
/// readers of JSON.
fn stat_rows(stat: &Stat) -> [(&'static str, String, Value); 11] {
    let hex = |number: i64| format!("{number:#x}");
    let count = |name, number: i32| (name, number.to_string(), number.into());
    let zxid = |name, zxid: i64| (name, hex(zxid), zxid.into());
    let time = |name, time_ms: i64| (name, java_date(time_ms), time_ms.into());
    [
        zxid("cZxid", stat.czxid),
        time("ctime", stat.ctime),
        zxid("mZxid", stat.mzxid),
        time("mtime", stat.mtime),
        zxid("pZxid", stat.pzxid),
        count("cversion", stat.cversion),
        count("dataVersion", stat.version),
        count("aclVersion", stat.aversion),
        ("ephemeralOwner", hex(stat.ephemeral_owner), hex(stat.ephemeral_owner).into()),
        count("dataLength", stat.data_length),
        count("numChildren", stat.num_children),
    ]
}
