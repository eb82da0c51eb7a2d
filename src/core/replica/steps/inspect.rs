//! What a replica shows of itself.
//!
//! *Owns* nothing: reads the figures and the tables that the other files keep. *Never* changes
//! anything but what an operator asked to be reset.

use crate::config::{Role, ServerSpec};
use crate::proto::Text;
use crate::replica::Replica;
use crate::replica::consensus::PeerProgress;
use crate::replica::inspect::{
    Inspect, Mode, PeerStatus, Report, SessionReport, Standings, Status,
};
use crate::replica::messages::server_of;

impl Replica {
    /// Figures, cheap to take.
    #[must_use]
    pub fn status(&self) -> Status {
        let tree = self.state.machine().tree();
        let (counts, figures) = (&self.figures.counts, self.clients.figures());
        Status {
            serving: self.is_serving(),
            migration: self.migration_figures(),
            mode: self.mode(),
            zxid: self.state.machine().last_zxid(),
            ensemble_version: self.state.machine().version(),
            differing: self.differing(),
            comparisons_agreed: self.comparison.agreed(),
            scrubs: self.comparison.scrubs_done(),
            leader_rules: self.state.machine().stamped_rules(),
            term: self.consensus.term(),
            applied: self.state.at().0,
            persisted: self.consensus.durable_index(),
            disk_waits_ms: self.consensus.disk().waits_ms(),
            is_disk_hung: self.is_disk_hung(),
            disk_handovers: counts.disk_handovers,
            stamps_ahead_ms: self.stamps_ahead_ms(),
            time_stands_still: self.time_stands_still(),
            time_returns: counts.time_returns,
            time_returned_ms: counts.time_returned_ms,
            // ZooKeeper's count has the root twice.
            znode_count: tree.node_count() as u64 + 1,
            ephemerals_count: tree.ephemeral_count() as u64,
            approximate_data_size: tree.data_size(),
            watch_count: self.clients.watches().total(),
            connections: self.clients.open_count(),
            sessions: self.state.machine().session_count(),
            outstanding: figures.outstanding,
            reads_answered: figures.reads_answered,
            answers_postponed: figures.postponed,
            work_ms: self.clients.total_work() / 1_000_000,
            writes_answered: figures.writes_answered,
            queues_drained: figures.queues_drained,
            txns_applied: self.state.machine().txns_applied(),
            proposals: counts.proposals,
            proposals_unapplied: self.proposals_unapplied(),
            entries_received: counts.entries_received,
            commits_received: counts.commits_received,
            sessions_revalidated: counts.sessions_revalidated,
            revalidations_led: counts.revalidations_led,
            lock_stays_unmeasured: counts.lock_stays_unmeasured,
            sessions_expired: counts.sessions_expired,
            connections_refused: counts.connections_refused,
            auth_failed: figures.auth_failed,
            events_fired: figures.events_fired,
            watch_bytes: figures.watch_bytes,
            digest: self.state.digest(),
            changes_waiting: self.state.machine().changes_waiting(),
            leader: self.known_leader(),
            election_count: self.consensus.elections(),
            leader_changes: self.leadership.changes(),
            peer_messages_dropped: counts.peer_messages_dropped,
            leading_ms: self
                .leadership
                .leads()
                .map(|_| (self.clocks.now_us() - self.leadership.led_since_us()) / 1000),
            forwarded: counts.forwards,
            local_sessions: self.sessions.local_count() as u64,
            pending_syncs: self.clients.syncs_waiting(),
            proposal_sizes: counts.proposal_sizes,
            votes: self.consensus.counting().contains(&self.consensus.id()),
            participants: self.participants(),
            peers: self.ensemble.peer_status().to_vec(),
        }
    }

    fn participants(&self) -> u64 {
        if self.setup.ensemble.is_some() { self.ensemble.participants() as u64 } else { 0 }
    }

    fn proposals_unapplied(&self) -> u64 {
        let leads = self.leadership.leads().is_some();
        if leads { self.consensus.last_index().saturating_sub(self.state.at().0) } else { 0 }
    }

    fn mode(&self) -> Mode {
        match (&self.setup.ensemble, self.is_serving()) {
            (_, false) if self.is_read_only() => Mode::ReadOnly,
            (_, false) => Mode::Looking,
            (None, true) => Mode::Standalone,
            (Some(_), true) if self.leadership.leads().is_some() => Mode::Leader,
            (Some(_), true) => match self.ensemble.own_role() {
                Role::Participant => Mode::Follower,
                Role::Observer => Mode::Observer,
            },
        }
    }

    pub(in crate::replica) fn known_leader(&self) -> Option<u8> {
        let leader = self.consensus.leader().map(server_of);
        leader.filter(|_| self.setup.ensemble.is_some())
    }

    /// Looks at the other servers anew.
    pub(in crate::replica) fn observe_peers(&mut self) {
        if self.setup.ensemble.is_none() {
            return;
        }
        let leads = self.leadership.leads().is_some();
        let progress = self.consensus.peers();
        let committed = self.state.at().0;
        let status = |spec: &ServerSpec| {
            let server = spec.id;
            // One that lost its data has two lives for a while: the one that is there counts.
            let there = self.ensemble.connected(server);
            let is_it = |id: u64| there.map_or(server_of(id) == server, |there| there == id);
            let known = progress.iter().filter(|peer| is_it(peer.id));
            let known = known.max_by_key(|peer| peer.votes);
            // An operator who sees all servers synced may empty the next one.
            let keeps_up =
                |peer: &PeerProgress| peer.is_active && peer.is_caught_up && peer.knows_members;
            PeerStatus {
                server,
                // One that gets its vote does not have it yet: those that leave must not stop before.
                votes: known.is_some_and(|peer| peer.votes && !self.consensus.gets_vote(peer.id)),
                is_observer: spec.role == Role::Observer,
                is_connected: there.is_some(),
                behind: known.filter(|_| leads).map(|peer| committed.saturating_sub(peer.matched)),
                is_synced: leads && there.is_some() && known.is_some_and(keeps_up),
                clock_skew_ms: there.filter(|_| leads).and_then(|id| self.clocks.skew_ms(id)),
            }
        };
        let observed = self.ensemble.others().map(status).collect();
        self.ensemble.observed(observed);
    }

    fn standings(&mut self) -> Standings {
        // Of the last tick otherwise: an operator may stop a server by what this says.
        self.observe_peers();
        Standings {
            is_ensemble: self.setup.ensemble.is_some(),
            leader: self.known_leader(),
            leads: self.mode() == Mode::Leader,
            peers: self.ensemble.peer_status().to_vec(),
        }
    }

    pub(in crate::replica) fn inspect(&mut self, what: Inspect) -> Report {
        match what {
            Inspect::Connections => Report::Connections(self.clients.reports()),
            Inspect::Sessions => {
                let sessions =
                    self.state.machine().sessions().iter().map(|(id, session)| SessionReport {
                        id,
                        timeout_ms: session.timeout_ms,
                        expires_in_ms: self.sessions.remaining_ms(id),
                        connected: self.clients.connection_of(id).is_some(),
                    });
                Report::Sessions(sessions.collect())
            }
            Inspect::Ephemerals => {
                let all = self.state.machine().tree().sessions_with_ephemerals();
                let text = |paths: Vec<Text>| paths.iter().map(Text::to_string).collect();
                Report::Ephemerals(all.map(|(session, paths)| (session, text(paths))).collect())
            }
            Inspect::Watches => Report::Watches(self.clients.watch_report(true)),
            Inspect::WatchSummary => Report::Watches(self.clients.watch_report(false)),
            Inspect::Digests => Report::Digests(self.state.machine().digests()),
            Inspect::Membership => {
                Report::Membership(self.state.machine().members_text().to_owned())
            }
            Inspect::Standings => Report::Standings(self.standings()),
            Inspect::Locks(scope) => Report::Locks(Box::new(self.locks(&scope))),
            Inspect::Departures(directory) => Report::Locks(Box::new(self.departures(&directory))),
            Inspect::Znode(question) => Report::Znode(self.znode(&question).map(Box::new)),
            // It waits for a read index: see `reads_confirmed`.
            Inspect::Synced => Report::Synced(self.state.machine().last_zxid()),
            Inspect::Migration => Report::Migration(Box::new(self.migration_report())),
            Inspect::Namespaces => Report::Namespaces(self.clients.namespaces.report()),
            Inspect::ResetConnections => {
                self.clients.reset_reports();
                Report::Reset
            }
            Inspect::ResetServer => {
                self.figures.reset();
                self.clients.reset_figures();
                Report::Reset
            }
        }
    }
}
