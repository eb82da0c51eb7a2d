//! A lock of etcd's own lock service: gRPC calls of Lock and Unlock, with a lease for each client.
//!
//! The calls are what etcd's clients make; the JSON gateway would have the server make the same call to
//! itself and cost it more. The server queues those who wait. *Invariant*, checked by the driver: the
//! revision of the store rises from holder to holder.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::driver::{Course, Step};
use super::grpc::{self, Channel, Field};
use super::socket::Socket;

const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
const LOCK: &str = "/v3lockpb.Lock/Lock";
const UNLOCK: &str = "/v3lockpb.Lock/Unlock";
/// How long a lease lasts, longer than any run: nothing has to keep it alive.
const LEASE_SECONDS: i64 = 3600;
/// Of a lease that is only asked for to see whether the server serves.
const PROBE_SECONDS: i64 = 5;

/// A connection for what is not measured.
pub struct Control {
    stream: TcpStream,
    channel: Channel,
    out: Vec<u8>,
}

impl Control {
    /// Connects; no step may take longer than `patience`.
    pub fn open(addr: SocketAddr, patience: Duration) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("{addr}: {e}");
        let stream = TcpStream::connect_timeout(&addr, patience).map_err(failed)?;
        stream.set_read_timeout(Some(patience)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut out = Vec::new();
        let channel = Channel::new(addr.to_string(), &mut out);
        Ok(Control { stream, channel, out })
    }

    fn call(&mut self, path: &str, message: &[u8]) -> Result<Vec<u8>, String> {
        let failed = |e: std::io::Error| format!("{path}: {e}");
        self.channel.call(path, message, &mut self.out)?;
        let (mut received, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            self.stream.write_all(&self.out).map_err(failed)?;
            self.out.clear();
            let answer = self.channel.answer(&mut received, &mut self.out);
            if let Some(message) = answer.map_err(|e| format!("{path}: {e}"))? {
                return Ok(message);
            }
            match self.stream.read(&mut piece).map_err(failed)? {
                0 => return Err(format!("{path}: the connection is gone")),
                count => received.extend_from_slice(&piece[..count]),
            }
        }
    }

    fn grant(&mut self, seconds: i64) -> Result<i64, String> {
        let mut message = Vec::new();
        grpc::number(1, seconds, &mut message);
        match grpc::field(&self.call(GRANT, &message)?, 2) {
            Some(Field::Number(lease)) => Ok(lease),
            Some(Field::Bytes(_)) | None => Err(format!("{GRANT}: no lease")),
        }
    }

    /// A lease for a client.
    pub fn lease(&mut self) -> Result<i64, String> {
        self.grant(LEASE_SECONDS)
    }

    /// Whether the server serves, which takes a majority of them.
    pub fn probe(&mut self) -> Result<(), String> {
        self.grant(PROBE_SECONDS).map(drop)
    }

    /// Ends a lease.
    pub fn revoke(&mut self, lease: i64) -> Result<(), String> {
        let mut message = Vec::new();
        grpc::number(1, lease, &mut message);
        self.call(REVOKE, &message).map(drop)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Resting,
    Taking,
    Held,
    Releasing,
}

/// One client.
pub struct Client {
    sockets: [Socket; 1],
    channel: Channel,
    lock: Vec<u8>,
    /// The key that was given with the lock, as the message that releases it.
    unlock: Vec<u8>,
    state: State,
    failed: Option<String>,
}

impl Client {
    /// A client at one server, with a lease of its own, of the lock `name`.
    pub fn open(addr: SocketAddr, name: &str, lease: i64) -> Result<Self, String> {
        let mut socket = Socket::open(addr)?;
        let channel = Channel::new(addr.to_string(), &mut socket.unsent);
        let mut lock = Vec::new();
        grpc::bytes(1, name.as_bytes(), &mut lock);
        grpc::number(2, lease, &mut lock);
        let sockets = [socket];
        Ok(Client {
            sockets,
            channel,
            lock,
            unlock: Vec::new(),
            state: State::Resting,
            failed: None,
        })
    }

    fn call(&mut self, path: &str, state: State) {
        let message = if state == State::Taking { &self.lock } else { &self.unlock };
        // Told when the next answer is looked for.
        self.failed = self.channel.call(path, message, &mut self.sockets[0].unsent).err();
        self.state = state;
    }

    /// Takes the key out of the answer to Lock; returns the revision.
    fn granted(&mut self, message: &[u8]) -> Option<i64> {
        let (Field::Bytes(header), Field::Bytes(key)) =
            (grpc::field(message, 1)?, grpc::field(message, 2)?)
        else {
            return None;
        };
        self.unlock.clear();
        grpc::bytes(1, key, &mut self.unlock);
        match grpc::field(header, 3)? {
            Field::Number(revision) => Some(revision),
            Field::Bytes(_) => None,
        }
    }
}

impl Course for Client {
    fn sockets(&mut self) -> &mut [Socket] {
        &mut self.sockets
    }

    fn take(&mut self, _: Instant) {
        self.call(LOCK, State::Taking);
    }

    fn release(&mut self) {
        self.call(UNLOCK, State::Releasing);
    }

    fn next(&mut self, _: usize, _: Instant) -> Result<Option<Step>, String> {
        if let Some(reason) = self.failed.take() {
            return Err(reason);
        }
        let Socket { received, unsent, .. } = &mut self.sockets[0];
        let Some(message) = self.channel.answer(received, unsent)? else { return Ok(None) };
        match self.state {
            State::Taking => {
                self.state = State::Held;
                let revision = self.granted(&message).ok_or("Lock: no key")?;
                Ok(Some(Step::Granted(Some(revision))))
            }
            State::Releasing => {
                self.state = State::Resting;
                Ok(Some(Step::Released))
            }
            State::Resting | State::Held => Err("an answer that nothing was asked for".to_owned()),
        }
    }
}
