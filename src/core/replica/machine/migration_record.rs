//! How far a live migration has come, as the state has it.
//!
//! *Owns* the phases, what is known of the other ensemble, and the record that the disk keeps of both. *Never* changes
//! either.

use bytes::Bytes;

use super::migration_step::{put_texts, texts};
use crate::proto::{Malformed, Reader, Text, Writer};

/// Key of the record that holds it, where there is one.
pub(super) const KEY_MIGRATION: &[u8] = b"m";

/// How far a migration has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// There is no copy of ZooKeeper's state yet, or only a part of one.
    #[default]
    Joining,
    /// This ensemble follows, and serves clients.
    Following,
    /// The link is lost for too long, or was never made again: no client is served until it is back.
    Interrupted,
    /// The copy differs from ZooKeeper's state: no client is served any more.
    Stopped,
    /// This ensemble decides itself. What ZooKeeper still does is watched.
    CutOver,
    /// An operator gave up: there is no copy any more, and no client is served.
    Aborted,
    /// This ensemble has taken over, and the other one is stopped.
    Done,
}

impl Phase {
    /// All of them, as records number them.
    pub const ALL: [Self; 7] = [
        Self::Joining,
        Self::Following,
        Self::Interrupted,
        Self::Stopped,
        Self::CutOver,
        Self::Aborted,
        Self::Done,
    ];

    /// As operators read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Following => "following",
            Self::Interrupted => "interrupted",
            Self::Stopped => "stopped",
            Self::CutOver => "cut-over",
            Self::Aborted => "aborted",
            Self::Done => "done",
        }
    }
}

/// Who decides what clients ask for. It changes with an entry that is applied, and never between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decider {
    /// This ensemble: its log.
    Ensemble,
    /// The ensemble of ZooKeeper that this one follows.
    ZooKeeper,
}

/// What all servers know of a migration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migration {
    /// How far it has come.
    pub phase: Phase,
    /// The id as which this ensemble joins the other one, in the top byte of the sessions that it opens there.
    pub server_id: u8,
    /// Where a leader of ZooKeeper may listen for others, `host:port`.
    pub quorum: Vec<Text>,
    /// Where clients may reach ZooKeeper, `host:port`, besides what its configuration says.
    pub clients: Vec<Text>,
    /// Behind the cutover: the text of ZooKeeper's members.
    pub other_members: Text,
    /// The text of this ensemble's own members.
    pub own_members: Text,
    /// ZooKeeper's epoch, as its leader has said last.
    pub epoch: i64,
    /// zxid of ZooKeeper's last transaction here.
    pub foreign_zxid: i64,
    /// Numbers in ids of sessions (see `followed_session`) below that are given away.
    pub next_session: i64,
    /// How many transactions were compared with ZooKeeper's digest.
    pub compared: u64,
    /// The last one of them.
    pub compared_zxid: i64,
    /// Whether something was taken over that no digest has covered since.
    pub is_unproven: bool,
    /// Why it stopped.
    pub why: Text,
    /// Sessions that ZooKeeper has ended since this ensemble follows, because it did not hear from their clients.
    pub expired: u64,
    /// The last session that is counted there; 0: none.
    pub expired_last: i64,
    /// Bytes of the data of the largest znode that the copy began with.
    pub largest: u64,
    /// Whether the copy is whole: nothing of a snapshot that was written while its server worked on is pending.
    pub is_whole: bool,
}

impl Migration {
    /// Whether clients may be served.
    #[must_use]
    pub fn serves(&self) -> bool {
        matches!(self.phase, Phase::Following | Phase::CutOver | Phase::Done)
    }

    /// Whether ZooKeeper decides, and not this ensemble.
    #[must_use]
    pub fn follows(&self) -> bool {
        !matches!(self.phase, Phase::CutOver | Phase::Done)
    }

    /// Whether a snapshot was loaded since the order to follow was given, whole or not yet.
    #[must_use]
    pub fn has_copy(&self) -> bool {
        self.is_whole || self.is_unproven
    }

    /// Whether ZooKeeper's state at `zxid` is to be that of a copy whose last zxid is `copied`: an epoch that the copy
    /// has followed from its beginning begins with a zxid of its own, which no transaction has.
    #[must_use]
    pub fn is_at(&self, copied: i64, zxid: i64) -> bool {
        zxid == copied || zxid > copied && zxid == self.epoch << 32
    }

    /// Whether the leader is to have a link with ZooKeeper's.
    #[must_use]
    pub fn wants_link(&self) -> bool {
        !matches!(self.phase, Phase::Stopped | Phase::Aborted | Phase::Done)
    }

    pub(super) fn record(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let phase = Phase::ALL.iter().position(|phase| *phase == self.phase).unwrap_or(0);
        out.extend_from_slice(&[u8::try_from(phase).unwrap_or(0), self.server_id]);
        put_texts(&self.quorum, &mut out);
        put_texts(&self.clients, &mut out);
        out.put_string(self.other_members.as_str());
        out.put_string(self.own_members.as_str());
        for number in [self.epoch, self.foreign_zxid, self.next_session] {
            out.put_long(number);
        }
        out.put_long(self.compared.cast_signed());
        out.put_long(self.compared_zxid);
        out.put_string(self.why.as_str());
        out.extend_from_slice(&[u8::from(self.is_whole), u8::from(self.is_unproven)]);
        out.put_long(self.expired.cast_signed());
        out.put_long(self.expired_last);
        out.put_long(self.largest.cast_signed());
        out
    }

    pub(super) fn of_record(record: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(Bytes::copy_from_slice(record));
        let phase = Phase::ALL.get(usize::from(reader.byte("phase")?)).copied();
        let mut migration = Self {
            phase: phase.ok_or(Malformed::new("phase", "is unknown"))?,
            server_id: reader.byte("id")?,
            quorum: texts(&mut reader)?,
            clients: texts(&mut reader)?,
            other_members: reader.string("other members")?,
            own_members: reader.string("members")?,
            epoch: reader.long("epoch")?,
            foreign_zxid: reader.long("zxid")?,
            next_session: reader.long("session")?,
            compared: reader.long("compared")?.cast_unsigned(),
            compared_zxid: reader.long("compared zxid")?,
            why: reader.string("why")?,
            is_whole: reader.byte("whole")? == 1,
            is_unproven: reader.byte("unproven")? == 1,
            expired: 0,
            expired_last: 0,
            largest: 0,
        };
        // A record of before these were counted ends here.
        if reader.remaining() > 0 {
            migration.expired = reader.long("expired")?.cast_unsigned();
            migration.expired_last = reader.long("expired session")?;
            migration.largest = reader.long("largest")?.cast_unsigned();
        }
        match reader.remaining() {
            0 => Ok(migration),
            _ => Err(Malformed::new("migration", "has trailing bytes")),
        }
    }
}
