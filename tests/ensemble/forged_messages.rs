//! Messages that nobody sent who they say: a stranger speaks on the port for other servers, with a valid hello.

use std::time::Duration;

use lockkeeper::Ensemble;
use lockkeeper::internals::replica::PeerMessage;
use lockkeeper::internals::replica::bounds::TERM_STEP_MAX;
use lockkeeper::internals::replica::peer::{RaftMessage, RaftMessageType};
use testkit::{Client, wait_until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const MAGIC: &[u8; 8] = b"LKPEER01";
const INTRODUCTION: u8 = 0;
const MESSAGES: u8 = 1;
/// Version, server id and state in front of the ensemble's id in an answer.
const ENSEMBLE_AT: usize = 4;

fn frame(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    let crc = crc32c::crc32c(payload);
    [&length.to_be_bytes()[..], &crc.to_be_bytes(), payload].concat()
}

/// Connects to a server as another one: the connection, and the answer to the hello.
async fn greet(
    ensemble: &Ensemble,
    to: u8,
    from: u8,
    kind: u8,
    state: &[u8],
) -> (TcpStream, Vec<u8>) {
    let lines = ensemble.data_dir(to).unwrap().parent().unwrap().join("servers");
    let lines = std::fs::read_to_string(lines).unwrap();
    let line = lines.lines().find_map(|line| line.strip_prefix(&format!("server.{to}="))).unwrap();
    let port: u16 = line.split(':').nth(1).unwrap().parse().unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let hello = [&[0, 1, 0, 3, from, kind], state, &[0, 0, 0, 0]].concat();
    stream.write_all(&[MAGIC, &frame(&hello)[..]].concat()).await.unwrap();
    let mut head = [0; 16];
    stream.read_exact(&mut head).await.unwrap();
    let length = u32::from_be_bytes(*head[8..].first_chunk().unwrap());
    let mut answer = vec![0; length as usize];
    stream.read_exact(&mut answer).await.unwrap();
    (stream, answer)
}

/// What a server says of itself to another one: the ensemble's id, and its own raft id behind it.
async fn identity(ensemble: &Ensemble, of: u8, to: u8) -> Vec<u8> {
    let (_, answer) = greet(ensemble, of, to, INTRODUCTION, &[0; 10]).await;
    answer[ENSEMBLE_AT..ENSEMBLE_AT + 24].to_vec()
}

fn raft_id(identity: &[u8]) -> u64 {
    u64::from_be_bytes(*identity[16..].first_chunk().unwrap())
}

/// Sends a message from one server to another, which it names by their server ids. The link is kept.
async fn forge(ensemble: &Ensemble, mut message: RaftMessage) -> TcpStream {
    let (to, from) = (message.to as u8, message.from as u8);
    let (receiver, sender) =
        (identity(ensemble, to, from).await, identity(ensemble, from, to).await);
    (message.to, message.from) = (raft_id(&receiver), raft_id(&sender));
    let state = [&[1], &sender[..], &[0; 12]].concat();
    let (mut stream, answer) = greet(ensemble, to, from, MESSAGES, &state).await;
    assert_ne!(answer[..2], [0, 0], "the hello is accepted");
    let mut bytes = Vec::new();
    PeerMessage::Raft(Box::new(message)).encode(&mut bytes);
    stream.write_all(&frame(&bytes)).await.unwrap();
    stream
}

async fn is_cut(mut stream: TcpStream) -> bool {
    let ended = timeout(Duration::from_secs(5), stream.read(&mut [0])).await;
    matches!(ended, Ok(Ok(0) | Err(_)))
}

async fn goes_on(ensemble: &mut Ensemble, path: &str) {
    ensemble.wait_until_all_serve().await.unwrap();
    for id in 1..=3 {
        let server = ensemble.server(id).expect("it runs");
        assert!(server.status().term < 1000, "server {id} is in term {}", server.status().term);
        // A server that has just lost its leader serves on for a while, and may send a new client away.
        let mut client = Client::served(server.local_addr()).await;
        client.create(&format!("{path}-{id}"), b"", 0).await.unwrap();
    }
    wait_until("all servers have the same state", async || {
        let mut digests = ensemble.servers().map(|(_, server)| server.status().digest);
        let first = digests.next();
        digests.all(|digest| Some(digest) == first)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_heartbeats_change_nothing_and_a_restart_neither() {
    let mut ensemble = Ensemble::start(3).await.unwrap();
    for to in 1..=3 {
        let term = ensemble.server(to).unwrap().status().term;
        let heartbeat = |term, commit| {
            let (to, from) = (u64::from(to), u64::from(to % 3 + 1));
            let mut message = RaftMessage { to, from, term, commit, ..RaftMessage::default() };
            message.set_msg_type(RaftMessageType::MsgHeartbeat);
            message
        };
        let beyond = forge(&ensemble, heartbeat(term, 1_000_000)).await;
        assert!(is_cut(beyond).await, "a commit behind the log of server {to}");
        let huge = forge(&ensemble, heartbeat(3_000_000_000, 0)).await;
        assert!(is_cut(huge).await, "a term that cannot be, to server {to}");
        drop(forge(&ensemble, heartbeat(term + TERM_STEP_MAX + 1000, 0)).await);
    }
    goes_on(&mut ensemble, "/forged").await;
    for id in 1..=3 {
        ensemble.restart(id).await.unwrap();
        goes_on(&mut ensemble, &format!("/restarted-{id}")).await;
    }
    ensemble.shutdown().await.unwrap();
}
