//! `lockkeeper snapshot save`.
//!
//! *Owns* where a backup comes from and how it becomes a file. *Invariants*: what comes from a server is verified while
//! it is written; a file has its name only once all of it is durable, and one that was there is replaced as a whole.
//! *Never* leaves a part of a backup under the name of one.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use clap::Args;

use super::file::{json as header_json, named};
use super::inspect::about;
use crate::backup::{BackupReader, BackupWriter, Header, Selection, Trailer};
use crate::cli::admin;
use crate::cli::duration::now_ms;
use crate::cli::exit::{EXIT_NO_PERMISSION, EXIT_NOT_NOW, EXIT_UNAVAILABLE};
use crate::cli::flags::{AdminFlags, OutputFlag};
use crate::cli::new_file::NewFile;
use crate::cli::output::{Failure, Said};
use crate::config::Config;
use crate::server::offline::{self, Membership, RELEASE, Restore as _, record_digest};

/// By how much this command gives way to other programs: on the machine of a server its clients go first.
const NICENESS: i32 = 10;

/// Flags of `lockkeeper snapshot save`.
#[derive(Debug, Args)]
pub(crate) struct SaveFlags {
    /// The file to be made; - for standard output
    file: PathBuf,
    /// Save the znode at this path and those below alone
    #[arg(long, value_name = "PATH")]
    subtree: Option<String>,
    /// Save the data in this directory (dataDir), whose server does not run, or that was set aside
    #[arg(long, value_name = "DIR")]
    offline: Option<PathBuf>,
    /// Where the log of that directory is, if it is elsewhere (dataLogDir)
    #[arg(long, value_name = "DIR", requires = "offline")]
    log_dir: Option<PathBuf>,
    #[command(flatten)]
    admin: AdminFlags,
    #[command(flatten)]
    pub(super) output: OutputFlag,
}

impl SaveFlags {
    pub(super) fn is_to_stdout(&self) -> bool {
        self.file == Path::new("-")
    }
}

/// Saves it.
pub(super) fn run(flags: &SaveFlags) -> Result<Said, Failure> {
    let selection = match &flags.subtree {
        None => Selection::all(),
        Some(path) => Selection::below(path)
            .map_err(|reason| Failure::usage(format!("--subtree: {reason}")))?,
    };
    let begun = Instant::now();
    // Where that is not allowed, it works as any program.
    let _ = rustix::process::nice(NICENESS);
    let mut target = NewFile::begin(&flags.file).map_err(Failure::usage)?;
    let (header, trailer, note) = match &flags.offline {
        Some(dir) => {
            let log = flags.log_dir.as_deref().unwrap_or(dir);
            offline_backup((dir, log), &selection, &mut target)?
        }
        None => from_server(flags, &mut target)?,
    };
    let bytes = target.finish().map_err(Failure::refused)?;
    let shown = flags.file.display();
    let took_ms = begun.elapsed().as_millis();
    let text =
        format!("{shown}: {bytes} bytes in {took_ms} ms\n{}{note}", about(&header, &trailer));
    let mut json = header_json(&header, &trailer);
    json["file"] = flags.file.to_string_lossy().into();
    json["bytes"] = bytes.into();
    Ok(Said { text, json })
}

/// Takes the backup that a server makes, and verifies it on the way.
fn from_server(
    flags: &SaveFlags,
    target: &mut NewFile,
) -> Result<(Header, Trailer, String), Failure> {
    let access = flags.admin.access().map_err(Failure::usage)?;
    let subtree = flags.subtree.as_deref().map(|path| ("subtree", path));
    let answer = admin::download(&access, "/snapshot", subtree)
        .map_err(|error| Failure::new(EXIT_UNAVAILABLE, error.to_string()))?;
    let server = &answer.server.clone();
    match answer.status {
        200 => {}
        status => {
            let words = answer.text();
            let exit = match status {
                401 | 403 => EXIT_NO_PERMISSION,
                429 => EXIT_NOT_NOW,
                503 => EXIT_UNAVAILABLE,
                _ => return Err(Failure::refused(format!("{server}: {words}"))),
            };
            return Err(Failure::new(exit, format!("{server}: {words}")));
        }
    }
    let broken = |problem: &dyn std::fmt::Display| {
        let words = format!("{server}: the backup broke off: {problem}");
        Failure::new(EXIT_UNAVAILABLE, words)
    };
    let failed: Rc<RefCell<Option<Failure>>> = Rc::default();
    let tee = Tee { from: answer.body, to: target, failed: Rc::clone(&failed) };
    let read = || {
        let reader = BackupReader::open(tee, record_digest())?;
        let header = reader.header().clone();
        Ok((header, reader.read(&mut |_, _| Ok(()))?))
    };
    let read: Result<_, crate::backup::BackupError> = read();
    if let Some(failure) = failed.take() {
        return Err(failure);
    }
    let (header, trailer) = read.map_err(|error| broken(&error))?;
    Ok((header, trailer, String::new()))
}

/// The state of a directory.
fn offline_backup(
    (dir, log): (&Path, &Path),
    selection: &Selection,
    target: &mut NewFile,
) -> Result<(Header, Trailer, String), Failure> {
    let state = offline::load(&Config::without_file(), dir, log)
        .map_err(|error| Failure::refused(error.to_string()))?;
    let mut note = String::new();
    if state.is_unusable {
        note += "note      the directory is marked as older than what its server had acknowledged, or as other \
                 than what the others have\n";
    }
    if let Some(torn) = &state.torn {
        note += &format!("note      {torn}: it was never acknowledged\n");
    }
    if state.uncertain > 0 && !state.is_standalone {
        note += &format!(
            "note      the last {} entries of its log are in the backup, and this server alone does not know whether a \
             majority has them\n",
            state.uncertain
        );
    }
    let header = Header {
        release: RELEASE.to_owned(),
        ensemble: state.ensemble,
        server_id: state.server_id,
        index: state.last.0,
        term: state.term,
        zxid: state.machine.last_zxid(),
        made_ms: now_ms(),
        subtree: selection.subtree().map(str::to_owned),
    };
    let digest = state.machine.record_digest();
    let (_, records) = state.machine.into_records(state.last, Membership::default());
    let refused = |error: crate::backup::BackupError| Failure::refused(error.to_string());
    let mut writer = BackupWriter::begin(target, &header, digest).map_err(refused)?;
    for (key, value) in records.iter().filter(|(key, _)| selection.includes(key)) {
        writer.record(key, value).map_err(refused)?;
    }
    let (_, trailer) = writer.finish().map_err(refused)?;
    Ok((header, trailer, note))
}

/// Reads, and writes what was read.
struct Tee<'a> {
    from: Box<dyn Read>,
    to: &'a mut NewFile,
    /// Why it could not be written, which is no fault of what is read.
    failed: Rc<RefCell<Option<Failure>>>,
}

impl Read for Tee<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        if let Err(error) = self.to.write_all(&buffer[..read]) {
            self.failed.replace(Some(Failure::refused(named(&self.to.file, &error))));
            return Err(error);
        }
        Ok(read)
    }
}
