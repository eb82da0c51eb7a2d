//! The connect exchange: the first frame in each direction, without the usual headers.
//!
//! Three dialects reach a server: 45 bytes (with the read-only flag), 44 bytes (without it: clients
//! older than 3.4, and the Go and Node clients of today), and 29 bytes (an empty password).

use bytes::Bytes;

use super::jute::{Malformed, Reader, Writer};

/// Bytes of a session password.
pub const PASSWORD_BYTES: usize = 16;

/// A session's password. Anyone who knows it and the session id may take the session over.
pub type Password = [u8; PASSWORD_BYTES];

/// What a client asks for when it connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// Ignored by every server; 0 in practice.
    pub protocol_version: i32,
    /// The highest zxid that the client has seen; a server that is behind it must not serve it.
    pub last_zxid_seen: i64,
    /// Requested session timeout in milliseconds; the server clamps it.
    pub timeout_ms: i32,
    /// 0 asks for a new session, anything else for that one.
    pub session_id: i64,
    /// The session's password; empty when null or absent.
    pub password: Bytes,
    /// Whether the client accepts a read-only server; `None` when the client is too old to say,
    /// in which case the answer must not carry the flag either.
    pub read_only: Option<bool>,
}

impl ConnectRequest {
    /// Reads the payload of the first frame. Trailing bytes are ignored.
    pub fn decode(payload: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        Ok(Self {
            protocol_version: reader.int("protocolVersion")?,
            last_zxid_seen: reader.long("lastZxidSeen")?,
            timeout_ms: reader.int("timeOut")?,
            session_id: reader.long("sessionId")?,
            password: reader.buffer("passwd")?.unwrap_or_default(),
            read_only: match reader.remaining() {
                0 => None,
                _ => Some(reader.boolean("readOnly")?),
            },
        })
    }

    /// Appends the payload, as a client would send it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_int(self.protocol_version);
        out.put_long(self.last_zxid_seen);
        out.put_int(self.timeout_ms);
        out.put_long(self.session_id);
        out.put_buffer(Some(&self.password));
        if let Some(read_only) = self.read_only {
            out.put_bool(read_only);
        }
    }
}

/// The server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectResponse {
    /// Negotiated session timeout in milliseconds; 0 says that the session is gone.
    pub timeout_ms: i32,
    /// The session, 0 when it is gone.
    pub session_id: i64,
    /// Its password, zeros when it is gone.
    pub password: Password,
    /// The read-only flag, present exactly when the request had one.
    pub read_only: Option<bool>,
}

impl ConnectResponse {
    /// The answer for a session that is unknown, expired, or asked for with a wrong password:
    /// the three cannot be told apart.
    #[must_use]
    pub fn session_gone(asked_with_flag: bool) -> Self {
        Self {
            timeout_ms: 0,
            session_id: 0,
            password: [0; PASSWORD_BYTES],
            read_only: asked_with_flag.then_some(false),
        }
    }

    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_int(0);
        out.put_int(self.timeout_ms);
        out.put_long(self.session_id);
        out.put_buffer(Some(&self.password));
        if let Some(read_only) = self.read_only {
            out.put_bool(read_only);
        }
    }

    /// Reads the payload, as a client does.
    pub fn decode(payload: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        reader.int("protocolVersion")?;
        let timeout_ms = reader.int("timeOut")?;
        let session_id = reader.long("sessionId")?;
        let password = reader.buffer("passwd")?.unwrap_or_default();
        let password = Password::try_from(&password[..])
            .map_err(|_| Malformed::new("passwd", "is not 16 bytes long"))?;
        let read_only = match reader.remaining() {
            0 => None,
            _ => Some(reader.boolean("readOnly")?),
        };
        Ok(Self { timeout_ms, session_id, password, read_only })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(password: &[u8], read_only: Option<bool>) -> Vec<u8> {
        let mut out = Vec::new();
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 7,
            timeout_ms: 4000,
            session_id: 0,
            password: Bytes::copy_from_slice(password),
            read_only,
        }
        .encode(&mut out);
        out
    }

    #[test]
    fn the_three_dialects_have_their_lengths_and_decode() {
        let lengths: Vec<usize> = [(16, Some(false)), (16, None), (0, Some(true))]
            .map(|(password, flag)| {
                let bytes = request(&vec![0; password], flag);
                let decoded = ConnectRequest::decode(Bytes::from(bytes.clone())).unwrap();
                assert_eq!(decoded.read_only, flag);
                bytes.len()
            })
            .to_vec();
        assert_eq!(lengths, [45, 44, 29]);
    }

    #[test]
    fn the_answer_carries_the_flag_only_when_asked_with_it() {
        let mut with = Vec::new();
        ConnectResponse::session_gone(true).encode(&mut with);
        let mut without = Vec::new();
        ConnectResponse::session_gone(false).encode(&mut without);
        assert_eq!((with.len(), without.len()), (37, 36));
    }
}
