//! One client connection: bytes to requests, answers to bytes.
//!
//! *Owns* the socket from its acceptance to its close. *Invariants*: the first four bytes are a
//! four-letter word or the length of a ConnectRequest; behind that one nothing is read until the
//! session is answered; requests reach the driver in the order in which they arrived, many in one
//! message, and whatever is queued leaves in one write; the driver learns of every end of a
//! connection that it was told of, once. *Never* answers a request itself, and never looks into
//! one beyond decoding it. Reproduces `NIOServerCnxn`.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{timeout, timeout_at};

use super::admission;
use super::context::ServerContext;
use super::first_frame::{self, First};
use super::in_flight::InFlight;
use super::place::Place;
use super::read_buffer::Intake;
use super::share::Share;
use crate::proto::{OpCode, frame};
use crate::replica::{AnsweredList, ClientRequest, ConnId, Input};
use crate::server::io_threads::Assignment;
use crate::server::limits::{
    FAREWELL_MAX, LINGER_BYTES_MAX, LINGER_MAX, REQUEST_BYTES_PER_MESSAGE_MAX,
    REQUESTS_PER_MESSAGE_MAX, WRITE_SLICES_MAX,
};
use crate::server::mailbox::{End, Line, Message, Outbox};
use crate::server::transport::{Handshakes, Protection, Socket};
use crate::supervision::{self, Task};
use crate::tls::Session;
use crate::tree::acl::Identity;

/// Serves one accepted connection until it ends. `place`: what it counts as until its socket is closed, and whose
/// thread this is.
pub(super) async fn serve(
    (stream, protection): (TcpStream, Protection),
    remote: SocketAddr,
    conn: ConnId,
    server: Arc<ServerContext>,
    place: Place,
) {
    let mut buffer = BytesMut::new();
    let deadline = Instant::now() + server.limits.sessionless_timeout;
    let local = stream.local_addr().ok().map(|local| local.ip().to_canonical());
    let opening = Box::pin(open(stream, protection, &server.handshakes));
    let (mut socket, proven) = match timeout_at(deadline.into(), opening).await {
        Ok(Ok(Some(open))) => open,
        Ok(Ok(None)) => return,
        Ok(Err(error)) => return server.handshakes.refused(remote.ip(), &error),
        Err(_) => return server.figures.counts.connections_cut_sessionless.add(1),
    };
    if proven.is_empty() {
        server.figures.non_mtls(remote.ip(), local);
    }
    // What is rare or over soon is boxed: the task is as large as the largest thing that it ever does.
    let first = first_frame::read(&mut socket, &mut buffer, remote, &server, &place.arrival);
    let first = Box::pin(first);
    let request = match timeout_at(deadline.into(), first).await {
        Ok(First::Session(request)) => request,
        Ok(First::Word(answer)) => return Box::pin(say_and_close(socket, &answer, &server)).await,
        Ok(First::Nothing) => return,
        Err(_) => {
            server.figures.counts.connections_cut_sessionless.add(1);
            return;
        }
    };
    let (reader, writer, tls) = socket.into_parts();
    let line = Arc::new(Line {
        outbox: Outbox::new(&server.limits, Arc::clone(&server.figures.outgoing)),
        writer,
        is_plain: tls.is_none(),
        thread: place.thread.as_ref().map(Assignment::way),
        place: Some(Box::new(place)),
    });
    let hang_up = HangUp(Arc::clone(&line));
    let (remote, remote_port) = (remote.ip(), remote.port());
    let input = Input::Connected { conn, remote, remote_port, proven, request };
    let open = Message::Open { conn, line: Arc::clone(&line), input };
    if server.driver.send(open).await.is_err() {
        return;
    }
    let registered = Registered { conn, driver: server.driver.clone() };
    let mut connection = Connection::new(conn, (reader, tls, buffer), &line, &server);
    let is_peer_reading = connection.run().await;
    // What it held is free for others at once, and the driver knows.
    let (mut reader, end) = connection.leave();
    drop(registered);
    if is_peer_reading {
        Box::pin(linger(&mut reader)).await;
    } else if end.is_none() {
        // The client has left, perhaps with thousands: to close its socket takes the longest.
        server.admission.leaving.pass().await;
    }
    drop(hang_up);
}

/// An open socket, and what its client has proved. `None`: it has left without a word.
async fn open(
    stream: TcpStream,
    protection: Protection,
    handshakes: &Handshakes,
) -> io::Result<Option<(Socket, Vec<Identity>)>> {
    let Some(socket) = Socket::open(stream, protection, handshakes).await? else { return Ok(None) };
    let proven = socket.proven(handshakes.super_user.as_deref())?;
    Ok(Some((socket, proven)))
}

/// Closes the socket, also while others still hold the line.
struct HangUp(Arc<Line>);

impl Drop for HangUp {
    fn drop(&mut self) {
        // Fails if the peer was faster.
        let _ = SockRef::from(self.0.writer.as_ref()).shutdown(Shutdown::Both);
    }
}

async fn say_and_close(mut socket: Socket, answer: &[u8], server: &ServerContext) {
    if let Ok(Ok(())) = timeout(FAREWELL_MAX, socket.write_last(answer)).await {
        server.figures.counts.bytes_sent.add(answer.len() as u64);
        linger(&mut socket.into_parts().0).await;
    }
}

/// A connection that the driver knows. Dropping it tells the driver of its end, also when the task
/// is cancelled or panics.
struct Registered {
    conn: ConnId,
    driver: mpsc::Sender<Message>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let closed = Message::Input(Input::Closed { conn: self.conn });
        // A full queue is the rare case; a closed one means that the driver has ended.
        if let Err(mpsc::error::TrySendError::Full(closed)) = self.driver.try_send(closed)
            && tokio::runtime::Handle::try_current().is_ok()
        {
            let driver = self.driver.clone();
            supervision::spawn(Task::Notice, async move { driver.send(closed).await.ok() });
        }
    }
}

struct Connection<'a> {
    conn: ConnId,
    reader: OwnedReadHalf,
    /// What encrypts it.
    tls: Option<Session>,
    line: &'a Arc<Line>,
    server: &'a ServerContext,
    in_flight: InFlight,
    intake: Intake,
    /// What of it counts.
    share: Share<'a>,
    /// Whether that may hold a whole frame.
    has_unread_frames: bool,
    /// Whether a frame came that no client may send.
    is_malformed: bool,
    /// Whether there was nothing to read when it last looked.
    has_read_all: bool,
    /// When something was there to read.
    heard: Instant,
    /// Whether it was silent before that.
    was_quiet: bool,
    /// Where it waits if it was silent, and many others are heard from with it.
    turn: admission::Place,
    /// What was taken from the outbox and is not written yet.
    unwritten: VecDeque<Vec<u8>>,
    unwritten_bytes: usize,
    /// When the requests were read that they answer.
    answered: Option<Box<AnsweredList>>,
    /// Bytes of the first of them that are written.
    head_written: usize,
    /// Whether the session was answered.
    is_attached: bool,
    /// Whether the replica waits to hear that everything is written.
    wants_room: bool,
    end: Option<End>,
}

/// What to do next.
enum Next {
    /// Decode: whole frames may be there and may be handed on.
    Decode,
    /// Everything is written, and the replica waits to hear of it.
    Room,
    /// Nothing comes behind what is queued: write it, and close.
    Farewell,
    /// The connection is of no use any more: drop it.
    Drop,
}

impl<'a> Connection<'a> {
    /// A connection whose session is asked for. `buffer`: what has come behind that.
    fn new(
        conn: ConnId,
        (reader, tls, buffer): (OwnedReadHalf, Option<Session>, BytesMut),
        line: &'a Arc<Line>,
        server: &'a ServerContext,
    ) -> Self {
        Self {
            conn,
            reader,
            tls,
            line,
            server,
            in_flight: InFlight::new(Arc::clone(&server.throttle)),
            intake: Intake::new(buffer),
            share: Share::new(server, conn),
            has_unread_frames: true,
            is_malformed: false,
            has_read_all: false,
            heard: Instant::now(),
            was_quiet: false,
            turn: admission::Place::default(),
            unwritten: VecDeque::new(),
            unwritten_bytes: 0,
            answered: None,
            head_written: 0,
            is_attached: false,
            wants_room: false,
            end: None,
        }
    }

    /// Runs until the end. True if the peer deserves to see the last bytes.
    async fn run(&mut self) -> bool {
        loop {
            match poll_fn(|context| self.poll_next(context)).await {
                Next::Decode => {
                    let goes_on = self.decode().await;
                    self.share.set(self.intake.buffer.len(), self.line);
                    if !goes_on {
                        return false;
                    }
                }
                Next::Room => {
                    self.wants_room = false;
                    let room = Message::Input(Input::Room { conn: self.conn });
                    if self.server.driver.send(room).await.is_err() {
                        return false;
                    }
                }
                Next::Farewell => {
                    let last = timeout(FAREWELL_MAX, poll_fn(|context| self.poll_last(context)));
                    return matches!(last.await, Ok(Ok(())));
                }
                Next::Drop => return false,
            }
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        loop {
            let may_read = self.poll_take(context);
            match self.poll_write(context) {
                Poll::Ready(Ok(())) => self.note_answered(),
                Poll::Ready(Err(_)) => return Poll::Ready(Next::Drop),
                Poll::Pending => {}
            }
            match self.end {
                Some(End::AfterBytes) => return Poll::Ready(Next::Farewell),
                Some(End::TooSlow) => return Poll::Ready(Next::Drop),
                None => {}
            }
            if self.wants_room && self.unwritten.is_empty() {
                return Poll::Ready(Next::Room);
            }
            if !may_read {
                if self.may_read() {
                    continue;
                }
                return Poll::Pending;
            }
            if self.has_unread_frames {
                return Poll::Ready(Next::Decode);
            }
            match ready!(self.poll_read(context)) {
                Ok(0) | Err(_) => return Poll::Ready(Next::Drop),
                Ok(_) => self.has_unread_frames = true,
            }
        }
    }

    /// Takes everything that is queued: only then is the task woken for more. Says whether it may
    /// read now; if it may not, every answer wakes it.
    fn poll_take(&mut self, context: &Context<'_>) -> bool {
        loop {
            let may_read = self.may_read();
            if self.end.is_some() {
                return false;
            }
            let is_driver_free_to_write = may_read && self.line.is_open_to_driver();
            let taken = self.line.outbox.poll_take(context, is_driver_free_to_write);
            let Poll::Ready(taken) = taken else {
                return may_read;
            };
            self.is_attached = true;
            let answer_bytes = taken.chunks.iter().map(Vec::len).sum();
            self.in_flight.answered(taken.replies, answer_bytes);
            self.wants_room |= taken.more;
            match &mut self.answered {
                _ if taken.answered.is_empty() => {}
                Some(known) => known.extend(taken.answered),
                None => self.answered = Some(Box::new(taken.answered)),
            }
            for chunk in taken.chunks {
                self.server.figures.frames_sent(&chunk);
                self.unwritten_bytes += chunk.len();
                self.unwritten.push_back(chunk);
            }
            if taken.head_written > 0 {
                // The driver has begun to write only because nothing else was left unwritten.
                self.head_written = taken.head_written;
                self.unwritten_bytes -= taken.head_written;
            }
            self.end = taken.end;
        }
    }

    /// Everything has left.
    fn note_answered(&mut self) {
        if let Some(answered) = self.answered.take() {
            let figures = &self.server.figures;
            figures.measures.answered(&answered, figures.now_us());
        }
    }

    /// Writes what was taken. Ready when everything has left.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.tls.is_some() {
            return self.poll_encrypt(context);
        }
        while let Some(head) = self.unwritten.front() {
            let head = &head[self.head_written..];
            let stream: &TcpStream = self.line.writer.as_ref();
            let written = if self.unwritten.len() == 1 {
                stream.try_write(head)
            } else {
                let mut slices = [IoSlice::new(&[]); WRITE_SLICES_MAX];
                slices[0] = IoSlice::new(head);
                let rest = self.unwritten.iter().skip(1);
                for (slice, chunk) in slices[1..].iter_mut().zip(rest) {
                    *slice = IoSlice::new(chunk);
                }
                stream.try_write_vectored(&slices)
            };
            match written {
                Ok(written) => self.wrote(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(stream.poll_write_ready(context))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The same through TLS. What it has taken counts as written.
    fn poll_encrypt(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let Some(tls) = &mut self.tls else { return Poll::Ready(Ok(())) };
            let stream: &TcpStream = self.line.writer.as_ref();
            let Some(head) = self.unwritten.front() else { return tls.poll_flush(stream, context) };
            match tls.take(&head[self.head_written..])? {
                // It has no room.
                0 => ready!(tls.poll_flush(stream, context))?,
                taken => self.wrote(taken),
            }
        }
    }

    /// As [`Self::poll_write`], behind which nothing comes; an error if it is cut off meanwhile.
    fn poll_last(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.line.outbox.poll_cut_off(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
            Poll::Pending => {
                ready!(self.poll_write(context))?;
                self.note_answered();
                match &mut self.tls {
                    None => Poll::Ready(Ok(())),
                    Some(tls) => {
                        tls.send_close_notify();
                        tls.poll_flush(self.line.writer.as_ref(), context)
                    }
                }
            }
        }
    }

    /// Gives back what it held but for the socket.
    fn leave(self) -> (OwnedReadHalf, Option<End>) {
        self.line.outbox.cut_off();
        (self.reader, self.end)
    }

    fn wrote(&mut self, written: usize) {
        self.line.outbox.written(written);
        self.server.figures.counts.bytes_sent.add(written as u64);
        self.unwritten_bytes -= written;
        self.head_written += written;
        while let Some(head) = self.unwritten.front()
            && self.head_written >= head.len()
        {
            self.head_written -= head.len();
            self.unwritten.pop_front();
        }
    }

    fn may_read(&self) -> bool {
        self.room() > 0
    }

    /// How many requests may be handed on now.
    fn room(&self) -> usize {
        let bytes_max = self.server.limits.outgoing_bytes_soft_max;
        match bytes_max.checked_sub(self.unwritten_bytes) {
            Some(left) if self.is_attached => self.in_flight.room(left),
            Some(_) | None => 0,
        }
    }

    /// Ready when something may be read that it is this connection's turn to read.
    fn poll_heard(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_read_all {
            ready!(self.reader.as_ref().poll_read_ready(context))?;
            let now = Instant::now();
            self.was_quiet = self.turn.is_taken()
                || self.server.admission.idle_clients.is_quiet(self.heard, now);
            if self.was_quiet {
                ready!(self.server.admission.hearing.poll_pass(context, &mut self.turn));
            }
            self.heard = now;
            self.has_read_all = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let was_at_work = !self.has_read_all;
        ready!(self.poll_heard(context))?;
        let room = self.intake.make_room();
        let buffer = &mut self.intake.buffer;
        let read = match &mut self.tls {
            None => pin!(self.reader.read_buf(buffer)).poll(context),
            Some(tls) => tls.poll_read(self.reader.as_ref(), context, buffer),
        };
        self.has_read_all = read.is_pending();
        let read = ready!(read)?;
        if was_at_work {
            (self.heard, self.was_quiet) = (Instant::now(), false);
        }
        self.server.figures.counts.bytes_received.add(read as u64);
        self.intake.note_read(read, room);
        Poll::Ready(Ok(read))
    }

    /// Hands the whole frames in the buffer to the driver, as many as limits allow, at most one message full.
    /// False: the connection ends, because of what it sent or because it is not taken.
    async fn decode(&mut self) -> bool {
        let message = self.next_message();
        if message.is_empty() {
            return !self.is_malformed;
        }
        let sizes: Vec<u32> = message.iter().map(|request| size_of_body(&request.body)).collect();
        self.in_flight.add(&sizes);
        if self.was_quiet && message.iter().any(closes_session) {
            // Of many that do so, this is the work.
            self.server.admission.closing.pass().await;
        }
        self.server.figures.counts.packets_received.add(message.len() as u64);
        let input = Input::Requests { conn: self.conn, requests: message };
        if self.server.driver.send(Message::Input(input)).await.is_err() || self.is_malformed {
            return false;
        }
        if self.has_unread_frames && self.may_read() {
            // A client that floods the server with requests has a turn for each message, as others have.
            yield_now().await;
        }
        true
    }

    /// The next requests, at most one message full. A faulty frame ends the connection, after the
    /// requests in front of it were handed on.
    fn next_message(&mut self) -> Vec<ClientRequest> {
        let mut requests = Vec::new();
        let arrived_us = Some(self.server.figures.us_of(self.heard));
        let mut bytes = 0;
        let requests_max = self.room().min(REQUESTS_PER_MESSAGE_MAX);
        while requests.len() < requests_max && bytes < REQUEST_BYTES_PER_MESSAGE_MAX {
            let payload =
                match frame::next(&mut self.intake.buffer, self.server.limits.frame_bytes_max) {
                    Ok(Some(payload)) => payload,
                    Ok(None) => {
                        self.has_unread_frames = false;
                        break;
                    }
                    Err(frame::BadLength(length)) => {
                        self.server.figures.cut_malformed(length > 0);
                        self.is_malformed = true;
                        break;
                    }
                };
            bytes += payload.len();
            match ClientRequest::decode(payload) {
                Some(request) => requests.push(ClientRequest { arrived_us, ..request }),
                None => {
                    self.server.figures.cut_malformed(false);
                    self.is_malformed = true;
                    break;
                }
            }
        }
        requests
    }
}

fn closes_session(request: &ClientRequest) -> bool {
    request.op == OpCode::CloseSession as i32
}

fn size_of_body(body: &Bytes) -> u32 {
    u32::try_from(body.len()).unwrap_or(u32::MAX)
}

/// Closes so that the peer sees the last bytes: unread ones would turn the close into a reset,
/// which may overtake them.
async fn linger(reader: &mut OwnedReadHalf) {
    if SockRef::from(reader.as_ref()).shutdown(Shutdown::Write).is_err() {
        return;
    }
    let drain = async {
        let mut ignored = [0; 4096];
        let mut total = 0;
        while total < LINGER_BYTES_MAX {
            match reader.read(&mut ignored).await {
                Ok(0) | Err(_) => return,
                Ok(bytes) => total += bytes,
            }
        }
    };
    // Running out of time or of patience is fine: the close that follows is all there is to do.
    let _ = timeout(LINGER_MAX, drain).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the task of a connection, which every idle one costs.
    const TASK_BYTES_MAX: usize = 1536;

    fn size_of_future<A, B, C, D, E, F>(_: fn(A, B, C, D, E) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn the_task_of_an_idle_connection_is_small() {
        let bytes = size_of_future(serve);
        assert!(bytes <= TASK_BYTES_MAX, "{bytes} bytes");
    }
}
