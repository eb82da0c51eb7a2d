//! The primitives of ZooKeeper's record encoding, and their limits.
//!
//! *Owns* [`Reader`], [`Writer`] and [`Text`]. This is the only file that uses `nom`.
//! *Invariant*: a length is checked against the bytes that are there before anything is allocated.
//! Reproduces `BinaryInputArchive` and `BinaryOutputArchive`.

use std::fmt;

use bytes::Bytes;
use nom::IResult;
use nom::bytes::complete::take;
use nom::number::complete::{be_i32, be_i64, be_u8};

/// Why a record could not be decoded. Names the field, never carries client bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The field that was being read.
    pub field: &'static str,
    /// What was wrong with it.
    pub reason: &'static str,
}

impl Malformed {
    /// An error about `field`.
    #[must_use]
    pub const fn new(field: &'static str, reason: &'static str) -> Self {
        Self { field, reason }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

impl std::error::Error for Malformed {}

/// A jute `ustring`: UTF-8 that shares the frame it came from.
///
/// Malformed UTF-8 from a client is replaced as Java's decoder does, so a `Text` is always valid.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Bytes);

impl Text {
    /// A text that shares nothing.
    #[must_use]
    pub fn copy_from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }

    /// A text known at compile time.
    #[must_use]
    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// The characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a Text is checked when it is made")
    }

    /// The UTF-8 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether there are no characters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first `length` bytes, sharing the same memory.
    ///
    /// # Panics
    /// When `length` is not on a character boundary.
    #[must_use]
    pub fn slice_to(&self, length: usize) -> Self {
        let is_inside = self.0.get(length).is_some_and(|byte| byte & 0xc0 == 0x80);
        assert!(!is_inside, "a Text is never cut inside a character");
        Self(self.0.slice(..length))
    }

    fn from_wire(bytes: Bytes) -> Self {
        match std::str::from_utf8(&bytes) {
            Ok(_) => Self(bytes),
            Err(_) => Self(Bytes::from(String::from_utf8_lossy(&bytes).into_owned())),
        }
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Bytes::from(text))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::copy_from(text)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

/// Reads primitives from the front of a frame; buffers and strings share its memory.
#[derive(Clone, Debug)]
pub struct Reader {
    frame: Bytes,
    at: usize,
}

impl Reader {
    /// Starts at the first byte of `frame`.
    #[must_use]
    pub fn new(frame: Bytes) -> Self {
        Self { frame, at: 0 }
    }

    /// The bytes not read yet, sharing the frame.
    #[must_use]
    pub fn rest(&self) -> Bytes {
        self.frame.slice(self.at..)
    }

    /// How many bytes are not read yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.frame.len() - self.at
    }

    fn run<'a, T>(
        &'a mut self,
        field: &'static str,
        mut parse: impl FnMut(&'a [u8]) -> IResult<&'a [u8], T>,
    ) -> Result<T, Malformed> {
        let input = &self.frame[self.at..];
        match parse(input) {
            Ok((rest, value)) => {
                self.at = self.frame.len() - rest.len();
                Ok(value)
            }
            Err(_) => Err(Malformed::new(field, "the frame ends too early")),
        }
    }

    /// One byte.
    pub fn byte(&mut self, field: &'static str) -> Result<u8, Malformed> {
        self.run(field, be_u8)
    }

    /// A big-endian 32-bit integer.
    pub fn int(&mut self, field: &'static str) -> Result<i32, Malformed> {
        self.run(field, be_i32)
    }

    /// A big-endian 64-bit integer.
    pub fn long(&mut self, field: &'static str) -> Result<i64, Malformed> {
        self.run(field, be_i64)
    }

    /// One byte; anything but 0 is true.
    pub fn boolean(&mut self, field: &'static str) -> Result<bool, Malformed> {
        Ok(self.byte(field)? != 0)
    }

    /// A length-prefixed buffer; `None` is the null buffer (length -1), which is not the empty one.
    pub fn buffer(&mut self, field: &'static str) -> Result<Option<Bytes>, Malformed> {
        let length = self.int(field)?;
        if length == -1 {
            return Ok(None);
        }
        let Ok(length) = usize::try_from(length) else {
            return Err(Malformed::new(field, "negative length"));
        };
        let start = self.at;
        self.run(field, take(length))?;
        Ok(Some(self.frame.slice(start..start + length)))
    }

    /// A string; `None` is the null string.
    pub fn string_or_null(&mut self, field: &'static str) -> Result<Option<Text>, Malformed> {
        Ok(self.buffer(field)?.map(Text::from_wire))
    }

    /// A string that must be there.
    pub fn string(&mut self, field: &'static str) -> Result<Text, Malformed> {
        self.string_or_null(field)?.ok_or(Malformed::new(field, "is null"))
    }

    /// The element count of a vector; `None` is the null vector. Any other negative count reads as
    /// empty, as in ZooKeeper. A count is refused when the frame cannot hold that many elements of
    /// `element_bytes_min` bytes, so a declared count never decides an allocation.
    pub fn count(
        &mut self,
        field: &'static str,
        element_bytes_min: usize,
    ) -> Result<Option<usize>, Malformed> {
        let count = self.int(field)?;
        if count == -1 {
            return Ok(None);
        }
        let count = usize::try_from(count).unwrap_or(0);
        if count > self.remaining() / element_bytes_min {
            return Err(Malformed::new(field, "more elements than bytes"));
        }
        Ok(Some(count))
    }

    /// The element count of a list between servers: one that is there, and has no more than `max`.
    pub fn count_of(
        &mut self,
        field: &'static str,
        element_bytes_min: usize,
        max: usize,
    ) -> Result<usize, Malformed> {
        match usize::try_from(self.int(field)?) {
            Ok(count) if count <= max.min(self.remaining() / element_bytes_min) => Ok(count),
            Ok(_) | Err(_) => Err(Malformed::new(field, "are more than there can be")),
        }
    }

    /// A vector of strings that must be there (the vector, and each string).
    pub fn strings(&mut self, field: &'static str) -> Result<Vec<Text>, Malformed> {
        let count = self.count(field, 4)?.ok_or(Malformed::new(field, "is null"))?;
        (0..count).map(|_| self.string(field)).collect()
    }
}

/// Writes primitives to the end of a buffer.
pub trait Writer {
    /// One byte, 0 or 1.
    fn put_bool(&mut self, value: bool);
    /// Big-endian 32 bits.
    fn put_int(&mut self, value: i32);
    /// Big-endian 64 bits.
    fn put_long(&mut self, value: i64);
    /// Length and bytes; `None` is written as length -1.
    fn put_buffer(&mut self, value: Option<&[u8]>);
    /// Length and UTF-8.
    fn put_string(&mut self, value: &str);
}

impl Writer for Vec<u8> {
    fn put_bool(&mut self, value: bool) {
        self.push(u8::from(value));
    }

    fn put_int(&mut self, value: i32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_long(&mut self, value: i64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_buffer(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.put_int(-1),
            Some(bytes) => {
                self.put_int(wire_len(bytes.len()));
                self.extend_from_slice(bytes);
            }
        }
    }

    fn put_string(&mut self, value: &str) {
        self.put_buffer(Some(value.as_bytes()));
    }
}

/// A length or count as the wire's signed 32 bits.
///
/// # Panics
/// Above 2 GiB, which no limit of this server lets anything reach.
#[must_use]
pub fn wire_len(length: usize) -> i32 {
    i32::try_from(length).expect("no record of this server reaches 2 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: &'static [u8]) -> Reader {
        Reader::new(Bytes::from_static(bytes))
    }

    #[test]
    fn null_buffer_is_not_the_empty_buffer() {
        assert_eq!(reader(b"\xff\xff\xff\xff").buffer("data"), Ok(None));
        assert_eq!(reader(b"\0\0\0\0").buffer("data"), Ok(Some(Bytes::new())));
    }

    #[test]
    fn a_length_beyond_the_frame_is_malformed() {
        let wrong = reader(b"\0\0\0\x05abcd").buffer("data");
        assert_eq!(wrong, Err(Malformed::new("data", "the frame ends too early")));
        assert!(reader(b"\x7f\xff\xff\xff").buffer("data").is_err());
        assert!(reader(b"\xff\xff\xff\xfe").buffer("data").is_err());
    }

    #[test]
    fn a_declared_count_never_decides_an_allocation() {
        assert!(reader(b"\x7f\xff\xff\xff").strings("paths").is_err());
        assert!(reader(b"\0\0\0\x02\0\0\0\0").strings("paths").is_err());
        assert_eq!(reader(b"\xff\xff\xff\xfd").strings("paths"), Ok(vec![]));
        assert!(reader(b"\xff\xff\xff\xff").strings("paths").is_err());
    }

    #[test]
    fn any_byte_but_zero_is_true() {
        assert_eq!(reader(b"\x07").boolean("watch"), Ok(true));
        assert_eq!(reader(b"\0").boolean("watch"), Ok(false));
    }

    #[test]
    fn a_slice_of_a_text_ends_between_characters() {
        let text = Text::from("/a\u{e9}");
        assert_eq!(text.slice_to(2).as_str(), "/a");
        assert_eq!(text.slice_to(4), text);
        assert!(std::panic::catch_unwind(|| text.slice_to(3)).is_err());
        assert!(std::panic::catch_unwind(|| text.slice_to(5)).is_err());
    }

    #[test]
    fn bad_utf8_is_replaced_as_java_does() {
        assert_eq!(reader(b"\0\0\0\x02a\xff").string("path").unwrap().as_str(), "a\u{fffd}");
    }
}
