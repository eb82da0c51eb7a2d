//! A stream that ends where nothing moves for too long.
//!
//! *Owns* the idle limit of HTTP connections, in both directions: a client that sends nothing and a
//! client that reads nothing are cut alike. Reproduces Jetty's connector idle timeout.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream with an idle limit.
#[derive(Debug)]
pub(super) struct IdleStream<S> {
    stream: S,
    limit: Duration,
    deadline: Pin<Box<Sleep>>,
}

impl<S> IdleStream<S> {
    /// Puts a limit on a stream; the clock starts now.
    pub(super) fn new(stream: S, limit: Duration) -> IdleStream<S> {
        IdleStream { stream, limit, deadline: Box::pin(tokio::time::sleep(limit)) }
    }

    /// Progress moves the deadline; no progress until then is an error.
    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.deadline.as_mut().reset(Instant::now() + self.limit);
            return poll;
        }
        if self.deadline.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for IdleStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.watch(context, poll)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for IdleStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, poll)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.watch(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const LIMIT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn a_peer_that_sends_nothing_is_an_error() {
        let (_peer, stream) = tokio::io::duplex(16);
        let error = IdleStream::new(stream, LIMIT).read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_peer_that_reads_nothing_is_an_error() {
        let (_peer, stream) = tokio::io::duplex(16);
        let error = IdleStream::new(stream, LIMIT).write_all(&[0; 17]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn progress_restarts_the_clock() {
        let (mut peer, stream) = tokio::io::duplex(16);
        let mut stream = IdleStream::new(stream, LIMIT);
        for byte in 0..3 {
            peer.write_u8(byte).await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), byte);
            let error = stream.read_u8().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
    }
}
