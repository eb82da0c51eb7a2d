//! What servers tell each other of locks and sessions, when an operator asks one of them.
//!
//! *Owns* the question and its answer: a connection of its own for each, so that nothing else between
//! the servers waits for it. *Invariants*: a server whose version does not know the question is not
//! asked; who has not answered in time is said to have not; a question takes no more of the other
//! server's time than one of its own operators could.
//!
//! ```text
//! question  frame: scope u8 (1 locks, 2 sessions) | prefix: string
//! answer    frame: is_cut u8 | count, each: session u64, expires in ms u64, is connected u8, remote: string,
//!           heard ms u64, watches u64 | count, each: session u64, kind u8, path: string
//! ```

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::connect::reach;
use super::frame::{self, Secured, invalid};
use super::hello::{Kind, LOCKS_SINCE};
use super::peers::Peers;
use crate::admin::GATHER_MAX;
use crate::locks::snapshot::{Connection, SESSIONS_MAX, Standing, WATCHES_MAX, Watch, WatchKind};
use crate::locks::{Local, Scope};
use crate::proto::jute::wire_len;
use crate::proto::{Malformed, Reader, Writer};
use crate::replica::{Inspect, Report};
use crate::server::mailbox::inspect;
use crate::supervision::{Task, TaskSet};

/// Longest question, bytes.
const QUESTION_BYTES_MAX: usize = 1 << 20;
/// Longest answer, bytes: what is longer is cut.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// How long one who has connected may take to ask, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks all other servers; see [`GATHER_MAX`]. In order of their ids.
pub(crate) async fn gather(peers: &Arc<Peers>, scope: Scope) -> Vec<(u64, Option<Local>)> {
    let mut asked = TaskSet::default();
    for server in peers.others() {
        let (peers, scope) = (Arc::clone(peers), scope.clone());
        asked.spawn(Task::Question, async move {
            let answer = timeout(GATHER_MAX, ask(&peers, server, &scope)).await;
            (u64::from(server), answer.unwrap_or(None))
        });
    }
    let mut answers = Vec::new();
    while let Some(ended) = asked.join_next().await {
        // One that has panicked ends the server.
        answers.extend(ended.ok());
    }
    answers.sort_by_key(|(server, _)| *server);
    answers
}

async fn ask(peers: &Peers, server: u8, scope: &Scope) -> Option<Local> {
    if peers.is_barred(server) || peers.version(server) < LOCKS_SINCE {
        return None;
    }
    let (mut secured, _) = reach(peers, server, Kind::Locks).await?;
    match exchange(&mut secured, scope).await {
        Ok(local) => Some(local),
        Err(error) => {
            tracing::debug!(server, %error, "it does not say what it knows of locks");
            None
        }
    }
}

async fn exchange(secured: &mut Secured, scope: &Scope) -> io::Result<Local> {
    frame::send(secured, |out| encode_scope(scope, out)).await?;
    decode_local(frame::take(secured, ANSWER_BYTES_MAX).await?).map_err(invalid)
}

/// Answers the question of a server that has connected for that.
pub(super) async fn serve(peers: &Peers, mut secured: Secured) {
    if let Err(error) = answer(peers, &mut secured).await {
        tracing::debug!(%error, "a question for locks was not answered");
    }
}

async fn answer(peers: &Peers, secured: &mut Secured) -> io::Result<()> {
    let question = timeout(PATIENCE, frame::take(secured, QUESTION_BYTES_MAX)).await??;
    let what = Inspect::Locks(decode_scope(question).map_err(invalid)?);
    let ask = async {
        let _turn = peers.questions.lock().await;
        inspect(&peers.driver, what).await
    };
    let report = timeout(PATIENCE, ask).await?;
    let report = report.ok_or_else(|| io::Error::other("this server is stopping"))?;
    let Report::Locks(snapshot) = report else {
        return Err(io::Error::other("the replica answered another question"));
    };
    timeout(PATIENCE, frame::send(secured, |out| encode_local(&snapshot.local, out))).await?
}

fn encode_scope(scope: &Scope, out: &mut Vec<u8>) {
    match scope {
        Scope::Locks { prefix } => {
            out.push(1);
            out.put_string(prefix);
        }
        Scope::Sessions => {
            out.push(2);
            out.put_string("");
        }
    }
}

fn decode_scope(payload: Bytes) -> Result<Scope, Malformed> {
    let mut reader = Reader::new(payload);
    let scope = reader.byte("scope")?;
    let prefix = reader.string("prefix")?.as_str().to_owned();
    match scope {
        1 => Ok(Scope::Locks { prefix }),
        2 => Ok(Scope::Sessions),
        _ => Err(Malformed::new("scope", "is not known")),
    }
}

fn encode_local(local: &Local, out: &mut Vec<u8>) {
    let start = out.len();
    out.push(u8::from(local.is_cut));
    out.put_int(wire_len(local.sessions.len()));
    for Standing { id, connection, expires_in_ms } in &local.sessions {
        out.put_long(*id);
        put_number(expires_in_ms.unwrap_or(NEVER), out);
        out.put_bool(connection.is_some());
        if let Some(Connection { remote, heard_ms, watches }) = connection {
            out.put_string(remote);
            put_number(*heard_ms, out);
            put_number(*watches, out);
        }
    }
    let counted = out.len();
    out.put_int(wire_len(local.watches.len()));
    for Watch { session, path, kind } in &local.watches {
        out.put_long(*session);
        out.push(*kind as u8);
        out.put_string(path);
    }
    if out.len() - start > ANSWER_BYTES_MAX {
        out.truncate(counted);
        out.put_int(0);
        out[start] = 1;
    }
}

fn decode_local(payload: Bytes) -> Result<Local, Malformed> {
    let mut reader = Reader::new(payload);
    let is_cut = reader.byte("is_cut")? != 0;
    let mut local = Local { is_cut, ..Local::default() };
    for _ in 0..reader.count_of("sessions", SESSION_BYTES_MIN, SESSIONS_MAX)? {
        let id = reader.long("session")?;
        let expires_in_ms = Some(number(&mut reader)?).filter(|ms| *ms != NEVER);
        let connection = match reader.byte("is connected")? {
            0 => None,
            _ => Some(Connection {
                remote: reader.string("remote")?.as_str().to_owned(),
                heard_ms: number(&mut reader)?,
                watches: number(&mut reader)?,
            }),
        };
        local.sessions.push(Standing { id, connection, expires_in_ms });
    }
    for _ in 0..reader.count_of("watches", WATCH_BYTES_MIN, WATCHES_MAX)? {
        let session = reader.long("session")?;
        let kind = usize::from(reader.byte("kind")?);
        let kind = WatchKind::ALL.get(kind).copied();
        let kind = kind.ok_or(Malformed::new("kind", "is not known"))?;
        let path = reader.string("path")?.as_str().to_owned();
        local.watches.push(Watch { session, path, kind });
    }
    Ok(local)
}

fn put_number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn number(reader: &mut Reader) -> Result<u64, Malformed> {
    Ok(reader.long("number")?.cast_unsigned())
}

/// In place of a deadline that is not known.
const NEVER: u64 = u64::MAX;
const SESSION_BYTES_MIN: usize = 8 + 8 + 1;
const WATCH_BYTES_MIN: usize = 8 + 1 + 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn local() -> Local {
        let connection =
            Connection { remote: "10.0.0.1:5".to_owned(), heard_ms: 7, watches: u64::MAX };
        let standing = |id, connection, expires_in_ms| Standing { id, connection, expires_in_ms };
        let watch = |kind| Watch { session: -1, path: "/p/lock-0000000001".to_owned(), kind };
        Local {
            sessions: vec![
                standing(1, Some(connection), None),
                standing(i64::MIN, None, Some(4_000)),
            ],
            watches: WatchKind::ALL.map(watch).to_vec(),
            is_cut: false,
        }
    }

    #[test]
    fn questions_and_answers_come_back_as_they_were_and_cut_ones_are_malformed() {
        for scope in [Scope::Locks { prefix: "/a".to_owned() }, Scope::Sessions] {
            let mut bytes = Vec::new();
            encode_scope(&scope, &mut bytes);
            for at in 0..bytes.len() {
                assert!(decode_scope(Bytes::copy_from_slice(&bytes[..at])).is_err(), "{at}");
            }
            assert_eq!(decode_scope(bytes.into()), Ok(scope));
        }
        for local in [local(), Local { is_cut: true, ..Local::default() }] {
            let mut bytes = Vec::new();
            encode_local(&local, &mut bytes);
            for at in 0..bytes.len() {
                assert!(decode_local(Bytes::copy_from_slice(&bytes[..at])).is_err(), "{at}");
            }
            assert_eq!(decode_local(bytes.into()), Ok(local));
        }
    }

    #[test]
    fn an_answer_that_would_be_too_long_loses_its_watches() {
        let mut long = local();
        let path = "/".repeat(ANSWER_BYTES_MAX / 3);
        for watch in &mut long.watches {
            watch.path.clone_from(&path);
        }
        let mut bytes = Vec::new();
        encode_local(&long, &mut bytes);
        let expected = Local { watches: Vec::new(), is_cut: true, ..local() };
        assert_eq!(decode_local(bytes.into()), Ok(expected));
    }
}
