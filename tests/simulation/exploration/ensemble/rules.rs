//! What is right, whatever happens, judged by what servers did and told.
//!
//! *Owns* the history that the servers agree on, what clients were shown of it, and when each client was answered.
//! *Invariants* that it judges:
//!
//! * servers that apply a transaction apply the same one, with the same outcome and state;
//! * at most one server leads in a term, and one that begins to lead has all that clients were shown before;
//! * a server that begins to serve has all that clients were shown when it served last;
//! * a session ends by its timeout only when that has passed since its client was last answered;
//! * an ephemeral goes with its session;
//! * a connection's writes are applied in their order, and none in the middle is lost.
//!
//! *Never* looks at what a server knows of the others.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper_core::replica::txn::{Batch, TxnOp};
use lockkeeper_core::replica::{Append, AuditLine, ConnId, EntryKind, Replica};

use super::host::Host;
use crate::exploration::explorer::Violation;

/// What a server showed of a transaction first.
#[derive(Clone, Debug)]
struct Line {
    by: u8,
    index: u64,
    term: u64,
    session: i64,
    xid: i32,
    op: &'static str,
    result: &'static str,
    digest: u128,
}

/// When a client was heard and answered.
#[derive(Clone, Copy, Debug)]
struct Client {
    timeout_us: u64,
    /// When it last asked for something and was answered.
    asked_us: u64,
    /// Until then, answers promise nothing: the client asked when its session's time was over.
    late_until_us: u64,
    /// From then on its session has its timeout.
    kept_from_us: u64,
    /// When it was last proposed to give it a connection, and in which term.
    attached: Option<(u64, u64)>,
}

#[derive(Default)]
pub struct Rules {
    /// By zxid.
    history: BTreeMap<i64, Line>,
    /// Index and term of the entries that were judged when they were proposed.
    proposed: BTreeSet<(u64, u64)>,
    /// The highest zxid that a client was shown.
    shown: i64,
    /// By server that does not serve: what had been shown when it did last.
    awaits: BTreeMap<u8, i64>,
    leaders: BTreeMap<u64, u8>,
    clients: BTreeMap<i64, Client>,
    /// Session, connection and number, in the order in which they were sent.
    writes: Vec<(i64, ConnId, i32)>,
}

impl Rules {
    pub fn started(&mut self, id: u8, _now_us: u64) {
        self.awaits.insert(id, self.shown);
    }

    pub fn killed(&mut self, id: u8) {
        self.awaits.remove(&id);
    }

    /// A session was given to a client just now.
    pub fn given(&mut self, session: i64, timeout_us: u64, now_us: u64) {
        let client = Client {
            timeout_us,
            asked_us: now_us,
            late_until_us: 0,
            kept_from_us: now_us,
            attached: None,
        };
        let known = self.clients.insert(session, client);
        if let (Some(known), Some(client)) = (known, self.clients.get_mut(&session)) {
            client.attached = known.attached;
        }
    }

    /// A client was answered, now, what it asked just now, in its session.
    pub fn answered(&mut self, session: i64, now_us: u64) {
        let Some(client) = self.clients.get_mut(&session) else { return };
        if now_us >= client.asked_us + client.timeout_us {
            client.late_until_us = now_us + client.timeout_us;
        }
        client.asked_us = now_us;
        if now_us >= client.late_until_us {
            client.kept_from_us = now_us;
        }
    }

    /// All servers have stood still for so long that no client could be heard for this time, which does not count.
    pub fn stood_still(&mut self, us: u64) {
        for client in self.clients.values_mut() {
            client.kept_from_us += us;
            client.asked_us += us;
            client.late_until_us += us;
        }
    }

    /// A client has seen this zxid.
    pub fn showed(&mut self, zxid: i64) {
        self.shown = self.shown.max(zxid);
    }

    /// A server appends to its log: entries that none had before are proposed with that.
    pub fn appended(&mut self, id: u8, append: &Append, now_us: u64) -> Result<(), Violation> {
        for entry in &append.entries {
            let is_new = self.proposed.insert((entry.index, entry.term));
            if !is_new || entry.kind != EntryKind::Normal || entry.data.is_empty() {
                continue;
            }
            let batch = Batch::decode(&entry.data).map_err(|bad| bad.to_string())?;
            for txn in &batch.txns {
                let Some(client) = self.clients.get_mut(&txn.session) else { continue };
                if matches!(txn.op, TxnOp::AttachSession { .. }) {
                    client.attached = Some((now_us, entry.term));
                }
                if txn.op != TxnOp::ExpireSession {
                    continue;
                }
                if let Some((at_us, term)) = client.attached
                    && term == entry.term
                    && now_us - at_us < client.timeout_us
                {
                    return Err(format!(
                        "server {id} ends a session {} ms after it has proposed to give it a connection, timeout \
                         {} ms",
                        (now_us - at_us) / 1000,
                        client.timeout_us / 1000
                    ));
                }
                let silent_us = now_us.saturating_sub(client.kept_from_us);
                if silent_us < client.timeout_us {
                    return Err(format!(
                        "server {id} ends a session {} ms after its client was answered, timeout {} ms",
                        silent_us / 1000,
                        client.timeout_us / 1000
                    ));
                }
            }
        }
        Ok(())
    }

    /// A server has applied transactions.
    pub fn applied(&mut self, id: u8, lines: &[AuditLine]) -> Result<(), Violation> {
        for line in lines {
            let AuditLine { index, term, zxid, session, cxid: xid, op, result, digest, .. } = *line;
            let line = Line { by: id, index, term, session, xid, op, result, digest };
            if !self.history.contains_key(&zxid) {
                self.in_order(session, xid)?;
            }
            let known = self.history.entry(zxid).or_insert_with(|| line.clone());
            let is_same = (known.index, known.term, known.op, known.result, known.digest)
                == (index, term, op, result, digest);
            if !is_same {
                return Err(format!(
                    "server {id} applies {zxid:#x} as entry {index} of term {term}, {op} {result}, and server {} \
                     as entry {} of term {}, {} {}",
                    known.by, known.index, known.term, known.op, known.result
                ));
            }
        }
        Ok(())
    }

    /// A server had its turn.
    pub fn had_turn(&mut self, id: u8, replica: &Replica) -> Result<(), Violation> {
        if !replica.is_serving() {
            self.awaits.entry(id).or_insert(self.shown);
            return Ok(());
        }
        let needed = self.awaits.remove(&id).unwrap_or_default();
        let applied = replica.machine().last_zxid();
        if applied < needed {
            return Err(format!(
                "server {id} begins to serve and has applied {applied:#x}, when it served last \
                 clients had seen {needed:#x}"
            ));
        }
        Ok(())
    }

    /// A client has sent a write.
    pub fn wrote(&mut self, session: i64, conn: ConnId, xid: i32) {
        self.writes.push((session, conn, xid));
    }

    /// A write of a client was applied for the first time: those that it sent before on the same connection were, too.
    fn in_order(&self, session: i64, xid: i32) -> Result<(), Violation> {
        let is_it = |write: &&(i64, ConnId, i32)| (write.0, write.2) == (session, xid);
        let Some((_, conn, _)) = self.writes.iter().find(is_it) else { return Ok(()) };
        let before =
            |write: &&(i64, ConnId, i32)| (write.0, write.1) == (session, *conn) && write.2 < xid;
        for (_, _, earlier) in self.writes.iter().filter(before) {
            let is_applied = |line: &Line| (line.session, line.xid) == (session, *earlier);
            if !self.history.values().any(is_applied) {
                return Err(format!(
                    "write {xid} of a connection is applied, and {earlier}, sent before it, is not"
                ));
            }
        }
        Ok(())
    }

    /// Nothing is under way that is to arrive now.
    pub fn look(&mut self, hosts: &[Host]) -> Result<(), Violation> {
        for host in hosts.iter().filter(|host| !host.stands_still) {
            self.look_at(host)?;
        }
        Ok(())
    }

    fn look_at(&mut self, host: &Host) -> Result<(), Violation> {
        let Some(replica) = &host.replica else { return Ok(()) };
        let (id, status) = (host.id, replica.status());
        if let Some(refusal) = replica.refused() {
            return Err(format!("server {id} refuses to take part: {}", refusal.words));
        }
        if status.leading_ms.is_some() {
            let leader = self.leaders.get(&status.term).copied();
            if let Some(leader) = leader.filter(|leader| *leader != id) {
                return Err(format!("servers {leader} and {id} lead in term {}", status.term));
            }
            if leader.is_none() {
                self.leaders.insert(status.term, id);
                // What was shown of later terms it need not know.
                let before = self.shown.min((status.term as i64) << 32);
                if status.zxid < before {
                    return Err(format!(
                        "server {id} leads in term {} and has applied {:#x}, clients have seen {before:#x}",
                        status.term, status.zxid
                    ));
                }
            }
        }
        let owners = replica.machine().tree().sessions_with_ephemerals();
        for (session, paths) in owners {
            if !self.is_open(session, status.zxid) {
                return Err(format!("server {id} has {paths:?} of a session that has ended"));
            }
        }
        Ok(())
    }

    /// Whether a session is open behind the transaction of this zxid.
    pub fn is_open(&self, session: i64, zxid: i64) -> bool {
        let until = self.history.range(..=zxid).rev().map(|(_, line)| line);
        let mut of_it = until.filter(|line| line.session == session && line.result == "ok");
        of_it.find_map(|line| match line.op {
            "createSession" => Some(true),
            "closeSession" | "expireSession" => Some(false),
            _ => None,
        }) == Some(true)
    }
}

impl Rules {
    /// What a later verdict depends on. The digests of states follow from their entries, and a time counts no more
    /// when the timeout has passed since.
    pub fn canonical(&self, now_us: u64) -> String {
        let Self { history, proposed, shown, awaits, leaders, clients, writes } = self;
        let history: Vec<_> = history
            .iter()
            .map(|(zxid, line)| {
                let Line { by: _, index, term, session, xid, op, result, digest: _ } = line;
                (zxid, index, term, session, xid, op, result)
            })
            .collect();
        let clients: Vec<_> = clients
            .iter()
            .map(|(session, client)| {
                let Client { timeout_us, asked_us, late_until_us, kept_from_us, attached } = client;
                let left = |from_us: &u64| (from_us + timeout_us).saturating_sub(now_us);
                let late_us = late_until_us.saturating_sub(now_us);
                let attached = attached.map(|(at_us, term)| (left(&at_us), term));
                let attached = attached.filter(|(left_us, _)| *left_us > 0);
                (session, timeout_us, left(asked_us), late_us, left(kept_from_us), attached)
            })
            .collect();
        format!("{history:?} {proposed:?} {shown} {awaits:?} {leaders:?} {clients:?} {writes:?}")
    }
}
