//! A count that many threads add to at once.
//!
//! One counter would be a cache line that every request of every client moves from core to core, some ten times. So
//! each thread adds to a cache line of its own.
//!
//! *Owns* [`Striped`]. *Invariants*: nothing that was added is lost; a total is that of some moment for each thread,
//! not of one moment for all. *Never* is added to and read for each other: a total reads as many cache lines as there
//! are stripes.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// More threads than these share: I/O threads, the driver's, and those of the disk.
const STRIPES: usize = 16;

/// A count.
#[derive(Debug, Default)]
pub(in crate::server) struct Striped(Striping<AtomicU64>);

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static OWN: usize = THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES;
}

/// One of something for each thread, or for a few of them.
#[derive(Debug, Default)]
pub(in crate::server) struct Striping<T>(Box<[Stripe<T>; STRIPES]>);

/// Two lines of 64 bytes: processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe<T>(T);

impl<T> Striping<T> {
    /// That of the calling thread.
    pub(in crate::server) fn own(&self) -> &T {
        &self.0[own_stripe()].0
    }

    /// All of them.
    pub(in crate::server) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|Stripe(one)| one)
    }
}

/// At the end of a thread its number may be gone.
fn own_stripe() -> usize {
    OWN.try_with(|own| *own).unwrap_or_default()
}

impl Striped {
    /// Adds to it.
    pub(in crate::server) fn add(&self, by: u64) {
        self.0.own().fetch_add(by, Ordering::Relaxed);
    }

    /// Takes off what was added, perhaps by another thread.
    pub(in crate::server) fn take_off(&self, by: u64) {
        self.0.own().fetch_sub(by, Ordering::Relaxed);
    }

    /// What was added and not taken off.
    pub(in crate::server) fn total(&self) -> u64 {
        let all = self.0.all().map(|count| count.load(Ordering::Relaxed));
        let total = all.fold(0, u64::wrapping_add);
        // What one thread has added and another one taken off may be seen in part only.
        if total > i64::MAX as u64 { 0 } else { total }
    }

    /// Sets it to zero. What is added meanwhile may count or not.
    pub(in crate::server) fn reset(&self) {
        self.0.all().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn what_threads_add_and_take_off_is_counted_once() {
        let count = Arc::new(Striped::default());
        let threads = (0..2 * STRIPES as u64).map(|number| {
            let count = Arc::clone(&count);
            thread::spawn(move || {
                (0..1000).for_each(|_| count.add(number));
                (0..500).for_each(|_| count.take_off(number));
            })
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        let numbers = 2 * STRIPES as u64;
        assert_eq!(count.total(), 500 * numbers * (numbers - 1) / 2);
        count.reset();
        assert_eq!(count.total(), 0);
    }

    #[test]
    fn what_another_thread_takes_off_makes_no_total_wrap() {
        let count = Arc::new(Striped::default());
        let theirs = Arc::clone(&count);
        thread::spawn(move || theirs.take_off(5)).join().unwrap();
        assert_eq!(count.total(), 0);
        count.add(7);
        assert_eq!(count.total(), 2);
    }
}
