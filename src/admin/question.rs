//! Questions to the replica with their answers' types; `None` means that the server is stopping.
//!
//! Invariant: an answer of another kind than asked for is a defect of the server; it is logged and
//! shown as "not serving", never guessed at.

use super::Source;
use crate::locks::{Scope, Snapshot};
use crate::replica::inspect::{
    ConnectionReport, SessionReport, Standings, WatchReport, ZnodeQuestion, ZnodeReport,
};
use crate::replica::{Inspect, Report};

/// Connections, in order of their number.
pub(super) async fn connections(source: &dyn Source) -> Option<Vec<ConnectionReport>> {
    let report = source.inspect(Inspect::Connections).await?;
    let Report::Connections(mut list) = report else {
        return unfit(Inspect::Connections);
    };
    list.sort_by_key(|connection| connection.conn);
    Some(list)
}

/// Sessions, in order of their id.
pub(super) async fn sessions(source: &dyn Source) -> Option<Vec<SessionReport>> {
    let report = source.inspect(Inspect::Sessions).await?;
    let Report::Sessions(mut list) = report else {
        return unfit(Inspect::Sessions);
    };
    list.sort_by_key(|session| session.id);
    Some(list)
}

/// Sessions with ephemeral znodes, in order of id and path.
pub(super) async fn ephemerals(source: &dyn Source) -> Option<Vec<(i64, Vec<String>)>> {
    let report = source.inspect(Inspect::Ephemerals).await?;
    let Report::Ephemerals(list) = report else {
        return unfit(Inspect::Ephemerals);
    };
    Some(list)
}

/// Watches.
pub(super) async fn watches(source: &dyn Source) -> Option<WatchReport> {
    let report = source.inspect(Inspect::Watches).await?;
    let Report::Watches(watches) = report else {
        return unfit(Inspect::Watches);
    };
    Some(watches)
}

/// ZooKeeper's tree digests with their zxids, oldest first.
pub(super) async fn digests(source: &dyn Source) -> Option<Vec<(i64, u64)>> {
    let report = source.inspect(Inspect::Digests).await?;
    let Report::Digests(list) = report else {
        return unfit(Inspect::Digests);
    };
    Some(list)
}

/// The committed membership, as `/zookeeper/config` has it.
pub(super) async fn membership(source: &dyn Source) -> Option<String> {
    let report = source.inspect(Inspect::Membership).await?;
    let Report::Membership(text) = report else {
        return unfit(Inspect::Membership);
    };
    Some(text)
}

/// Who leads and who keeps up, as this server knows it.
pub(super) async fn standings(source: &dyn Source) -> Option<Standings> {
    let report = source.inspect(Inspect::Standings).await?;
    let Report::Standings(standings) = report else {
        return unfit(Inspect::Standings);
    };
    Some(standings)
}

/// Locks, or sessions, as this server knows them.
pub(super) async fn locks(source: &dyn Source, scope: &Scope) -> Option<Snapshot> {
    let report = source.inspect(Inspect::Locks(scope.clone())).await?;
    let Report::Locks(snapshot) = report else {
        return unfit(Inspect::Locks(scope.clone()));
    };
    Some(*snapshot)
}

/// Who has left the locks in a directory.
pub(super) async fn departures(source: &dyn Source, directory: String) -> Option<Snapshot> {
    let what = Inspect::Departures(directory);
    let report = source.inspect(what.clone()).await?;
    let Report::Locks(snapshot) = report else { return unfit(what) };
    Some(*snapshot)
}

/// A znode; `Some(None)` if it is not there.
pub(super) async fn znode(
    source: &dyn Source,
    question: ZnodeQuestion,
) -> Option<Option<ZnodeReport>> {
    let what = Inspect::Znode(question);
    let report = source.inspect(what.clone()).await?;
    let Report::Znode(znode) = report else { return unfit(what) };
    Some(znode.map(|znode| *znode))
}

/// Resets the statistics of all connections.
pub(super) async fn reset_connections(source: &dyn Source) -> Option<()> {
    source.inspect(Inspect::ResetConnections).await.map(|_| ())
}

/// Resets the statistics of the server, the shell's and the replica's.
pub(super) async fn reset_server(source: &dyn Source) -> Option<()> {
    source.reset_counters();
    source.inspect(Inspect::ResetServer).await.map(|_| ())
}

fn unfit<T>(asked: Inspect) -> Option<T> {
    tracing::error!(?asked, "the replica answered another question than this");
    None
}
