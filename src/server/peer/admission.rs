//! Whether another server proves that it has the secret, from both ends of a connection.
//!
//! *Owns* the order of what is said around a hello (`peer_auth` owns what it proves), and the words of a refusal.
//! *Invariants*: where a secret is demanded, nothing that the other side says is acted upon before its proof; a
//! refusal tells a stranger nothing of this server but that, and what it looks for. *Never* decides who is a member.
//!
//! ```text
//! challenge  "LKPEERS1" | frame: peer_auth's    in place of an answer
//! proof      frame: peer_auth's
//! answer     as to any hello, its frame with a tag
//! ```

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::frame::{self, invalid};
use super::hello::{Answer, HELLO_BYTES_MAX, HELLO_MAX, Hello, MAGIC, Offer};
use super::peers::Peers;
use super::security;
use crate::peer_auth::{
    Accepting, CHALLENGE_BYTES, Connecting, Nonce, PROOF_BYTES, Seals, Secrets, TAG_BYTES,
};
use crate::replica::founding::Introduction;
use crate::server::transport::Stream;

const CHALLENGE_MAGIC: &[u8; 8] = b"LKPEERS1";

/// Says hello to the server `server` and waits for its answer, which comes with what seals the connection from then on.
///
/// # Errors
/// The connection broke, the other side is no server of this kind, or it does not prove what it must.
pub(super) async fn say(
    peers: &Peers,
    stream: &mut Stream,
    server: u8,
    hello: &mut Hello,
) -> io::Result<(Answer, Seals)> {
    let secrets = peers.security.secrets();
    let (secrets, demands) = (secrets.as_deref(), peers.security.demands());
    let nonce = security::nonce()?;
    hello.offer =
        secrets.map(|secrets| Offer { is_demanded: demands, nonce, ids: secrets.ids(&nonce) });
    let payload = hello.payload();
    send(stream, MAGIC, &payload).await?;
    timeout(HELLO_MAX, hear_answer(stream, (secrets, demands), (server, nonce, &payload))).await?
}

async fn hear_answer(
    stream: &mut Stream,
    (secrets, demands): (Option<&Secrets>, bool),
    (server, nonce, hello): (u8, Nonce, &[u8]),
) -> io::Result<(Answer, Seals)> {
    let magic = receive_magic(stream).await?;
    let mut seals = Seals::default();
    let answer = match (&magic, secrets) {
        (CHALLENGE_MAGIC, Some(secrets)) => {
            let challenge = receive_frame(stream, CHALLENGE_BYTES).await?;
            let connecting = Connecting { secrets, server, nonce, hello };
            let (proof, made) = connecting.answer(&challenge).map_err(invalid)?;
            seals = made;
            let mut bytes = Vec::new();
            frame::append(&mut bytes, |out| out.extend_from_slice(&proof));
            write(stream, &bytes).await?;
            if receive_magic(stream).await? != *MAGIC {
                return Err(invalid(NO_SERVER));
            }
            let sealed = receive_frame(stream, HELLO_BYTES_MAX + TAG_BYTES).await?;
            frame::opened(sealed, seals.receive.as_mut()).map_err(invalid)?
        }
        (MAGIC, _) => receive_frame(stream, HELLO_BYTES_MAX).await?,
        _ => return Err(invalid(NO_SERVER)),
    };
    let answer = Answer::decode(answer)
        .map_err(|error| invalid(format!("its hello is malformed: {error}")))?;
    if demands && seals.receive.is_none() {
        // Words of one that proved nothing: they are shown, and nothing follows from them.
        let said =
            answer.verdict.err().map_or_else(String::new, |words| format!(". It says: {words}"));
        return Err(invalid(format!(
            "it did not prove the secret of lockkeeper.peerSecretFile, which this server demands{said}"
        )));
    }
    Ok((answer, seals))
}

/// Waits for a hello, as it was sent, too.
///
/// # Errors
/// The connection broke, or the other end is no server of this kind.
pub(super) async fn hear(stream: &mut Stream) -> io::Result<(Hello, Bytes)> {
    let receive = async {
        match receive_magic(stream).await? {
            magic if magic == *MAGIC => receive_frame(stream, HELLO_BYTES_MAX).await,
            [0x16, 3, ..] => Err(invalid(
                "it begins TLS, which is not offered here: sslQuorum and portUnification are false",
            )),
            _ => Err(invalid(NO_SERVER)),
        }
    };
    let payload = timeout(HELLO_MAX, receive).await??;
    let hello = Hello::decode(payload.clone())
        .map_err(|error| invalid(format!("its hello is malformed: {error}")))?;
    Ok((hello, payload))
}

/// Has the sender of a hello prove itself. `None`: it did not, which was told, or the connection broke.
pub(super) async fn admit(
    peers: &Peers,
    stream: &mut Stream,
    remote: SocketAddr,
    (hello, payload): (&Hello, &[u8]),
) -> Option<Seals> {
    let (secrets, demands) = (peers.security.secrets(), peers.security.demands());
    let (own, server) = (peers.own, hello.server);
    if let Some(tls) = peers.security.tls() {
        let judged = match stream.is_tls() || !tls.is_demanded() {
            true => tls.judge(stream, &peers.hosts(server), true).await,
            false => Err(format!(
                "it goes without TLS, which server {own} demands (sslQuorum without portUnification)"
            )),
        };
        if let Err(words) = judged {
            let words = format!("server {server} is not known by this link: {words}");
            refuse(peers, stream, (server, remote), ("certificate", words)).await;
            return None;
        }
    }
    let words = match (&secrets, &hello.offer) {
        (Some(secrets), Some(offer)) => {
            let nonce = security::nonce().ok()?;
            let offered = (&offer.nonce, &offer.ids[..]);
            match Accepting::challenge(secrets, (own, &nonce), payload, offered) {
                Some((accepting, challenge)) => {
                    let proof = prove(stream, &challenge);
                    // It is gone, or says nothing.
                    let proof = timeout(HELLO_MAX, proof).await.ok()?.ok()?;
                    match accepting.check(&proof) {
                        Ok(seals) => return Some(seals),
                        Err(broken) => {
                            let words = format!(
                                "refused a link as server {server} from {}: {broken}",
                                remote.ip()
                            );
                            peers.counts().strangers.add(1);
                            peers.complain(server, "secret", words);
                            return None;
                        }
                    }
                }
                None if demands || offer.is_demanded => format!(
                    "server {server} has none of the secrets of server {own} (lockkeeper.peerSecretFile)"
                ),
                None => return Some(Seals::default()),
            }
        }
        (Some(_), None) if demands => format!(
            "server {own} takes links alone that prove the secret of its lockkeeper.peerSecretFile, and server \
             {server} has none"
        ),
        (None, Some(offer)) if offer.is_demanded => format!(
            "server {server} demands the secret of its lockkeeper.peerSecretFile, and server {own} has none"
        ),
        (Some(_), None) | (None, Some(_) | None) => return Some(Seals::default()),
    };
    refuse(peers, stream, (server, remote), ("secret", words)).await;
    None
}

/// Says on both sides why there is no link.
async fn refuse(
    peers: &Peers,
    stream: &mut Stream,
    (server, remote): (u8, SocketAddr),
    (cause, words): (&'static str, String),
) {
    peers.counts().strangers.add(1);
    peers.complain(server, cause, format!("refused a link from {}: {words}", remote.ip()));
    let introduction = Introduction::withheld();
    let answer = Answer { verdict: Err(words), server: peers.own, introduction, term: 0 };
    // It is gone: then it needs no answer.
    let _ = give(&answer, stream, &mut Seals::default()).await;
}

/// Answers a hello.
///
/// # Errors
/// The connection broke.
pub(super) async fn give(
    answer: &Answer,
    stream: &mut Stream,
    seals: &mut Seals,
) -> io::Result<()> {
    let mut bytes = MAGIC.to_vec();
    frame::append_sealed(&mut bytes, seals.send.as_mut(), |out| answer.encode(out));
    timeout(HELLO_MAX, write(stream, &bytes)).await?
}

/// Writes, and has it leave: TLS may hold back what the socket did not take.
async fn write(stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

async fn prove(stream: &mut Stream, challenge: &[u8]) -> io::Result<Bytes> {
    send(stream, CHALLENGE_MAGIC, challenge).await?;
    receive_frame(stream, PROOF_BYTES).await
}

async fn send(stream: &mut Stream, magic: &[u8; 8], payload: &[u8]) -> io::Result<()> {
    let mut bytes = magic.to_vec();
    frame::append(&mut bytes, |out| out.extend_from_slice(payload));
    timeout(HELLO_MAX, write(stream, &bytes)).await?
}

async fn receive_magic(stream: &mut Stream) -> io::Result<[u8; 8]> {
    let mut magic = [0; 8];
    stream.read_exact(&mut magic).await?;
    Ok(magic)
}

/// Reads a frame, and nothing behind it.
async fn receive_frame(stream: &mut Stream, bytes_max: usize) -> io::Result<Bytes> {
    let frame = frame::receive(stream, bytes_max).await?;
    frame.map_err(|bad| invalid(format!("its hello: {bad}")))
}

const NO_SERVER: &str = "it is no lockkeeper server";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::mpsc;

    use super::*;
    use crate::config::Config;
    use crate::peer_auth::new_line;
    use crate::replica::founding::Undecided;
    use crate::server::metrics::Figures;
    use crate::server::peer::hello::Kind;
    use crate::server::peer::images::Transfers;
    use crate::server::peer::security::Security;

    /// A server with a secret in that directory.
    fn peers(own: u8, directory: &Path) -> Peers {
        let file = directory.join("secret");
        fs::write(&file, new_line(&[7; 32])).unwrap();
        let text =
            format!("dataDir=/d\nclientPort=1\nlockkeeper.peerSecretFile={}\n", file.display());
        let security = Security::open(&Config::parse("zoo.cfg", &text).unwrap(), None).unwrap();
        let introduction = Introduction::Founding(Undecided::default());
        let (driver, figures) = (mpsc::channel(1).0, Arc::new(Figures::default()));
        let transfers = Transfers::new().0;
        Peers::new(own, Vec::new(), introduction, driver, transfers, figures).secured_by(security)
    }

    async fn pair() -> (Stream, Stream, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stream, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (accepted, remote) = accepted.unwrap();
        (Stream::Plain(stream.unwrap()), Stream::Plain(accepted), remote)
    }

    /// What server 2 does with one that connects: its first message, if it gets that far.
    async fn accepts(peers: &Peers, mut stream: Stream, remote: SocketAddr) -> Option<Bytes> {
        let (hello, payload) = hear(&mut stream).await.ok()?;
        let mut seals = admit(peers, &mut stream, remote, (&hello, &payload)).await?;
        let introduction = Introduction::Founding(Undecided::default());
        let answer = Answer { verdict: Ok(2), server: peers.own, introduction, term: 0 };
        give(&answer, &mut stream, &mut seals).await.ok()?;
        let sealed = receive_frame(&mut stream, 100).await.ok()?;
        frame::opened(sealed, seals.receive.as_mut()).ok()
    }

    #[tokio::test]
    async fn what_was_captured_of_a_link_gets_nothing_past_the_hello_of_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (peers(1, directory.path()), peers(2, directory.path()));
        // One between them takes down all that server 1 sends.
        let (mut stream, mut between, _) = pair().await;
        let (mut onwards, accepted, remote) = pair().await;
        let connects = async {
            let mut hello = Hello::new(1, Kind::Messages, one.introduction(), 0);
            let (answer, mut seals) = say(&one, &mut stream, 2, &mut hello).await.unwrap();
            assert_eq!((answer.server, answer.verdict), (2, Ok(2)));
            let mut bytes = Vec::new();
            frame::append_sealed(&mut bytes, seals.send.as_mut(), |out| out.push(9));
            stream.write_all(&bytes).await.unwrap();
            stream.shutdown().await.unwrap();
        };
        let captures = async {
            let (mut there, mut back) = tokio::io::split(&mut onwards);
            let (mut from, mut to) = tokio::io::split(&mut between);
            let mut captured = Vec::new();
            let forth = async {
                let mut bytes = [0; 1000];
                loop {
                    match from.read(&mut bytes).await.unwrap() {
                        0 => break,
                        count => {
                            captured.extend_from_slice(&bytes[..count]);
                            back.write_all(&bytes[..count]).await.unwrap();
                        }
                    }
                }
            };
            tokio::select! {
                () = forth => {}
                _ = tokio::io::copy(&mut there, &mut to) => {}
            }
            captured
        };
        let ((), captured, taken) =
            tokio::join!(connects, captures, accepts(&two, accepted, remote));
        assert_eq!(taken.as_deref(), Some(&[9][..]));
        assert!(captured.len() > 100, "{}", captured.len());
        let (mut stranger, accepted, remote) = pair().await;
        stranger.write_all(&captured).await.unwrap();
        assert_eq!(accepts(&two, accepted, remote).await, None, "nothing is taken again");
    }
}
