//! The comparison of states with the other servers, and the end of a server whose state is another one.
//!
//! *Owns* nothing: joins the comparison with links, leadership and the consensus. *Invariants*: from the moment at
//! which a server has diverged it answers no client, applies nothing, hands nothing to its disk and leads no longer;
//! before the ensemble is of the second version, files of servers may decide differently, so that a difference is
//! reported and ends no server. *Never* trusts what a server says of another one.

use crate::replica::Replica;
use crate::replica::comparison::{DEFINITION, DigestReport, Search, Window};
use crate::replica::consensus::{Refusal, RefusalKind};
use crate::replica::machine::{asked, version};
use crate::replica::messages::{PeerMessage, server_of};

/// Most znodes whose digests are recomputed in one tick (`timing::TICK_MS`), and about so many bytes of data: a pass
/// over a million znodes takes 100 s, and half a percent of a core.
const SCRUB_ZNODES_PER_TICK: usize = 500;
const SCRUB_BYTES_PER_TICK: usize = 1 << 20;

impl Replica {
    /// As the leader, asks all servers for their digests, if it is time.
    pub(super) fn compare_others(&mut self) {
        let (now_us, applied) = (self.clocks.now_us(), self.state.at().0);
        if self.leadership.leads().is_none() || !self.compares() {
            return;
        }
        let Some(window) = self.comparison.next_window(applied, now_us) else { return };
        let term = self.consensus.term();
        self.send_to_members(&PeerMessage::Compare { term, window });
        self.comparison.asked(window);
        self.report_digests();
    }

    /// Time has passed: recomputes a part of the digest. A server whose memory has changed ends: its disk has what was
    /// written.
    pub(super) fn scrub(&mut self) {
        if mutant!("flipped-byte") {
            self.state.machine_mut().flip_a_byte("/n0");
        }
        let now_us = self.clocks.now_us();
        if !self.comparison.scrubs(now_us) || self.is_diverged() {
            return;
        }
        let machine = self.state.machine_mut();
        let Some(is_equal) = machine.scrub(SCRUB_ZNODES_PER_TICK, SCRUB_BYTES_PER_TICK) else {
            return;
        };
        self.comparison.scrubbed(now_us);
        if !is_equal {
            let words = "the memory of this server changed under its znodes: the digest of what is there is not \
                         that of what was written. It serves no client any more; a start reads its state from the \
                         disk. If it happens again, test the memory of the machine";
            let (words, kind) = (words.to_owned(), RefusalKind::MemoryChanged);
            self.stop_serving();
            self.clients.drop_output();
            self.consensus.refuse(Refusal { words, kind });
        }
    }

    pub(super) fn compares(&self) -> bool {
        self.setup.compares && self.setup.ensemble.is_some()
    }

    fn send_to_members(&mut self, message: &PeerMessage) {
        let own = self.consensus.id();
        let others = self.consensus.peers().into_iter().map(|peer| peer.id);
        let others: Vec<u64> = others.filter(|id| *id != own).collect();
        self.output.send_all(others.into_iter().map(|id| (id, message.clone())));
    }

    /// Another server asks for the digests of a window: the leader those of all servers, and one that has diverged
    /// those of one server. False: it is no member.
    pub(super) fn asked_to_compare(&mut self, from: u64, term: u64, window: Window) -> bool {
        if !self.is_member(from) {
            return false;
        }
        let is_leader = self.consensus.leader() == Some(from) && self.consensus.term() == term;
        if is_leader && self.compares() {
            self.comparison.asked(window);
            self.report_digests();
        } else if let Some(report) = self.comparison.report(window) {
            self.output.send(from, PeerMessage::Digests { report });
        }
        true
    }

    fn is_member(&self, id: u64) -> bool {
        self.consensus.takes_part(id)
    }

    /// Drops the reports of servers that are no members any more.
    pub(super) fn keep_reports_of_members(&mut self) {
        let consensus = &self.consensus;
        self.comparison.retain(|id| consensus.takes_part(id));
    }

    /// An entry was applied.
    pub(super) fn record_digest(&mut self) {
        if self.compares() {
            let machine = self.state.machine();
            self.comparison.applied(self.state.at(), machine.last_zxid(), machine.digest());
        }
    }

    /// The state is another one: read from the disk, or received.
    pub(in crate::replica) fn record_anew(&mut self) {
        let machine = self.state.machine();
        self.comparison.begin(self.state.at(), machine.last_zxid(), machine.digest());
    }

    /// Reports the digests of windows whose entries are applied now, to all servers.
    pub(in crate::replica) fn report_digests(&mut self) {
        for report in self.comparison.due(self.state.at().0) {
            self.send_to_members(&PeerMessage::Digests { report });
            self.judge(report);
        }
    }

    /// Another server reports its digests. False: it is no member.
    pub(super) fn digests(&mut self, from: u64, report: DigestReport) -> bool {
        if !self.is_member(from) {
            return false;
        }
        if report.definition != DEFINITION {
            return true;
        }
        if self.comparison.search().is_some() {
            self.comparison.answered(from, &report);
            self.look_for_difference();
            return true;
        }
        self.comparison.take(from, report);
        self.judge(report);
        true
    }

    fn judge(&mut self, about: DigestReport) {
        let voters = self.consensus.voters_of_both();
        let found = self.comparison.judge(&voters, self.consensus.id(), about);
        let Some(divergence) = found else { return };
        if self.state.machine().version() < version::SECOND {
            return self.comparison.differs_here(about.window.to);
        }
        self.comparison.diverged(divergence, self.clocks.now_us());
        self.stop_serving();
        self.clients.drop_output();
        self.resign();
        self.consensus.let_vote(false);
        self.look_for_difference();
    }

    /// Ids of the servers whose state is known to differ from that of a majority.
    pub(in crate::replica) fn differing(&self) -> Vec<u8> {
        let differing = self.comparison.differing(self.consensus.id());
        differing.into_iter().map(server_of).collect()
    }

    /// Whether this server has diverged.
    pub(in crate::replica) fn is_diverged(&self) -> bool {
        self.comparison.search().is_some()
    }

    /// Why this server ends, as far as it is known by now: its state is not that of the majority. To be written to its
    /// directory at once.
    #[must_use]
    pub fn divergence(&self) -> Option<String> {
        let search = self.comparison.search()?;
        search.divergence().agreed.map(|_| self.words(search))
    }

    /// Looks for the first entry that differs, and then refuses to take part any more.
    pub(in crate::replica) fn look_for_difference(&mut self) {
        let now_us = self.clocks.now_us();
        if let Some((server, window)) = self.comparison.ask(now_us) {
            let term = self.consensus.term();
            self.output.send(server, PeerMessage::Compare { term, window });
        }
        let Some(search) = self.comparison.search().filter(|search| search.is_over(now_us)) else {
            return;
        };
        let words = self.words(search);
        let kind = match search.divergence().agreed {
            Some(_) => RefusalKind::Diverged,
            None => RefusalKind::NoMajority,
        };
        self.consensus.refuse(Refusal { words, kind });
        self.stop_if_refused();
    }

    /// Evidence of a divergence in words, and what to do.
    fn words(&self, search: &Search) -> String {
        let divergence = search.divergence();
        let all = divergence.values.iter().map(|(id, value)| {
            format!("server {} {:032x}/{:032x}", server_of(*id), value.digest, value.sum)
        });
        let all = all.collect::<Vec<_>>().join(", ");
        let Window { from, to } = divergence.report.window;
        let evidence = format!("{} (digests of entries {from} to {to}: {all})", self.first(search));
        match divergence.agreed {
            Some(_) => format!(
                "the state of this server is not that of the majority, {evidence}. It serves no client and takes \
                 part no more. Its log is kept; its copies of the state are to be put aside, and fetched from the \
                 others: lockkeeper server --rejoin"
            ),
            None => format!(
                "no majority of the voters has the same state, {evidence}. Which one is right is not known, so all \
                 servers stop. Compare their states (`lockkeeper snapshot save --offline`) and audit logs. On the \
                 server whose state is right, remove the file `undecided` from its data directory and start it; \
                 start the others with --rejoin"
            ),
        }
    }

    /// The first entry that differs, as far as it is known.
    fn first(&self, search: &Search) -> String {
        let (equal, differs) = search.found();
        match (equal, self.comparison.zxid(differs)) {
            (Some(equal), Some(zxid)) if equal + 1 == differs => {
                let entry = self.consensus.entry_in_memory(differs);
                let asked = entry.map(|data| asked(&data)).filter(|asked| !asked.is_empty());
                let asked = asked.map_or_else(String::new, |asked| format!(": {asked}"));
                format!("first with zxid {zxid:#x}, log entry {differs}{asked}")
            }
            (Some(equal), Some(last)) => {
                format!("first between log entries {equal} and {differs} (up to zxid {last:#x})")
            }
            (_, Some(zxid)) => format!("at zxid {zxid:#x} (log entry {differs}) or before"),
            (_, None) => format!("at log entry {differs} or before"),
        }
    }
}
