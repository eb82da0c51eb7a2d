//! Reads the recorded conversations of this folder: what real clients and Apache ZooKeeper said.

use std::collections::VecDeque;
use std::path::Path;

/// Who sent a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Client,
    Server,
}

/// One recorded connection.
pub struct Conversation {
    /// Each frame's sender and payload, without the length prefix, and its `file:line`.
    pub frames: Vec<(From, Vec<u8>, String)>,
}

/// All recorded connections, in the order of their names.
pub fn conversations() -> Vec<Conversation> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("tests/golden")
        .map(|entry| entry.expect("an entry of tests/golden").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    files.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Conversation {
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).expect("a readable recording");
    let mut frames = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let (from, hex) = match line.split_at_checked(2) {
            Some(("> ", hex)) => (From::Client, hex),
            Some(("< ", hex)) => (From::Server, hex),
            _ if line.starts_with('#') || line.is_empty() => continue,
            _ => panic!("{name}:{}: neither comment nor frame: {line:?}", index + 1),
        };
        let payload = unhex(hex).unwrap_or_else(|| panic!("{name}:{}: hex", index + 1));
        frames.push((from, payload, format!("{name}:{}", index + 1)));
    }
    Conversation { frames }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .trim_end()
        .chars()
        .map(|letter| letter.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let digits = digits?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] * 16 + pair[1]).collect())
}

/// The opcodes of requests that have no reply yet, oldest first.
#[derive(Default)]
pub struct Outstanding(VecDeque<(i32, i32)>);

impl Outstanding {
    pub fn sent(&mut self, xid: i32, opcode: i32) {
        self.0.push_back((xid, opcode));
    }

    /// The opcode of the oldest request that a reply with this xid answers. Replies to auth may
    /// overtake others, and the reply to a ping has an xid of its own.
    pub fn answered(&mut self, xid: i32) -> Option<i32> {
        let at = self.0.iter().position(|(sent, opcode)| match (xid, opcode) {
            (-2, 11) => true,
            _ => *sent == xid,
        })?;
        self.0.remove(at).map(|(_, opcode)| opcode)
    }
}
