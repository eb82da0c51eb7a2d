//! Turns what the replica says has changed into checkpoints, images and cuts of the log.
//!
//! *Owns* the copy of the state and the images while the server runs. *Invariants*: changes count
//! from the mark on that completes them; an image is written only from a copy whose contents were
//! just found to be what was put there, and by their number and their digest the state of its mark;
//! the log may be cut only up to the older of two images that this process wrote or loaded, and
//! therefore verified. *Never* stops the server because of the state store: a store at fault is set
//! aside, or emptied if it lacks room, and filled again by a full pass, and after [`FAULTS_MAX`] faults
//! without an image in between replaced by one in memory.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use super::log_since_image::LogSinceImage;
use crate::copy::{Found, Manifest, MemoryState, Runs, StateError};
use crate::image::{ImageError, Images};
use crate::throttle::WorkBudget;
use lockkeeper_core::replica::{Changes, Mark, RecordDigest};

/// An image is written after at least this much log, unless told otherwise.
pub(crate) const IMAGE_EVERY_BYTES: u64 = 64 << 20;
/// How many times the state store may fail, with no image written in between, before one in memory
/// replaces it.
pub(super) const FAULTS_MAX: u32 = 3;

/// What to do about a log that lost its end where there are other servers. What it lost was
/// acknowledged to them, and perhaps a vote with it: this server must not go on without.
pub(crate) const LOG_LOST_END_ENSEMBLE: &str = "Restore the log directory from a copy, or have \
    this server fetch everything from the others again: lockkeeper server --rejoin";

/// What a step of the checkpointer means for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing.
    Continue,
    /// Two images cover the log up to this index: `Log::cut`.
    CutLog(u64),
    /// The store was lost: the replica must be given `Input::RecordsLost`, and changes are ignored
    /// until a full pass begins.
    RecordsLost,
}

/// The log does not contain what a checkpoint contains: the server must end.
#[derive(Debug, thiserror::Error)]
#[error("{}: it contains the state at index {checkpoint}, but the log ends at {last}: the log \
         lost its end. {advice}", store.display())]
pub struct LogLostEnd {
    /// The store.
    pub store: PathBuf,
    /// Index of its checkpoint.
    pub checkpoint: u64,
    /// Last index of the log.
    pub last: u64,
    /// What to do.
    pub advice: &'static str,
}

/// What became of the images that were due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageTally {
    /// How many were written and verified.
    pub written: u64,
    /// How many could not be.
    pub failed: u64,
    /// How often the records of the store had another digest than the state.
    pub mismatched: u64,
    /// Index and zxid of the last one written.
    pub last: Option<(u64, i64)>,
}

/// Where the state of the running machine came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The log alone, from its first entry.
    Log,
    /// The image at this index, and the log.
    Image(u64),
    /// The state store's checkpoint at this index, and the log.
    State(u64),
}

/// What a checkpointer begins with.
#[derive(Debug)]
pub struct Ingredients {
    /// The copy of the state, of which nothing is known yet.
    pub state: Runs,
    /// What a record adds to the digest of a state.
    pub record_digest: RecordDigest,
    /// The images.
    pub images: Images,
    /// Where the state came from.
    pub source: Source,
    /// The mark of the image that was loaded, if it was one.
    pub image: Option<Mark>,
    /// Whether there are other servers: decides what a refusal advises.
    pub ensemble: bool,
    /// Last index of the log when it was opened.
    pub log_last: u64,
    /// Size of the image that was loaded, 0 without.
    pub image_bytes: u64,
    /// Counts the bytes of log that are written (see `Log::written`).
    pub written: Arc<AtomicU64>,
    /// That count at the newest image.
    pub written_at_image: u64,
    /// An image is written after this many bytes of log, or as many as the image has if that is
    /// more.
    pub image_every_bytes: u64,
}

/// What is known of the state store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// [`Checkpointer::begin`] has not looked at it yet.
    Unverified,
    /// What changes is put there.
    Followed,
    /// The store is empty and useless until a full pass begins.
    Lost,
}

/// Writes checkpoints and images. One thread of low priority owns it.
pub struct Checkpointer {
    given: Ingredients,
    since_image: Arc<LogSinceImage>,
    phase: Phase,
    /// Indexes of verified images, ascending, at most two.
    verified: Vec<u64>,
    /// The mark of the last of them.
    newest: Option<Mark>,
    /// Whether an image is due whatever was written: one was damaged.
    is_image_wanted: bool,
    /// Log that must have been written before an image is tried again after a failure.
    retry_at: u64,
    faults: u32,
    tally: ImageTally,
}

impl fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpointer")
            .field("phase", &self.phase)
            .field("mark", &self.given.state.mark())
            .field("verified", &self.verified)
            .field("faults", &self.faults)
            .finish_non_exhaustive()
    }
}

impl Checkpointer {
    /// Does nothing yet: see [`Checkpointer::begin`].
    #[must_use]
    pub fn new(given: Ingredients) -> Self {
        let verified = match given.source {
            Source::Image(index) => vec![index],
            Source::Log | Source::State(_) => Vec::new(),
        };
        let since_image = LogSinceImage::new(Arc::clone(&given.written), given.image_every_bytes);
        since_image.begins(given.written_at_image, given.image_bytes);
        Self {
            newest: given.image.clone(),
            given,
            since_image: Arc::new(since_image),
            phase: Phase::Unverified,
            verified,
            is_image_wanted: false,
            retry_at: 0,
            faults: 0,
            tally: ImageTally::default(),
        }
    }

    /// From now on its work asks this how much of a core it may take.
    pub fn ask(&mut self, work_budget: &WorkBudget) {
        self.given.state.ask(work_budget);
        self.given.images = self.given.images.asking(work_budget);
    }

    /// What became of the images that were due since the start.
    #[must_use]
    pub fn images(&self) -> ImageTally {
        self.tally
    }

    /// Where the images are.
    #[must_use]
    pub fn image_files(&self) -> &Images {
        &self.given.images
    }

    /// The newest image that is known to be good.
    #[must_use]
    pub fn newest(&self) -> Option<&Mark> {
        self.newest.as_ref()
    }

    /// The log that was written since the newest image.
    #[must_use]
    pub fn since_image(&self) -> &Arc<LogSinceImage> {
        &self.since_image
    }

    /// Whether there should have been an image long ago: so much log was written since the newest one.
    #[must_use]
    pub fn is_image_overdue(&self) -> bool {
        self.since_image.is_image_overdue()
    }

    /// Verifies what the store holds from before the start: it must be a closed checkpoint between
    /// the image that was loaded and the end of the log, with all its records. Otherwise it is set
    /// aside. Takes about a second per million records; [`Checkpointer::apply`] does it if this was
    /// not called.
    ///
    /// # Errors
    /// The store proves that the log lost its end.
    pub fn begin(&mut self) -> Result<Outcome, LogLostEnd> {
        if self.phase != Phase::Unverified {
            return Ok(Outcome::Continue);
        }
        let found = match self.given.state.open() {
            Ok(found) => found,
            Err(error) => return Ok(self.fault(&error)),
        };
        match found {
            Found::State(Manifest { mark, .. }) => self.verify(&mark),
            Found::Earlier => {
                tracing::info!(
                    target: crate::TARGET,
                    "the state store was written by an earlier version: it is filled anew, from \
                     what the images and the log hold"
                );
                Ok(self.refill())
            }
            Found::Nothing => match self.given.source {
                // Nothing was ever completed, and all there is will be drained.
                Source::Log => {
                    self.phase = Phase::Followed;
                    Ok(Outcome::Continue)
                }
                Source::Image(_) | Source::State(_) => {
                    tracing::info!(target: crate::TARGET, "there is no state store: it is filled anew");
                    Ok(self.refill())
                }
            },
        }
    }

    fn verify(&mut self, mark: &Mark) -> Result<Outcome, LogLostEnd> {
        let last = self.given.log_last;
        if mark.index > last {
            let store = self.given.state.path().to_owned();
            let advice = if self.given.ensemble {
                LOG_LOST_END_ENSEMBLE
            } else {
                "Restore the log directory from a copy; if what it lost may be lost, remove the \
                 state store, and the server starts from the log it has"
            };
            return Err(LogLostEnd { store, checkpoint: mark.index, last, advice });
        }
        let begin = match self.given.source {
            Source::Log => 0,
            Source::Image(index) | Source::State(index) => index,
        };
        if mark.index < begin {
            tracing::info!(target: crate::TARGET, checkpoint = mark.index,
                image = begin,
                "the state store is older than the image: it is refilled"
            );
            return Ok(self.refill());
        }
        if let Err(error) = self.given.state.scan(&mut |_, _| Ok(())) {
            return Ok(self.fault(&error));
        }
        self.phase = Phase::Followed;
        if matches!(self.given.source, Source::State(_)) {
            // It is the only copy there is, and the next checkpoint may find it at fault.
            return Ok(self.write_image(mark));
        }
        Ok(Outcome::Continue)
    }

    /// Takes changes; with a mark, completes a checkpoint, and writes an image if one is due.
    ///
    /// # Errors
    /// Only what [`Checkpointer::begin`] says.
    pub fn apply(&mut self, changes: Changes) -> Result<Outcome, LogLostEnd> {
        if self.phase == Phase::Unverified {
            let outcome = self.begin()?;
            if outcome != Outcome::Continue {
                return Ok(outcome);
            }
        }
        if changes.begins_full_pass {
            if let Err(error) = self.start_full_pass() {
                return Ok(self.fault(&error));
            }
        } else if self.phase == Phase::Lost {
            return Ok(Outcome::Continue);
        }
        match self.store(changes) {
            Ok(None) => Ok(Outcome::Continue),
            Ok(Some(mark)) => Ok(self.write_image_if_due(&mark)),
            Err(error) => Ok(self.fault(&error)),
        }
    }

    /// An image of another server was installed (`image/install.rs`): the log begins behind it, and older
    /// images are of no use. The store holds a state that this server has left; the replica begins
    /// a full pass by itself, and what it said of the old state before that is ignored.
    ///
    /// Must be called only after that is durable: until then the older images are all there is.
    pub fn installed(&mut self, mark: &Mark) {
        self.verified = vec![mark.index];
        self.newest = Some(mark.clone());
        if let Err(error) = self.given.images.retain(&self.verified) {
            tracing::warn!(target: crate::TARGET, %error, "older images stay behind");
        }
        let image_bytes = match self.given.images.open(mark.index) {
            Ok(reader) => reader.len(),
            Err(error) => {
                tracing::error!(target: crate::TARGET, %error, "the image that was just installed cannot be opened");
                0
            }
        };
        self.since_image.begins(self.since_image.written(), image_bytes);
        self.retry_at = 0;
        // That all records are wanted is known to the replica already.
        let _known = self.refill();
    }

    /// The image at `index` turned out damaged after it had been verified: it is set aside, and
    /// another one is written as soon as there is a complete checkpoint to write it from.
    pub fn damaged(&mut self, index: u64) -> Outcome {
        if !self.verified.contains(&index) {
            return Outcome::Continue;
        }
        match self.given.images.set_aside(index) {
            Ok(path) => {
                tracing::error!(target: crate::TARGET, path = %path.display(), "a damaged image was set aside")
            }
            Err(error) => {
                tracing::error!(target: crate::TARGET, %error, index, "a damaged image cannot be set aside")
            }
        }
        self.verified.retain(|known| *known != index);
        if self.newest.as_ref().is_some_and(|mark| mark.index == index) {
            self.newest = None;
        }
        self.tally.failed += 1;
        self.write_image_soon()
    }

    /// Another server needs an image of this index or a later one: one is written as soon as there
    /// is a complete checkpoint to write it from.
    pub fn wanted(&mut self, index: u64) -> Outcome {
        match &self.newest {
            Some(mark) if mark.index >= index => Outcome::Continue,
            Some(_) | None => self.write_image_soon(),
        }
    }

    /// Somebody needs an image of the state at this zxid or a later one: one is written as soon as there is a complete
    /// checkpoint of such a state.
    pub fn wanted_at(&mut self, zxid: i64) -> Outcome {
        let is_there = |mark: Option<&Mark>| mark.is_some_and(|mark| mark.zxid >= zxid);
        match is_there(self.newest.as_ref()) {
            true => Outcome::Continue,
            false if is_there(self.given.state.mark()) => self.write_image_soon(),
            false => {
                // Of the next checkpoint: this one is too old.
                self.retry_at = 0;
                self.is_image_wanted = true;
                Outcome::Continue
            }
        }
    }

    fn write_image_soon(&mut self) -> Outcome {
        self.retry_at = 0;
        self.is_image_wanted = true;
        match self.given.state.mark().cloned() {
            // The one that is there already, written again, would be no second one.
            Some(mark) if self.verified.last() == Some(&mark.index) => Outcome::Continue,
            Some(mark) if self.phase == Phase::Followed => self.write_image(&mark),
            Some(_) | None => Outcome::Continue,
        }
    }

    fn start_full_pass(&mut self) -> Result<(), StateError> {
        self.given.state.clear()?;
        self.phase = Phase::Followed;
        Ok(())
    }

    /// Stores the records; returns the mark if they complete a checkpoint.
    fn store(&mut self, changes: Changes) -> Result<Option<Mark>, StateError> {
        self.given.state.put(&changes.records)?;
        if let Some(mark) = &changes.mark {
            self.given.state.close(mark.clone())?;
        }
        Ok(changes.mark)
    }

    fn write_image_if_due(&mut self, mark: &Mark) -> Outcome {
        let written = self.since_image.written();
        let due = self.is_image_wanted || self.since_image.is_image_due();
        if !due || written < self.retry_at || self.verified.last() == Some(&mark.index) {
            return Outcome::Continue;
        }
        self.write_image(mark)
    }

    /// Writes an image of the last completed checkpoint now, whether it is due or not.
    fn write_image(&mut self, mark: &Mark) -> Outcome {
        let begun = Instant::now();
        let written = self.since_image.written();
        match self.copy_to_image(mark) {
            Ok(bytes) => {
                let millis = begun.elapsed().as_millis() as u64;
                tracing::info!(
                    target: crate::TARGET,
                    index = mark.index, records = mark.records, bytes, millis,
                    "image"
                );
                self.since_image.begins(written, bytes);
                self.is_image_wanted = false;
                self.tally.written += 1;
                self.tally.last = Some((mark.index, mark.zxid));
                self.faults = 0;
                self.image_verified(mark)
            }
            Err(CopyError::State(error)) => self.fault(&error),
            Err(CopyError::Image(error)) => {
                // Later, when there may be room again; the log grows meanwhile.
                self.tally.failed += 1;
                self.retry_at = written + self.given.image_every_bytes / 8;
                tracing::error!(
                    target: crate::TARGET,
                    %error, index = mark.index,
                    "no image written; it is tried again"
                );
                Outcome::Continue
            }
        }
    }

    fn image_verified(&mut self, mark: &Mark) -> Outcome {
        let index = mark.index;
        self.verified.push(index);
        self.newest = Some(mark.clone());
        if let [.., older, _] = self.verified[..] {
            self.verified = vec![older, index];
            if let Err(error) = self.given.images.retain(&self.verified) {
                tracing::warn!(target: crate::TARGET, %error, "older images stay behind");
            }
            return Outcome::CutLog(if mutant!("log-cut-to-newest-image") { index } else { older });
        }
        Outcome::Continue
    }

    fn copy_to_image(&mut self, mark: &Mark) -> Result<u64, CopyError> {
        let mut writer = self.given.images.create(mark).map_err(CopyError::Image)?;
        let (mut failed, mut digest) = (None, 0_u128);
        let record_digest = self.given.record_digest;
        let scanned = self.given.state.scan_and_merge(&mut |key, value| {
            digest = digest.wrapping_add(record_digest(key, value)?);
            writer.record(key, value).map_err(|error| {
                let what = error.to_string();
                failed = Some(error);
                what
            })
        });
        if let Some(error) = failed {
            self.given.state.remove_unnamed().map_err(CopyError::State)?;
            return Err(CopyError::Image(error));
        }
        scanned.map_err(CopyError::State)?;
        if digest != mark.digest {
            self.tally.mismatched += 1;
            // Whatever was put there: a change was not, or a wrong one.
            let what = format!(
                "its records are not the state at index {}: their digest is {digest:032x}, that of \
                 the state {:032x}",
                mark.index, mark.digest
            );
            return Err(CopyError::State(StateError::new(self.given.state.path(), what)));
        }
        writer.finish().map_err(CopyError::Image)
    }

    /// The store cannot be continued, but nothing is wrong with it.
    fn refill(&mut self) -> Outcome {
        self.phase = Phase::Lost;
        match self.given.state.clear() {
            Ok(()) => Outcome::RecordsLost,
            Err(error) => self.fault(&error),
        }
    }

    /// The store is at fault: sets it aside. Where there is no room on the disk, a copy would keep
    /// what there is of it, and show nothing: but it is kept if there may be no other of the state.
    fn fault(&mut self, error: &StateError) -> Outcome {
        self.faults += 1;
        self.phase = Phase::Lost;
        let is_last = self.faults >= FAULTS_MAX;
        let state = &mut self.given.state;
        let begun_anew = match error.is_full && !self.verified.is_empty() {
            true => state.clear().map(|()| None),
            false if is_last => Ok(None),
            false => state.set_aside().map(Some),
        };
        let uses_memory = match begun_anew {
            Err(also) => {
                tracing::error!(target: crate::TARGET, %error, %also, "the state store fails: memory is used instead");
                true
            }
            Ok(_) if is_last => {
                tracing::error!(target: crate::TARGET, %error, "the state store keeps failing: memory is used instead");
                true
            }
            Ok(Some(aside)) => {
                tracing::error!(target: crate::TARGET, %error, aside = %aside.display(), "the state store is refilled");
                false
            }
            Ok(None) => {
                tracing::error!(
                    target: crate::TARGET,
                    %error,
                    "the state store has no room: it is emptied and refilled"
                );
                false
            }
        };
        if uses_memory {
            state.replace(Box::new(MemoryState::default()));
        }
        Outcome::RecordsLost
    }
}

#[derive(Debug)]
enum CopyError {
    State(StateError),
    Image(ImageError),
}
