//! SASL GSSAPI (RFC 4752), the server's side, with the GSSAPI of MIT Kerberos.
//!
//! *Owns* the server's key and the stages of an exchange: tokens until both sides know each other, then the offer of no
//! security layer and the client's acceptance of it. *Invariants*: the mechanism is Kerberos alone; a client that wants
//! a security layer proves nothing; the name that is proved is the ticket's, whatever name the client asks to be known
//! by. *Never* reads the key itself: the library does, from the file that the process's environment names.
//!
//! Reproduces Java's `com.sun.security.sasl.gsskerb.GssKrb5Server` as ZooKeeper configures it.

use std::env;
use std::fmt;

use libgssapi::context::{SecurityContext as _, ServerCtx};
use libgssapi::credential::{Cred, CredUsage};
use libgssapi::error::Error;
use libgssapi::name::Name;
use libgssapi::oid::{GSS_MECH_KRB5, GSS_NT_KRB5_PRINCIPAL, OidSet};

use super::acceptor;
use crate::sasl::{ServiceKey, Verdict};

/// The variable of the environment that names the file with the key to MIT's library, which reads it when it is
/// first used.
pub const KEY_TAB_VARIABLE: &str = "KRB5_KTNAME";

/// Longest token: tickets of Windows, with all groups of a user, have up to 48,000 bytes.
const TOKEN_BYTES_MAX: usize = 64 << 10;
/// The offer: no security layer, and no bytes of one.
const OFFER: [u8; 4] = [NO_LAYER, 0, 0, 0];
const NO_LAYER: u8 = 1;

/// Whether the environment of this process names the file with this key.
#[must_use]
pub fn is_in_environment(service: &ServiceKey) -> bool {
    env::var(KEY_TAB_VARIABLE)
        .is_ok_and(|named| named.trim_start_matches("FILE:") == service.key_tab)
}

/// The server's key.
pub(super) struct Kerberos {
    key: Cred,
}

impl Kerberos {
    /// Looks for the key.
    ///
    /// # Errors
    /// It is not there.
    pub(super) fn open(service: &ServiceKey) -> Result<Self, String> {
        let ServiceKey { principal, key_tab } = service;
        if !is_in_environment(service) {
            return Err(format!(
                "{KEY_TAB_VARIABLE} of the environment must be FILE:{key_tab}, where the JAAS file has the key \
                 (`lockkeeper server` sees to that; an embedding program must be started so)"
            ));
        }
        let key = || -> Result<Cred, Error> {
            let name = Name::new(principal.as_bytes(), Some(GSS_NT_KRB5_PRINCIPAL))?;
            let kerberos = OidSet::singleton(GSS_MECH_KRB5)?;
            Cred::acquire(Some(&name), None, CredUsage::Accept, Some(&kerberos))
        };
        let key = key().map_err(|error| format!("the key of {principal} in {key_tab}: {error}"))?;
        Ok(Self { key })
    }

    /// With a client that has said nothing.
    pub(super) fn exchange(&self) -> Exchange {
        Exchange { context: ServerCtx::new(Some(self.key.clone())), stage: Stage::Tickets }
    }
}

impl fmt::Debug for Kerberos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kerberos").finish_non_exhaustive()
    }
}

/// With one client.
pub(super) struct Exchange {
    context: ServerCtx,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Tokens of GSSAPI go back and forth.
    Tickets,
    /// The client has the last of them, and must say nothing more of that.
    Known,
    /// It must accept the offer.
    Offered,
}

impl acceptor::Exchange for Exchange {
    fn step(&mut self, token: &[u8]) -> Verdict {
        match self.next(token) {
            Ok(verdict) => verdict,
            Err(reason) => {
                tracing::debug!(%reason, "a client proves nothing by Kerberos");
                Verdict::Refused
            }
        }
    }
}

impl Exchange {
    fn next(&mut self, token: &[u8]) -> Result<Verdict, String> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(format!("the token is longer than {TOKEN_BYTES_MAX} bytes"));
        }
        match self.stage {
            Stage::Tickets => {
                let answer = self.context.step(token, None).map_err(text)?;
                let is_known = self.context.is_complete();
                match answer {
                    Some(answer) => {
                        if is_known {
                            self.stage = Stage::Known;
                        }
                        Ok(Verdict::Challenge(answer.to_vec()))
                    }
                    None if is_known => self.offer(),
                    None => Err("there is no answer to the token".to_owned()),
                }
            }
            Stage::Known if token.is_empty() => self.offer(),
            Stage::Known => Err("a token comes behind the last one".to_owned()),
            Stage::Offered => {
                let accepted = self.context.unwrap(token).map_err(text)?;
                match accepted.first() {
                    Some(&NO_LAYER) if accepted.len() >= OFFER.len() => self.proven(),
                    _ => Err("the client wants a security layer".to_owned()),
                }
            }
        }
    }

    fn offer(&mut self) -> Result<Verdict, String> {
        let offer = self.context.wrap(false, &OFFER).map_err(text)?;
        self.stage = Stage::Offered;
        Ok(Verdict::Challenge(offer.to_vec()))
    }

    fn proven(&self) -> Result<Verdict, String> {
        let name = self.context.source_name().and_then(|name| name.display_name()).map_err(text)?;
        let principal = String::from_utf8(name.to_vec());
        let principal =
            principal.map_err(|_| "the name of the principal is not UTF-8".to_owned())?;
        Ok(Verdict::Proven { principal })
    }
}

fn text(error: Error) -> String {
    error.to_string()
}
