//! How the clients of this server prove who they are.
//!
//! *Owns* nothing: joins the connections with what is known of users. *Invariant*: a proof is taken when it arrives,
//! outside of its connection's order. *Never* changes the machine.

use super::Clients;
use crate::proto::request::{Request, Undecodable};
use crate::proto::{ErrorCode, Response, Text, Writer as _};
use crate::replica::clients::authentication::Taken;
use crate::replica::clients::connection::{Outside, Phase};
use crate::replica::machine::Machine;
use crate::replica::request::ConnId;
use crate::sasl::Verdict;
use crate::tree::acl::{Identity, digest_identities};

impl Clients {
    /// Executed when it arrives, outside the order: clients match it by its xid.
    pub(super) fn authenticate(
        &mut self,
        machine: &Machine,
        conn: ConnId,
        xid: i32,
        proof: Result<Request, Undecodable>,
    ) {
        match proof {
            Ok(Request::Auth { scheme, auth }) => {
                self.prove(machine, conn, xid, scheme.as_ref(), auth.as_deref());
            }
            Ok(Request::Sasl { token }) => self.take_token(conn, xid, token.as_deref()),
            Ok(_) | Err(_) => self.hang_up(conn),
        }
    }

    fn prove(
        &mut self,
        machine: &Machine,
        conn: ConnId,
        xid: i32,
        scheme: Option<&Text>,
        auth: Option<&[u8]>,
    ) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let options = machine.tree().options();
        let proven = match (scheme.map(Text::as_str), auth) {
            (Some("digest"), Some(auth)) => digest_identities(auth, options),
            (Some("ip"), _) => connection.ids.iter().take(1).cloned().collect(),
            // What the certificate of its client has proved.
            (Some("x509"), _) => {
                let is_so = |id: &&Identity| id.scheme.as_bytes() == b"x509";
                connection.ids.iter().filter(is_so).cloned().collect()
            }
            _ => smallvec::SmallVec::new(),
        };
        if proven.is_empty() || !connection.prove(proven) {
            connection.send(xid, 0, &Err(ErrorCode::AuthFailed));
            self.figures.auth_failed += 1;
            self.hang_up(conn);
            return;
        }
        connection.send(xid, 0, &Ok(Response::Empty));
        self.touch(conn);
    }

    /// Answers a SASL token when it arrives, outside the order, as other ways to authenticate.
    fn take_token(&mut self, conn: ConnId, xid: i32, token: Option<&[u8]>) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let Some(token) = token else { return self.hang_up(conn) };
        match self.authentication.step(connection, (conn, xid), token) {
            Ok(Taken::Answer(token)) => self.answer_token(conn, xid, Ok(token)),
            Ok(Taken::Later) => {}
            Err(code) => self.answer_token(conn, xid, Err(code)),
        }
    }

    /// Something was made of the token of a connection.
    pub(in crate::replica) fn judged(&mut self, conn: ConnId, verdict: Verdict) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        // Its end is on its way otherwise.
        if connection.phase == Phase::Closing {
            return;
        }
        if let Outside::Judges { xid } = connection.outside {
            let answer = self.authentication.judged(connection, verdict);
            self.answer_token(conn, xid, answer);
        }
    }

    fn answer_token(&mut self, conn: ConnId, xid: i32, answer: Result<Option<Vec<u8>>, ErrorCode>) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        match answer {
            Ok(token) => {
                connection.send_with(xid, 0, |out| out.put_buffer(token.as_deref()));
                self.touch(conn);
            }
            Err(code) => {
                connection.refuse_token(xid, code);
                self.figures.auth_failed += 1;
                self.hang_up(conn);
            }
        }
    }
}
