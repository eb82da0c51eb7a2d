//! A file that a command makes, or standard output.
//!
//! *Owns* how it gets its name. *Invariants*: a file has its name only once all of it is durable, and one that was
//! there is replaced as a whole; other users cannot read it. *Never* leaves a part under the name of a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Bytes between two syncs: the log of a server on the same disk would have to wait for more.
const SYNC_BYTES: u64 = 4 << 20;

/// The file that is being made. Dropped before its end, it leaves nothing behind.
pub(super) struct NewFile {
    pub(super) file: PathBuf,
    /// Where it is written; empty for standard output, and when it has its name.
    temporary: PathBuf,
    out: Option<File>,
    bytes: u64,
    /// Up to here, the file was synced.
    synced: u64,
}

impl NewFile {
    /// Begins it; `-`: standard output.
    ///
    /// # Errors
    /// With the name of the file.
    pub(super) fn begin(file: &Path) -> Result<Self, String> {
        if file == Path::new("-") {
            let (file, temporary) = (file.to_owned(), PathBuf::new());
            return Ok(Self { file, temporary, out: None, bytes: 0, synced: 0 });
        }
        let mut name = file.file_name().map(|name| name.to_owned()).unwrap_or_default();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = file.with_file_name(name);
        // It holds what access control lists keep from others.
        let out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
        let out = out.map_err(|error| named(&temporary, &error))?;
        Ok(Self { file: file.to_owned(), temporary, out: Some(out), bytes: 0, synced: 0 })
    }

    /// Makes it durable under its name. Returns its size.
    ///
    /// # Errors
    /// With the name of the file.
    pub(super) fn finish(mut self) -> Result<u64, String> {
        let Some(out) = self.out.take() else {
            io::stdout().flush().map_err(|error| format!("standard output: {error}"))?;
            return Ok(self.bytes);
        };
        let done = out.sync_all().and_then(|()| fs::rename(&self.temporary, &self.file));
        done.map_err(|error| named(&self.file, &error))?;
        self.temporary = PathBuf::new();
        let parent = self.file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let synced = File::open(parent.unwrap_or(Path::new("."))).and_then(|dir| dir.sync_all());
        synced.map_err(|error| named(&self.file, &error))?;
        Ok(self.bytes)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &mut self.out {
            Some(out) => out.write(bytes)?,
            None => io::stdout().write(bytes)?,
        };
        self.bytes += written as u64;
        if let Some(out) = self.out.as_ref().filter(|_| self.bytes - self.synced >= SYNC_BYTES) {
            out.sync_data()?;
            self.synced = self.bytes;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Some(out) => out.flush(),
            None => io::stdout().flush(),
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.temporary.as_os_str().is_empty() {
            // What cannot be removed is no backup, by its name.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// A problem, with the name of the file.
fn named(file: &Path, problem: &io::Error) -> String {
    format!("{}: {problem}", file.display())
}
