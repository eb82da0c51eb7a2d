//! Whose data directory this is, and of which format.
//!
//! *Owns* the file `identity`: a few lines of text and their checksum. *Invariants*: it is replaced
//! as a whole; it says `ready` only once there is a log, so that a log that is missing later is
//! never taken for one that was not made yet; all that the founding of an ensemble decided is in
//! it, so that a server whose data is gone never votes again under the raft id that it had.
//! *Never* guesses: a directory that has data but no identity is refused.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::formats::{KNOWN, written_at};
use crate::fs::{Fs, FsError, read_file, write_file};
use crate::log::LogOptions;
use crate::mark::MEMBERS_MAX;
use lockkeeper_core::replica::Membership;
use lockkeeper_core::replica::founding::{Identified, ServerSpec};
use lockkeeper_core::replica::peer::{raft_id, server_of};
use lockkeeper_core::replica::txn_version::{FIRST, NEWEST, RELEASE};

/// The first layouts of a data directory. The first one knew standalone servers only, the second one
/// does not know with which server lines the ensemble began. From the fourth one on, it says which release wrote it.
const FORMAT: u32 = 3;
const FORMAT_STANDALONE: u32 = 1;
const FORMAT_WITHOUT_LINES: u32 = 2;
/// Raft id of every server that format 1 describes, whatever its own id.
const RAFT_ID_STANDALONE: u64 = 1;
/// Most founders an ensemble can have: one for each server id.
const FOUNDERS_MAX: usize = 255;
/// Its name.
pub(crate) const FILE: &str = "identity";
const TEMPORARY: &str = "identity.tmp";
const FIRST_LINE: &str = "lockkeeper data directory";
/// What stands for an empty list.
const NONE: &str = "none";
/// Before the ensemble from which a server went on alone.
const ALONE: &str = "alone-after";
/// Before the participants that were left out.
const WITHOUT: &str = "without";
/// Before the release that wrote it.
const RELEASE_NAME: &str = "release";
/// Most characters of that.
const RELEASE_LEN_MAX: usize = 40;
/// Most bytes of the file: more than the longest lists and server lines need.
const BYTES_MAX: u64 = 128 << 10;

/// Whose data it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The ensemble, a random number chosen when it was founded.
    pub cluster_id: u128,
    /// The server: myid.
    pub server_id: u8,
    /// The server as Raft knows it, see [`server_of`].
    pub raft_id: u64,
    /// Who took part before the first entry, by raft id.
    pub membership: Membership,
    /// Who founded the ensemble: server ids, and the number that each had drawn for it. None, on
    /// a server that joined later or is on its own.
    pub founders: Vec<(u8, u64)>,
    /// The server lines with which the ensemble begins. None on a server on its own.
    pub members: Vec<ServerSpec>,
    /// Participants that an operator had left out when this server founded the ensemble. Formats before the fourth do
    /// not keep it where the ensemble goes on from data that an earlier program may read.
    pub without: Vec<u8>,
    /// The ensemble from which this server went on alone, because an operator declared the others dead.
    pub alone_after: Option<u128>,
    /// Whether the log was made.
    pub ready: bool,
    /// The version of the ensemble whose formats the files have.
    pub version: u8,
}

/// Why an identity cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file system failed.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A later version made the directory.
    #[error("{}: the data has format {format}{by}, this program, lockkeeper {RELEASE}, knows up to {}: \
             use {}. Nothing was changed", path.display(), KNOWN.identity, remedy(release.as_deref()),
             by = written_by(release.as_deref()))]
    Future {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
        /// The release that wrote it, if it says so.
        release: Option<String>,
    },
    /// The file is not what was written.
    #[error("{}: damaged: {what}; nothing was changed: restore the file from a copy", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl Identity {
    /// A new server whose place in an ensemble was decided.
    #[must_use]
    pub fn new(server_id: u8, decided: Identified) -> Self {
        let Identified { ensemble, raft_id, founders, initial, members } = decided;
        let new = Self::standalone(ensemble, server_id);
        Self { raft_id, membership: initial, founders, members, ..new }
    }

    /// Whether this is a server on its own, as far as the identity says: the log may have made it the
    /// first member of an ensemble since.
    #[must_use]
    pub fn is_standalone(&self) -> bool {
        self.founders.is_empty()
            && self.membership.voters == [self.raft_id]
            && self.membership.learners.is_empty()
    }

    /// What the server says of itself to others.
    #[must_use]
    pub fn identified(&self) -> Identified {
        Identified {
            ensemble: self.cluster_id,
            raft_id: self.raft_id,
            founders: self.founders.clone(),
            initial: self.membership.clone(),
            members: self.members.clone(),
        }
    }

    /// A new server on its own.
    #[must_use]
    pub fn standalone(cluster_id: u128, server_id: u8) -> Self {
        let raft_id = raft_id(0, server_id);
        Self {
            cluster_id,
            server_id,
            raft_id,
            membership: Membership { voters: vec![raft_id], learners: Vec::new() },
            founders: Vec::new(),
            members: Vec::new(),
            without: Vec::new(),
            alone_after: None,
            ready: false,
            version: FIRST,
        }
    }

    /// Reads the identity of `dir`; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or of a later version.
    pub fn load(fs: &dyn Fs, dir: &Path) -> Result<Option<Self>, IdentityError> {
        if !fs.has(dir, FILE)? {
            return Ok(None);
        }
        let path = dir.join(FILE);
        let bytes = read_file(fs, &path, BYTES_MAX)?;
        match parse(&bytes) {
            Ok(identity) => Ok(Some(identity)),
            Err(Unusable::Future { format, release }) => {
                Err(IdentityError::Future { path, format, release })
            }
            Err(Unusable::Damaged(what)) => Err(IdentityError::Damaged { path, what }),
        }
    }

    /// Writes it to `dir`, durable on return.
    ///
    /// # Errors
    /// The file system failed; what was there before still is.
    pub fn store(&self, fs: &dyn Fs, dir: &Path) -> Result<(), FsError> {
        write_file(fs, dir, TEMPORARY, self.text().as_bytes())?;
        fs.rename(&dir.join(TEMPORARY), &dir.join(FILE))?;
        fs.sync_dir(dir)
    }

    /// The owner that the log's segments name: the raft id, so that the log of an earlier
    /// incarnation is not taken for this one's. Format 1 wrote the server's id there.
    fn log_owner(&self) -> u64 {
        if server_of(self.raft_id) == self.server_id { self.raft_id } else { self.server_id.into() }
    }

    /// What the server's log is opened with.
    pub(super) fn log_options(&self, segment_bytes: u64, ensemble: bool) -> LogOptions {
        let (cluster_id, node_id) = (self.cluster_id, self.log_owner());
        LogOptions { cluster_id, node_id, segment_bytes, ensemble }
    }

    fn text(&self) -> String {
        let founders: Vec<String> =
            self.founders.iter().map(|(id, nonce)| format!("{id}:{nonce:016x}")).collect();
        let line = |spec: &ServerSpec| format!("server.{}={spec}\n", spec.id);
        let lines: String = self.members.iter().map(line).collect();
        let format = written_at(self.version).identity;
        let release = match format > FORMAT {
            true => format!("{RELEASE_NAME} {RELEASE}\n"),
            false => String::new(),
        };
        let alone = self.alone_after.map(|before| format!("{ALONE} {before:032x}\n"));
        let alone = alone.unwrap_or_default();
        // An earlier program may read data that are older than the founding.
        let keeps_without = format > FORMAT || !self.founders.is_empty();
        let without = match keeps_without && !self.without.is_empty() {
            true => format!("{WITHOUT} {}\n", list(&self.without)),
            false => String::new(),
        };
        sealed(&format!(
            "{FIRST_LINE}\nformat {format}\n{release}ensemble {:032x}\nserver {}\nraft {}\nvoters {}\n\
             learners {}\nfounders {}\nmembers {}\n{}{without}{alone}state {}\n",
            self.cluster_id,
            self.server_id,
            self.raft_id,
            list(&self.membership.voters),
            list(&self.membership.learners),
            list(&founders),
            self.members.len(),
            lines,
            if self.ready { "ready" } else { "new" }
        ))
    }
}

/// The text with its checksum: the last line in every format.
fn sealed(body: &str) -> String {
    format!("{body}crc32c {:08x}\n", crc32c::crc32c(body.as_bytes()))
}

fn list<T: Display>(items: &[T]) -> String {
    if items.is_empty() {
        return NONE.to_owned();
    }
    items.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}

enum Unusable {
    Future { format: u32, release: Option<String> },
    Damaged(String),
}

fn written_by(release: Option<&str>) -> String {
    release.map_or(String::new(), |release| format!(" (lockkeeper {release} wrote it)"))
}

fn remedy(release: Option<&str>) -> String {
    let release = release.map(|release| format!("lockkeeper {release} or a later one"));
    release.unwrap_or_else(|| "the release that wrote it, or a later one".to_owned())
}

/// A release as it is shown: a file may say anything.
fn shown(release: &str) -> String {
    release.chars().filter(|c| c.is_ascii_graphic()).take(RELEASE_LEN_MAX).collect()
}

fn damaged(what: impl Into<String>) -> Unusable {
    Unusable::Damaged(what.into())
}

fn parse(bytes: &[u8]) -> Result<Identity, Unusable> {
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not text"))?;
    if text.lines().next() != Some(FIRST_LINE) {
        return Err(damaged("it does not begin like an identity"));
    }
    // The checksum first: a format that is damaged must not be taken for a later one.
    let body = match text.rfind("crc32c ") {
        Some(at) if sealed(&text[..at]) == text => &text[..at],
        Some(_) => return Err(damaged("checksum mismatch")),
        None => return Err(damaged("no line 'crc32c'")),
    };
    let mut lines = Lines(body.lines());
    lines.0.next();
    let identity = match lines.number("format")? {
        FORMAT_STANDALONE => standalone(&mut lines)?,
        FORMAT_WITHOUT_LINES => of_an_ensemble(&mut lines, false, FIRST)?,
        FORMAT => of_an_ensemble(&mut lines, true, FIRST)?,
        later if later == KNOWN.identity => {
            lines.value(RELEASE_NAME)?;
            of_an_ensemble(&mut lines, true, NEWEST)?
        }
        0 => return Err(damaged("its format is 0")),
        later => {
            let release = lines.value(RELEASE_NAME).ok().map(shown);
            return Err(Unusable::Future { format: later, release });
        }
    };
    match lines.0.next() {
        None => Ok(identity),
        Some(line) => Err(damaged(format!("a line too many: '{line}'"))),
    }
}

fn standalone(lines: &mut Lines<'_>) -> Result<Identity, Unusable> {
    let cluster_id = lines.hex("cluster")?;
    let node: u64 = lines.number("node")?;
    let server_id = u8::try_from(node).map_err(|_| damaged(format!("no server has id {node}")))?;
    let membership = Membership { voters: vec![RAFT_ID_STANDALONE], learners: Vec::new() };
    let (raft_id, ready) = (RAFT_ID_STANDALONE, lines.ready()?);
    Ok(Identity { raft_id, membership, ready, ..Identity::standalone(cluster_id, server_id) })
}

/// Its lines, in this order.
fn of_an_ensemble(
    lines: &mut Lines<'_>,
    has_lines: bool,
    version: u8,
) -> Result<Identity, Unusable> {
    let number = |word: &str| word.parse().ok();
    Ok(Identity {
        cluster_id: lines.hex("ensemble")?,
        server_id: lines.number("server")?,
        raft_id: lines.number("raft")?,
        membership: Membership {
            voters: lines.list("voters", MEMBERS_MAX, number)?,
            learners: lines.list("learners", MEMBERS_MAX, number)?,
        },
        founders: lines.list("founders", FOUNDERS_MAX, |word| {
            let (id, nonce) = word.split_once(':')?;
            Some((id.parse().ok()?, u64::from_str_radix(nonce, 16).ok()?))
        })?,
        members: if has_lines { lines.members()? } else { Vec::new() },
        without: lines.without()?,
        alone_after: lines.alone_after()?,
        ready: lines.ready()?,
        version,
    })
}

/// Lines of a name and a value.
struct Lines<'a>(std::str::Lines<'a>);

impl<'a> Lines<'a> {
    fn value(&mut self, name: &str) -> Result<&'a str, Unusable> {
        self.0
            .next()
            .and_then(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .ok_or_else(|| damaged(format!("no line '{name}'")))
    }

    fn number<T: FromStr>(&mut self, name: &str) -> Result<T, Unusable> {
        let value = self.value(name)?;
        value.parse().map_err(|_| damaged(format!("its {name} is not a number: '{value}'")))
    }

    fn hex(&mut self, name: &str) -> Result<u128, Unusable> {
        let value = self.value(name)?;
        u128::from_str_radix(value, 16).map_err(|_| damaged(format!("no {name} id: '{value}'")))
    }

    fn list<T>(
        &mut self,
        name: &str,
        max: usize,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, Unusable> {
        let value = self.value(name)?;
        if value == NONE {
            return Ok(Vec::new());
        }
        let words = value.split(' ');
        if words.clone().count() > max {
            return Err(damaged(format!("more than {max} {name}")));
        }
        let items: Option<Vec<T>> = words.map(parse).collect();
        items.ok_or_else(|| damaged(format!("unusable {name}: '{value}'")))
    }

    /// How many server lines follow, and then each of them.
    fn members(&mut self) -> Result<Vec<ServerSpec>, Unusable> {
        let count: usize = self.number("members")?;
        if count > FOUNDERS_MAX {
            return Err(damaged(format!("more than {FOUNDERS_MAX} server lines")));
        }
        let mut members = Vec::with_capacity(count);
        for _ in 0..count {
            let line = self.0.next().unwrap_or_default();
            let member = ServerSpec::parse_line(line);
            members.push(member.map_err(|reason| damaged(format!("'{line}': {reason}")))?);
        }
        Ok(members)
    }

    /// A line that is there only where an operator has declared a server alone.
    fn alone_after(&mut self) -> Result<Option<u128>, Unusable> {
        self.has(ALONE).then(|| self.hex(ALONE)).transpose()
    }

    /// A line that is there only where an operator has left servers out of a founding.
    fn without(&mut self) -> Result<Vec<u8>, Unusable> {
        match self.has(WITHOUT) {
            true => self.list(WITHOUT, FOUNDERS_MAX, |word| word.parse().ok()),
            false => Ok(Vec::new()),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.0.clone().next().is_some_and(|line| line.starts_with(name))
    }

    fn ready(&mut self) -> Result<bool, Unusable> {
        match self.value("state")? {
            "ready" => Ok(true),
            "new" => Ok(false),
            other => Err(damaged(format!("unknown state '{other}'"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OsFs;

    fn founder() -> Identity {
        Identity {
            cluster_id: 0xabc,
            server_id: 3,
            raft_id: 3,
            membership: Membership { voters: vec![1, 2, 3], learners: vec![4] },
            founders: vec![(1, 0x77), (3, u64::MAX)],
            members: vec![
                ServerSpec::parse(1, "a:1:2;3").unwrap(),
                ServerSpec::parse(4, "[::1]:1:2:observer").unwrap(),
            ],
            without: Vec::new(),
            alone_after: None,
            ready: true,
            version: FIRST,
        }
    }

    fn joiner() -> Identity {
        Identity {
            raft_id: raft_id(0xdead_beef, 3),
            membership: Membership::default(),
            founders: Vec::new(),
            ..founder()
        }
    }

    #[test]
    fn an_identity_survives_storing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Identity::load(&OsFs, dir.path()).unwrap(), None);
        let alone = Identity { alone_after: Some(5), ..founder() };
        let without = Identity { without: vec![0, 254], version: NEWEST, ..founder() };
        for identity in [founder(), joiner(), alone, without, Identity::standalone(u128::MAX, 254)]
        {
            for ready in [false, true] {
                let identity = Identity { ready, ..identity.clone() };
                identity.store(&OsFs, dir.path()).unwrap();
                assert_eq!(Identity::load(&OsFs, dir.path()).unwrap(), Some(identity));
            }
        }
    }

    #[test]
    fn what_a_server_says_of_itself_is_what_was_decided() {
        for identity in [founder(), joiner()] {
            let new = Identity::new(3, identity.identified());
            assert_eq!(new, Identity { ready: false, ..identity });
        }
    }

    #[test]
    fn the_largest_ensemble_fits() {
        let dir = tempfile::tempdir().unwrap();
        let members: Vec<u64> = (0..MEMBERS_MAX as u64).map(|i| u64::MAX - i).collect();
        let identity = Identity {
            membership: Membership { voters: members.clone(), learners: members },
            founders: (1..=255).map(|id| (id, u64::MAX)).collect(),
            ..founder()
        };
        identity.store(&OsFs, dir.path()).unwrap();
        assert_eq!(Identity::load(&OsFs, dir.path()).unwrap(), Some(identity.clone()));
        let mut too_many = identity;
        too_many.membership.voters.push(1);
        assert!(parse(too_many.text().as_bytes()).is_err());
    }

    #[test]
    fn every_changed_or_missing_byte_is_noticed() {
        let alone = Identity { alone_after: Some(5), ..founder() };
        for text in [founder().text(), joiner().text(), alone.text()] {
            for at in 0..text.len() {
                let cut = parse(&text.as_bytes()[..at]);
                assert!(matches!(cut, Err(Unusable::Damaged(_))), "cut at {at}");
                for bit in 0..8 {
                    let mut bytes = text.clone().into_bytes();
                    bytes[at] ^= 1 << bit;
                    let changed = parse(&bytes);
                    assert!(matches!(changed, Err(Unusable::Damaged(_))), "byte {at} bit {bit}");
                }
            }
        }
    }

    #[test]
    fn format_1_is_read_as_a_server_on_its_own() {
        for (node, log_owner) in [(1, 1), (7, 7)] {
            let text = sealed(&format!(
                "{FIRST_LINE}\nformat 1\ncluster {:032x}\nnode {node}\nstate ready\n",
                0xabc
            ));
            let identity = parse(text.as_bytes()).unwrap_or_else(|_| panic!("node {node}"));
            let expected =
                Identity { ready: true, server_id: node, ..Identity::standalone(0xabc, 1) };
            assert_eq!(identity, expected);
            assert_eq!(identity.log_owner(), log_owner);
        }
    }

    #[test]
    fn format_2_is_read_without_server_lines() {
        let text = founder().text();
        let at = text.find("members").unwrap();
        let state = text.find("state").unwrap();
        let body = format!("{}state ready\n", &text[..at]).replace("format 3", "format 2");
        assert!(text[at..state].contains("server.4=[::1]:1:2:observer\n"), "{text}");
        let identity = parse(sealed(&body).as_bytes()).unwrap_or_else(|_| panic!("{body}"));
        assert_eq!(identity, Identity { members: Vec::new(), ..founder() });
    }

    #[test]
    fn a_later_format_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let (later, known) = (KNOWN.identity + 1, KNOWN.identity);
        let words = |lines: &str| {
            let text = sealed(&format!("{FIRST_LINE}\nformat {later}\n{lines}"));
            std::fs::write(dir.path().join(FILE), text).unwrap();
            Identity::load(&OsFs, dir.path()).unwrap_err().to_string()
        };
        let named = words("release 7.8.9\nsomething new\n");
        assert!(
            named.contains(&format!("the data has format {later} (lockkeeper 7.8.9 wrote it)")),
            "{named}"
        );
        assert!(
            named.contains(&format!("knows up to {known}: use lockkeeper 7.8.9 or a later one")),
            "{named}"
        );
        let nameless = words("something new\n");
        assert!(nameless.contains("use the release that wrote it, or a later one"), "{nameless}");
    }
}
