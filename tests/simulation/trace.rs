//! What happened, in order: its hash for comparing two runs, its last lines for people.

use std::collections::VecDeque;
use std::fmt::{self, Write};

use lockkeeper_core::replica::PeerMessage;

/// How many of the last lines are kept.
const KEPT: usize = 200;

/// The trace of one run.
#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    lines: u64,
    last: VecDeque<String>,
    /// Whether every line is printed at once.
    pub is_printed: bool,
}

impl Trace {
    /// Adds a line; `now_us` is the simulated time.
    pub fn note(&mut self, now_us: u64, line: fmt::Arguments<'_>) {
        let mut text = match self.last.len() {
            KEPT => self.last.pop_front().expect("it is full"),
            _ => String::new(),
        };
        text.clear();
        write!(text, "{:>5} {:>10} {line}", self.lines, now_us).expect("a String takes everything");
        if self.is_printed {
            println!("{text}");
        }
        self.bytes(text.as_bytes());
        self.lines += 1;
        self.last.push_back(text);
    }

    /// Adds bytes to the hash alone.
    pub fn bytes(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            self.hash = (self.hash ^ u64::from_le_bytes(padded)).wrapping_mul(0x0100_0000_01b3);
            self.hash ^= self.hash >> 29;
        }
        self.hash = self.hash.rotate_left(5) ^ bytes.len() as u64;
    }

    /// Two runs of one seed have the same.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Number of lines so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The last lines.
    pub fn tail(&self) -> String {
        self.last.iter().fold(String::new(), |all, line| all + line + "\n")
    }
}

/// A message, for the trace.
pub struct Shown<'a>(pub &'a PeerMessage);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            PeerMessage::Ask { question } => write!(f, "Ask {question:x}"),
            PeerMessage::Recall { question, promise } => {
                write!(f, "Recall {question:x} {promise:?}")
            }
            PeerMessage::Voters { question, index, voters } => {
                write!(f, "Voters {question:x} behind {index}: {voters:x?}")
            }
            PeerMessage::Raft(m) => write!(
                f,
                "{:?} term {} index {} log_term {} commit {} entries {} reject {}",
                m.get_msg_type(),
                m.term,
                m.index,
                m.log_term,
                m.commit,
                m.entries.len(),
                m.reject
            ),
            PeerMessage::Forward { term, batch } => {
                write!(f, "Forward term {term}, {} bytes", batch.len())
            }
            PeerMessage::Return { term, batch } => {
                write!(f, "Return of term {term}, {} bytes", batch.len())
            }
            PeerMessage::Compare { term, window } => write!(f, "Compare term {term}, {window:?}"),
            PeerMessage::Digests { report } => write!(f, "Digests {report:?}"),
            PeerMessage::Ping { term, at_us, heard, .. } => {
                write!(
                    f,
                    "Ping term {term}, {at_us} us, heard {:?}",
                    heard.map(|heard| heard.number)
                )
            }
            PeerMessage::Touch { term, at_us, stamp, base, sessions, .. } => {
                let number = stamp.number;
                write!(f, "Touch {number} behind {base} term {term}, {at_us} us: {sessions:x?}")
            }
        }
    }
}
