//! Empties a data directory without losing what is in it.
//!
//! *Owns* the directories `set-aside-1`, `set-aside-2`..., beside the data that was moved into them.
//! A server of an ensemble whose data is damaged begins anew like this: it comes back empty, as a
//! server that Raft does not know yet, and is sent everything by the others. *Invariant*: the
//! identity goes last, so that a directory that was emptied in part is refused, and never taken for
//! one that holds less; behind it only the mark of a directory that was rolled back. *Never* removes
//! anything, never touches what is not lockkeeper's (`myid` stays), and never empties a directory twice:
//! a `--rejoin` that was forgotten in a unit file would empty one server after the other whenever they
//! are restarted. An operator who wants that again removes what was set aside before, unless the
//! directory is marked as rolled back: then it cannot be used anyway.

use std::path::{Path, PathBuf};

use super::identity::{self, Identity, IdentityError};
use super::open::Opened;
use super::open_error::OpenError;
use super::place::{IMAGES, LOG, Place, STATE};
use super::unusable::{Unusable, unusable};
use crate::fs::{Fs, FsError};

pub(super) const NAME: &str = "set-aside-";
/// Copies of a state that was not that of the majority.
const DIVERGED: &str = "diverged-";
/// What a server on its own left that never had a session or a write.
const UNUSED: &str = "unused-";

/// Moves all data of server `server_id` into a new directory beside it (one more below the
/// directory of the log, if that is another one) and returns where it is now: nothing, if there was
/// none. What was set aside is never looked at again and can be removed.
///
/// A crash on the way leaves a directory that [`super::open`] refuses; to call this again completes
/// it. Once it is complete, this only warns, as long as what was set aside is there: the data is
/// newer, and stays, unless it is marked as rolled back.
///
/// # Errors
/// A server runs on the directory, it is of another server or a later version, or it cannot be
/// changed.
pub fn set_aside(place: &Place, server_id: u8) -> Result<Vec<PathBuf>, OpenError> {
    let fs = &*place.fs;
    place.refuse_zookeeper()?;
    let _lock = place.lock()?;
    match Identity::load(fs, &place.data) {
        Ok(Some(identity)) => place.refuse_other_server(&identity, server_id)?,
        // A damaged one is a reason to begin anew.
        Ok(None) | Err(IdentityError::Damaged { .. }) => {}
        Err(error @ (IdentityError::Fs(_) | IdentityError::Future { .. })) => {
            return Err(error.into());
        }
    }
    let why = unusable(fs, &place.data)?;
    if let Some(why @ (Unusable::Diverged | Unusable::Undecided)) = why {
        return set_state_aside(fs, place, why);
    }
    if let Some(before) = complete(fs, place)?
        && fs.has(&place.data, identity::FILE)?
        && why.is_none()
    {
        tracing::warn!(
            target: crate::TARGET,
            "nothing is put away: that was done before, and {} is still there. If the data is \
             damaged again, remove that directory and start with --rejoin once more; otherwise \
             start without",
            before.display()
        );
        return Ok(Vec::new());
    }
    let number = next_number(fs, place, NAME)?;
    let mut made = Vec::new();
    if place.log != place.data {
        made.extend(move_all(fs, &place.log, (NAME, number), |name| name == LOG)?);
    }
    let is_data = |name: &str| [LOG, IMAGES].contains(&name) || is_state(name);
    made.extend(move_all(fs, &place.data, (NAME, number), is_data)?);
    for last in [identity::FILE, Unusable::RolledBack.file()] {
        made.extend(move_all(fs, &place.data, (NAME, number), |name| name == last)?);
    }
    made.dedup();
    Ok(made)
}

/// Moves the images and the state store of a server whose state has diverged. The log stays, and so does the identity:
/// what was acknowledged and promised is in them. The mark goes last.
fn set_state_aside(fs: &dyn Fs, place: &Place, why: Unusable) -> Result<Vec<PathBuf>, OpenError> {
    let number = next_number(fs, place, DIVERGED)?;
    let is_copy = |name: &str| name == IMAGES || is_state(name);
    let mut made: Vec<_> =
        move_all(fs, &place.data, (DIVERGED, number), is_copy)?.into_iter().collect();
    let is_mark = |name: &str| name == why.file();
    made.extend(move_all(fs, &place.data, (DIVERGED, number), is_mark)?);
    made.dedup();
    Ok(made)
}

/// Whether data was set aside here. A directory like that is not one of a server that begins for the
/// first time, however empty it is: others have what it had, and it must not found an ensemble.
///
/// What a server on its own had is no reason for that: no other server has it.
///
/// # Errors
/// The directory cannot be read.
pub fn was_set_aside(place: &Place) -> Result<bool, FsError> {
    let fs = &*place.fs;
    for name in fs.list(&place.data)?.iter().filter(|name| number_of(name).is_some()) {
        match Identity::load(fs, &place.data.join(name)) {
            Ok(Some(identity)) if identity.is_standalone() && identity.members.is_empty() => {}
            Ok(_) | Err(IdentityError::Damaged { .. } | IdentityError::Future { .. }) => {
                return Ok(true);
            }
            Err(IdentityError::Fs(error)) => return Err(error),
        }
    }
    Ok(false)
}

/// Empties the directory of a server on its own that never had a session or a write, so that it may become
/// a member of an ensemble: there is nothing in it that anybody could miss, and what is left of it is moved
/// to a directory that is never looked at again. Durable on return. A crash on the way leaves a directory
/// that holds as little.
///
/// # Errors
/// The directory cannot be changed.
pub fn begin_anew(place: &Place, opened: Opened) -> Result<(), OpenError> {
    let fs = &*place.fs;
    // Its files are closed before they are moved.
    let Opened { identity, lock, .. } = opened;
    // From now on a log that is missing is one that was not made yet.
    Identity { ready: false, ..identity }.store(fs, &place.data)?;
    let number = next_number(fs, place, UNUSED)?;
    move_all(fs, &place.data, (UNUSED, number), |name| name == IMAGES || is_state(name))?;
    if let Some(unused) = move_all(fs, &place.log, (UNUSED, number), |name| name == LOG)? {
        // Segments are as long as those of any log.
        let log = unused.join(LOG);
        for name in fs.list(&log)? {
            fs.remove(&log.join(name))?;
        }
    }
    move_all(fs, &place.data, (UNUSED, number), |name| name == identity::FILE)?;
    drop(lock);
    Ok(())
}

/// Directory of data that was set aside, and not only in part: the identity goes last, and the mark of a state that
/// had diverged.
fn complete(fs: &dyn Fs, place: &Place) -> Result<Option<PathBuf>, FsError> {
    let marks = [Unusable::Diverged.file(), Unusable::Undecided.file()];
    for name in fs.list(&place.data)? {
        let lasts: &[&str] = match name {
            _ if number_of(&name).is_some() => &[identity::FILE],
            _ if name.starts_with(DIVERGED) => &marks,
            _ => continue,
        };
        let aside = place.data.join(&name);
        for last in lasts {
            if fs.has(&aside, last)? {
                return Ok(Some(aside));
            }
        }
    }
    Ok(None)
}

fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix(NAME)?.parse().ok()
}

/// The state store, or one that it was set aside as.
pub(super) fn is_state(name: &str) -> bool {
    name.strip_prefix(STATE).is_some_and(|rest| rest.is_empty() || rest.starts_with(".bad-"))
}

/// The first number that is free in all directories.
pub(super) fn next_number(fs: &dyn Fs, place: &Place, prefix: &str) -> Result<u64, FsError> {
    let mut number: u64 = 1;
    for dir in [&place.data, &place.log] {
        for name in fs.list(dir)? {
            let taken = name.strip_prefix(prefix).and_then(|number| number.parse::<u64>().ok());
            if let Some(taken) = taken {
                number = number.max(taken.saturating_add(1));
            }
        }
    }
    Ok(number)
}

/// Moves what is `chosen` in `dir`; durable on return. Returns where to, if there was anything.
pub(super) fn move_all(
    fs: &dyn Fs,
    dir: &Path,
    (prefix, number): (&str, u64),
    chosen: impl Fn(&str) -> bool,
) -> Result<Option<PathBuf>, FsError> {
    let names: Vec<String> = fs.list(dir)?.into_iter().filter(|name| chosen(name)).collect();
    if names.is_empty() {
        return Ok(None);
    }
    let aside = dir.join(format!("{prefix}{number}"));
    fs.create_dir(&aside)?;
    fs.sync_dir(dir)?;
    for name in names {
        fs.rename(&dir.join(&name), &aside.join(&name))?;
    }
    fs.sync_dir(&aside)?;
    fs.sync_dir(dir)?;
    Ok(Some(aside))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Opened;
    use crate::Options;
    use crate::OsFs;
    use crate::dir::open;
    use crate::peek;
    use crate::testing::{Machine, append, entry};
    use crate::{Unusable, mark_unusable};

    struct Dirs(tempfile::TempDir);

    impl Dirs {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn place(&self) -> Place {
            Place::on_disk(&self.path("data"), &self.path("logs"))
        }

        /// As the directory of a founder of an ensemble, if it is new.
        fn open(&self) -> Result<Opened, OpenError> {
            let founders = vec![(1, 5), (2, 6)];
            self.open_as(Identity { founders, ..Identity::standalone(7, 1) })
        }

        fn open_as(&self, new: Identity) -> Result<Opened, OpenError> {
            let options = Options { ensemble: true, new, ..Options::standalone(7) };
            open(self.place(), &options, &mut Machine::default())
        }

        /// With something in it.
        fn filled() -> Self {
            let dirs = Self::new();
            let mut opened = dirs.open().unwrap();
            opened.log.append(&[append(vec![entry(1, 1, "/a=1")])]).unwrap();
            drop(opened);
            std::fs::write(dirs.path("data/myid"), "1\n").unwrap();
            std::fs::create_dir(dirs.path("data/state")).unwrap();
            std::fs::create_dir(dirs.path("data/state.bad-1")).unwrap();
            dirs
        }

        fn names(&self, dir: &str) -> Vec<String> {
            OsFs.list(&self.path(dir)).unwrap()
        }
    }

    #[test]
    fn everything_but_myid_is_moved_and_the_server_starts_empty() {
        let dirs = Dirs::filled();
        let aside = set_aside(&dirs.place(), 1).unwrap();
        assert_eq!(aside, [dirs.path("logs/set-aside-1"), dirs.path("data/set-aside-1")]);
        assert_eq!(dirs.names("data"), ["lock", "myid", "set-aside-1"]);
        assert_eq!(dirs.names("logs"), ["lock", "set-aside-1"]);
        let moved = ["identity", "image", "state", "state.bad-1"];
        assert_eq!(dirs.names("data/set-aside-1"), moved);
        assert_eq!(dirs.names("logs/set-aside-1"), ["log"]);
        assert_eq!(peek(&dirs.place()).unwrap(), None);
        let opened = dirs.open().unwrap();
        assert!(opened.report.new);
        assert!(opened.restored.tail.is_empty());
    }

    #[test]
    fn of_a_state_that_diverged_only_the_copies_are_moved_once_and_the_log_stays() {
        for why in [Unusable::Diverged, Unusable::Undecided] {
            let dirs = Dirs::filled();
            mark_unusable(&OsFs, &dirs.path("data"), why, "it differs").unwrap();
            let refused = dirs.open().unwrap_err().to_string();
            assert!(refused.contains("it differs"), "{refused}");
            let identity = std::fs::read(dirs.path("data/identity")).unwrap();
            assert_eq!(set_aside(&dirs.place(), 1).unwrap(), [dirs.path("data/diverged-1")]);
            assert_eq!(
                dirs.names("data/diverged-1"),
                [why.file(), "image", "state", "state.bad-1"]
                    .into_iter()
                    .collect::<std::collections::BTreeSet<_>>()
                    .into_iter()
                    .collect::<Vec<_>>()
            );
            assert_eq!(std::fs::read(dirs.path("data/identity")).unwrap(), identity);
            // The flag is still there at the next start.
            assert_eq!(set_aside(&dirs.place(), 1).unwrap(), Vec::<PathBuf>::new());
            let opened = dirs.open().unwrap();
            assert_eq!((opened.report.new, opened.restored.tail.len()), (false, 1));
        }
    }

    #[test]
    fn a_server_that_came_back_is_not_emptied_again_until_what_was_set_aside_is_removed() {
        let dirs = Dirs::filled();
        let nothing = Vec::<PathBuf>::new();
        assert!(!was_set_aside(&dirs.place()).unwrap());
        set_aside(&dirs.place(), 1).unwrap();
        // It is started again before anybody has sent it anything, then with new data.
        assert_eq!(set_aside(&dirs.place(), 1).unwrap(), nothing);
        assert_eq!(peek(&dirs.place()).unwrap(), None);
        let mut opened = dirs.open().unwrap();
        opened.log.append(&[append(vec![entry(1, 1, "/b=1")])]).unwrap();
        drop(opened);
        assert_eq!(set_aside(&dirs.place(), 1).unwrap(), nothing);
        assert!(was_set_aside(&dirs.place()).unwrap());
        assert_eq!(dirs.open().unwrap().restored.tail.len(), 1);
        std::fs::remove_dir_all(dirs.path("data/set-aside-1")).unwrap();
        // Nothing is set aside into a place that is taken.
        let aside = set_aside(&dirs.place(), 1).unwrap();
        assert_eq!(aside, [dirs.path("logs/set-aside-2"), dirs.path("data/set-aside-2")]);
        assert_eq!(dirs.names("logs/set-aside-1"), ["log"]);
        assert!(dirs.open().unwrap().report.new);
    }

    #[test]
    fn a_directory_that_was_rolled_back_is_refused_until_it_is_set_aside() {
        let dirs = Dirs::filled();
        // What was set aside earlier does not keep it where it is.
        set_aside(&dirs.place(), 1).unwrap();
        drop(dirs.open().unwrap());
        std::fs::write(dirs.path("data/rolled-back.tmp"), "of a crash").unwrap();
        mark_unusable(&OsFs, &dirs.path("data"), Unusable::RolledBack, "server 2 remembers more")
            .unwrap();
        for _ in 0..2 {
            let peeked = peek(&dirs.place()).unwrap_err().to_string();
            assert!(peeked.contains("server 2 remembers more"), "{peeked}");
            assert!(peeked.contains("data/rolled-back"), "{peeked}");
            assert_eq!(dirs.open().unwrap_err().to_string(), peeked);
        }
        let aside = set_aside(&dirs.place(), 1).unwrap();
        assert_eq!(aside, [dirs.path("logs/set-aside-2"), dirs.path("data/set-aside-2")]);
        assert_eq!(dirs.names("data"), ["lock", "myid", "set-aside-1", "set-aside-2"]);
        let moved = ["identity", "image", "rolled-back"];
        assert_eq!(dirs.names("data/set-aside-2"), moved);
        assert!(was_set_aside(&dirs.place()).unwrap());
        assert!(dirs.open().unwrap().report.new);
        // Only once.
        assert_eq!(set_aside(&dirs.place(), 1).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn whatever_the_mark_of_a_rolled_back_directory_says_it_is_refused() {
        for damage in [&b""[..], b"\xff\xfe", &[b' '; 100_000]] {
            let dirs = Dirs::filled();
            std::fs::write(dirs.path("data/rolled-back"), damage).unwrap();
            let refused = dirs.open().unwrap_err().to_string();
            assert!(refused.contains("older copy") && refused.contains("--rejoin"), "{refused}");
        }
    }

    #[test]
    fn the_mark_of_a_rolled_back_directory_is_moved_last() {
        let dirs = Dirs::filled();
        mark_unusable(&OsFs, &dirs.path("data"), Unusable::RolledBack, "server 2 remembers more")
            .unwrap();
        // As a crash leaves it: all the rest is gone.
        for name in ["data/identity", "data/image", "data/state", "data/state.bad-1", "logs/log"] {
            std::fs::create_dir_all(dirs.path("data/set-aside-1")).unwrap();
            let to = dirs.path("data/set-aside-1").join(name.split_once('/').unwrap().1);
            std::fs::rename(dirs.path(name), to).unwrap();
        }
        assert!(peek(&dirs.place()).is_err() && dirs.open().is_err());
        assert_eq!(set_aside(&dirs.place(), 1).unwrap(), [dirs.path("data/set-aside-2")]);
        assert_eq!(peek(&dirs.place()).unwrap(), None);
        assert!(dirs.open().unwrap().report.new);
    }

    #[test]
    fn what_was_set_aside_in_part_is_completed() {
        let dirs = Dirs::filled();
        // As a crash leaves it: the identity is still there.
        for (from, to) in [("logs/log", "logs/set-aside-1"), ("data/image", "data/set-aside-1")] {
            std::fs::create_dir(dirs.path(to)).unwrap();
            let name = from.split_once('/').unwrap().1;
            std::fs::rename(dirs.path(from), dirs.path(to).join(name)).unwrap();
        }
        let aside = set_aside(&dirs.place(), 1).unwrap();
        assert_eq!(aside, [dirs.path("data/set-aside-2")]);
        assert_eq!(dirs.names("data"), ["lock", "myid", "set-aside-1", "set-aside-2"]);
        assert!(dirs.open().unwrap().report.new);
    }

    #[test]
    fn one_directory_for_all_is_set_aside_as_one() {
        let dirs = Dirs::new();
        let data = dirs.path("data");
        let place = || Place::on_disk(&data, &data);
        drop(open(place(), &Options::standalone(7), &mut Machine::default()).unwrap());
        assert_eq!(set_aside(&place(), 1).unwrap(), [data.join("set-aside-1")]);
        assert_eq!(dirs.names("data/set-aside-1"), ["identity", "image", "log"]);
    }

    #[test]
    fn what_a_server_on_its_own_had_does_not_keep_it_from_founding_an_ensemble() {
        let dirs = Dirs::new();
        drop(dirs.open_as(Identity::standalone(7, 1)).unwrap());
        set_aside(&dirs.place(), 1).unwrap();
        assert!(!was_set_aside(&dirs.place()).unwrap());
        // Unless an ensemble began with it.
        let dirs = Dirs::new();
        let members =
            vec![lockkeeper_core::replica::founding::ServerSpec::parse(1, "a:1:2").unwrap()];
        drop(dirs.open_as(Identity { members, ..Identity::standalone(7, 1) }).unwrap());
        set_aside(&dirs.place(), 1).unwrap();
        assert!(was_set_aside(&dirs.place()).unwrap());
    }

    #[test]
    fn an_unused_directory_becomes_a_new_one_of_another_server() {
        let dirs = Dirs::new();
        let mut opened = dirs.open_as(Identity::standalone(7, 1)).unwrap();
        opened.log.append(&[append(vec![entry(1, 1, "")])]).unwrap();
        std::fs::create_dir(dirs.path("data/state")).unwrap();
        begin_anew(&dirs.place(), opened).unwrap();
        assert_eq!(peek(&dirs.place()).unwrap(), None);
        assert!(!was_set_aside(&dirs.place()).unwrap());
        assert_eq!(dirs.names("data"), ["lock", "unused-1"]);
        assert_eq!(dirs.names("data/unused-1"), ["identity", "image", "state"]);
        assert_eq!(dirs.names("logs/unused-1/log"), Vec::<String>::new());
        let opened = dirs.open().unwrap();
        assert!(opened.report.new && opened.restored.tail.is_empty());
        assert_eq!(opened.identity.founders.len(), 2);
    }

    #[test]
    fn a_crash_while_an_unused_directory_is_emptied_leaves_one_that_is_as_unused() {
        for gone in [&[][..], &["data/image"], &["data/image", "data/state", "logs/log"]] {
            let dirs = Dirs::new();
            let opened = dirs.open_as(Identity::standalone(7, 1)).unwrap();
            std::fs::create_dir(dirs.path("data/state")).unwrap();
            let identity = Identity { ready: false, ..opened.identity.clone() };
            drop(opened);
            identity.store(&OsFs, &dirs.path("data")).unwrap();
            for name in gone {
                std::fs::remove_dir_all(dirs.path(name)).unwrap();
            }
            let opened = dirs.open_as(Identity::standalone(8, 1)).unwrap();
            assert_eq!(opened.identity.cluster_id, 7, "{gone:?}");
            assert!(opened.restored.tail.is_empty());
        }
    }

    #[test]
    fn a_running_server_keeps_its_data() {
        let dirs = Dirs::filled();
        let opened = dirs.open().unwrap();
        let error = set_aside(&dirs.place(), 1).unwrap_err();
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
        drop(opened);
        assert_eq!(dirs.open().unwrap().restored.tail.len(), 1);
    }

    #[test]
    fn the_data_of_another_server_stays_where_it_is() {
        let dirs = Dirs::filled();
        let error = set_aside(&dirs.place(), 2).unwrap_err();
        assert!(error.to_string().contains("belongs to server 1, but this is server 2"), "{error}");
        assert_eq!(dirs.open().unwrap().restored.tail.len(), 1);
    }

    #[test]
    fn a_damaged_identity_can_be_set_aside() {
        let dirs = Dirs::filled();
        std::fs::write(dirs.path("data/identity"), "damaged").unwrap();
        assert!(dirs.open().is_err());
        set_aside(&dirs.place(), 1).unwrap();
        assert!(dirs.open().unwrap().report.new);
    }

    #[test]
    fn a_directory_that_was_set_aside_in_part_is_refused_until_the_rest_is() {
        // As a crash may leave it: without the log, then without the images and the store as well.
        for gone in [&["logs/log"][..], &["logs/log", "data/image", "data/state"]] {
            let dirs = Dirs::filled();
            for name in gone {
                std::fs::rename(dirs.path(name), dirs.path("elsewhere")).unwrap();
                std::fs::remove_dir_all(dirs.path("elsewhere")).unwrap();
            }
            let error = dirs.open().unwrap_err().to_string();
            assert!(error.contains("there is no log"), "{error}");
            assert!(error.contains("lockkeeper server --rejoin"), "{error}");
            set_aside(&dirs.place(), 1).unwrap();
            assert!(dirs.open().unwrap().report.new);
        }
    }
}
