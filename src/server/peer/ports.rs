//! The listening sockets of a server for the other servers of its ensemble.
//!
//! *Owns* them, from the start on. *Invariants*: this server listens at what the members of the ensemble say
//! of it (its replicated line) and at what its configuration file says; a new port is bound before an old
//! one is let go of, and that is kept until each other member has a link through a present one, because it
//! may dial the old one until then; what cannot be bound is tried again, and `/readyz` says so; a name that
//! only this machine takes for a loopback address keeps no other server out. *Never* ends a link: the
//! connections of a socket that is closed stay.
//!
//! Takes the place of the rebinding of `QuorumCnxManager.Listener` in `QuorumPeer.processReconfig`.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, lookup_host};
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use super::accept;
use super::peers::Peers;
use crate::config::{Config, Membership, PeerAddress, ServerSpec};
use crate::server::error::StartError;
use crate::server::metrics::{Cause, Published};
use crate::server::ports::{Announced, Arrivals, Files, Port};
use crate::supervision::{Task, TaskSet};

/// The sockets, and what could not be bound.
#[derive(Debug)]
pub(crate) struct PeerPorts {
    bound: Vec<(SocketAddr, TcpListener)>,
    /// The line of the configuration file.
    own: ServerSpec,
    /// `quorumListenOnAllIPs`.
    is_everywhere: bool,
    /// How many connections there may be.
    files: Files,
}

/// Binds the addresses of the own line of the configuration, or their ports at all addresses of this machine
/// (`quorumListenOnAllIPs`). A host that is none of this machine's (the address of a proxy or of a
/// container's host) is taken for all of them, and so is a name that is a loopback address here (of
/// Debian's /etc/hosts) where other servers are on other machines.
///
/// # Errors
/// A port cannot be had, and the server is no member yet (`is_member`). That of a member is tried again:
/// the members may say another one.
pub(crate) async fn listen(
    config: &Config,
    own: &ServerSpec,
    is_member: bool,
    files: Files,
) -> Result<PeerPorts, StartError> {
    let is_everywhere = config.quorum_listen_on_all_ips;
    let mut ports = PeerPorts { bound: Vec::new(), own: own.clone(), is_everywhere, files };
    let others = others(own.id, [&config.servers[..]]);
    for address in &own.addresses {
        match bind(address, &ports.held(), is_everywhere, &others).await {
            Ok(Some(bound)) => ports.bound.push(bound),
            Ok(None) => {}
            Err(_) if is_member => {}
            Err(error) => {
                return Err(StartError::PeerAddress { address: shown(address), error });
            }
        }
    }
    Ok(ports)
}

impl PeerPorts {
    fn held(&self) -> Vec<SocketAddr> {
        self.bound.iter().map(|(address, _)| *address).collect()
    }

    /// Accepts, and follows what the members and the configuration file say of this server. `file`: the
    /// server lines of the file, as they are now.
    pub(crate) async fn follow(
        self,
        peers: Arc<Peers>,
        mut members: watch::Receiver<Announced>,
        mut file: watch::Receiver<Vec<ServerSpec>>,
        published: Arc<Published>,
    ) {
        let mut following = Following::new(self, Arc::clone(&peers));
        let (mut servers, mut is_bound, mut is_new) = (Vec::new(), false, true);
        loop {
            if is_new {
                let text = members.borrow_and_update().text.clone();
                servers = Membership::parse(&text).unwrap_or_default().servers;
            }
            if is_new || !is_bound {
                let lines = file.borrow_and_update().clone();
                let condition = following.take_up(&servers, &lines).await;
                is_bound = condition.is_none();
                published.conditions.set(Cause::PeerPort, condition);
            }
            let is_done = is_bound && following.let_go(&servers);
            is_new = tokio::select! {
                Ok(()) = members.changed() => true,
                Ok(()) = file.changed() => true,
                () = sleep(LOOK_INTERVAL), if !is_done => false,
                else => return,
            };
        }
    }
}

/// A socket that is listened on.
#[derive(Debug)]
struct Listening {
    address: SocketAddr,
    /// Closes it when it is dropped.
    #[expect(dead_code, reason = "held, not read")]
    closes: oneshot::Sender<()>,
}

/// The sockets of a server that runs.
struct Following {
    peers: Arc<Peers>,
    own: ServerSpec,
    is_everywhere: bool,
    listening: Vec<Listening>,
    accepting: TaskSet<()>,
    /// The connections of all ports, and how many there may be.
    arrivals: (Arc<Arrivals>, Files),
    /// Ports that are to be listened on.
    wanted: BTreeSet<u16>,
    /// What was said of addresses of the file that are not needed.
    said: BTreeSet<String>,
}

impl Following {
    fn new(ports: PeerPorts, peers: Arc<Peers>) -> Self {
        let PeerPorts { bound, own, is_everywhere, files } = ports;
        let mut following = Self {
            peers,
            own,
            is_everywhere,
            listening: Vec::new(),
            accepting: TaskSet::default(),
            arrivals: (Arc::default(), files),
            wanted: BTreeSet::new(),
            said: BTreeSet::new(),
        };
        for (address, listener) in bound {
            following.accept(address, listener);
        }
        following
    }

    fn accept(&mut self, address: SocketAddr, listener: TcpListener) {
        let (closes, closed) = oneshot::channel();
        let accept =
            accept::accept(listener, Arc::clone(&self.peers), self.arrivals.clone(), closed);
        self.accepting.spawn(Task::Peers, accept);
        self.listening.push(Listening { address, closes });
    }

    /// Listens at all that is to be listened at. What is wrong, if something is.
    async fn take_up(&mut self, members: &[ServerSpec], file: &[ServerSpec]) -> Option<String> {
        let own = |lines: &[ServerSpec]| lines.iter().find(|spec| spec.id == self.own.id).cloned();
        let replicated = own(members).map_or(Vec::new(), |spec| spec.addresses);
        let written = own(file).map_or(Vec::new(), |spec| spec.addresses);
        let hints = written.into_iter().filter(|address| !replicated.contains(address));
        let wanted: Vec<(PeerAddress, bool)> = replicated
            .iter()
            .map(|address| (address.clone(), true))
            .chain(hints.map(|address| (address, replicated.is_empty())))
            .collect();
        self.wanted = wanted.iter().map(|(address, _)| address.peer_port).collect();
        let others = others(self.own.id, [members, file]);
        let mut condition = None;
        for (address, is_needed) in wanted {
            let held: Vec<SocketAddr> = self.listening.iter().map(|known| known.address).collect();
            match bind(&address, &held, self.is_everywhere, &others).await {
                Ok(Some((bound, listener))) => {
                    tracing::info!(address = %bound, "listens for the other servers");
                    self.accept(bound, listener);
                }
                Ok(None) => {}
                Err(error) if is_needed => condition = Some(self.failing(&address, &error)),
                Err(error) => {
                    let words = format!(
                        "{} of the configuration cannot be listened at ({error}), and need not: the \
                         members of the ensemble say another address",
                        shown(&address)
                    );
                    if self.said.insert(words.clone()) {
                        tracing::warn!("{words}");
                    }
                }
            }
        }
        condition
    }

    fn failing(&self, address: &PeerAddress, error: &io::Error) -> String {
        let held: Vec<String> =
            self.listening.iter().map(|known| known.address.to_string()).collect();
        let held = if held.is_empty() { "nowhere".to_string() } else { held.join(", ") };
        format!(
            "server {} cannot listen for the other servers at {}: {error}; it listens at: {held}. It \
             tries again; free the port, or give it another one: lockkeeper member add 'server.{}=...'",
            self.own.id,
            shown(address),
            self.own.id
        )
    }

    /// Closes what need not be listened at any more. False: something is kept because another member may
    /// still dial it.
    fn let_go(&mut self, members: &[ServerSpec]) -> bool {
        let is_wanted = |known: &Listening| self.wanted.contains(&known.address.port());
        if self.listening.iter().all(is_wanted) {
            return true;
        }
        let has_moved = |spec: &ServerSpec| {
            let ports = self.peers.incoming_ports(spec.id);
            spec.id == self.own.id || ports.iter().any(|port| self.wanted.contains(port))
        };
        if members.is_empty() || !members.iter().all(has_moved) {
            return false;
        }
        let wanted = &self.wanted;
        self.listening.retain(|Listening { address, .. }| {
            let stays = wanted.contains(&address.port());
            if !stays {
                tracing::info!(%address, "no longer listened at for other servers: all have moved");
            }
            stays
        });
        // Those whose last link has ended.
        while self.accepting.try_join_next().is_some() {}
        true
    }
}

/// Hosts of the other servers, as these lines name them.
fn others<const N: usize>(own: u8, lines: [&[ServerSpec]; N]) -> BTreeSet<String> {
    let others = lines.into_iter().flatten().filter(|spec| spec.id != own);
    others.flat_map(|spec| &spec.addresses).map(|address| address.host.clone()).collect()
}

/// Listens at an address, unless this server does so already (`held`): `None`. `others`: hosts of the other
/// servers.
async fn bind(
    PeerAddress { host, peer_port, .. }: &PeerAddress,
    held: &[SocketAddr],
    is_everywhere: bool,
    others: &BTreeSet<String>,
) -> io::Result<Option<(SocketAddr, TcpListener)>> {
    let listen = |port: Port| {
        let address = port.address;
        port.listen(BACKLOG).map(|listener| Some((address, listener)))
    };
    let all = SocketAddr::from(([0, 0, 0, 0], *peer_port));
    if is_everywhere {
        return if is_held(all, held) { Ok(None) } else { listen(Port::bind([all])?) };
    }
    let error = match lookup_host((host.as_str(), *peer_port)).await {
        Ok(addresses) => {
            let addresses: Vec<SocketAddr> = addresses.collect();
            if addresses.iter().any(|address| is_held(*address, held)) {
                return Ok(None);
            }
            if is_hidden(host, &addresses) && are_elsewhere(others).await {
                tracing::warn!(host, address = %addresses[0], port = peer_port,
                    "this server's own host is a loopback address here, at which other machines cannot reach \
                     it: it listens for the other servers on all addresses. quorumListenOnAllIPs=true says \
                     so; another address in the server line, or for the name in /etc/hosts, narrows it");
                return listen(Port::bind([all])?);
            }
            match Port::bind(addresses) {
                Ok(port) => return listen(port),
                Err(error) => error,
            }
        }
        Err(error) => error,
    };
    // At another address of this machine, or at all of them: a name that is none here is a proxy's.
    if held.iter().any(|known| known.port() == *peer_port) {
        return Ok(None);
    }
    // Another process has it: another address would not help.
    if error.kind() == io::ErrorKind::AddrInUse {
        return Err(error);
    }
    tracing::warn!(host, port = peer_port, %error,
        "listens for other servers on all addresses instead of its own");
    listen(Port::bind([all])?)
}

/// Whether a host is a name that stands for loopback addresses on this machine. Who writes such an address, or
/// `localhost`, means it.
pub(crate) fn is_hidden(host: &str, addresses: &[SocketAddr]) -> bool {
    let is_name = host.parse::<IpAddr>().is_err() && !host.eq_ignore_ascii_case("localhost");
    is_name && !addresses.is_empty() && addresses.iter().all(|address| address.ip().is_loopback())
}

/// Whether one of these hosts is on another machine, or is not known here yet.
async fn are_elsewhere(hosts: &BTreeSet<String>) -> bool {
    for host in hosts {
        // The port does not matter.
        let is_here = match lookup_host((host.as_str(), 1)).await {
            Ok(mut addresses) => {
                addresses.all(|address| address.ip().is_loopback() || address.ip().is_unspecified())
            }
            Err(_) => false,
        };
        if !is_here {
            return true;
        }
    }
    false
}

fn is_held(address: SocketAddr, held: &[SocketAddr]) -> bool {
    let covers = |known: &SocketAddr| {
        *known == address || (known.port() == address.port() && known.ip().is_unspecified())
    };
    held.iter().any(covers)
}

fn shown(PeerAddress { host, peer_port, .. }: &PeerAddress) -> String {
    format!("{}:{peer_port}", crate::config::bracketed(host))
}

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 128;
/// Time between two attempts at a port, and between two looks whether an old one is needed still.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 2888)).collect()
    }

    fn hosts(texts: &[&str]) -> BTreeSet<String> {
        texts.iter().map(|text| (*text).to_string()).collect()
    }

    #[test]
    fn a_name_that_is_a_loopback_address_here_hides_its_server_and_what_says_loopback_means_it() {
        for (host, found, hidden) in [
            ("zk1", &["127.0.1.1"][..], true),
            ("zk1.example.org", &["127.0.1.1", "::1"], true),
            ("zk1", &["127.0.1.1", "10.0.0.1"], false),
            ("zk1", &["10.0.0.1"], false),
            ("zk1", &[], false),
            ("127.0.1.1", &["127.0.1.1"], false),
            ("::1", &["::1"], false),
            ("LocalHost", &["127.0.0.1"], false),
        ] {
            assert_eq!(is_hidden(host, &addresses(found)), hidden, "{host} {found:?}");
        }
    }

    #[tokio::test]
    async fn servers_are_elsewhere_if_one_is_not_on_this_machine() {
        for (others, elsewhere) in [
            (&["127.0.0.2", "localhost"][..], false),
            (&["0.0.0.0"], false),
            (&[], false),
            (&["127.0.0.2", "192.0.2.1"], true),
            (&["2001:db8::1"], true),
            (&["name.of.no.host.invalid"], true),
        ] {
            assert_eq!(are_elsewhere(&hosts(others)).await, elsewhere, "{others:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_listens_on_all_addresses_is_reached_at_each() {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let address = PeerAddress { host: "127.0.0.2".into(), peer_port: free, election_port: 1 };
        let (bound, listener) =
            bind(&address, &[], false, &hosts(&["127.0.0.3"])).await.unwrap().unwrap();
        assert_eq!(bound.to_string(), format!("127.0.0.2:{free}"));
        drop(listener);
        let everywhere = async |held: &[SocketAddr]| bind(&address, held, true, &hosts(&[])).await;
        let (bound, _listener) = everywhere(&[]).await.unwrap().unwrap();
        assert!(bound.ip().is_unspecified());
        tokio::net::TcpStream::connect(("127.0.0.1", free)).await.unwrap();
        assert!(everywhere(&[bound]).await.unwrap().is_none(), "it does so already");
    }
}
