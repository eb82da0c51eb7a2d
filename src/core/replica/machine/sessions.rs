//! Sessions as all servers know them: who is open, with which password and timeout.
//!
//! *Owns* the replicated session table and its records. *Invariants*: a session id is in it from
//! the transaction that opens it to the one that closes it; its digest follows every change; a
//! session that came and went between two drains leaves nothing.
//! *Never* looks at a clock: when a session is overdue is the business of `sessions/expiry.rs`.
//!
//! Reproduces the replicated half of `SessionTrackerImpl`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use twox_hash::XxHash3_128;

use crate::proto::Reader;
use crate::proto::connect::{PASSWORD_BYTES, Password};
use crate::replica::request::ConnId;
use crate::tree::TakeChange;
use crate::zookeeper::password::password as computed_password;

/// First byte of a session's record key.
pub(in crate::replica) const KEY_SESSION: u8 = b's';

/// The owner of a session that no connection of this ensemble has.
pub(in crate::replica) const NO_CONNECTION: (u64, ConnId) = (0, 0);

/// One open session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::replica) struct Session {
    /// Timeout negotiated when it was opened.
    pub(in crate::replica) timeout_ms: i32,
    /// Its password.
    pub(in crate::replica) password: Password,
    /// The only connection whose writes count: process and number (see `txn::Origin`).
    pub(in crate::replica) owner: (u64, ConnId),
}

/// The open sessions.
#[derive(Debug, Default)]
pub(in crate::replica) struct Sessions {
    open: BTreeMap<i64, Session>,
    digest: u128,
    dirty: BTreeSet<i64>,
    /// Sessions of which the disk may hold a record.
    stored: BTreeSet<i64>,
    keep_all_tombstones: bool,
}

impl Sessions {
    pub(in crate::replica) fn find(&self, id: i64) -> Option<&Session> {
        self.open.get(&id)
    }

    pub(in crate::replica) fn is_open(&self, id: i64) -> bool {
        self.open.contains_key(&id)
    }

    pub(in crate::replica) fn len(&self) -> usize {
        self.open.len()
    }

    pub(in crate::replica) fn iter(&self) -> impl Iterator<Item = (i64, &Session)> {
        self.open.iter().map(|(id, session)| (*id, session))
    }

    /// Digest of the table, independent of the order of its making.
    pub(in crate::replica) fn digest(&self) -> u128 {
        self.digest
    }

    /// Opens a session; false if that id is open already.
    pub(in crate::replica) fn open(&mut self, id: i64, session: Session) -> bool {
        if self.is_open(id) {
            return false;
        }
        self.digest = self.digest.wrapping_add(digest_of(id, &session));
        self.open.insert(id, session);
        self.dirty.insert(id);
        true
    }

    /// Opens a session of ZooKeeper, or gives an open one its timeout.
    pub(super) fn open_foreign(&mut self, id: i64, timeout_ms: i32) -> Session {
        let owner = self.find(id).map_or(NO_CONNECTION, |open| open.owner);
        let session = Session { timeout_ms, password: computed_password(id), owner };
        if !self.open(id, session) {
            return self.attach(id, session).unwrap_or(session);
        }
        session
    }

    /// Gives a session another owner; `None` if it is not open or the password is another one.
    pub(in crate::replica) fn attach(&mut self, id: i64, asked: Session) -> Option<Session> {
        let known = self
            .open
            .get_mut(&id)
            .filter(|known| known.password == asked.password || mutant!("any-password"))?;
        self.digest = self.digest.wrapping_sub(digest_of(id, known));
        *known = asked;
        self.digest = self.digest.wrapping_add(digest_of(id, known));
        self.dirty.insert(id);
        Some(asked)
    }

    /// Takes a session from its connection, if it is this one: what comes behind on that connection is refused, until
    /// the session's client attaches it again.
    pub(in crate::replica) fn leave(&mut self, id: i64, owner: (u64, ConnId)) {
        if mutant!("writes-behind-lost-go-on") {
            return;
        }
        let Some(known) = self.open.get_mut(&id).filter(|known| known.owner == owner) else {
            return;
        };
        self.digest = self.digest.wrapping_sub(digest_of(id, known));
        known.owner = NO_CONNECTION;
        self.digest = self.digest.wrapping_add(digest_of(id, known));
        self.dirty.insert(id);
    }

    /// Closes a session; false if it is not open.
    pub(in crate::replica) fn close(&mut self, id: i64) -> bool {
        let Some(session) = self.open.remove(&id) else { return false };
        self.digest = self.digest.wrapping_sub(digest_of(id, &session));
        if self.keep_all_tombstones {
            self.stored.insert(id);
        }
        if self.stored.contains(&id) {
            self.dirty.insert(id);
        } else {
            self.dirty.remove(&id);
        }
        true
    }

    /// Takes back a record.
    pub(in crate::replica) fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let (id, session) = session_of(key, value)?;
        if !self.open(id, session) {
            return Err("a session that is there twice".into());
        }
        self.stored.insert(id);
        self.dirty.clear();
        Ok(())
    }

    /// Every record is to be drained again.
    pub(in crate::replica) fn mark_all_changed(&mut self) {
        self.dirty.extend(self.open.keys());
    }

    /// While on, every closed session leaves a tombstone: during replay it is not known which the disk
    /// already had.
    pub(in crate::replica) fn keep_all_tombstones(&mut self, on: bool) {
        self.keep_all_tombstones = on;
    }

    pub(in crate::replica) fn changes_waiting(&self) -> usize {
        self.dirty.len()
    }

    /// Hands out changed records, at most `records_max`.
    pub(in crate::replica) fn drain(&mut self, records_max: usize, out: &mut TakeChange<'_>) {
        for _ in 0..records_max {
            let Some(id) = self.dirty.pop_first() else { return };
            let mut key = [KEY_SESSION; 9];
            key[1..].copy_from_slice(&id.to_be_bytes());
            match self.open.get(&id) {
                Some(session) => {
                    self.stored.insert(id);
                    out(&key, Some(&record_of(session)));
                }
                None => {
                    self.stored.remove(&id);
                    out(&key, None);
                }
            }
        }
    }
}

const RECORD_BYTES: usize = 4 + 8 + 8 + PASSWORD_BYTES;

fn record_of(session: &Session) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..4].copy_from_slice(&session.timeout_ms.to_be_bytes());
    record[4..12].copy_from_slice(&session.owner.0.to_be_bytes());
    record[12..20].copy_from_slice(&session.owner.1.to_be_bytes());
    record[20..].copy_from_slice(&session.password);
    record
}

fn digest_of(id: i64, session: &Session) -> u128 {
    let mut input = [0; 1 + 8 + RECORD_BYTES];
    input[0] = KEY_SESSION;
    input[1..9].copy_from_slice(&id.to_be_bytes());
    input[9..].copy_from_slice(&record_of(session));
    XxHash3_128::oneshot(&input)
}

/// The session of a record.
fn session_of(key: &[u8], value: &[u8]) -> Result<(i64, Session), String> {
    let id = <[u8; 8]>::try_from(&key[1..]).map_err(|_| "a session key of a wrong length")?;
    let value = <[u8; RECORD_BYTES]>::try_from(value)
        .map_err(|_| "a session record of a wrong length".to_owned())?;
    let mut value = Reader::new(Bytes::copy_from_slice(&value));
    let wrong = |_| "a session record of a wrong length".to_owned();
    let session = Session {
        timeout_ms: value.int("timeout").map_err(wrong)?,
        owner: (
            value.long("server").map_err(wrong)?.cast_unsigned(),
            value.long("connection").map_err(wrong)?.cast_unsigned(),
        ),
        password: Password::try_from(&value.rest()[..]).expect("16 of 36"),
    };
    Ok((i64::from_be_bytes(id), session))
}

/// What the session of a stored record adds to the digest of its table.
///
/// # Errors
/// It is no record.
pub(in crate::replica) fn record_digest(key: &[u8], value: &[u8]) -> Result<u128, String> {
    let (id, session) = session_of(key, value)?;
    Ok(digest_of(id, &session))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_bring_back_table_and_digest() {
        let mut sessions = Sessions::default();
        for id in [-3, 1, 7] {
            assert!(
                sessions.open(
                    id,
                    Session { timeout_ms: 4000, password: [id as u8; 16], owner: (1, 2) }
                )
            );
        }
        assert!(!sessions.open(7, Session { timeout_ms: 1, password: [0; 16], owner: (1, 2) }));
        assert!(sessions.close(1));
        assert!(!sessions.close(1));
        let mut records = Vec::new();
        sessions.drain(100, &mut |key, value| {
            records.push((key.to_vec(), value.map(<[u8]>::to_vec)));
        });
        let mut again = Sessions::default();
        for (key, value) in records {
            if let Some(value) = value {
                again.load(&key, &value).unwrap();
            }
        }
        assert_eq!((again.open, again.digest), (sessions.open, sessions.digest));
        assert_eq!(again.dirty.len(), 0);
    }

    const SESSION: Session = Session { timeout_ms: 1, password: [1; 16], owner: (1, 2) };

    /// Drains everything: ids, and whether each has a record.
    fn drained(sessions: &mut Sessions) -> Vec<(i64, bool)> {
        let mut ids = Vec::new();
        sessions.drain(100, &mut |key, value| {
            let id = <[u8; 8]>::try_from(&key[1..]).unwrap();
            ids.push((i64::from_be_bytes(id), value.is_some()));
        });
        ids
    }

    #[test]
    fn a_session_that_came_and_went_between_two_drains_leaves_nothing() {
        let mut sessions = Sessions::default();
        for id in 0..1000 {
            sessions.open(id, SESSION);
            sessions.close(id);
        }
        assert_eq!(sessions.changes_waiting(), 0);
        assert_eq!((sessions.dirty.len(), sessions.stored.len()), (0, 0));
    }

    #[test]
    fn a_stored_session_leaves_one_tombstone() {
        let mut sessions = Sessions::default();
        sessions.open(1, SESSION);
        assert_eq!(drained(&mut sessions), [(1, true)]);
        sessions.close(1);
        sessions.open(1, SESSION);
        sessions.close(1);
        assert_eq!(drained(&mut sessions), [(1, false)]);
        assert_eq!(sessions.stored.len(), 0);
        sessions.open(1, SESSION);
        sessions.close(1);
        assert_eq!(drained(&mut sessions), []);
    }

    #[test]
    fn a_loaded_session_leaves_a_tombstone() {
        let mut sessions = Sessions::default();
        let mut key = [KEY_SESSION; 9];
        key[1..].copy_from_slice(&5i64.to_be_bytes());
        sessions.load(&key, &record_of(&SESSION)).unwrap();
        sessions.close(5);
        assert_eq!(drained(&mut sessions), [(5, false)]);
    }

    #[test]
    fn during_replay_every_closed_session_leaves_a_tombstone() {
        let mut sessions = Sessions::default();
        sessions.keep_all_tombstones(true);
        sessions.open(1, SESSION);
        sessions.close(1);
        assert_eq!(drained(&mut sessions), [(1, false)]);
    }

    #[test]
    fn a_table_that_is_emptied_has_the_digest_of_an_empty_one() {
        let mut sessions = Sessions::default();
        sessions.open(5, Session { timeout_ms: 1, password: [1; 16], owner: (1, 2) });
        sessions.close(5);
        assert_eq!(sessions.digest(), 0);
    }
}
