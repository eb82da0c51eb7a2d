//! Replies, in the order of each connection's requests.
//!
//! *Owns* nothing: takes what stands at the front of a connection's order and waits for nothing, and answers it.
//! *Invariants*: a reply to a write carries its own zxid; of all connections together no more is answered in a turn
//! than there is room for, and one that takes no answers gets none. *Never* changes the machine.

use super::Clients;
use crate::proto::request::Request;
use crate::proto::{ErrorCode, OpCode, Response};
use crate::replica::clients::connection::{Answer, Asked, Connection, Pending};
use crate::replica::clients::table::{Unsent, Wanted};
use crate::replica::clients::turn::{Work, read_work};
use crate::replica::inspect::Measure;
use crate::replica::machine::{Applied, Machine, TxnOp};
use crate::replica::ready::Answered;
use crate::replica::request::ConnId;

impl Clients {
    /// Answers what is at the front of its connection's order.
    pub(super) fn answer(&mut self, machine: &Machine, conn: ConnId, asked: Asked, answer: Answer) {
        let (zxid, xid) = (machine.last_zxid(), asked.xid);
        self.figures.outstanding -= 1;
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        match answer {
            Answer::Read(request) => {
                // The reply to a ping carries the ping's own xid whatever the request said.
                let ping = matches!(request, Request::Ping);
                let xid = if ping { crate::proto::request::XID_PING } else { xid };
                let asked = Asked { xid, ..asked };
                let (before, session) = (connection.output_len(), connection.session);
                let steps = self.read(machine, conn, asked, &request);
                if let Some(connection) = self.connections.get(&conn) {
                    let bytes = connection.output_len() - before;
                    self.namespaces.note_read(&request, bytes);
                    let work = read_work(steps, bytes);
                    self.turn.note_read(work, Some(request.op()), session.unwrap_or_default());
                    self.load(conn, work);
                }
            }
            Answer::Failure(code) => connection.send(xid, zxid, &Err(code)),
            Answer::Results(results) => connection.send(xid, zxid, &Ok(Response::Multi(results))),
            Answer::EagerFailure(code) => connection.send(xid, 0, &Err(code)),
            Answer::UnknownOp => {
                connection.send(xid, -1, &Err(ErrorCode::Unimplemented));
                self.touch(conn);
                self.hang_up(conn);
                return;
            }
        }
        self.figures.reads_answered += 1;
        self.measured.note(Measure::ReadWait, self.now_us.saturating_sub(asked.at_us));
        if let Some(connection) = self.connections.get_mut(&conn) {
            let answered = Answered { arrived_us: asked.at_us, is_write: false };
            connection.note_reply(zxid, answered, self.now_us);
        }
        self.touch(conn);
    }

    /// A transaction of one of these connections is about to be applied: what was asked for in front
    /// of it must not see what it does. That it commits confirms the read indexes in front of it: it
    /// went into the log after they were asked for, behind all that was acknowledged by then.
    pub(in crate::replica) fn about_to_apply(
        &mut self,
        machine: &Machine,
        conn: ConnId,
        sequence: u64,
    ) {
        let Some(connection) = self.connections.get(&conn) else { return };
        let is_it = |pending: &Pending| matches!(pending, Pending::Write { sequence: own, .. } if *own == sequence);
        let Some(in_front) = connection.queue.iter().position(is_it) else { return };
        for _ in 0..in_front {
            // Who takes no answers gets them late, and with what is true by then.
            let is_full = self.connections.get(&conn).is_none_or(Connection::is_full);
            if is_full || !self.answer_front(machine, conn) {
                return;
            }
        }
    }

    /// A transaction of one of these connections was applied: its events are out, now its reply,
    /// and everything that waited behind it. False if its reply has to wait.
    pub(in crate::replica) fn applied(
        &mut self,
        machine: &Machine,
        conn: ConnId,
        sequence: u64,
        applied: &Applied,
    ) -> bool {
        let Some(connection) = self.connections.get_mut(&conn) else { return true };
        if applied.result.as_ref().err() == Some(&ErrorCode::SessionMoved) {
            // No reply: its client has another connection by now.
            self.hang_up(conn);
            return true;
        }
        let zxid = machine.last_zxid();
        match connection.queue.front() {
            Some(Pending::Write { sequence: front, asked, op }) if *front == sequence => {
                let (asked, op) = (*asked, *op);
                connection.pop();
                let waits = !connection.queue.is_empty();
                self.measured.note(Measure::QueuesWaiting, self.waiting);
                self.waiting -= u64::from(!waits);
                self.figures.queues_drained += u64::from(waits);
                if self.answer_write(conn, (asked, op), zxid, &applied.result) {
                    let before = self.figures.reads_answered;
                    self.drain(machine, conn);
                    let reads = self.figures.reads_answered - before;
                    self.measured.note(Measure::ReadsAfterWrite, reads);
                }
                true
            }
            Some(_) => !connection.keep_result(sequence, zxid, &applied.result),
            None => true,
        }
    }

    /// Replies to a transaction with its own zxid, whatever was applied since: clients take that
    /// for the state after it. False if the connection ends by it.
    fn answer_write(
        &mut self,
        conn: ConnId,
        (asked, op): (Asked, OpCode),
        zxid: i64,
        result: &Result<Response, ErrorCode>,
    ) -> bool {
        self.figures.outstanding -= 1;
        let Some(connection) = self.connections.get_mut(&conn) else { return false };
        connection.send(asked.xid, zxid, result);
        self.figures.writes_answered += 1;
        self.measured.note(Measure::WriteWait, self.now_us.saturating_sub(asked.at_us));
        let answered = Answered { arrived_us: asked.at_us, is_write: true };
        connection.note_reply(zxid, answered, self.now_us);
        self.touch(conn);
        let ends = op == OpCode::CloseSession || matches!(result, Err(ErrorCode::SessionExpired));
        if ends {
            self.hang_up(conn);
        }
        !ends
    }

    /// A connection has written what it was given: it may be given more.
    pub(in crate::replica) fn room(&mut self, machine: &Machine, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.has_room();
            self.drain(machine, conn);
        }
    }

    /// Read indexes up to `context` are confirmed, and applied.
    pub(in crate::replica) fn sync_confirmed(&mut self, machine: &Machine, context: u64) {
        self.sync_confirmed = self.sync_confirmed.max(context);
        let mut waiting = std::mem::take(&mut self.sync_waiting);
        waiting.dedup();
        for conn in waiting {
            self.drain(machine, conn);
        }
    }

    /// Whether answers wait for the next turn.
    pub(in crate::replica) fn has_postponed(&self) -> bool {
        self.turn.has_postponed()
    }

    /// A new turn: answers those with a small load that wait.
    pub(in crate::replica) fn begin_turn(&mut self, machine: &Machine) {
        self.watches.forget_some();
        if !self.turn.begin() {
            self.take_turns(machine);
        }
        while let Some(conn) = self.turn.next_small() {
            self.resume(machine, conn);
        }
    }

    /// Ends a turn in which nothing else is to do: those that wait have theirs. False: none has.
    pub(in crate::replica) fn end_turn(&mut self, machine: &Machine) -> bool {
        !self.turn.has_ended() && self.take_turns(machine)
    }

    fn take_turns(&mut self, machine: &Machine) -> bool {
        let most = self.turn.in_turn_max();
        let mut is_any = false;
        while let Some(conn) = self.turn.next_in_turn(most) {
            self.resume(machine, conn);
            is_any = true;
        }
        if is_any {
            self.turn.end();
        }
        is_any
    }

    fn resume(&mut self, machine: &Machine, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.is_postponed = false;
            self.drain(machine, conn);
        }
    }

    /// Whether another answer of a connection has room. `is_dear`: its read is.
    pub(super) fn has_room(&mut self, conn: ConnId, is_dear: bool) -> bool {
        // Those with a small load have more of it.
        self.turn.has_room(false, is_dear) || {
            let is_small = self.is_load_small(conn);
            self.turn.has_room(is_small, is_dear)
        }
    }

    fn is_load_small(&mut self, conn: ConnId) -> bool {
        let now_us = self.now_us;
        let connection = self.connections.get_mut(&conn);
        connection.is_some_and(|known| {
            let sharers = self.turn.sharers(known.address);
            known.load.is_small(now_us, sharers)
        })
    }

    /// A connection has cost so much.
    pub(super) fn load(&mut self, conn: ConnId, work: Work) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            let sharers = self.turn.sharers(connection.address);
            connection.load.add(work, self.now_us, sharers);
        }
    }

    /// A connection's next answer waits for its turn.
    pub(super) fn postpone(&mut self, conn: ConnId, is_dear: bool) {
        let is_small = !is_dear && self.is_load_small(conn);
        if let Some(connection) = self.connections.get_mut(&conn)
            && !std::mem::replace(&mut connection.is_postponed, true)
        {
            self.turn.postpone(conn, is_small);
            self.figures.postponed += 1;
        }
    }

    fn drain(&mut self, machine: &Machine, conn: ConnId) {
        loop {
            let Some(connection) = self.connections.get_mut(&conn) else { return };
            if connection.is_full() {
                return;
            }
            let front = connection.queue.front();
            let is_dear = front.is_some_and(|front| front.is_dear(machine.tree()));
            match front {
                Some(Pending::Answer { .. } | Pending::Applied { .. }) => {}
                Some(Pending::Confirmed { context, .. }) if *context <= self.sync_confirmed => {}
                Some(Pending::Confirmed { .. }) => return self.sync_waiting.push(conn),
                Some(Pending::Held { .. }) => return self.set_out(conn),
                Some(Pending::Write { .. }) | None => return,
            }
            if !self.has_room(conn, is_dear) {
                return self.postpone(conn, is_dear);
            }
            if !self.answer_front(machine, conn) {
                return;
            }
        }
    }

    /// A transaction of a connection: it sets out, or is held.
    pub(super) fn write(
        &mut self,
        conn: ConnId,
        asked: Asked,
        op: OpCode,
        txn: TxnOp,
    ) -> Option<Wanted> {
        let connection = self.connections.get_mut(&conn)?;
        let session = connection.session?;
        if connection.holds_writes() {
            self.wait(conn, Pending::Held { asked, op, txn });
            return None;
        }
        let sequence = connection.take_sequence();
        self.wait(conn, Pending::Write { sequence, asked, op });
        Some(Wanted::Txn(Unsent { conn, sequence, session, asked, op: txn }))
    }

    /// A transaction was held behind reads that are answered by now.
    fn set_out(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let Some(session) = connection.session else { return };
        let unsent = connection.set_out().into_iter();
        let unsent =
            unsent.map(|(sequence, asked, op)| Unsent { conn, sequence, session, asked, op });
        self.unsent.extend(unsent);
    }

    /// Answers what is at the front, which waits for nothing. False if the connection ends by it.
    fn answer_front(&mut self, machine: &Machine, conn: ConnId) -> bool {
        let connection = self.connections.get_mut(&conn);
        let front = connection.and_then(|known| {
            let is_on_its_way =
                matches!(known.queue.front()?, Pending::Write { .. } | Pending::Held { .. });
            let front = if is_on_its_way { None } else { known.pop() };
            self.waiting -= u64::from(front.is_some() && known.queue.is_empty());
            front
        });
        match front {
            Some(Pending::Answer { asked, answer } | Pending::Confirmed { asked, answer, .. }) => {
                self.answer(machine, conn, asked, answer);
                true
            }
            Some(Pending::Applied { asked, op, zxid, result }) => {
                self.answer_write(conn, (asked, op), zxid, &result)
            }
            Some(Pending::Write { .. } | Pending::Held { .. }) | None => false,
        }
    }
}
