//! `/migration`: how far a live migration has come, and what operators want of it.
//!
//! *Owns* the parameters of the requests and the JSON of the answer. *Invariant*: what is asked for is decided by the
//! server that leads; another one names it. *Never* judges whether a step may be done.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::admin::Source;
use crate::admin::http::{Answer, Question, told};
use crate::admin::source::{ZooKeeperPort, ZooKeeperWords};
use crate::replica::inspect::{CopyReport, Inspect, MIGRATION_UNKNOWN, MigrationReport, Report};
use crate::replica::{ADDRESSES_MAX, MigrateOrder, Phase};

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Migrate {
    /// To know.
    Status,
    /// To follow another ensemble.
    Follow,
    /// To take over.
    CutOver,
    /// To give up.
    Abort,
    /// To watch ZooKeeper no more.
    Finish,
}

/// A live migration: what it has come to, or a step of it.
pub(super) async fn answer(asked: &Question<'_>, what: Migrate) -> Answer {
    let done = carry_out(asked, what).await;
    if what != Migrate::Status {
        let outcome = done.as_ref().map_or_else(|(_, words)| words.as_str(), |_| "done");
        let remote = asked.asker.remote;
        tracing::info!(target: "lockkeeper::admin::migration", ?what, %remote, outcome,
            "an operator migrates");
    }
    told(done)
}

/// Looks from here at ports of ZooKeeper's machines.
pub(super) async fn check(asked: &Question<'_>) -> Answer {
    let ports = list(asked, "quorum");
    if ports.is_empty() || ports.len() > ADDRESSES_MAX {
        let words = format!("quorum is to name 1 to {ADDRESSES_MAX} addresses");
        return told(Err((StatusCode::BAD_REQUEST, words)));
    }
    let seen = |port: ZooKeeperPort| {
        let (state, why) = match port.listens {
            Ok(true) => ("open", None),
            Ok(false) => ("closed", None),
            Err(why) => ("unseen", Some(why)),
        };
        json!({ "at": port.at, "state": state, "why": why })
    };
    let ports: Vec<Value> =
        asked.source.zookeeper_ports(ports).await.into_iter().map(seen).collect();
    told(Ok(json!({ "ports": ports })))
}

/// The parts of a parameter.
fn list(asked: &Question<'_>, key: &str) -> Vec<String> {
    let text = asked.parameter(key).unwrap_or_default();
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

async fn carry_out(asked: &Question<'_>, what: Migrate) -> Result<Value, (StatusCode, String)> {
    let source = asked.source;
    let list = |key: &str| list(asked, key);
    let order = match what {
        Migrate::Status => return status(source).await,
        Migrate::Follow => {
            let bad = |words: &str| (StatusCode::BAD_REQUEST, words.to_owned());
            let server_id = asked.parameter("server_id").and_then(|id| id.parse().ok());
            let server_id = server_id.filter(|id| (1..=MIGRATION_ID_MAX).contains(id));
            let Some(server_id) = server_id else {
                return Err(bad(
                    "server_id is to be a number from 1 to 253 that no server of ZooKeeper has",
                ));
            };
            let quorum = list("quorum");
            if quorum.is_empty() {
                return Err(bad("quorum names no address of a server of ZooKeeper"));
            }
            MigrateOrder::Follow { server_id, quorum, clients: list("clients") }
        }
        Migrate::CutOver => MigrateOrder::CutOver,
        Migrate::Abort => MigrateOrder::Abort,
        Migrate::Finish => MigrateOrder::Done,
    };
    let words = ZooKeeperWords {
        admins: list("admin"),
        ports: list("ports"),
        silent: list("silent"),
        down: list("with_down").iter().filter_map(|id| id.parse().ok()).collect(),
    };
    let stopping = || (StatusCode::SERVICE_UNAVAILABLE, "this server is stopping".to_owned());
    let Some(Report::Migrated(done)) = source.migrate(order, words).await else {
        return Err(stopping());
    };
    match done {
        Ok(zxid) if what == Migrate::CutOver => {
            let mut shown = status(source).await?;
            (shown["state"], shown["zxid"]) = (json!(Phase::CutOver.name()), json!(zxid));
            Ok(shown)
        }
        Ok(_) => status(source).await,
        Err(words) if words.ends_with("leads: ask that one") => {
            Err((StatusCode::MISDIRECTED_REQUEST, words))
        }
        Err(words) if words.contains(MIGRATION_UNKNOWN) => {
            Err((StatusCode::SERVICE_UNAVAILABLE, words))
        }
        Err(words) => Err((StatusCode::CONFLICT, words)),
    }
}

/// The highest id that a server of ZooKeeper has whose sessions cannot be taken for owners of another kind.
const MIGRATION_ID_MAX: u8 = 253;

async fn status(source: &dyn Source) -> Result<Value, (StatusCode, String)> {
    match source.inspect(Inspect::Migration).await {
        Some(Report::Migration(mut report)) => {
            report.notes.extend(note_of_size(source, report.largest));
            Ok(shown(&report))
        }
        _ => Err((StatusCode::SERVICE_UNAVAILABLE, "this server is stopping".to_owned())),
    }
}

/// Note of a znode of ZooKeeper that no client can write here.
fn note_of_size(source: &dyn Source, largest: u64) -> Option<String> {
    let mut known = source.facts().properties.iter();
    let (_, allowed) = known.find(|(name, _)| name == "jute.maxbuffer")?;
    let allowed: u64 = allowed.parse().ok()?;
    (largest > allowed).then(|| {
        format!(
            "ZooKeeper has a znode of {largest} bytes, and jute.maxbuffer here is {allowed}: its clients cannot write \
             it through this server. Set jute.maxbuffer as at ZooKeeper"
        )
    })
}

/// Next step of an operator, where a migration is in the phase of this name.
pub(super) fn next_step(state: &str) -> Option<&'static str> {
    let phase = Phase::ALL.iter().find(|phase| phase.name() == state)?;
    Some(match phase {
        Phase::Joining | Phase::Interrupted => "wait until it follows: lockkeeper migrate status",
        Phase::Following => {
            "move the clients here and close ZooKeeper's ports for clients, then: lockkeeper migrate cutover"
        }
        Phase::Stopped => {
            "move the clients back to ZooKeeper, then begin anew: lockkeeper migrate follow"
        }
        Phase::CutOver => {
            "stop ZooKeeper, keep it from starting again, then: lockkeeper migrate finish"
        }
        Phase::Aborted => "begin anew: lockkeeper migrate follow",
        Phase::Done => return None,
    })
}

fn shown(report: &MigrationReport) -> Value {
    let own = report.leads;
    let Some(state) = report.state else {
        let (leader, unused) = (report.leader, report.is_unused);
        return json!({ "state": "none", "leads": own, "leading_server": leader, "is_unused": unused });
    };
    json!({
        "state": state,
        "why": report.why,
        "next": next_step(state),
        "zxid": format!("{:#x}", report.zxid),
        "zookeeper_zxid": format!("{:#x}", report.foreign_zxid),
        "zookeeper_epoch": report.epoch,
        "compared": report.compared,
        "compared_zxid": format!("{:#x}", report.compared_zxid),
        "copy": report.copy.as_ref().map(CopyReport::words),
        "copied_znodes": report.copy.as_ref().map(|copy| copy.znodes),
        "copied_bytes": report.copy.as_ref().map(|copy| copy.bytes),
        "copy_attempt": report.copy.as_ref().map(|copy| copy.attempt),
        "expired": report.expired,
        "expired_last": (report.expired_last != 0).then(|| format!("{:#x}", report.expired_last)),
        "notes": report.notes,
        "sessions": report.sessions,
        "sessions_elsewhere": report.sessions_elsewhere,
        "leads": own,
        "leading_server": report.leader,
        "leader": report.linked_with,
        "is_linked": report.is_current,
        "requests_waiting": report.requests_waiting,
        "alarms": report.alarms,
        "server_id": report.server_id,
        "quorum": report.quorum,
        "clients": report.clients,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::admin::http::served::{Reply, Served};

    #[tokio::test]
    async fn a_check_tells_of_each_port_whether_it_is_open_closed_or_unseen() {
        let served = Served::new().await;
        let check = async |query: &str| {
            let head = "Host: localhost\r\nX-Lockkeeper-Change: yes\r\n\r\n";
            let request = format!("POST /migration/check?{query} HTTP/1.1\r\n{head}");
            Reply::parse(&served.raw(request.as_bytes()).await)
        };
        assert_eq!(check("quorum=").await.status, 400);
        let many = vec!["zk:2888"; 257].join(",");
        assert_eq!(check(&format!("quorum={many}")).await.status, 400);
        let answer = check("quorum=a:1,b:2,%20c:3").await;
        let expected = json!({ "ports": [
            { "at": "a:1", "state": "open", "why": null },
            { "at": "b:2", "state": "closed", "why": null },
            { "at": "c:3", "state": "unseen", "why": "it does not answer" },
        ] });
        assert_eq!((answer.status, answer.json()), (200, expected));
    }
}
