//! The table of commands.
//!
//! *Owns* a row for each: its names, whether the last of them is a four-letter word, what it needs before it is run,
//! and the function that answers both. *Invariants*: words are case sensitive; who may ask for a word where nothing is
//! configured is a row in `config/words.rs`.
//!
//! Reproduces the registries of ZooKeeper's `server.admin.Commands` (3.9: without `shed_connections`) and
//! `FourLetterCommands`.

use super::asked::{Asked, By, Shown};
use super::{dump, ensemble, figures, settings, snapshot, trace, watches};
use crate::admin::http::{READING, WRITING};
use crate::admin::{Pending, Source};
use crate::replica::Status;
use crate::replica::inspect::Mode;

/// A command.
pub(in crate::admin) struct Command {
    /// The name that the answer and the list show, then the aliases; the last one of them all is the word.
    names: &'static [&'static str],
    /// Whether it is a four-letter word, too.
    is_word: bool,
    /// Methods that it may be asked with, as a header has them.
    pub(super) methods: &'static str,
    /// Whether it exists only by name, as in a ZooKeeper whose operator has switched it off.
    pub(super) is_disabled: bool,
    /// The ways in which it is answered while the server does not serve.
    idle: Idle,
    handler: Handler,
}

/// The ways in which a command is answered while the server does not serve.
#[derive(Clone, Copy)]
enum Idle {
    Nothing,
    Word,
    Request,
    Both,
}

/// A function that answers a command; `None` while the server is stopping.
enum Handler {
    /// At once.
    Now(fn(&Asked<'_>) -> Option<Shown>),
    /// Once the driver has answered.
    Turn(for<'a> fn(&'a Asked<'a>) -> Pending<'a, Option<Shown>>),
}

/// A command of the HTTP port.
const fn command(names: &'static [&'static str], handler: Handler) -> Command {
    let (is_word, is_disabled, idle) = (false, false, Idle::Nothing);
    Command { names, is_word, methods: READING, is_disabled, idle, handler }
}

/// A command of the HTTP port and a four-letter word, which is the last name.
const fn word(names: &'static [&'static str], handler: Handler) -> Command {
    Command { is_word: true, ..command(names, handler) }
}

use Handler::{Now, Turn};

/// Every command, in order of its primary name.
static COMMANDS: [Command; 28] = [
    word(
        &["configuration", "config", "conf"],
        Turn(|asked| Box::pin(settings::configuration(asked))),
    ),
    word(
        &["connection_stat_reset", "crst"],
        Turn(|asked| Box::pin(figures::reset_connections(asked))),
    ),
    word(&["connections", "cons"], Turn(|asked| Box::pin(figures::connections(asked)))),
    word(&["dirs"], Now(figures::dirs)),
    word(&["dump"], Turn(|asked| Box::pin(dump::dump(asked)))),
    word(&["environment", "env", "envi"], Now(settings::environment)).idle(Idle::Both),
    word(&["get_trace_mask", "gtmk"], Now(trace::get)).idle(Idle::Both),
    word(&["hash"], Turn(|asked| Box::pin(figures::digests(asked)))),
    command(&["initial_configuration", "icfg"], Now(settings::initial_configuration)),
    word(&["is_read_only", "isro"], Now(figures::is_read_only)).idle(Idle::Word),
    command(&["last_snapshot", "lsnp"], Now(figures::last_snapshot)),
    command(&["leader", "lead"], Turn(|asked| Box::pin(ensemble::leader(asked)))),
    word(&["monitor", "mntr"], Now(figures::monitor)).idle(Idle::Request),
    // Of no effect without observers.
    command(&["observer_connection_stat_reset", "orst"], Now(figures::nothing)),
    command(&["observers", "obsr"], Now(ensemble::observers)),
    command(&["restore", "rest"], Now(snapshot::restore)).disabled(),
    word(&["ruok"], Now(figures::ruok)).idle(Idle::Word),
    word(&["server_stats", "srvr"], Now(figures::server_stats)),
    word(&["set_trace_mask", "stmk"], Now(trace::set)).idle(Idle::Both),
    command(&["snapshot", "snap"], Turn(|asked| Box::pin(snapshot::snapshot(asked)))),
    word(&["stat_reset", "srst"], Turn(|asked| Box::pin(figures::reset_server(asked)))),
    word(&["stats", "stat"], Turn(|asked| Box::pin(figures::stats(asked)))),
    command(&["system_properties", "sysp"], Now(settings::properties)).idle(Idle::Request),
    command(&["voting_view"], Turn(|asked| Box::pin(ensemble::voting_view(asked)))),
    word(&["watch_summary", "wchs"], Turn(|asked| Box::pin(watches::summary(asked)))),
    word(&["watches", "wchc"], Turn(|asked| Box::pin(watches::by_session(asked)))),
    word(&["watches_by_path", "wchp"], Turn(|asked| Box::pin(watches::by_path(asked)))),
    command(&["zabstate"], Turn(|asked| Box::pin(ensemble::zabstate(asked)))).idle(Idle::Request),
];

impl Command {
    const fn idle(self, idle: Idle) -> Self {
        Self { idle, ..self }
    }

    const fn disabled(self) -> Self {
        Self { is_disabled: true, methods: WRITING, ..self }
    }

    /// The command with this name or alias.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        COMMANDS.iter().find(|command| command.names.contains(&name))
    }

    /// The commands that are no mere names.
    pub(super) fn enabled() -> impl Iterator<Item = &'static Self> {
        COMMANDS.iter().filter(|command| !command.is_disabled)
    }

    /// The command with this four-letter word.
    pub(in crate::admin) fn of_word(word: [u8; 4]) -> Option<&'static Self> {
        COMMANDS.iter().find(|command| command.is_word && command.word().as_bytes() == word)
    }

    /// The name that the answer and the list show.
    pub(super) fn name(&self) -> &'static str {
        self.names[0]
    }

    /// The four-letter word of a command that is one.
    pub(in crate::admin) fn word(&self) -> &'static str {
        self.names[self.names.len() - 1]
    }

    /// Answers it; `None` where it needs a server that serves and this one does not.
    pub(in crate::admin) async fn answer(&self, by: By<'_>, source: &dyn Source) -> Option<Shown> {
        let is_idle_enough = match (self.idle, by) {
            (Idle::Both, _) | (Idle::Word, By::Word(..)) | (Idle::Request, By::Request(_)) => true,
            (Idle::Nothing | Idle::Word | Idle::Request, _) => false,
        };
        let asked = Asked { by, status: source.status(), source };
        if !is_idle_enough && !is_running(&asked.status) {
            return None;
        }
        match self.handler {
            Now(answer) => answer(&asked),
            Turn(answer) => answer(&asked).await,
        }
    }
}

/// Whether anybody is served: everybody, or in read-only mode those who ask for it.
fn is_running(status: &Status) -> bool {
    status.serving || status.mode == Mode::ReadOnly
}

/// The words, for tests.
#[cfg(test)]
pub(in crate::admin) fn words() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().filter(|command| command.is_word).map(Command::word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_listed_in_order() {
        let mut names: Vec<_> = COMMANDS.iter().flat_map(|command| command.names).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(COMMANDS.iter().map(Command::name).is_sorted());
    }

    #[test]
    fn a_configuration_knows_the_same_words() {
        let mut names: Vec<_> = words().collect();
        names.sort_unstable();
        let known: Vec<_> =
            crate::config::FOUR_LETTER_WORDS.iter().map(|(word, _)| *word).collect();
        assert_eq!(names, known);
    }
}
