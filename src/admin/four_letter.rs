//! The four-letter words that operators and clients send instead of a handshake.
//!
//! *Owns* which words exist, who may send them and what a refusal says. Their texts are in
//! `words.rs`, `dump.rs`, `environment.rs` and `metrics.rs`. *Invariants*: words are case
//! sensitive; an answer is the whole text and the connection is closed after it; costly words are
//! computed only for who may send them. *Never* reads from the socket.
//!
//! Reproduces ZooKeeper's `FourLetterCommands` and `CommandExecutor`.

use super::environment;
use super::{Source, dump, metrics, question, trace, words};

/// Bytes that `stmk` takes after the word: the mask, big-endian.
pub const TRACE_MASK_BYTES: usize = 8;

/// What ZooKeeper says while it cannot serve; clients match the text.
pub(super) const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests";

/// A known word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Word {
    Conf,
    Cons,
    Crst,
    Dirs,
    Dump,
    Envi,
    Gtmk,
    Hash,
    Isro,
    Mntr,
    Ruok,
    Srst,
    Srvr,
    Stat,
    Stmk,
    Wchc,
    Wchp,
    Wchs,
    /// What telnet sends when it closes; known only so that it is not taken for a bad length.
    TelnetClose,
}

impl Word {
    /// Every word.
    pub const ALL: [Word; 19] = [
        Word::Conf,
        Word::Cons,
        Word::Crst,
        Word::Dirs,
        Word::Dump,
        Word::Envi,
        Word::Gtmk,
        Word::Hash,
        Word::Isro,
        Word::Mntr,
        Word::Ruok,
        Word::Srst,
        Word::Srvr,
        Word::Stat,
        Word::Stmk,
        Word::Wchc,
        Word::Wchp,
        Word::Wchs,
        Word::TelnetClose,
    ];

    /// Its name, as a whitelist has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Word::Conf => "conf",
            Word::Cons => "cons",
            Word::Crst => "crst",
            Word::Dirs => "dirs",
            Word::Dump => "dump",
            Word::Envi => "envi",
            Word::Gtmk => "gtmk",
            Word::Hash => "hash",
            Word::Isro => "isro",
            Word::Mntr => "mntr",
            Word::Ruok => "ruok",
            Word::Srst => "srst",
            Word::Srvr => "srvr",
            Word::Stat => "stat",
            Word::Stmk => "stmk",
            Word::Wchc => "wchc",
            Word::Wchp => "wchp",
            Word::Wchs => "wchs",
            Word::TelnetClose => "telnet close",
        }
    }

    /// The four bytes that stand for it on the wire.
    #[must_use]
    pub fn bytes(self) -> [u8; 4] {
        if self == Word::TelnetClose {
            return TELNET_CLOSE;
        }
        self.name().as_bytes().try_into().expect("every other word's name is its four letters")
    }

    /// How many bytes belong to it after the first four.
    #[must_use]
    pub fn argument_bytes(self) -> usize {
        if self == Word::Stmk { TRACE_MASK_BYTES } else { 0 }
    }
}

/// The word that a connection's first four bytes are, if they are one.
#[must_use]
pub fn word(first_four_bytes: [u8; 4]) -> Option<Word> {
    Word::ALL.into_iter().find(|word| word.bytes() == first_four_bytes)
}

/// The whole answer to a word; the connection is closed after it.
///
/// `rest` is what came after the word ([`Word::argument_bytes`] of it count); `peer_is_loopback`
/// says that the client is on this machine.
pub async fn answer(
    word: Word,
    rest: &[u8],
    peer_is_loopback: bool,
    source: &dyn Source,
) -> Vec<u8> {
    if word == Word::TelnetClose {
        return Vec::new();
    }
    let name = word.name();
    if !source.word_allowed(name, peer_is_loopback) {
        tracing::debug!(word = name, "four-letter word refused: not in the whitelist");
        return format!("{name} is not executed because it is not in the whitelist.\n")
            .into_bytes();
    }
    tracing::debug!(word = name, "four-letter word");
    match text(word, rest, source).await {
        Some(text) => text.into_bytes(),
        // The one word whose refusal has no newline.
        None if word == Word::Hash => NOT_SERVING.as_bytes().to_vec(),
        None => format!("{NOT_SERVING}\n").into_bytes(),
    }
}

/// The text; `None` where the word needs a server that serves and this one does not.
async fn text(word: Word, rest: &[u8], source: &dyn Source) -> Option<String> {
    let status = source.status();
    let serving = status.serving.then_some(&status);
    Some(match word {
        Word::TelnetClose => String::new(),
        Word::Ruok => "imok".to_string(),
        Word::Isro => words::isro(&status).to_string(),
        Word::Envi => environment::text(),
        Word::Gtmk => trace::mask().to_string(),
        Word::Stmk => set_trace_mask(rest),
        Word::Conf => serving.map(|_| words::conf(source.facts(), &source.counters()))?,
        Word::Dirs => serving.map(|_| words::dirs(&source.counters()))?,
        Word::Srvr => words::srvr(serving?, &source.counters()),
        Word::Mntr => metrics::mntr(&metrics::Reading::now(serving?.clone(), source)),
        Word::Stat => {
            let status = serving?;
            words::stat(status, &source.counters(), &question::connections(source).await?)
        }
        Word::Cons => {
            serving?;
            words::cons(&question::connections(source).await?)
        }
        Word::Dump => {
            serving?;
            dump::Dump::collect(source).await?.text()
        }
        Word::Hash => {
            serving?;
            words::hash(&question::digests(source).await?)
        }
        Word::Wchs => {
            serving?;
            words::wchs(&question::watches(source).await?)
        }
        Word::Wchc => {
            serving?;
            words::wchc(&question::watches(source).await?)
        }
        Word::Wchp => {
            serving?;
            words::wchp(&question::watches(source).await?)
        }
        Word::Crst => {
            serving?;
            question::reset_connections(source).await?;
            "Connection stats reset.\n".to_string()
        }
        Word::Srst => {
            serving?;
            question::reset_server(source).await?;
            "Server stats reset.\n".to_string()
        }
    })
}

/// Nothing is said, as nothing can be set, where the mask did not come along.
fn set_trace_mask(rest: &[u8]) -> String {
    let Some(mask) = rest.first_chunk::<TRACE_MASK_BYTES>() else {
        return String::new();
    };
    let mask = i64::from_be_bytes(*mask);
    trace::set_mask(mask);
    mask.to_string()
}

/// IAC IP IAC DO.
const TELNET_CLOSE: [u8; 4] = [0xff, 0xf4, 0xff, 0xfd];
