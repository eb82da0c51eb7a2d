//! A configuration file and the files it names, from disk.
//!
//! Owns the reading that `config` must not do: the file itself, its `dynamicConfigFile` and
//! `dataDir/myid`. Invariant: a file that is there but cannot be read is an error that names it; a
//! missing `myid` is none, for a single server needs none. Reads a bounded length of each.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;
use std::string::FromUtf8Error;

use crate::config::{CONFIG_TEXT_BYTES_MAX, ConfigError, Draft};

/// Longest `myid` file that is read, bytes.
pub const MYID_BYTES_MAX: usize = 4096;

/// Reads a configuration file and those it names. Flags are to be [`set`](Draft::set) on the draft
/// before it is resolved; only one that moves `dataDir` is given here, because `myid` is looked for
/// there, and one that says what `myid` would. Faults of the files wait in the draft.
#[must_use]
pub fn draft(path: &Path, data_dir: Option<&Path>, myid: Option<&str>) -> Draft {
    let name = path.display().to_string();
    let mut draft = match read(path, CONFIG_TEXT_BYTES_MAX) {
        Ok(text) => Draft::from_text(&name, &text),
        Err(error) => {
            let mut draft = Draft::without_file();
            draft.fail(unreadable(path, &error));
            return draft;
        }
    };
    draft.set_path(path);
    if let Some(data_dir) = data_dir {
        draft.set("dataDir", &data_dir.display().to_string(), "--data-dir");
    }
    if let Some(dynamic) = draft.dynamic_config_file().map(str::to_string) {
        match read(Path::new(&dynamic), CONFIG_TEXT_BYTES_MAX) {
            Ok(text) => draft.load_dynamic(&dynamic, &text),
            Err(error) => draft.fail(ConfigError {
                key: "dynamicConfigFile".to_string(),
                ..unreadable(Path::new(&dynamic), &error)
            }),
        }
    }
    read_myid(&mut draft);
    if let Some(myid) = myid {
        draft.set_server_id(myid, "--myid");
    }
    draft
}

/// The same of a server that may have no configuration file.
pub(super) fn draft_of(file: Option<&Path>, data_dir: Option<&Path>, myid: Option<&str>) -> Draft {
    let Some(file) = file else {
        let mut draft = Draft::without_file();
        if let Some(myid) = myid {
            draft.set_server_id(myid, "--myid");
        }
        if let Some(data_dir) = data_dir {
            draft.set("dataDir", &data_dir.display().to_string(), "--data-dir");
        }
        return draft;
    };
    draft(file, data_dir, myid)
}

/// Faults of a configuration, a line for each.
pub(super) fn lines(errors: &[ConfigError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn read_myid(draft: &mut Draft) {
    let Some(path) = draft.data_dir().map(|data_dir| data_dir.join("myid")) else { return };
    match read(&path, MYID_BYTES_MAX) {
        Ok(text) => draft.set_myid(&path.display().to_string(), &text),
        // That the data directory is no directory is for the server's start to say.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
        Err(error) => draft.fail_myid(unreadable(&path, &error)),
    }
}

/// The text of a file; one that is longer than `bytes_max` is an error. One that is not UTF-8 is taken for
/// Latin-1, as Java takes every properties file: the comments of such files are in all encodings.
fn read(path: &Path, bytes_max: usize) -> io::Result<String> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(io::Error::other(format!("longer than {bytes_max} bytes")));
    }
    let latin_1 = |error: FromUtf8Error| error.as_bytes().iter().copied().map(char::from).collect();
    Ok(String::from_utf8(bytes).unwrap_or_else(latin_1))
}

fn unreadable(path: &Path, error: &io::Error) -> ConfigError {
    let (file, key) = (path.display().to_string(), String::new());
    let advice = match error.kind() {
        ErrorKind::NotFound => ": check the path, or make the file",
        ErrorKind::IsADirectory => ": name a file, such as the zoo.cfg in it",
        ErrorKind::PermissionDenied => ": let the user of this process read it",
        _ => "",
    };
    ConfigError { file, line: 0, key, reason: format!("cannot be read: {error}{advice}") }
}
