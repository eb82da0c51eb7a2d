//! Makes a data directory from a state that comes from elsewhere: a backup, a survivor, another system.
//!
//! *Owns* the order in which the files appear, and the marker `unfinished` that stands beside them meanwhile.
//! *Invariants*: the directory had no data before; it is refused by every start until all of it is durable: the
//! identity is written last; what a cut off attempt left is removed by the next one, and by nothing else. *Never*
//! touches a directory in which a server has ever run.

use std::path::{Path, PathBuf};

use super::identity::Identity;
use super::open_error::OpenError;
use super::place::{IMAGES, LOG, Place, UNFINISHED};
use super::unusable::refuse_unusable;
use crate::formats::Formats;
use crate::fs::{Fs, FsError, write_file};
use crate::image::ImageError;
use crate::log::Log;
use lockkeeper_core::replica::Mark;
use lockkeeper_core::replica::new_ensemble::SortedRecords;

/// Says, for people, where the data came from.
pub(super) const ORIGIN: &str = "origin";

/// What a directory is made of.
#[derive(Debug)]
pub struct Seed {
    /// Whose it becomes: a server on its own, the only voter of the mark.
    pub identity: Identity,
    /// Which state it is, and behind which entry the log begins.
    pub mark: Mark,
    /// The state.
    pub records: SortedRecords,
    /// Where it came from, in one line.
    pub origin: String,
}

/// Why there is no directory.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// It is refused as it would be for a start.
    #[error(transparent)]
    Refused(#[from] OpenError),
    /// There is data already.
    #[error("{}: there is data here already ({found}): a state is put into an empty directory only. Move what is there \
             away, or name another dataDir", dir.display())]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
        /// What is there.
        found: String,
    },
    /// The image cannot be written.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The file system failed.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// Makes the directories of `place`, with that state. Durable on return.
///
/// # Errors
/// There is data, or it cannot be written: then nothing is left behind, or the marker with it that keeps servers off.
pub fn seed(place: &Place, seed: &Seed, segment_bytes: u64) -> Result<(), SeedError> {
    let fs = &*place.fs;
    place.refuse_zookeeper()?;
    let _lock = place.lock()?;
    place.refuse_half_replaced()?;
    refuse_unusable(fs, &place.data)?;
    if fs.has(&place.data, UNFINISHED)? {
        remove_unfinished(fs, place)?;
    }
    refuse_data(fs, place)?;
    put(fs, &place.data, UNFINISHED, "a restore or an import has not come to its end\n")?;
    let written = write(place, seed, segment_bytes);
    if written.is_err()
        && let Err(error) = remove_unfinished(fs, place)
    {
        tracing::warn!(target: crate::TARGET, %error, "an unfinished state stays behind");
    }
    written?;
    fs.remove(&place.data.join(UNFINISHED))?;
    fs.sync_dir(&place.data)?;
    Ok(())
}

fn write(place: &Place, seed: &Seed, segment_bytes: u64) -> Result<(), SeedError> {
    let fs = &*place.fs;
    let Seed { identity, mark, records, origin } = seed;
    let (log_dir, image_dir) = (place.log.join(LOG), place.data.join(IMAGES));
    for dir in [&log_dir, &image_dir] {
        fs.create_dir(dir)?;
    }
    let formats = Formats::of(identity.version);
    let mut image = place.images(identity.cluster_id, &formats).create(mark)?;
    for (key, value) in records {
        image.record(key, value)?;
    }
    image.finish()?;
    let options = identity.log_options(segment_bytes, false);
    let of_log = |error| SeedError::Refused(OpenError::Log(error));
    Log::create(fs, &log_dir, &options).map_err(of_log)?;
    let (mut log, _) = place.open_log(options, &formats).map_err(of_log)?;
    log.begin().map_err(of_log)?;
    log.reset(mark).map_err(of_log)?;
    drop(log);
    put(fs, &place.data, ORIGIN, &format!("{origin}\n"))?;
    place.sync()?;
    Identity { ready: true, ..identity.clone() }.store(fs, &place.data)?;
    Ok(())
}

/// Where the data of a directory came from, if a server has not made it.
///
/// # Errors
/// The directory cannot be read.
pub fn origin(place: &Place) -> Result<Option<String>, FsError> {
    let fs = &*place.fs;
    if !fs.has(&place.data, ORIGIN)? {
        return Ok(None);
    }
    let text = crate::fs::read_file(fs, &place.data.join(ORIGIN), ORIGIN_BYTES_MAX)?;
    Ok(Some(String::from_utf8_lossy(&text).trim().to_owned()))
}

/// Longest text of an origin.
const ORIGIN_BYTES_MAX: u64 = 64 << 10;

pub(super) fn put(fs: &dyn Fs, dir: &Path, name: &str, text: &str) -> Result<(), FsError> {
    write_file(fs, dir, name, text.as_bytes())?;
    fs.sync_dir(dir)
}

/// Where a server has run, or may have.
fn refuse_data(fs: &dyn Fs, place: &Place) -> Result<(), SeedError> {
    let dir = place.data.clone();
    if Identity::load(fs, &dir).map_err(OpenError::from)?.is_some() {
        return Err(SeedError::NotEmpty { dir, found: "a server's identity".to_owned() });
    }
    for part in place.parts() {
        if let Some(name) = fs.list(&part)?.first() {
            let found = part.join(name).display().to_string();
            return Err(SeedError::NotEmpty { dir, found });
        }
    }
    Ok(())
}

/// Of an attempt that was cut off, unless it is complete.
fn remove_unfinished(fs: &dyn Fs, place: &Place) -> Result<(), SeedError> {
    if Identity::load(fs, &place.data).map_err(OpenError::from)?.is_none() {
        // No attempt has written a copy of the state.
        for part in [place.log.join(LOG), place.data.join(IMAGES)] {
            for name in fs.list(&part)? {
                fs.remove(&part.join(name))?;
            }
            fs.sync_dir(&part)?;
        }
    }
    fs.remove(&place.data.join(UNFINISHED))?;
    fs.sync_dir(&place.data)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::Arc;

    use super::*;
    use crate::dir::open::{Options, open, peek};
    use crate::testing::{Fault, TestFs, TestState, UNSYNCED};
    use lockkeeper_core::replica::{Machine, Membership};

    const TERM: u64 = 4100;

    fn place(fs: &TestFs) -> Place {
        Place {
            fs: Arc::new(fs.clone()),
            state: Box::new(TestState::default()),
            data: PathBuf::from("/data"),
            log: PathBuf::from("/log"),
        }
    }

    fn some() -> Seed {
        let identity = Identity::standalone(0x5eed, 2);
        let mut machine = Machine::fresh(Default::default());
        machine.begin_ensemble(TERM, false);
        let membership = Membership { voters: vec![identity.raft_id], learners: Vec::new() };
        let (mark, records) = machine.into_records((1, TERM), membership);
        Seed { identity, mark, records, origin: "a test".to_owned() }
    }

    fn options() -> Options {
        Options { segment_bytes: 2048, ..Options::standalone(7) }
    }

    /// What a start finds, with server 2.
    fn started(fs: &TestFs) -> Result<(Machine, crate::Opened), OpenError> {
        let mut machine = Machine::fresh(Default::default());
        let options = Options { new: Identity::standalone(7, 2), ..options() };
        let opened = open(place(fs), &options, &mut machine)?;
        Ok((machine, opened))
    }

    #[test]
    fn a_server_starts_with_the_state_and_in_its_term() {
        let fs = TestFs::default();
        seed(&place(&fs), &some(), 2048).unwrap();
        assert_eq!(origin(&place(&fs)).unwrap().as_deref(), Some("a test"));
        let (machine, opened) = started(&fs).unwrap();
        assert_eq!(machine.digest(), some().mark.digest);
        let hard_state = opened.restored.hard_state;
        assert_eq!((hard_state.term, hard_state.commit, hard_state.vote), (TERM, 1, 0));
        assert_eq!(opened.restored.membership.voters, [opened.identity.raft_id]);
        assert!(opened.identity.is_standalone() && opened.identity.cluster_id == 0x5eed);
    }

    #[test]
    fn a_directory_with_data_is_refused_and_not_changed() {
        let fs = TestFs::default();
        drop(started(&fs).unwrap());
        let refused = seed(&place(&fs), &some(), 2048).unwrap_err();
        assert!(matches!(refused, SeedError::NotEmpty { .. }), "{refused}");
        let (machine, opened) = started(&fs).unwrap();
        assert_eq!((machine.last_zxid(), opened.identity.cluster_id), (0, 7));
    }

    /// Whatever change of the disk is the last one before the power goes, and whatever the disk kept of those that
    /// were not synced.
    #[test]
    fn an_attempt_that_is_cut_off_never_serves_and_can_be_repeated() {
        let (mut refused, mut done) = (0, 0);
        for unsynced in UNSYNCED {
            for cut in 1.. {
                let fs = TestFs::default();
                fs.fail_at(cut, Fault::Crash);
                let is_done = seed(&place(&fs), &some(), 2048).is_ok();
                fs.crash(unsynced);
                match peek(&place(&fs)) {
                    Ok(Some(_)) => {
                        let (machine, _) = started(&fs).expect("what has an identity is complete");
                        assert_eq!(machine.digest(), some().mark.digest, "{unsynced:?} {cut}");
                        done += 1;
                    }
                    Ok(None) => seed(&place(&fs), &some(), 2048).unwrap(),
                    Err(OpenError::Unfinished { .. }) => {
                        started(&fs).expect_err("it is not complete");
                        seed(&place(&fs), &some(), 2048).unwrap();
                        refused += 1;
                    }
                    Err(other) => panic!("{unsynced:?} {cut}: {other}"),
                }
                assert_eq!(started(&fs).unwrap().0.digest(), some().mark.digest);
                if is_done {
                    break;
                }
            }
        }
        assert!(refused > 20 && done >= UNSYNCED.len(), "{refused} {done}");
    }

    #[test]
    fn a_full_disk_leaves_an_empty_directory() {
        for full in 1..1000 {
            let fs = TestFs::default();
            fs.fail_at(full, Fault::Error(ErrorKind::StorageFull));
            if seed(&place(&fs), &some(), 2048).is_ok() {
                assert!(full > 10, "{full}");
                return;
            }
            match peek(&place(&fs)) {
                // Of the last steps, one may fail behind the identity: all is there.
                Ok(_) | Err(OpenError::Unfinished { .. }) => {}
                Err(other) => panic!("{full}: {other}"),
            }
            let again = seed(&place(&fs), &some(), 2048);
            assert!(again.is_ok() || matches!(again, Err(SeedError::NotEmpty { .. })), "{again:?}");
        }
        panic!("it never succeeds");
    }
}
