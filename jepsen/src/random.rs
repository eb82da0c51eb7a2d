//! Chance from a seed.
//!
//! *Owns* the generators of a run. *Invariant*: each client, and the plan of faults, has a stream of
//! its own, so that what one draws does not shift what the others draw.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// The stream from which the faults are drawn; clients have those of their process numbers.
pub const FAULTS: u64 = u64::MAX;
/// The stream from which ports are drawn. Not of the seed alone: two runs may be under way at once.
pub const PORTS: u64 = u64::MAX - 1;
/// The stream from which it is drawn which packets are hit.
pub const SWITCH: u64 = u64::MAX - 3;
/// The stream from which damage is drawn, each of a seed of its own.
pub const DAMAGE: u64 = u64::MAX - 2;

/// A generator of numbers.
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// The generator of a stream of a seed.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(stream);
        Self(generator)
    }

    /// A number from 0 to before `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "no number is below 0");
        self.0.next_u64() % end
    }

    /// A place in a list of so many.
    pub fn index(&mut self, length: usize) -> usize {
        let length = u64::try_from(length).expect("a list in memory");
        usize::try_from(self.below(length)).expect("it is below the length")
    }

    /// Whether something happens that does so in `percent` of a hundred cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A time from `least` to `most`.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = most.saturating_sub(least).as_micros();
        let span = u64::try_from(span).expect("584,000 years in microseconds");
        least + Duration::from_micros(self.below(span + 1))
    }

    /// One of a list, which must not be empty.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.index(list.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_again_and_its_streams_differ() {
        let draw = |seed, stream| {
            let mut random = Random::new(seed, stream);
            (0..8).map(|_| random.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        assert_ne!(draw(7, 1), draw(8, 1));
    }
}
