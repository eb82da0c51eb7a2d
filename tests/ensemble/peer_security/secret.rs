//! An ensemble whose servers prove to each other that they share a secret: what that keeps out, and how a running
//! ensemble turns it on and changes it.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use testkit::process::{output, stderr};
use testkit::rng::Rng;
use testkit::three::{CLIENT_PORT, PEER_PORT, Three};
use testkit::{Client, fresh};

const SECURED: &str = "lockkeeper.peerSecretFile=SECRET\n";
const TRANSITION: &str = "lockkeeper.peerSecretFile=SECRET\nlockkeeper.peerSecurity=transition\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_running_ensemble_turns_the_secret_on_and_changes_it_without_losing_a_session() {
    let mut three = Three::with_secret();
    for id in 1..=3 {
        three.start(id, "").await;
    }
    three.serve(&[1, 2, 3]).await;
    let mut client = Client::open(three.address(1, CLIENT_PORT), &fresh(10_000)).await.unwrap();
    client.create("/held", b"", 1).await.unwrap();
    // A server in transition among plain ones, then among secured ones.
    for keys in [TRANSITION, SECURED] {
        for id in 1..=3 {
            let other = three.address(id % 3 + 1, CLIENT_PORT);
            client = Client::open(other, &client.again()).await.unwrap();
            three.start(id, keys).await;
            three.serve(&[1, 2, 3]).await;
            client.ping().await;
        }
    }
    // A new secret in front, at one server after the other; a restart makes new links.
    for id in 1..=3 {
        let added = output(three.path(), &["peer-secret", "--add", &format!("secret{id}")]);
        assert!(added.status.success(), "{}", stderr(&added));
    }
    // Each made one of its own: all accept all.
    let secrets: Vec<String> =
        (1..=3).map(|id| fs::read_to_string(three.file("secret", id)).unwrap()).collect();
    let old = secrets[0].lines().last().unwrap().to_owned();
    let new = secrets[0].lines().next().unwrap().to_owned();
    let restart_and_look = async |three: &mut Three, mut client: Client, id: u8| {
        let other = three.address(id % 3 + 1, CLIENT_PORT);
        client = Client::open(other, &client.again()).await.unwrap();
        three.start(id, SECURED).await;
        three.serve(&[1, 2, 3]).await;
        client
    };
    client = restart_and_look(&mut three, client, 1).await;
    for id in 1..=3 {
        fs::write(three.file("secret", id), format!("{new}\n{old}\n")).unwrap();
    }
    client = restart_and_look(&mut three, client, 2).await;
    for id in 1..=3 {
        fs::write(three.file("secret", id), format!("{new}\n")).unwrap();
    }
    client = restart_and_look(&mut three, client, 3).await;
    assert!(client.exists("/held").await, "the session lasted");
    for id in 1..=3 {
        let log = three.log(id);
        for secret in [&new, &old] {
            assert!(!log.contains(&secret[..20]), "no secret is in a log");
        }
        assert!(log.contains("lockkeeper.peerSecurity is transition"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_another_secret_or_with_none_gets_no_link_and_is_told_why() {
    let mut three = Three::with_secret();
    let made = output(three.path(), &["peer-secret", "other"]);
    assert!(made.status.success());
    fs::copy(three.path().join("other"), three.file("secret", 3)).unwrap();
    for id in 1..=2 {
        three.start(id, SECURED).await;
    }
    three.found_without(1, 3).await;
    three.serve(&[1, 2]).await;
    three.start(3, SECURED).await;
    three.says(3, "has none of the secrets of server").await;
    three.says(1, "server 3 has none of the secrets of server 1").await;
    assert_eq!(three.mode(3).await, "", "it serves no client");
    three.start(3, "").await;
    three.says(3, "takes links alone that prove the secret").await;
    three.says(1, "and server 3 has none").await;
    three
        .says(1, "demands the secret of its lockkeeper.peerSecretFile, and server 3 has none")
        .await;
    assert_eq!(three.mode(3).await, "", "it serves no client");
    assert!(three.log(1).lines().count() < 100, "{}", three.log(1));
    // The right one, without a restart of the others.
    fs::copy(three.file("secret", 1), three.file("secret", 3)).unwrap();
    three.start(3, SECURED).await;
    three.serve(&[1, 2, 3]).await;
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    let crc = crc32c::crc32c(payload);
    [&length.to_be_bytes()[..], &crc.to_be_bytes(), payload].concat()
}

/// What a server without data says to introduce itself, as server `from`, for a connection of `kind`.
fn hello(from: u8, kind: u8, state: &[u8], offer: &[u8]) -> Vec<u8> {
    // Versions, then state, no words, nothing brought, no lines, no term, no addresses.
    let second = [0; 1 + 4 + 8 + 4];
    [&[0, 1, 0, 2, from, kind], state, &[0; 4], &second, offer].concat()
}

/// Sends these bytes, and reads what comes back; `None` if the connection is refused.
pub async fn exchange(address: SocketAddr, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    // A server may close before it has read all of it.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let _ = timeout(Duration::from_secs(5), stream.take(1 << 20).read_to_end(&mut answer)).await;
    Some(answer)
}

/// Sends `count` hellos with frames behind them, most of them changed, in the name of server 2 to server 1.
pub async fn attack(three: &Three, count: usize) -> usize {
    let target = three.address(1, PEER_PORT);
    let mut random = Rng::new(11, 0);
    let plain = [&b"LKPEER01"[..], &frame(&hello(2, 0, &[0; 10], &[]))].concat();
    let answer = exchange(target, &plain).await.expect("it listens");
    // The ensemble and a raft id, if it says them: then the hello is as good as a member's.
    let mut state = [1; 24];
    if answer.len() >= 44 && answer[19] == 1 {
        state[..16].copy_from_slice(&answer[20..36]);
    }
    state[16..].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 2]);
    let founded = [&[1], &state[..], &[0; 12]].concat();
    let mut answered = 0;
    for round in 0..count {
        let kind = u8::try_from(round % 5).unwrap();
        let mut offer = Vec::new();
        if round % 3 == 0 {
            offer = [&[1 + u8::try_from(round % 2).unwrap()][..], &[7; 32], &[0, 0, 0, 1], &[9; 8]]
                .concat();
        }
        let from = u8::try_from(2 + random.below(3)).unwrap();
        let mut said = hello(from, kind, &founded, &offer);
        if round % 4 != 0 {
            let at = random.index(said.len());
            said[at] ^= 1 << random.below(8);
        }
        let mut behind: Vec<u8> =
            (0..random.below(60)).map(|_| random.next().to_le_bytes()[0]).collect();
        if let Some(first) = behind.first_mut() {
            *first %= 9;
        }
        let mut bytes = [&b"LKPEER01"[..], &frame(&said), &frame(&behind)].concat();
        if round % 7 == 0 {
            let at = random.index(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        let answer = exchange(target, &bytes).await.expect("it listens");
        // A version other than 0 is that of an accepted hello.
        answered += usize::from(answer.starts_with(b"LKPEER01") && answer[16..18] != [0, 0]);
    }
    answered
}

/// Whether an attack, which does the same each time, causes an election: each time, then. A leader that a busy machine
/// has keep silent for too long causes one now and then.
pub(super) async fn causes_elections(three: &Three, attack: impl AsyncFn()) -> bool {
    for _ in 0..3 {
        let before = three.metric(1, "lockkeeper_raft_term").await;
        attack().await;
        if three.metric(1, "lockkeeper_raft_term").await == before {
            return false;
        }
    }
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_changed_hellos_get_through_to_nothing_where_there_is_a_secret() {
    let mut three = Three::with_secret();
    for id in 1..=3 {
        three.start(id, SECURED).await;
    }
    three.serve(&[1, 2, 3]).await;
    let elects = causes_elections(&three, async || {
        let before = three.log(1).lines().count();
        assert_eq!(attack(&three, 10_000).await, 0, "a hello was accepted");
        let lines = three.log(1).lines().count() - before;
        assert!(lines < 400, "{lines} lines");
    });
    assert!(!elects.await, "an election was caused");
    three.serve(&[1, 2, 3]).await;
    for id in 1..=3 {
        three.stop(id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_changed_hellos_neither_end_a_plain_server_nor_fill_its_log() {
    let mut three = Three::with_secret();
    for id in 1..=3 {
        three.start(id, "").await;
    }
    three.serve(&[1, 2, 3]).await;
    let before = (three.log(1).lines().count(), three.metric(1, "lockkeeper_raft_term").await);
    assert!(attack(&three, 10_000).await > 0, "none was a valid hello");
    let lines = three.log(1).lines().count() - before.0;
    assert!(lines < 2000, "{lines} lines");
    three.serve(&[1, 2, 3]).await;
    assert!(three.metric(1, "lockkeeper_raft_term").await < before.1 + 100, "the term jumped");
    for id in 1..=3 {
        assert!(!three.log(id).contains("panic"), "{}", three.log(id));
        three.stop(id);
    }
}
