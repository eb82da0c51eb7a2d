//! Replies, in the order of each connection's requests.
//!
//! *Owns* nothing: takes what stands at the front of a connection's order and waits for nothing, and answers it.
//! *Invariants*: a reply to a write carries its own zxid; of all connections together no more is answered in a turn
//! than there is room for, and one that takes no answers gets none. *Never* changes the machine.

use super::Clients;
use crate::proto::request::Request;
use crate::proto::{ErrorCode, OpCode, Response};
use crate::replica::clients::connection::{Answer, Connection, OUTPUT_BYTES_PER_TURN_MAX, Pending};
use crate::replica::inspect::Measure;
use crate::replica::machine::{Applied, Machine};
use crate::replica::ready::Answered;
use crate::replica::request::ConnId;

impl Clients {
    /// Answers what is at the front of its connection's order.
    pub(super) fn answer(
        &mut self,
        machine: &Machine,
        conn: ConnId,
        xid: i32,
        answer: Answer,
        at_us: u64,
    ) {
        let zxid = machine.last_zxid();
        self.figures.outstanding -= 1;
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        match answer {
            Answer::Read(request) => {
                // The reply to a ping carries the ping's own xid whatever the request said.
                let ping = matches!(request, Request::Ping);
                let xid = if ping { crate::proto::request::XID_PING } else { xid };
                let before = connection.output_len();
                self.read(machine, conn, xid, &request);
                if let Some(connection) = self.connections.get(&conn) {
                    self.namespaces.note_read(&request, connection.output_len() - before);
                }
            }
            Answer::Failure(code) => connection.send(xid, zxid, &Err(code)),
            Answer::EagerFailure(code) => connection.send(xid, 0, &Err(code)),
            Answer::UnknownOp => {
                connection.send(xid, -1, &Err(ErrorCode::Unimplemented));
                self.touch(conn);
                self.hang_up(conn);
                return;
            }
        }
        self.figures.reads_answered += 1;
        self.measured.note(Measure::ReadWait, self.now_us.saturating_sub(at_us));
        if let Some(connection) = self.connections.get_mut(&conn) {
            let answered = Answered { arrived_us: at_us, is_write: false };
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
            Some(Pending::Write { sequence: front, xid, op, at_us }) if *front == sequence => {
                let (xid, op, at_us) = (*xid, *op, *at_us);
                connection.queue.pop_front();
                let waits = !connection.queue.is_empty();
                self.measured.note(Measure::QueuesWaiting, self.waiting);
                self.waiting -= u64::from(!waits);
                self.figures.queues_drained += u64::from(waits);
                if self.answer_write(conn, (xid, op, at_us), zxid, &applied.result) {
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
        (xid, op, at_us): (i32, OpCode, u64),
        zxid: i64,
        result: &Result<Response, ErrorCode>,
    ) -> bool {
        self.figures.outstanding -= 1;
        let Some(connection) = self.connections.get_mut(&conn) else { return false };
        connection.send(xid, zxid, result);
        self.figures.writes_answered += 1;
        self.measured.note(Measure::WriteWait, self.now_us.saturating_sub(at_us));
        connection.note_reply(zxid, Answered { arrived_us: at_us, is_write: true }, self.now_us);
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
        !self.postponed.is_empty()
    }

    /// A new turn: answers what had to wait for it, as much as there is room for.
    pub(in crate::replica) fn resume(&mut self, machine: &Machine) {
        while self.output_bytes < OUTPUT_BYTES_PER_TURN_MAX
            && let Some(conn) = self.postponed.pop_front()
        {
            self.drain(machine, conn);
        }
    }

    /// Answers whatever is at the front and waits for nothing.
    fn drain(&mut self, machine: &Machine, conn: ConnId) {
        loop {
            let Some(connection) = self.connections.get_mut(&conn) else { return };
            if connection.is_full() {
                return;
            }
            match connection.queue.front() {
                Some(Pending::Answer { .. } | Pending::Applied { .. }) => {}
                Some(Pending::Confirmed { context, .. }) if *context <= self.sync_confirmed => {}
                Some(Pending::Confirmed { .. }) => return self.sync_waiting.push(conn),
                Some(Pending::Write { .. }) | None => return,
            }
            if self.output_bytes >= OUTPUT_BYTES_PER_TURN_MAX {
                return self.postponed.push_back(conn);
            }
            if !self.answer_front(machine, conn) {
                return;
            }
        }
    }

    /// Answers what is at the front, which waits for nothing. False if the connection ends by it.
    fn answer_front(&mut self, machine: &Machine, conn: ConnId) -> bool {
        let connection = self.connections.get_mut(&conn);
        let front = connection.and_then(|known| {
            let front = known.queue.pop_front();
            self.waiting -= u64::from(front.is_some() && known.queue.is_empty());
            front
        });
        match front {
            Some(
                Pending::Answer { xid, answer, at_us }
                | Pending::Confirmed { xid, answer, at_us, .. },
            ) => {
                self.answer(machine, conn, xid, answer, at_us);
                true
            }
            Some(Pending::Applied { xid, op, at_us, zxid, result }) => {
                self.answer_write(conn, (xid, op, at_us), zxid, &result)
            }
            Some(Pending::Write { .. }) | None => false,
        }
    }
}
