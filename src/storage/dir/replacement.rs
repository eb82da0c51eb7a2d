//! Replaces the data of a server by a state that was made from it: that of a survivor which goes on alone.
//!
//! *Owns* the marker `recovery-unfinished`, which says between which directories the data is on its way.
//! *Invariants*: the
//! new data is whole and durable in a directory of its own before anything of the old is moved; the old is kept in
//! `set-aside-N`; a directory in which that was cut off is refused by every start, and the next call goes on. *Never*
//! removes data.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::identity::{self, Identity};
use super::open_error::OpenError;
use super::place::{IMAGES, LOCK, LOG, Place, REPLACING, STATE};
use super::quarantine::{NAME as SET_ASIDE, is_state, move_all, next_number};
use super::seed::{ORIGIN, Seed, SeedError, put, seed};
use crate::copy::SledState;
use crate::fs::{Fs, FsError, read_file};

/// Longest marker, bytes.
const MARKER_BYTES_MAX: u64 = 256;
/// Where the new data is made.
const NEW: &str = "recovered-";

/// Makes the data of server `server_id` in `place` that of `new`; what was there is in the directories that are
/// returned. Durable on return.
///
/// # Errors
/// It is another server's, in use, or cannot be written: it is as it was, or the marker says how far it came.
pub fn replace(
    place: &Place,
    server_id: u8,
    new: &Seed,
    segment_bytes: u64,
) -> Result<Vec<PathBuf>, SeedError> {
    let fs = &*place.fs;
    let _lock = place.lock()?;
    if let Some(identity) = Identity::load(fs, &place.data).map_err(OpenError::from)? {
        place.refuse_other_server(&identity, server_id)?;
    }
    let made = next_number(fs, place, NEW)?;
    let aside = next_number(fs, place, SET_ASIDE)?;
    for dir in [&place.data, &place.log] {
        fs.create_dir(&dir.join(format!("{NEW}{made}")))?;
    }
    seed(&staged(place, made), new, segment_bytes)?;
    put(fs, &place.data, REPLACING, &format!("{made} {aside}\n"))?;
    Ok(exchange(place, made, aside)?)
}

/// Goes on with a replacement that was cut off; `None` if none was.
///
/// # Errors
/// The directory is in use, or cannot be changed.
pub fn finish_replacement(place: &Place) -> Result<Option<Vec<PathBuf>>, OpenError> {
    let fs = &*place.fs;
    if !fs.has(&place.data, REPLACING)? {
        return Ok(None);
    }
    let _lock = place.lock()?;
    let text = read_file(fs, &place.data.join(REPLACING), MARKER_BYTES_MAX)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    let (Some(Ok(made)), Some(Ok(aside))) = (numbers.next(), numbers.next()) else {
        return Err(OpenError::RecoveryUnfinished { dir: place.data.clone() });
    };
    Ok(Some(exchange(place, made, aside)?))
}

fn staged(place: &Place, number: u64) -> Place {
    let data = place.data.join(format!("{NEW}{number}"));
    Place {
        fs: Arc::clone(&place.fs),
        // Nothing is put there: a start fills it anew.
        state: Box::new(SledState::new(&data.join(STATE))),
        log: place.log.join(format!("{NEW}{number}")),
        data,
    }
}

/// Moves the old data away and the new to its place, as far as that was not done. The old identity goes before what it
/// names is incomplete, and the new one comes last.
fn exchange(place: &Place, made: u64, aside: u64) -> Result<Vec<PathBuf>, FsError> {
    let fs = &*place.fs;
    let new = staged(place, made);
    let is_new_whole = fs.has(&new.data, identity::FILE)?;
    let mut moved = Vec::new();
    // The log comes first: once it is in its place, nothing of the old is left there.
    let has_begun = !fs.has(&new.log, LOG)?;
    if is_new_whole && !has_begun {
        let is_data = |name: &str| [IMAGES, ORIGIN].contains(&name) || is_state(name);
        moved.extend(move_all(fs, &place.data, (SET_ASIDE, aside), |n| n == identity::FILE)?);
        moved.extend(move_all(fs, &place.log, (SET_ASIDE, aside), |name| name == LOG)?);
        moved.extend(move_all(fs, &place.data, (SET_ASIDE, aside), is_data)?);
    }
    bring(fs, &new.log, &place.log, &[LOG])?;
    bring(fs, &new.data, &place.data, &[ORIGIN, IMAGES])?;
    bring(fs, &new.data, &place.data, &[identity::FILE])?;
    for dir in [&new.data, &new.log] {
        for name in fs.list(dir)?.iter().filter(|name| *name == LOCK) {
            fs.remove(&dir.join(name))?;
        }
    }
    fs.remove(&place.data.join(REPLACING))?;
    fs.sync_dir(&place.data)?;
    moved.sort_unstable();
    moved.dedup();
    Ok(moved)
}

fn bring(fs: &dyn Fs, from: &Path, to: &Path, names: &[&str]) -> Result<(), FsError> {
    for name in fs.list(from)?.iter().filter(|name| names.contains(&name.as_str())) {
        fs.rename(&from.join(name), &to.join(name))?;
    }
    fs.sync_dir(to)?;
    fs.sync_dir(from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OsFs;
    use crate::dir::open::{Options, open, peek};
    use lockkeeper_core::replica::{Machine, Membership};

    const TERM: u64 = 4100;

    fn place(dir: &Path) -> Place {
        Place::on_disk(&dir.join("data"), &dir.join("log"))
    }

    fn machine() -> Machine {
        Machine::fresh(Default::default())
    }

    fn new(before: u128) -> Seed {
        let identity = Identity { alone_after: Some(before), ..Identity::standalone(0x5eed, 2) };
        let mut machine = machine();
        machine.begin_ensemble(TERM, true);
        let membership = Membership { voters: vec![identity.raft_id], learners: Vec::new() };
        let (mark, records) = machine.into_records((1, TERM), membership);
        Seed { identity, mark, records, origin: "a test".to_owned() }
    }

    fn begin(dir: &Path) {
        let options = Options { new: Identity::standalone(7, 2), ..Options::standalone(7) };
        drop(open(place(dir), &options, &mut machine()).unwrap());
    }

    #[test]
    fn the_server_has_the_new_data_and_the_old_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        begin(dir.path());
        let aside = replace(&place(dir.path()), 2, &new(7), 2048).unwrap();
        assert_eq!(
            aside,
            [dir.path().join("data/set-aside-1"), dir.path().join("log/set-aside-1")]
        );
        let identity = peek(&place(dir.path())).unwrap().unwrap();
        assert_eq!((identity.cluster_id, identity.alone_after), (0x5eed, Some(7)));
        let old = Identity::load(&OsFs, &dir.path().join("data/set-aside-1")).unwrap().unwrap();
        assert_eq!(old.cluster_id, 7);
        let mut read = machine();
        let options = Options { new: identity, ..Options::standalone(7) };
        let opened = open(place(dir.path()), &options, &mut read).unwrap();
        assert_eq!(opened.restored.hard_state.term, TERM);
        assert_eq!(finish_replacement(&place(dir.path())).unwrap(), None);
    }

    /// The names of `dir` and below, but for locks.
    fn names(dir: &Path) -> Vec<String> {
        let mut names = Vec::new();
        let mut unseen = vec![dir.to_owned()];
        while let Some(next) = unseen.pop() {
            for entry in std::fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    unseen.push(path);
                } else if !path.ends_with(LOCK) {
                    names.push(path.strip_prefix(dir).unwrap().display().to_string());
                }
            }
        }
        names.sort();
        names
    }

    /// Of the moves, the first so many are done.
    #[test]
    fn a_replacement_that_was_cut_off_is_refused_by_a_start_and_goes_on() {
        let whole = tempfile::tempdir().unwrap();
        begin(whole.path());
        replace(&place(whole.path()), 2, &new(7), 2048).unwrap();
        let moves = [
            ("data/identity", "data/set-aside-1/identity"),
            ("log/log", "log/set-aside-1/log"),
            ("data/image", "data/set-aside-1/image"),
            ("log/recovered-1/log", "log/log"),
            ("data/recovered-1/origin", "data/origin"),
            ("data/recovered-1/image", "data/image"),
        ];
        for done in 0..=moves.len() {
            let dir = tempfile::tempdir().unwrap();
            begin(dir.path());
            let here = place(dir.path());
            for part in ["data/recovered-1", "log/recovered-1"] {
                std::fs::create_dir(dir.path().join(part)).unwrap();
            }
            seed(&staged(&here, 1), &new(7), 2048).unwrap();
            put(&OsFs, &here.data, REPLACING, "1 1\n").unwrap();
            for (from, to) in &moves[..done] {
                let to = dir.path().join(to);
                std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                std::fs::rename(dir.path().join(from), to).unwrap();
            }
            let refused = peek(&here);
            assert!(matches!(refused, Err(OpenError::RecoveryUnfinished { .. })), "{refused:?}");
            finish_replacement(&here).unwrap().expect("it was cut off");
            assert_eq!(peek(&here).unwrap().unwrap().cluster_id, 0x5eed, "{done}");
            assert_eq!(names(dir.path()), names(whole.path()), "{done}");
        }
    }
}
