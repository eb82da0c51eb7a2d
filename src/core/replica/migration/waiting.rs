//! Requests that ZooKeeper was given and has not answered, as far as this leader knows.
//!
//! *Owns* of each session the requests in the order in which they were given, what waits for a SYNC or for the word
//! whether a session is open, and what waits for a proof. *Invariants*: a transaction answers the oldest request of its
//! session that it can be of; what was given before that one and has no answer never gets one; no number of a probe is
//! given twice; a request sets out behind the probe of a sync that its session asked for before it. *Never* matches by
//! anything but the session, and within it by the client's own number: this is all that ZooKeeper gives back.
//!
//! A leader that was hung, and wakes deposed, answers as if it led until it notices. Answers that must not be believed
//! then wait for a probe: a transaction that was asked for later. A majority has committed it, so no majority followed
//! another leader when it was asked for. A probe is for all that waited when it was sent. Another one is sent when it
//! is back, or when a session goes on behind a sync: ZooKeeper answers in order, and so does this ensemble.
//!
//! Takes the place of `CommitProcessor.pendingRequests`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::learner::NO_SESSION;
use crate::replica::machine::{Origin, Txn};
use crate::zookeeper::TxnHeader;
use crate::zookeeper::txn::kind;

/// What a request asks for, as far as its answer can be told by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    OpenSession,
    Other { cxid: i32 },
}

#[derive(Clone, Copy, Debug)]
struct Given {
    kind: Kind,
    origin: Origin,
}

/// Purpose of a probe.
#[derive(Debug)]
pub(in crate::replica) enum Unproven {
    /// A client's sync: everything that was committed is to come first.
    Sync(Txn),
    /// An attach whose session is not open, as the leader says.
    Expired(Txn),
    /// This attempt of a cutover: everything that was committed is to come first.
    CutOver(u64),
}

/// What a transaction of ZooKeeper answers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::replica) struct Answered {
    /// Where its outcome goes; `None`: no client of this ensemble has asked for it.
    pub(in crate::replica) origin: Option<Origin>,
    /// Those that were given before it in the same session and get no answer any more.
    pub(in crate::replica) lost: Vec<Origin>,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::replica) struct Waiting {
    given: BTreeMap<i64, VecDeque<Given>>,
    count: usize,
    /// Whether sessions are open: of each the questions, oldest first. `None`: only the question counts.
    attaching: BTreeMap<i64, VecDeque<Option<Txn>>>,
    /// Sessions that ZooKeeper has given to this ensemble, in the order of their SYNCs.
    syncs: VecDeque<Txn>,
    /// Answers that wait for a proof, oldest first.
    unproven: VecDeque<Unproven>,
    /// Probes that are on their way, oldest first, and how many each one is for.
    probing: VecDeque<(i32, usize)>,
    /// Sessions with a sync that no probe was sent for yet.
    unprobed: BTreeSet<i64>,
    /// How many were sent, over all links: a leader may take one from a link that broke before.
    probes: u16,
}

impl Waiting {
    /// A request was given to ZooKeeper.
    pub(in crate::replica) fn give(&mut self, session: i64, cxid: i32, origin: Origin) {
        self.add(session, Given { kind: Kind::Other { cxid }, origin });
    }

    /// A session is to be opened.
    pub(in crate::replica) fn open(&mut self, session: i64, origin: Origin) {
        self.add(session, Given { kind: Kind::OpenSession, origin });
    }

    fn add(&mut self, session: i64, given: Given) {
        self.given.entry(session).or_default().push_back(given);
        self.count += 1;
    }

    /// It was asked whether the session of an attach is open.
    pub(in crate::replica) fn attach(&mut self, txn: Txn) {
        self.attaching.entry(txn.session).or_default().push_back(Some(txn));
    }

    /// It was asked whether a session is open, so that it belongs to this link from then on.
    pub(in crate::replica) fn fence(&mut self, session: i64) {
        self.attaching.entry(session).or_default().push_back(None);
    }

    /// The oldest question whether a session is open is answered: the attach that it was asked for.
    pub(in crate::replica) fn attached(&mut self, session: i64) -> Option<Txn> {
        let asked = self.attaching.get_mut(&session)?;
        let txn = asked.pop_front();
        if asked.is_empty() {
            self.attaching.remove(&session);
        }
        txn.flatten()
    }

    /// A SYNC was asked for, because of an attach: everything that its session did elsewhere is to come first.
    pub(in crate::replica) fn sync(&mut self, attach: Txn) {
        self.syncs.push_back(attach);
    }

    /// The oldest SYNC is answered: the attach that it was asked for.
    pub(in crate::replica) fn synced(&mut self) -> Option<Txn> {
        self.syncs.pop_front()
    }

    /// Something waits for a proof.
    pub(in crate::replica) fn prove(&mut self, what: Unproven) {
        if let Unproven::Sync(txn) = &what {
            self.unprobed.insert(txn.session);
        }
        self.unproven.push_back(what);
    }

    /// Whether a session has a sync that no probe was sent for yet.
    pub(in crate::replica) fn is_unprobed(&self, session: i64) -> bool {
        self.unprobed.contains(&session) && !mutant!("write-before-its-sync")
    }

    /// Whether a probe is on its way.
    pub(in crate::replica) fn is_probing(&self) -> bool {
        !self.probing.is_empty()
    }

    /// The number of the probe that is to be sent now by the leader of this term; `None`: nothing waits for one.
    pub(in crate::replica) fn next_probe(&mut self, term: u64) -> Option<i32> {
        let probed: usize = self.probing.iter().map(|(_, count)| count).sum();
        let count = self.unproven.len() - probed;
        if count == 0 {
            return None;
        }
        self.unprobed.clear();
        self.probes = self.probes.wrapping_add(1);
        // Another server of this ensemble, which leads no longer, may still have a link.
        let number = ((term as u32) << 16 | u32::from(self.probes)).cast_signed();
        self.probing.push_back((number, count));
        Some(number)
    }

    /// A transaction came: what it proves.
    pub(in crate::replica) fn proven(&mut self, header: &TxnHeader) -> VecDeque<Unproven> {
        let is_it =
            |(number, _): &(i32, usize)| header.client_id == NO_SESSION && header.cxid == *number;
        let Some(place) = self.probing.iter().position(is_it) else { return VecDeque::new() };
        let count: usize = self.probing.drain(..=place).map(|(_, count)| count).sum();
        self.unproven.drain(..count).collect()
    }

    /// A transaction came.
    pub(in crate::replica) fn answer(&mut self, header: &TxnHeader) -> Answered {
        let TxnHeader { client_id, cxid, .. } = *header;
        let mut answered = Answered::default();
        let Some(given) = self.given.get_mut(&client_id) else { return answered };
        let wanted = match header.kind {
            kind::CREATE_SESSION => Kind::OpenSession,
            _ => Kind::Other { cxid },
        };
        let Some(place) = given.iter().position(|known| known.kind == wanted) else {
            return answered;
        };
        let mut done = given.drain(..=place).map(|known| known.origin);
        answered.lost = done.by_ref().take(place).collect();
        answered.origin = done.next();
        drop(done);
        self.count -= place + 1;
        if given.is_empty() {
            self.given.remove(&client_id);
        }
        answered
    }

    /// Whether nothing waits.
    pub(in crate::replica) fn is_empty(&self) -> bool {
        let is_all_proven = self.unproven.is_empty();
        self.count == 0 && self.attaching.is_empty() && self.syncs.is_empty() && is_all_proven
    }

    /// How many requests wait for their transaction.
    pub(in crate::replica) fn len(&self) -> usize {
        self.count
    }

    /// The link broke. What became of the first ones, each with its session, is not known; the others changed nothing,
    /// and can be asked again.
    pub(in crate::replica) fn lose(&mut self) -> (Vec<(i64, Origin)>, Vec<Txn>) {
        let of_session = |(session, given): (&i64, &VecDeque<Given>)| {
            let session = *session;
            given.iter().map(move |known| (session, known.origin)).collect::<Vec<_>>()
        };
        let lost = self.given.iter().flat_map(of_session).collect();
        let attaching = std::mem::take(&mut self.attaching).into_values().flatten().flatten();
        let unproven =
            std::mem::take(&mut self.unproven).into_iter().filter_map(|what| match what {
                Unproven::Sync(txn) | Unproven::Expired(txn) => Some(txn),
                Unproven::CutOver(_) => None,
            });
        let again = attaching.chain(std::mem::take(&mut self.syncs)).chain(unproven).collect();
        *self = Self { probes: self.probes, ..Self::default() };
        (lost, again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::machine::{Identities, TxnOp};

    fn origin(sequence: u64) -> Origin {
        Origin { server: 1, conn: 1, sequence }
    }

    fn txn(session: i64) -> Txn {
        let (cxid, ids, op) = (0, Identities::new(), TxnOp::CloseSession);
        Txn { origin: origin(9), session, cxid, ids, op }
    }

    fn header(client_id: i64, cxid: i32, kind: i32) -> TxnHeader {
        TxnHeader { client_id, cxid, kind, ..TxnHeader::default() }
    }

    #[test]
    fn a_transaction_answers_the_request_of_its_session_and_number() {
        let mut waiting = Waiting::default();
        waiting.open(5, origin(0));
        waiting.give(7, 3, origin(1));
        let strange = waiting.answer(&header(7, 4, kind::CREATE));
        assert_eq!(strange, Answered::default());
        assert_eq!(waiting.answer(&header(7, 3, kind::ERROR)).origin, Some(origin(1)));
        assert_eq!(waiting.answer(&header(7, 3, kind::ERROR)).origin, None, "once");
        assert_eq!(waiting.answer(&header(5, 0, kind::CLOSE_SESSION)).origin, None);
        assert_eq!(waiting.answer(&header(5, 0, kind::CREATE_SESSION)).origin, Some(origin(0)));
        assert!(waiting.is_empty());
    }

    #[test]
    fn what_was_given_before_the_one_that_is_answered_gets_no_answer() {
        let mut waiting = Waiting::default();
        for cxid in 1..=3 {
            waiting.give(7, cxid, origin(u64::from(cxid.unsigned_abs())));
        }
        let answered = waiting.answer(&header(7, 3, kind::DELETE));
        assert_eq!(
            answered,
            Answered { origin: Some(origin(3)), lost: vec![origin(1), origin(2)] }
        );
        assert_eq!(waiting.len(), 0);
    }

    #[test]
    fn when_the_link_breaks_writes_are_lost_and_the_rest_can_be_asked_again() {
        let mut waiting = Waiting::default();
        waiting.give(7, 1, origin(1));
        waiting.attach(txn(8));
        waiting.prove(Unproven::CutOver(1));
        waiting.prove(Unproven::Sync(txn(9)));
        waiting.prove(Unproven::Expired(txn(10)));
        let first = waiting.next_probe(1);
        let (lost, again) = waiting.lose();
        assert_eq!(lost, [(7, origin(1))]);
        assert_eq!(again.iter().map(|txn| txn.session).collect::<Vec<_>>(), [8, 9, 10]);
        assert!(waiting.is_empty());
        waiting.prove(Unproven::CutOver(2));
        assert_ne!(waiting.next_probe(1), first, "a leader may still take it");
    }

    #[test]
    fn a_probe_proves_what_waited_when_it_was_sent() {
        let probed = |cxid: i32| header(NO_SESSION, cxid, kind::ERROR);
        let mut waiting = Waiting::default();
        assert_eq!(waiting.next_probe(7), None, "nothing waits");
        waiting.prove(Unproven::CutOver(1));
        let first = waiting.next_probe(7).unwrap();
        waiting.prove(Unproven::CutOver(2));
        waiting.prove(Unproven::CutOver(3));
        assert!(waiting.is_probing());
        assert_eq!(waiting.proven(&probed(first + 1)).len(), 0);
        assert_eq!(waiting.proven(&header(5, first, kind::ERROR)).len(), 0, "it is a client's");
        let proven = waiting.proven(&probed(first));
        assert!(matches!(proven.iter().collect::<Vec<_>>()[..], [Unproven::CutOver(1)]));
        assert_eq!(waiting.proven(&probed(first)).len(), 0, "once");
        let second = waiting.next_probe(7).unwrap();
        assert_eq!(waiting.next_probe(7), None, "it is for all that waits");
        assert_eq!(waiting.proven(&probed(second)).len(), 2);
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_session_that_goes_on_behind_its_sync_needs_a_probe_first() {
        let probed = |cxid: i32| header(NO_SESSION, cxid, kind::ERROR);
        let mut waiting = Waiting::default();
        waiting.prove(Unproven::Expired(txn(8)));
        let first = waiting.next_probe(7).unwrap();
        waiting.prove(Unproven::Sync(txn(9)));
        assert_eq!((waiting.is_unprobed(8), waiting.is_unprobed(9)), (false, true));
        let second = waiting.next_probe(7).unwrap();
        assert!(!waiting.is_unprobed(9));
        assert!(matches!(waiting.proven(&probed(first)).pop_front(), Some(Unproven::Expired(_))));
        assert!(matches!(waiting.proven(&probed(second)).pop_front(), Some(Unproven::Sync(_))));
        assert!(waiting.is_empty() && !waiting.is_probing());
    }
}
