//! A server of tests: it answers what the test says, and when.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::{PATIENCE, wire};

/// Its end of a connection.
pub(super) struct Fake {
    stream: TcpStream,
    zxid: i64,
}

impl Fake {
    /// Takes a connection, and gives it a session of this timeout after `delay`.
    pub(super) fn accept(listener: &TcpListener, timeout_ms: i32, delay: Duration) -> Self {
        let mut fake = Self { stream: connection(listener), zxid: 0 };
        fake.frame();
        std::thread::sleep(delay);
        fake.send(|f| {
            wire::int(f, 0);
            wire::int(f, timeout_ms);
            wire::long(f, 1);
            wire::buffer(f, &[0; 16]);
        });
        fake
    }

    /// xid and type of the next request.
    pub(super) fn request(&mut self) -> (i32, i32) {
        let request = self.frame();
        let [xid, op] = [0, 4].map(|at| wire::int_at(&request, at).expect("a header"));
        (xid, op)
    }

    pub(super) fn answer(&mut self, xid: i32, body: &[u8]) {
        self.zxid += 1;
        self.reply(xid, self.zxid, body);
    }

    /// Answers the next request by this; false if the client has gone instead.
    #[allow(dead_code, reason = "for the tests of benches/vs_zookeeper")]
    pub(super) fn serves_next(&mut self, body: &[u8]) -> bool {
        let mut probe = [0; 1];
        if !matches!(self.stream.peek(&mut probe), Ok(1)) {
            return false;
        }
        let (xid, _) = self.request();
        self.answer(xid, body);
        true
    }

    pub(super) fn event(&mut self) {
        self.reply(wire::EVENT_XID, -1, b"");
    }

    fn reply(&mut self, xid: i32, zxid: i64, body: &[u8]) {
        self.send(|f| {
            wire::int(f, xid);
            wire::long(f, zxid);
            wire::int(f, 0);
            f.extend_from_slice(body);
        });
    }

    fn send(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        wire::frame(&mut out, fill);
        self.stream.write_all(&out).expect("an answer is sent");
    }

    fn frame(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).expect("a length");
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut frame).expect("a frame");
        frame
    }
}

/// The next connection. A client that has failed makes none: its test is to say so, and not to hang.
fn connection(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).expect("a listener that can be asked");
    let began = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).expect("a stream that waits");
                return stream;
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock && began.elapsed() < PATIENCE * 2 => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) => panic!("a connection: {e}"),
        }
    }
}
