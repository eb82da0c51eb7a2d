//! An operator's word that an ensemble is founded without some of its participants.
//!
//! *Owns* when such a word is taken, whether it counts, and what speaks against it. *Invariants*: it counts for a
//! minute, for the servers that were heard when it was said and for no later life of them; a majority is never left
//! out, nor a server that runs, serves, or had a state when it was heard last: of one whose port is open and mute that
//! is not known, and what is not known is no "no"; two words that are not equal found nothing. *Never* decides: the
//! word takes the place of the consent of those that are left out, and of nothing else.

use super::introduction::Brings;
use super::obstacle::serves;
use super::{ASKED_US, Founding, Introduction, LISTENS_US, Own, Port, Word, participants};

/// Time for which an operator's word counts, microseconds.
pub const WORD_COUNTS_US: u64 = 60_000_000;

impl Founding {
    /// An operator says that the ensemble is to be founded without these servers. [`Founding::decide`] does it, if all
    /// others consent before `until_us`: a word is said for [`WORD_COUNTS_US`].
    ///
    /// # Errors
    /// Why it is not, one sentence for each reason: nothing has changed then.
    pub fn bootstrap(
        &mut self,
        without: &[u8],
        now_us: u64,
        until_us: u64,
    ) -> Result<Word, Vec<String>> {
        let mut without = without.to_vec();
        without.sort_unstable();
        without.dedup();
        let reasons = self.objections(&without, now_us);
        if !reasons.is_empty() {
            return Err(reasons);
        }
        let nonce = |id: u8| match self.said(id, now_us) {
            Some(said) => said.nonce,
            None => self.chance.nonce,
        };
        let with = participants(&self.lines).into_iter().filter(|id| !without.contains(id));
        let word = Word { with: with.map(|id| (id, nonce(id))).collect(), without };
        self.given = Some((word.clone(), until_us));
        Ok(word)
    }

    fn objections(&self, without: &[u8], now_us: u64) -> Vec<String> {
        let (own, participants) = (self.own, participants(&self.lines));
        let since_us = self.asked_since_us.unwrap_or(now_us);
        let mut reasons = Vec::new();
        if without.is_empty() {
            reasons.push("no server is named".to_owned());
        }
        if !participants.contains(&own) {
            reasons.push(format!("server {own} is an observer: say it to a participant"));
        }
        for id in without {
            if *id == own {
                reasons.push(format!("server {own} is the one that was told"));
            } else if participants.contains(id) {
                reasons.extend(self.against(*id, now_us));
            } else {
                reasons.push(format!("server {id} is no participant by the server lines"));
            }
        }
        if 2 * without.len() >= participants.len() {
            reasons.push(format!(
                "{} of {} participants are no minority: an ensemble serves with a majority alone",
                without.len(),
                participants.len()
            ));
        }
        if self.alone_after.is_some() {
            reasons.push(format!("server {own} goes on alone, as an operator has said before"));
        }
        if now_us < since_us.saturating_add(LISTENS_US) {
            reasons.push(format!("server {own} has begun to listen to the others only now"));
        }
        for id in participants.iter().filter(|id| **id != own && !without.contains(id)) {
            match self.said(*id, now_us) {
                None => reasons.push(format!(
                    "server {id} is not heard and not named: start it, or name it too"
                )),
                Some(said) if self.names_the_same(&said.lines) => {
                    if said.candidate.is_none() || said.candidate != self.candidate(now_us) {
                        reasons.push(format!(
                            "servers {id} and {own} do not agree on who founds it: see /readyz of both"
                        ));
                    }
                }
                Some(_) => {}
            }
        }
        if let Some(obstacle) = self.beside_missing(now_us) {
            reasons.push(obstacle);
        }
        reasons
    }

    /// Objection to leaving a participant out; `None` if nothing is known that speaks against it.
    pub(super) fn against(&self, server: u8, now_us: u64) -> Option<String> {
        if mutant!("word-beside-anything") {
            return None;
        }
        let is_alone = self.alone_after.is_some();
        if let Some((said, _)) = self.heard.get(&server) {
            let has = match said {
                Introduction::Founded(_) => "belongs to an ensemble",
                Introduction::Founding(said) => match said.brings {
                    Brings::State { .. } => "has a state of its own",
                    Brings::Nothing => "is there, without data",
                    Brings::Unread | Brings::Position(_) => "may have a state",
                },
            };
            if self.is_present(server, now_us) {
                return Some(format!("server {server} {has}"));
            }
            // Of the ensemble that an operator has given up, all may be down again.
            let is_given_up = self.alone_after.is_some_and(|of| said.elsewhere(of).is_none());
            if said.may_be_a_state() && !is_given_up {
                let others = if is_alone { "this server" } else { "the other servers" };
                return Some(format!(
                    "server {server} {has}, or had it when it was heard last: start it. If it is lost for ever, start \
                     {others} again, so that this is forgotten, and ask again"
                ));
            }
        }
        if let Some((words, _)) = self.refused.get(&server) {
            return Some(words.clone());
        }
        // What was given up is not to come back.
        let cure =
            if is_alone { "Stop it" } else { "Start it with these server lines, or stop it" };
        match self.ports.get(&server) {
            Some((Port::Serves { mode, version }, at_us)) => {
                let is_now = now_us < at_us.saturating_add(ASKED_US);
                Some(serves((server, self.own), (mode, version), is_now))
            }
            Some((port, at_us)) if now_us < at_us.saturating_add(ASKED_US) => match port {
                Port::ServesNot => Some(format!(
                    "server {server} runs: its port for clients answers that it does not serve. {cure}"
                )),
                Port::Mute => Some(format!(
                    "server {server} may run: a port of it takes connections and says nothing. {cure}. If something \
                     else answers at its address, change its line in the files of all"
                )),
                Port::Closed | Port::Serves { .. } => None,
            },
            Some(_) | None => Some(format!("server {server} was not asked yet: ask again")),
        }
    }

    /// Objection to going on alone. A server that is there with nothing, or with the log that was given up, is none: it
    /// joins.
    pub(super) fn in_the_way(&self, now_us: u64) -> Option<String> {
        let before = self.alone_after?;
        let participants = participants(&self.lines);
        let mut others = self.lines.iter().map(|line| line.id).filter(|id| *id != self.own);
        others.find_map(|id| match (self.said(id, now_us), self.heard.get(&id)) {
            (Some(_), Some((said, _))) if said.elsewhere(before).is_none() => None,
            (_, None) if !participants.contains(&id) => None,
            _ => self.against(id, now_us),
        })
    }

    /// Word of an operator to this server, as long as it counts.
    pub(super) fn given(&self, now_us: u64) -> Option<&Word> {
        self.given.as_ref().filter(|(_, until_us)| now_us < *until_us).map(|(word, _)| word)
    }

    /// The word that this server consents to: its own, or the one that all others say that were told one.
    pub(super) fn word(&self, now_us: u64) -> Option<&Word> {
        let said = self.undecided(now_us).filter(|(id, said)| {
            said.is_told && said.word.as_ref().is_some_and(|word| word.binds(*id, said.nonce))
        });
        let mut words = said.filter_map(|(_, said)| said.word.as_ref()).chain(self.given(now_us));
        let word = words.next()?;
        let is_one = words.all(|other| other == word);
        (is_one && self.stands(word, now_us)).then_some(word)
    }

    fn stands(&self, word: &Word, now_us: u64) -> bool {
        let participants = participants(&self.lines);
        let mut named: Vec<u8> =
            word.with.iter().map(|(id, _)| *id).chain(word.without.iter().copied()).collect();
        named.sort_unstable();
        named == participants
            && 2 * word.without.len() < participants.len()
            && word.binds(self.own, self.chance.nonce)
            && !matches!(self.brings, Own::Unread)
            && word.without.iter().all(|id| self.against(*id, now_us).is_none())
    }
}
