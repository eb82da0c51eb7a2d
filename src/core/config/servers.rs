//! `server.N` lines: who is in the ensemble.
//!
//! Owns [`ServerSpec`] and its text form:
//! `host:peerPort:electionPort[:role][|host:port:port[:role]]...[;[clientHost:]clientPort][;...]`.
//! Reproduces `QuorumPeer.QuorumServer`. Invariants: an id is 0 to [`SERVER_ID_MAX`], a spec has at
//! least one address, all addresses of one spec have one role, peer and election port differ.
//! Never resolves a name; whether an ensemble can be served is the draft's decision.

use std::fmt;

use super::address::{HostPort, bracketed, host_of, port_of, split_host};

/// Highest server id. 255 is excluded: it would be the first byte of the server's session ids, and an
/// owner that begins with 0xff is the mark of a TTL znode.
pub const SERVER_ID_MAX: u8 = 254;

/// Most addresses of one server (`a:1:2|b:1:2|...`).
pub(crate) const SERVER_ADDRESSES_MAX: usize = 16;

/// Most bytes of all server lines of a configuration, role and client address included: they travel in
/// what servers say to each other first. 254 lines of 250 bytes fit.
pub const SERVER_LINES_BYTES_MAX: usize = 64 << 10;

/// What a server does in the ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Votes.
    Participant,
    /// Follows without a vote.
    Observer,
}

impl Role {
    /// Reads `participant` or `observer`, in any case.
    ///
    /// # Errors
    /// Names what is neither.
    pub fn parse(text: &str) -> Result<Role, String> {
        match text.trim().to_ascii_lowercase().as_str() {
            "participant" => Ok(Role::Participant),
            "observer" => Ok(Role::Observer),
            _ => Err(format!("`{text}` is neither participant nor observer")),
        }
    }

    /// The word for it in a `server.N` line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Participant => "participant",
            Role::Observer => "observer",
        }
    }
}

/// One address under which other servers reach a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddress {
    /// Name or address, without brackets.
    pub host: String,
    /// Port for the other servers.
    pub peer_port: u16,
    /// ZooKeeper's election port: read and shown, never bound by Lockkeeper.
    pub election_port: u16,
}

impl PeerAddress {
    /// From how far it can be reached, as its text says.
    pub(super) fn reach(&self) -> Reach {
        match self.host.parse::<std::net::IpAddr>() {
            Ok(ip) if ip.is_unspecified() => Reach::Nowhere,
            Ok(ip) if ip.is_loopback() => Reach::Machine,
            Ok(_) => Reach::Network,
            Err(_) if self.host.eq_ignore_ascii_case("localhost") => Reach::Machine,
            Err(_) => Reach::Network,
        }
    }
}

/// One `server.N` line. Printed in ZooKeeper's canonical form: the role always, the client address
/// only if the line has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerSpec {
    /// The N of `server.N`: 0 to [`SERVER_ID_MAX`].
    pub id: u8,
    /// At least one.
    pub addresses: Vec<PeerAddress>,
    /// Participant unless the line says otherwise.
    pub role: Role,
    /// Where its clients connect, if the line says so.
    pub client: Option<HostPort>,
    /// Where its TLS clients connect, if the line says so.
    pub secure_client: Option<HostPort>,
}

impl ServerSpec {
    /// Reads the value of `server.<id>`.
    ///
    /// # Errors
    /// The part that is wrong, and the form expected.
    pub fn parse(id: u8, text: &str) -> Result<ServerSpec, String> {
        let mut parts = text.split(';');
        let peers = parts.next().unwrap_or_default();
        let client = client_part(parts.next())?;
        let secure_client = client_part(parts.next())?;
        if parts.next().is_some() {
            return Err(format!("more than two `;` parts; {FORM}"));
        }
        let mut addresses = Vec::new();
        let mut role = None;
        for part in peers.split('|') {
            if addresses.len() == SERVER_ADDRESSES_MAX {
                return Err(format!("more than {SERVER_ADDRESSES_MAX} addresses"));
            }
            let (address, part_role) = peer_part(part.trim())?;
            addresses.push(address);
            match (role, part_role) {
                (Some(known), Some(other)) if known != other => {
                    return Err("its addresses have different roles".to_string());
                }
                (None, Some(_)) => role = part_role,
                (_, _) => {}
            }
        }
        Ok(ServerSpec {
            id,
            addresses,
            role: role.unwrap_or(Role::Participant),
            client,
            secure_client,
        })
    }
}

impl ServerSpec {
    /// Reads a whole line, `server.<id>=...`.
    ///
    /// # Errors
    /// The part that is wrong, and the form expected.
    pub fn parse_line(line: &str) -> Result<ServerSpec, String> {
        let (id, text) = line
            .trim()
            .strip_prefix("server.")
            .and_then(|rest| rest.split_once('='))
            .ok_or_else(|| "not of the form server.N=...".to_string())?;
        ServerSpec::parse(server_id(id.trim())?, text.trim())
    }

    /// From how far its addresses can be reached, as their text says: the least of them.
    #[must_use]
    pub fn reach(&self) -> Reach {
        self.addresses.iter().map(PeerAddress::reach).min().unwrap_or(Reach::Nowhere)
    }
}

/// From how far an address can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// It stands for all addresses of a machine: it can be bound, and means another machine to each that
    /// reads it.
    Nowhere,
    /// It is one of the loopback interface.
    Machine,
    /// From other machines, as far as its text says.
    Network,
}

impl fmt::Display for ServerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, address) in self.addresses.iter().enumerate() {
            let separator = if index == 0 { "" } else { "|" };
            let host = bracketed(&address.host);
            write!(f, "{separator}{host}:{}:{}", address.peer_port, address.election_port)?;
        }
        write!(f, ":{}", self.role.as_str())?;
        if let Some(client) = &self.client {
            write!(f, ";{client}")?;
        }
        match (&self.client, &self.secure_client) {
            (None, Some(secure)) => write!(f, ";;{secure}"),
            (Some(_), Some(secure)) => write!(f, ";{secure}"),
            (_, None) => Ok(()),
        }
    }
}

/// Reads the N of `server.N`.
pub(super) fn server_id(text: &str) -> Result<u8, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(id) if is_number => match u8::try_from(id) {
            Ok(id) if id <= SERVER_ID_MAX => Ok(id),
            Ok(_) | Err(_) => Err(format!(
                "the server id `{text}` is above {SERVER_ID_MAX}: session ids begin with it, in one \
                 byte, and 255 there is the mark of znodes with a TTL"
            )),
        },
        Ok(_) | Err(_) => {
            Err(format!("the server id `{text}` is not a number from 0 to {SERVER_ID_MAX}"))
        }
    }
}

/// `host:peerPort:electionPort[:role]`
fn peer_part(text: &str) -> Result<(PeerAddress, Option<Role>), String> {
    let (host, fields) = split_host(text)?;
    let (peer, election, role) = match fields.as_slice() {
        [peer, election] => (peer, election, None),
        [peer, election, role] => (peer, election, Some(Role::parse(role)?)),
        _ => return Err(FORM.to_string()),
    };
    let address = PeerAddress {
        host: host_of(host)?,
        peer_port: port_of(peer, "peer port", 1)?,
        election_port: port_of(election, "election port", 1)?,
    };
    if address.peer_port == address.election_port {
        return Err(format!("peer port and election port are both {}", address.peer_port));
    }
    Ok((address, role))
}

/// `[[clientHost:]clientPort]`; nothing, or nothing between the semicolons, is no client address.
fn client_part(text: Option<&str>) -> Result<Option<HostPort>, String> {
    let text = text.unwrap_or_default().trim();
    if text.is_empty() {
        return Ok(None);
    }
    if let Ok(port) = text.parse::<u16>() {
        let port = port_of(&port.to_string(), "client port", 1)?;
        return HostPort::new("0.0.0.0", port).map(Some);
    }
    let (host, fields) = split_host(text)?;
    match fields.as_slice() {
        [] => Err(format!("the client port `{text}` is not a number from 1 to {}", u16::MAX)),
        [port] => HostPort::new(host, port_of(port, "client port", 1)?).map(Some),
        _ => Err(format!("`{text}` is not [clientHost:]clientPort")),
    }
}

const FORM: &str = "expected host:peerPort:electionPort[:participant|:observer]\
                    [;[clientHost:]clientPort]";

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> ServerSpec {
        ServerSpec::parse(1, text).unwrap()
    }

    #[test]
    fn an_address_is_reached_from_as_far_as_the_nearest_of_its_kind() {
        for (text, reach) in [
            ("0.0.0.0:1:2", Reach::Nowhere),
            ("[::]:1:2", Reach::Nowhere),
            ("zk1:1:2|0.0.0.0:1:2", Reach::Nowhere),
            ("localhost:1:2", Reach::Machine),
            ("127.0.1.1:1:2", Reach::Machine),
            ("[::1]:1:2", Reach::Machine),
            ("10.0.0.1:1:2", Reach::Network),
            ("zk1:1:2;0.0.0.0:3", Reach::Network),
        ] {
            assert_eq!(spec(text).reach(), reach, "{text}");
        }
    }

    #[test]
    fn every_form_prints_in_the_canonical_one() {
        for (text, canonical) in [
            ("h:1:2", "h:1:2:participant"),
            ("h:1:2:PARTICIPANT", "h:1:2:participant"),
            ("h:1:2:Observer", "h:1:2:observer"),
            ("h:1:2;2181", "h:1:2:participant;0.0.0.0:2181"),
            ("h:1:2:observer;10.0.0.1:2181", "h:1:2:observer;10.0.0.1:2181"),
            ("[::1]:1:2;[fe80::2]:9", "[::1]:1:2:participant;[fe80::2]:9"),
            ("h:1:2;", "h:1:2:participant"),
            ("h:1:2;2181;2182", "h:1:2:participant;0.0.0.0:2181;0.0.0.0:2182"),
            ("h:1:2;;s:2182", "h:1:2:participant;;s:2182"),
            ("a:1:2|b:3:4|[::3]:5:6", "a:1:2|b:3:4|[::3]:5:6:participant"),
            ("a:1:2:observer|b:3:4:observer;7", "a:1:2|b:3:4:observer;0.0.0.0:7"),
        ] {
            assert_eq!(spec(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn canonical_text_reads_back_as_the_same_server() {
        for text in ["[::1]:1:2:observer;[::2]:3", "a:1:2|b:3:4:participant;;c:5"] {
            assert_eq!(spec(&spec(text).to_string()), spec(text));
        }
    }

    #[test]
    fn the_role_is_participant_unless_said() {
        assert_eq!(spec("h:1:2").role, Role::Participant);
        assert_eq!(spec("a:1:2|b:3:4:observer").role, Role::Observer);
    }

    #[test]
    fn faulty_lines_name_the_faulty_part() {
        for (text, part) in [
            ("", "expected host:peerPort"),
            ("h", "expected host:peerPort"),
            ("h:1", "expected host:peerPort"),
            ("h:1:2:observer:x", "expected host:peerPort"),
            (":1:2", "host is empty"),
            ("h:0:2", "peer port `0`"),
            ("h:65536:2", "peer port `65536`"),
            ("h:1:x", "election port `x`"),
            ("h:1:1", "are both 1"),
            ("h:1:2:leader", "`leader` is neither"),
            ("h:1:2;x", "client port `x`"),
            ("h:1:2;0", "client port `0`"),
            ("h:1:2;a:b:3", "[clientHost:]clientPort"),
            ("h:1:2;1;2;3", "more than two"),
            ("[::1:1:2", "closing bracket"),
            ("[nonsense]:1:2", "not an IPv6 address"),
            ("a:1:2:observer|b:1:2:participant", "different roles"),
        ] {
            let reason = ServerSpec::parse(1, text).unwrap_err();
            assert!(reason.contains(part), "{text:?} gave {reason:?}");
        }
    }

    #[test]
    fn a_server_has_at_most_so_many_addresses() {
        let many = |count: usize| vec!["h:1:2"; count].join("|");
        assert!(ServerSpec::parse(1, &many(SERVER_ADDRESSES_MAX)).is_ok());
        assert!(ServerSpec::parse(1, &many(SERVER_ADDRESSES_MAX + 1)).is_err());
        assert!(ServerSpec::parse(1, &many(100_000)).is_err());
    }

    #[test]
    fn ids_are_0_to_254() {
        assert_eq!(server_id("0"), Ok(0));
        assert_eq!(server_id("254"), Ok(254));
        for text in ["255", "256", "-1", "+1", "x", "", "99999999999999999999"] {
            assert!(server_id(text).is_err(), "{text}");
        }
    }
}
