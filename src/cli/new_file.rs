//! A file that a command makes, or standard output.
//!
//! *Owns* how it gets its name, and by how much it holds up others who use its disk. *Invariants*: a file has its name
//! only once all of it is durable, and one that was there is replaced as a whole; other users cannot read it.
//! *Never* leaves a part under the name of a whole.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::server::offline::{Fs as _, FsError, OsFs, Writing};

/// Bytes that are written at once, past the cache: the log of a server on the same disk would have to wait for more.
const PIECE_BYTES: usize = 64 << 10;

/// The file that is being made. Dropped before its end, it leaves nothing behind.
pub(super) struct NewFile {
    pub(super) file: PathBuf,
    /// Where it is written; empty for standard output, and when it has its name.
    temporary: PathBuf,
    out: Option<Writing>,
    bytes: u64,
}

impl NewFile {
    /// Begins it; `-`: standard output.
    ///
    /// # Errors
    /// With the name of the file.
    pub(super) fn begin(file: &Path) -> Result<Self, String> {
        if file == Path::new("-") {
            let (file, temporary) = (file.to_owned(), PathBuf::new());
            return Ok(Self { file, temporary, out: None, bytes: 0 });
        }
        let mut name = file.file_name().map(|name| name.to_owned()).unwrap_or_default();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = file.with_file_name(name);
        // It holds what access control lists keep from others.
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
        made.map_err(|error| named(&temporary, &error))?;
        let mut begun = Self { file: file.to_owned(), temporary, out: None, bytes: 0 };
        let out = OsFs.open(&begun.temporary).map_err(|error| error.to_string())?;
        begun.out = Some(Writing::new(out, PIECE_BYTES));
        Ok(begun)
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
        let failed = |error: FsError| named(&self.file, &error.source);
        out.finish().map_err(failed)?;
        OsFs.rename(&self.temporary, &self.file).map_err(failed)?;
        self.temporary = PathBuf::new();
        let parent = self.file.parent().filter(|parent| !parent.as_os_str().is_empty());
        OsFs.sync_dir(parent.unwrap_or(Path::new("."))).map_err(failed)?;
        Ok(self.bytes)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &mut self.out {
            Some(out) => {
                out.write(bytes).map_err(|error| error.source)?;
                bytes.len()
            }
            None => io::stdout().write(bytes)?,
        };
        self.bytes += written as u64;
        Ok(written)
    }

    /// A file has the rest with its end.
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Some(_) => Ok(()),
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
