//! Log lines, and measurements, about what this server is in its ensemble.
//!
//! *Owns* what was said last of the leader, the role, the majority and the other servers. *Invariants*: each change is
//! one line, with its term and how long it took; elections without an end are bounded ([`Limited`]). *Never* decides
//! anything.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::limited::{Limited, SPAN};
use super::members;
use crate::admin::Quantity;
use crate::replica::Status;
use crate::replica::inspect::{Mode, PeerStatus};
use crate::server::metrics::Figures;

/// Without a leader for this long, a server says what it lacks.
const LEADERLESS_SAID: Duration = Duration::from_secs(2);
/// And again after each of these.
const LEADERLESS_SAID_AGAIN: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub(in crate::server) struct RoleLog {
    server: u8,
    leader: Option<u8>,
    was_serving: bool,
    elections: u64,
    members: String,
    /// Since when there is no leader; when that is said next.
    leaderless: Option<(Instant, Instant)>,
    /// Since when clients are not served.
    unserved: Option<Instant>,
    /// This server is to lead, and does not serve yet: since when there was no leader.
    takes_over: Option<Instant>,
    peers: BTreeMap<u8, Peer>,
    /// The participants that this leader reached when it was last said: all of them, or not.
    misses: Option<usize>,
    limited: Limited,
}

/// Another server, of a leader.
#[derive(Clone, Copy, Debug)]
struct Peer {
    linked: Instant,
    has_caught_up: bool,
    takes_image: bool,
}

impl RoleLog {
    /// Of a server that begins now. `server`: its id.
    pub(in crate::server) fn new(server: u8, now: Instant) -> Self {
        Self {
            server,
            leader: None,
            was_serving: false,
            elections: 0,
            members: String::new(),
            leaderless: Some((now, now + LEADERLESS_SAID)),
            unserved: Some(now),
            takes_over: None,
            peers: BTreeMap::new(),
            misses: None,
            limited: Limited::default(),
        }
    }

    /// Id of this server.
    pub(in crate::server) fn server(&self) -> u8 {
        self.server
    }

    /// An image is sent to a server.
    pub(in crate::server) fn image_sent(&mut self, server: u8) {
        if let Some(peer) = self.peers.get_mut(&server) {
            peer.takes_image = true;
        }
    }

    /// A turn of the driver is over. `members`: the text of `/zookeeper/config`.
    pub(in crate::server) fn look(
        &mut self,
        status: &Status,
        members: &str,
        figures: &Figures,
        now: Instant,
    ) {
        let is_member =
            status.mode != Mode::Standalone && (!members.is_empty() || status.leader.is_some());
        if is_member || !status.peers.is_empty() {
            self.look_at_elections(status, now);
            self.look_at_leader(status, figures, now);
            self.look_at_peers(status, figures, now);
            self.look_at_members(members);
        }
        self.look_at_serving(status, figures, now);
        for (cause, more) in self.limited.over(now) {
            tracing::info!("{cause}: and {more} more in the last {} s", SPAN.as_secs());
        }
    }

    fn look_at_elections(&mut self, status: &Status, now: Instant) {
        let before = std::mem::replace(&mut self.elections, status.election_count);
        if status.election_count > before
            && status.leader.is_none()
            && self.limited.may_say(ELECTIONS, now)
        {
            tracing::info!(term = status.term, "takes part in an election");
        }
    }

    fn look_at_leader(&mut self, status: &Status, figures: &Figures, now: Instant) {
        let (term, before) = (status.term, std::mem::replace(&mut self.leader, status.leader));
        match (before, status.leader) {
            (before, Some(leader)) if before != Some(leader) => {
                let began = self.leaderless.take().map_or(now, |(since, _)| since);
                let millis = millis_since(began, now);
                if before.is_none() {
                    figures.measures.record(Quantity::Election, micros_since(began, now));
                }
                self.takes_over = (leader == self.server).then_some(began);
                if leader == self.server {
                    tracing::info!(term, millis, "this server leads: a majority has elected it");
                } else {
                    tracing::info!(term, leader, millis, "this server follows its leader");
                }
                if leader != self.server {
                    self.peers.clear();
                    self.misses = None;
                }
            }
            (Some(was), None) => {
                self.leaderless = Some((now, now + LEADERLESS_SAID));
                self.takes_over = None;
                self.peers.clear();
                self.misses = None;
                figures.counts.leader_losses.add(1);
                if was == self.server {
                    tracing::warn!(
                        term,
                        "this server leads no longer: it hears from no majority, or another term has begun"
                    );
                } else {
                    tracing::warn!(term, was, "the leader is lost: it is not heard from");
                }
            }
            _ => {}
        }
        if let Some((since, due)) = self.leaderless
            && now >= due
            && !status.peers.is_empty()
        {
            self.leaderless = Some((since, now + LEADERLESS_SAID_AGAIN));
            let seconds = now.duration_since(since).as_secs();
            tracing::warn!(term, "no leader for {seconds} s: {}", majority(status));
        }
    }

    fn look_at_peers(&mut self, status: &Status, figures: &Figures, now: Instant) {
        if status.mode != Mode::Leader {
            return;
        }
        for peer in &status.peers {
            self.look_at_peer(peer, figures, now);
        }
        let others = status.peers.iter().filter(|peer| peer.votes);
        let (voters, reached) = others.fold((1, 1), |(voters, reached), peer| {
            (voters + 1, reached + usize::from(peer.is_connected))
        });
        let misses = voters - reached;
        let before = self.misses.replace(misses).unwrap_or(0);
        let spare = reached.saturating_sub(voters / 2 + 1);
        if misses == before || !self.limited.may_say(VOTERS, now) {
            return;
        }
        match (misses, spare) {
            (0, _) => tracing::info!(voters, "all that vote are reached again"),
            _ if reached <= voters / 2 => tracing::warn!(
                voters,
                reached,
                "no majority is reached any more: writes wait, and this server steps down soon"
            ),
            (_, 0) => tracing::warn!(
                voters,
                reached,
                "a majority is reached, and no server more: the loss of another one stops all writes"
            ),
            (_, _) => tracing::warn!(voters, reached, spare, "not all that vote are reached"),
        }
    }

    fn look_at_peer(&mut self, peer: &PeerStatus, figures: &Figures, now: Instant) {
        let server = peer.server;
        if !peer.is_connected {
            self.peers.remove(&server);
            return;
        }
        let new = Peer { linked: now, has_caught_up: false, takes_image: false };
        let known = self.peers.entry(server).or_insert(new);
        if !peer.is_synced || known.has_caught_up {
            return;
        }
        known.has_caught_up = true;
        let quantity =
            if peer.is_observer { Quantity::ObserverSync } else { Quantity::FollowerSync };
        figures.measures.record(quantity, micros_since(known.linked, now));
        let by = if known.takes_image { "image" } else { "log" };
        if !known.takes_image {
            figures.counts.caught_up_by_log.add(1);
        }
        let millis = millis_since(known.linked, now);
        if self.limited.may_say(CAUGHT_UP, now) {
            tracing::info!(server, by, millis, "a server keeps up with this leader");
        }
    }

    fn look_at_members(&mut self, members: &str) {
        if members == self.members {
            return;
        }
        // What a start finds is no change.
        if !self.members.is_empty()
            && let Some(words) = members::changes(&self.members, members)
        {
            tracing::info!("the members of the ensemble change: {words}");
        }
        members.clone_into(&mut self.members);
    }

    fn look_at_serving(&mut self, status: &Status, figures: &Figures, now: Instant) {
        let serving = status.serving;
        // Reads may have been answered all the while: no write was.
        if serving
            && status.mode == Mode::Leader
            && let Some(began) = self.takes_over.take()
        {
            figures.measures.record(Quantity::LeaderUnavailable, micros_since(began, now));
        }
        if serving == std::mem::replace(&mut self.was_serving, serving) {
            return;
        }
        let (term, mode) = (status.term, status.mode.name());
        if !serving {
            self.unserved = Some(now);
            tracing::warn!(term, "clients are not served: they are sent to other servers");
            return;
        }
        let began = self.unserved.take().unwrap_or(now);
        figures.measures.record(Quantity::Unavailable, micros_since(began, now));
        let (zxid, millis) = (format!("{:#x}", status.zxid), millis_since(began, now));
        if status.mode == Mode::Standalone {
            // Its first lines on the screen say so.
            return tracing::debug!(mode, term, %zxid, millis, "clients are served");
        }
        tracing::info!(mode, term, %zxid, millis, "clients are served");
    }
}

/// Which servers are reached of those whose votes count, as one without a leader knows; before it knows, of the
/// participants.
fn majority(status: &Status) -> String {
    let is_known = status.votes || status.peers.iter().any(|peer| peer.votes);
    let counts = |peer: &&PeerStatus| if is_known { peer.votes } else { !peer.is_observer };
    let (reached, missing): (Vec<&PeerStatus>, Vec<&PeerStatus>) =
        status.peers.iter().filter(counts).partition(|peer| peer.is_connected);
    let own = usize::from(status.votes || !is_known);
    let (here, which) = (reached.len() + own, if is_known { "voters" } else { "participants" });
    let all = here + missing.len();
    let names: Vec<String> = missing.iter().map(|peer| peer.server.to_string()).collect();
    let needed = all / 2 + 1;
    if names.is_empty() {
        return format!("all {all} {which} are linked, and no candidate has a majority yet");
    }
    let way_on = match here < needed {
        true => " (if those are lost for ever: `lockkeeper member recover`)",
        false => "",
    };
    let itself = if own == 1 { ", itself included" } else { ", which has no vote" };
    format!(
        "{here} of {all} {which} are linked with this server{itself}, and {needed} are a majority; not linked: \
         {}{way_on}",
        names.join(", ")
    )
}

fn micros_since(since: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(since).as_micros()).unwrap_or(u64::MAX)
}

fn millis_since(since: Instant, now: Instant) -> u64 {
    micros_since(since, now) / 1000
}

const ELECTIONS: &str = "elections";
const VOTERS: &str = "servers that vote, lost and reached again";
const CAUGHT_UP: &str = "servers that keep up again";

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(server: u8, is_connected: bool, is_synced: bool) -> PeerStatus {
        PeerStatus { server, votes: true, is_connected, is_synced, ..PeerStatus::default() }
    }

    #[test]
    fn elections_and_times_without_service_are_measured_from_their_beginning_to_their_end() {
        let (figures, begun) = (Figures::default(), Instant::now());
        let mut log = RoleLog::new(1, begun);
        let after = |ms| begun + Duration::from_millis(ms);
        let mut status = Status { peers: vec![peer(2, true, false)], ..Status::default() };
        log.look(&status, "", &figures, begun);
        status.leader = Some(1);
        log.look(&status, "", &figures, after(300));
        (status.serving, status.mode) = (true, Mode::Leader);
        log.look(&status, "", &figures, after(320));
        (status.serving, status.mode, status.leader) = (false, Mode::Looking, None);
        log.look(&status, "", &figures, after(1000));
        status.leader = Some(2);
        log.look(&status, "", &figures, after(1100));
        (status.serving, status.mode) = (true, Mode::Follower);
        log.look(&status, "", &figures, after(1150));
        let counters = figures.snapshot();
        let sum = |quantity| counters.measured.of(quantity).sum();
        assert_eq!(sum(Quantity::Election), 400_000);
        assert_eq!(sum(Quantity::Unavailable), 470_000);
        assert_eq!(sum(Quantity::LeaderUnavailable), 320_000);
        assert_eq!(counters.leader_losses, 1);
    }

    #[test]
    fn a_follower_that_leads_next_was_without_a_leader_though_it_served_reads() {
        let (figures, begun) = (Figures::default(), Instant::now());
        let mut log = RoleLog::new(1, begun);
        let after = |ms| begun + Duration::from_millis(ms);
        let mut status = Status {
            serving: true,
            leader: Some(2),
            mode: Mode::Follower,
            peers: vec![peer(2, true, false)],
            ..Status::default()
        };
        log.look(&status, "", &figures, after(0));
        let sum = |quantity| figures.snapshot().measured.of(quantity).sum();
        assert_eq!(sum(Quantity::LeaderUnavailable), 0, "another one leads");
        for (ms, leader, mode) in [
            (1000, None, Mode::Follower),
            (1400, Some(1), Mode::Follower),
            (1450, Some(1), Mode::Leader),
        ] {
            (status.leader, status.mode) = (leader, mode);
            log.look(&status, "", &figures, after(ms));
        }
        assert_eq!(sum(Quantity::LeaderUnavailable), 450_000);
        assert_eq!(sum(Quantity::Unavailable), 0);
    }

    #[test]
    fn a_server_that_catches_up_is_measured_once_for_each_link() {
        let (figures, begun) = (Figures::default(), Instant::now());
        let mut log = RoleLog::new(1, begun);
        let after = |ms| begun + Duration::from_millis(ms);
        let mut status = Status {
            leader: Some(1),
            mode: Mode::Leader,
            peers: vec![peer(2, true, false)],
            ..Status::default()
        };
        log.look(&status, "", &figures, after(0));
        for ms in [100, 200] {
            status.peers = vec![peer(2, true, true)];
            log.look(&status, "", &figures, after(ms));
        }
        status.peers = vec![peer(2, false, false)];
        log.look(&status, "", &figures, after(300));
        status.peers = vec![peer(2, true, false)];
        log.look(&status, "", &figures, after(400));
        log.image_sent(2);
        status.peers = vec![peer(2, true, true)];
        log.look(&status, "", &figures, after(450));
        let counters = figures.snapshot();
        let synced = counters.measured.of(Quantity::FollowerSync);
        assert_eq!((synced.count(), synced.sum()), (2, 150_000));
        assert_eq!(counters.caught_up_by_log, 1, "the other time it took an image");
    }

    #[test]
    fn what_lacks_to_a_majority_is_said_by_number() {
        // An observer, and one that is no member any more, and whose vote counts.
        let mut peers = vec![peer(2, false, false), peer(3, false, false), peer(4, true, false)];
        (peers[1].is_observer, peers[2].votes) = (true, false);
        let status = Status { votes: true, peers, ..Status::default() };
        assert_eq!(
            majority(&status),
            "1 of 3 voters are linked with this server, itself included, and 2 are a majority; not linked: 2, 3 \
             (if those are lost for ever: `lockkeeper member recover`)"
        );
    }
}
