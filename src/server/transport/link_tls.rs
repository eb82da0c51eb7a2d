//! TLS of connections between servers: the handshake, and whose certificate the other side has shown.
//!
//! *Owns* both ends of the handshake, and the comparison of a certificate with the addresses of a member. *Invariants*:
//! a handshake has a deadline; one with a key of RSA is not computed on this thread where others connect; a server that
//! is not named by its certificate is no member, from either end. *Never* decides who is a member.
//! Takes the place of `QuorumX509Util`, `UnifiedServerSocket` and the part of `ZKTrustManager` that looks at names.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::Acceptor;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::{LazyConfigAcceptor, TlsConnector, TlsStream};

use super::stream::Stream;
use crate::config::PeerTlsConfig;
use crate::server::limits::{PEER_CONNECT_MAX, SLOW_HANDSHAKES_MAX};
use crate::supervision::{Task, spawn_blocking};
use crate::tls::{Reloadable, begins_with_tls, names, subject};

/// Characters of a subject that are shown.
const SUBJECT_SHOWN_MAX: usize = 200;

/// See the module.
#[derive(Debug)]
pub(in crate::server) struct LinkTls {
    source: Arc<Reloadable>,
    /// This server connects through it.
    connects: bool,
    /// Links without it are refused.
    is_demanded: bool,
    verifies_host: bool,
    verifies_host_of_client: bool,
    allowed_names: Vec<String>,
    deadline: Duration,
    slow: Semaphore,
}

impl LinkTls {
    /// As the keys say.
    pub(in crate::server) fn new(config: &PeerTlsConfig, source: Arc<Reloadable>) -> Self {
        Self {
            source,
            connects: config.is_on,
            is_demanded: config.is_demanded(),
            verifies_host: config.verifies_host,
            verifies_host_of_client: config.verifies_host_of_client,
            allowed_names: config.allowed_names.clone(),
            deadline: Duration::from_millis(config.listener.handshake_timeout_ms.into()),
            slow: Semaphore::new(SLOW_HANDSHAKES_MAX),
        }
    }

    /// As the keys say, for connections to ZooKeeper's servers, which all go through it.
    pub(in crate::server) fn to_zookeeper(config: &PeerTlsConfig, source: Arc<Reloadable>) -> Self {
        Self { connects: true, ..Self::new(config, source) }
    }

    /// What it goes by.
    pub(in crate::server) fn source(&self) -> &Arc<Reloadable> {
        &self.source
    }

    /// Whether links without it are refused.
    pub(in crate::server) fn is_demanded(&self) -> bool {
        self.is_demanded
    }

    /// Takes a connection, which may begin with a handshake.
    ///
    /// # Errors
    /// The handshake failed, or nothing came in time.
    pub(in crate::server) async fn accept(&self, stream: TcpStream) -> io::Result<Stream> {
        timeout(self.deadline, async {
            match begins_with_tls(&stream).await? {
                Some(true) => self.shake_hands(stream).await,
                Some(false) | None => Ok(Stream::Plain(stream)),
            }
        })
        .await?
    }

    async fn shake_hands(&self, stream: TcpStream) -> io::Result<Stream> {
        let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let loaded = self.source.current();
        let config = Arc::clone(&loaded.config);
        // The signature is made here.
        let answer = if loaded.is_rsa {
            let _turn = self.slow.acquire().await.map_err(io::Error::other)?;
            let signed = spawn_blocking(Task::Handshake, move || start.into_stream(config)).await;
            signed.map_err(io::Error::other)?
        } else {
            start.into_stream(config)
        };
        Ok(Stream::Tls(Box::new(TlsStream::Server(answer.await?))))
    }

    /// Begins TLS on a connection that was made to that host, if that is to be.
    ///
    /// # Errors
    /// The handshake failed, or took too long.
    pub(in crate::server) async fn connect(
        &self,
        stream: TcpStream,
        host: &str,
    ) -> io::Result<Stream> {
        let loaded = self.source.current();
        let Some(client) = loaded.client.filter(|_| self.connects) else {
            return Ok(Stream::Plain(stream));
        };
        // It says which host is meant; the certificate is looked at behind the handshake.
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let handshake = TlsConnector::from(client).connect(name, stream);
        let stream = timeout(self.deadline, handshake).await??;
        Ok(Stream::Tls(Box::new(TlsStream::Client(stream))))
    }

    /// Whether the other side of a connection has a certificate of the server that is to be at one of these hosts.
    ///
    /// # Errors
    /// In words: it has not.
    pub(in crate::server) async fn judge(
        &self,
        stream: &Stream,
        hosts: &[String],
        is_client: bool,
    ) -> Result<(), String> {
        if !stream.is_tls() || !self.verifies_host || (is_client && !self.verifies_host_of_client) {
            return Ok(());
        }
        let Some(certificate) = stream.certificate() else {
            // That it need not show one is what the configuration says.
            return Ok(());
        };
        if self.is_of(certificate, hosts).await {
            return Ok(());
        }
        // Both sides show it: no more of it than a line takes.
        let subject = subject::of_certificate(certificate).unwrap_or_else(|reason| reason);
        let subject: String = subject.chars().take(SUBJECT_SHOWN_MAX).collect();
        Err(format!(
            "its certificate ({subject}) names none of {}: a subject alternative name must, or one of \
             lockkeeper.ssl.quorum.allowedNames",
            if hosts.is_empty() { "the hosts of a member".to_owned() } else { hosts.join(", ") },
        ))
    }

    async fn is_of(&self, certificate: &CertificateDer<'_>, hosts: &[String]) -> bool {
        if self.allowed_names.iter().chain(hosts).any(|host| names(certificate, host)) {
            return true;
        }
        for host in hosts {
            // The port says nothing here.
            let addresses = timeout(PEER_CONNECT_MAX, lookup_host((host.as_str(), 0))).await;
            let Ok(Ok(mut addresses)) = addresses else { continue };
            if addresses.any(|address| names(certificate, &address.ip().to_string())) {
                return true;
            }
        }
        false
    }
}
