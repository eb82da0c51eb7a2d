//! The checksum Adler-32, as its bytes come.
//!
//! *Owns* the two sums. *Invariant*: the order of feeding portions does not matter, their order in the stream does.
//! *Never* knows what it is a checksum of.

/// Largest prime below 2^16.
const MODULUS: u32 = 65_521;
/// So many bytes may be added before a sum of 32 bits could overflow.
const BYTES_BETWEEN: usize = 5552;

/// A running checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adler32 {
    low: u32,
    high: u32,
}

impl Default for Adler32 {
    fn default() -> Self {
        Self { low: 1, high: 0 }
    }
}

impl Adler32 {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        for portion in bytes.chunks(BYTES_BETWEEN) {
            for byte in portion {
                self.low += u32::from(*byte);
                self.high += self.low;
            }
            self.low %= MODULUS;
            self.high %= MODULUS;
        }
    }

    /// The checksum so far, as ZooKeeper writes it: unsigned, in a long.
    #[must_use]
    pub fn sum(&self) -> i64 {
        i64::from(self.high << 16 | self.low)
    }

    /// The checksum of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> i64 {
        let mut adler = Self::default();
        adler.add(bytes);
        adler.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_and_portions_agree() {
        assert_eq!(Adler32::of(b""), 1);
        assert_eq!(Adler32::of(b"Wikipedia"), 0x11e6_0398);
        let long = vec![0xff; 100_000];
        let mut adler = Adler32::default();
        long.chunks(777).for_each(|portion| adler.add(portion));
        assert_eq!(adler.sum(), Adler32::of(&long));
    }
}
