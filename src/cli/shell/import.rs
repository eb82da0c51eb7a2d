//! The verb import: a file of export, written below a path.
//!
//! *Owns* where the file is read from. *Invariants*: it is read as a whole, and all conflicts are known, before
//! anything is written; the znodes that lead to the path are made if they are missing. *Never* keeps the znodes in
//! memory: the file is read once for each step, and standard input goes into a file that has no name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Seek as _, SeekFrom};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;

use clap::ValueEnum as _;

use super::document;
use super::failure::Failure;
use super::given::Given;
use super::output::Answer;
use super::state::{Outcome, Shell};
use crate::cli::graft::{self, Done, OnConflict, Source, Take, Wanted, is_of_servers};
use crate::cli::output;
use crate::proto::{Acl, Request};
use crate::tree::{Owner, path};

/// Bytes that are read at once.
const PORTION_BYTES: usize = 256 << 10;

pub(super) fn import(shell: &mut Shell, given: &Given) -> Outcome {
    let [name, root] = &given.arguments[..] else {
        return Err(Failure::usage("import: a file and a path are needed"));
    };
    let on_conflict = match given.value("on-conflict") {
        None => OnConflict::default(),
        Some(word) => OnConflict::from_str(word, false).map_err(|_| {
            Failure::usage(format!("-on-conflict: `{word}` is none of fail, skip, overwrite"))
        })?,
    };
    if name == "-" && shell.reads_stdin {
        return Err(Failure::usage("commands come from standard input: name a file"));
    }
    let znodes = shell.znodes()?;
    znodes.refuse_servers(root)?;
    let file = open(name).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let mut source = Document { name, file, root, chroot: &znodes.chroot };
    let ask = &mut |request: &Request| znodes.session.call(request);
    let done = graft::run(&mut source, ask, &znodes.chroot, on_conflict);
    done.map(|done| said(root, name, &done)).map_err(Failure::from)
}

fn said(root: &str, file: &str, done: &Done) -> Answer {
    let Done { created, overwritten, equal, kept, counters } = *done;
    Answer::default()
        .line(format!(
            "{root}: {created} znodes created, {overwritten} overwritten, {equal} were as in the file, {kept} kept; \
             {counters} counters raised"
        ))
        .field("done", "imported")
        .field("path", root)
        .field("file", file)
        .field("created", created)
        .field("overwritten", overwritten)
        .field("equal", equal)
        .field("kept", kept)
        .field("counters", counters)
}

/// A file that can be read more than once.
fn open(name: &str) -> io::Result<File> {
    let file = match name {
        "-" => File::from(io::stdin().as_fd().try_clone_to_owned()?),
        name => File::open(name)?,
    };
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    let mut copy = nameless()?;
    io::copy(&mut BufReader::with_capacity(PORTION_BYTES, file), &mut copy)?;
    Ok(copy)
}

/// A file that is gone when it is closed, and that no other user can read.
fn nameless() -> io::Result<File> {
    let path = std::env::temp_dir().join(format!("lockkeeper-import.{}", std::process::id()));
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(path)?;
    Ok(file)
}

/// The file, as znodes below `root`.
struct Document<'a> {
    name: &'a str,
    file: File,
    root: &'a str,
    chroot: &'a str,
}

impl Source for Document<'_> {
    fn each(&mut self, take: Take<'_>) -> Result<(), output::Failure> {
        for at in above(self.root) {
            take(&way(at))?;
        }
        let wrong = |reason: &dyn std::fmt::Display| {
            output::Failure::usage(format!("{}: {reason}", self.name))
        };
        self.file.seek(SeekFrom::Start(0)).map_err(|error| wrong(&error))?;
        let mut refusal = None;
        let from = BufReader::with_capacity(PORTION_BYTES, &self.file);
        let read = document::read(from, self.root, &mut |znode| {
            if is_of_servers(&format!("{}{}", self.chroot, znode.path)) {
                return Err(format!("{} belongs to the servers", znode.path));
            }
            take(&znode).map_err(|refused| {
                let words = refused.text.clone();
                refusal = Some(refused);
                words
            })
        });
        match (refusal, read) {
            (Some(refusal), _) => Err(refusal),
            (None, read) => read.map_err(|reason| wrong(&reason)),
        }
    }
}

/// The paths that lead to a path, the root aside.
fn above(at: &str) -> impl Iterator<Item = &str> {
    at.match_indices('/').map(|(slash, _)| &at[..slash]).filter(|at| !at.is_empty())
}

/// A znode that is only made because others are below it.
fn way(at: &str) -> Wanted {
    debug_assert_ne!(at, path::ROOT);
    Wanted {
        path: at.to_owned(),
        data: None,
        acl: vec![Acl::open()],
        owner: Owner::Persistent,
        creates: 0,
        is_part: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_those_above_it() {
        assert_eq!(above("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b"]);
        assert_eq!(above("/a").count(), 0);
        assert_eq!(above("/").count(), 0);
    }
}
