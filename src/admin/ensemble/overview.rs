//! `/overview`: the server and its ensemble at a glance, for the console.
//!
//! *Owns* the keys of its JSON. *Invariant*: a figure is measured or null; what only a leader knows is null
//! elsewhere.

use serde_json::{Value, json};

use super::migration::next_step;
use crate::admin::source::question;
use crate::admin::version::full_version;
use crate::admin::{Distribution, LeaderChange, Quantity, Source};
use crate::config::{HostPort, Membership, Role, ServerSpec};
use crate::replica::Status;
use crate::replica::inspect::{CopyReport, Mode, PeerStatus};

/// The answer; `None` while the server is stopping.
pub(super) async fn overview(source: &dyn Source) -> Option<Value> {
    let membership = question::membership(source).await?;
    let (facts, status, counters) = (source.facts(), source.status(), source.counters());
    let members = Membership::parse(&membership).unwrap_or_default().servers;
    let members: Vec<Value> =
        members.iter().map(|spec| member(spec, facts.server_id, &status)).collect();
    let elections: Vec<Value> = source.elections().iter().map(LeaderChange::json).collect();
    let (disk, measured) = (&counters.disk, &counters.measured);
    let mut conditions = source.conditions();
    conditions.extend(source.failure());
    Some(json!({
        "time_ms": counters.wall_ms,
        "version": full_version(),
        "server": facts.server_id,
        "mode": status.mode.name(),
        "serving": status.serving,
        "migration": status.migration.map(|known| {
            json!({
                "state": known.state,
                "compared": known.compared,
                "copy": known.copy.as_ref().map(CopyReport::words),
                "next": next_step(known.state),
            })
        }),
        "conditions": conditions,
        "leader": status.leader,
        "term": status.term,
        "leading_ms": status.leading_ms,
        "zxid": status.zxid,
        "applied": status.applied,
        "uptime_ms": counters.uptime_ms,
        "client_address": facts.client_address.get().map(|address| address.to_string()),
        "secure_client_address": facts.secure_client_address.map(|address| address.to_string()),
        "members": members,
        "elections": elections,
        "sessions": status.sessions,
        "connections": status.connections,
        "znodes": status.znode_count.saturating_sub(1),
        "ephemerals": status.ephemerals_count,
        "watches": status.watch_count,
        "data_bytes": status.approximate_data_size,
        "outstanding": status.outstanding,
        "transactions": status.txns_applied,
        "sessions_expired": status.sessions_expired,
        "reads": latency(&measured.of(Quantity::Read)),
        "writes": latency(&measured.of(Quantity::Write)),
        "packets_received": counters.packets_received,
        "disk": {
            "log_dir": facts.log_dir.as_ref().map(|path| path.display().to_string()),
            "data_dir": facts.data_dir.as_ref().map(|path| path.display().to_string()),
            "log_bytes": disk.log_dir_bytes,
            "data_bytes": disk.data_dir_bytes,
            "fsync": latency(&measured.of(Quantity::Fsync)),
            "fsyncs_slow": counters.fsyncs_slow,
            "waits_ms": status.disk_waits_ms,
            "is_hung": status.is_disk_hung,
            "last_image_ms": disk.last_image.map(|image| image.wall_ms),
        },
    }))
}

/// Sums since the start: those of two moments tell what was between them.
fn latency(known: &Distribution) -> Value {
    json!({ "count": known.count(), "sum_us": known.sum(), "max_us": known.max() })
}

fn member(spec: &ServerSpec, own: u64, status: &Status) -> Value {
    let is_own = u64::from(spec.id) == own;
    let is_leader = status.leader == Some(spec.id);
    let peer = status.peers.iter().find(|peer| peer.server == spec.id);
    let leads = status.mode == Mode::Leader;
    // Of others only a leader knows how they stand.
    let of_leader = |value: fn(&PeerStatus) -> Value| peer.filter(|_| leads).map(value);
    let address = spec.addresses.first().map(|address| address.host.clone());
    json!({
        "server": spec.id,
        "role": match spec.role {
            Role::Participant => "participant",
            Role::Observer => "observer",
        },
        "address": address,
        "client": spec.client.as_ref().map(HostPort::to_string),
        "is_own": is_own,
        "is_leader": is_leader,
        "connected": if is_own { Some(true) } else { peer.map(|peer| peer.is_connected) },
        "synced": if is_own && leads { Some(json!(true)) } else { of_leader(|peer| json!(peer.is_synced)) },
        "votes": of_leader(|peer| json!(peer.votes)),
        "behind": if is_own && leads { Some(json!(0)) } else { of_leader(|peer| json!(peer.behind)) },
        "clock_skew_ms": of_leader(|peer| json!(peer.clock_skew_ms)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::fake::Fake;

    #[tokio::test]
    async fn a_leader_tells_how_the_others_stand_and_a_follower_does_not() {
        let leader = Fake::leader();
        let shown = overview(&leader).await.unwrap();
        let members = shown["members"].as_array().unwrap();
        assert_eq!(members.len(), 4);
        let own = members.iter().find(|member| member["is_own"] == true).unwrap();
        assert_eq!((&own["connected"], &own["behind"]), (&json!(true), &json!(0)));
        let others = members.iter().filter(|member| member["is_own"] == false);
        assert!(others.clone().any(|member| member["synced"].is_boolean()), "{members:?}");
        let mut follower = Fake::leader();
        follower.status.mode = Mode::Follower;
        let shown = overview(&follower).await.unwrap();
        let mut others = shown["members"].as_array().unwrap().iter();
        assert!(others.all(|member| member["synced"].is_null() && member["behind"].is_null()));
    }

    #[tokio::test]
    async fn a_server_that_runs_alone_has_no_members_and_no_elections() {
        let shown = overview(&Fake::standalone()).await.unwrap();
        assert_eq!((&shown["members"], &shown["elections"]), (&json!([]), &json!([])));
        assert_eq!(shown["mode"], "standalone");
        assert_eq!(shown["writes"], json!({ "count": 1, "sum_us": 2_500, "max_us": 2_500 }));
    }
}
