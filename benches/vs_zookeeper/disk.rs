//! What the disk can do at this moment: appends made durable one by one.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

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

/// What must be left on the disk while something is measured for long.
const ROOM_MIN: u64 = 4 << 30;

/// Objects when little room is left on the disk that has `folder`: some servers never remove what they
/// have written, and a disk without room belongs to others too.
pub fn keep_room(folder: &Path) -> Result<(), String> {
    let disk = rustix::fs::statvfs(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let room = disk.f_bavail.saturating_mul(disk.f_frsize);
    match room >= ROOM_MIN {
        true => Ok(()),
        false => Err(format!("{}: only {} MiB are left on its disk", folder.display(), room >> 20)),
    }
}

/// Time from one append of a patrol to the next.
const PATROL_INTERVAL: Duration = Duration::from_millis(50);

/// One append of a patrol.
#[derive(Clone, Copy, Debug)]
pub struct Patrolled {
    /// From when it was to begin to when it did: the processors were busy.
    pub late: Duration,
    /// Until it was durable.
    pub took: Duration,
}

/// Makes a small append to a file in `folder` durable twenty times a second, and tells of each, until
/// nobody can stop it any more.
pub fn patrol(folder: &Path, stop: &Receiver<()>, told: &Sender<Patrolled>) -> Result<(), String> {
    let path = folder.join(format!("patrol-{}", std::process::id()));
    let outcome = go_round(&path, stop, told).map_err(|e| format!("{}: {e}", path.display()));
    fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    outcome
}

fn go_round(path: &Path, stop: &Receiver<()>, told: &Sender<Patrolled>) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let mut due = Instant::now() + PATROL_INTERVAL;
    loop {
        match stop.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        let began = Instant::now();
        file.write_all(&[0x5a; APPEND_SIZE])?;
        file.sync_data()?;
        let took = began.elapsed();
        // Fails only if nobody listens, who will then also not wait for the end.
        let _ = told.send(Patrolled { late: began - due, took });
        due = (due + PATROL_INTERVAL).max(began + took);
    }
}
