//! Finds the state to begin with.
//!
//! *Owns* the choice among images, state store and log, and the first changes to a directory that
//! proved good. An image that was received from another server counts once the log begins behind
//! it: the server died while it was installed (`image/install.rs`), and the rest of that is done now; any
//! other received file is a leftover. *Never* changes anything before all that is needed was read.

use std::ops::ControlFlow;
use std::path::PathBuf;

use super::open::{IMAGES, LOG, Place};
use super::open_error::OpenError;
use crate::checkpoint::{LOG_LOST_END_ENSEMBLE, Source};
use crate::copy::{Found, Manifest, scan};
use crate::image::{Copy, ImageError, Images};
use crate::log::{Log, LogError, LogRecovery};
use crate::throttle::WorkBudget;
use lockkeeper_core::replica::{Mark, Restore};

/// What the state was begun from.
pub(crate) struct Begun {
    pub(crate) source: Source,
    pub(crate) mark: Mark,
    pub(crate) name: String,
    pub(crate) image_bytes: u64,
    /// Whether the image still has the name of a received one.
    received: bool,
}

/// An image that cannot be used.
struct Tried {
    index: u64,
    copy: Copy,
    what: String,
}

/// A directory being recovered; nothing in it is changed before [`Recovery::tidy`].
pub(crate) struct Recovery<'a> {
    pub(crate) place: Place,
    pub(crate) log: Log,
    pub(crate) found: LogRecovery,
    images: Images,
    restore: &'a mut dyn Restore,
    /// Whether there are other servers.
    ensemble: bool,
    tried: Vec<Tried>,
}

impl<'a> Recovery<'a> {
    pub(crate) fn new(
        place: Place,
        log: Log,
        found: LogRecovery,
        images: Images,
        restore: &'a mut dyn Restore,
        ensemble: bool,
    ) -> Self {
        Self { place, log, found, images, restore, ensemble, tried: Vec::new() }
    }

    /// Restores the newest state that can be believed.
    pub(crate) fn begin(&mut self) -> Result<Begun, OpenError> {
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
    pub(crate) fn entries(&mut self, base: u64, commit: u64) -> Result<(), OpenError> {
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
    pub(crate) fn tidy(&mut self, begun: &Begun) -> Result<Vec<PathBuf>, OpenError> {
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
