//! What keeps servers from founding an ensemble, in words for an operator.
//!
//! *Owns* nothing: reads what the founding protocol knows. *Never* decides.

use super::{ASKED_US, Founding, Introduction, Own, PATIENCE_US, participants};

impl Founding {
    /// What keeps this server from becoming a member, and what an operator can do about it; `None` while
    /// it only waits for others to start.
    #[must_use]
    pub fn obstacle(&self, now_us: u64) -> Option<String> {
        let other = self.late().or_else(|| self.two_states(now_us)).or_else(|| self.rival());
        other.or_else(|| self.serving(now_us)).or_else(|| {
            let unequal = self.unequal_lines(now_us).or_else(|| self.unfit_founder());
            let refused = || self.refused.values().next().map(|(words, _)| words.clone());
            unequal.or_else(refused).or_else(|| self.only_waits(now_us))
        })
    }

    /// A server that founds none has met no other that has data, or that may found one.
    fn only_waits(&self, now_us: u64) -> Option<String> {
        (self.only_joins && now_us > PATIENCE_US).then(|| {
            format!(
                "server {} has no data and is not taken for a new server (its data was set aside, or \
                 db.autocreate is false and there is no file `initialize`): it founds no ensemble and \
                 waits for the one that has its data",
                self.own
            )
        })
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

    fn two_states(&self, now_us: u64) -> Option<String> {
        let with_state = self.with_state(now_us);
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

    fn rival(&self) -> Option<String> {
        let (id, elsewhere) = self.rivals().next()?;
        Some(format!(
            "server {id} has {elsewhere}, or had it when it was heard last: server {own} founds no ensemble beside it. \
             Start one of the two with --rejoin, which sets its data aside; if server {id} is lost for ever, start \
             server {own} again",
            own = self.own
        ))
    }

    fn serving(&self, now_us: u64) -> Option<String> {
        let serves = |(id, (mode, at_us)): (&u8, &(Option<String>, u64))| {
            mode.as_ref().map(|mode| (*id, mode.clone(), *at_us))
        };
        let (id, mode, at_us) = self.asked.iter().find_map(serves)?;
        Some(if at_us.saturating_add(ASKED_US) > now_us {
            format!(
                "server {id} serves by itself (Mode: {mode}): restart it with these server lines"
            )
        } else {
            format!(
                "server {id} served by itself (Mode: {mode}) when it answered last, and is silent now: start it with \
                 these server lines; if it is lost for ever, start server {} again",
                self.own
            )
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
