//! Has valgrind count the instructions of one body.

use std::fs;
use std::process::{Command, Stdio};

/// The function whose instructions, and those of what it calls, are counted.
const COUNTED: &str = "*bodies::counted*";

/// Says so if valgrind is not there.
pub fn find() -> Result<(), String> {
    let mut command = Command::new("valgrind");
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("valgrind does not work: {status}; nothing was counted")),
        Err(e) => Err(format!(
            "valgrind is not installed ({e}); nothing was counted (on Debian: apt-get install valgrind)"
        )),
    }
}

/// Runs this program again, with the body of this name.
pub fn instructions(body: &str) -> Result<u64, String> {
    let failed = |what: &dyn std::fmt::Display| format!("{body}: {what}");
    let this = std::env::current_exe().map_err(|e| failed(&e))?;
    let name = format!("counts-{}-{body}.callgrind", std::process::id());
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", path.display()))
        .arg(this)
        .args(["--body", body])
        .output()
        .map_err(|e| failed(&e))?;
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr)));
    }
    let text = fs::read_to_string(&path).map_err(|e| failed(&e))?;
    fs::remove_file(&path).map_err(|e| failed(&e))?;
    let total = text.lines().rev().find_map(|line| {
        let rest = line.strip_prefix("totals:").or_else(|| line.strip_prefix("summary:"))?;
        rest.trim().parse::<u64>().ok()
    });
    match total {
        Some(0) => Err(failed(&"nothing was counted: the function was not found in the program")),
        Some(total) => Ok(total),
        None => Err(failed(&"valgrind has written no total")),
    }
}
