//! A stream that ends where its peer takes too long.
//!
//! *Owns* what an HTTP connection is doing ([`Activity`]), and the time that each of that may take: a client
//! that sends nothing, half a request, or reads nothing is cut. *Invariant*: bytes that come one by one put
//! no deadline off. Reproduces Jetty's connector idle timeout, which only bounds the silence.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A request comes; the first one is expected from the beginning.
    Requesting,
    /// Nothing, between two requests.
    Idle,
    /// The server makes an answer.
    Answering,
    /// The client takes it.
    Writing,
}

/// What a connection is doing, and since when.
#[derive(Debug)]
pub(super) struct Activity(Mutex<(Phase, Instant)>);

impl Activity {
    /// Of a new connection.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new((Phase::Requesting, Instant::now()))))
    }

    pub(super) fn get(&self) -> (Phase, Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, phase: Phase) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (phase, Instant::now());
    }
}

/// How long the peer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience {
    /// For the head of a request.
    pub request: Duration,
    /// Until the next request begins.
    pub idle: Duration,
    /// To take an answer.
    pub write: Duration,
}

impl Patience {
    fn of(&self, phase: Phase) -> Option<Duration> {
        match phase {
            Phase::Requesting => Some(self.request),
            Phase::Idle => Some(self.idle),
            // That is up to the server, whose questions have bounds of their own.
            Phase::Answering => None,
            Phase::Writing => Some(self.write),
        }
    }
}

/// A stream with deadlines.
#[derive(Debug)]
pub(super) struct WatchedStream<S> {
    stream: S,
    activity: Arc<Activity>,
    patience: Patience,
    deadline: Pin<Box<Sleep>>,
}

impl<S> WatchedStream<S> {
    /// Watches a stream.
    pub(super) fn new(stream: S, activity: Arc<Activity>, patience: Patience) -> Self {
        let deadline = Box::pin(sleep_until(activity.get().1));
        Self { stream, activity, patience, deadline }
    }

    /// Waiting beyond the deadline is an error.
    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            return poll;
        }
        let (phase, since) = self.activity.get();
        let Some(patience) = self.patience.of(phase) else { return poll };
        let end = since + patience;
        if self.deadline.deadline() != end {
            self.deadline.as_mut().reset(end);
        }
        match self.deadline.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before && self.activity.get().0 == Phase::Idle {
            self.activity.set(Phase::Requesting);
        }
        self.watch(context, poll)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, poll)
    }

    /// It is asked for when everything was written.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_flush(context);
        if poll.is_ready() && self.activity.get().0 == Phase::Writing {
            self.activity.set(Phase::Idle);
        }
        self.watch(context, poll)
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PATIENCE: Patience = Patience {
        request: SECOND,
        idle: SECOND.saturating_mul(2),
        write: SECOND.saturating_mul(3),
    };

    fn stream() -> (DuplexStream, WatchedStream<DuplexStream>, Arc<Activity>) {
        let (peer, stream) = duplex(16);
        let activity = Activity::new();
        let watched = WatchedStream::new(stream, Arc::clone(&activity), PATIENCE);
        (peer, watched, activity)
    }

    /// How long it took until this failed as what takes too long does.
    async fn cut<T: std::fmt::Debug>(work: impl Future<Output = io::Result<T>>) -> Duration {
        let begun = Instant::now();
        assert_eq!(work.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        begun.elapsed()
    }

    fn about(expected: Duration, took: Duration) {
        assert!(took >= expected && took < expected + SECOND / 10, "{took:?} is not {expected:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_sends_nothing_is_cut() {
        let (_peer, mut stream, _) = stream();
        about(PATIENCE.request, cut(stream.read_u8()).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_sends_a_request_byte_by_byte_is_cut_like_one_that_sends_nothing() {
        let (mut peer, mut stream, _) = stream();
        let dribble = async {
            loop {
                sleep(SECOND / 10).await;
                if peer.write_u8(b'x').await.is_err() {
                    return;
                }
            }
        };
        let read = async {
            loop {
                if let Err(error) = stream.read_u8().await {
                    return io::Result::<()>::Err(error);
                }
            }
        };
        tokio::select! {
            () = dribble => panic!("it is not cut"),
            took = cut(read) => about(PATIENCE.request, took),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_an_answer_byte_by_byte_is_cut() {
        let (mut peer, mut stream, activity) = stream();
        activity.set(Phase::Writing);
        let dribble = async {
            loop {
                sleep(SECOND / 10).await;
                peer.read_u8().await.unwrap();
            }
        };
        tokio::select! {
            () = dribble => {}
            took = cut(stream.write_all(&[0; 1000])) => about(PATIENCE.write, took),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_behind_its_answer_and_until_the_next_request_begins() {
        let (mut peer, mut stream, activity) = stream();
        activity.set(Phase::Answering);
        stream.flush().await.unwrap();
        assert_eq!(activity.get().0, Phase::Answering);
        activity.set(Phase::Writing);
        stream.write_all(&[0; 10]).await.unwrap();
        stream.flush().await.unwrap();
        assert_eq!(activity.get().0, Phase::Idle);
        sleep(PATIENCE.idle - SECOND / 10).await;
        peer.write_u8(1).await.unwrap();
        stream.read_u8().await.unwrap();
        assert_eq!(activity.get().0, Phase::Requesting);
        about(PATIENCE.request, cut(stream.read_u8()).await);
        activity.set(Phase::Idle);
        about(PATIENCE.idle, cut(stream.read_u8()).await);
    }
}
