//! Requests that are answered from this server's state: reads, and changes of a connection's
//! watches.
//!
//! *Invariant*: what is read and the watch that is left on it belong to the same moment, because
//! nothing is applied in between. The hot ones are written straight from the tree to the wire.

use super::connection::Asked;
use super::table::Clients;
use super::turn::{STEPS_PER_OP, STEPS_PER_WATCH};
use super::watches::Kind;
use crate::proto::jute::wire_len;
use crate::proto::request::{AddWatchMode, Request, SetWatches};
use crate::proto::{
    ErrorCode, EventType, MultiResult, ReadOp, Response, Stat, Text, Writer, encode_end_of_multi,
};
use crate::replica::machine::Machine;
use crate::replica::request::ConnId;
use crate::tree::Children;
use crate::tree::acl::Identity;

/// Data and names that one multiRead may ask for, in bytes.
pub(in crate::replica) const MULTI_READ_BYTES_MAX: usize = 64 << 20;
/// What a child's name costs besides its bytes.
const NAME_OVERHEAD: usize = 32;

/// Room that is made for a list before it is written; beyond, it grows as it must.
const LIST_BYTES_LIKELY_MAX: usize = 1 << 20;

type Outcome = Result<Response, ErrorCode>;

impl Clients {
    /// Answers a read. How many things it has looked at.
    pub(in crate::replica) fn read(
        &mut self,
        machine: &Machine,
        conn: ConnId,
        asked: Asked,
        request: &Request,
    ) -> usize {
        let mut steps = 1;
        let (xid, zxid) = (asked.xid, machine.last_zxid());
        let outcome = match request {
            Request::GetData { path, watch } => {
                self.data(machine, conn, asked, path, *watch);
                return steps;
            }
            Request::GetChildren { path, watch, stat } => {
                return self.children(machine, conn, asked, path, *watch, *stat);
            }
            Request::Exists { path, watch } => self.exists(machine, conn, asked, path, *watch),
            Request::GetAcl { path } => {
                let read =
                    machine.tree().get_acl(self.identities(conn, asked.identities), path.as_str());
                read.map(|(acl, stat)| Response::Acl(acl, stat))
            }
            Request::GetAllChildrenNumber { path } => {
                let tree = machine.tree();
                let ids = self.identities(conn, asked.identities);
                tree.all_children_number(ids, path.as_str()).map(Response::Number)
            }
            Request::GetEphemerals { prefix } => {
                let prefix = prefix.as_ref().map(Text::as_str);
                return self.ephemerals(machine, conn, (xid, zxid), prefix);
            }
            Request::MultiRead(ops) => {
                return STEPS_PER_OP * ops.len() + self.multi_read(machine, conn, asked, ops);
            }
            Request::Sync { path } => Ok(Response::Echo(path.clone())),
            Request::Ping => Ok(Response::Empty),
            Request::WhoAmI => Ok(who_am_i(self.identities(conn, asked.identities))),
            Request::CheckWatches { path, kind } => {
                found(self.watches.has(conn, path, *kind)).map(|()| Response::Empty)
            }
            Request::RemoveWatches { path, kind } => {
                found(self.watches.remove(conn, path, *kind)).map(|()| Response::Empty)
            }
            Request::AddWatch { path, mode } => {
                let kind = match mode {
                    AddWatchMode::Persistent => Kind::Persistent,
                    AddWatchMode::PersistentRecursive => Kind::Recursive,
                };
                self.watches.add(conn, path, kind);
                Ok(Response::Number(0))
            }
            Request::SetWatches { watches, .. } => {
                steps = STEPS_PER_WATCH * watches.count();
                self.set_watches(machine, conn, watches);
                Ok(Response::Empty)
            }
            Request::Reconfig { .. } => Err(self.reconfig(machine, conn, asked)),
            // Never a read: `Clients::request` takes them elsewhere.
            Request::Create(_)
            | Request::Delete { .. }
            | Request::SetData { .. }
            | Request::SetAcl { .. }
            | Request::Multi(_)
            | Request::Auth { .. }
            | Request::Sasl { .. }
            | Request::CloseSession => Err(ErrorCode::Unimplemented),
        };
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.send(xid, zxid, &outcome);
        }
        steps
    }

    fn data(&mut self, machine: &Machine, conn: ConnId, asked: Asked, path: &Text, watch: bool) {
        let (xid, zxid) = (asked.xid, machine.last_zxid());
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        match machine.get_data(connection.identities(asked.identities), path.as_str()) {
            Ok((data, stat)) => {
                connection.send_with(xid, zxid, |out| {
                    out.put_buffer(data);
                    stat.encode(out);
                });
                if watch {
                    self.watches.add(conn, path, Kind::Data);
                }
            }
            Err(code) => connection.send(xid, zxid, &Err(code)),
        }
    }

    fn children(
        &mut self,
        machine: &Machine,
        conn: ConnId,
        asked: Asked,
        path: &Text,
        watch: bool,
        with_stat: bool,
    ) -> usize {
        let (xid, zxid) = (asked.xid, machine.last_zxid());
        let Some(connection) = self.connections.get_mut(&conn) else { return 0 };
        match machine.tree().children(connection.identities(asked.identities), path.as_str()) {
            Ok(children) => {
                connection.send_with(xid, zxid, |out| {
                    out.reserve(likely_bytes(children.len(), children.names().next()));
                    out.put_int(wire_len(children.len()));
                    for name in children.names() {
                        out.put_string(name);
                    }
                    if with_stat {
                        children.stat.encode(out);
                    }
                });
                if watch {
                    self.watches.add(conn, path, Kind::Child);
                }
                children.len()
            }
            Err(code) => {
                connection.send(xid, zxid, &Err(code));
                1
            }
        }
    }

    fn ephemerals(
        &mut self,
        machine: &Machine,
        conn: ConnId,
        (xid, zxid): (i32, i64),
        prefix: Option<&str>,
    ) -> usize {
        let Some(connection) = self.connections.get_mut(&conn) else { return 0 };
        let session = connection.session.unwrap_or_default();
        let mut owned = 0;
        connection.send_with(xid, zxid, |out| {
            // How many there are is known behind them.
            let (place, mut count) = (out.len(), 0);
            out.put_int(0);
            owned = machine.tree().ephemerals(session, prefix, |path| {
                count += 1;
                out.put_string(path);
            });
            out[place..place + 4].copy_from_slice(&wire_len(count).to_be_bytes());
        });
        owned
    }

    fn exists(
        &mut self,
        machine: &Machine,
        conn: ConnId,
        asked: Asked,
        path: &Text,
        watch: bool,
    ) -> Outcome {
        let ids = self.identities(conn, asked.identities);
        let found = machine.exists(ids, path.as_str());
        // Also a znode that is not there can be waited for; one that may not be read cannot.
        if watch && matches!(found, Ok(_) | Err(ErrorCode::NoNode)) {
            self.watches.add(conn, path, Kind::Data);
        }
        found.map(Response::Stat)
    }

    /// Answers several reads, if their results have room in one answer: that is known before any is copied. How many
    /// names it has copied.
    fn multi_read(
        &mut self,
        machine: &Machine,
        conn: ConnId,
        asked: Asked,
        ops: &[ReadOp],
    ) -> usize {
        let (xid, zxid) = (asked.xid, machine.last_zxid());
        let Some(connection) = self.connections.get_mut(&conn) else { return 0 };
        let ids = connection.identities(asked.identities);
        // Each list of permissions is judged once: an answer may have tens of thousands of refusals.
        let found: Vec<Found<'_>> = ops.iter().map(|op| Found::of(machine, ids, op)).collect();
        // One short path may stand for a megabyte, and a frame holds many of them.
        if found.iter().map(Found::bytes).sum::<usize>() > MULTI_READ_BYTES_MAX {
            connection.send(xid, zxid, &Err(ErrorCode::Marshalling));
            return 0;
        }
        let mut names = 0;
        connection.send_with(xid, zxid, |out| {
            for found in found {
                let result = found.result();
                if let MultiResult::GetChildren { names: read } = &result {
                    names += read.len();
                }
                result.encode(out);
            }
            encode_end_of_multi(out);
        });
        names
    }

    /// Fires at once what the client missed, registers the rest. See `DataTree.setWatches`.
    fn set_watches(&mut self, machine: &Machine, conn: ConnId, watches: &SetWatches) {
        let tree = machine.tree();
        let since = watches.relative_zxid;
        let mut missed = Vec::new();
        for path in &watches.data {
            match tree.stat_unchecked(path.as_str()) {
                None => missed.push((EventType::NodeDeleted, path)),
                Some(stat) if stat.mzxid > since && !mutant!("missed-change-untold") => {
                    missed.push((EventType::NodeDataChanged, path));
                }
                // Its client may have seen ZooKeeper's text there, of which no zxid tells.
                Some(_) if machine.has_own_config(path.as_str()) => {
                    missed.push((EventType::NodeDataChanged, path));
                }
                Some(_) => self.watches.add(conn, path, Kind::Data),
            }
        }
        for path in &watches.exist {
            match tree.stat_unchecked(path.as_str()) {
                Some(_) => missed.push((EventType::NodeCreated, path)),
                None => self.watches.add(conn, path, Kind::Data),
            }
        }
        for path in &watches.child {
            match tree.stat_unchecked(path.as_str()) {
                None => missed.push((EventType::NodeDeleted, path)),
                Some(stat) if stat.pzxid > since => {
                    missed.push((EventType::NodeChildrenChanged, path));
                }
                Some(_) if mutant!("watch-lost-at-reconnect") => {}
                Some(_) => self.watches.add(conn, path, Kind::Child),
            }
        }
        for path in &watches.persistent {
            self.watches.add(conn, path, Kind::Persistent);
        }
        for path in &watches.persistent_recursive {
            self.watches.add(conn, path, Kind::Recursive);
        }
        for (kind, path) in missed {
            let Some(connection) = self.connections.get_mut(&conn) else { return };
            let bytes = connection.send_event(kind, path, -1);
            self.note_event(kind, bytes);
        }
    }

    /// On a server of its own, or where it is not enabled: ZooKeeper's errors, but the ACL is checked
    /// before anything else is told.
    fn reconfig(&self, machine: &Machine, conn: ConnId, asked: Asked) -> ErrorCode {
        // The permission that reconfig needs is the one to write this znode.
        let path = Text::from_static("/zookeeper/config");
        let write = Request::SetData { path, data: None, version: -1 };
        let refused = machine.tree().acl_refuses(self.identities(conn, asked.identities), &write);
        match (self.rules.reconfig_enabled, refused) {
            (false, _) => ErrorCode::ReconfigDisabled,
            (true, true) => ErrorCode::NoAuth,
            (true, false) => ErrorCode::Unimplemented,
        }
    }
}

/// Bytes of a list with a stat, if its names are as long as the `first`: those of a lock's contenders are.
fn likely_bytes(names: usize, first: Option<&str>) -> usize {
    let bytes = names.saturating_mul(4 + first.map_or(0, str::len)) + 4 + Stat::WIRE_BYTES;
    bytes.min(LIST_BYTES_LIKELY_MAX)
}

fn found(there: bool) -> Result<(), ErrorCode> {
    if there { Ok(()) } else { Err(ErrorCode::NoWatcher) }
}

/// Scheme and user of each identity; of a digest only the user.
fn who_am_i(ids: &[Identity]) -> Response {
    let shown = ids.iter().filter(|identity| !identity.is_mark()).map(|identity| {
        let id = identity.id.as_str();
        let user = match identity.scheme.as_str() {
            "digest" => id.split(':').next().unwrap_or_default(),
            _ => id,
        };
        (identity.scheme.clone(), Text::copy_from(user))
    });
    Response::Identities(shown.collect())
}

/// Finding of a read of a multiRead, not copied yet.
enum Found<'a> {
    Data(Option<&'a [u8]>, Stat),
    Children(Children<'a>),
    Nothing(ErrorCode),
}

impl<'a> Found<'a> {
    fn of(machine: &'a Machine, ids: &[Identity], op: &ReadOp) -> Self {
        let found = match op {
            ReadOp::GetData { path } => {
                machine.get_data(ids, path.as_str()).map(|(data, stat)| Self::Data(data, stat))
            }
            ReadOp::GetChildren { path } => {
                machine.tree().children(ids, path.as_str()).map(Self::Children)
            }
        };
        found.unwrap_or_else(Self::Nothing)
    }

    /// Bytes of data and names that it gives.
    fn bytes(&self) -> usize {
        match self {
            Self::Data(data, _) => data.map_or(0, <[u8]>::len),
            Self::Children(children) => {
                NAME_OVERHEAD * children.len() + children.name_bytes() as usize
            }
            Self::Nothing(_) => 0,
        }
    }

    fn result(self) -> MultiResult {
        match self {
            Self::Data(data, stat) => {
                MultiResult::GetData { data: data.map(bytes::Bytes::copy_from_slice), stat }
            }
            Self::Children(children) => {
                MultiResult::GetChildren { names: children.names().map(Text::copy_from).collect() }
            }
            Self::Nothing(code) => MultiResult::Error(Some(code)),
        }
    }
}
