//! gRPC over HTTP/2 without encryption, as much of it as a client needs that makes one call after
//! another: the fixed headers of a request, and of the answer its message.
//!
//! Headers of answers are not decoded: a call that fails sends no message, and that is how it is seen.

/// What a client begins with: the greeting, empty settings, and a wide window for answers.
const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes the server may send before it hears that they were taken, beside the 65,535 it begins with.
const WINDOW: u32 = 1 << 24;
/// What a server takes in all before it says that it takes more.
const FIRST_BUDGET: i64 = 65_535;
/// Longest message.
const MESSAGE_MAX: usize = 1 << 20;
/// Bytes before a frame's content, and before a message.
const FRAME_HEAD: usize = 9;
const MESSAGE_HEAD: usize = 5;

/// Kinds of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
/// Flags.
const END_STREAM: u8 = 1;
const ACKNOWLEDGES: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// One connection's state; what goes over it is the caller's to move.
pub struct Channel {
    authority: String,
    /// The stream of the call under way, or of the last one.
    stream: u32,
    body: Vec<u8>,
    /// Bytes that came since the server was told of them.
    taken: u32,
    /// Bytes that may be sent.
    budget: i64,
}

impl Channel {
    /// Greets the server.
    pub fn new(authority: String, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(GREETING);
        frame(SETTINGS, 0, 0, &[], out);
        frame(WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes(), out);
        // Streams of clients have odd numbers.
        Channel { authority, stream: u32::MAX, body: Vec::new(), taken: 0, budget: FIRST_BUDGET }
    }

    /// Begins a call of the method at `path`; the one before must have been answered.
    pub fn call(&mut self, path: &str, message: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        self.stream = self.stream.wrapping_add(2);
        self.body.clear();
        // Of the table that the protocol begins with: POST, http. Then names of that table, or
        // written out, with values written out, none of which is to be remembered.
        let mut headers = vec![0x83, 0x86];
        for (name, value) in [
            (&[0x04][..], path),
            (&[0x01], self.authority.as_str()),
            (&[0x0f, 0x10], "application/grpc"),
        ] {
            headers.extend_from_slice(name);
            text(value, &mut headers);
        }
        headers.push(0);
        text("te", &mut headers);
        text("trailers", &mut headers);
        frame(HEADERS, END_HEADERS, self.stream, &headers, out);
        let mut data = vec![0];
        data.extend_from_slice(&(message.len() as u32).to_be_bytes());
        data.extend_from_slice(message);
        self.budget -= data.len() as i64;
        if self.budget < 0 {
            return Err("the server takes no more".to_owned());
        }
        frame(DATA, END_STREAM, self.stream, &data, out);
        Ok(())
    }

    /// Takes whole frames from `received`, until the call is answered; `None` if more bytes are needed.
    pub fn answer(
        &mut self,
        received: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Vec<u8>>, String> {
        let mut at = 0;
        let mut ended = false;
        while let Some(head) = received.get(at..at + FRAME_HEAD)
            && !ended
        {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let (kind, flags) = (head[3], head[4]);
            let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
            if length > MESSAGE_MAX {
                return Err(format!("a frame of {length} bytes"));
            }
            let from = at + FRAME_HEAD;
            let Some(content) = received.get(from..from + length) else { break };
            at = from + length;
            ended = self.frame(kind, flags, stream, content, out)?;
        }
        received.drain(..at);
        if !ended {
            return Ok(None);
        }
        match self.body.get(MESSAGE_HEAD..) {
            Some(message) => Ok(Some(message.to_vec())),
            None => Err("the call failed".to_owned()),
        }
    }

    /// True if the call is answered.
    fn frame(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        content: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, String> {
        match kind {
            DATA if flags & PADDED != 0 => return Err("padded data".to_owned()),
            DATA => {
                self.body.extend_from_slice(content);
                self.taken += content.len() as u32;
                if self.taken > WINDOW / 2 {
                    frame(WINDOW_UPDATE, 0, 0, &self.taken.to_be_bytes(), out);
                    self.taken = 0;
                }
            }
            SETTINGS if flags & ACKNOWLEDGES == 0 => frame(SETTINGS, ACKNOWLEDGES, 0, &[], out),
            PING if flags & ACKNOWLEDGES == 0 => frame(PING, ACKNOWLEDGES, 0, content, out),
            WINDOW_UPDATE if stream == 0 => {
                let more = content.try_into().map_err(|_| "a window of no size")?;
                self.budget += i64::from(u32::from_be_bytes(more));
            }
            RESET | GO_AWAY => {
                return Err(format!("the server ends the call: {}", content.escape_ascii()));
            }
            _ => {}
        }
        let ends = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
        Ok(ends && stream == self.stream)
    }
}

fn frame(kind: u8, flags: u8, stream: u32, content: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(content.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(content);
}

/// A header's name or value, shorter than 127 bytes.
fn text(value: &str, out: &mut Vec<u8>) {
    assert!(value.len() < 127, "names and values of these headers are short");
    out.push(value.len() as u8);
    out.extend_from_slice(value.as_bytes());
}

/// Appends a field of a message: a number.
pub fn number(field: u8, value: i64, out: &mut Vec<u8>) {
    out.push(field << 3);
    varint(value as u64, out);
}

/// Appends a field of a message: bytes.
pub fn bytes(field: u8, value: &[u8], out: &mut Vec<u8>) {
    out.push(field << 3 | 2);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// What a field of a message holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    Number(i64),
    Bytes(&'a [u8]),
}

/// The last field of that number in a message; `None` if there is none, or it is no message.
pub fn field(mut message: &[u8], wanted: u64) -> Option<Field<'_>> {
    let mut found = None;
    while !message.is_empty() {
        let key = take_varint(&mut message)?;
        let value = match key & 7 {
            0 => Field::Number(take_varint(&mut message)? as i64),
            2 => {
                let length = usize::try_from(take_varint(&mut message)?).ok()?;
                let (value, rest) = message.split_at_checked(length)?;
                message = rest;
                Field::Bytes(value)
            }
            _ => return None,
        };
        if key >> 3 == wanted {
            found = Some(value);
        }
    }
    found
}

fn take_varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
