//! What every loop over many sockets does: see to new ones, wait, and not wait for ever.

use std::io;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::Fault;

/// Longest silence of the servers while something is to come from them; beyond it the run fails.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Longest wait for sockets, and time between two looks at what else there is to do.
pub const LOOK: Duration = Duration::from_millis(50);
/// Events taken from the kernel at a time.
const EVENTS_MAX: usize = 1024;

/// Room for what one wait brings.
#[must_use]
pub fn events() -> Events {
    Events::with_capacity(EVENTS_MAX)
}

/// Hears of the socket from now on, by this number.
///
/// # Errors
/// The operating system's.
pub fn register(poll: &Poll, stream: &mut TcpStream, number: usize) -> Result<(), Fault> {
    poll.registry()
        .register(stream, Token(number), Interest::READABLE | Interest::WRITABLE)
        .map_err(Fault::epoll)
}

/// Waits until something happens, and no longer than so long. There may be no event.
///
/// # Errors
/// The operating system's.
pub fn wait(poll: &mut Poll, events: &mut Events, most: Duration) -> Result<(), Fault> {
    match poll.poll(events, Some(most)) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(Fault::epoll(e)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether the servers have been silent for too long, if `hold` of it was to be expected.
pub(super) fn check_silence(last: Instant, now: Instant, hold: Duration) -> Result<(), Fault> {
    if now.duration_since(last) > SILENCE_MAX + hold {
        return Err(Fault::Unreachable(format!("no answer for {} s", SILENCE_MAX.as_secs())));
    }
    Ok(())
}
