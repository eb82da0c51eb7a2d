//! What keeps this server from serving that no election will mend.
//!
//! *Finds* four things, so that "stuck" differs from "electing": a leader that founded an ensemble with a state of its
//! own waits until a majority has joined; an ensemble of ZooKeeper is to be followed, and is not now; a majority of the
//! voters has come back without the data that it voted with; and so many voters are not linked, for so long, that an
//! operator is told what to do if they are lost for ever. *Invariant*: the third is found only where it is certain: a
//! voter counts as lost when its server is connected under another identity, never because it is silent.

use crate::replica::Replica;
use crate::replica::machine::Phase;
use crate::replica::messages::server_of;

/// How long there must be no leader before a majority is called lost, in microseconds: what this server
/// knows of the voters may be older than what the others have agreed on.
const LEADERLESS_US_MIN: u64 = 3_000_000;
/// How long there must be no leader before it is said that servers may be lost for ever, in microseconds.
const MISSING_US_MIN: u64 = 60_000_000;

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
                let lost = self.lacks_members().or_else(|| self.has_lost_majority());
                let lost = lost.or_else(|| self.misses_majority());
                lost.or_else(|| self.migration_obstacle())
            }
            Some(_) => self.votes_obstacle(),
            None if !self.is_serving() => self.migration_obstacle(),
            None => None,
        };
        self.leadership.set_obstacle(obstacle);
    }

    /// Another ensemble decides, and is not followed now.
    fn migration_obstacle(&self) -> Option<String> {
        let migration = self.state.machine().migration()?;
        match migration.phase {
            Phase::Joining => Some("this ensemble has no copy of ZooKeeper's state yet".to_owned()),
            Phase::Interrupted => {
                Some("the link with ZooKeeper's leader is lost: clients are served again when it is back".to_owned())
            }
            Phase::Stopped => Some(format!(
                "this ensemble does not follow ZooKeeper any more: {}. `lockkeeper migrate follow` begins anew",
                migration.why
            )),
            Phase::Aborted => Some(
                "the migration was aborted, and this ensemble has no state: `lockkeeper migrate follow` begins anew"
                    .to_owned(),
            ),
            Phase::Following | Phase::CutOver | Phase::Done => None,
        }
    }

    fn lacks_members(&self) -> Option<String> {
        if self.leadership.leads().is_none() || !self.state.machine().members_text().is_empty() {
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

    /// Most are merely away for all that is known here.
    fn misses_majority(&self) -> Option<String> {
        let since_us = self.leadership.leaderless_since_us()?;
        if self.clocks.now_us() < since_us + MISSING_US_MIN {
            return None;
        }
        let away = |voters: Vec<u64>| {
            let own = server_of(self.consensus.id());
            let is_away = |id: &u8| *id != own && self.ensemble.connected(*id).is_none();
            let ids: Vec<u8> = voters.into_iter().map(server_of).collect();
            let away: Vec<u8> = ids.iter().copied().filter(is_away).collect();
            (!ids.is_empty() && 2 * away.len() >= ids.len()).then_some(away)
        };
        let missing = self.consensus.voters_of_both().into_iter().find_map(away)?;
        let of_both = match self.consensus.is_joint() {
            true => {
                " A change of the members is half done: it takes a majority of the voters before it and one of those \
                 behind it."
            }
            false => "",
        };
        Some(format!(
            "no leader for more than a minute: the servers {} are not linked with this one, and without some of \
             them there is no majority.{of_both} Start them; if they are lost for ever, stop this server and run \
             `lockkeeper member recover`",
            list(&missing)
        ))
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
             does not mend itself: `lockkeeper member recover`",
            servers(&lost),
            if left.is_empty() { "(none)".to_owned() } else { servers(&left) }
        ))
    }
}

pub(super) fn list(ids: &[u8]) -> String {
    let words: Vec<String> = ids.iter().map(u8::to_string).collect();
    words.join(", ")
}
