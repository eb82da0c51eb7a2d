//! Why a connection to a leader has ended.

use std::fmt;

use crate::proto::Malformed;
use crate::sasl::Disbelief;

/// Why a connection to a leader has ended, or must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Something that it sent is not what its kind of packet carries.
    Malformed(Malformed),
    /// A packet that no leader sends to an observer.
    UnknownPacket {
        /// The number of its kind.
        kind: i32,
    },
    /// A packet that has no place here.
    Unexpected {
        /// Its name.
        packet: &'static str,
        /// What this server was doing.
        stage: &'static str,
    },
    /// It leads in an older epoch than one that this server has followed.
    OlderEpoch {
        /// The epoch that was followed.
        accepted: i64,
        /// The leader's.
        leader: i64,
    },
    /// This server has transactions that the leader does not have (TRUNC). A leader tells its observers of a
    /// transaction before it applies it itself, and compares with what it has applied: a server that comes back at that
    /// moment is told this, too, so it is worth another attempt.
    Ahead {
        /// Up to which the leader would have them cut off.
        zxid: i64,
    },
    /// It sends what is new (DIFF) to a server that has nothing.
    NothingToAddTo,
    /// A transaction is missing, or comes in the wrong order.
    Gap {
        /// The zxid that comes next. (The first one of a later epoch would also be right.)
        expected: i64,
        /// The one that came.
        got: i64,
    },
    /// The transactions that it announced have not come.
    Short {
        /// Up to which they were announced.
        announced: i64,
        /// Up to which they came.
        got: i64,
    },
    /// A COMMIT is not of the oldest proposal without one.
    WrongCommit {
        /// The oldest proposal; `None`: there is none.
        expected: Option<i64>,
        /// The zxid of the COMMIT.
        got: i64,
    },
    /// UPTODATE came before the COMMIT of a proposal.
    Uncommitted {
        /// The proposal.
        zxid: i64,
    },
    /// It does not know this server's user, or not this password.
    Refused,
    /// It has not proved that it knows the password of this server's user.
    WrongLogin(Disbelief),
    /// It answers what was not asked.
    Unasked {
        /// The name of the packet.
        packet: &'static str,
    },
    /// Nothing came from it.
    Silent {
        /// For this long.
        ms: u64,
        /// What this server was doing.
        stage: &'static str,
    },
    /// It has closed the connection.
    Closed {
        /// What this server was doing.
        stage: &'static str,
    },
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => {
                write!(f, "ZooKeeper's leader sent something malformed: {malformed}")
            }
            Self::UnknownPacket { kind } => {
                write!(f, "ZooKeeper's leader sent a packet of the kind {kind}, which is none for an observer")
            }
            Self::Unexpected { packet, stage } => {
                write!(f, "ZooKeeper's leader sent {packet} while this server was {stage}")
            }
            Self::OlderEpoch { accepted, leader } => write!(
                f,
                "ZooKeeper's leader leads in epoch {leader}, and epoch {accepted} was followed before"
            ),
            Self::Ahead { zxid } => write!(
                f,
                "this server has transactions that ZooKeeper's leader does not have: it would have them cut off \
                 behind 0x{zxid:x}"
            ),
            Self::NothingToAddTo => f.write_str(
                "ZooKeeper's leader sent only what is new, without a snapshot, to a server that has nothing",
            ),
            Self::Gap { expected, got } => write!(
                f,
                "ZooKeeper's leader sent the transaction 0x{got:x} where 0x{expected:x} comes next"
            ),
            Self::Short { announced, got } => write!(
                f,
                "ZooKeeper's leader announced the transactions up to 0x{announced:x} and sent those up to 0x{got:x}"
            ),
            Self::WrongCommit { expected: Some(expected), got } => write!(
                f,
                "ZooKeeper's leader committed 0x{got:x} before 0x{expected:x}, which it had proposed earlier"
            ),
            Self::WrongCommit { expected: None, got } => {
                write!(f, "ZooKeeper's leader committed 0x{got:x}, which it had not proposed")
            }
            Self::Uncommitted { zxid } => write!(
                f,
                "ZooKeeper's leader said that everything had come, and had not committed 0x{zxid:x}, which it had \
                 proposed"
            ),
            Self::Refused => f.write_str(
                "ZooKeeper's leader refused the login of this server: the name or the password is wrong",
            ),
            Self::WrongLogin(disbelief) => {
                write!(f, "the login at ZooKeeper's leader failed: {disbelief}")
            }
            Self::Unasked { packet } => {
                write!(f, "ZooKeeper's leader sent {packet}, the answer to something that was not asked")
            }
            Self::Silent { ms, stage } => write!(
                f,
                "nothing has come from ZooKeeper's leader for {ms} ms while this server was {stage}"
            ),
            Self::Closed { stage } => {
                write!(f, "ZooKeeper's leader closed the connection while this server was {stage}")
            }
        }
    }
}

impl std::error::Error for Ended {}

impl From<Malformed> for Ended {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<Disbelief> for Ended {
    fn from(disbelief: Disbelief) -> Self {
        Self::WrongLogin(disbelief)
    }
}
