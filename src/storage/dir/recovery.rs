//! Finds the state to begin with.
//!
//! *Owns* the choice among images, state store and log, and the first changes to a directory that
//! proved good. An image that was received from another server counts once the log begins behind
//! it: the server died while it was installed (`image/install.rs`), and the rest of that is done now; any
//! other received file is a leftover. *Never* changes anything before all that is needed was read.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::identity::Identity;
use super::open_error::OpenError;
use super::place::{IMAGES, LOG, Place};
use crate::checkpoint::{LOG_LOST_END_ENSEMBLE, Source};
use crate::copy::{Found, Manifest, scan};
use crate::formats::Formats;
use crate::image::{Copy, ImageError, Images};
use crate::log::{Log, LogError, LogOptions, LogRecovery};
use crate::throttle::WorkBudget;
use lockkeeper_core::replica::{Entry, Mark, Membership, Restore};

/// What the state was begun from.
pub(super) struct Begun {
    pub(super) source: Source,
    pub(super) mark: Mark,
    pub(super) name: String,
    pub(super) image_bytes: u64,
    /// Whether the image still has the name of a received one.
    received: bool,
}

/// The state up to the last entry of which this server knew that it is committed.
pub(super) struct Recovered {
    pub(super) begun: Begun,
    /// What that took, and the entries behind.
    pub(super) begin_took: Duration,
    pub(super) entries_took: Duration,
    /// Who took part at the state that it was begun from.
    pub(super) membership: Membership,
    /// Index and term of that entry.
    pub(super) applied: (u64, u64),
    /// The entries behind it.
    pub(super) tail: Vec<Entry>,
}

/// An image that cannot be used.
struct Tried {
    index: u64,
    copy: Copy,
    what: String,
}

/// A directory being recovered; nothing in it is changed before [`Recovery::tidy`].
pub(super) struct Recovery<'a> {
    pub(super) place: Place,
    pub(super) log: Log,
    pub(super) found: LogRecovery,
    pub(super) images: Images,
    restore: &'a mut dyn Restore,
    /// Whether there are other servers.
    ensemble: bool,
    tried: Vec<Tried>,
}

impl<'a> Recovery<'a> {
    /// Opens the log: nothing is restored yet.
    pub(super) fn begin(
        place: Place,
        identity: &Identity,
        options: LogOptions,
        formats: &Formats,
        restore: &'a mut dyn Restore,
    ) -> Result<Self, OpenError> {
        let ensemble = options.ensemble;
        let (log, found) = place.open_log(options, formats)?;
        let images = place.images(identity.cluster_id, formats);
        Ok(Self { place, log, found, images, restore, ensemble, tried: Vec::new() })
    }

    /// Restores the state. `initial`: who took part before the first entry.
    pub(super) fn restore(&mut self, initial: &Membership) -> Result<Recovered, OpenError> {
        let start = Instant::now();
        let mut begun = self.newest()?;
        let begin_took = start.elapsed();
        let commit = self.found.hard_state.commit.max(begun.mark.index);
        let behind =
            begun.mark.index.saturating_sub(u64::from(mutant!("entry-applied-twice-at-restart")));
        if let Err(error) = self.entries(behind, commit) {
            if !self.restore.wants_again() {
                return Err(error);
            }
            self.restore.restart();
            begun = self.newest()?;
            self.entries(begun.mark.index, commit)?;
        }
        let entries_took = start.elapsed() - begin_took;
        let tail = self.log.read(commit + 1, self.found.last.index, usize::MAX)?;
        let applied = (commit, self.log.term(commit)?);
        let membership = match begun.source {
            Source::Log => initial.clone(),
            Source::Image(_) | Source::State(_) => begun.mark.membership.clone(),
        };
        Ok(Recovered { begun, begin_took, entries_took, membership, applied, tail })
    }

    /// Restores the newest state that can be believed.
    fn newest(&mut self) -> Result<Begun, OpenError> {
        for (index, copy) in self.candidates()? {
            match self.image(index, copy)? {
                Ok(begun) => return Ok(begun),
                Err(what) => {
                    tracing::error!(target: crate::TARGET, image = %self.images.file(index, copy).display(), %what,
                        "this image cannot be used");
                    self.tried.push(Tried { index, copy, what });
                    self.restore.restart();
                }
            }
        }
        if self.found.base.index == 0 {
            return Ok(Begun {
                source: Source::Log,
                mark: Mark::default(),
                name: "the log alone".to_owned(),
                image_bytes: 0,
                received: false,
            });
        }
        match self.state() {
            Ok(begun) => Ok(begun),
            Err(what) => Err(self.nothing(&what)),
        }
    }

    /// All images, newest first. A received one is among them if the log begins behind it.
    fn candidates(&self) -> Result<Vec<(u64, Copy)>, OpenError> {
        let base = self.found.base.index;
        let mut candidates: Vec<(u64, Copy)> =
            self.images.list()?.into_iter().map(|index| (index, Copy::Own)).collect();
        if self.images.received()?.contains(&base) {
            let older = candidates.partition_point(|(index, _)| *index >= base);
            candidates.insert(older, (base, Copy::Received));
        }
        Ok(candidates)
    }

    /// Restores an image; the inner error says why it cannot be used.
    fn image(&mut self, index: u64, copy: Copy) -> Result<Result<Begun, String>, OpenError> {
        let path = self.images.file(index, copy);
        let reader = match self.images.open_copy(index, copy) {
            Ok(reader) => reader,
            Err(error @ ImageError::Future { .. }) => return Err(OpenError::FutureImage(error)),
            Err(error) => return Ok(Err(error.to_string())),
        };
        let mark = reader.mark().clone();
        if index > self.found.last.index {
            return Err(OpenError::LogLostEnd {
                path,
                image: index,
                log: self.place.log.join(LOG),
                last: self.found.last.index,
                advice: if self.ensemble {
                    LOG_LOST_END_ENSEMBLE
                } else {
                    "Restore the log directory from a copy; if what it lost may be lost, remove \
                     the images beyond its end"
                },
            });
        }
        if let Err(what) = self.reaches(&mark)? {
            return Ok(Err(format!("{}: {what}", path.display())));
        }
        let image_bytes = reader.len();
        let restored = reader.read(&mut |key, value| self.restore.record(key, value));
        if let Err(error) = restored {
            return Ok(Err(error.to_string()));
        }
        if let Err(what) = self.restore.finish(&mark) {
            return Ok(Err(format!("{}: {what}", path.display())));
        }
        let name = self.images.path(index).display().to_string();
        let received = copy == Copy::Received;
        Ok(Ok(Begun { source: Source::Image(index), mark, name, image_bytes, received }))
    }

    /// Whether the log continues this state.
    fn reaches(&self, mark: &Mark) -> Result<Result<(), String>, LogError> {
        let base = self.found.base.index;
        if mark.index < base {
            return Ok(Err(format!(
                "it is of index {}, but the log begins only after {base}",
                mark.index
            )));
        }
        let term = self.log.term(mark.index)?;
        if term != mark.term {
            return Ok(Err(format!(
                "it is of index {} in term {}, but the log has term {term} there: it is of \
                 another history",
                mark.index, mark.term
            )));
        }
        Ok(Ok(()))
    }

    /// Restores the last checkpoint of the state store: only when there is no image.
    fn state(&mut self) -> Result<Begun, String> {
        let state = &mut *self.place.state;
        let path = state.path().display().to_string();
        let manifest = match Manifest::read(state).map_err(|e| e.to_string())? {
            Found::State(manifest) => manifest,
            // Which only the version that wrote it can turn into an image.
            Found::Earlier => {
                return Err(format!("{path}: it was written by an earlier version of lockkeeper"));
            }
            Found::Nothing => return Err(format!("{path}: it has no complete checkpoint")),
        };
        let mark = manifest.mark.clone();
        if mark.index > self.found.last.index {
            let last = self.found.last.index;
            return Err(format!(
                "{path}: it is of index {}, but the log ends at {last}",
                mark.index
            ));
        }
        self.reaches(&mark)
            .map_err(|e| e.to_string())?
            .map_err(|what| format!("{path}: {what}"))?;
        let restore = &mut *self.restore;
        let (budget, mut take) =
            (WorkBudget::default(), |key: &[u8], value: &[u8]| restore.record(key, value));
        scan(&mut *self.place.state, &manifest, None, &budget, &mut take)
            .map_err(|e| e.to_string())?;
        self.restore.finish(&mark).map_err(|what| format!("{path}: {what}"))?;
        let source = Source::State(mark.index);
        Ok(Begun { source, mark, name: path, image_bytes: 0, received: false })
    }

    fn nothing(&self, state: &str) -> OpenError {
        let mut tried: Vec<&str> = self.tried.iter().map(|tried| tried.what.as_str()).collect();
        let none = format!("{}: no image", self.place.data.join(IMAGES).display());
        if tried.is_empty() {
            tried.push(&none);
        }
        tried.push(state);
        OpenError::NothingToBeginFrom {
            log: self.place.log.join(LOG),
            first: self.found.first,
            tried: tried.join("; "),
            advice: if self.ensemble {
                "an image of another server will do; if none has one, restore one of these files \
                 from a copy"
            } else {
                "restore one of these files from a copy"
            },
        }
    }

    /// Gives the entries behind `base` up to `commit` to the machine.
    fn entries(&mut self, base: u64, commit: u64) -> Result<(), OpenError> {
        let restore = &mut *self.restore;
        let mut refused = None;
        self.log.each(base + 1, commit, &mut |entry| match restore.entry(&entry) {
            Ok(()) => ControlFlow::Continue(()),
            Err(what) => {
                refused = Some((entry.index, what));
                ControlFlow::Break(())
            }
        })?;
        match refused {
            None => Ok(()),
            Some((index, what)) => {
                Err(OpenError::Entry { log: self.place.log.join(LOG), index, what })
            }
        }
    }

    /// The first changes: all that was read has proved good. Returns the damaged images under the
    /// names that they have now.
    pub(super) fn tidy(&mut self, begun: &Begun) -> Result<Vec<PathBuf>, OpenError> {
        let fs = &*self.place.fs;
        let images = self.place.data.join(IMAGES);
        fs.create_dir(&images)?;
        self.images.remove_unfinished()?;
        let mut set_aside = Vec::new();
        for tried in self.tried.iter().filter(|tried| tried.copy == Copy::Own) {
            set_aside.push(self.images.set_aside(tried.index)?);
        }
        if begun.received {
            self.images.install(begun.mark.index)?;
        }
        self.images.forget_received(u64::MAX)?;
        // The log may be cut because of an image that was loaded: its name must be durable, too.
        fs.sync_dir(&images)?;
        self.log.begin()?;
        Ok(set_aside)
    }
}
