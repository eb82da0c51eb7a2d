//! How the link with ZooKeeper's leader is protected: TLS, and who this ensemble proves to be.
//!
//! *Owns* [`Access`]. *Invariants*: where the link is to go through TLS, nothing is said before the leader has shown a
//! certificate that is trusted and that names it; no proof repeats the random bytes of an earlier one. *Never* shows a
//! password.

use std::str::FromStr as _;
use std::sync::Arc;

use tokio::net::TcpStream;

use crate::config::{Config, HostPort};
use crate::sasl::{CNONCE_BYTES, ClientLogin};
use crate::server::transport::{LinkTls, Stream};
use crate::tls::Reloadable;

/// See the module. Without anything: plain text, and nothing is proved.
#[derive(Debug, Default)]
pub(in crate::server) struct Access {
    is_tls: bool,
    tls: Option<LinkTls>,
    login: Option<ClientLogin>,
}

/// Who it is, and random bytes that were never given before.
pub(super) type Proof = Option<(ClientLogin, [u8; CNONCE_BYTES])>;

impl Access {
    /// `tls`: what the link goes by, where it goes through TLS. `login`: who this ensemble is, where it proves that.
    pub(in crate::server) fn new(
        config: &Config,
        tls: Option<Arc<Reloadable>>,
        login: Option<ClientLogin>,
    ) -> Self {
        let tls = tls.map(|source| LinkTls::to_zookeeper(&config.peer_tls, source));
        Self { is_tls: config.speaks_tls_to_zookeeper(), tls, login }
    }

    /// Begins TLS on a connection to `remote` (`host:port`), if that is to be.
    ///
    /// # Errors
    /// The handshake came to nothing, or the certificate is of somebody else.
    pub(super) async fn protect(&self, stream: TcpStream, remote: &str) -> Result<Stream, String> {
        let tls = match &self.tls {
            Some(tls) => tls,
            None if self.is_tls => {
                return Err(
                    "TLS is asked for (sslQuorum), and there is no ssl.quorum.keyStore.location"
                        .to_owned(),
                );
            }
            None => return Ok(Stream::Plain(stream)),
        };
        let host = HostPort::from_str(remote)?.host;
        let stream = tls.connect(stream, &host).await.map_err(|error| {
            format!(
                "the handshake of TLS came to nothing ({error}): ZooKeeper needs sslQuorum=true or \
                 portUnification=true, and each side a certificate that the other trusts"
            )
        })?;
        tls.judge(&stream, std::slice::from_ref(&host), false).await?;
        Ok(stream)
    }

    /// What is proved on a new connection.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub(super) fn login(&self) -> Result<Proof, String> {
        let Some(login) = &self.login else { return Ok(None) };
        let mut cnonce = [0; CNONCE_BYTES];
        getrandom::fill(&mut cnonce).map_err(|error| error.to_string())?;
        Ok(Some((login.clone(), cnonce)))
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_link_that_is_to_go_through_tls_is_never_plain() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let remote = listener.local_addr().unwrap().to_string();
        let mut config = Config::without_file();
        for (is_on, expected) in [(false, None), (true, Some("ssl.quorum.keyStore.location"))] {
            config.peer_tls.is_on = is_on;
            let stream = TcpStream::connect(&remote).await.unwrap();
            let made = Access::new(&config, None, None).protect(stream, &remote).await;
            match (made, expected) {
                (Ok(stream), None) => assert!(!stream.is_tls()),
                (Err(why), Some(words)) => assert!(why.contains(words), "{why}"),
                (made, _) => panic!("{made:?}"),
            }
        }
    }

    #[test]
    fn no_two_proofs_have_the_same_random_bytes() {
        let login = ClientLogin { user: "learner".to_owned(), password: "p".to_owned() };
        let access = Access { login: Some(login), ..Access::default() };
        let (one, other) = (access.login().unwrap().unwrap(), access.login().unwrap().unwrap());
        assert_ne!(one.1, other.1);
        assert!(Access::default().login().unwrap().is_none());
    }
}
