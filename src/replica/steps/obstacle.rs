//! What keeps this server from serving that no election will mend.
//!
//! *Finds* two things, so that "stuck" differs from "electing": a leader that founded an ensemble with a
//! state of its own waits until a majority has joined; and a majority of the voters has come back without
//! the data that it voted with. *Invariant*: the second is found only where it is certain: a voter counts
//! as lost when its server is connected under another identity, never because it is silent.

use crate::replica::Replica;
use crate::replica::messages::server_of;

/// How long there must be no leader before a majority is called lost, in microseconds: what this server
/// knows of the voters may be older than what the others have agreed on.
const LEADERLESS_US_MIN: u64 = 3_000_000;

/// How long servers that run take to join a new ensemble, in microseconds, at most.
const JOINING_US_MAX: u64 = 2_000_000;

impl Replica {
    /// Why clients are not served, in words, if waiting does not help; as of the last tick.
    #[must_use]
    pub fn obstacle(&self) -> Option<&str> {
        self.leadership.obstacle()
    }

    /// Time has passed.
    pub(in crate::replica) fn look_for_obstacle(&mut self) {
        let obstacle = match self.setup.ensemble {
            Some(_) if !self.is_serving() => {
                self.lacks_members().or_else(|| self.has_lost_majority())
            }
            Some(_) | None => None,
        };
        self.leadership.set_obstacle(obstacle);
    }

    fn lacks_members(&self) -> Option<String> {
        if self.leadership.leads().is_none()
            || !self.state.machine().tree().config_text().is_empty()
        {
            return None;
        }
        let (voting, participants) = self.voting_participants();
        let majority = participants.len() / 2 + 1;
        let missing: Vec<u8> =
            participants.iter().copied().filter(|id| !voting.contains(id)).collect();
        let is_patient = self.clocks.now_us() >= self.leadership.led_since_us() + JOINING_US_MAX;
        (voting.len() < majority && is_patient).then(|| {
            format!(
                "server {} founded this ensemble and serves no client before {majority} of its {} \
                 participants have joined: start the servers {} with the same lines. If they belong to \
                 another ensemble, start this one with --rejoin, which sets its data aside",
                self.setup.server_id,
                participants.len(),
                list(&missing)
            )
        })
    }

    fn has_lost_majority(&self) -> Option<String> {
        let since_us = self.leadership.leaderless_since_us()?;
        // A server that has nothing yet does not know who votes now.
        if self.consensus.last_index() == 0 || self.clocks.now_us() < since_us + LEADERLESS_US_MIN {
            return None;
        }
        let own = self.consensus.id();
        let is_lost = |voter: &u64| match server_of(*voter) {
            server if server == server_of(own) => *voter != own,
            server => self.ensemble.connected(server).is_some_and(|now| now != *voter),
        };
        let sets = self.consensus.voters_of_both();
        let (lost, left): (Vec<u64>, Vec<u64>) = sets
            .into_iter()
            .map(|voters| voters.into_iter().partition::<Vec<u64>, _>(is_lost))
            .find(|(lost, left)| left.len() <= lost.len() && !lost.is_empty())?;
        let servers = |ids: &[u64]| list(&ids.iter().map(|id| server_of(*id)).collect::<Vec<_>>());
        Some(format!(
            "the servers {} have come back without the data that they voted with: of the voters of this \
             ensemble the servers {} are left, which are no majority, so no leader will be elected. This \
             does not mend itself",
            servers(&lost),
            if left.is_empty() { "(none)".to_owned() } else { servers(&left) }
        ))
    }
}

fn list(ids: &[u8]) -> String {
    let words: Vec<String> = ids.iter().map(u8::to_string).collect();
    words.join(", ")
}
