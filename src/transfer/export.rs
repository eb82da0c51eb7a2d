//! A state as a data directory that ZooKeeper starts from.
//!
//! *Owns* the files: snapshot, epochs, myid. *Invariants*: the directory is made, or was empty; the snapshot has its
//! name only once it is whole and durable; what is made is durable up to the directory that was there. Sessions whose
//! password ZooKeeper would not compute are left out with their ephemerals, and named. *Never* changes the data that
//! the state comes from.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::{Snapshot, epoch};
use crate::proto::Text;
use crate::replica::Machine;

/// What was written.
#[derive(Clone, Debug)]
pub(crate) struct Exported {
    /// The snapshot.
    pub(crate) file: PathBuf,
    /// Its size.
    pub(crate) bytes: u64,
    /// Its zxid.
    pub(crate) zxid: i64,
    /// ZooKeeper's digest of it.
    pub(crate) digest: u64,
    /// Sessions that can be taken up again.
    pub(crate) sessions_kept: u64,
    /// Sessions that are left out, each with its ephemerals.
    pub(crate) left_out: Vec<(i64, Vec<String>)>,
}

/// Writes a state into `dir`; in a dry run, nothing.
///
/// # Errors
/// In one line.
pub(crate) fn export(
    mut machine: Machine,
    dir: &Path,
    myid: Option<u8>,
    is_dry: bool,
) -> Result<Exported, String> {
    let left_out = machine.leave_out_sessions().into_iter();
    let named = |paths: Vec<Text>| paths.iter().map(|path| path.as_str().to_owned()).collect();
    let left_out = left_out.map(|(id, paths)| (id, named(paths))).collect();
    let snapshot = Snapshot::of(machine)?;
    let (zxid, digest) = (snapshot.zxid(), snapshot.digest());
    let versioned = dir.join("version-2");
    let file = versioned.join(format!("snapshot.{zxid:x}"));
    let mut exported =
        Exported { file, bytes: 0, zxid, digest, sessions_kept: snapshot.sessions(), left_out };
    let in_dir = |error: io::Error| format!("{}: {error}", dir.display());
    refuse_data(dir).map_err(in_dir)??;
    if is_dry {
        return Ok(exported);
    }
    let above = above_what_is_made(dir);
    fs::create_dir_all(&versioned).map_err(in_dir)?;
    let written = write_all(&snapshot, &exported, (dir, &versioned), myid);
    let durable = written.and_then(|bytes| {
        above.iter().try_for_each(|above| File::open(above)?.sync_all())?;
        Ok(bytes)
    });
    match durable {
        Ok(bytes) => exported.bytes = bytes,
        Err(error) => {
            // The directory was empty: what is there is a part of this.
            let _ = fs::remove_dir_all(&versioned);
            let _ = fs::remove_file(dir.join("myid"));
            return Err(in_dir(error));
        }
    }
    Ok(exported)
}

/// The directories that get a new entry when `dir` is made with all that leads there: the innermost first.
fn above_what_is_made(dir: &Path) -> Vec<PathBuf> {
    let made = dir.ancestors().take_while(|at| !at.as_os_str().is_empty() && !at.exists());
    let above = made.map(|at| match at.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) | None => PathBuf::from("."),
    });
    above.collect()
}

/// The outer error is the file system's.
fn refuse_data(dir: &Path) -> io::Result<Result<(), String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ok(())),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        if name != "lost+found" {
            let (dir, name) = (dir.display(), name.display());
            return Ok(Err(format!(
                "{dir}: it is not empty ({name} is there): name a new directory"
            )));
        }
    }
    Ok(Ok(()))
}

fn write_all(
    snapshot: &Snapshot,
    exported: &Exported,
    (dir, versioned): (&Path, &Path),
    myid: Option<u8>,
) -> io::Result<u64> {
    let unfinished = versioned.join("unfinished");
    let mut file = OpenOptions::new().write(true).create_new(true).open(&unfinished)?;
    let bytes = snapshot.write(&mut file)?;
    file.sync_all()?;
    let epoch = epoch(exported.zxid).to_string();
    for name in ["acceptedEpoch", "currentEpoch"] {
        put(&versioned.join(name), epoch.as_bytes())?;
    }
    if let Some(myid) = myid {
        put(&dir.join("myid"), format!("{myid}\n").as_bytes())?;
    }
    fs::rename(&unfinished, &exported.file)?;
    File::open(versioned)?.sync_all()?;
    File::open(dir)?.sync_all()?;
    Ok(bytes)
}

fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_that_gets_an_entry_is_known_before_it_is_made() {
        let temporary = tempfile::tempdir().unwrap();
        let there = temporary.path();
        assert!(above_what_is_made(there).is_empty());
        assert_eq!(above_what_is_made(&there.join("out")), [there]);
        let deep = there.join("a/b/out");
        assert_eq!(
            above_what_is_made(&deep),
            [there.join("a/b"), there.join("a"), there.to_owned()]
        );
        let name = Path::new("no-such-directory/out");
        assert_eq!(above_what_is_made(name), [Path::new("no-such-directory"), Path::new(".")]);
    }
}
