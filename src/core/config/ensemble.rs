//! Which ensembles the server lines may describe.
//!
//! Owns the rules that look at all lines together: how many participants, who this server is,
//! which addresses collide. Invariants: a configuration that passes has this server's own line if
//! it is an ensemble's; everything that ZooKeeper only warns of is a warning here. Reproduces the
//! second half of `QuorumPeerConfig.parseDynamicConfig`, `setupPeerType` and `checkValidity`, and
//! `QuorumPeer`'s check that it is in its own list. Never resolves a name and never reads `myid`.

use super::address::HostPort;
use super::servers::{Reach, Role, SERVER_LINES_BYTES_MAX, ServerSpec};
use super::{Config, PeerAddress};

/// What is wrong with the server lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// What is to blame.
    pub blame: Blame,
    /// What is wrong and what would be right.
    pub reason: String,
}

/// Where a fault of the server lines is to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// The line of this server.
    Line(u8),
    /// The key `standaloneEnabled`.
    StandaloneEnabled,
    /// The file `myid`.
    Myid,
}

impl Config {
    /// Whether this server is one of an ensemble: there are several participants, or one with
    /// `standaloneEnabled=false`. Then `server_id` is known and has a line of its own.
    #[must_use]
    pub fn is_ensemble(&self) -> bool {
        let voters = participants(&self.servers);
        voters > 1 || (voters == 1 && !self.standalone_enabled)
    }

    /// The `server.N` line of this server: that of `myid`, or the only one.
    #[must_use]
    pub fn own_server(&self) -> Option<&ServerSpec> {
        match (self.server_id, self.servers.as_slice()) {
            (Some(id), servers) => servers.iter().find(|spec| spec.id == id),
            (None, [only]) => Some(only),
            (None, _) => None,
        }
    }
}

/// Everything that forbids to start with these server lines.
pub(super) fn faults(config: &Config) -> Vec<Fault> {
    let mut faults = of_all_lines(config);
    faults.extend(several_addresses(config));
    faults
}

/// ZooKeeper refuses such a line of a server on its own, too.
fn several_addresses(config: &Config) -> impl Iterator<Item = Fault> {
    let refused = config.servers.iter().filter(|_| !config.multi_address);
    refused.filter(|spec| spec.addresses.len() > 1).map(|spec| Fault {
        blame: Blame::Line(spec.id),
        reason: "several addresses, and multiAddress.enabled=false: leave one, or remove that key"
            .to_string(),
    })
}

fn of_all_lines(config: &Config) -> Vec<Fault> {
    let voters = participants(&config.servers);
    let first = config.servers.first().map(|spec| Blame::Line(spec.id));
    let fault = |blame, reason: &str| vec![Fault { blame, reason: reason.to_string() }];
    match (voters, first) {
        (0, None) if config.standalone_enabled => Vec::new(),
        (0, None) => {
            fault(Blame::StandaloneEnabled, "false needs server lines, and there are none")
        }
        (0, Some(first)) => fault(first, "observers without a participant"),
        (1, Some(first)) if config.standalone_enabled && config.servers.len() > 1 => fault(
            first,
            "observers need more than one participant, or standaloneEnabled=false: then one \
             participant and its observers are an ensemble",
        ),
        (_, _) if config.is_ensemble() => {
            let mut faults = collisions(&config.servers);
            faults.extend(stranger(config));
            faults.extend(excess(&config.servers));
            faults
        }
        (_, _) => Vec::new(),
    }
}

/// What an operator should know, by key.
pub(super) fn warnings(config: &Config) -> Vec<(String, String)> {
    let servers = config.servers.as_slice();
    let mut warnings = Vec::new();
    if let (Some(id), [only], false) = (config.server_id, servers, config.is_ensemble())
        && only.id != id
    {
        let reason = format!("myid is {id}: this is not the line of this server");
        warnings.push((format!("server.{}", only.id), reason));
    }
    if let (Some(own), Some(role)) = (config.own_server(), config.raw.peer_type)
        && own.role != role
    {
        let reason = format!(
            "{} differs from the server line of this server, which says {} and holds",
            role.as_str(),
            own.role.as_str()
        );
        warnings.push(("peerType".to_string(), reason));
    }
    if config.is_ensemble() {
        warnings.extend(size_warning(participants(servers)));
        let others = servers.iter().filter(|spec| Some(spec.id) != config.server_id);
        warnings.extend(others.filter_map(unreachable));
        warnings.extend(hidden(config));
    }
    warnings
}

fn size_warning(voters: usize) -> Option<(String, String)> {
    let reason = match voters {
        0 => return None,
        1 => "one participant: it may not fail".to_string(),
        2 => "two participants: neither may fail, so there should be three".to_string(),
        odd if odd % 2 == 1 => return None,
        even => format!(
            "{even} participants: no more of them may fail than of {}, so there should be an odd \
             number",
            even - 1
        ),
    };
    Some(("server.N".to_string(), reason))
}

/// The address of another server is taken as it is written. The own one may be a wildcard, as container
/// images write it: it is what is bound, and others know this server by their own lines.
fn unreachable(spec: &ServerSpec) -> Option<(String, String)> {
    let wildcard = |address: &&PeerAddress| {
        address.host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_unspecified())
    };
    let address = spec.addresses.iter().find(wildcard)?;
    let reason = format!(
        "{} is no address under which other servers find this one: write its name or address",
        address.host
    );
    Some((format!("server.{}", spec.id), reason))
}

/// A server that is told to listen at a loopback address is reached from its own machine only.
fn hidden(config: &Config) -> Option<(String, String)> {
    let is_here = |address: &PeerAddress| address.reach() == Reach::Machine;
    let own = config.own_server().filter(|own| own.addresses.iter().all(is_here))?;
    let is_elsewhere = |spec: &ServerSpec| spec.id != own.id && spec.reach() == Reach::Network;
    if config.quorum_listen_on_all_ips || !config.servers.iter().any(is_elsewhere) {
        return None;
    }
    let reason = "the own line says a loopback address, at which servers on other machines cannot reach this \
                  one: write the name or address that they know, or quorumListenOnAllIPs=true";
    Some((format!("server.{}", own.id), reason.to_string()))
}

/// They are sent to other servers as a whole.
fn excess(servers: &[ServerSpec]) -> Option<Fault> {
    let bytes: usize =
        servers.iter().map(|spec| format!("server.{}={spec}\n", spec.id).len()).sum();
    let last = servers.last().filter(|_| bytes > SERVER_LINES_BYTES_MAX)?;
    let reason = format!(
        "the server lines have {bytes} bytes in all; more than {SERVER_LINES_BYTES_MAX} cannot be sent \
         to other servers"
    );
    Some(Fault { blame: Blame::Line(last.id), reason })
}

/// Two servers cannot be on one host and port.
fn collisions(servers: &[ServerSpec]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (index, later) in servers.iter().enumerate() {
        for earlier in &servers[..index] {
            if let Some(shared) = shared_address(earlier, later) {
                let reason = format!("{shared} is the address of server {}, too", earlier.id);
                faults.push(Fault { blame: Blame::Line(later.id), reason });
            }
        }
    }
    faults
}

fn shared_address(one: &ServerSpec, other: &ServerSpec) -> Option<String> {
    let same = |a: &PeerAddress, b: &PeerAddress| {
        a.peer_port == b.peer_port && a.host.eq_ignore_ascii_case(&b.host)
    };
    let peer = one.addresses.iter().find(|a| other.addresses.iter().any(|b| same(a, b)));
    if let Some(address) = peer {
        return Some(format!("{}:{}", address.host, address.peer_port));
    }
    // A wildcard and a loopback address are others on every machine. If both servers are on one, the second finds the
    // port taken.
    let is_of_each_machine = |client: &HostPort| {
        client.ip().is_some_and(|ip| ip.is_unspecified() || ip.is_loopback())
            || client.host.eq_ignore_ascii_case("localhost")
    };
    let client = one.client.as_ref().filter(|client| other.client.as_ref() == Some(client));
    client.filter(|client| !is_of_each_machine(client)).map(HostPort::to_string)
}

/// A server of an ensemble that has no line does not know where the others are to reach it.
fn stranger(config: &Config) -> Option<Fault> {
    let id = config.server_id?;
    if config.own_server().is_some() {
        return None;
    }
    let reason = format!(
        "{id} has no server line (there are {}): this server was removed from the ensemble, or the \
         number is wrong. A server that is to join lists its own line server.{id}=... beside those \
         of the members, and is then added by: lockkeeper member add 'server.{id}=...'",
        ids(&config.servers)
    );
    Some(Fault { blame: Blame::Myid, reason })
}

/// The ids, for people.
pub(super) fn ids(servers: &[ServerSpec]) -> String {
    servers.iter().map(|spec| spec.id.to_string()).collect::<Vec<_>>().join(", ")
}

fn participants(servers: &[ServerSpec]) -> usize {
    servers.iter().filter(|spec| spec.role == Role::Participant).count()
}
