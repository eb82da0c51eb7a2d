//! Budget of clients in one turn of the shell.
//!
//! *Owns* the bytes and the work of a turn, which connections wait for the next one, and the load of each connection.
//! *Invariants*: work is estimated from what a request names and what was found, never measured; a connection whose
//! load is small comes before the others, and of the others each gets a portion in its turn, after all else has left;
//! the connections of one address share what makes a load small. *Never* refuses a request: what finds no room waits.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use crate::proto::request::{Create, Request};
use crate::proto::{ErrorCode, MultiOp, MultiResult, OpCode};
use crate::replica::request::ConnId;
use crate::tree::{Tree, multi_failure, path};

/// Estimated nanoseconds of one core.
pub(in crate::replica) type Work = u64;

/// Bytes of answers and events of all connections beyond which answers wait for the next turn, if they can:
/// 10,000 contenders that list 10,000 names at once ask for 2 GB.
pub const OUTPUT_BYTES_PER_TURN_MAX: usize = 8 << 20;

/// Work of reads in one turn, before what has to wait for its turn. Connections with a small load may add as much
/// again.
const READS_MAX: Work = 2_000_000;
/// Work of reads that wait for their turn, at the end of each turn of the shell.
const IN_TURN_MAX: Work = READS_MAX / 2;
/// Work of one connection before the next one that waits has its turn.
const PORTION: Work = READS_MAX / 8;
/// A read of more work waits for the end of the turn: what others are answered leaves first.
const DEAR: Work = 100_000;
/// Work of reads that may wait in front of a write that is on its way: they must be answered before it is applied,
/// whatever the turn has room for. A write behind more of them sets out after them.
pub(super) const BEFORE_WRITE_MAX: Work = READS_MAX / 2;

/// A load up to this is small.
const SMALL_LOAD: Work = 1_000_000;
/// Load that a connection loses in a microsecond: a quarter of a core is for all connections of one address.
const RELIEF_PER_US: Work = 250;

/// Work of any request, of each thing that it looks at, and of each byte of an answer, in sixteenths.
const REQUEST: Work = 500;
const STEP: Work = 100;
const SIXTEENTHS_PER_BYTE: Work = 4;
/// Steps of a path of setWatches, and of an operation of multiRead.
pub(super) const STEPS_PER_WATCH: usize = 4;
pub(super) const STEPS_PER_OP: usize = 3;
/// Work of a transaction, of one of its events, and of telling a watcher.
const TXN: Work = 2_000;
const EVENT: Work = 500;
const WATCHER: Work = 200;

/// Work of a read that has looked at so many things, and whose answer has so many bytes.
pub(super) fn read_work(steps: usize, bytes: usize) -> Work {
    REQUEST + STEP * steps as Work + SIXTEENTHS_PER_BYTE * bytes as Work / 16
}

/// Work of a transaction with a body of so many bytes, that has made so many events, of which clients here were told
/// so many times.
pub(in crate::replica) fn txn_work(bytes: usize, events: usize, told: u64) -> Work {
    TXN + bytes as Work + EVENT * events as Work + WATCHER * told
}

/// Work of a read whose answer may be short, as far as the request tells; 0 for all that costs little or makes an
/// answer of many bytes, which are bounded.
pub(super) fn likely_work(request: &Request) -> Work {
    match request {
        // How many a session has is not known at once.
        Request::GetEphemerals { .. } => READS_MAX,
        Request::MultiRead(ops) => read_work(STEPS_PER_OP * ops.len(), 0),
        Request::SetWatches { watches, .. } => read_work(STEPS_PER_WATCH * watches.count(), 0),
        _ => 0,
    }
}

/// Whether a read waits for the end of the turn. A list of children may be long, and so may what a multiRead asks for.
pub(super) fn is_dear(request: &Request, tree: &Tree) -> bool {
    match request {
        Request::GetChildren { path, .. } => {
            let children = tree.stat_unchecked(path.as_str()).map_or(0, |stat| stat.num_children);
            STEP * Work::from(children.unsigned_abs()) > DEAR
        }
        Request::MultiRead(ops) => ops.len() > 1,
        request => likely_work(request) > DEAR,
    }
}

/// Components of the path of a znode that a client creates: whatever is done to a znode looks at each of them, and a
/// session may have as many ephemerals as there is memory for.
pub(in crate::replica) const COMPONENTS_MAX: usize = 255;

/// Components of `/zookeeper/quota` and of `zookeeper_limits`.
const QUOTA_COMPONENTS: usize = 3;

/// Answer to a request that would create a znode with more components: an error, or the results of a multi.
pub(super) fn too_deep(request: &Request) -> Option<Result<Vec<MultiResult>, ErrorCode>> {
    let code = ErrorCode::BadArguments;
    match request {
        Request::Create(create) => is_deep(create).then_some(Err(code)),
        // Clients in C of old releases end with their process where the results are missing.
        Request::Multi(ops) => {
            let is_it = |op: &MultiOp| matches!(op, MultiOp::Create(create) if is_deep(create));
            let done = ops.iter().position(is_it)?;
            Some(Ok(multi_failure(done, code, ops.len())))
        }
        _ => None,
    }
}

fn is_deep(create: &Create) -> bool {
    let slashes = create.path.as_bytes().iter().filter(|byte| **byte == b'/').count();
    // Limits and usage of such a znode are below a path that is longer by the names of their own.
    let is_quota = create.path.as_str().starts_with(path::QUOTA);
    slashes > COMPONENTS_MAX + if is_quota { QUOTA_COMPONENTS } else { 0 }
}

/// The dearest single thing of late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dearest {
    /// Estimated nanoseconds of one core.
    pub work_ns: u64,
    /// Its operation; `None`: it is a step of a migration.
    pub op: Option<OpCode>,
    /// Its session.
    pub session: i64,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::replica) struct Turn {
    /// Bytes of answers and events that wait to be taken, of all connections.
    pub(super) output_bytes: usize,
    /// Bytes that were taken since the turn began.
    taken_bytes: usize,
    /// Work of reads since the turn began.
    work: Work,
    /// Connections that wait had their turn.
    has_ended: bool,
    /// Work up to which they have it; `None`: it is not their turn.
    until: Option<Work>,
    /// Work of all turns, of transactions as well.
    pub(super) total: Work,
    dearest: Option<Dearest>,
    /// Connections whose next answer waits: those with a small load, and the others.
    small: VecDeque<ConnId>,
    others: VecDeque<ConnId>,
    /// Connections by address; empty where each counts for itself.
    addresses: BTreeMap<IpAddr, u64>,
}

canonical! {
    Turn: output_bytes, small, others; without taken_bytes, work, has_ended, until, total, dearest, addresses;
}

impl Turn {
    /// A new turn. False: those that wait did not have their turn in the last one.
    pub(super) fn begin(&mut self) -> bool {
        (self.work, self.taken_bytes) = (0, 0);
        std::mem::take(&mut self.has_ended)
    }

    /// Everything that waits to be taken is taken.
    pub(super) fn take_output(&mut self) {
        self.taken_bytes += std::mem::take(&mut self.output_bytes);
    }

    /// Whether those that wait had their turn.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Those that wait had their turn.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Whether another answer has room. `is_dear`: its read is.
    pub(super) fn has_room(&self, is_small: bool, is_dear: bool) -> bool {
        let most = if is_small { 2 * READS_MAX } else { READS_MAX };
        let has_room = match self.until {
            // What has left in this turn may wait in sockets.
            Some(until) => {
                self.work < until
                    && self.output_bytes + self.taken_bytes < OUTPUT_BYTES_PER_TURN_MAX
            }
            None => self.work < most && !is_dear,
        };
        self.output_bytes < OUTPUT_BYTES_PER_TURN_MAX && (has_room || mutant!("turn-without-bound"))
    }

    /// A read was answered.
    pub(super) fn note_read(&mut self, work: Work, op: Option<OpCode>, session: i64) {
        self.work += work;
        self.note(work, op, session);
    }

    /// Something was done that no turn can put off.
    pub(super) fn note(&mut self, work_ns: Work, op: Option<OpCode>, session: i64) {
        self.total += work_ns;
        if self.dearest.is_none_or(|dearest| dearest.work_ns < work_ns) {
            self.dearest = Some(Dearest { work_ns, op, session });
        }
    }

    /// The dearest thing since the last call.
    pub(super) fn take_dearest(&mut self) -> Option<Dearest> {
        self.dearest.take()
    }

    /// A connection's next answer waits for the next turn, or for its turn in this one.
    pub(super) fn postpone(&mut self, conn: ConnId, is_small: bool) {
        let queue = if is_small { &mut self.small } else { &mut self.others };
        queue.push_back(conn);
    }

    /// Whether answers wait for the next turn.
    pub(super) fn has_postponed(&self) -> bool {
        !self.small.is_empty() || !self.others.is_empty()
    }

    /// The next connection with a small load that waits, if there is room for it.
    pub(super) fn next_small(&mut self) -> Option<ConnId> {
        self.has_room(true, false).then(|| self.small.pop_front())?
    }

    /// So much work is for those that wait for their turn, from now on.
    pub(super) fn in_turn_max(&self) -> Work {
        self.work + IN_TURN_MAX
    }

    /// The next of them, if there is room for it: it may work up to its portion.
    pub(super) fn next_in_turn(&mut self, most: Work) -> Option<ConnId> {
        self.until = Some(most);
        if !self.has_room(false, false) {
            self.until = None;
            return None;
        }
        // Those with a small load have been asked at the beginning.
        let conn = self.others.pop_front().or_else(|| self.small.pop_front());
        self.until = conn.map(|_| (self.work + PORTION).min(most));
        conn
    }

    pub(super) fn opened(&mut self, address: IpAddr) {
        *self.addresses.entry(address).or_default() += 1;
    }

    pub(super) fn closed(&mut self, address: IpAddr) {
        if let Some(count) = self.addresses.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&address);
            }
        }
    }

    /// Connections among which the relief of one address is shared.
    pub(super) fn sharers(&self, address: IpAddr) -> u64 {
        self.addresses.get(&address).copied().unwrap_or(1)
    }
}

/// Work of one connection of late, which time takes away again, and of all its life.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    pub(super) total: Work,
    level: Work,
    at_us: u64,
}

impl Load {
    fn relieve(&mut self, now_us: u64, sharers: u64) {
        let passed_us = now_us.saturating_sub(self.at_us);
        self.level = self.level.saturating_sub(passed_us.saturating_mul(RELIEF_PER_US) / sharers);
        self.at_us = now_us;
    }

    pub(super) fn add(&mut self, work: Work, now_us: u64, sharers: u64) {
        self.relieve(now_us, sharers);
        self.total += work;
        self.level += work;
    }

    /// Whether it is small, of a connection whose address has so many.
    pub(super) fn is_small(&mut self, now_us: u64, sharers: u64) -> bool {
        if self.level > SMALL_LOAD {
            self.relieve(now_us, sharers);
        }
        self.level <= SMALL_LOAD
    }
}
