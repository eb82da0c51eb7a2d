//! Log lines about the room that is left on the disks of the data and of the log.
//!
//! *Owns* what room is too little, and what was said of it. *Invariants*: a disk with too little room is said within
//! [`LOOK_INTERVAL`], again after each [`SAID_AGAIN`] while that lasts, and once when there is room again, which takes
//! a fourth more; of one disk under both directories there is one line; a disk that gives no answer is not spoken of.
//! *Never* on the driver's thread, which a disk that hangs must not stop.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::admin::DiskFigures;
use crate::config::Config;
use crate::server::metrics::Figures;
use crate::supervision::{Task, spawn_blocking};

/// Time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Too little room is said again after this.
const SAID_AGAIN: Duration = Duration::from_secs(5 * 60);
/// Less is too little for any server: other programs write to most disks, too.
const ROOM_MIN: u64 = 256 << 20;

/// A file system, as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Disk {
    device: u64,
    free_bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub(in crate::server) struct RoomLog {
    data_dir: PathBuf,
    log_dir: PathBuf,
    image_log_bytes: u64,
    data: Told,
    log: Told,
}

/// What was said of the disk under one directory: when, while it has too little room.
#[derive(Debug, Default)]
struct Told(Option<Instant>);

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    TooLittle { directory: PathBuf, free_bytes: u64, needed_bytes: u64 },
    Enough { directory: PathBuf, free_bytes: u64 },
}

impl RoomLog {
    /// Of a server with this configuration.
    pub(in crate::server) fn new(config: &Config) -> Self {
        Self {
            data_dir: config.data_dir.clone(),
            log_dir: config.data_log_dir.clone(),
            image_log_bytes: config.image_log_bytes,
            data: Told::default(),
            log: Told::default(),
        }
    }

    /// Looks at the disks until it is dropped.
    pub(in crate::server) async fn follow(mut self, figures: Arc<Figures>) {
        loop {
            let written = *figures.disk();
            let look = move || {
                let lines = self.look(disk_of, &written, Instant::now());
                (self, lines)
            };
            // A panic of it ends the server.
            let Ok((looked, lines)) = spawn_blocking(Task::Room, look).await else { return };
            self = looked;
            for line in lines {
                say(&line);
            }
            sleep(LOOK_INTERVAL).await;
        }
    }

    fn look(
        &mut self,
        disk_of: impl Fn(&Path) -> Option<Disk>,
        written: &DiskFigures,
        now: Instant,
    ) -> Vec<Line> {
        let (data, log) = (disk_of(&self.data_dir), disk_of(&self.log_dir));
        // The next image and the changes of the state's copy, which take no more than both do now; and the log, which
        // is cut behind an image: that is due after so many bytes, or as many as the state has, and is being written
        // for as long again at most.
        let for_data = written.data_dir_bytes;
        let for_log = self.image_log_bytes.max(written.data_dir_bytes).saturating_mul(2);
        let is_one = data.zip(log).is_some_and(|(data, log)| data.device == log.device);
        let (for_data, log) = match is_one {
            true => (for_data.saturating_add(for_log), None),
            false => (for_data, log),
        };
        let data = self.data.look(data, &self.data_dir, for_data.max(ROOM_MIN), now);
        let log = self.log.look(log, &self.log_dir, for_log.max(ROOM_MIN), now);
        [data, log].into_iter().flatten().collect()
    }
}

impl Told {
    fn look(
        &mut self,
        disk: Option<Disk>,
        directory: &Path,
        needed_bytes: u64,
        now: Instant,
    ) -> Option<Line> {
        let Disk { free_bytes, .. } = disk?;
        let directory = directory.to_owned();
        if free_bytes < needed_bytes {
            if self.0.is_some_and(|said| now.saturating_duration_since(said) < SAID_AGAIN) {
                return None;
            }
            self.0 = Some(now);
            return Some(Line::TooLittle { directory, free_bytes, needed_bytes });
        }
        if free_bytes < needed_bytes.saturating_add(needed_bytes / 4) {
            return None;
        }
        self.0.take().map(|_| Line::Enough { directory, free_bytes })
    }
}

fn disk_of(directory: &Path) -> Option<Disk> {
    let device = rustix::fs::stat(directory).ok()?.st_dev;
    let disk = rustix::fs::statvfs(directory).ok()?;
    Some(Disk { device, free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize) })
}

fn say(line: &Line) {
    match line {
        Line::TooLittle { directory, free_bytes, needed_bytes } => tracing::warn!(
            "little room on the disk of {}: {} MiB are free, and the next image and the log until then may take {} \
             MiB. A server whose disk is full ends: make room, or move dataDir or dataLogDir to a larger disk",
            directory.display(),
            free_bytes >> 20,
            needed_bytes >> 20,
        ),
        Line::Enough { directory, free_bytes } => tracing::info!(
            "there is room again on the disk of {}: {} MiB are free",
            directory.display(),
            free_bytes >> 20,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn room_log() -> RoomLog {
        RoomLog {
            data_dir: "/data".into(),
            log_dir: "/log".into(),
            image_log_bytes: 64 * MIB,
            data: Told::default(),
            log: Told::default(),
        }
    }

    /// Both directories on one disk with so much room.
    fn one_disk(free_mib: u64) -> impl Fn(&Path) -> Option<Disk> {
        move |_| Some(Disk { device: 1, free_bytes: free_mib * MIB })
    }

    fn too_little(directory: &str, free_mib: u64, needed_mib: u64) -> Line {
        let (free_bytes, needed_bytes) = (free_mib * MIB, needed_mib * MIB);
        Line::TooLittle { directory: directory.into(), free_bytes, needed_bytes }
    }

    #[test]
    fn too_little_room_is_said_at_once_and_each_few_minutes_and_once_when_it_is_over() {
        let (mut room, begun) = (room_log(), Instant::now());
        let written = DiskFigures::default();
        let mut look =
            |free_mib, s| room.look(one_disk(free_mib), &written, begun + Duration::from_secs(s));
        assert_eq!(look(256, 0), []);
        assert_eq!(look(255, 10), [too_little("/data", 255, 256)]);
        // It flaps at the bound.
        for s in 2..30 {
            assert_eq!(look(250 + 60 * (s % 2), s * 10), []);
        }
        assert_eq!(look(100, 310), [too_little("/data", 100, 256)]);
        assert_eq!(look(319, 320), []);
        let enough = Line::Enough { directory: "/data".into(), free_bytes: 320 * MIB };
        assert_eq!(look(320, 330), [enough]);
        assert_eq!(look(320, 340), []);
        assert_eq!(look(255, 350), [too_little("/data", 255, 256)]);
    }

    #[test]
    fn what_is_needed_grows_with_the_data_and_each_disk_is_spoken_of() {
        let (mut room, now) = (room_log(), Instant::now());
        let written = DiskFigures { data_dir_bytes: 1000 * MIB, ..DiskFigures::default() };
        assert_eq!(room.look(one_disk(3000), &written, now), []);
        assert_eq!(room.look(one_disk(2999), &written, now), [too_little("/data", 2999, 3000)]);
        let mut room = room_log();
        let two_disks = |directory: &Path| {
            let device = u64::from(directory == Path::new("/log"));
            Some(Disk { device, free_bytes: 900 * MIB })
        };
        let lines = [too_little("/data", 900, 1000), too_little("/log", 900, 2000)];
        assert_eq!(room.look(two_disks, &written, now), lines);
        assert_eq!(room.look(|_| None, &written, now + SAID_AGAIN), [], "the disks do not answer");
    }

    #[test]
    fn the_disk_of_a_directory_has_room() {
        let disk = disk_of(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(disk.free_bytes > 0);
        assert_eq!(disk_of(Path::new("/no/such/directory")), None);
    }
}
