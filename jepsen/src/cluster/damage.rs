//! Damage: bytes of a server's data change while it is down, and what it must make of that.
//!
//! *Owns* which bytes change, and what is demanded of the server when it is started again: a damaged
//! log is refused by name, and the operator has the server fetch everything from the others; of
//! images and state store those that are damaged are set aside and made anew. *Invariants*: at most
//! one server is damaged at a time, and only while all others keep up with the leader; what is
//! damaged is in use, so that a server that says nothing of it broke its promise. *Knows* of the
//! log's format only where a record begins and ends.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Cluster, Met, Node, words};
use crate::nemesis::{Harm, Part};
use crate::random::{DAMAGE, Random};

/// Images and segments of the log of this size, so that a short run has several, and a log that was
/// cut behind the older image.
pub(super) const SMALL_IMAGES: u64 = 1 << 20;
/// A damaged server serves within this time, or has refused to; it keeps up within it again.
const BACK_MAX: Duration = Duration::from_secs(60);
/// The state store is looked through in the background; what is wrong is said within this time.
const FOUND_MAX: Duration = Duration::from_secs(10);
/// Pause between looks.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// Directories of a server's data, and what stands at the ends of names in them.
const IMAGES: &str = "image";
const IMAGE: &str = ".image";
const BAD_IMAGE: &str = ".image.bad";
const STATE: &str = "state";
const BAD_STATE: &str = "state.bad-";
const LOG: &str = "log";
const SEGMENT: &str = ".log";
/// What `--rejoin` leaves behind.
const SET_ASIDE: &str = "set-aside-1";
/// Bytes of a segment before its first record, and of a record before its payload.
const SEGMENT_HEADER: usize = 128;
const RECORD_HEADER: usize = 32;
/// Where the length of the payload stands in a record.
const RECORD_LENGTH: usize = 4;
/// A record that is damaged has at least so many behind it: then nobody can take it for a write that
/// was cut off.
const RECORDS_BEHIND: usize = 8;
/// Of a state store one byte in so many changes: some of them are in use.
const STATE_BLOCK: usize = 512;
/// What a server says of a damaged log, of a store of which it found nothing or only what came before
/// the damage, and of an image that another server sent.
const DAMAGED: &str = "damaged at offset";
const MADE_ANEW: [&str; 2] = ["the state store is refilled", "there is no state store"];
const FETCHED: &str = "image fetched";

/// What was damaged of a server, until it has been made whole again.
#[derive(Debug)]
pub(super) struct Wound {
    part: Part,
    /// What had been set aside before, each with the number of its file: names come again.
    aside: BTreeSet<(PathBuf, u64)>,
    /// Bytes that it had said before.
    said: usize,
}

/// How a start went.
enum Start {
    Serves,
    /// It ended, and what it said.
    Ended(String),
    /// Neither, for all that time.
    Hangs,
}

impl Cluster {
    /// Whether the leader has all others following it, or has within some time.
    #[must_use]
    pub fn is_in_step(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            let follows = self.leader().is_some_and(|leader| self.all_follow(leader));
            if follows || Instant::now() >= deadline {
                return follows;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Nobody's vote is missing, also not that of a server that came back under another identity.
    fn all_follow(&self, leader: usize) -> bool {
        let figure = |name| words::figure(self.nodes[leader].address, name);
        let votes = figure("zk_quorum_size");
        let follow = figure("zk_synced_followers").map(|others| others + 1);
        votes == follow
            && votes.is_some_and(|votes| votes >= self.nodes.len() as u64)
            && self.nodes.iter().all(|node| words::mode(node.address).is_some())
    }

    /// Whether every server has so many images.
    #[must_use]
    pub fn have_images(&self, count: usize) -> bool {
        self.nodes.iter().all(|node| node.images().is_ok_and(|images| images.len() >= count))
    }

    /// Kills a server and damages its data. What was done.
    ///
    /// # Errors
    /// It has nothing of the kind; it is down all the same.
    pub fn damage(&mut self, at: usize, harm: Harm) -> Result<String, String> {
        self.kill(at);
        let node = &mut self.nodes[at];
        let mut random = Random::new(harm.chance, DAMAGE);
        let aside = node.aside()?;
        let done = match harm.part {
            Part::Log => damage_log(&node.data().join(LOG), &mut random)?,
            Part::Copies => {
                let images = node.images()?;
                if images.is_empty() {
                    return Err("there is no image".to_owned());
                }
                let images = images.iter().map(|image| flip_one(image, &mut random));
                let images = images.collect::<Result<Vec<String>, String>>()?;
                format!("{}, {}", images.join(", "), node.damage_state(&mut random)?)
            }
            Part::Image => {
                let images = node.images()?;
                flip_one(images.last().ok_or("there is no image")?, &mut random)?
            }
            Part::State => node.damage_state(&mut random)?,
        };
        node.wound = Some(Wound { part: harm.part, aside, said: node.output().len() });
        Ok(done)
    }

    /// Starts a damaged server as its operator does, until it keeps up with the others again, and
    /// looks at what it makes of the damage. What was done.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn revive(&mut self, at: usize) -> Result<Vec<String>, String> {
        let Some(wound) = self.nodes[at].wound.take() else { return Ok(Vec::new()) };
        let name = self.nodes[at].name.clone();
        let mut done = vec![format!("start {name}")];
        self.start(at)?;
        let mut start = self.wait_for(at);
        if wound.part == Part::Log {
            match start {
                Start::Ended(said) if said.contains(DAMAGED) => {
                    let refused = said.split(" | ").find(|line| line.contains(DAMAGED));
                    let refused = refused.unwrap_or_default();
                    self.met.push(Met::Found(wound.part, format!("{name}: {refused}")));
                    done.push(format!("start {name} with --rejoin"));
                    self.start_with(at, &["--rejoin"])?;
                    start = self.wait_for(at);
                }
                Start::Serves => self.crashes.push(format!("{name} serves from a damaged log")),
                Start::Ended(_) | Start::Hangs => {}
            }
        }
        match start {
            Start::Serves => {}
            Start::Ended(said) => self.crashes.push(format!("{name} ended by itself: {said}")),
            Start::Hangs => {
                self.crashes.push(format!("{name} does not serve {BACK_MAX:?} after damage"));
            }
        }
        if wound.part != Part::Log && self.nodes[at].process.is_some() {
            self.look_into(at, &wound);
        }
        // A server that has ended follows no leader, and that is said already.
        if self.nodes[at].process.is_some() && !self.is_in_step(BACK_MAX) {
            self.crashes.push(format!("{name} does not follow {BACK_MAX:?} after damage"));
        }
        self.nodes[at].forget_what_was_set_aside()?;
        Ok(done)
    }

    fn wait_for(&mut self, at: usize) -> Start {
        let node = &mut self.nodes[at];
        let deadline = Instant::now() + BACK_MAX;
        while Instant::now() < deadline {
            let ended = node.process.as_mut().and_then(super::Process::ended);
            if let Some(status) = ended {
                node.process = None;
                return Start::Ended(format!("{status}: {}", node.last_words()));
            }
            if words::mode(node.address).is_some() {
                return Start::Serves;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Start::Hangs
    }

    /// Whether a server that serves again has found the damage.
    fn look_into(&mut self, at: usize, wound: &Wound) {
        let node = &self.nodes[at];
        let deadline = Instant::now() + FOUND_MAX;
        let mut found = node.found(wound);
        while found.is_none() && Instant::now() < deadline {
            std::thread::sleep(LOOK_EVERY);
            found = node.found(wound);
        }
        match (wound.part, found) {
            (part, Some(found)) => {
                self.met.push(Met::Found(part, format!("{}: {found}", node.name)));
            }
            (Part::Log | Part::Copies | Part::Image, None) => {
                self.crashes
                    .push(format!("{} says nothing of damage to {}", node.name, wound.part));
            }
            // All that was changed may lie where nothing is any more.
            (Part::State, None) => {}
        }
    }
}

impl Node {
    /// Its images, oldest first.
    fn images(&self) -> Result<Vec<PathBuf>, String> {
        files(&self.data().join(IMAGES), |name| name.ends_with(IMAGE))
    }

    /// What it has set aside, each with the number of its file.
    fn aside(&self) -> Result<BTreeSet<(PathBuf, u64)>, String> {
        let mut aside = files(&self.data().join(IMAGES), |name| name.ends_with(BAD_IMAGE))?;
        aside.extend(files(&self.data(), |name| name.starts_with(BAD_STATE))?);
        let number = |path: PathBuf| {
            let found = fs::metadata(&path).map_err(|error| fault(&path, &error))?;
            Ok((path, found.ino()))
        };
        aside.into_iter().map(number).collect()
    }

    /// What it made of the damage, once it has.
    fn found(&self, wound: &Wound) -> Option<String> {
        let output = self.output();
        let said = output.get(wound.said..).unwrap_or_default();
        let line = |words: &str| said.lines().find(|line| line.contains(words)).map(str::to_owned);
        let aside = self.aside().ok()?;
        let aside = |what: &str| {
            let mut new = aside.difference(&wound.aside).map(|(path, _)| path);
            new.find(|path| shown(path).contains(what))
                .map(|path| format!("{} is set aside", path.display()))
        };
        match wound.part {
            Part::Log => None,
            Part::Copies => aside(BAD_IMAGE).and(line(FETCHED)),
            Part::Image => aside(BAD_IMAGE),
            Part::State => {
                aside(BAD_STATE).or_else(|| MADE_ANEW.iter().find_map(|words| line(words)))
            }
        }
    }

    fn damage_state(&self, random: &mut Random) -> Result<String, String> {
        let file = self.data().join(STATE).join("db");
        let bytes = read(&file)?;
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let places: Vec<usize> = (0..used)
            .step_by(STATE_BLOCK)
            .map(|block| block + random.index(STATE_BLOCK.min(used - block)))
            .collect();
        match places.is_empty() {
            true => Err("the state store is empty".to_owned()),
            false => flip(&file, bytes, &places, random),
        }
    }

    /// The last thing that an operator does who has a server rejoin.
    fn forget_what_was_set_aside(&self) -> Result<(), String> {
        let aside = self.data().join(SET_ASIDE);
        match aside.exists() {
            true => fs::remove_dir_all(&aside).map_err(|error| fault(&aside, &error)),
            false => Ok(()),
        }
    }
}

/// Changes a byte of a record that has others behind it.
fn damage_log(log: &Path, random: &mut Random) -> Result<String, String> {
    let segments = files(log, |name| name.ends_with(SEGMENT))?;
    for (age, segment) in segments.iter().rev().enumerate() {
        let bytes = read(segment)?;
        let mut records = records(&bytes);
        if age == 0 {
            records.truncate(records.len().saturating_sub(RECORDS_BEHIND));
        }
        if !records.is_empty() {
            let record = records[random.index(records.len())].clone();
            return flip(segment, bytes, &[record.start + random.index(record.len())], random);
        }
    }
    Err("the log has too few records".to_owned())
}

/// Where the records of a segment are: one behind another, each with the same tag as the first.
fn records(bytes: &[u8]) -> Vec<Range<usize>> {
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(word.try_into().expect("four bytes")))
    };
    let mut records = Vec::new();
    let mut start = SEGMENT_HEADER;
    let tag = word(start).filter(|tag| *tag != 0);
    while tag.is_some() && word(start) == tag {
        let length = word(start + RECORD_LENGTH).and_then(|length| usize::try_from(length).ok());
        let end = length.map(|length| start + RECORD_HEADER + length);
        let Some(end) = end.filter(|end| *end <= bytes.len()) else { break };
        records.push(start..end);
        start = end;
    }
    records
}

fn flip_one(file: &Path, random: &mut Random) -> Result<String, String> {
    let bytes = read(file)?;
    match bytes.len() {
        0 => Err(format!("{} is empty", file.display())),
        length => flip(file, bytes, &[random.index(length)], random),
    }
}

/// Changes bits of the bytes at some places. What was done.
fn flip(
    file: &Path,
    mut bytes: Vec<u8>,
    places: &[usize],
    random: &mut Random,
) -> Result<String, String> {
    for at in places {
        bytes[*at] ^= u8::try_from(1 + random.below(255)).expect("below 256");
    }
    fs::write(file, &bytes).map_err(|error| fault(file, &error))?;
    let name = shown(file);
    Ok(match places {
        [at] => format!("{name} at {at}"),
        _ => format!("{name} at {} places", places.len()),
    })
}

/// The files of a directory whose names fit, sorted; none if it is not there.
fn files(folder: &Path, fits: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, String> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder).map_err(|error| fault(folder, &error))?;
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| fits(&shown(path))).collect();
    files.sort();
    Ok(files)
}

fn shown(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    fs::read(file).map_err(|error| fault(file, &error))
}

fn fault(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment with records of these payloads, and room behind them.
    fn segment(payloads: &[u32]) -> Vec<u8> {
        let mut bytes = vec![7; SEGMENT_HEADER];
        for length in payloads {
            bytes.extend([1, 2, 3, 4]);
            bytes.extend(length.to_le_bytes());
            bytes.resize(bytes.len() + RECORD_HEADER - 8 + *length as usize, 9);
        }
        bytes.resize(bytes.len() + 4096, 0);
        bytes
    }

    #[test]
    fn records_are_found_one_behind_another_up_to_the_room_behind_them() {
        assert_eq!(records(&segment(&[8, 40])), [128..168, 168..240]);
        assert_eq!(records(&segment(&[])), []);
        assert_eq!(records(&segment(&[8, 40])[..200]).len(), 1);
    }

    #[test]
    fn what_is_damaged_of_a_log_is_a_byte_that_has_records_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["01.log", "02.log"].map(|name| folder.path().join(name));
        let (older, newer) = (segment(&[8; 3]), segment(&[8; 20]));
        let behind = records(&newer)[20 - RECORDS_BEHIND].start;
        for chance in 0..100 {
            fs::write(&files[0], &older).unwrap();
            fs::write(&files[1], &newer).unwrap();
            damage_log(folder.path(), &mut Random::new(chance, DAMAGE)).unwrap();
            assert_eq!(read(&files[0]).unwrap(), older);
            let now = read(&files[1]).unwrap();
            let changed: Vec<usize> = (0..now.len()).filter(|at| now[*at] != newer[*at]).collect();
            assert!(changed.len() == 1 && changed[0] < behind, "{changed:?}");
        }
        // Too few in the newer one: what is in an older one has the newer one behind it.
        fs::write(&files[1], segment(&[8; RECORDS_BEHIND])).unwrap();
        damage_log(folder.path(), &mut Random::new(1, DAMAGE)).unwrap();
        assert_ne!(read(&files[0]).unwrap(), older);
        fs::remove_file(&files[0]).unwrap();
        assert!(damage_log(folder.path(), &mut Random::new(1, DAMAGE)).is_err());
    }
}
