//! What a server says of itself to another: who it is, or what it would bring to an ensemble that is yet to be founded.
//!
//! *Owns* these values, and what can be read off them: which ensemble a server has a state of, and what the data of a
//! server on its own has become. *Never* decides what follows from that: `Founding` and `LostMajority` do.

use crate::config::ServerSpec;
use crate::replica::durable::Membership;
use crate::replica::machine::Machine;
use crate::replica::setup::Restored;

/// What a server says of itself to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Introduction {
    /// It belongs to no ensemble yet.
    Founding(Undecided),
    /// It belongs to an ensemble.
    Founded(Identified),
}

impl Introduction {
    /// What is said to a stranger: nothing.
    #[must_use]
    pub fn withheld() -> Self {
        Self::Founding(Undecided::default())
    }

    /// Whether an empty ensemble is not to be founded beside this server: it has a state, or may turn out to have one.
    #[must_use]
    pub fn may_be_a_state(&self) -> bool {
        match self {
            Self::Founded(_) => true,
            Self::Founding(said) => {
                matches!(said.brings, Brings::State { .. }) || said.brings.may_be_a_state()
            }
        }
    }

    /// What this server has in the place of `ensemble` and serves, or may come to serve; `None` if it has nothing, or
    /// that ensemble's log.
    #[must_use]
    pub fn elsewhere(&self, ensemble: u128) -> Option<Elsewhere> {
        match self {
            Self::Founded(identity) => Some(Elsewhere::Of(identity.ensemble)),
            Self::Founding(said) => match said.brings {
                Brings::Nothing => None,
                Brings::Unread => Some(Elsewhere::Unread),
                Brings::Position(position) => Some(Elsewhere::Of(position.ensemble)),
                // Its own server would found with it.
                Brings::State { ensemble, .. } => return Some(Elsewhere::Of(ensemble)),
            },
        }
        .filter(|elsewhere| *elsewhere != Elsewhere::Of(ensemble))
    }
}

/// An operator's word that servers found an ensemble without others. Two of the same content are one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Word {
    /// Participants that are left out: a minority. In order.
    pub without: Vec<u8>,
    /// All the others, each with the nonce of the life in which it was heard when this was said. In order.
    pub with: Vec<(u8, u64)>,
}

impl Word {
    /// Whether it was said of this life of a server.
    #[must_use]
    pub fn binds(&self, server: u8, nonce: u64) -> bool {
        let binds = |(id, known): &(u8, u64)| {
            *id == server && (*known == nonce || mutant!("word-of-another-life"))
        };
        self.with.iter().any(binds)
    }
}

/// Answer of the ports of a server that says nothing to other servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// It serves clients.
    Serves {
        /// In this mode.
        mode: String,
        /// Program and version, as it gives them.
        version: String,
    },
    /// It runs, and says that it serves none.
    ServesNot,
    /// A connection was made and nothing was said: it is not known whether a server runs there.
    Mute,
    /// No connection was made: it was refused, or took too long.
    Closed,
}

/// What a server has that has gone another way than an ensemble: see [`Introduction::elsewhere`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Elsewhere {
    /// A state of this ensemble.
    Of(u128),
    /// It has a state and is still reading it.
    Unread,
}

impl std::fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Of(ensemble) => write!(f, "a state of the ensemble {ensemble:032x}"),
            Self::Unread => f.write_str("a state that it is still reading from its disk"),
        }
    }
}

/// A server that belongs to no ensemble yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Undecided {
    /// Drawn when it was started.
    pub nonce: u64,
    /// The participant that it takes for the one that founds, perhaps itself.
    pub candidate: Option<u8>,
    /// What it would bring along.
    pub brings: Brings,
    /// Its server lines.
    pub lines: Vec<ServerSpec>,
    /// An operator's word that it consents to.
    pub word: Option<Word>,
    /// Whether that was said to this server.
    pub is_told: bool,
}

/// What a server without an ensemble has on its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Brings {
    /// Nothing: no data, or that of a server on its own that never had a session or a write.
    #[default]
    Nothing,
    /// It has been a server on its own, and is still reading its disk.
    Unread,
    /// What its log holds of an ensemble that lost its majority: an operator is deciding whether it goes on alone.
    Position(Position),
    /// The state of a server on its own.
    State {
        /// The ensemble that it is, with one server.
        ensemble: u128,
        /// Znodes in it, as ZooKeeper counts them.
        znodes: u64,
    },
}

impl Brings {
    /// Whether it has to be waited for: it may turn out to be a state.
    pub(super) fn may_be_a_state(self) -> bool {
        match self {
            Self::Unread => true,
            Self::Position(_) => !mutant!("empty-servers-found-beside-recovery"),
            Self::Nothing | Self::State { .. } => false,
        }
    }
}

/// How far the log of a server of an ensemble goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// The ensemble.
    pub ensemble: u128,
    /// The term of the last entry.
    pub term: u64,
    /// Its index.
    pub index: u64,
}

impl Position {
    /// What decides which of two logs of an ensemble holds more: as in an election.
    #[must_use]
    pub fn rank(&self) -> (u64, u64) {
        (self.term, self.index)
    }
}

/// What the data of a server on its own has become, by what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// It has founded an ensemble, and others have joined.
    Member,
    /// It has served clients by itself: so many znodes there are, as ZooKeeper counts them.
    Served {
        /// With the root twice.
        znodes: u64,
    },
    /// It never had a session or a write.
    Unused,
}

impl Past {
    /// Of the server with this raft id, whose identity says that it is on its own.
    #[must_use]
    pub fn of(raft_id: u64, machine: &Machine, restored: &Restored) -> Self {
        let is_alone = restored.membership.voters == [raft_id]
            && !machine.has_replayed_changes()
            && machine.members_text().is_empty();
        if !is_alone {
            return Self::Member;
        }
        if (machine.last_zxid() == 0 || mutant!("state-counts-as-empty"))
            && !mutant!("unused-counts-as-state")
        {
            return Self::Unused;
        }
        Self::Served { znodes: machine.tree().node_count() as u64 + 1 }
    }
}

/// Who a server is, durably.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identified {
    /// The ensemble.
    pub ensemble: u128,
    /// The server's raft id.
    pub raft_id: u64,
    /// Server id and nonce of the server that founded the ensemble, and in data of earlier versions of each
    /// that it heard. Empty if this server joined later, or was a standalone one.
    pub founders: Vec<(u8, u64)>,
    /// Who took part when the ensemble was founded: equal on all its servers, also those that came
    /// later, because the log's changes of membership begin with it.
    pub initial: Membership,
    /// The server lines with which the ensemble begins, as its founder put them together: each server's
    /// address as others name it. Empty on a server on its own, and in data of earlier versions.
    pub members: Vec<ServerSpec>,
}
