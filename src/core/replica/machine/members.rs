//! The text that names the members of the ensemble, as `/zookeeper/config` holds it.
//!
//! *Owns* its two directions and what reconfig does to it. *Invariants*: one line for each server in
//! the order of ids, then `version=` and the zxid in hex, no line feed at the end; the same request
//! on the same text gives the same outcome on every server. *Never* knows who is connected or who
//! votes: see `steps/membership.rs`.
//!
//! Reproduces `QuorumMaj` and the checks of `PrepRequestProcessor` for reconfig.

use std::collections::BTreeMap;

use crate::config::{Role, ServerSpec};
use crate::proto::{ErrorCode, Text};

/// The servers of an ensemble by id.
pub(in crate::replica) type Members = BTreeMap<u8, ServerSpec>;

/// What a client's reconfig asks for.
#[derive(Clone, Copy, Debug)]
pub(in crate::replica) struct Asked<'a> {
    /// Lines of servers that come or change, separated by commas.
    pub(in crate::replica) joining: Option<&'a Text>,
    /// Ids of servers that go, separated by commas.
    pub(in crate::replica) leaving: Option<&'a Text>,
    /// Instead of both: all lines.
    pub(in crate::replica) members: Option<&'a Text>,
}

/// Reads a text; what is not a server's line is passed over.
pub(in crate::replica) fn parse(text: &str) -> Members {
    text.lines().filter_map(|line| server_line(line).ok()).map(|spec| (spec.id, spec)).collect()
}

/// The text of some servers at a version.
pub(in crate::replica) fn text(members: &Members, version: i64) -> String {
    format!("{}version={version:x}", lines(members.values()))
}

/// The lines of servers, each with its line feed.
pub(in crate::replica) fn lines<'a>(members: impl IntoIterator<Item = &'a ServerSpec>) -> String {
    members.into_iter().map(|spec| format!("server.{}={spec}\n", spec.id)).collect()
}

/// The version that a text says; 0 if it says none.
pub(in crate::replica) fn version(text: &str) -> i64 {
    let hex = text.lines().find_map(|line| line.strip_prefix("version="));
    hex.and_then(|hex| i64::from_str_radix(hex, 16).ok()).unwrap_or(0)
}

/// Number of members that vote.
pub(in crate::replica) fn participants(members: &Members) -> usize {
    members.values().filter(|spec| spec.role == Role::Participant).count()
}

/// The members that a request leads to.
///
/// # Errors
/// BadArguments: a line is malformed, lacks its client port, or clashes with another server's.
/// Unimplemented: the id is one that ZooKeeper takes, but above the largest here.
/// Marshalling: the id of a leaving server is no number.
pub(in crate::replica) fn change(
    current: &Members,
    asked: Asked<'_>,
) -> Result<Members, ErrorCode> {
    let changed = match asked.members {
        Some(all) => {
            let mut members = Members::new();
            for line in all.as_str().split([',', '\n']).filter(|line| !line.trim().is_empty()) {
                if line.trim().starts_with("version=") {
                    continue;
                }
                let spec = server_line(line)?;
                members.insert(spec.id, spec);
            }
            members
        }
        None => {
            let mut members = current.clone();
            if let Some(leaving) = asked.leaving {
                for id in leaving.as_str().split(',').filter(|id| !id.trim().is_empty()) {
                    let id: i64 = id.trim().parse().map_err(|_| ErrorCode::Marshalling)?;
                    // One that is not there is no fault.
                    if let Ok(id) = u8::try_from(id) {
                        members.remove(&id);
                    }
                }
            }
            if let Some(joining) = asked.joining {
                for line in joining.as_str().split(',').filter(|line| !line.trim().is_empty()) {
                    let spec = server_line(line)?;
                    if spec.client.is_none() && spec.secure_client.is_none() {
                        return Err(ErrorCode::BadArguments);
                    }
                    members.insert(spec.id, spec);
                }
            }
            members
        }
    };
    if clash(&changed) { Err(ErrorCode::BadArguments) } else { Ok(changed) }
}

/// Whether two servers claim one address. Loopback and wildcard addresses are exempt, as in
/// ZooKeeper: with them, several servers share a machine.
fn clash(members: &Members) -> bool {
    let mut taken = std::collections::BTreeSet::new();
    for spec in members.values() {
        for address in &spec.addresses {
            let host = address.host.as_str();
            let exempt = host == "localhost"
                || host
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified());
            if !exempt
                && [address.peer_port, address.election_port]
                    .into_iter()
                    .any(|port| !taken.insert((host.to_owned(), port)))
            {
                return true;
            }
        }
    }
    false
}

/// `server.N=...`
fn server_line(line: &str) -> Result<ServerSpec, ErrorCode> {
    let (key, value) = line.trim().split_once('=').ok_or(ErrorCode::BadArguments)?;
    let id = key.trim().strip_prefix("server.").and_then(|id| id.parse().ok());
    let id: i64 = id.filter(|id| *id >= 0).ok_or(ErrorCode::BadArguments)?;
    let is_possible = |id: &u8| *id <= crate::config::SERVER_ID_MAX;
    let id = u8::try_from(id).ok().filter(is_possible).ok_or(ErrorCode::Unimplemented)?;
    ServerSpec::parse(id, value.trim()).map_err(|_| ErrorCode::BadArguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &str = "server.1=a:1:2:participant;0.0.0.0:9\nserver.2=b:1:2:participant;0.0.0.0:9\n\
                         server.3=c:1:2:observer;0.0.0.0:9\nversion=100000001";

    fn asked<'a>(
        joining: Option<&'a Text>,
        leaving: Option<&'a Text>,
        members: Option<&'a Text>,
    ) -> Asked<'a> {
        Asked { joining, leaving, members }
    }

    #[test]
    fn a_text_reads_back_as_itself() {
        let members = parse(THREE);
        assert_eq!(text(&members, version(THREE)), THREE);
        assert_eq!((members.len(), participants(&members)), (3, 2));
    }

    #[test]
    fn servers_join_change_and_leave() {
        let (joining, leaving) = ("server.4=d:1:2;9,server.3=c:1:2;9".into(), "2,77".into());
        let changed = change(&parse(THREE), asked(Some(&joining), Some(&leaving), None)).unwrap();
        assert_eq!(changed.keys().copied().collect::<Vec<_>>(), [1, 3, 4]);
        assert_eq!(changed[&3].role, Role::Participant);
    }

    #[test]
    fn a_full_replacement_forgets_the_rest() {
        let all = "server.7=x:1:2:participant\nserver.8=y:1:2;3\nversion=5".into();
        let changed = change(&parse(THREE), asked(None, None, Some(&all))).unwrap();
        assert_eq!(changed.keys().copied().collect::<Vec<_>>(), [7, 8]);
    }

    #[test]
    fn each_fault_has_its_error() {
        let bad = |joining: &str| {
            let joining = joining.into();
            change(&parse(THREE), asked(Some(&joining), None, None)).unwrap_err()
        };
        assert_eq!(bad("nonsense"), ErrorCode::BadArguments);
        assert_eq!(bad("server.4=d:1:2"), ErrorCode::BadArguments, "no client port");
        assert_eq!(bad("server.4=d:1;9"), ErrorCode::BadArguments, "no election port");
        assert_eq!(bad("server.-1=d:1:2;9"), ErrorCode::BadArguments);
        assert_eq!(bad("server.255=d:1:2;9"), ErrorCode::Unimplemented);
        assert_eq!(bad("server.4=a:1:2;9"), ErrorCode::BadArguments, "server 1 is there");
        let leaving = "x".into();
        let gone = change(&parse(THREE), asked(None, Some(&leaving), None));
        assert_eq!(gone, Err(ErrorCode::Marshalling));
    }

    #[test]
    fn servers_of_one_machine_do_not_clash() {
        let joining = "server.4=127.0.0.1:5:6;9,server.5=127.0.0.1:5:6;9".into();
        assert!(change(&parse(THREE), asked(Some(&joining), None, None)).is_ok());
    }
}
