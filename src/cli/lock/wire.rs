//! What the supervisor and the watchdog of `lockkeeper lock` say to each other, a line each.
//!
//! *Owns* [`Order`] and [`News`] and the socket pair's first message, which hands over the command's
//! standard input. Both ends are the same binary, so a line that makes no sense is a defect: it is
//! taken as the end of the conversation.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::recipes::BootTime;

/// To the watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The lock is held until then.
    Deadline(BootTime),
    /// Hand this signal to the command.
    Signal(i32),
    /// Others may hold the lock already.
    Lost,
}

/// To the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The command runs; its process group has this number.
    Started(i32),
    /// It cannot be executed: the error of the operating system.
    Cannot(i32),
    /// It was told to end, because the lock will be lost.
    Told,
    /// It has ended with this code.
    Exited(i32),
    /// It was ended by this signal.
    Killed(i32),
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline(at) => write!(f, "deadline {}", nanos(*at)),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Lost => f.write_str("lost 0"),
        }
    }
}

impl FromStr for Order {
    type Err = NoSense;

    fn from_str(line: &str) -> Result<Self, NoSense> {
        match line.split_once(' ').ok_or(NoSense)? {
            ("deadline", at) => Ok(Self::Deadline(moment(at)?)),
            ("signal", signal) => Ok(Self::Signal(signal.parse().map_err(|_| NoSense)?)),
            ("lost", _) => Ok(Self::Lost),
            _ => Err(NoSense),
        }
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(group) => write!(f, "started {group}"),
            Self::Cannot(error) => write!(f, "cannot {error}"),
            Self::Told => f.write_str("told 0"),
            Self::Exited(code) => write!(f, "exited {code}"),
            Self::Killed(signal) => write!(f, "killed {signal}"),
        }
    }
}

impl FromStr for News {
    type Err = NoSense;

    fn from_str(line: &str) -> Result<Self, NoSense> {
        let (word, number) = line.split_once(' ').ok_or(NoSense)?;
        let number = number.parse().map_err(|_| NoSense)?;
        match word {
            "started" => Ok(Self::Started(number)),
            "cannot" => Ok(Self::Cannot(number)),
            "told" => Ok(Self::Told),
            "exited" => Ok(Self::Exited(number)),
            "killed" => Ok(Self::Killed(number)),
            _ => Err(NoSense),
        }
    }
}

/// The line is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this makes no sense")]
pub(super) struct NoSense;

/// A moment as text. Both processes read the same clock.
pub(super) fn nanos(at: BootTime) -> u128 {
    at.since_boot().as_nanos()
}

/// What [`nanos`] made.
pub(super) fn moment(text: &str) -> Result<BootTime, NoSense> {
    let nanos: u64 = text.parse().map_err(|_| NoSense)?;
    Ok(BootTime::at(Duration::from_nanos(nanos)))
}

/// Hands an open file to the other end.
pub(super) fn send_file(socket: &UnixStream, file: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("no room for one file"));
    }
    sendmsg(socket.as_fd(), &[IoSlice::new(b"f")], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Takes what [`send_file`] sent.
pub(super) fn receive_file(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut slices = [IoSliceMut::new(&mut byte)];
    recvmsg(socket.as_fd(), &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut files) = message
            && let Some(file) = files.next()
        {
            return Ok(file);
        }
    }
    Err(io::Error::other("the supervisor has handed over no file"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn every_line_is_read_as_it_was_meant() {
        let at = BootTime::at(Duration::from_nanos(1_234_567_890_123));
        for order in [Order::Deadline(at), Order::Signal(15), Order::Lost] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for news in
            [News::Started(7), News::Cannot(2), News::Told, News::Exited(3), News::Killed(9)]
        {
            assert_eq!(news.to_string().parse(), Ok(news));
        }
        for line in ["", "lost", "signal x", "deadline -1", "more 1"] {
            assert_eq!(line.parse::<Order>(), Err(NoSense), "{line}");
        }
    }

    #[test]
    fn a_file_is_handed_over() {
        let (here, there) = UnixStream::pair().unwrap();
        let (mut left, right) = UnixStream::pair().unwrap();
        send_file(&here, right.as_fd()).unwrap();
        drop(right);
        let mut right = UnixStream::from(receive_file(&there).unwrap());
        left.write_all(b"x").unwrap();
        let mut byte = [0];
        right.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }
}
