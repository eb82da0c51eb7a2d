//! A blocking connection that sends requests without waiting for answers.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use bytes::{Bytes, BytesMut};
use lockkeeper::internals::proto::response::ReplyHeader;
use lockkeeper::internals::proto::{
    ConnectRequest, ConnectResponse, Reader, Request, RequestHeader, Response, Stat, Text, frame,
};

use crate::process::PATIENCE;

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
    stream: TcpStream,
    buffer: BytesMut,
    out: Vec<u8>,
    xid: i32,
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
        let stream = TcpStream::connect(address).map_err(|_| Gone)?;
        stream.set_nodelay(true).map_err(|_| Gone)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|_| Gone)?;
        let asked = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen,
            timeout_ms: 40_000,
            session_id: again.map_or(0, |session| session.id),
            password: again.map(|session| session.password.clone()).unwrap_or_default(),
            read_only: Some(false),
        };
        let session = Session { id: 0, password: Bytes::new() };
        let (buffer, out) = (BytesMut::new(), Vec::new());
        let mut link = Self { stream, buffer, out, xid: 0, received: 0, session };
        frame::append(&mut link.out, |out| asked.encode(out));
        link.flush()?;
        let answer = ConnectResponse::decode(link.frame()?).expect("a connect response");
        if answer.session_id == 0 {
            return Ok(None);
        }
        let password = Bytes::copy_from_slice(&answer.password);
        link.session = Session { id: answer.session_id, password };
        Ok(Some(link))
    }

    /// Adds a request to what the next [`Link::flush`] sends.
    pub fn put(&mut self, request: &Request) {
        self.xid += 1;
        let xid = self.xid;
        frame::append(&mut self.out, |out| {
            RequestHeader { xid, op: request.op() as i32 }.encode(out);
            request.encode(out);
        });
    }

    pub fn flush(&mut self) -> Result<(), Gone> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent.map_err(|_| Gone)
    }

    /// The answer to the oldest request without one: header, and what is behind it.
    pub fn take(&mut self) -> Result<(ReplyHeader, Reader), Gone> {
        let mut reader = Reader::new(self.frame()?);
        let header = ReplyHeader::decode(&mut reader).expect("a reply header");
        self.received += 1;
        assert_eq!(header.xid, self.received, "answers come in the order of the requests");
        Ok((header, reader))
    }

    /// Asks for many things at once.
    pub fn ask(&mut self, requests: &[Request]) -> Result<Vec<Result<Response, i32>>, Gone> {
        let mut answers = Vec::with_capacity(requests.len());
        for some in requests.chunks(AT_ONCE) {
            some.iter().for_each(|request| self.put(request));
            self.flush()?;
            for request in some {
                let (header, mut reader) = self.take()?;
                answers.push(match header.err {
                    0 => Ok(Response::decode(request.op(), &mut reader).expect("it decodes")),
                    err => Err(err),
                });
            }
        }
        Ok(answers)
    }

    /// The children of `path` with their values, by path; none if it does not exist.
    pub fn children(&mut self, path: &str) -> Result<Vec<(String, Vec<u8>, Stat)>, Gone> {
        let list = Request::GetChildren { path: Text::copy_from(path), watch: false, stat: false };
        let names = match self.ask(&[list])?.remove(0) {
            Ok(Response::Names(names)) => names,
            Err(NO_NODE) => return Ok(Vec::new()),
            other => panic!("getChildren {path}: {other:?}"),
        };
        let paths: Vec<String> =
            names.iter().map(|name| format!("{path}/{}", name.as_str())).collect();
        let gets: Vec<Request> = paths
            .iter()
            .map(|path| Request::GetData { path: Text::copy_from(path), watch: false })
            .collect();
        let answers = self.ask(&gets)?;
        let found = paths.into_iter().zip(answers).map(|(path, answer)| match answer {
            Ok(Response::Data(value, stat)) => (path, value.unwrap_or_default().to_vec(), stat),
            other => panic!("getData {path}: {other:?}"),
        });
        Ok(found.collect())
    }

    fn frame(&mut self) -> Result<Bytes, Gone> {
        let mut chunk = [0; 16 << 10];
        loop {
            if let Some(payload) = frame::next(&mut self.buffer, usize::MAX).expect("a length") {
                return Ok(payload);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(Gone),
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    panic!("no answer within {PATIENCE:?}")
                }
                Err(_) => return Err(Gone),
            }
        }
    }
}

const AT_ONCE: usize = 100;
const NO_NODE: i32 = -101;
