//! Where the shell's words go: answers and events to standard output, failures and news of the
//! connection to standard error; at a terminal, above the line that is being typed.
//!
//! *Invariant*: on a terminal, no byte of a znode is taken for a command to the terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex};

use rustyline::ExternalPrinter;
use serde_json::{Value, json};

use super::failure::Failure;
use super::output::Answer;
use crate::cli::flags::Output;
use crate::proto::ErrorCode;

/// Clones write to the same place.
#[derive(Clone)]
pub(super) struct Screen {
    format: Output,
    is_terminal: bool,
    /// Writes above the line that is being typed, if one is.
    above: Arc<Mutex<Option<Box<dyn ExternalPrinter + Send>>>>,
}

impl Screen {
    pub(super) fn new(format: Output) -> Self {
        let is_terminal = io::stdout().is_terminal();
        Self { format, is_terminal, above: Arc::default() }
    }

    /// From now on, what is not an answer goes through this.
    pub(super) fn write_above(&self, printer: impl ExternalPrinter + Send + 'static) {
        *self.above.lock().expect(NO_PANIC) = Some(Box::new(printer));
    }

    pub(super) fn writes_above(&self) -> bool {
        self.above.lock().expect(NO_PANIC).is_some()
    }

    pub(super) fn answer(&self, answer: &Answer) {
        match self.format {
            Output::Text => self.out(&answer.text),
            Output::Json if answer.json.is_empty() => {}
            Output::Json => {
                self.out(format!("{}\n", Value::Object(answer.json.clone())).as_bytes())
            }
        }
    }

    /// An answer whose place at standard output something else has taken.
    pub(super) fn report(&self, answer: &Answer) {
        match self.format {
            Output::Text => err(String::from_utf8_lossy(&answer.text).trim_end()),
            Output::Json => err(&Value::Object(answer.json.clone()).to_string()),
        }
    }

    pub(super) fn failure(&self, failure: &Failure) {
        let text = match self.format {
            Output::Text => failure.text.clone(),
            Output::Json => {
                let name = failure.code.and_then(ErrorCode::from_wire).map(ErrorCode::name);
                json!({
                    "error": failure.text,
                    "name": name,
                    "code": failure.code,
                    "exit": failure.exit,
                })
                .to_string()
            }
        };
        err(&text);
    }

    /// A watch has fired: in zkCli's words.
    pub(super) fn event(&self, kind: &str, path: &str, zxid: i64) {
        let text = match self.format {
            Output::Text => format!(
                "\nWATCHER::\n\nWatchedEvent state:SyncConnected type:{kind} path:{path} zxid: {zxid}\n"
            ),
            Output::Json => {
                format!("{}\n", json!({ "event": kind, "path": path, "zxid": zxid }))
            }
        };
        if !self.printed_above(&text) {
            self.out(text.as_bytes());
        }
    }

    /// Something about the connection.
    pub(super) fn news(&self, text: &str) {
        let text = format!("lockkeeper cli: {text}");
        if !self.printed_above(&format!("{text}\n")) {
            err(&text);
        }
    }

    fn printed_above(&self, text: &str) -> bool {
        let mut above = self.above.lock().expect(NO_PANIC);
        match above.as_mut() {
            Some(printer) => printer.print(harmless(text)).is_ok(),
            None => false,
        }
    }

    fn out(&self, text: &[u8]) {
        let mut stdout = io::stdout().lock();
        // A reader that has closed standard output does not want to see it.
        let _ = if self.is_terminal {
            stdout.write_all(harmless(&String::from_utf8_lossy(text)).as_bytes())
        } else {
            stdout.write_all(text)
        };
        let _ = stdout.flush();
    }
}

fn err(text: &str) {
    let text = if io::stderr().is_terminal() { harmless(text) } else { text.to_string() };
    crate::cli::output::say(&text);
}

/// Control characters, written out.
fn harmless(text: &str) -> String {
    let plain = |c: char| !c.is_control() || c == '\n' || c == '\t';
    let mut harmless = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            character if plain(character) => harmless.push(character),
            character => harmless.extend(character.escape_default()),
        }
    }
    harmless
}

const NO_PANIC: &str = "no thread panics while it holds this";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_znode_cannot_write_to_the_terminal_as_it_likes() {
        assert_eq!(harmless("a\tb\n\u{1b}[2J\r\u{9b}c\u{fc}"), "a\tb\n\\u{1b}[2J\\r\\u{9b}c\u{fc}");
    }
}
