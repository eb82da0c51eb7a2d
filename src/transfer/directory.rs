//! The files of a data directory of ZooKeeper.
//!
//! *Owns* where they lie and what their names say. *Never* reads a snapshot or a log.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where ZooKeeper keeps its files, below dataDir and dataLogDir.
const VERSION: &str = "version-2";
/// Longest file that holds a number.
const NUMBER_BYTES_MAX: u64 = 64;

/// A data directory as a user names it: `DIR`, or `DIR,LOGDIR` if the logs are elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// dataDir.
    pub(crate) data: PathBuf,
    /// dataLogDir.
    pub(crate) log: PathBuf,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (data, log) = text.split_once(',').unwrap_or((text, text));
        if data.is_empty() || log.is_empty() {
            return Err("expected a directory, or two with a comma: dataDir,dataLogDir".to_owned());
        }
        Ok(Self { data: data.into(), log: log.into() })
    }
}

/// What one server of ZooKeeper has left.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Its dataDir, as the user named it.
    pub(crate) dir: PathBuf,
    /// Its dataLogDir.
    pub(crate) log_dir: PathBuf,
    /// Snapshots, the newest first: the zxid at which each was begun, and the file.
    pub(crate) snapshots: Vec<(i64, PathBuf)>,
    /// Logs, the oldest first: the zxid of the first transaction, and the file.
    pub(crate) logs: Vec<(i64, PathBuf)>,
    /// The epoch that the server was in; `None` of one that ran on its own.
    pub(crate) current_epoch: Option<i64>,
    /// The highest epoch that it had agreed to.
    pub(crate) accepted_epoch: Option<i64>,
    /// The server's number.
    pub(crate) myid: Option<String>,
}

impl Member {
    /// Looks at a directory.
    ///
    /// # Errors
    /// It cannot be read, or holds nothing of ZooKeeper.
    pub(crate) fn at(source: &Source) -> Result<Self, String> {
        let (data, log) = (versioned(&source.data), versioned(&source.log));
        let mut snapshots = numbered(&data, "snapshot.")?;
        snapshots.reverse();
        let logs = numbered(&log, "log.")?;
        if snapshots.is_empty() && logs.is_empty() {
            let dir = source.data.display();
            return Err(format!(
                "{dir}: there is no snapshot and no log of ZooKeeper here ({VERSION}/snapshot.*, {VERSION}/log.*)"
            ));
        }
        Ok(Self {
            snapshots,
            logs,
            current_epoch: number(&data.join("currentEpoch"))?,
            accepted_epoch: number(&data.join("acceptedEpoch"))?,
            myid: text(&source.data.join("myid"))?,
            dir: source.data.clone(),
            log_dir: source.log.clone(),
        })
    }

    /// Whether there are logs of ZooKeeper in a directory that no user has named.
    pub(crate) fn has_logs_in(dir: &Path) -> bool {
        numbered(&versioned(dir), "log.").is_ok_and(|logs| !logs.is_empty())
    }
}

/// The directory with the files; a user may have named that.
fn versioned(dir: &Path) -> PathBuf {
    let below = dir.join(VERSION);
    if below.is_dir() { below } else { dir.to_owned() }
}

/// The files whose names are a prefix and a zxid, in ascending order.
fn numbered(dir: &Path, prefix: &str) -> Result<Vec<(i64, PathBuf)>, String> {
    let named = |error: std::io::Error| format!("{}: {error}", dir.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(named)? {
        let path = entry.map_err(named)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(rest) = name.strip_prefix(prefix) else { continue };
        let hex = rest.strip_suffix(".gz").or(rest.strip_suffix(".snappy")).unwrap_or(rest);
        if let Ok(zxid) = u64::from_str_radix(hex, 16) {
            found.push((zxid.cast_signed(), path));
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn text(path: &Path) -> Result<Option<String>, String> {
    match fs::metadata(path) {
        Err(_) => return Ok(None),
        Ok(metadata) if metadata.len() > NUMBER_BYTES_MAX => {
            return Err(format!("{}: it is longer than a number", path.display()));
        }
        Ok(_) => {}
    }
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Some(text.trim().to_owned()))
}

fn number(path: &Path) -> Result<Option<i64>, String> {
    let Some(text) = text(path)? else { return Ok(None) };
    let number = text.parse().ok().filter(|number| *number >= 0);
    number.map(Some).ok_or_else(|| format!("{}: {text:?} is no number of an epoch", path.display()))
}
