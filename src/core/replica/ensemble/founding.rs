//! The protocol by which servers that belong to no ensemble yet form one, and by which an empty server
//! finds the ensemble that it belongs to.
//!
//! *Owns* [`Founding`], what a server does before it is a member of an ensemble. What servers say of
//! themselves meanwhile is in `introduction.rs`, what an operator may decide in `word.rs`. *Invariants*: a server
//! belongs to one ensemble, for ever, and only after it has said so durably does it take part; silence founds
//! nothing: all participants consent, or an operator has named those that are left out; what was heard of a state
//! counts until its server says something else; a server that was empty when others were not is a new one for Raft
//! (another incarnation), because it may have voted in the life that it lost; the server that founds is the only
//! voter of what it founds, and the others join as servers do that come later: no vote is counted on that is not
//! there, and no majority of empty servers is ever elected over a state; of two states none is chosen. *Never* takes
//! a clock, a random number or a socket: it is given all three.
//!
//! One server founds, the candidate: the one that brings a state, else the lowest empty participant. It founds when
//! all participants, but for those that an operator's word leaves out, take it for the candidate, with lines that
//! name the same participants. Words that are old by a second could let two servers found; then every server follows
//! one of them, and an ensemble serves only once its voters are a majority of the participants
//! (`steps/leadership.rs`): at most one does.

mod introduction;
mod obstacle;
mod word;

use std::collections::BTreeMap;

use crate::config::Role;
/// The line of one server, which an identity keeps.
pub use crate::config::ServerSpec;
use crate::replica::durable::Membership;
use crate::replica::messages::raft_id;

pub use introduction::{
    Brings, Elsewhere, Identified, Introduction, Past, Port, Position, Undecided, Word,
};
pub use word::WORD_COUNTS_US;

/// Time for which a server listens before it says whom it misses, or acts on an operator's word, microseconds.
pub const LISTENS_US: u64 = 3_000_000;
/// How long a server counts as heard after its last word, microseconds.
pub const HEARD_US: u64 = 1_500_000;
/// Time for which the answer of a silent server's ports counts, microseconds.
pub const ASKED_US: u64 = 5_000_000;
/// Time between two questions to the ports of a silent server, microseconds.
pub const ASK_INTERVAL_US: u64 = 1_000_000;
/// How long it is remembered that a server refused this one, microseconds.
pub(super) const REFUSED_US: u64 = 5_000_000;

/// What was decided. It must be durable before the server says so or takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Who the server is.
    pub identity: Identified,
    /// Whether its data goes on: otherwise what is there is nothing, and begins anew.
    pub keeps_data: bool,
    /// Participants that an operator's word has left out, if this server founds by one.
    pub without: Vec<u8>,
}

/// Random numbers, from the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chance {
    /// Tells this life of an empty server from others.
    pub nonce: u64,
    /// The ensemble's id, should this server found it.
    pub ensemble: u128,
    /// The incarnation, should it join. Not 0.
    pub incarnation: u32,
}

/// What this server has on its disk.
#[derive(Clone, Debug, Hash)]
enum Own {
    Nothing,
    Unread,
    State { identity: Identified, znodes: u64 },
}

/// A server that belongs to no ensemble yet.
#[derive(Clone, Debug, Hash)]
pub struct Founding {
    own: u8,
    chance: Chance,
    /// It had data of an ensemble, as far as is known: there is one, and it founds none.
    only_joins: bool,
    /// The ensemble that it goes on from without a majority of it, because an operator has declared the others dead.
    alone_after: Option<u128>,
    /// When it was asked first to decide.
    asked_since_us: Option<u64>,
    brings: Own,
    lines: Vec<ServerSpec>,
    /// Last introduction of each server of the own lines, and when it came. A state counts until its server answers
    /// something else.
    heard: BTreeMap<u8, (Introduction, u64)>,
    /// Last answer of each server without an ensemble to a question of this one, and when that was asked.
    answers: BTreeMap<u8, (Undecided, u64)>,
    /// Servers that the own lines do not name and whose lines name this one, and when they said so.
    strangers: BTreeMap<u8, (Vec<ServerSpec>, u64)>,
    /// Answers of the ports of silent servers, and when they were asked.
    ports: BTreeMap<u8, (Port, u64)>,
    /// When they were asked last.
    asked_at_us: BTreeMap<u8, u64>,
    /// Servers that want nothing to do with this one, why, and when they said so.
    refused: BTreeMap<u8, (String, u64)>,
    /// Word of an operator to this server, and until when it counts.
    given: Option<(Word, u64)>,
}

impl Founding {
    /// The server `own` of those that its configuration names, without data.
    ///
    /// # Panics
    /// If the incarnation is 0, which is that of the founders.
    #[must_use]
    pub fn new(own: u8, lines: &[ServerSpec], chance: Chance) -> Self {
        assert!(chance.incarnation != 0, "incarnation 0 is that of the founders");
        Self {
            own,
            chance,
            only_joins: false,
            alone_after: None,
            asked_since_us: None,
            brings: Own::Nothing,
            lines: lines.to_vec(),
            heard: BTreeMap::new(),
            answers: BTreeMap::new(),
            strangers: BTreeMap::new(),
            ports: BTreeMap::new(),
            asked_at_us: BTreeMap::new(),
            refused: BTreeMap::new(),
            given: None,
        }
    }

    /// As [`Founding::new`], of a server whose data was put away, or that is not said to be new: it waits
    /// for one that has data, however many have none.
    #[must_use]
    pub fn joining(own: u8, lines: &[ServerSpec], chance: Chance) -> Self {
        Self { only_joins: true, ..Self::new(own, lines, chance) }
    }

    /// As [`Founding::new`], of a server that was on its own and has yet to read its disk: until
    /// [`Founding::has_read`] it decides nothing, and neither do those that hear it.
    #[must_use]
    pub fn reading(own: u8, lines: &[ServerSpec], chance: Chance) -> Self {
        Self { brings: Own::Unread, ..Self::new(own, lines, chance) }
    }

    /// As [`Founding::reading`], of a server that an operator has declared to be alone: it goes on from the ensemble
    /// `before`, of which no majority is left, and waits for no consent. It founds unless a server of that one
    /// runs, or another server has gone on, or may go on, with a state of its own.
    #[must_use]
    pub fn alone(own: u8, lines: &[ServerSpec], chance: Chance, before: u128) -> Self {
        Self { alone_after: Some(before), ..Self::reading(own, lines, chance) }
    }

    /// A server that was on its own has read its disk: who it was, and how many znodes there are; `None`
    /// if it never had a session or a write, and therefore counts as empty.
    pub fn has_read(&mut self, state: Option<(Identified, u64)>) {
        self.brings = match state {
            Some((identity, znodes)) => Own::State { identity, znodes },
            None => Own::Nothing,
        };
    }

    /// What this server says of itself.
    #[must_use]
    pub fn introduction(&self, now_us: u64) -> Introduction {
        Introduction::Founding(Undecided {
            nonce: self.chance.nonce,
            candidate: self.candidate(now_us),
            brings: self.brings(),
            lines: self.lines.clone(),
            word: self.word(now_us).cloned(),
            is_told: self.given(now_us).is_some(),
        })
    }

    fn brings(&self) -> Brings {
        match &self.brings {
            Own::Nothing => Brings::Nothing,
            Own::Unread => Brings::Unread,
            Own::State { identity, znodes } => {
                Brings::State { ensemble: identity.ensemble, znodes: *znodes }
            }
        }
    }

    /// Another server has introduced itself. One that the configuration does not name has no say, but if
    /// it counts this one among its ensemble's servers, then one of the two has the wrong lines, and each
    /// might found an ensemble of its own. `asked_us`: when this server had asked it; `None` for what it has said by
    /// itself, which may have lain for a while: that is no consent, and no state is forgotten for it.
    pub fn heard(
        &mut self,
        server: u8,
        introduction: Introduction,
        asked_us: Option<u64>,
        now_us: u64,
    ) {
        if server == self.own {
            return;
        }
        if self.line(server).is_some() {
            self.refused.remove(&server);
            self.ports.remove(&server);
            match (&introduction, asked_us) {
                (Introduction::Founding(said), Some(asked_us)) => {
                    self.answers.insert(server, (said.clone(), asked_us));
                }
                (Introduction::Founding(_), None) => {
                    let known = self.heard.get(&server);
                    if known.is_some_and(|(known, _)| known.may_be_a_state())
                        && !introduction.may_be_a_state()
                    {
                        return;
                    }
                }
                (Introduction::Founded(_), _) => drop(self.answers.remove(&server)),
            }
            self.heard.insert(server, (introduction, now_us));
            return;
        }
        let lines = match introduction {
            Introduction::Founding(said) => said.lines,
            Introduction::Founded(identity) => identity.members,
        };
        if lines.iter().any(|line| line.id == self.own) {
            self.strangers.insert(server, (lines, now_us));
        }
    }

    /// Another server does not take this one for a member of its ensemble.
    pub fn refused(&mut self, server: u8, words: String, now_us: u64) {
        self.refused.insert(server, (words, now_us));
    }

    /// Servers whose ports are to be asked now: participants that are silent, and, before this server goes on alone,
    /// observers that were heard. Each answer goes to [`Founding::answered`].
    pub fn to_ask(&mut self, now_us: u64) -> Vec<u8> {
        let is_due = |id: &u8| {
            let last_us = self.asked_at_us.get(id);
            !self.is_present(*id, now_us)
                && last_us.is_none_or(|last_us| now_us >= last_us + ASK_INTERVAL_US)
        };
        let participants = participants(&self.lines);
        let observers = self.heard.keys().filter(|id| !participants.contains(id)).copied();
        let observers: Vec<u8> = observers.filter(|_| self.alone_after.is_some()).collect();
        let due: Vec<u8> = participants.into_iter().chain(observers).filter(is_due).collect();
        self.asked_at_us.extend(due.iter().map(|id| (*id, now_us)));
        due
    }

    /// Takes the answer of a silent server's ports, which were asked at `asked_us`. A server that has served counts as
    /// serving until it is heard: it may be starting again, with the state that it has.
    pub fn answered(&mut self, server: u8, port: Port, asked_us: u64) {
        let known = self.ports.get(&server);
        let has_served = matches!(known, Some((Port::Serves { .. }, _)));
        let is_older = known.is_some_and(|(_, at_us)| *at_us > asked_us)
            || self.heard.get(&server).is_some_and(|(_, at_us)| *at_us > asked_us);
        let counts = !has_served && !is_older || mutant!("forgets-who-served");
        if matches!(port, Port::Serves { .. }) || counts {
            self.ports.insert(server, (port, asked_us));
        }
    }

    /// What to do, once that is clear. To be asked whenever something was heard, and as time passes.
    ///
    /// # Errors
    /// Two servers belong to different ensembles: an operator must say which is right.
    pub fn decide(&mut self, now_us: u64) -> Result<Option<Decision>, Conflict> {
        self.strangers.retain(|_, (_, at_us)| at_us.saturating_add(REFUSED_US) > now_us);
        self.refused.retain(|_, (_, at_us)| at_us.saturating_add(REFUSED_US) > now_us);
        self.given.take_if(|(_, until_us)| *until_us <= now_us);
        if matches!(self.brings, Own::Unread) {
            return Ok(None);
        }
        let since_us = *self.asked_since_us.get_or_insert(now_us);
        if let Some(decision) = self.follow(now_us)? {
            return Ok(Some(decision));
        }
        match self.alone_after {
            Some(_) => Ok(self.found_alone(since_us, now_us)),
            None => Ok(self.found(now_us)),
        }
    }

    /// The same server with the age of everything in the place of its time, for checks that look for equal
    /// states: what counts no more is left out, and an age that no rule tells from a higher one is the lowest such.
    /// `may_be_told`: an operator may yet say a word.
    #[cfg(feature = "internals")]
    #[must_use]
    pub fn aged(&self, now_us: u64, may_be_told: bool) -> Self {
        let mut aged = self.clone();
        if !may_be_told {
            // They are asked for an operator's word alone.
            (aged.ports, aged.asked_at_us, aged.asked_since_us) = Default::default();
        }
        // Every field is named, so that a new one does not compile before its times are thought of.
        let Self {
            own: _,
            chance: _,
            only_joins: _,
            alone_after: _,
            brings: _,
            lines: _,
            heard,
            answers,
            strangers,
            asked_since_us,
            ports,
            asked_at_us,
            refused,
            given,
        } = &mut aged;
        let age_us = |at_us: u64| now_us.saturating_sub(at_us);
        let grow_old = |at_us: &mut u64, counts_for_us| {
            *at_us = age_us(*at_us).min(counts_for_us);
            *at_us < counts_for_us
        };
        heard.retain(|_, (said, at_us)| grow_old(at_us, HEARD_US) || said.may_be_a_state());
        answers.retain(|_, (_, at_us)| grow_old(at_us, HEARD_US));
        strangers.retain(|_, (_, at_us)| grow_old(at_us, REFUSED_US));
        ports.retain(|_, (port, at_us)| {
            grow_old(at_us, ASKED_US) || matches!(port, Port::Serves { .. })
        });
        asked_at_us.retain(|_, at_us| grow_old(at_us, ASK_INTERVAL_US));
        refused.retain(|_, (_, at_us)| grow_old(at_us, REFUSED_US));
        *asked_since_us = asked_since_us.map(|at_us| age_us(at_us).min(LISTENS_US));
        if let Some((_, until_us)) = given {
            *until_us = until_us.saturating_sub(now_us);
        }
        aged
    }

    /// Some server belongs to an ensemble: belong to it, too.
    fn follow(&self, now_us: u64) -> Result<Option<Decision>, Conflict> {
        let own = (self.own, self.chance.nonce);
        let mut followed: Option<(u8, &Identified)> = None;
        let present = self.heard.iter().filter(|(id, _)| self.is_present(**id, now_us));
        for (&server, (introduction, _)) in present {
            let Introduction::Founded(identity) = introduction else { continue };
            // One that an operator has declared dead has come back: it is not followed.
            if self.alone_after == Some(identity.ensemble) {
                continue;
            }
            match followed {
                Some((first, known)) if known.ensemble != identity.ensemble => {
                    let ensembles = [(first, known.ensemble), (server, identity.ensemble)];
                    return Err(Conflict { ensembles });
                }
                // A server that joined does not know the founders.
                Some((_, known)) if known.founders.contains(&own) => {}
                Some(_) | None => followed = Some((server, identity)),
            }
        }
        let Some((_, followed)) = followed else { return Ok(None) };
        let decision =
            |identity, keeps_data| Decision { identity, keeps_data, without: Vec::new() };
        if let Own::State { identity, .. } = &self.brings {
            // It founded that ensemble before, or it came too late, and then it gives up nothing.
            let is_own = identity.ensemble == followed.ensemble || mutant!("late-state-joins");
            let members = followed.members.clone();
            let identity = Identified { members, ..identity.clone() };
            return Ok(is_own.then(|| decision(identity, true)));
        }
        // As earlier versions found: all that are heard are voters from the beginning.
        if followed.founders.contains(&own) {
            let identity = Identified { raft_id: raft_id(0, self.own), ..followed.clone() };
            return Ok(Some(decision(identity, false)));
        }
        let identity = Identified {
            raft_id: match mutant!("emptied-server-keeps-identity") {
                true => raft_id(0, self.own),
                false => raft_id(self.chance.incarnation, self.own),
            },
            founders: Vec::new(),
            ..followed.clone()
        };
        Ok(Some(decision(identity, false)))
    }

    /// No server that is heard belongs to an ensemble: found one, if it is this server's turn, and all participants
    /// consent that no operator has left out.
    fn found(&self, now_us: u64) -> Option<Decision> {
        if self.candidate(now_us) != Some(self.own) || self.is_contested() {
            return None;
        }
        let word = self.word(now_us);
        let without: &[u8] = word.map_or(&[], |word| &word.without);
        let consents = |id: &u8| {
            *id == self.own
                || self.answer(*id, now_us).is_some_and(|said| {
                    let is_bound = |word: &Word| {
                        said.word.as_ref() == Some(word) && word.binds(*id, said.nonce)
                    };
                    said.candidate == Some(self.own)
                        && self.names_the_same(&said.lines)
                        && word.is_none_or(is_bound)
                })
        };
        let participants = participants(&self.lines);
        let consenting = participants.iter().filter(|id| consents(id)).count();
        let needed = participants.iter().filter(|id| !without.contains(id)).count();
        let is_enough = consenting == needed
            || consenting > participants.len() / 2 && mutant!("majority-founds");
        if !is_enough {
            return None;
        }
        let members = self.members(now_us);
        let (identity, keeps_data) = match &self.brings {
            Own::State { identity, .. } => {
                let initial = self.initial_voters(identity.raft_id);
                (Identified { initial, members, ..identity.clone() }, true)
            }
            Own::Nothing | Own::Unread => {
                let (ensemble, raft_id) = (self.chance.ensemble, raft_id(0, self.own));
                let founders = vec![(self.own, self.chance.nonce)];
                let initial = self.initial_voters(raft_id);
                (Identified { ensemble, raft_id, founders, initial, members }, false)
            }
        };
        Some(Decision { identity, keeps_data, without: without.to_vec() })
    }

    /// An operator has declared the others dead: found without them, unless something is seen that speaks against it.
    /// Of two that were declared alone, each is in the other's way: an operator chooses.
    fn found_alone(&self, since_us: u64, now_us: u64) -> Option<Decision> {
        let Own::State { identity, .. } = &self.brings else { return None };
        let has_listened = now_us >= since_us.saturating_add(LISTENS_US);
        if !has_listened || self.in_the_way(now_us).is_some() {
            return None;
        }
        let initial = self.initial_voters(identity.raft_id);
        let identity = Identified { initial, members: self.members(now_us), ..identity.clone() };
        Some(Decision { identity, keeps_data: true, without: Vec::new() })
    }

    /// Whether others have an ensemble, or lines, that do not fit together with the own ones.
    fn is_contested(&self) -> bool {
        (!self.strangers.is_empty() || !self.refused.is_empty()) && !mutant!("unequal-lines-found")
    }

    /// Who votes in what this server founds: that server alone.
    fn initial_voters(&self, founder: u64) -> Membership {
        let mut voters = vec![founder];
        if mutant!("absent-voters-count") {
            let others = participants(&self.lines).into_iter().filter(|id| *id != self.own);
            voters.extend(others.map(|id| raft_id(0, id)));
        }
        Membership { voters, learners: Vec::new() }
    }

    /// The server lines with which the ensemble begins. An address under which others cannot reach a
    /// server, such as the wildcard that it binds, is taken from the lines of those others.
    fn members(&self, now_us: u64) -> Vec<ServerSpec> {
        let better = |line: &ServerSpec| {
            let others = self.undecided(now_us).filter(|(id, _)| *id != line.id);
            let mut theirs = others.filter_map(|(_, said)| {
                said.lines.iter().find(|of| of.id == line.id && of.reach() > line.reach())
            });
            let addresses = theirs.next()?.addresses.clone();
            Some(ServerSpec { addresses, ..line.clone() })
        };
        let mut members: Vec<ServerSpec> =
            self.lines.iter().map(|line| better(line).unwrap_or_else(|| line.clone())).collect();
        members.sort_by_key(|line| line.id);
        members
    }

    /// The participant that is to found, as far as this server knows. One that only joins consents to a state alone.
    fn candidate(&self, now_us: u64) -> Option<u8> {
        if matches!(self.brings, Own::Unread) {
            return None;
        }
        let may_found = |id: &u8| {
            let says_same = *id == self.own
                || self.said(*id, now_us).is_some_and(|said| self.names_the_same(&said.lines));
            says_same && participants(&self.lines).contains(id)
        };
        match self.with_state()[..] {
            // Whatever is known of it, a state is never passed over.
            [(id, _)] => Some(id).filter(may_found),
            [(id, _), _, ..] if mutant!("first-of-two-states-founds") => Some(id),
            [_, _, ..] => None,
            [] if self.only_joins || self.heard.values().any(|(said, _)| said.may_be_a_state()) => {
                None
            }
            [] => {
                let heard = self.undecided(now_us).map(|(id, _)| id).chain([self.own]);
                heard.filter(may_found).min()
            }
        }
    }

    /// Servers that bring a state, itself included, with the znodes of each, in order of their ids.
    fn with_state(&self) -> Vec<(u8, u64)> {
        let heard = self.heard.iter().filter_map(|(id, (said, _))| match said {
            Introduction::Founding(said) => Some((*id, said.brings)),
            Introduction::Founded(_) => None,
        });
        let state = |(id, brings)| match brings {
            Brings::State { znodes, .. } => Some((id, znodes)),
            Brings::Nothing | Brings::Unread | Brings::Position(_) => None,
        };
        let own = (self.own, self.brings());
        let mut all: Vec<(u8, u64)> = heard.chain([own]).filter_map(state).collect();
        all.sort_unstable();
        all
    }

    /// What the others that belong to no ensemble say of themselves.
    fn undecided(&self, now_us: u64) -> impl Iterator<Item = (u8, &Undecided)> {
        self.heard.keys().filter_map(move |id| Some((*id, self.said(*id, now_us)?)))
    }

    fn said(&self, server: u8, now_us: u64) -> Option<&Undecided> {
        match self.heard.get(&server) {
            Some((Introduction::Founding(said), at_us))
                if at_us.saturating_add(HEARD_US) > now_us =>
            {
                Some(said)
            }
            Some((Introduction::Founding(_) | Introduction::Founded(_), _)) | None => None,
        }
    }

    /// Answer of a server to a question that was asked lately.
    fn answer(&self, server: u8, now_us: u64) -> Option<&Undecided> {
        let counts = |(_, asked_us): &&(Undecided, u64)| {
            asked_us.saturating_add(HEARD_US) > now_us || mutant!("consent-of-any-age")
        };
        self.answers.get(&server).filter(counts).map(|(said, _)| said)
    }

    /// Whether a server is this one, or was heard lately.
    fn is_present(&self, server: u8, now_us: u64) -> bool {
        let heard = self.heard.get(&server);
        server == self.own
            || heard.is_some_and(|(_, at_us)| at_us.saturating_add(HEARD_US) > now_us)
    }

    /// Whether these lines name the participants that the own ones do.
    fn names_the_same(&self, lines: &[ServerSpec]) -> bool {
        participants(lines) == participants(&self.lines) || mutant!("unequal-lines-found")
    }

    fn line(&self, server: u8) -> Option<&ServerSpec> {
        self.lines.iter().find(|line| line.id == server)
    }
}

/// Ids of the participants, in order.
fn participants(lines: &[ServerSpec]) -> Vec<u8> {
    let participants = lines.iter().filter(|line| line.role == Role::Participant);
    let mut ids: Vec<u8> = participants.map(|line| line.id).collect();
    ids.sort_unstable();
    ids
}

/// Two servers that the configuration names belong to different ensembles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Server id and ensemble of each.
    pub ensembles: [(u8, u128); 2],
}

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [(a, of_a), (b, of_b)] = self.ensembles;
        write!(
            f,
            "server {a} belongs to ensemble {of_a:032x}, server {b} to {of_b:032x}: one of them has \
             the wrong data directory, or has founded what no other server joined. Start that one, and never the one \
             that has the data, with --rejoin, which sets its own aside"
        )
    }
}
