//! How a connection gets its session.
//!
//! *Owns* what a client's first frame leads to. *Invariants*: a session is opened, and given to another
//! connection, by a transaction: which server has a session's newest connection is agreed on, and what an
//! older one left in the log is applied before the newer one is answered. A client is never answered
//! from a state that is older than what it has seen.
//!
//! Reproduces `ZooKeeperServer.processConnectRequest` and `ReadOnlyZooKeeperServer`.

use crate::proto::connect::{ConnectRequest, ConnectResponse, Password};
use crate::replica::Replica;
use crate::replica::clients::Phase;
use crate::replica::machine::{Origin, Session, TxnOp};
use crate::replica::ready::{TurnedAway, WhyAway};
use crate::replica::request::ConnId;

impl Replica {
    pub(in crate::replica) fn connect(&mut self, conn: ConnId, request: &ConnectRequest) {
        if request.last_zxid_seen > self.state.machine().last_zxid() {
            let here = self.state.machine().last_zxid();
            let why = WhyAway::SeesAhead { seen: request.last_zxid_seen, here };
            return self.refuse(conn, why, None);
        }
        let (min, max) = (self.setup.session_timeout_ms_min, self.setup.session_timeout_ms_max);
        let timeout_ms = request.timeout_ms.clamp(min, max);
        if !self.is_serving() {
            return self.connect_read_only(conn, request, timeout_ms);
        }
        let phase = Phase::Opening { timeout_ms, read_only: request.read_only };
        let (session, op) = if request.session_id == 0 {
            let server = i64::from(self.setup.server_id) << 56;
            let password = self.sessions.new_password();
            let password = (!self.setup.computed_passwords).then_some(password);
            (server, TxnOp::OpenSession { timeout_ms, password })
        } else {
            self.figures.counts.sessions_revalidated += 1;
            // A password never changes: one that is known to be another need not be asked for.
            let known = self.state.machine().sessions().find(request.session_id);
            let password = Password::try_from(&request.password[..]).ok();
            let is_wrong = known.is_some_and(|known| Some(known.password) != password)
                && !mutant!("any-password");
            let Some(password) = password.filter(|_| !is_wrong) else {
                let why = WhyAway::WrongPassword { session: request.session_id };
                return self.refuse_session(conn, why, request.read_only);
            };
            let is_heard = !mutant!("attach-keeps-deadline") && !mutant!("attach-is-not-heard");
            if known.is_some() && is_heard {
                // Heard of now, not only when that is applied.
                self.touch(request.session_id);
            }
            (request.session_id, TxnOp::AttachSession { timeout_ms, password })
        };
        self.clients.open_session(conn, phase);
        self.forward((conn, 0), session, (0, usize::MAX), &op);
    }

    /// Without a leader: only a client that says that reading is enough is served, and only by a server that is told
    /// to. A session that it has already stays as it is: this server shows its state under that name, and whether the
    /// session has ended meanwhile is decided by the next leader. One that is not known here may be newer than this
    /// state, so no client is told that it is gone.
    fn connect_read_only(&mut self, conn: ConnId, request: &ConnectRequest, timeout_ms: i32) {
        if !self.is_read_only() || request.read_only != Some(true) {
            return self.refuse(conn, WhyAway::NotServing, None);
        }
        let (session, timeout_ms, password) = match request.session_id {
            0 => {
                let (session, password) = self.sessions.open_local(timeout_ms);
                (session, timeout_ms, password)
            }
            session => {
                let Some(known) = self.state.machine().sessions().find(session).copied() else {
                    return self.refuse(conn, WhyAway::NotServing, None);
                };
                if known.password[..] != request.password[..] {
                    let why = WhyAway::WrongPassword { session };
                    return self.refuse_session(conn, why, request.read_only);
                }
                if let Some(old) = self.clients.connection_of(session) {
                    self.clients.hang_up(old);
                }
                (session, known.timeout_ms, known.password)
            }
        };
        let response =
            ConnectResponse { timeout_ms, session_id: session, password, read_only: Some(true) };
        self.clients.set_read_only(conn);
        self.clients.attach(conn, session, &response);
    }

    /// A session was opened or given to a connection, of this server or another.
    pub(in crate::replica) fn attached(&mut self, id: i64, session: Session) {
        if self.leadership.leads().is_some() {
            self.sessions.attached(id, session);
        }
        let (server, conn) = session.owner;
        let is_here = self.forwarding.is_own(Origin { server, conn, sequence: 0 });
        if let Some(old) = self.clients.connection_of(id)
            && !(is_here && old == conn)
            && !mutant!("two-connections-one-session")
        {
            self.clients.hang_up(old);
        }
        let phase = self.clients.connection(conn).map(|known| known.phase);
        let Some(Phase::Opening { read_only, .. }) = phase.filter(|_| is_here) else { return };
        let response = ConnectResponse {
            timeout_ms: session.timeout_ms,
            session_id: id,
            password: session.password,
            read_only: read_only.map(|_| false),
        };
        self.clients.attach(conn, id, &response);
        // It counts from this answer, which may come later than the leader's own look at the log.
        if !mutant!("attach-keeps-deadline") && !mutant!("answer-is-no-touch") {
            self.touch(id);
        }
    }

    /// The session that a connection of this server asked for cannot be had.
    pub(in crate::replica) fn not_attached(&mut self, session: i64, origin: Origin) {
        let phase = self.clients.connection(origin.conn).map(|known| known.phase);
        if self.forwarding.is_own(origin)
            && let Some(Phase::Opening { read_only, .. }) = phase
        {
            self.refuse_session(origin.conn, WhyAway::SessionGone { session }, read_only);
        }
    }

    fn refuse_session(&mut self, conn: ConnId, why: WhyAway, read_only: Option<bool>) {
        let gone = ConnectResponse::session_gone(read_only.is_some());
        self.refuse(conn, why, Some(&gone));
    }

    fn refuse(&mut self, conn: ConnId, why: WhyAway, response: Option<&ConnectResponse>) {
        if let Some(connection) = self.clients.connection(conn) {
            let remote = connection.remote().to_owned();
            self.output.turned_away(TurnedAway { remote, why });
        }
        self.figures.counts.connections_refused += 1;
        self.clients.refuse(conn, response);
    }
}
