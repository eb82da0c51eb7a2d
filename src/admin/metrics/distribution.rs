//! How the values of one quantity are distributed: number, sum, extremes, quantiles and counts up to bounds.
//!
//! *Owns* the buckets that values are counted in. *Invariants*: a quantile is at most an eighth off, which is the width
//! of a bucket; counts up to a power of two are exact. *Never* measures: threads count into buckets of their own, and
//! this is made of those when somebody asks.

use crate::admin::text::rounded;

/// Buckets of each power of two.
const PER_OCTAVE: usize = 8;
const PER_OCTAVE_BITS: u32 = PER_OCTAVE.ilog2();
/// Values from 2^44 on (half a year in microseconds) are counted together.
const OCTAVES: usize = 44;
/// How many there are.
pub(crate) const BUCKETS: usize = PER_OCTAVE * (OCTAVES - 2);

/// The bucket that a value is counted in.
pub(crate) fn bucket_of(value: u64) -> usize {
    if value < PER_OCTAVE as u64 {
        return usize::try_from(value).unwrap_or_default();
    }
    let shift = value.ilog2() - PER_OCTAVE_BITS;
    let place = usize::try_from(value >> shift).unwrap_or(usize::MAX);
    (shift as usize * PER_OCTAVE + place).min(BUCKETS - 1)
}

/// The smallest value of a bucket.
fn lowest_of(bucket: usize) -> u64 {
    if bucket < PER_OCTAVE {
        return bucket as u64;
    }
    let shift = bucket / PER_OCTAVE - 1;
    ((PER_OCTAVE + bucket % PER_OCTAVE) as u64) << shift
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// Empty, or [`BUCKETS`] of them.
    buckets: Vec<u64>,
    sum: u64,
    min: u64,
    max: u64,
}

impl Distribution {
    /// Of so many values in each bucket. `min` and `max` are looked at only where there is a value.
    pub(crate) fn new(buckets: Vec<u64>, sum: u64, min: u64, max: u64) -> Self {
        if buckets.iter().all(|count| *count == 0) {
            return Self::default();
        }
        Self { buckets, sum, min, max }
    }

    /// Of one value.
    #[must_use]
    pub fn of(value: u64) -> Self {
        let mut buckets = vec![0; BUCKETS];
        buckets[bucket_of(value)] = 1;
        Self { buckets, sum: value, min: value, max: value }
    }

    /// How many values there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their sum.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The smallest, 0 without any.
    #[must_use]
    pub fn min(&self) -> u64 {
        self.min
    }

    /// The largest, 0 without any.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean of times in microseconds, as milliseconds, [`rounded`]; 0 without any.
    #[must_use]
    pub(crate) fn mean_ms(&self) -> f64 {
        let count = self.count();
        if count == 0 { 0.0 } else { rounded(self.sum as f64 / count as f64 / 1000.0) }
    }

    /// The value that this part of all values is not above, about; `None` without any.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = (part * count as f64).ceil().clamp(1.0, count as f64);
        let mut below = 0;
        for (bucket, in_it) in self.buckets.iter().enumerate() {
            if *in_it > 0 && (below + in_it) as f64 >= rank {
                let (from, to) = (lowest_of(bucket) as f64, lowest_of(bucket + 1) as f64 - 1.0);
                let value = from + (to - from) * (rank - below as f64) / *in_it as f64;
                return Some(value.clamp(self.min as f64, self.max as f64));
            }
            below += in_it;
        }
        Some(self.max as f64)
    }

    /// How many values are below `bound`, a power of two.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        debug_assert!(bound.is_power_of_two(), "counts are exact there alone");
        self.buckets.iter().take(bucket_of(bound)).sum()
    }

    /// Both together.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        match (self.count(), other.count()) {
            (0, _) => return other.clone(),
            (_, 0) => return self.clone(),
            _ => {}
        }
        let buckets = self.buckets.iter().zip(&other.buckets).map(|(one, two)| one + two);
        Self {
            buckets: buckets.collect(),
            sum: self.sum + other.sum,
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Distribution {
        let all = values.into_iter().map(Distribution::of);
        all.fold(Distribution::default(), |all, one| all.with(&one))
    }

    #[test]
    fn each_value_is_in_the_bucket_that_begins_at_or_below_it() {
        for value in
            (0..2000).chain((11..44).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]))
        {
            let bucket = bucket_of(value);
            assert!(lowest_of(bucket) <= value, "{value} in {bucket}");
            assert!(bucket == BUCKETS - 1 || value < lowest_of(bucket + 1), "{value} in {bucket}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_off_by_less_than_a_bucket() {
        let all = of(1..=10_000);
        assert_eq!((all.count(), all.sum(), all.min(), all.max()), (10_000, 50_005_000, 1, 10_000));
        for (part, exact) in [(0.5, 5000.0), (0.95, 9500.0), (0.99, 9900.0), (0.999, 9990.0)] {
            let value = all.quantile(part).unwrap();
            assert!((value - exact).abs() <= exact / 8.0, "{part}: {value}");
        }
        assert_eq!(of([7]).quantile(0.5), Some(7.0));
        assert_eq!(
            of([1_000_000]).quantile(0.999),
            Some(1_000_000.0),
            "no value is above the largest"
        );
        assert_eq!(Distribution::default().quantile(0.5), None);
    }

    #[test]
    fn counts_up_to_a_power_of_two_are_exact() {
        let all = of([0, 1, 127, 128, 255, 256, 5000]);
        assert_eq!([1, 128, 256, 8192].map(|bound| all.below(bound)), [1, 3, 5, 7]);
    }
}
