//! What a server tells another one of who leads and who keeps up, when an operator is about to stop a server.
//!
//! *Owns* the question, which is the connection itself, and its answer. *Invariants*: a server whose version does
//! not know the question is not asked; who has not answered in time is said to have not.
//!
//! ```text
//! answer    frame: is ensemble u8 | leader u8, 0 for none | leads u8
//!           | count, each: server u8, votes u8, is observer u8, is connected u8, is synced u8
//! ```

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::connect::reach;
use super::frame::{self, Secured, invalid};
use super::hello::{Kind, LOCKS_SINCE};
use super::peers::Peers;
use crate::admin::GATHER_MAX;
use crate::proto::jute::wire_len;
use crate::proto::{Malformed, Reader, Writer};
use crate::replica::inspect::{PeerStatus, Standings};
use crate::replica::{Inspect, Report};
use crate::server::mailbox::inspect;

/// Most servers in an answer: there are no more numbers for them.
const SERVERS_MAX: usize = u8::MAX as usize;
/// Bytes of each.
const SERVER_BYTES: usize = 5;
/// Longest answer, bytes.
const ANSWER_BYTES_MAX: usize = 3 + 4 + SERVERS_MAX * SERVER_BYTES;
/// How long the answer may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks one server; see [`GATHER_MAX`].
pub(crate) async fn ask(peers: &Peers, server: u8) -> Option<Standings> {
    if peers.is_barred(server) || peers.version(server) < LOCKS_SINCE {
        return None;
    }
    match timeout(GATHER_MAX, exchange(peers, server)).await {
        Ok(Ok(standings)) => Some(standings),
        Ok(Err(error)) => {
            tracing::debug!(server, %error, "it does not say who keeps up");
            None
        }
        Err(_) => None,
    }
}

async fn exchange(peers: &Peers, server: u8) -> io::Result<Standings> {
    let reached = reach(peers, server, Kind::Standings).await;
    let (mut secured, _) = reached.ok_or_else(|| io::Error::other("it cannot be reached"))?;
    decode(frame::take(&mut secured, ANSWER_BYTES_MAX).await?).map_err(invalid)
}

/// Answers a server that has connected for that.
pub(super) async fn serve(peers: &Peers, mut secured: Secured) {
    let answer = async {
        let ask = async {
            let _turn = peers.questions.lock().await;
            inspect(&peers.driver, Inspect::Standings).await
        };
        let Some(Report::Standings(standings)) = ask.await else {
            return Err(io::Error::other("this server is stopping"));
        };
        frame::send(&mut secured, |out| encode(&standings, out)).await
    };
    if let Err(error) = timeout(PATIENCE, answer).await.unwrap_or_else(|late| Err(late.into())) {
        tracing::debug!(%error, "a question for who keeps up was not answered");
    }
}

fn encode(standings: &Standings, out: &mut Vec<u8>) {
    out.put_bool(standings.is_ensemble);
    out.push(standings.leader.unwrap_or(0));
    out.put_bool(standings.leads);
    out.put_int(wire_len(standings.peers.len()));
    for peer in &standings.peers {
        out.push(peer.server);
        out.put_bool(peer.votes);
        out.put_bool(peer.is_observer);
        out.put_bool(peer.is_connected);
        out.put_bool(peer.is_synced);
    }
}

fn decode(payload: Bytes) -> Result<Standings, Malformed> {
    let mut reader = Reader::new(payload);
    let is_ensemble = reader.boolean("is ensemble")?;
    let leader = Some(reader.byte("leader")?).filter(|leader| *leader != 0);
    let leads = reader.boolean("leads")?;
    let mut peers = Vec::new();
    for _ in 0..reader.count_of("servers", SERVER_BYTES, SERVERS_MAX)? {
        peers.push(PeerStatus {
            server: reader.byte("server")?,
            votes: reader.boolean("votes")?,
            is_observer: reader.boolean("is observer")?,
            is_connected: reader.boolean("is connected")?,
            is_synced: reader.boolean("is synced")?,
            ..PeerStatus::default()
        });
    }
    Ok(Standings { is_ensemble, leader, leads, peers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_back_as_it_was_and_a_cut_one_is_malformed() {
        let peer = |server, bits: u8| PeerStatus {
            server,
            votes: bits & 1 != 0,
            is_observer: bits & 2 != 0,
            is_connected: bits & 4 != 0,
            is_synced: bits & 8 != 0,
            ..PeerStatus::default()
        };
        for leader in [None, Some(7)] {
            let standings = Standings {
                is_ensemble: true,
                leader,
                leads: leader.is_some(),
                peers: (0..16).map(|bits| peer(bits + 1, bits)).collect(),
            };
            let mut bytes = Vec::new();
            encode(&standings, &mut bytes);
            for at in 0..bytes.len() {
                assert!(decode(Bytes::copy_from_slice(&bytes[..at])).is_err(), "{at}");
            }
            assert_eq!(decode(bytes.into()), Ok(standings));
        }
    }

    #[test]
    fn the_longest_answer_fits() {
        let peers = (0..SERVERS_MAX).map(|_| PeerStatus::default()).collect();
        let mut bytes = Vec::new();
        encode(&Standings { peers, ..Standings::default() }, &mut bytes);
        assert_eq!(bytes.len(), ANSWER_BYTES_MAX);
    }
}
