//! The log that was written since the newest image: when an image is due, and how late it is.
//!
//! *Owns* how much was written when that image was begun, and its size. *Invariant*: an image is due once as much log
//! was written as an image has bytes, and the number that the server was given at least. *Never* writes an image
//! itself: the checkpointer does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An image is overdue after this many times the log that makes it due: checkpoints do not complete,
/// or images cannot be written, and the log is not cut.
pub(super) const IMAGE_OVERDUE_TIMES: u64 = 8;

/// One thread changes it, that of the checkpointer; others read it.
#[derive(Debug)]
pub struct LogSinceImage {
    /// Counts the bytes of log that are written.
    written: Arc<AtomicU64>,
    /// That count at the newest image.
    written_at_image: AtomicU64,
    /// Size of the newest image.
    image_bytes: AtomicU64,
    /// An image is due after this many bytes of log at the earliest.
    every_bytes: u64,
}

impl LogSinceImage {
    pub(super) fn new(written: Arc<AtomicU64>, every_bytes: u64) -> Self {
        let (written_at_image, image_bytes) = Default::default();
        Self { written, written_at_image, image_bytes, every_bytes }
    }

    /// There is an image of so many bytes, begun when so many bytes of log were written.
    pub(super) fn begins(&self, written: u64, image_bytes: u64) {
        self.image_bytes.store(image_bytes, Ordering::Relaxed);
        self.written_at_image.store(written, Ordering::Relaxed);
    }

    /// Bytes of log that were ever written.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Bytes of log that were written since the newest image.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.written().saturating_sub(self.written_at_image.load(Ordering::Relaxed))
    }

    /// Whether an image is due.
    pub(super) fn is_image_due(&self) -> bool {
        self.bytes() >= self.due_bytes()
    }

    /// Whether there should have been an image long ago: see [`IMAGE_OVERDUE_TIMES`].
    pub(super) fn is_image_overdue(&self) -> bool {
        self.bytes() > self.due_bytes().saturating_mul(IMAGE_OVERDUE_TIMES)
    }

    /// How late the next image is: 0.0 until it is due, and late, 1.0, when twice as much log was written as made it
    /// due. An image that rests for longer than that is outgrown by the log, and each by more than the one before.
    #[must_use]
    pub fn lateness(&self) -> f64 {
        let due = self.due_bytes().max(1);
        self.bytes().saturating_sub(due) as f64 / due as f64
    }

    /// Bytes of log after which an image is due.
    fn due_bytes(&self) -> u64 {
        self.every_bytes.max(self.image_bytes.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_late_when_the_log_has_twice_what_made_it_due() {
        let written = Arc::new(AtomicU64::new(0));
        let since = LogSinceImage::new(Arc::clone(&written), 1000);
        let at = |bytes| {
            written.store(bytes, Ordering::Relaxed);
            (since.is_image_due(), since.lateness())
        };
        assert_eq!(at(999), (false, 0.0));
        assert_eq!(at(1000), (true, 0.0));
        assert_eq!(at(1250), (true, 0.25));
        assert_eq!(at(2000), (true, 1.0));
        assert_eq!(at(9000), (true, 8.0));
        // Where the image has more bytes than that, so many.
        since.begins(9000, 4000);
        assert_eq!(at(12_999), (false, 0.0));
        assert_eq!(at(13_000), (true, 0.0));
        assert_eq!(at(15_000), (true, 0.5));
    }
}
