//! The client port of a server of an ensemble, which a change of the members may move.
//!
//! *Owns* where clients connect, from the moment at which that port was opened. *Invariants*: it is what the
//! members of the ensemble say of this server, if they say something, and what its configuration says
//! otherwise; a new port is listened at before the old one is closed, unless both are one port of two
//! addresses; connections that were made stay; a port that cannot be had is tried again, `/readyz` says so,
//! and clients go on at the old one meanwhile.
//!
//! Reproduces `ServerCnxnFactory.reconfigure`, as `QuorumPeer.processReconfig` calls it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, lookup_host};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

use crate::admin::ClientAddress;
use crate::config::{HostPort, Membership};
use crate::server::metrics::{Cause, Published};
use crate::server::ports::{Announced, Port};

/// What the task that accepts clients is told.
#[derive(Debug)]
pub(crate) struct Move {
    /// Where it listens from now on; `None`: nowhere.
    pub listener: Option<TcpListener>,
    /// Told when it has let go of what it listened at before.
    pub done: oneshot::Sender<()>,
}

/// A client port that is open.
#[derive(Debug)]
pub(crate) struct ClientPort {
    /// This server.
    pub own: u8,
    /// Connections that may wait to be accepted.
    pub backlog: u32,
    /// Where it was asked to listen, and where it does.
    pub at: (HostPort, SocketAddr),
    /// What is shown of it.
    pub shown: ClientAddress,
    /// Where that task runs.
    pub accepting: Handle,
    /// The way to the task that accepts.
    pub moves: mpsc::Sender<Move>,
}

impl ClientPort {
    /// Follows what the members say of this server.
    pub(crate) async fn follow(
        mut self,
        mut members: watch::Receiver<Announced>,
        published: Arc<Published>,
    ) {
        // What the first text says otherwise than the file may be of another machine, or another name of
        // this one, and clients find this server where its file says.
        let (mut first, mut warned) = (String::new(), String::new());
        let configured = self.at.0.clone();
        loop {
            let Announced { text, is_confirmed } = members.borrow_and_update().clone();
            // What a start finds on the disk may be older than the file: no client is served with it.
            if !is_confirmed {
                if members.changed().await.is_err() {
                    return;
                }
                continue;
            }
            if first.is_empty() {
                first.clone_from(&text);
            }
            let wanted = Membership::parse(&text).unwrap_or_default().servers.into_iter();
            let wanted = wanted.filter(|spec| spec.id == self.own).find_map(|spec| spec.client);
            let wanted = wanted.unwrap_or_else(|| configured.clone());
            let failed = match wanted == self.at.0 {
                true => None,
                false => self.move_to(&wanted).await.err(),
            };
            let words = failed.as_ref().map(|error| self.failing(&wanted, error));
            let is_elsewhere = first == text
                && failed.as_ref().is_some_and(|e| e.kind() != io::ErrorKind::AddrInUse);
            match words {
                Some(words) if is_elsewhere => {
                    if warned != words {
                        tracing::warn!("{words}");
                        warned = words;
                    }
                    published.conditions.set(Cause::ClientPort, None);
                }
                words => published.conditions.set(Cause::ClientPort, words),
            }
            let interval = if is_elsewhere { LOOK_INTERVAL_MAX } else { LOOK_INTERVAL };
            tokio::select! {
                changed = members.changed() => if changed.is_err() { return },
                () = sleep(interval), if failed.is_some() => {}
            }
        }
    }

    async fn move_to(&mut self, wanted: &HostPort) -> io::Result<()> {
        let addresses = lookup_host((wanted.host.as_str(), wanted.port)).await?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        let (old, old_address) = self.at.clone();
        // `0.0.0.0` and `[::]` are two spellings of all addresses.
        let is_old = |address: &SocketAddr| {
            let is_any = address.ip().is_unspecified() && old_address.ip().is_unspecified();
            *address == old_address || (is_any && address.port() == old_address.port())
        };
        if addresses.iter().any(is_old) {
            self.at.0 = wanted.clone();
            return Ok(());
        }
        if wanted.port != old_address.port() {
            let port = Port::bind(addresses)?;
            return self.listen(wanted, port).await;
        }
        // All addresses of a port and one of them cannot be had at the same time.
        let probe = addresses.iter().any(|address| {
            address.ip().is_unspecified() || Port::bind([SocketAddr::new(address.ip(), 0)]).is_ok()
        });
        if !probe {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        self.tell(None).await;
        let bound = match Port::bind(addresses) {
            Ok(port) => self.listen(wanted, port).await,
            Err(error) => Err(error),
        };
        if bound.is_err() {
            let port = Port::bind([old_address])?;
            self.listen(&old, port).await?;
        }
        bound
    }

    async fn listen(&mut self, wanted: &HostPort, port: Port) -> io::Result<()> {
        let address = port.address;
        let listener = {
            let _runtime = self.accepting.enter();
            port.listen(self.backlog)?
        };
        self.tell(Some(listener)).await;
        tracing::info!(%address, before = %self.at.1, "clients connect at another address now");
        self.at = (wanted.clone(), address);
        self.shown.set(address);
        Ok(())
    }

    /// Waits until it is so. The accepting task ends with the server only.
    async fn tell(&self, listener: Option<TcpListener>) {
        let (done, is_done) = oneshot::channel();
        if self.moves.send(Move { listener, done }).await.is_ok() {
            let _ = is_done.await;
        }
    }

    fn failing(&self, wanted: &HostPort, error: &io::Error) -> String {
        format!(
            "clients cannot connect to server {} at {wanted}, as the members of the ensemble say: {error}; \
             they connect at {} still. It tries again; free the port, or give it another one: \
             lockkeeper member add 'server.{}=...'",
            self.own, self.at.1, self.own
        )
    }
}

/// Time between two attempts at a port.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// The same, at an address that is none of this machine's.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_that_is_spelt_otherwise_closes_no_port() {
        let (moves, mut moved) = mpsc::channel(1);
        let spelt = |host: &str| HostPort::new(host, 2181).unwrap();
        for (at, wanted) in [
            ("127.0.0.1", "localhost"),
            ("127.0.0.1", "0x7f000001"),
            ("0.0.0.0", "::"),
            ("::", "0.0.0.0"),
        ] {
            let address = SocketAddr::new(at.parse().unwrap(), 2181);
            let mut port = ClientPort {
                own: 1,
                backlog: 1,
                at: (spelt(at), address),
                shown: ClientAddress::at(address),
                accepting: Handle::current(),
                moves: moves.clone(),
            };
            let wanted = spelt(wanted);
            tokio::select! {
                done = port.move_to(&wanted) => done.unwrap(),
                _ = moved.recv() => panic!("{at} is closed for {wanted}"),
            }
            assert_eq!(port.at, (wanted, address));
        }
    }
}
