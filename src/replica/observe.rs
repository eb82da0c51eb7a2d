//! What a replica shows of itself.
//!
//! *Owns* nothing: reads the figures and the tables that the other files keep. *Never* changes
//! anything but what an operator asked to be reset.

use super::inspect::{Inspect, Mode, Report, SessionReport, Status};
use super::{Figures, Replica};
use crate::proto::Text;
use crate::tree::path;

impl Replica {
    /// Figures, cheap to take.
    #[must_use]
    pub fn status(&self) -> Status {
        let tree = self.machine.tree();
        let figures = &self.clients.figures;
        Status {
            serving: self.is_serving(),
            mode: if self.is_serving() { Mode::Standalone } else { Mode::Looking },
            zxid: self.machine.last_zxid(),
            term: self.consensus.term(),
            applied: self.applied.0,
            persisted: self.consensus.persisted_index(),
            // ZooKeeper's count has the root twice.
            znode_count: tree.node_count() as u64 + 1,
            ephemerals_count: tree.ephemeral_count() as u64,
            approximate_data_size: tree.data_size(),
            watch_count: self.clients.watches.total(),
            connections: self.clients.open_count(),
            sessions: self.machine.session_count(),
            outstanding: figures.outstanding,
            read_latency: figures.read_latency,
            write_latency: figures.write_latency,
            txns_applied: self.machine.txns_applied(),
            proposals: self.figures.proposals,
            sessions_expired: self.figures.sessions_expired,
            connections_refused: self.figures.connections_refused,
            auth_failed: figures.auth_failed,
            events_fired: figures.events_fired,
            watch_bytes: figures.watch_bytes,
            digest: self.machine.digest(),
            changes_waiting: self.machine.changes_waiting(),
            leader: None,
            election_count: 0,
            leader_changes: 0,
            leading_ms: None,
            forwarded: 0,
            local_sessions: 0,
            proposal_sizes: None,
            peers: Vec::new(),
        }
    }

    pub(super) fn inspect(&mut self, what: Inspect) -> Report {
        match what {
            Inspect::Connections => Report::Connections(self.clients.reports()),
            Inspect::Sessions => {
                let sessions = self.machine.sessions().iter().map(|(id, session)| SessionReport {
                    id,
                    timeout_ms: session.timeout_ms,
                    expires_in_ms: self.expiry.remaining_ms(id),
                    connected: self.clients.connection_of(id).is_some(),
                });
                Report::Sessions(sessions.collect())
            }
            Inspect::Ephemerals => {
                let all = self.machine.tree().sessions_with_ephemerals();
                let text = |paths: Vec<Text>| paths.iter().map(Text::to_string).collect();
                Report::Ephemerals(all.map(|(session, paths)| (session, text(paths))).collect())
            }
            Inspect::Watches => Report::Watches(self.clients.watch_report()),
            Inspect::Digests => Report::Digests(self.machine.digests()),
            Inspect::Membership => {
                let text = self.machine.tree().data_unchecked(path::CONFIG).unwrap_or_default();
                Report::Membership(String::from_utf8_lossy(text).into_owned())
            }
            Inspect::ResetConnections => {
                self.clients.reset_reports();
                Report::Reset
            }
            Inspect::ResetServer => {
                self.figures = Figures::default();
                self.clients.figures.reset();
                Report::Reset
            }
        }
    }
}
