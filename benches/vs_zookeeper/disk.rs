//! What the disk can do at this moment: appends made durable one by one.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// Appends of one probe.
const APPENDS: usize = 100;
/// Bytes of one append, about a logged write of the benchmark.
const APPEND_SIZE: usize = 256;

/// How many times a second a small append to a file in `folder` can be made durable.
pub fn syncs_per_second(folder: &Path) -> Result<f64, String> {
    let path = folder.join(format!("probe-{}", std::process::id()));
    let outcome = probe(&path).map_err(|e| format!("{}: {e}", path.display()));
    fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    outcome
}

fn probe(path: &Path) -> std::io::Result<f64> {
    let mut file = File::create(path)?;
    let began = Instant::now();
    for _ in 0..APPENDS {
        file.write_all(&[0x5a; APPEND_SIZE])?;
        file.sync_data()?;
    }
    Ok(APPENDS as f64 / began.elapsed().as_secs_f64())
}
