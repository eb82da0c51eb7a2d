//! A state as a number.
//!
//! *Owns* how what a state prints of itself is hashed. *Invariants*: everything that the `Debug` form shows counts; a
//! time counts by how far it is from now, because two states that differ in the date alone go on equally. A time is
//! known by its size: the clocks of these worlds begin so late that no other number comes near them.

use std::fmt::{Debug, Write};
use std::hash::Hasher;

use twox_hash::XxHash3_128;

/// Monotonic clocks begin here, microseconds. A number within [`ERA`] of now is a time.
pub const BEGIN_US: u64 = 1 << 60;
/// No exploration lasts as long.
const ERA: u64 = 1 << 50;

/// Hashes the `Debug` forms of values.
pub struct Digest {
    now: u64,
    bytes: Vec<u8>,
    /// Digits of a number that is not complete yet.
    number: Option<u64>,
}

impl Digest {
    /// With times relative to this one.
    pub fn at(now: u64) -> Self {
        Self { now, bytes: Vec::with_capacity(4096), number: None }
    }

    #[must_use]
    pub fn and(mut self, value: &dyn Debug) -> Self {
        write!(self, "{value:?}|").expect("memory takes everything");
        self
    }

    /// A state that was written already.
    #[must_use]
    pub fn and_text(mut self, text: &str) -> Self {
        write!(self, "{text}|").expect("memory takes everything");
        self
    }

    pub fn finish_128(mut self) -> u128 {
        self.end_number();
        XxHash3_128::oneshot(&self.bytes)
    }

    fn end_number(&mut self) {
        let Some(number) = self.number.take() else { return };
        let relative = number.wrapping_sub(self.now).wrapping_add(ERA);
        let (kind, value) = if relative < 2 * ERA { (b'@', relative) } else { (b'#', number) };
        self.bytes.push(kind);
        self.bytes.extend(value.to_le_bytes());
    }
}

/// What is hashed as it is has no times, or ages in their places.
impl Hasher for Digest {
    fn finish(&self) -> u64 {
        XxHash3_128::oneshot(&self.bytes) as u64
    }

    fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for byte in text.bytes() {
            let digit = byte.wrapping_sub(b'0');
            if digit < 10 {
                // Numbers of more than 64 bits only have to differ.
                let before = self.number.unwrap_or(0);
                self.number = Some(before.wrapping_mul(10).wrapping_add(u64::from(digit)));
                continue;
            }
            if self.number.is_some() {
                self.end_number();
            }
            self.bytes.push(byte);
        }
        Ok(())
    }
}
