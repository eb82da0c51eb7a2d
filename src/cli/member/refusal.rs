//! What a refusal means, and what an operator can do about it.
//!
//! *Owns* the words and exit codes for error codes. May ask the server once more, for what makes the
//! words exact.

use crate::cli::client::{Client, ClientError, WANTS_LOGIN, code_name};
use crate::cli::exit::{EXIT_NO_PERMISSION, EXIT_NOT_NOW, EXIT_REFUSED, EXIT_UNAVAILABLE};
use crate::cli::output::Failure;
use crate::config::{Membership, Role, ServerSpec};
use crate::proto::acl::perms;
use crate::proto::{Acl, ErrorCode, Request, Response, Text};
use crate::tree::path::CONFIG;

/// Outcome of a request that is no change of members.
pub(super) fn failed(error: ClientError) -> Failure {
    let (exit, why) = match error {
        ClientError::Unreachable(_) => (EXIT_UNAVAILABLE, "; --server host:port,... names others"),
        ClientError::Unproven { .. } => (EXIT_NO_PERMISSION, ""),
        ClientError::Lost { .. } => (EXIT_UNAVAILABLE, ""),
        ClientError::Refused { code, .. } => match ErrorCode::from_wire(code) {
            Some(ErrorCode::AuthFailed) => (
                EXIT_NO_PERMISSION,
                ": it does not know the scheme of --auth, or not these credentials",
            ),
            Some(ErrorCode::NoAuth) => {
                let why = "is not for everybody to read; --auth says who asks";
                return Failure::new(EXIT_NO_PERMISSION, format!("{error}: {CONFIG} {why}"));
            }
            Some(ErrorCode::SessionClosedRequireSaslAuth) => (EXIT_NO_PERMISSION, WANTS_LOGIN),
            Some(_) | None => (EXIT_REFUSED, ""),
        },
    };
    Failure::new(exit, format!("{error}{why}"))
}

/// A refusal of a change that would have led from `before` to `asked`.
pub(super) fn explain(
    code: i32,
    client: &Client,
    before: &Membership,
    asked: &[ServerSpec],
) -> Failure {
    let (exit, text) = match ErrorCode::from_wire(code) {
        Some(ErrorCode::ReconfigDisabled) => (
            EXIT_REFUSED,
            "the servers do not let their members be changed: while they follow an ensemble of ZooKeeper \
             (`lockkeeper migrate status`), wait until they have taken over; otherwise set reconfigEnabled=true in \
             the zoo.cfg of every server and restart them one by one"
                .to_string(),
        ),
        Some(ErrorCode::NoAuth) => (EXIT_NO_PERMISSION, who_may(client)),
        Some(ErrorCode::NewConfigNoQuorum) => (EXIT_NOT_NOW, no_quorum(before, asked)),
        Some(ErrorCode::ReconfigInProgress) => (
            EXIT_NOT_NOW,
            "an earlier change is not finished: a server that is to vote has not caught up, or \
             leadership is moving. Repeat the command"
                .to_string(),
        ),
        Some(ErrorCode::BadArguments) => (EXIT_REFUSED, bad_arguments(before, asked)),
        Some(ErrorCode::Unimplemented) => {
            (EXIT_REFUSED, "this server runs on its own: it has no members".to_string())
        }
        Some(_) | None => (EXIT_REFUSED, format!("the change is refused: {}", code_name(code))),
    };
    Failure::new(exit, text)
}

fn voters(servers: &[ServerSpec]) -> usize {
    servers.iter().filter(|spec| spec.role == Role::Participant).count()
}

/// Why no majority of those that would vote is up to date: servers that are new are not, however long they run.
fn no_quorum(before: &Membership, asked: &[ServerSpec]) -> String {
    let voters = voters(asked);
    let votes = |spec: &&ServerSpec| spec.role == Role::Participant;
    let voting: Vec<u8> = before.servers.iter().filter(votes).map(|spec| spec.id).collect();
    let staying = asked.iter().filter(votes).filter(|spec| voting.contains(&spec.id)).count();
    if staying <= voters / 2 {
        return format!(
            "of the {voters} servers that would vote, the leader hears no majority that is up to date: \
             only {staying} of them vote today. Add fewer at once, or add the new ones as observers first \
             (`lockkeeper member add 'server.N=...:observer'`), wait until they follow (`lockkeeper member list` \
             shows them), and repeat the command"
        );
    }
    let removes = before.servers.iter().any(|spec| asked.iter().all(|other| other.id != spec.id));
    let instead = if removes { ". Or remove one that is down instead" } else { "" };
    format!(
        "of the {voters} servers that would vote, the leader hears no majority that is up to date, or of those that \
         vote now (its log says which are missing): start those that are down (`lockkeeper member list` shows them), \
         wait until they have caught up, and repeat the command{instead}"
    )
}

fn bad_arguments(before: &Membership, asked: &[ServerSpec]) -> String {
    match (voters(&before.servers), voters(asked)) {
        (_, 0) => "no server would vote: leave at least two participants. An ensemble that is not needed any more is \
                   just stopped"
            .to_string(),
        (2.., 1) => "a single server would vote: an ensemble keeps at least two. Add another one first \
                     (`lockkeeper member add`)"
            .to_string(),
        _ => "two servers would claim the same host and port, or a line is malformed, says 0.0.0.0 where the other \
              servers are to connect, or several addresses where multiAddress.enabled=false"
            .to_string(),
    }
}

/// Who has the permission that is missing.
fn who_may(client: &Client) -> String {
    let path = Text::from_static(CONFIG);
    let acl = match client.call(&Request::GetAcl { path }) {
        Ok(Response::Acl(acl, _)) => acl,
        // Who may not even see it is told the least.
        Ok(_) | Err(_) => Vec::new(),
    };
    let writers: Vec<String> = acl
        .iter()
        .filter(|entry| entry.perms & perms::WRITE != 0)
        .map(|Acl { scheme, id, .. }| {
            // A digest's second half would help only somebody who guesses passwords.
            let user = id.as_str().split(':').next().unwrap_or_default();
            let id = if scheme.as_str() == "digest" { user } else { id.as_str() };
            format!("{scheme}:{id}")
        })
        .collect();
    let others = match writers.as_slice() {
        [] => "only the super user has it".to_string(),
        some => format!("these have it, and the super user: {}", some.join(", ")),
    };
    format!(
        "that needs the permission to write {CONFIG}, and {others}. Say who you are, for example \
         --auth digest:super:PASSWORD (DigestAuthenticationProvider.superDigest in every zoo.cfg)"
    )
}
