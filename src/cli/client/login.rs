//! Proving who asks by SASL, right after the handshake of a connection.
//!
//! *Owns* the exchange on one connection. *Invariants*: nothing else is asked before it is over; a server that does not
//! prove that it knows the password, too, is none to go on with. *Never* shows a password.

use std::io;
use std::time::Duration;

use bytes::Bytes;

use super::ClientError;
use super::connection::{Connection, reason, request_frame};
use crate::config::HostPort;
use crate::proto::response::ReplyHeader;
use crate::proto::{OpCode, Reader, Request, Response};
use crate::sasl::{CNONCE_BYTES, ClientLogin, Dialogue, Disbelief, Next};

/// Why the client may not go on.
#[derive(Debug)]
pub(super) enum LoginError {
    /// There is no answer.
    Lost(io::Error),
    /// The server refuses, with this number.
    Refused(i32),
    /// The server is not to be believed.
    Unproven(Disbelief),
}

impl From<io::Error> for LoginError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

impl LoginError {
    /// As the error of a client of this server, which was waited for so long.
    pub(super) fn of(self, server: &HostPort, waited: Duration) -> ClientError {
        let server = server.clone();
        match self {
            Self::Lost(error) => ClientError::Lost { server, reason: reason(&error, waited) },
            Self::Refused(code) => ClientError::Refused { server, code },
            Self::Unproven(reason) => ClientError::Unproven { server, reason },
        }
    }
}

impl Connection {
    /// Proves to be this user.
    ///
    /// # Errors
    /// One side has not proved it to the other.
    pub(super) fn log_in(&mut self, login: &ClientLogin) -> Result<(), LoginError> {
        let mut nonce = [0; CNONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
        let mut dialogue = Dialogue::new(login, nonce);
        let mut said = Vec::new();
        // Two questions, and no more with a server that is what it should be.
        for xid in 1.. {
            let token = self.token(xid, said)?;
            match dialogue.step(token.as_deref()).map_err(LoginError::Unproven)? {
                Next::Done => break,
                Next::Send(answer) => said = answer,
            }
        }
        Ok(())
    }

    /// The server's answer to a token.
    fn token(&mut self, xid: i32, token: Vec<u8>) -> Result<Option<Bytes>, LoginError> {
        let request = Request::Sasl { token: Some(token.into()) };
        self.send(&request_frame(xid, &request))?;
        let mut reader = Reader::new(self.frame()?);
        let header = ReplyHeader::decode(&mut reader).map_err(io::Error::other)?;
        if header.xid != xid {
            return Err(io::Error::other("the answer is to another request").into());
        }
        if header.err != 0 {
            return Err(LoginError::Refused(header.err));
        }
        match Response::decode(OpCode::Sasl, &mut reader).map_err(io::Error::other)? {
            Response::Token(token) => Ok(token),
            _ => Err(io::Error::other("an odd answer").into()),
        }
    }
}
