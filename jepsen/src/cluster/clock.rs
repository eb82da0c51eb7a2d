//! Wall clocks that jump: a server under libfaketime reads by how much from a file.
//!
//! *Never* touches the monotonic clock: a program that waits by it would hang.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where distributions put the library.
const FOLDERS: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime",
    "/usr/lib/aarch64-linux-gnu/faketime",
    "/usr/lib64/faketime",
];
const LIBRARY: &str = "libfaketime.so.1";
/// The file is read whenever a clock is.
const READ_ALWAYS: &str = "FAKETIME_NO_CACHE=1";
/// By how much the trial moves its clock, seconds: two days.
const TRIAL_S: u64 = 172_800;

fn library() -> Result<PathBuf, String> {
    let tried = FOLDERS.map(|folder| Path::new(folder).join(LIBRARY));
    let found = tried.into_iter().find(|file| file.is_file());
    found.ok_or_else(|| format!("there is no {LIBRARY} (the package libfaketime has it)"))
}

/// Whether clocks can be made to jump here; if not, why.
///
/// # Errors
/// They cannot.
pub fn probe() -> Result<(), String> {
    let preload = format!("LD_PRELOAD={}", library()?.display());
    let seconds = |words: &[&str]| {
        let done = Command::new("env").args(words).args(["date", "+%s"]).output();
        let done = done.map_err(|error| format!("env: {error}"))?;
        let text = String::from_utf8_lossy(&done.stdout).trim().to_owned();
        text.parse::<u64>().map_err(|_| format!("date says {text:?}"))
    };
    let trial = format!("FAKETIME=+{TRIAL_S}");
    let moved = seconds(&[&preload, "FAKETIME_DONT_FAKE_MONOTONIC=1", &trial])?;
    match moved.saturating_sub(seconds(&[])?) > TRIAL_S / 2 {
        true => Ok(()),
        false => Err(format!("{LIBRARY} moves no clock")),
    }
}

/// What stands before the command of a server whose clock may jump.
#[must_use]
pub fn prefix(file: &Path) -> Vec<String> {
    let library = library().unwrap_or_default();
    vec![
        "env".to_owned(),
        format!("LD_PRELOAD={}", library.display()),
        "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        READ_ALWAYS.to_owned(),
        format!("FAKETIME_TIMESTAMP_FILE={}", file.display()),
    ]
}

/// From now on the clock is so many seconds ahead.
///
/// # Errors
/// The file cannot be written.
pub fn set(file: &Path, ahead_s: i64) -> Result<(), String> {
    let aside = file.with_extension("new");
    std::fs::write(&aside, format!("{ahead_s:+}\n"))
        .and_then(|()| std::fs::rename(&aside, file))
        .map_err(|error| format!("{}: {error}", file.display()))
}
