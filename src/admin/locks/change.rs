//! `POST /locks/break` and `/locks/revoke`: an operator takes a lock away, or asks for it.
//!
//! *Owns* a client of this server's own client port, for one request. *Invariants*: speaks the client protocol
//! alone, so access control lists hold and the audit log has the change like any other; a contender is deleted
//! only in the state that was shown (its czxid and version); nothing waits for ever. *Never* touches what is no
//! contender, and never decides who may ask: `http/guard.rs`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::view::session_id;
use crate::admin::Facts;
use crate::admin::http::{Answer, Question, plain, told};
use crate::locks::contender::release_word;
use crate::locks::species::Species;
use crate::proto::response::ReplyHeader;
use crate::proto::{
    ConnectRequest, ConnectResponse, ErrorCode, OpCode, Reader, Request, RequestHeader, Response,
    Stat, Text, frame,
};

/// What an operator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The contender's znode is deleted.
    Break,
    /// The word is written to it by which holders are asked to leave.
    Revoke,
}

/// A status, and what is to be told.
type Refused = (StatusCode, String);

/// Longest time that all of it may take.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Longest answer, bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Its session, if the end of it is lost.
const SESSION_TIMEOUT_MS: i32 = 4_000;

/// Takes a lock away from the contender `node`, or asks for it, if its czxid is `token`.
pub(super) async fn answer(asked: &Question<'_>, what: Change) -> Answer {
    let (node, token) = (asked.parameter("node"), asked.parameter("token"));
    let (Some(node), Some(Ok(token))) = (node, token.map(|text| text.parse::<i64>())) else {
        return plain(StatusCode::BAD_REQUEST, "node and token say which contender\n");
    };
    let done = run(what, &node, token, asked.source.facts()).await;
    let outcome = done.as_ref().map_or_else(|(_, words)| words.as_str(), |_| "done");
    let remote = asked.asker.remote;
    tracing::info!(target: "lockkeeper::admin::routes", ?what, node, token, %remote, outcome,
        "an operator changes a lock");
    told(done)
}

/// Does it to the contender at that path, if its czxid is still that one.
///
/// # Errors
/// It was refused, or what became of it is not known: in words.
async fn run(change: Change, node: &str, token: i64, facts: &Facts) -> Result<Value, Refused> {
    let name = node.rsplit('/').next().unwrap_or_default();
    if !node.starts_with('/') || Species::of(name).is_none() {
        return Err(refused(StatusCode::BAD_REQUEST, "that is no contender of a lock"));
    }
    let Some(address) = facts.client_address.get() else {
        return Err(refused(StatusCode::NOT_IMPLEMENTED, through_tls(change, node, facts)));
    };
    let done = timeout(TIME_MAX, attempt(change, node, token, reachable(address))).await;
    done.unwrap_or_else(|_| Err(lost("the server did not answer in time")))
}

/// What does the same where clients speak TLS alone: this server has no key that its own port would have to accept.
fn through_tls(change: Change, node: &str, facts: &Facts) -> String {
    let verb = match change {
        Change::Break => "break",
        Change::Revoke => "revoke",
    };
    let port = facts.secure_client_address.map_or(String::from("PORT"), |at| at.port().to_string());
    format!(
        "clients of this server speak TLS alone, and the console does not: `lockkeeper locks {verb} --server \
         HOST:{port} --client-configuration FILE '{node}'` does it, with the trust store, and the key store if \
         ssl.clientAuth wants one, in FILE"
    )
}

async fn attempt(
    change: Change,
    node: &str,
    token: i64,
    address: SocketAddr,
) -> Result<Value, Refused> {
    let mut client = Client::open(address).await?;
    let path = Text::copy_from(node);
    let stat = match client.call(&Request::Exists { path: path.clone(), watch: false }).await? {
        Response::Stat(stat) => stat,
        other => return Err(refused(StatusCode::BAD_GATEWAY, format!("an odd answer: {other:?}"))),
    };
    let Stat { czxid, ephemeral_owner: session, version, num_children, .. } = stat;
    let done = if czxid != token {
        Err(refused(StatusCode::CONFLICT, "it is another contender by now; nothing was done"))
    } else if num_children > 0 {
        Err(refused(StatusCode::BAD_REQUEST, "it has children: that is no contender of a lock"))
    } else if change == Change::Revoke && session == 0 {
        Err(refused(StatusCode::BAD_REQUEST, "it is not ephemeral: no client listens there"))
    } else {
        let word = release_word(node.rsplit('/').next().unwrap_or_default());
        let request = match change {
            Change::Break => Request::Delete { path, version },
            Change::Revoke => {
                let data = Some(Bytes::from_static(word.as_bytes()));
                Request::SetData { path, data, version }
            }
        };
        client.call(&request).await.map(|_| ())
    };
    client.close().await;
    done?;
    let done = match change {
        Change::Break => "broken",
        Change::Revoke => "asked to release",
    };
    Ok(json!({ "done": done, "node": node, "session": session_id(session), "token": token }))
}

/// A session of this server.
struct Client {
    stream: TcpStream,
    buffer: BytesMut,
    last_xid: i32,
}

impl Client {
    async fn open(address: SocketAddr) -> Result<Self, Refused> {
        let unreachable = |error: io::Error| {
            let words = format!("the port for clients does not answer: {error}");
            refused(StatusCode::BAD_GATEWAY, words)
        };
        let stream = TcpStream::connect(address).await.map_err(unreachable)?;
        let mut client = Self { stream, buffer: BytesMut::new(), last_xid: 0 };
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: SESSION_TIMEOUT_MS,
            session_id: 0,
            password: Bytes::new(),
            read_only: Some(false),
        };
        let mut out = Vec::new();
        frame::append(&mut out, |out| request.encode(out));
        client.stream.write_all(&out).await.map_err(unreachable)?;
        let answer = client.frame().await.map_err(unreachable)?;
        ConnectResponse::decode(answer).map_err(|_| {
            refused(StatusCode::BAD_GATEWAY, "the port for clients speaks another protocol")
        })?;
        Ok(client)
    }

    async fn call(&mut self, request: &Request) -> Result<Response, Refused> {
        self.send(request).await.map_err(|error| lost(&error.to_string()))?;
        loop {
            let answer = self.frame().await.map_err(|error| lost(&error.to_string()))?;
            let mut reader = Reader::new(answer);
            let odd = |_| refused(StatusCode::BAD_GATEWAY, "an answer that cannot be read");
            let header = ReplyHeader::decode(&mut reader).map_err(odd)?;
            if header.xid != self.last_xid {
                continue;
            }
            if header.err != 0 {
                return Err(of_error(header.err));
            }
            return Response::decode(request.op(), &mut reader).map_err(odd);
        }
    }

    async fn send(&mut self, request: &Request) -> io::Result<()> {
        self.last_xid += 1;
        let header = RequestHeader { xid: self.last_xid, op: request.op() as i32 };
        let mut out = Vec::new();
        frame::append(&mut out, |out| {
            header.encode(out);
            request.encode(out);
        });
        self.stream.write_all(&out).await
    }

    async fn frame(&mut self) -> io::Result<Bytes> {
        loop {
            let next = frame::next(&mut self.buffer, ANSWER_BYTES_MAX);
            if let Some(payload) = next.map_err(|_| io::Error::other("a frame that is too long"))? {
                return Ok(payload);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Its session ends with it; if that fails, a few seconds later.
    async fn close(mut self) {
        let header = RequestHeader { xid: self.last_xid + 1, op: OpCode::CloseSession as i32 };
        let mut out = Vec::new();
        frame::append(&mut out, |out| header.encode(out));
        if self.stream.write_all(&out).await.is_ok() {
            let _ = self.frame().await;
        }
    }
}

fn refused(status: StatusCode, words: impl Into<String>) -> Refused {
    (status, words.into())
}

fn lost(reason: &str) -> Refused {
    refused(StatusCode::GATEWAY_TIMEOUT, format!("look what became of it: {reason}"))
}

fn of_error(code: i32) -> Refused {
    match ErrorCode::from_wire(code) {
        Some(ErrorCode::NoNode) => refused(StatusCode::NOT_FOUND, "it is not there any more"),
        Some(ErrorCode::NoAuth) => refused(
            StatusCode::FORBIDDEN,
            "the access control list does not allow it to everyone: `lockkeeper locks break --auth` says who asks",
        ),
        Some(ErrorCode::SessionClosedRequireSaslAuth) => refused(
            StatusCode::FORBIDDEN,
            "this server serves only clients that authenticate: use `lockkeeper locks` with --auth or \
             --client-configuration",
        ),
        Some(ErrorCode::BadVersion) => {
            refused(StatusCode::CONFLICT, "its data were changed meanwhile; nothing was done")
        }
        Some(other) => refused(StatusCode::BAD_GATEWAY, format!("refused: {other:?}")),
        None => refused(StatusCode::BAD_GATEWAY, format!("refused with the code {code}")),
    }
}

/// A port that is bound to all addresses is reached by that of this machine.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::ClientAddress;

    #[tokio::test]
    async fn where_clients_speak_tls_alone_the_command_that_does_it_is_named() {
        let facts = Facts {
            client_address: ClientAddress::default(),
            secure_client_address: Some(SocketAddr::from(([127, 0, 0, 1], 2281))),
            ..Facts::default()
        };
        let (status, words) =
            run(Change::Revoke, "/l/lock-0000000001", 7, &facts).await.unwrap_err();
        assert_eq!(status, StatusCode::NOT_IMPLEMENTED);
        let command = "`lockkeeper locks revoke --server HOST:2281 --client-configuration FILE \
                       '/l/lock-0000000001'`";
        assert!(words.contains(command), "{words}");
    }
}
