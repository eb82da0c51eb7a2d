//! Who a client proves to be by SASL, and which clients are served at all.
//!
//! *Owns* the users who may authenticate, the random numbers of challenges, the tokens that are to be judged outside,
//! and the schemes that are enforced. *Invariants*: at most one token of a connection is outside; an identity of the
//! scheme `sasl` is there on a connection only where it was proved; what a user may prove depends on this
//! server's configuration alone, and what that is worth on the identities that a transaction carries. *Never* looks at
//! the tree.
//!
//! Reproduces `ZooKeeperServer.processSasl` and `AuthenticationHelper`. Of what ZooKeeper does it leaves out that a
//! client may choose its id where no rule maps the realm of its name.

use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore as _, SeedableRng as _};

use super::connection::{Connection, Outside};
use crate::proto::ErrorCode;
use crate::replica::machine::Identities;
use crate::replica::request::ConnId;
use crate::sasl::{NONCE_BYTES, SaslSetup, SaslUsers, Step, Verdict};
use crate::tree::acl::Identity;

/// Of one server.
#[derive(Debug)]
pub(in crate::replica) struct Authentication {
    setup: SaslSetup,
    enforced_schemes: Vec<String>,
    nonces: ChaCha20Rng,
    tokens: Vec<(ConnId, Vec<u8>)>,
}

/// What becomes of a token.
pub(super) enum Taken {
    /// It is answered with this one, or with none.
    Answer(Option<Vec<u8>>),
    /// The answer comes later.
    Later,
}

canonical! {
    Authentication: setup, enforced_schemes, tokens;
    |out, nonces| out.value(&nonces.get_word_pos())
}

impl Authentication {
    pub(in crate::replica) fn new(
        setup: SaslSetup,
        enforced_schemes: Vec<String>,
        seed: [u8; 32],
    ) -> Self {
        let mut nonces = ChaCha20Rng::from_seed(seed);
        // Numbers of their own: what else is drawn from the seed does not change with the clients that authenticate.
        nonces.set_stream(NONCE_STREAM);
        Self { setup, enforced_schemes, nonces, tokens: Vec::new() }
    }

    /// Other users may authenticate from now on.
    pub(in crate::replica) fn replace_users(&mut self, users: SaslUsers) {
        self.setup.users = Some(users);
    }

    /// Tokens to be judged outside.
    pub(in crate::replica) fn take_tokens(&mut self) -> Vec<(ConnId, Vec<u8>)> {
        std::mem::take(&mut self.tokens)
    }

    /// What lists of this connection may name.
    pub(super) fn mark(&self, connection: &mut Connection) {
        if self.setup.offers_scheme {
            connection.prove([Identity::offers_sasl()].into_iter().collect());
        }
    }

    /// Whether a connection with these identities is not served.
    pub(super) fn turns_away(&self, ids: &[Identity]) -> bool {
        let is_enforced =
            |id: &Identity| self.enforced_schemes.iter().any(|scheme| scheme == id.scheme.as_str());
        !self.enforced_schemes.is_empty()
            && !ids.iter().any(is_enforced)
            && !mutant!("enforces-no-scheme")
    }

    /// Takes a client's token: what becomes of it, or why its connection ends.
    pub(super) fn step(
        &mut self,
        connection: &mut Connection,
        (conn, xid): (ConnId, i32),
        token: &[u8],
    ) -> Result<Taken, ErrorCode> {
        if self.setup.service.is_some() {
            if connection.outside != Outside::Listens {
                return self.failed().map(Taken::Answer);
            }
            connection.outside = Outside::Judges { xid };
            self.tokens.push((conn, token.to_vec()));
            return Ok(Taken::Later);
        }
        // As ZooKeeper answers without a section of JAAS: the client goes on, and has proved nothing.
        let Some(users) = &self.setup.users else { return Ok(Taken::Answer(None)) };
        let nonces = &mut self.nonces;
        let nonce = || {
            let mut bytes = [0; NONCE_BYTES];
            nonces.fill_bytes(&mut bytes);
            bytes
        };
        match connection.sasl.step(token, users, nonce) {
            Ok(Step::Challenge(token)) => return Ok(Taken::Answer(Some(token))),
            Ok(Step::Proven { user, token }) if self.proves(connection, &user) => {
                return Ok(Taken::Answer(Some(token)));
            }
            Ok(Step::Proven { .. }) => {}
            Err(crate::sasl::Refused) => {}
        }
        self.failed().map(Taken::Answer)
    }

    /// Takes what was made of a token outside: the token to answer with, or why the connection ends.
    pub(super) fn judged(
        &self,
        connection: &mut Connection,
        verdict: Verdict,
    ) -> Result<Option<Vec<u8>>, ErrorCode> {
        connection.outside = match verdict {
            Verdict::Challenge(_) => Outside::Listens,
            Verdict::Proven { .. } | Verdict::Refused => Outside::Over,
        };
        match verdict {
            Verdict::Challenge(token) => Ok(Some(token)),
            // The last word of GSSAPI is the client's.
            Verdict::Proven { principal } if self.proves(connection, &principal) => Ok(None),
            Verdict::Proven { .. } | Verdict::Refused => self.failed(),
        }
    }

    /// What a client is told that has proved nothing.
    fn failed(&self) -> Result<Option<Vec<u8>>, ErrorCode> {
        match (self.enforced_schemes.iter().any(|scheme| scheme == "sasl"), &self.setup) {
            (true, _) => Err(ErrorCode::SessionClosedRequireSaslAuth),
            (false, setup) if setup.allow_failed_clients => Ok(None),
            (false, _) => Err(ErrorCode::AuthFailed),
        }
    }

    /// Gives a connection all that a user is. False: its name is none, or there is no room for another identity.
    fn proves(&self, connection: &mut Connection, user: &str) -> bool {
        self.setup.id_of(user).is_some_and(|id| connection.prove(self.identities(&id)))
    }

    /// All that the user with this id is.
    fn identities(&self, id: &str) -> Identities {
        let all_powerful = self.setup.is_super(id).then(Identity::all_powerful);
        let any = self.setup.any_user_id.as_deref().map(Identity::any_sasl);
        [Identity::sasl(id)].into_iter().chain(all_powerful).chain(any).collect()
    }
}

/// The stream of the random numbers of challenges; that of all others is 0.
const NONCE_STREAM: u64 = 1;
