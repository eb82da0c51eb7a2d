//! A connection that sends requests without waiting for answers: the tests' client, for writers that each have a
//! thread of their own.
//!
//! *Owns* nothing but the runtime of that thread: `testkit::Client` speaks.

use std::net::SocketAddr;

use bytes::Bytes;
use lockkeeper::internals::proto::{ConnectRequest, Reader, Request, Response, Stat};
use tokio::net::TcpStream;
use tokio::runtime::{self, Runtime};

use testkit::{Client, NO_NODE, Reply, fresh, get, text};

/// The connection is gone, as that of a killed server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// A session: enough to take it over.
#[derive(Clone, Debug)]
pub struct Session {
    pub id: i64,
    pub password: Bytes,
}

pub struct Link {
    runtime: Runtime,
    client: Client,
    out: Vec<u8>,
    received: i32,
    pub session: Session,
}

impl Link {
    /// A new session, or the one given. `Ok(None)`: the server does not know that one any more.
    pub fn open(
        address: SocketAddr,
        again: Option<&Session>,
        last_zxid_seen: i64,
    ) -> Result<Option<Self>, Gone> {
        let asked = ConnectRequest {
            last_zxid_seen,
            session_id: again.map_or(0, |session| session.id),
            password: again.map(|session| session.password.clone()).unwrap_or_default(),
            ..fresh(40_000)
        };
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("the system gives an epoll");
        let client = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.map_err(|_| Gone)?;
            Client::open_on(stream, &asked).await.ok_or(Gone)
        })?;
        let id = client.session.session_id;
        let password = Bytes::copy_from_slice(&client.session.password);
        let session = Session { id, password };
        let link = Self { runtime, client, out: Vec::new(), received: 0, session };
        Ok((id != 0).then_some(link))
    }

    /// Adds a request to what the next [`Link::flush`] sends.
    pub fn put(&mut self, request: &Request) {
        self.client.put(request, &mut self.out);
    }

    /// Sends it. That the server is gone is for the next [`Link::take`] to find.
    pub fn flush(&mut self) {
        self.runtime.block_on(self.client.send_bytes(&self.out));
        self.out.clear();
    }

    /// The answer to the oldest request without one.
    pub fn take(&mut self) -> Result<Reply, Gone> {
        let reply = self.runtime.block_on(self.client.receive()).ok_or(Gone)?;
        self.received += 1;
        assert_eq!(reply.xid, self.received, "answers come in the order of the requests");
        Ok(reply)
    }

    /// Asks for many things at once.
    pub fn ask(&mut self, requests: &[Request]) -> Result<Vec<Result<Response, i32>>, Gone> {
        let mut answers = Vec::with_capacity(requests.len());
        for some in requests.chunks(AT_ONCE) {
            some.iter().for_each(|request| self.put(request));
            self.flush();
            for request in some {
                let reply = self.take()?;
                answers.push(match reply.err {
                    0 => Ok(Response::decode(request.op(), &mut Reader::new(reply.body))
                        .expect("it decodes")),
                    err => Err(err),
                });
            }
        }
        Ok(answers)
    }

    /// The children of `path` with their values, by path; none if it does not exist.
    pub fn children(&mut self, path: &str) -> Result<Vec<(String, Vec<u8>, Stat)>, Gone> {
        let list = Request::GetChildren { path: text(path), watch: false, stat: false };
        let names = match self.ask(&[list])?.remove(0) {
            Ok(Response::Names(names)) => names,
            Err(NO_NODE) => return Ok(Vec::new()),
            other => panic!("getChildren {path}: {other:?}"),
        };
        let paths: Vec<String> =
            names.iter().map(|name| format!("{path}/{}", name.as_str())).collect();
        let gets: Vec<Request> = paths.iter().map(|path| get(path)).collect();
        let answers = self.ask(&gets)?;
        let found = paths.into_iter().zip(answers).map(|(path, answer)| match answer {
            Ok(Response::Data(value, stat)) => (path, value.unwrap_or_default().to_vec(), stat),
            other => panic!("getData {path}: {other:?}"),
        });
        Ok(found.collect())
    }
}

const AT_ONCE: usize = 100;
