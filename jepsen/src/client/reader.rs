//! The primitives of a reply: numbers, text, lists, from bytes that may be anything.

use std::fmt;

use lockkeeper_check::op::Data;

/// What is wrong with bytes from a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Garbled(pub String);

impl fmt::Display for Garbled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Garbled {}

/// Takes values from the front of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take(&mut self, length: usize, name: &str) -> Result<&'a [u8], Garbled> {
        if self.rest.len() < length {
            let left = self.rest.len();
            return Err(Garbled(format!("{name} needs {length} bytes, {left} are left")));
        }
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, name: &str) -> Result<[u8; N], Garbled> {
        Ok(self.take(N, name)?.try_into().expect("so many were taken"))
    }

    pub fn int(&mut self, name: &str) -> Result<i32, Garbled> {
        Ok(i32::from_be_bytes(self.array(name)?))
    }

    pub fn long(&mut self, name: &str) -> Result<i64, Garbled> {
        Ok(i64::from_be_bytes(self.array(name)?))
    }

    pub fn flag(&mut self, name: &str) -> Result<bool, Garbled> {
        match self.array(name)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [byte] => Err(Garbled(format!("{name} is {byte}, neither true nor false"))),
        }
    }

    /// Bytes with their length before them; a length of -1 is none at all.
    pub fn data(&mut self, name: &str) -> Result<Data, Garbled> {
        let length = self.int(name)?;
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length);
        let length = length.map_err(|_| Garbled(format!("{name} has a negative length")))?;
        self.take(length, name).map(|bytes| Some(bytes.to_vec()))
    }

    pub fn text(&mut self, name: &str) -> Result<String, Garbled> {
        let bytes = self.data(name)?.ok_or_else(|| Garbled(format!("{name} is null")))?;
        String::from_utf8(bytes).map_err(|_| Garbled(format!("{name} is not UTF-8")))
    }

    /// The length of a list. What it announces must be there, a byte for each at least.
    pub fn count(&mut self, name: &str) -> Result<usize, Garbled> {
        let length = self.int(name)?;
        match usize::try_from(length) {
            Ok(length) if length <= self.rest.len() => Ok(length),
            // A null list is an empty one.
            _ if length == -1 => Ok(0),
            _ => Err(Garbled(format!("{name} announces {length} entries"))),
        }
    }

    pub fn texts(&mut self, name: &str) -> Result<Vec<String>, Garbled> {
        let length = self.count(name)?;
        (0..length).map(|_| self.text(name)).collect()
    }

    /// Nothing may be left.
    pub fn end(self) -> Result<(), Garbled> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(Garbled(format!("{left} bytes too many"))),
        }
    }
}
