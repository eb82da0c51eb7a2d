//! A standalone replica whose disk is instant, with clients that are frames.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use lockkeeper::internals::proto::{ConnectRequest, Request, RequestHeader};
use lockkeeper::internals::replica::{
    ClientRequest, ConnId, Input, Machine, Replica, Restored, Setup, TICK_MS,
};
use lockkeeper::internals::tree::Options;

pub struct Rig {
    replica: Replica,
    now_us: u64,
    /// Frames that went to clients.
    pub frames: u64,
}

impl Rig {
    /// It leads.
    pub fn new() -> Self {
        let options = Options { hash_seed: 0x5eed, ..Options::default() };
        let machine = Machine::fresh(options);
        let replica = Replica::new(Setup::default(), machine, Restored::default());
        let replica = replica.expect("nothing was restored, so it fits together");
        let mut rig = Rig { replica, now_us: 0, frames: 0 };
        rig.tick();
        assert!(rig.replica.is_serving());
        rig
    }

    pub fn tick(&mut self) {
        self.now_us += TICK_MS * 1000;
        let wall_ms = 1_000_000 + (self.now_us / 1000) as i64;
        self.replica.step(Input::Tick { now_us: self.now_us, wall_ms });
        self.drive();
    }

    /// A new session on a new connection.
    pub fn connect(&mut self, conn: ConnId) {
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 40_000,
            session_id: 0,
            password: Bytes::from_static(&[0; 16]),
            read_only: Some(false),
        };
        let remote = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.replica.step(Input::Connected {
            conn,
            remote,
            remote_port: 1,
            proven: Vec::new(),
            request,
        });
        self.drive();
    }

    /// Requests that arrive together, and everything that follows from them.
    pub fn ask(&mut self, conn: ConnId, requests: Vec<ClientRequest>) {
        self.replica.step(Input::Requests { conn, requests });
        self.drive();
    }

    fn drive(&mut self) {
        while let Some(ready) = self.replica.ready().expect("a replica in order") {
            self.frames += ready
                .client
                .iter()
                .map(|outgoing| {
                    lockkeeper::internals::proto::frame::lengths(&outgoing.frames).count() as u64
                })
                .sum::<u64>();
            if let Some(append) = ready.append {
                self.replica.persisted(append.number);
            }
            for outgoing in ready.client.iter().filter(|outgoing| outgoing.more) {
                self.replica.step(Input::Room { conn: outgoing.conn });
            }
        }
    }
}

/// The payload of a request's frame.
pub fn payload(xid: i32, request: &Request) -> Vec<u8> {
    let mut out = Vec::new();
    RequestHeader { xid, op: request.op() as i32 }.encode(&mut out);
    request.encode(&mut out);
    out
}

/// A request as it comes from a connection.
pub fn client(xid: i32, request: &Request) -> ClientRequest {
    ClientRequest::decode(Bytes::from(payload(xid, request))).expect("it has a header")
}
