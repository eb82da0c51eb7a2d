//! Opens a data directory and recovers the state from it.
//!
//! *Owns* the order in which this is done and what is refused. First it only reads: identity, log,
//! images newest first (the first that is intact, within the log's reach and accepted by the
//! machine wins), then the committed entries behind. Only when all of that went well is anything
//! changed: leftovers removed, damaged images renamed, the torn end of the log wiped. *Never*
//! starts with an empty tree where there was data.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::format_switch::FormatSwitch;
use super::identity::Identity;
use super::open_error::OpenError;
use super::place::{IMAGES, LOG, Lock, Place};
use super::recovery::{Recovered, Recovery};
use super::unusable::refuse_unusable;
use crate::checkpoint::{Checkpointer, IMAGE_EVERY_BYTES, Ingredients, Source};
use crate::copy::Runs;
use crate::formats::Formats;
use crate::image::Images;
use crate::log::{Log, LogOptions, SEGMENT_BYTES};
use lockkeeper_core::replica::peer::server_of;
use lockkeeper_core::replica::{HardState, Restore, Restored};

/// What is fixed for the life of a storage.
#[derive(Clone, Debug)]
pub struct Options {
    /// What a new data directory becomes. An existing one has an identity of its own, which must be
    /// of the same server.
    pub new: Identity,
    /// Whether there are other servers: decides what a refusal advises.
    pub ensemble: bool,
    /// Size of a segment of the log.
    pub segment_bytes: u64,
    /// An image is written after this much log, or as much as the last image has if that is more.
    pub image_every_bytes: u64,
}

impl Options {
    /// Server 1 on its own with all defaults.
    #[must_use]
    pub fn standalone(new_cluster_id: u128) -> Self {
        Self {
            new: Identity::standalone(new_cluster_id, 1),
            ensemble: false,
            segment_bytes: SEGMENT_BYTES,
            image_every_bytes: IMAGE_EVERY_BYTES,
        }
    }
}

/// What was found, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Whether the directory was new.
    pub new: bool,
    /// What the state was begun from: a file name, or words.
    pub begun_from: String,
    /// Records that were restored from it.
    pub records: u64,
    /// What that took.
    pub begin_took: Duration,
    /// Entries that were applied after it.
    pub entries: u64,
    /// What that took.
    pub entries_took: Duration,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// What was dropped at the end of the log, if a write was cut off there.
    pub torn: Option<String>,
    /// Damaged images, under the names that they have now.
    pub set_aside: Vec<PathBuf>,
}

/// A data directory in use, and what was recovered.
pub struct Opened {
    /// Whose it is.
    pub identity: Identity,
    /// For the log thread.
    pub format_switch: FormatSwitch,
    /// For the replica.
    pub restored: Restored,
    /// For the log thread.
    pub log: Log,
    /// For the tasks that send and receive images, and for the log thread, which installs them.
    pub images: Images,
    /// For the state thread.
    pub checkpointer: Checkpointer,
    /// For people.
    pub report: Report,
    /// To be held until the server has stopped.
    pub lock: Lock,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("identity", &self.identity)
            .field("hard_state", &self.restored.hard_state)
            .field("applied", &self.restored.applied)
            .field("tail", &self.restored.tail.len())
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

/// Opens the data directory of a server, makes it if it is new, and gives the state in it to
/// `restore`: the records of an image, if there is one, then all committed entries behind it.
///
/// # Errors
/// The directory cannot be used, or what it holds is not all that must be there: see [`OpenError`].
pub fn open(
    place: Place,
    options: &Options,
    restore: &mut dyn Restore,
) -> Result<Opened, OpenError> {
    place.refuse_zookeeper()?;
    place.refuse_half_replaced()?;
    let lock = place.lock()?;
    let identity = identify(&place, options)?;
    let log_options = identity.log_options(options.segment_bytes, options.ensemble);
    let new = !identity.ready;
    let identity = make_log(&place, identity, &log_options)?;
    let formats = Formats::of(identity.version);
    let mut recovery = Recovery::begin(place, &identity, log_options, &formats, restore)?;
    let recovered = recovery.restore(&identity.membership)?;
    let set_aside = recovery.tidy(&recovered.begun)?;
    recovery.place.forget_initialize()?;
    let Recovery { place, log, found, images, .. } = recovery;
    let format_switch = FormatSwitch::new(place.fs, place.data, identity.clone(), formats.clone());

    let Recovered { begun, begin_took, entries_took, membership, applied, tail } = recovered;
    let (commit, applied_term) = applied;
    let report = Report {
        new,
        begun_from: begun.name,
        records: begun.mark.records,
        begin_took,
        entries: commit - begun.mark.index,
        entries_took,
        log_bytes: log.bytes(),
        torn: found.torn,
        set_aside,
    };
    let image = matches!(begun.source, Source::Image(_)).then(|| begun.mark.clone());
    let written = log.written();
    let written_now = written.load(Ordering::Relaxed);
    let checkpointer = Checkpointer::new(Ingredients {
        state: Runs::new(place.state).writing(&formats),
        record_digest: restore.record_digest(),
        images: images.clone(),
        source: begun.source,
        image: image.clone(),
        ensemble: options.ensemble,
        log_last: found.last.index,
        image_bytes: begun.image_bytes,
        written,
        written_at_image: written_now.saturating_sub(log.bytes_after(begun.mark.index)),
        image_every_bytes: options.image_every_bytes,
    });
    let restored = Restored {
        hard_state: HardState { commit, ..found.hard_state },
        membership,
        image,
        begun_after: (begun.mark.index, begun.mark.term),
        applied: commit,
        applied_term,
        tail,
    };
    Ok(Opened { identity, format_switch, restored, log, images, checkpointer, report, lock })
}

/// Whose data is in `place`; `None` if there is none yet. Changes and locks nothing: for deciding
/// what a new directory is to become, before [`open`].
///
/// # Errors
/// There is data that [`open`] would refuse at the first sight, too.
pub fn peek(place: &Place) -> Result<Option<Identity>, OpenError> {
    place.refuse_zookeeper()?;
    place.refuse_half_replaced()?;
    let identity = Identity::load(&*place.fs, &place.data)?;
    if identity.is_none() {
        place.refuse_nameless()?;
    }
    refuse_unusable(&*place.fs, &place.data)?;
    Ok(identity)
}

/// The identity that is there, or a new one if nothing else is there.
fn identify(place: &Place, options: &Options) -> Result<Identity, OpenError> {
    let fs = &*place.fs;
    let Some(identity) = Identity::load(fs, &place.data)? else {
        place.refuse_nameless()?;
        refuse_unusable(fs, &place.data)?;
        return Ok(Identity { ready: false, ..options.new.clone() });
    };
    place.refuse_other_server(&identity, options.new.server_id)?;
    refuse_unusable(fs, &place.data)?;
    if options.ensemble && server_of(identity.raft_id) != identity.server_id {
        let (dir, server) = (place.data.clone(), identity.server_id);
        return Err(OpenError::StandaloneOnly { dir, server });
    }
    Ok(identity)
}

/// Makes the log of a new directory. A crash on the way leaves an identity that is not ready.
fn make_log(
    place: &Place,
    identity: Identity,
    options: &LogOptions,
) -> Result<Identity, OpenError> {
    let fs = &*place.fs;
    if identity.ready {
        return Ok(identity);
    }
    let log = place.log.join(LOG);
    identity.store(fs, &place.data)?;
    for dir in [&log, &place.data.join(IMAGES)] {
        fs.create_dir(dir)?;
    }
    place.sync()?;
    if !Log::exists(fs, &log)? {
        Log::create(fs, &log, options)?;
    }
    let identity = Identity { ready: true, ..identity };
    identity.store(fs, &place.data)?;
    Ok(identity)
}
