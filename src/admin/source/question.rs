//! Questions to the replica with their answers' types; `None` means that the server is stopping.
//!
//! Invariant: an answer of another kind than asked for is a defect of the server; it is logged and
//! shown as "not serving", never guessed at.

use crate::admin::Source;
use crate::locks::{Scope, Snapshot};
use crate::replica::inspect::{
    ConnectionReport, SessionReport, Standings, WatchReport, ZnodeQuestion, ZnodeReport,
};
use crate::replica::{Inspect, Report};

/// Asks the replica, and takes the answer out of its [`Report`].
macro_rules! ask {
    ($source:expr, $what:expr, $kind:ident) => {{
        let what = $what;
        match $source.inspect(what.clone()).await? {
            Report::$kind(answer) => answer,
            _ => {
                tracing::error!(
                    target: "lockkeeper::admin::question",
                    asked = ?what,
                    "the replica answered another question than this"
                );
                return None;
            }
        }
    }};
}

/// Connections, in order of their number.
pub(in crate::admin) async fn connections(source: &dyn Source) -> Option<Vec<ConnectionReport>> {
    let mut list = ask!(source, Inspect::Connections, Connections);
    list.sort_by_key(|connection| connection.conn);
    Some(list)
}

/// Sessions, in order of their id.
pub(in crate::admin) async fn sessions(source: &dyn Source) -> Option<Vec<SessionReport>> {
    let mut list = ask!(source, Inspect::Sessions, Sessions);
    list.sort_by_key(|session| session.id);
    Some(list)
}

/// Sessions with ephemeral znodes, in order of id and path.
pub(in crate::admin) async fn ephemerals(source: &dyn Source) -> Option<Vec<(i64, Vec<String>)>> {
    Some(ask!(source, Inspect::Ephemerals, Ephemerals))
}

/// How many watches there are, and nothing of who has them.
pub(in crate::admin) async fn watch_summary(source: &dyn Source) -> Option<WatchReport> {
    Some(ask!(source, Inspect::WatchSummary, Watches))
}

/// Watches.
pub(in crate::admin) async fn watches(source: &dyn Source) -> Option<WatchReport> {
    Some(ask!(source, Inspect::Watches, Watches))
}

/// ZooKeeper's tree digests with their zxids, oldest first.
pub(in crate::admin) async fn digests(source: &dyn Source) -> Option<Vec<(i64, u64)>> {
    Some(ask!(source, Inspect::Digests, Digests))
}

/// The committed membership, as `/zookeeper/config` has it.
pub(in crate::admin) async fn membership(source: &dyn Source) -> Option<String> {
    Some(ask!(source, Inspect::Membership, Membership))
}

/// Leader and servers that keep up, as this server knows them.
pub(in crate::admin) async fn standings(source: &dyn Source) -> Option<Standings> {
    Some(ask!(source, Inspect::Standings, Standings))
}

/// Locks, or sessions, as this server knows them.
pub(in crate::admin) async fn locks(source: &dyn Source, scope: &Scope) -> Option<Snapshot> {
    Some(*ask!(source, Inspect::Locks(scope.clone()), Locks))
}

/// Contenders that have left the locks in a directory.
pub(in crate::admin) async fn departures(
    source: &dyn Source,
    directory: String,
) -> Option<Snapshot> {
    Some(*ask!(source, Inspect::Departures(directory), Locks))
}

/// A znode; `Some(None)` if it is not there.
pub(in crate::admin) async fn znode(
    source: &dyn Source,
    question: ZnodeQuestion,
) -> Option<Option<ZnodeReport>> {
    Some(ask!(source, Inspect::Znode(question), Znode).map(|znode| *znode))
}

/// Resets the statistics of all connections.
pub(in crate::admin) async fn reset_connections(source: &dyn Source) -> Option<()> {
    source.inspect(Inspect::ResetConnections).await.map(|_| ())
}

/// Resets the statistics of the server, the shell's and the replica's.
pub(in crate::admin) async fn reset_server(source: &dyn Source) -> Option<()> {
    source.reset_counters();
    source.inspect(Inspect::ResetServer).await.map(|_| ())
}
