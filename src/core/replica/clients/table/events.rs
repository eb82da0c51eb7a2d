//! Events of applied transactions, for the connections that watch.
//!
//! *Owns* nothing: tells each watcher that may read the znode, in the order of the events. *Invariant*: an event is
//! queued before any reply that could show the change. *Never* changes the machine.

use super::Clients;
use crate::proto::acl::perms;
use crate::proto::{EventType, OpCode};
use crate::replica::clients::turn::txn_work;
use crate::replica::inspect::Measure;
use crate::replica::machine::{Applied, Machine};
use crate::tree::acl::allows;

impl Clients {
    /// Tells those that watch, and counts what a transaction of this session was worth whose body costs as much as so
    /// many bytes. `op`: `None`, if it is none of a client's.
    pub(in crate::replica) fn notify(
        &mut self,
        machine: &Machine,
        applied: &Applied,
        (op, session, bytes): (Option<OpCode>, i64, usize),
    ) {
        let before = self.figures.events_fired.iter().sum::<u64>();
        self.notify_watchers(machine, applied);
        let told = self.figures.events_fired.iter().sum::<u64>() - before;
        let work = txn_work(bytes, applied.events.len(), told);
        self.turn.note(work, op, session);
        let conn = self.by_session.get(&session).copied();
        if let Some(conn) = conn {
            self.load(conn, work);
        }
    }

    fn notify_watchers(&mut self, machine: &Machine, applied: &Applied) {
        let count = applied.events.len();
        for place in 0..count {
            let place = if mutant!("events-reversed") { count - 1 - place } else { place };
            let event = &applied.events[place];
            if machine.is_unseen(event) {
                continue;
            }
            let watchers = self.watches.trigger(event.kind, &event.path);
            if !watchers.is_empty() {
                let measure = match event.kind {
                    EventType::NodeCreated => Measure::WatchersOfCreated,
                    EventType::NodeDeleted => Measure::WatchersOfDeleted,
                    EventType::NodeDataChanged => Measure::WatchersOfChanged,
                    EventType::NodeChildrenChanged => Measure::WatchersOfChildren,
                };
                self.measured.note(measure, watchers.len() as u64);
            }
            for conn in watchers {
                let Some(connection) = self.connections.get_mut(&conn) else { continue };
                let asker = machine.tree().asks_here(&connection.ids);
                let may_know = allows(&event.acl, asker, perms::READ);
                if !may_know && !mutant!("event-past-acl") {
                    continue;
                }
                if mutant!("event-twice") {
                    connection.send_event(event.kind, &event.path, applied.zxid);
                }
                let bytes = connection.send_event(event.kind, &event.path, applied.zxid);
                self.note_event(event.kind, bytes);
                self.touch(conn);
            }
        }
    }

    pub(in crate::replica) fn note_event(&mut self, kind: EventType, bytes: u64) {
        self.figures.events_fired[kind as usize - 1] += 1;
        self.figures.watch_bytes += bytes;
    }
}
