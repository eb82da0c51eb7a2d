//! What keeps servers from founding an ensemble, in words for an operator.
//!
//! *Owns* nothing: reads what the founding protocol knows. *Never* decides.

use super::introduction::{Brings, Undecided};
use super::{ASKED_US, Founding, Introduction, LISTENS_US, Own, Port, participants};

/// Times for which a server is missed, seconds and words: each of them is a new line in the log.
const MISSED_S: [(u64, &str); 5] =
    [(86_400, "a day"), (3600, "an hour"), (300, "5 minutes"), (30, "30 s"), (3, "3 s")];

impl Founding {
    /// What keeps this server from becoming a member, and what an operator can do about it; `None` while
    /// it has waited for others for a short time only.
    #[must_use]
    pub fn obstacle(&self, now_us: u64) -> Option<String> {
        let other = self.beside_missing(now_us).or_else(|| self.serving(now_us));
        other.or_else(|| self.only_waits(now_us)).or_else(|| self.missing(now_us))
    }

    /// Obstacles besides servers that are not heard.
    pub(super) fn beside_missing(&self, now_us: u64) -> Option<String> {
        let other = self.late().or_else(|| self.two_states());
        let unequal = || self.unequal_lines(now_us).or_else(|| self.unfit_founder());
        let refused = || self.refused.values().next().map(|(words, _)| words.clone());
        other.or_else(unequal).or_else(refused)
    }

    /// Time for which this server has listened, microseconds.
    fn listened_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.asked_since_us.unwrap_or(now_us))
    }

    /// A server that founds none has met no other that has data, or that may found one.
    fn only_waits(&self, now_us: u64) -> Option<String> {
        (self.only_joins && self.listened_us(now_us) >= LISTENS_US).then(|| {
            format!(
                "server {} has no data and is not taken for a new server (its data was set aside, or \
                 db.autocreate is false and there is no file `initialize`): it founds no ensemble and \
                 waits for the one that has its data",
                self.own
            )
        })
    }

    /// Servers that are waited for, for how long, and the command that settles it.
    fn missing(&self, now_us: u64) -> Option<String> {
        if self.listened_us(now_us) < LISTENS_US {
            return None;
        }
        if self.alone_after.is_some() {
            let why = self.in_the_way(now_us)?;
            return Some(format!("server {} is to go on alone, and does not yet: {why}", self.own));
        }
        let participants = participants(&self.lines);
        let given = self.given(now_us).map_or(&[][..], |word| &word.without);
        let missing = participants.iter().copied().filter(|id| !self.is_present(*id, now_us));
        let missing: Vec<u8> = missing.filter(|id| !given.contains(id)).collect();
        let heard_us =
            |id: &u8| self.heard.get(id).map(|(_, at_us)| *at_us).max(self.asked_since_us);
        let Some(silent_us) = missing.iter().filter_map(heard_us).max() else {
            return self.remembered(now_us).or_else(|| self.disagreeing(now_us));
        };
        let silent_s = now_us.saturating_sub(silent_us) / 1_000_000;
        let (_, silent) = MISSED_S.iter().find(|(seconds, _)| silent_s >= *seconds)?;
        let may_be_left_out = 2 * missing.len() < participants.len()
            && participants.contains(&self.own)
            && given.is_empty();
        let what_next = match missing.iter().find_map(|id| self.against(*id, now_us)) {
            Some(against) => against,
            None if missing.len() > 1 && !may_be_left_out => "Start them".to_owned(),
            None if !may_be_left_out => "Start it".to_owned(),
            None => format!(
                "Start it. If it was never there, or is lost for ever: `lockkeeper member bootstrap --without {}` \
                 founds the ensemble without what it had",
                list(&missing).replace(' ', "")
            ),
        };
        Some(format!(
            "server {} waits for server {}, not heard for more than {silent}: an ensemble is founded when all \
             participants of its server lines are there. {what_next}",
            self.own,
            list(&missing),
        ))
    }

    /// A server that is no participant, or not away, and has a state, or may have one: no empty ensemble is founded.
    fn remembered(&self, now_us: u64) -> Option<String> {
        if self.candidate(now_us).is_some() {
            return None;
        }
        let known = self.heard.iter().filter(|(_, (said, _))| said.may_be_a_state());
        known.map(|(id, _)| *id).find_map(|id| match self.said(id, now_us).map(|said| said.brings) {
            Some(Brings::Unread) => Some(format!("server {id} is still reading its disk")),
            Some(Brings::Position(_)) => Some(format!(
                "an operator is asked on server {id} whether it goes on alone: no ensemble is founded beside it"
            )),
            Some(Brings::Nothing | Brings::State { .. }) | None => self.against(id, now_us),
        })
    }

    /// A server that is there and does not consent.
    fn disagreeing(&self, now_us: u64) -> Option<String> {
        let (own, word) = (self.candidate(now_us), self.word(now_us));
        let consents = |said: &Undecided| own.is_some() && said.candidate == own;
        let differs = |said: &Undecided| {
            !consents(said) || self.given(now_us).is_some() && said.word.as_ref() != word
        };
        let participants = participants(&self.lines);
        let mut others = self.undecided(now_us).filter(|(id, _)| participants.contains(id));
        let (id, said) = others.find(|(_, said)| differs(said))?;
        let what = match consents(said) {
            true => "on whom to leave out",
            false => "on the server that founds their ensemble",
        };
        Some(format!(
            "servers {id} and {} do not agree {what}: /readyz of server {id} says why",
            self.own
        ))
    }

    fn late(&self) -> Option<String> {
        let Own::State { identity, znodes } = &self.brings else { return None };
        let others = self.heard.iter().filter_map(|(id, (introduction, _))| match introduction {
            Introduction::Founded(other) if other.ensemble != identity.ensemble => Some(*id),
            Introduction::Founded(_) | Introduction::Founding(_) => None,
        });
        let others: Vec<u8> = others.collect();
        let first = self.heard.get(others.first()?)?;
        let Introduction::Founded(founded) = &first.0 else { return None };
        Some(format!(
            "servers {} founded the ensemble {:032x} without server {}, which has a state of its own \
             ({znodes} znodes): it serves no client and keeps its data. To have it join with the \
             ensemble's state instead, start it with --rejoin, which sets its data aside",
            list(&others),
            founded.ensemble,
            self.own
        ))
    }

    fn two_states(&self) -> Option<String> {
        let with_state = self.with_state();
        if with_state.len() < 2 {
            return None;
        }
        let each: Vec<String> = with_state
            .iter()
            .map(|(id, znodes)| format!("server {id} ({znodes} znodes)"))
            .collect();
        Some(format!(
            "{} each have a state of their own: no ensemble is founded before one of them is chosen. \
             Start the others with --rejoin, which sets their data aside",
            each.join(" and ")
        ))
    }

    fn serving(&self, now_us: u64) -> Option<String> {
        self.ports.iter().find_map(|(id, (port, at_us))| {
            let Port::Serves { mode, version } = port else { return None };
            let is_now = at_us.saturating_add(ASKED_US) > now_us;
            Some(serves((*id, self.own), (mode, version), is_now))
        })
    }

    fn unequal_lines(&self, now_us: u64) -> Option<String> {
        let heard = self.undecided(now_us).map(|(id, said)| (id, &said.lines));
        let strangers = self.strangers.iter().map(|(id, (lines, _))| (*id, lines));
        let (id, lines) = heard.chain(strangers).find(|(_, lines)| !self.names_the_same(lines))?;
        Some(format!(
            "the server lines of server {id} name the participants {}, those of server {} name {}: \
             only servers whose lines name the same participants found an ensemble",
            list(&participants(lines)),
            self.own,
            list(&participants(&self.lines))
        ))
    }

    fn unfit_founder(&self) -> Option<String> {
        let Own::State { znodes, .. } = &self.brings else { return None };
        if participants(&self.lines).contains(&self.own) {
            return None;
        }
        Some(format!(
            "server {} has a state of its own ({znodes} znodes), but its server lines make it an \
             observer, which founds no ensemble: make it a participant, or start it with --rejoin, \
             which sets its data aside",
            self.own
        ))
    }
}

fn list(ids: &[u8]) -> String {
    let words: Vec<String> = ids.iter().map(u8::to_string).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// A server that is not heard serves clients, now or when it answered last.
pub(super) fn serves(
    (server, own): (u8, u8),
    (mode, version): (&str, &str),
    is_now: bool,
) -> String {
    let is_zookeeper = !version.contains("lockkeeper");
    match is_now {
        true if is_zookeeper => format!(
            "server {server} serves clients (Mode: {mode}) as \"{version}\", which is no lockkeeper: no ensemble is of \
             both. `lockkeeper migrate` takes over all its data while its clients go on: docs/MIGRATION.md"
        ),
        true => format!(
            "server {server} serves by itself (Mode: {mode}): restart it with these server lines"
        ),
        false => format!(
            "server {server} served by itself (Mode: {mode}) when it answered last, and is silent now: start it with \
             these server lines; if it is lost for ever, start server {own} again"
        ),
    }
}
