//! What operators see of an ensemble: who leads, who votes, who is synced.
//!
//! *Owns* the texts and JSON shapes that exist in an ensemble only: the membership behind `conf`,
//! and the commands `leader`, `observers`, `voting_view` and `zabstate`.
//! *Invariant*: the membership shown is the committed one, as `/zookeeper/config` holds it; a text
//! that cannot be read shows nothing rather than something made up.
//!
//! Reproduces `QuorumZooKeeperServer.dumpConf` and the commands of `server.admin.Commands`.

use serde_json::{Map, Value, json};

use super::asked::{Asked, Shown};
use crate::admin::Facts;
use crate::admin::source::question;
use crate::admin::text::put;
use crate::config::{HostPort, Membership, PeerAddress, Role, ServerSpec, bracketed};
use crate::replica::inspect::Mode;

/// The lines of `conf` behind those of every server. The last one has no newline, as there.
pub(super) fn conf(facts: &Facts, membership: &str) -> String {
    let mut out = String::new();
    for (name, limit) in [("initLimit", facts.init_limit), ("syncLimit", facts.sync_limit)] {
        if let Some(limit) = limit {
            put(&mut out, format_args!("{name}={limit}\n"));
        }
    }
    out.push_str("electionAlg=3\n");
    if let Some(own) = own(facts, &members(membership)) {
        let ports = |port: fn(&PeerAddress) -> u16| {
            let ports: Vec<_> = own.addresses.iter().map(|a| port(a).to_string()).collect();
            ports.join("|")
        };
        put(&mut out, format_args!("electionPort={}\n", ports(|a| a.election_port)));
        put(&mut out, format_args!("quorumPort={}\n", ports(|a| a.peer_port)));
        put(&mut out, format_args!("peerType={}\n", u8::from(own.role == Role::Observer)));
    }
    put(&mut out, format_args!("membership: \n{membership}"));
    out
}

/// `leader`.
pub(super) async fn leader(asked: &Asked<'_>) -> Option<Shown> {
    let members = members(&question::membership(asked.source).await?);
    let status = &asked.status;
    match status.mode {
        Mode::Leader | Mode::Follower | Mode::Observer => {}
        Mode::Standalone | Mode::Looking | Mode::ReadOnly => {
            return Some(Shown::Error("server is not initialized".to_string()));
        }
    }
    let leader = members.iter().find(|member| Some(member.id) == status.leader);
    let hosts = |member: &ServerSpec| {
        let hosts: Vec<&str> = member.addresses.iter().map(|a| a.host.as_str()).collect();
        hosts.join("|")
    };
    Some(Shown::Data(json!({
        "is_leader": status.mode == Mode::Leader,
        // ZooKeeper's "none" is -1.
        "leader_id": status.leader.map_or(-1, i64::from),
        "leader_ip": leader.map_or(String::new(), hosts),
    })))
}

/// `observers`: those that follow this server, so none but on the leader.
pub(super) fn observers(asked: &Asked<'_>) -> Option<Shown> {
    let status = &asked.status;
    let leads = status.mode == Mode::Leader;
    let list: Vec<Value> = status
        .peers
        .iter()
        .filter(|peer| leads && peer.is_observer && peer.is_connected)
        .map(|peer| json!({ "sid": peer.server, "is_synced": peer.is_synced }))
        .collect();
    let synced = status.peers.iter().filter(|peer| leads && peer.is_observer && peer.is_synced);
    Some(Shown::Data(json!({ "synced_observers": synced.count(), "observers": list })))
}

/// `voting_view`: the participants by id.
pub(super) async fn voting_view(asked: &Asked<'_>) -> Option<Shown> {
    let members = members(&question::membership(asked.source).await?);
    let mut view = Map::new();
    for member in members.iter().filter(|member| member.role == Role::Participant) {
        let shown = json!({
            "server_addresses": addresses(member, |a| a.peer_port),
            "election_addresses": addresses(member, |a| a.election_port),
            "client_address": client_address(member),
            "learner_type": member.role.as_str(),
        });
        view.insert(member.id.to_string(), shown);
    }
    Some(Shown::Data(json!({ "current_config": view })))
}

/// `zabstate`. The epoch and counter are the halves of the zxid.
pub(super) async fn zabstate(asked: &Asked<'_>) -> Option<Shown> {
    let members = members(&question::membership(asked.source).await?);
    let (status, facts) = (&asked.status, asked.source.facts());
    if matches!(status.mode, Mode::Standalone | Mode::ReadOnly) {
        return Some(Shown::Data(json!({ "voting": false, "zabstate": "" })));
    }
    let own = own(facts, &members);
    let first = |port: fn(&PeerAddress) -> u16| {
        own.map_or(String::new(), |own| addresses(own, port).join("|"))
    };
    let voting = own.is_some_and(|own| own.role == Role::Participant);
    Some(Shown::Data(json!({
        "myid": facts.server_id,
        "is_leader": status.mode == Mode::Leader,
        "quorum_address": first(|a| a.peer_port),
        "election_address": first(|a| a.election_port),
        "client_address": own.map_or(String::new(), client_address),
        "voting": voting,
        "last_zxid": format!("0x{:x}", status.zxid),
        "zab_epoch": status.zxid >> 32,
        "zab_counter": status.zxid & 0xffff_ffff,
        "zabstate": if status.mode == Mode::Looking { "election" } else { "broadcast" },
    })))
}

fn members(membership: &str) -> Vec<ServerSpec> {
    Membership::parse(membership).unwrap_or_default().servers
}

fn own<'a>(facts: &Facts, members: &'a [ServerSpec]) -> Option<&'a ServerSpec> {
    members.iter().find(|member| u64::from(member.id) == facts.server_id)
}

fn addresses(member: &ServerSpec, port: fn(&PeerAddress) -> u16) -> Vec<String> {
    let shown = |address: &PeerAddress| format!("{}:{}", bracketed(&address.host), port(address));
    member.addresses.iter().map(shown).collect()
}

fn client_address(member: &ServerSpec) -> String {
    member.client.as_ref().map_or(String::new(), HostPort::to_string)
}

#[cfg(test)]
mod tests {
    use super::super::get;
    use super::*;
    use crate::admin::fake::{Fake, MEMBERSHIP};

    #[test]
    fn conf_ends_in_the_membership() {
        let fake = Fake::leader();
        assert_eq!(
            conf(&fake.facts, MEMBERSHIP),
            format!(
                "initLimit=10\nsyncLimit=5\nelectionAlg=3\nelectionPort=3888\nquorumPort=2888\n\
                 peerType=0\nmembership: \n{MEMBERSHIP}"
            )
        );
    }

    /// The answer, or its error, without what every answer ends in.
    async fn shown(name: &str, fake: &Fake) -> Value {
        let mut answer = get(name, fake).await;
        let keys = answer.as_object_mut().unwrap();
        keys.remove("command");
        keys.remove("error").filter(|error| !error.is_null()).unwrap_or(answer)
    }

    #[tokio::test]
    async fn the_leader_is_shown_by_every_member_that_follows_it() {
        let mut fake = Fake::leader();
        assert_eq!(
            shown("leader", &fake).await,
            json!({ "is_leader": true, "leader_id": 1, "leader_ip": "zk1" })
        );
        fake.status.mode = Mode::Follower;
        fake.status.leader = Some(2);
        assert_eq!(
            shown("leader", &fake).await,
            json!({ "is_leader": false, "leader_id": 2, "leader_ip": "::2" })
        );
        fake.status.leader = None;
        assert_eq!(shown("leader", &fake).await["leader_id"], -1);
        for mode in [Mode::Standalone, Mode::Looking, Mode::ReadOnly] {
            fake.status.mode = mode;
            assert_eq!(shown("leader", &fake).await, "server is not initialized");
        }
    }

    #[tokio::test]
    async fn only_a_leader_has_observers() {
        let mut fake = Fake::leader();
        assert_eq!(
            shown("observers", &fake).await,
            json!({ "synced_observers": 1, "observers": [{ "sid": 4, "is_synced": true }] })
        );
        fake.status.mode = Mode::Follower;
        assert_eq!(
            shown("observers", &fake).await,
            json!({ "synced_observers": 0, "observers": [] })
        );
    }

    #[tokio::test]
    async fn the_voting_view_is_of_participants() {
        let mut fake = Fake::leader();
        let view = shown("voting_view", &fake).await;
        let ids: Vec<_> = view["current_config"].as_object().unwrap().keys().collect();
        assert_eq!(ids, ["1", "2", "3"]);
        assert_eq!(
            view["current_config"]["2"],
            json!({
                "server_addresses": ["[::2]:2888"], "election_addresses": ["[::2]:3888"],
                "client_address": "0.0.0.0:2181", "learner_type": "participant",
            })
        );
        // A single server has none.
        for membership in ["", "no membership"] {
            fake.membership = membership.to_owned();
            assert_eq!(shown("voting_view", &fake).await, json!({ "current_config": {} }));
        }
    }

    #[tokio::test]
    async fn zabstate_shows_where_this_server_is_and_whether_it_votes() {
        let mut fake = Fake::leader();
        let shown = get("zabstate", &fake).await;
        for (key, value) in [
            ("myid", json!(1)),
            ("is_leader", json!(true)),
            ("quorum_address", json!("zk1:2888")),
            ("election_address", json!("zk1:3888")),
            ("client_address", json!("0.0.0.0:2181")),
            ("voting", json!(true)),
            ("last_zxid", json!("0x100000046")),
            ("zab_epoch", json!(1)),
            ("zab_counter", json!(0x46)),
            ("zabstate", json!("broadcast")),
        ] {
            assert_eq!(shown[key], value, "{key}");
        }
        fake.facts.server_id = 4;
        fake.status.mode = Mode::Looking;
        let shown = get("zabstate", &fake).await;
        assert_eq!((&shown["voting"], &shown["zabstate"]), (&json!(false), &json!("election")));
    }
}
