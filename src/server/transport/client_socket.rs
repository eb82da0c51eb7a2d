//! A client's socket before its session is known, with or without TLS.
//!
//! *Owns* the stream until it is split. *Invariants*: what is read has been decrypted and what is written is encrypted,
//! if there is TLS at all; the first byte decides where a port takes both.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::client_tls;
use super::handshakes::Handshakes;
use crate::proto::Text;
use crate::server::limits::SUBJECT_BYTES_MAX;
use crate::tls::{Loaded, Reloadable, Session, begins_with_tls, subject};
use crate::tree::acl::Identity;

/// What is said of a client that does not begin TLS where nothing else is spoken.
const SPEAKS_PLAIN: &str = "it speaks plain text to a port of TLS";

/// What a port speaks.
#[derive(Clone, Debug)]
pub(crate) enum Protection {
    /// Plain text.
    Plain,
    /// TLS.
    Tls(Arc<Reloadable>),
    /// TLS with those that begin it, plain text with others.
    Either(Arc<Reloadable>),
}

/// An accepted socket.
#[derive(Debug)]
pub(in crate::server) struct Socket {
    stream: TcpStream,
    tls: Option<Session>,
}

impl Socket {
    /// Begins TLS if that is what the port speaks, and waits until its handshake is over. `None`: the client has said
    /// nothing and left.
    ///
    /// # Errors
    /// The client is gone, or was refused.
    pub(in crate::server) async fn open(
        stream: TcpStream,
        protection: Protection,
        handshakes: &Handshakes,
    ) -> io::Result<Option<Self>> {
        let (source, is_plain_taken) = match &protection {
            Protection::Plain => return Ok(Some(Self { stream, tls: None })),
            Protection::Tls(source) => (source, false),
            Protection::Either(source) => (source, true),
        };
        let Ok(Some(is_tls)) = begins_with_tls(&stream).await else { return Ok(None) };
        if !is_tls {
            return match is_plain_taken {
                true => Ok(Some(Self { stream, tls: None })),
                false => Err(io::Error::new(io::ErrorKind::InvalidData, SPEAKS_PLAIN)),
            };
        }
        let Loaded { config, is_rsa, .. } = source.current();
        let session = client_tls::begin(config).map_err(io::Error::other)?;
        let elsewhere = is_rsa.then_some(&handshakes.slow);
        let deadline = handshakes.deadline;
        let _going = handshakes.begin();
        let session = match timeout(deadline, session.handshake(&stream, elsewhere)).await {
            Ok(session) => session?,
            Err(_) => {
                let reason = format!("it was not over within {} ms", deadline.as_millis());
                return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
            }
        };
        Ok(Some(Self { stream, tls: Some(session) }))
    }

    /// What its client has proved by its certificate.
    ///
    /// # Errors
    /// The certificate has a subject that cannot be read, or is longer than [`SUBJECT_BYTES_MAX`].
    pub(in crate::server) fn proven(&self, super_user: Option<&str>) -> io::Result<Vec<Identity>> {
        let shown = self.tls.as_ref().and_then(|tls| tls.peer_certificates());
        let Some(certificate) = shown.and_then(<[_]>::first) else { return Ok(Vec::new()) };
        let unfit = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
        let subject = subject::of_certificate(certificate).map_err(unfit)?;
        if subject.len() > SUBJECT_BYTES_MAX {
            let reason =
                format!("the subject of the certificate is longer than {SUBJECT_BYTES_MAX} bytes");
            return Err(unfit(reason));
        }
        let id = Text::from(subject);
        let mut proven = vec![Identity { scheme: Text::from_static("x509"), id: id.clone() }];
        if super_user == Some(id.as_str()) {
            proven.push(Identity { scheme: Text::from_static("super"), id });
        }
        Ok(proven)
    }

    /// Appends what has come. 0: the client has ended it.
    pub(in crate::server) async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        let Self { stream, tls } = self;
        match tls {
            None => tokio::io::AsyncReadExt::read_buf(stream, buffer).await,
            Some(tls) => poll_fn(|context| tls.poll_read(stream, context, buffer)).await,
        }
    }

    /// Writes all of it, and that nothing comes behind it.
    pub(in crate::server) async fn write_last(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Self { stream, tls } = self;
        let Some(tls) = tls else {
            return tokio::io::AsyncWriteExt::write_all(stream, bytes).await;
        };
        while !bytes.is_empty() {
            let taken = tls.take(bytes)?;
            bytes = &bytes[taken..];
            poll_fn(|context| tls.poll_flush(stream, context)).await?;
        }
        tls.send_close_notify();
        poll_fn(|context| tls.poll_flush(stream, context)).await
    }

    /// Its halves, and the session of TLS.
    pub(in crate::server) fn into_parts(self) -> (OwnedReadHalf, OwnedWriteHalf, Option<Session>) {
        let (reader, writer) = self.stream.into_split();
        (reader, writer, self.tls)
    }
}
