//! The body of an answer: text that is there, or a stream that another thread makes.
//!
//! *Owns* what the connection is said to be doing while a stream is on its way: the client has its time for each piece
//! anew, and the server for making the next one. *Invariant*: a stream that breaks off ends the connection, so that no
//! client takes a part for the whole. *Never* holds more of a stream than its channel.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::mpsc;

use super::idle::{Activity, Phase};
use crate::admin::BackupPiece;

/// See the module.
#[derive(Debug)]
pub(in crate::admin) struct AnswerBody {
    content: Content,
    activity: Option<Arc<Activity>>,
}

#[derive(Debug)]
enum Content {
    Whole(Full<Bytes>),
    Stream(mpsc::Receiver<BackupPiece>),
}

impl AnswerBody {
    /// All of it.
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { content: Content::Whole(Full::new(bytes.into())), activity: None }
    }

    /// What comes from there, until it is closed.
    pub(in crate::admin) fn stream(pieces: mpsc::Receiver<BackupPiece>) -> Self {
        Self { content: Content::Stream(pieces), activity: None }
    }

    /// On this connection.
    pub(super) fn on(self, activity: &Arc<Activity>) -> Self {
        Self { activity: Some(Arc::clone(activity)), ..self }
    }

    fn does(&self, phase: Phase) {
        if let Some(activity) = &self.activity {
            activity.set(phase);
        }
    }
}

/// A stream broke off: the client sees its connection end.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(in crate::admin) struct Broken(String);

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut self.content {
            Content::Whole(whole) => {
                let frame = ready!(Pin::new(whole).poll_frame(context));
                Poll::Ready(frame.map(|frame| frame.map_err(|never: Infallible| match never {})))
            }
            Content::Stream(pieces) => {
                let polled = pieces.poll_recv(context);
                self.does(if polled.is_ready() { Phase::Writing } else { Phase::Answering });
                let piece = ready!(polled);
                Poll::Ready(piece.map(|piece| piece.map(Frame::data).map_err(Broken)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(whole) => whole.is_end_stream(),
            Content::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(whole) => whole.size_hint(),
            Content::Stream(_) => SizeHint::default(),
        }
    }
}
