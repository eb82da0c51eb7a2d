//! What a client does for TLS.
//!
//! *Owns* the configuration of one, and its end of a connection over any socket. *Invariants*: a server is taken only
//! if the trust store vouches for its certificate, and that names the host, unless that was switched off; a read that
//! has nothing to give behaves as the socket does, so a loop over sockets that do not wait needs to know nothing.
//! *Never* tries plain text where TLS was asked for.
//! Reproduces `ClientX509Util` and `ZKTrustManager`.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme,
};

use super::TlsError;
use super::listener::{NO_REVOKER, protocols, provider, revocation_lists};
use super::stores::Store;
use super::trust::Trust;

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientSettings {
    /// Its key, for servers that ask for a certificate.
    pub(crate) key_store: Option<Store>,
    /// What it trusts.
    pub(crate) trust_store: Store,
    /// Whether a certificate must name the host.
    pub(crate) verifies_host: bool,
    /// Versions by their Java names; empty: all that there are.
    pub(crate) protocols: Vec<String>,
    /// Suites by their Java names; empty: all that there are.
    pub(crate) cipher_suites: Vec<String>,
    /// File of revocation lists, PEM or one of DER.
    pub(crate) crl_file: Option<PathBuf>,
}

impl ClientSettings {
    /// Of one that shows no certificate, and does all that there is.
    pub(crate) fn trusting(trust_store: Store) -> Self {
        let (protocols, cipher_suites) = (Vec::new(), Vec::new());
        let (key_store, crl_file) = (None, None);
        Self { key_store, trust_store, verifies_host: true, protocols, cipher_suites, crl_file }
    }
}

/// The configuration of a client.
///
/// # Errors
/// A file is at fault.
pub(crate) fn client_config(settings: &ClientSettings) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = provider(&settings.cipher_suites)?;
    let store = &settings.trust_store;
    let trust = Trust::of(store)?;
    let algorithms = provider.signature_verification_algorithms;
    let lists = match &settings.crl_file {
        None => None,
        Some(path) => Some((path, revocation_lists(path)?)),
    };
    let revokes = lists.is_some();
    let chain = match (trust.authorities.is_empty(), lists) {
        (true, Some((path, _))) => return Err(TlsError::of(path, NO_REVOKER)),
        (true, None) => None,
        (false, lists) => {
            let authorities = Arc::clone(&trust.authorities);
            let mut chain =
                WebPkiServerVerifier::builder_with_provider(authorities, Arc::clone(&provider));
            let mut path = &store.path;
            if let Some((list, lists)) = lists {
                chain = chain.with_crls(lists).allow_unknown_revocation_status();
                path = list;
            }
            Some(chain.build().map_err(|error| TlsError::of(path, error))?)
        }
    };
    let verifies_host = settings.verifies_host;
    let verifier = Arc::new(ServerVerifier { chain, trust, revokes, verifies_host, algorithms });
    let keys = provider.key_provider;
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&protocols(&settings.protocols)?)
        .map_err(|error| TlsError::general(format!("protocols and cipher suites: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let Some(store) = &settings.key_store else {
        return Ok(Arc::new(config.with_no_client_auth()));
    };
    let entry = store.key()?;
    let key = keys.load_private_key(entry.key).map_err(|error| {
        TlsError::of(&store.path, format!("its private key cannot be used: {error}"))
    })?;
    let shown = SingleCertAndKey::from(CertifiedKey::new(entry.chain, key));
    Ok(Arc::new(config.with_client_cert_resolver(Arc::new(shown))))
}

/// As Java: a certificate is trusted by its issuer, or because it is in the trust store itself; the name may not
/// matter.
#[derive(Debug)]
struct ServerVerifier {
    /// What authorities vouch for, if there are any.
    chain: Option<Arc<WebPkiServerVerifier>>,
    trust: Trust,
    /// Whether certificates can be revoked: then each has an authority that says so.
    revokes: bool,
    verifies_host: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.revokes && self.trust.holds(certificate, now) {
            if self.verifies_host {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        let chain = self.chain.as_ref();
        let chain = chain.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        match chain.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The name is what is looked at last.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.verifies_host => Ok(ServerCertVerified::assertion()),
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// A session of TLS with this host.
///
/// # Errors
/// The host is no name that a certificate could have.
pub(crate) fn session(config: &Arc<ClientConfig>, host: &str) -> io::Result<ClientConnection> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)
}

/// A client's end of a connection, with or without TLS.
#[derive(Debug)]
pub(crate) struct ClientLine<S> {
    stream: S,
    session: Option<Box<ClientConnection>>,
    /// Whether reads of the socket wait.
    waits: bool,
}

impl<S: Read + Write> ClientLine<S> {
    /// Over a socket whose reads wait.
    pub(crate) fn new(stream: S, session: Option<ClientConnection>) -> Self {
        Self { stream, session: session.map(Box::new), waits: true }
    }

    /// Over the same as another kind of socket, whose reads do not wait from now on.
    pub(crate) fn without_waiting<T>(self, change: impl FnOnce(S) -> T) -> ClientLine<T> {
        ClientLine { stream: change(self.stream), session: self.session, waits: false }
    }

    /// The socket.
    pub(crate) fn socket(&mut self) -> &mut S {
        &mut self.stream
    }

    fn read_encrypted(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Self { stream, session: Some(session), waits } = self else { return Ok(0) };
        let mut filled = 0;
        loop {
            match session.reader().read(&mut out[filled..]) {
                Ok(0) => return Ok(filled),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) if filled > 0 => return Ok(filled),
                Err(error) => return Err(error),
            }
            if filled == out.len() || (filled > 0 && *waits) {
                return Ok(filled);
            }
            write_out(session, stream)?;
            match session.read_tls(stream) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && filled > 0 => {
                    return Ok(filled);
                }
                Err(error) => return Err(error),
            }
            if let Err(error) = session.process_new_packets() {
                // The server is told why, as far as that is possible.
                let _ = write_out(session, stream);
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
    }
}

/// Writes what the session has to say, as far as the socket takes it.
fn write_out(session: &mut ClientConnection, stream: &mut impl Write) -> io::Result<()> {
    while session.wants_write() {
        match session.write_tls(stream) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl<S: Read + Write> Read for ClientLine<S> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.session {
            None => self.stream.read(out),
            Some(_) if out.is_empty() => Ok(0),
            Some(_) => self.read_encrypted(out),
        }
    }
}

impl<S: Read + Write> Write for ClientLine<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return self.stream.write(bytes) };
        write_out(session, &mut self.stream)?;
        let taken = session.writer().write(bytes)?;
        write_out(session, &mut self.stream)?;
        match taken {
            0 if !bytes.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    /// Hands on what was taken; what the socket does not take stays, and is for the next call.
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.session {
            Some(session) => write_out(session, &mut self.stream),
            None => Ok(()),
        }
    }
}
