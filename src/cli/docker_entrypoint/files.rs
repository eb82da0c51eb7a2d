//! The files and directories that a container makes before its server runs.
//!
//! *Owns* how they are made. *Invariants*: what is there stays as it is, also when two containers start at the same
//! time on one volume; a file with secrets is readable by its owner alone from the moment that it exists; no symbolic
//! link is followed by what root gives away.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, lchown};
use std::path::{Path, PathBuf};

/// A file that is written where it is missing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// It holds secrets.
    pub(super) is_private: bool,
}

impl NewFile {
    pub(super) fn new(path: PathBuf, text: String) -> Self {
        Self { path, text, is_private: false }
    }

    pub(super) fn private(path: PathBuf, text: String) -> Self {
        Self { path, text, is_private: true }
    }
}

/// Files that are to be there before the server starts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Made if they are missing. Those of a container that begins as root become the user's.
    pub(super) directories: Vec<PathBuf>,
    /// Written if they are missing.
    pub(super) files: Vec<NewFile>,
    /// Folder of zoo.cfg.
    pub(super) config_dir: PathBuf,
}

/// Makes what is missing.
///
/// # Errors
/// Which one cannot be made, and why.
pub(super) fn write(directories: &[PathBuf], files: &[NewFile]) -> Result<(), String> {
    for directory in directories {
        fs::create_dir_all(directory)
            .map_err(|error| format!("{}: cannot be made: {error}", directory.display()))?;
    }
    for NewFile { path, text, is_private } in files {
        let mode = if *is_private { 0o600 } else { 0o644 };
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
        let written = match file {
            Ok(mut file) => file.write_all(text.as_bytes()).inspect_err(|_| {
                // Half a file would be taken for what an operator wrote.
                let _ = fs::remove_file(path);
            }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        };
        written.map_err(|error| format!("{}: cannot be written: {error}", path.display()))?;
    }
    Ok(())
}

/// Makes these directories, and gives them and all that is in them to a user and its group.
///
/// # Errors
/// Where that fails, and why.
pub(super) fn give_to(directories: &[PathBuf], user: u32) -> Result<(), String> {
    write(directories, &[])?;
    directories.iter().try_for_each(|directory| give(directory, user))
}

fn give(path: &Path, user: u32) -> Result<(), String> {
    let failed = |error: std::io::Error| {
        format!("{}: cannot be given to user {user}: {error}", path.display())
    };
    lchown(path, Some(user), Some(user)).map_err(failed)?;
    if !fs::symlink_metadata(path).map_err(failed)?.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(failed)? {
        give(&entry.map_err(failed)?.path(), user)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_there_stays_and_secrets_are_private() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("a/b");
        let at = |name: &str| home.join(name);
        let files = [
            NewFile::new(at("zoo.cfg"), "new\n".to_string()),
            NewFile::private(at("jaas"), "secret\n".to_string()),
        ];
        write(std::slice::from_ref(&home), &files).unwrap();
        assert_eq!(fs::read_to_string(at("zoo.cfg")).unwrap(), "new\n");
        assert_eq!(fs::metadata(at("jaas")).unwrap().permissions().mode() & 0o777, 0o600);
        write(&[], &[NewFile::new(at("zoo.cfg"), "other\n".to_string())]).unwrap();
        assert_eq!(fs::read_to_string(at("zoo.cfg")).unwrap(), "new\n");
        let error = write(&[], &[NewFile::new(at("none/x"), String::new())]).unwrap_err();
        assert!(error.contains("none/x: cannot be written"), "{error}");
    }
}
