//! Random numbers from a seed, for all tests: those of this folder, and the unit tests in src.
//!
//! *Owns* [`Rng`], the only generator of the tests (those of jepsen/ have their own: they share nothing with the
//! product). *Invariant*: the same seed gives the same numbers on every machine, and a seed has as many streams
//! as one wants, so that one part of a test drawing more often does not change what another one gets.

#![allow(dead_code, reason = "each test uses its own part of this")]

use std::ops::Range;
use std::time::Duration;

/// SplitMix64: small, fast, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream `stream` of `seed`.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        rng.next();
        rng
    }

    /// 64 random bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// An index into something of that length; 0 if there is none.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len.max(1) as u64) as usize
    }

    /// A number in `first..=last`.
    pub fn range(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True in `per_mille` of 1000 cases.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// One of them, copied.
    pub fn of<T: Copy>(&mut self, from: &[T]) -> T {
        *self.pick(from)
    }

    /// A time of so many milliseconds.
    pub fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(range.start + self.below(range.end - range.start))
    }

    /// An index, each as likely as its weight says. Not all weights are 0.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        let mut at = self.below(total);
        for (index, weight) in weights.iter().enumerate() {
            match at.checked_sub(u64::from(*weight)) {
                None => return index,
                Some(rest) => at = rest,
            }
        }
        unreachable!("`at` is below the sum of the weights")
    }

    /// A number from 1 to `max`, each order of magnitude as likely as the others.
    pub fn spread(&mut self, max: u64) -> u64 {
        let low = 1 << self.below(u64::from(max.ilog2()) + 1);
        (low + self.below(low)).min(max)
    }

    /// So many random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}
