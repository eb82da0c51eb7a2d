//! The ensemble of ZooKeeper that is to be followed: where it is, and as which of its servers.
//!
//! *Owns* the flags that name it, and what is read of it before. *Invariant*: an address counts once, however often it
//! is named. *Never* changes anything there but for a session that it opens and closes.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::cli::addresses;
use crate::cli::client::Client;
use crate::cli::client_configuration::ClientConfiguration;
use crate::cli::credential::Credential;
use crate::cli::exit::EXIT_UNAVAILABLE;
use crate::cli::flags::Access;
use crate::cli::output::Failure;
use crate::config::{HostPort, Membership};
use crate::proto::request::Request;
use crate::proto::{Response, Text};
use crate::tree::path::CONFIG;

/// The id of a server of ZooKeeper that this ensemble takes, unless it is taken.
const SERVER_ID_LIKELY: u8 = 200;
/// How long an answer of ZooKeeper may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Place of ZooKeeper, and the id as which this ensemble joins it.
#[derive(Debug, Args)]
pub(crate) struct WhereFlags {
    /// Where ZooKeeper's clients connect to it
    #[arg(long, value_name = "HOST:PORT,...")]
    pub(super) from: String,
    /// ZooKeeper's quorum ports (the first one of its server lines) [default: as /zookeeper/config says]
    #[arg(long, value_name = "HOST:PORT,...")]
    pub(super) quorum: Option<String>,
    /// The id as which this ensemble joins: 1 to 253, of no server of ZooKeeper [default: 200, or the next free one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=253))]
    pub(super) server_id: Option<u8>,
    /// Identity that may read ZooKeeper's configuration, if not everybody may: for example digest:super:password
    #[arg(long, value_name = "SCHEME:CREDENTIAL")]
    pub(super) auth: Vec<Credential>,
}

/// The ensemble that is to be followed.
#[derive(Debug)]
pub(super) struct ZooKeeper {
    /// Addresses at which clients connect to it.
    pub(super) clients: Vec<HostPort>,
    /// Addresses at which its servers listen for each other, `host:port`.
    pub(super) quorum: Vec<String>,
    /// Its servers, where they are known.
    pub(super) members: Membership,
    /// The id as which this ensemble joins.
    pub(super) server_id: u8,
}

/// Reads the flags, and what ZooKeeper itself says.
pub(super) fn zookeeper(flags: &WhereFlags) -> Result<ZooKeeper, Failure> {
    let mut clients: Vec<HostPort> = Vec::new();
    let named = addresses::servers(&flags.from);
    for server in named.map_err(|why| Failure::usage(format!("--from: {why}")))? {
        if !clients.contains(&server) {
            clients.push(server);
        }
    }
    let members = Client::connect(&access_of(flags, clients.clone()))
        .map_err(|error| error.to_string())
        .and_then(|client| {
            let text = configuration(&client);
            client.close();
            members(&text?)
        });
    let quorum: Vec<String> = match (&flags.quorum, &members) {
        (Some(quorum), _) => quorum.split(',').map(|at| at.trim().to_owned()).collect(),
        (None, Ok(members)) => {
            let addresses = members.servers.iter().flat_map(|spec| &spec.addresses);
            addresses.map(|address| format!("{}:{}", address.host, address.peer_port)).collect()
        }
        (None, Err(why)) => return Err(Failure::new(EXIT_UNAVAILABLE, why.clone())),
    };
    let members = members.unwrap_or_default();
    let taken = |id: u8| members.servers.iter().any(|spec| spec.id == id);
    let server_id = match flags.server_id {
        Some(id) if taken(id) => {
            return Err(Failure::usage(format!(
                "--server-id {id}: this is a server of ZooKeeper's"
            )));
        }
        Some(id) => id,
        None => (SERVER_ID_LIKELY..=253).find(|id| !taken(*id)).unwrap_or(SERVER_ID_LIKELY),
    };
    Ok(ZooKeeper { clients, quorum, members, server_id })
}

/// Way in which these servers of ZooKeeper are asked.
pub(super) fn access_of(flags: &WhereFlags, servers: Vec<HostPort>) -> Access {
    Access {
        servers,
        root: String::new(),
        credentials: flags.auth.clone(),
        configuration: ClientConfiguration::default(),
        patience: Duration::ZERO,
        answer_max: ANSWER_MAX,
    }
}

/// Advice where the servers of ZooKeeper cannot be read.
const QUORUM_HINT: &str = "say with --quorum where ZooKeeper's servers listen for each other";

/// The text of `/zookeeper/config`, as a server of ZooKeeper says it.
pub(super) fn configuration(client: &Client) -> Result<String, String> {
    let request = Request::GetData { path: Text::from_static(CONFIG), watch: false };
    match client.call(&request) {
        Ok(Response::Data(data, _)) => {
            Ok(String::from_utf8_lossy(&data.unwrap_or_default()).into_owned())
        }
        Ok(_) => Err(format!("{CONFIG} of ZooKeeper: an odd answer; {QUORUM_HINT}")),
        Err(error) => Err(format!("{CONFIG} of ZooKeeper: {error}; {QUORUM_HINT}")),
    }
}

/// The servers of ZooKeeper in that text.
fn members(text: &str) -> Result<Membership, String> {
    let members = Membership::parse(text)
        .map_err(|reason| format!("{CONFIG} of ZooKeeper: {reason}; {QUORUM_HINT}"))?;
    if members.servers.is_empty() {
        return Err(format!("{CONFIG} of ZooKeeper names no server; {QUORUM_HINT}"));
    }
    Ok(members)
}

/// The JSON of a server's answer.
///
/// # Errors
/// The words of an answer that is none.
pub(super) fn parsed((status, body): (u16, String)) -> Result<Value, String> {
    match (status, serde_json::from_str(&body)) {
        (200, Ok(json)) => Ok(json),
        (404, _) => Err("the server does not know /migration: it is an older one".to_owned()),
        (_, _) => Err(body.trim().to_owned()),
    }
}
