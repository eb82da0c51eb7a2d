//! The bytes that came and are not read yet.
//!
//! *Owns* a buffer that never holds more than was fed. *Never* knows what the bytes mean.

/// Memory that an empty buffer keeps.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The bytes that came and are not read yet.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    /// Up to where they are read.
    at: usize,
}

impl Inbox {
    /// Takes the next bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.at));
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The bytes that are not read.
    pub(super) fn unread(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// These many were read.
    pub(super) fn skip(&mut self, count: usize) {
        self.at = self.at.saturating_add(count).min(self.bytes.len());
    }
}
