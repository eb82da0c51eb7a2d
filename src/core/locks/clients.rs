//! Whose the znodes are: sessions, by what all servers that were asked say of them.
//!
//! *Owns* the join of several servers' [`Local`]. *Invariant*: that a session is not connected is said
//! only if every server has answered in full.

use std::collections::BTreeMap;

use super::snapshot::{Connection, Local, Snapshot, Watch, WatchKind};

/// Sessions, their connections and their watches.
#[derive(Clone, Debug, Default)]
pub struct Clients<'a> {
    timeouts_ms: BTreeMap<i64, i32>,
    connections: BTreeMap<i64, (u64, &'a Connection)>,
    deadlines_ms: BTreeMap<i64, u64>,
    watches: BTreeMap<i64, Vec<&'a Watch>>,
    /// Sessions that watch a child itself, by the directory, with the child's name.
    watches_below: BTreeMap<&'a str, Vec<(i64, &'a str)>>,
    /// Whether all that may have a client have answered.
    is_complete: bool,
    /// Whether a client may be at an ensemble of ZooKeeper, which nothing here knows of.
    may_be_elsewhere: bool,
}

/// Where a session's client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Connected.
    Connected {
        /// To this server.
        server: u64,
        /// From this `ip:port`.
        remote: String,
        /// Milliseconds since something came from it.
        heard_ms: u64,
    },
    /// It has no connection to any server.
    Disconnected,
    /// It has none to any server of this ensemble: it is at the ZooKeeper that is followed, or gone.
    Elsewhere,
    /// It has none to those servers that have answered.
    Unknown,
    /// There is no session: the znode is not ephemeral.
    NoSession,
}

impl<'a> Clients<'a> {
    /// What these servers say, each by its number. `is_complete`: there is no other one.
    #[must_use]
    pub fn new(
        snapshot: &'a Snapshot,
        locals: &[(u64, &'a Local)],
        is_complete: bool,
    ) -> Clients<'a> {
        let is_whole = is_complete && locals.iter().all(|(_, local)| !local.is_cut);
        let mut clients = Clients {
            is_complete: is_whole && !snapshot.follows,
            may_be_elsewhere: is_whole && snapshot.follows,
            ..Clients::default()
        };
        clients.timeouts_ms = snapshot.sessions.iter().map(|s| (s.id, s.timeout_ms)).collect();
        for (server, local) in locals {
            for standing in &local.sessions {
                if let Some(expires_in_ms) = standing.expires_in_ms {
                    clients.deadlines_ms.insert(standing.id, expires_in_ms);
                }
                let Some(connection) = &standing.connection else { continue };
                // A client that has just moved may be at both.
                let known = clients.connections.get(&standing.id);
                if known.is_none_or(|(_, known)| known.heard_ms > connection.heard_ms) {
                    clients.connections.insert(standing.id, (*server, connection));
                }
            }
            for watch in &local.watches {
                clients.watches.entry(watch.session).or_default().push(watch);
                if watch.kind == WatchKind::Data
                    && let Some((directory, name)) = watch.path.rsplit_once('/')
                {
                    let below = clients.watches_below.entry(directory).or_default();
                    below.push((watch.session, name));
                }
            }
        }
        clients
    }

    /// Where a session's client is.
    #[must_use]
    pub fn presence(&self, session: i64) -> Presence {
        match self.connections.get(&session) {
            _ if session == 0 => Presence::NoSession,
            Some((server, connection)) => Presence::Connected {
                server: *server,
                remote: connection.remote.clone(),
                heard_ms: connection.heard_ms,
            },
            None if self.is_complete => Presence::Disconnected,
            None if self.may_be_elsewhere => Presence::Elsewhere,
            None => Presence::Unknown,
        }
    }

    /// A session's timeout, ms.
    #[must_use]
    pub fn timeout_ms(&self, session: i64) -> Option<i32> {
        self.timeouts_ms.get(&session).copied()
    }

    /// Milliseconds until a session expires unless heard from.
    #[must_use]
    pub fn expires_in_ms(&self, session: i64) -> Option<u64> {
        self.deadlines_ms.get(&session).copied()
    }

    /// How many watches a session has, on whatever; 0 if that is not known.
    #[must_use]
    pub fn watch_count(&self, session: i64) -> u64 {
        self.connections.get(&session).map_or(0, |(_, connection)| connection.watches)
    }

    /// What a session watches of what was asked for. `None`: the server that would know has not answered.
    pub(super) fn watches(&self, session: i64) -> Option<&[&'a Watch]> {
        let known = self.watches.get(&session).map(Vec::as_slice);
        match known {
            Some(known) => Some(known),
            None if self.is_complete || self.connections.contains_key(&session) => Some(&[]),
            None => None,
        }
    }

    /// Sessions that watch a child of that directory itself, with the child's name.
    pub(super) fn watches_below(&self, directory: &str) -> &[(i64, &'a str)] {
        let known = self.watches_below.get(directory.trim_end_matches('/'));
        known.map_or(&[], Vec::as_slice)
    }

    /// Whether a session would hear of changes in the list of children of a znode.
    pub(super) fn watches_list(&self, session: i64, path: &str) -> bool {
        self.watches(session).unwrap_or_default().iter().any(|watch| match watch.kind {
            WatchKind::Children | WatchKind::Persistent => watch.path == path,
            WatchKind::Recursive => super::snapshot::is_below(path, &watch.path),
            WatchKind::Data => false,
        })
    }
}
