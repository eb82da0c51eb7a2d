//! Time has passed.
//!
//! *Owns* nothing: tells every owner, and does what is due. *Invariants*: a server that may have been given up
//! meanwhile stops before it answers anybody; heartbeats of Raft and pings leave together. *Never* reads a clock.

use crate::replica::Replica;

impl Replica {
    /// It is this late.
    pub(in crate::replica) fn tick(&mut self, now_us: u64, wall_ms: i64) {
        let (ticks, is_late) = self.clocks.tick(now_us, wall_ms);
        self.clients.tick(now_us);
        self.sessions.tick(now_us);
        self.mind_doubts();
        self.clients.give_up_members();
        if !self.is_underway() {
            self.clients.begin_turn(self.state.machine());
        }
        self.consensus.await_answers(now_us);
        if is_late {
            self.consensus.was_late();
        }
        let mut beats = false;
        for _ in 0..ticks {
            beats |= self.consensus.tick();
        }
        self.look_for_difference();
        self.mind_silence(ticks);
        self.mind_disk();
        self.follow_hint();
        if ticks == 0 {
            return;
        }
        self.scrub();
        self.mind_migration();
        // What was asked for may have been lost on the way.
        self.reads.ask_again();
        self.observe_peers();
        self.mind_votes();
        self.look_for_obstacle();
        let questions = self.consensus.ask_again(now_us);
        self.output.send_all(questions);
        self.close_overdue_local();
        self.follow_resignation();
        if self.leadership.leads().is_some() {
            self.sessions.tick_leader(now_us);
            // In one packet with the heartbeats: no server is woken up twice.
            if beats {
                self.ping_others();
                self.compare_others();
            }
            self.sessions.give_up_silent(self.state.machine().sessions());
            self.reap();
            self.write_members();
            self.reconcile();
        }
    }
}
