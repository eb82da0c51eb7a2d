//! Four-letter words: what a server says of itself without a session.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server that does not answer in this time says nothing.
const PATIENCE: Duration = Duration::from_millis(300);
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// What a server answers to a word, if it does.
fn ask(address: SocketAddr, word: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(word.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).ok()?;
    String::from_utf8(answer).ok()
}

fn field(address: SocketAddr, word: &str, name: &str) -> Option<String> {
    let answer = ask(address, word)?;
    answer.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
}

/// `leader`, `follower` or `standalone`, of a server that serves.
pub fn mode(address: SocketAddr) -> Option<String> {
    field(address, "srvr", "Mode:")
}

/// Whether a server in this mode decides: it leads the others, or there are none.
pub fn is_leading(mode: &str) -> bool {
    matches!(mode, "leader" | "standalone")
}

/// The last zxid that it has applied.
pub fn zxid(address: SocketAddr) -> Option<i64> {
    let text = field(address, "srvr", "Zxid:")?;
    i64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// A number among its figures.
pub fn figure(address: SocketAddr, name: &str) -> Option<u64> {
    field(address, "mntr", name)?.parse().ok()
}
