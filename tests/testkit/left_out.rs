//! Record of the checks that a test run leaves out because the machine lacks something.
//!
//! *Owns* the line that says so. `cargo test` shows nothing of a test that passes, so the line also goes to a file: the
//! one that `LOCKKEEPER_LEFT_OUT` names, or else one of this run of cargo, which `tests/left_out` shows at its end.

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Begins the names of the files; the number of the process of cargo follows.
const PREFIX: &str = "left-out-";

/// File of this run: cargo is the parent of each of its test programs.
///
/// # Panics
///
/// When this is no program that cargo built.
#[must_use]
pub fn file() -> PathBuf {
    if let Some(path) = std::env::var_os("LOCKKEEPER_LEFT_OUT") {
        return path.into();
    }
    let this = std::env::current_exe().expect("this test runs");
    let target = this.ancestors().nth(3).expect("it is in target/<profile>/deps");
    let cargo = rustix::process::Pid::as_raw(rustix::process::getppid());
    target.join(format!("{PREFIX}{cargo}"))
}

/// Removes the file of this run, and those of runs that did not come to their end or ran a part.
///
/// # Panics
///
/// When the folder of the files cannot be read.
pub fn remove_files_of_ended_runs(own: &Path) {
    let folder = own.parent().expect("it is in a folder");
    for entry in std::fs::read_dir(folder).expect("the folder of the files") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(cargo) = name.strip_prefix(PREFIX) else { continue };
        if path == own || !Path::new("/proc").join(cargo).exists() {
            // Another run may have been faster.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Says that `what` is not tested here, and why.
///
/// # Panics
///
/// When the file cannot be written.
pub fn left_out(what: &str, why: &str) {
    let line = format!("LEFT OUT: {what}: {why}");
    eprintln!("{line}");
    let file = std::fs::File::options().append(true).create(true).open(file());
    // Whole lines: tests run side by side.
    file.expect("the file").write_all(format!("{line}\n").as_bytes()).expect("it takes the line");
}
