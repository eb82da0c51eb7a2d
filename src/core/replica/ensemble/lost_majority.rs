//! What a server of an ensemble that lost its majority for ever must know before it goes on alone.
//!
//! *Owns* [`LostMajority`]: what the other holders of the ensemble's log say, or that they are silent. *Invariants*: a
//! server goes on alone only if no other holder serves, none has gone on or may go on with a state of its own, every
//! other one has told how far its log goes or was declared dead by an operator, and none that told has more; of two
//! with as much, the one with the lower id goes on. A server that brings nothing is no holder, whatever it says.
//! *Never* takes a clock, a socket or an operator's word: it is given all three.
//!
//! A holder tells how far its log goes by running the same command: the server of a directory that is to be judged is
//! stopped. One that runs is asked for nothing, because it may serve at the next moment.

use std::collections::{BTreeMap, BTreeSet};

use super::founding::{Brings, Elsewhere, HEARD_US, Introduction, Port, Position, REFUSED_US};

/// How long the other holders are listened to, microseconds, before their silence counts.
pub const SILENT_AFTER_US: u64 = 3_000_000;

/// What is known of another holder of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Neither heard nor reached: no connection to it was made.
    Silent,
    /// Not heard, and perhaps running: a port of it is open and mute.
    Mute,
    /// Not heard, and its ports have not answered yet.
    Unasked,
    /// It is asked to go on alone, too, and its log goes as far as this.
    Tells(Position),
    /// Its server runs.
    Runs,
    /// Its server runs, and wants nothing to do with this one, for this reason.
    Refuses(String),
    /// Its server serves clients, in this mode.
    Serves(String),
    /// It has the state of another ensemble, such as the one that it was recovered to.
    Elsewhere(Elsewhere),
    /// It brings nothing.
    HasNothing,
}

/// Why a server may not go on alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// That server serves clients, in this mode.
    Serves(u8, String),
    /// That one's server runs: it is to be stopped, and asked like this one.
    Runs(u8),
    /// That one's server runs and says nothing of itself to this one, for this reason: it may serve.
    Refuses(u8, String),
    /// That one has the state of another ensemble: two would be served.
    Elsewhere(u8, Elsewhere),
    /// That one has more, or as much and the lower id.
    HasMore(u8, Position),
    /// That one's server may run: a port of it is open and mute.
    Mute(u8),
    /// The ports of that one's server have not answered yet.
    Unasked(u8),
    /// These neither tell how far their logs go nor were declared dead.
    Silent(Vec<u8>),
    /// These were declared dead and are not.
    Alive(Vec<u8>),
    /// These were declared dead, and are no holders of the log.
    Unknown(Vec<u8>),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct LostMajority {
    own: (u8, Position),
    others: BTreeSet<u8>,
    heard: BTreeMap<u8, (Introduction, u64)>,
    /// Servers that want nothing to do with this one, why, and when they said so.
    refused: BTreeMap<u8, (String, u64)>,
    /// Last answer of the ports of each other holder.
    ports: BTreeMap<u8, Port>,
}

impl LostMajority {
    /// Of the server `own`, whose log goes as far as this, in an ensemble whose log these servers hold.
    #[must_use]
    pub fn new(own: (u8, Position), holders: impl IntoIterator<Item = u8>) -> Self {
        let others = holders.into_iter().filter(|id| *id != own.0).collect();
        let (heard, refused, ports) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { own, others, heard, refused, ports }
    }

    /// How far this server's log goes.
    #[must_use]
    pub fn position(&self) -> Position {
        self.own.1
    }

    /// The other holders.
    #[must_use]
    pub fn others(&self) -> &BTreeSet<u8> {
        &self.others
    }

    /// Another server has introduced itself.
    pub fn heard(&mut self, server: u8, introduction: Introduction, now_us: u64) {
        self.refused.remove(&server);
        self.heard.insert(server, (introduction, now_us));
    }

    /// Another server does not take this one for a member of its ensemble, or for itself: it is not dead.
    pub fn refused(&mut self, server: u8, words: String, now_us: u64) {
        self.refused.insert(server, (words, now_us));
    }

    /// Takes the answer of another server's ports.
    pub fn answered(&mut self, server: u8, port: Port) {
        self.ports.insert(server, port);
    }

    /// What is known of each other holder.
    #[must_use]
    pub fn holders(&self, now_us: u64) -> BTreeMap<u8, Holder> {
        self.others.iter().map(|id| (*id, self.holder(*id, now_us))).collect()
    }

    fn holder(&self, server: u8, now_us: u64) -> Holder {
        let heard = self.heard.get(&server);
        let heard = heard.filter(|(_, at_us)| at_us.saturating_add(HEARD_US) > now_us);
        let heard = heard.map(|(introduction, _)| introduction);
        if let Some(elsewhere) = heard.and_then(|said| said.elsewhere(self.own.1.ensemble)) {
            return Holder::Elsewhere(elsewhere);
        }
        if let Some(Port::Serves { mode, .. }) = self.ports.get(&server) {
            return Holder::Serves(mode.clone());
        }
        match heard {
            None => {
                let refused = self.refused.get(&server);
                let refused =
                    refused.filter(|(_, at_us)| at_us.saturating_add(REFUSED_US) > now_us);
                match (refused, self.ports.get(&server)) {
                    (Some((words, _)), _) => Holder::Refuses(words.clone()),
                    (None, Some(Port::Closed)) => Holder::Silent,
                    (None, Some(Port::ServesNot)) => Holder::Runs,
                    (None, Some(_)) => Holder::Mute,
                    (None, None) => Holder::Unasked,
                }
            }
            Some(Introduction::Founded(_)) => Holder::Runs,
            Some(Introduction::Founding(said)) => match said.brings {
                Brings::Position(position) => Holder::Tells(position),
                Brings::Nothing => Holder::HasNothing,
                Brings::Unread => Holder::Elsewhere(Elsewhere::Unread),
                Brings::State { ensemble, .. } => Holder::Elsewhere(Elsewhere::Of(ensemble)),
            },
        }
    }

    /// Judges whether this server may go on alone, with these servers declared dead.
    ///
    /// # Errors
    /// It may not.
    pub fn judge(&self, dead: &BTreeSet<u8>, now_us: u64) -> Result<(), Refusal> {
        let holders = self.holders(now_us);
        let (own, position) = self.own;
        for (id, holder) in &holders {
            match holder {
                Holder::Serves(mode) => return Err(Refusal::Serves(*id, mode.clone())),
                Holder::Runs if mutant!("recovery-beside-running-server") => {}
                Holder::Runs => return Err(Refusal::Runs(*id)),
                Holder::Mute => return Err(Refusal::Mute(*id)),
                Holder::Unasked => return Err(Refusal::Unasked(*id)),
                Holder::Refuses(words) => return Err(Refusal::Refuses(*id, words.clone())),
                Holder::Elsewhere(elsewhere) => return Err(Refusal::Elsewhere(*id, *elsewhere)),
                Holder::Silent | Holder::Tells(_) | Holder::HasNothing => {}
            }
        }
        let unknown: Vec<u8> =
            dead.iter().filter(|id| !self.others.contains(id)).copied().collect();
        if !unknown.is_empty() {
            return Err(Refusal::Unknown(unknown));
        }
        let with = |wanted: fn(&Holder) -> bool| {
            let chosen = holders.iter().filter(move |(_, holder)| wanted(holder));
            chosen.map(|(id, _)| *id).collect::<Vec<u8>>()
        };
        let silent = with(|holder| *holder == Holder::Silent);
        let alive: Vec<u8> = with(|holder| matches!(holder, Holder::Tells(_)))
            .into_iter()
            .filter(|id| dead.contains(id))
            .collect();
        if !alive.is_empty() {
            return Err(Refusal::Alive(alive));
        }
        let undeclared: Vec<u8> = silent.into_iter().filter(|id| !dead.contains(id)).collect();
        if !undeclared.is_empty() && !mutant!("silent-holder-counts-as-dead") {
            return Err(Refusal::Silent(undeclared));
        }
        for (id, holder) in &holders {
            if let Holder::Tells(other) = holder
                && (other.rank(), own) > (position.rank(), *id)
                && !mutant!("shorter-log-goes-on")
            {
                return Err(Refusal::HasMore(*id, *other));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::founding::{Identified, Undecided};
    use super::*;
    use crate::replica::durable::Membership;

    const ENSEMBLE: u128 = 7;

    fn at(term: u64, index: u64) -> Position {
        Position { ensemble: ENSEMBLE, term, index }
    }

    fn tells(position: Position) -> Introduction {
        let brings = Brings::Position(position);
        Introduction::Founding(Undecided { brings, ..Undecided::default() })
    }

    fn founded(ensemble: u128) -> Introduction {
        let (founders, members) = (Vec::new(), Vec::new());
        let initial = Membership::default();
        Introduction::Founded(Identified { ensemble, raft_id: 2, founders, initial, members })
    }

    /// Server 2 of five. No port of the others is open.
    fn two() -> LostMajority {
        let mut lost = LostMajority::new((2, at(5, 100)), 1..=5);
        [1, 3, 4, 5].into_iter().for_each(|id| lost.answered(id, Port::Closed));
        lost
    }

    fn leads() -> Port {
        Port::Serves { mode: "leader".to_owned(), version: String::new() }
    }

    fn dead(ids: &[u8]) -> BTreeSet<u8> {
        ids.iter().copied().collect()
    }

    #[test]
    fn it_goes_on_when_all_others_are_declared_dead_by_their_numbers() {
        let lost = two();
        assert_eq!(lost.judge(&dead(&[1, 3, 4, 5]), 0), Ok(()));
        assert_eq!(lost.judge(&dead(&[1, 3]), 0), Err(Refusal::Silent(vec![4, 5])));
        assert_eq!(lost.judge(&dead(&[1, 3, 4, 5, 9]), 0), Err(Refusal::Unknown(vec![9])));
    }

    #[test]
    fn of_those_that_tell_the_longest_log_goes_on_and_then_the_lowest_number() {
        for (other, expected) in [
            (at(5, 99), Ok(())),
            (at(4, 500), Ok(())),
            (at(5, 101), Err(Refusal::HasMore(3, at(5, 101)))),
            (at(6, 1), Err(Refusal::HasMore(3, at(6, 1)))),
            (at(5, 100), Ok(())),
        ] {
            let mut lost = two();
            lost.heard(3, tells(other), 0);
            assert_eq!(lost.judge(&dead(&[1, 4, 5]), 0), expected, "{other:?}");
        }
        let mut lost = two();
        lost.heard(1, tells(at(5, 100)), 0);
        assert_eq!(lost.judge(&dead(&[3, 4, 5]), 0), Err(Refusal::HasMore(1, at(5, 100))));
    }

    #[test]
    fn a_server_that_runs_or_serves_or_tells_cannot_be_declared_dead() {
        let mut lost = two();
        lost.heard(3, founded(ENSEMBLE), 0);
        assert_eq!(lost.judge(&dead(&[1, 3, 4, 5]), 0), Err(Refusal::Runs(3)));
        lost.answered(3, leads());
        let serves = Refusal::Serves(3, "leader".to_owned());
        assert_eq!(lost.judge(&dead(&[1, 3, 4, 5]), 0), Err(serves));
        let mut lost = two();
        lost.heard(3, tells(at(1, 1)), 0);
        assert_eq!(lost.judge(&dead(&[1, 3, 4, 5]), 0), Err(Refusal::Alive(vec![3])));
    }

    #[test]
    fn a_server_whose_port_is_open_or_was_not_asked_yet_is_not_dead() {
        let mut lost = two();
        lost.answered(3, Port::Mute);
        assert_eq!(lost.judge(&dead(&[1, 3, 4, 5]), 0), Err(Refusal::Mute(3)));
        lost.answered(3, Port::ServesNot);
        assert_eq!(lost.judge(&dead(&[1, 3, 4, 5]), 0), Err(Refusal::Runs(3)));
        let unasked = LostMajority::new((2, at(5, 100)), 1..=5);
        assert_eq!(unasked.judge(&dead(&[1, 3, 4, 5]), 0), Err(Refusal::Unasked(1)));
    }

    #[test]
    fn a_server_that_refuses_this_one_is_not_dead() {
        let mut lost = two();
        lost.refused(3, "no member".to_owned(), 0);
        let refusal = Err(Refusal::Refuses(3, "no member".to_owned()));
        assert_eq!(lost.judge(&dead(&[1, 3, 4, 5]), REFUSED_US - 1), refusal);
        assert_eq!(lost.judge(&dead(&[1, 3, 4, 5]), REFUSED_US), Ok(()));
        lost.refused(3, "no member".to_owned(), 0);
        lost.heard(3, brings(Brings::Nothing), 0);
        assert_eq!(lost.judge(&dead(&[1, 4, 5]), 0), Ok(()), "it takes this one again");
    }

    fn brings(brings: Brings) -> Introduction {
        Introduction::Founding(Undecided { brings, ..Undecided::default() })
    }

    #[test]
    fn a_server_that_brings_nothing_is_no_holder_and_may_be_declared_dead() {
        let mut lost = two();
        for server in [3, 4, 5] {
            lost.heard(server, brings(Brings::Nothing), 0);
        }
        assert_eq!(lost.judge(&dead(&[1]), 0), Ok(()));
        assert_eq!(lost.judge(&dead(&[1, 3, 4, 5]), 0), Ok(()));
    }

    #[test]
    fn beside_a_survivor_that_was_recovered_none_goes_on_whether_or_not_it_is_declared_dead() {
        const RECOVERED: u128 = ENSEMBLE + 1;
        let of_recovered = Elsewhere::Of(RECOVERED);
        let position = Position { ensemble: RECOVERED, ..at(1, 1) };
        for (said, expected) in [
            (founded(RECOVERED), of_recovered),
            (brings(Brings::Unread), Elsewhere::Unread),
            (brings(Brings::State { ensemble: RECOVERED, znodes: 5 }), of_recovered),
            (tells(position), of_recovered),
            // As long as it was on its own, it had the same name.
            (brings(Brings::State { ensemble: ENSEMBLE, znodes: 5 }), Elsewhere::Of(ENSEMBLE)),
        ] {
            // No client port answers: clients come through TLS alone.
            let mut lost = two();
            lost.heard(1, said.clone(), 0);
            let refusal = Err(Refusal::Elsewhere(1, expected));
            assert_eq!(lost.judge(&dead(&[3, 4, 5]), 0), refusal, "{said:?}");
            assert_eq!(lost.judge(&dead(&[1, 3, 4, 5]), 0), refusal, "{said:?}");
            // And what it answers does not hide which ensemble it is.
            lost.answered(1, leads());
            assert_eq!(lost.judge(&dead(&[3, 4, 5]), 0), refusal, "{said:?}");
        }
    }

    #[test]
    fn what_was_heard_long_ago_is_silence() {
        let mut lost = two();
        lost.heard(3, tells(at(5, 1)), 0);
        assert_eq!(lost.judge(&dead(&[1, 4, 5]), HEARD_US), Err(Refusal::Silent(vec![3])));
    }
}
