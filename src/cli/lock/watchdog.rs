//! The process that ends a command whose lock is about to be lost.
//!
//! *Owns* the command's process group and the clock. *Invariants*: without news from the supervisor
//! the command is told to end before the deadline, and is killed with its whole group at the
//! deadline, whatever the supervisor does: it may be stopped, swapped out or dead. The group's number
//! is not given up (the command is not reaped) before it was signalled for the last time, so no
//! stranger can be hit. Of the signals that can be caught, none ends it. *Never* talks to a server.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use clap::Parser;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::flags::OnLost;
use super::interrupts::Interrupts;
use super::wire::{News, Order, moment, receive_file};
use crate::cli::duration::duration;
use crate::cli::output::say;
use crate::recipes::BootTime;

/// The hidden command that is the watchdog.
pub(in crate::cli) const COMMAND: &str = "lock-watchdog";
/// How often the clock is looked at: it goes on during sleep, and a wait does not.
const LOOK: Duration = Duration::from_millis(50);

/// What the supervisor starts the watchdog with; its standard input is the socket between them.
#[derive(Debug, Parser)]
struct WatchdogFlags {
    #[arg(long)]
    on_lost: OnLost,
    #[arg(long, value_parser = duration)]
    grace: Duration,
    #[arg(long, value_parser = |text: &str| moment(text))]
    deadline: BootTime,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Runs the watchdog, which is started by these words.
pub(crate) fn run(words: impl Iterator<Item = OsString>) -> ExitCode {
    let flags = match WatchdogFlags::try_parse_from(words) {
        Ok(flags) => flags,
        Err(error) => {
            say(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    match watch(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("lockkeeper lock: the watchdog fails: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn watch(flags: &WatchdogFlags) -> io::Result<()> {
    // A service manager that ends all processes of a service means the command, and a process that starts
    // this as a job of a terminal that goes away does so, too. Nothing else is asked of the runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let caught = runtime.block_on(async { Interrupts::catch() })?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let input = receive_file(&socket)?;
    let mut supervisor = socket.try_clone()?;
    let mut command = Command::new(&flags.command[0]);
    command.args(&flags.command[1..]).stdin(input).process_group(0);
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            return tell(&mut supervisor, News::Cannot(error.raw_os_error().unwrap_or_default()));
        }
    };
    // The supervisor may be gone; the command is to be watched all the same.
    let group = Pid::from_child(&child);
    let _ = tell(&mut supervisor, News::Started(group.as_raw_nonzero().get()));
    let (sender, events) = channel();
    spawn_listener(socket, sender.clone());
    spawn_waiter(group, sender);
    let mut leash = Leash {
        group,
        on_lost: flags.on_lost,
        grace: flags.grace,
        deadline: flags.deadline,
        is_told: false,
        is_killed: false,
    };
    let status = leash.hold(&events, &mut supervisor)?;
    leash.end();
    let _ = tell(&mut supervisor, status);
    // The command is not reaped here: until this process ends, the number of its group is no
    // other's, and the supervisor may still be about to signal it.
    while let Ok(event) = events.recv() {
        match event {
            Event::Alone => break,
            Event::Order(_) | Event::Ended(_) => {}
        }
    }
    drop((caught, runtime));
    Ok(())
}

fn tell(supervisor: &mut UnixStream, news: News) -> io::Result<()> {
    writeln!(supervisor, "{news}")
}

enum Event {
    Order(Order),
    /// The supervisor is no more.
    Alone,
    /// The command has ended in this way, and is not reaped.
    Ended(io::Result<News>),
}

fn spawn_listener(socket: UnixStream, events: Sender<Event>) {
    thread::spawn(move || {
        for line in BufReader::new(socket).lines() {
            let Some(order) = line.ok().and_then(|line| line.parse().ok()) else { break };
            if events.send(Event::Order(order)).is_err() {
                return;
            }
        }
        // The other end is closed: then the command has ended.
        let _ = events.send(Event::Alone);
    });
}

fn spawn_waiter(child: Pid, events: Sender<Event>) {
    thread::spawn(move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = retry_on_intr(|| waitid(WaitId::Pid(child), options));
        let news = match status {
            Ok(Some(status)) => Ok(match status.exit_status() {
                Some(code) => News::Exited(code),
                None => News::Killed(status.terminating_signal().unwrap_or_default()),
            }),
            Ok(None) => Err(io::Error::other("nothing to wait for")),
            Err(error) => Err(error.into()),
        };
        // The receiver lives until it has this.
        let _ = events.send(Event::Ended(news));
    });
}

/// The hold on a command.
struct Leash {
    group: Pid,
    on_lost: OnLost,
    grace: Duration,
    deadline: BootTime,
    /// From then on there is no way back.
    is_told: bool,
    is_killed: bool,
}

impl Leash {
    /// Returns when the command has ended.
    fn hold(&mut self, events: &Receiver<Event>, supervisor: &mut UnixStream) -> io::Result<News> {
        loop {
            self.look(supervisor);
            match events.recv_timeout(LOOK.min(self.rest())) {
                Ok(Event::Order(Order::Deadline(at))) if !self.is_told => {
                    self.deadline = self.deadline.max(at);
                }
                Ok(Event::Order(Order::Deadline(_))) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Order(Order::Signal(number))) => {
                    if let Some(signal) = Signal::from_named_raw(number) {
                        self.send(signal);
                    }
                }
                Ok(Event::Order(Order::Lost)) => {
                    let end = BootTime::now().after(match self.on_lost {
                        OnLost::Kill => Duration::ZERO,
                        OnLost::Signal(_) | OnLost::Ignore => self.grace,
                    });
                    self.deadline = self.deadline.min(end);
                    self.tell(supervisor);
                }
                Ok(Event::Alone) => self.tell(supervisor),
                Ok(Event::Ended(news)) => return news,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the process that waits for the command is gone"));
                }
            }
        }
    }

    /// How long there is nothing to do.
    fn rest(&self) -> Duration {
        let rest = self.deadline.remaining();
        if self.is_told { rest.max(MOMENT) } else { rest.saturating_sub(self.grace).max(MOMENT) }
    }

    fn look(&mut self, supervisor: &mut UnixStream) {
        if self.deadline.remaining() <= self.grace {
            self.tell(supervisor);
        }
        if self.is_told && !self.is_killed && self.deadline.has_passed() {
            self.is_killed = true;
            self.send(Signal::KILL);
        }
    }

    fn tell(&mut self, supervisor: &mut UnixStream) {
        if self.is_told || self.on_lost == OnLost::Ignore {
            return;
        }
        self.is_told = true;
        match self.on_lost {
            OnLost::Signal(signal) => self.send(signal),
            OnLost::Kill | OnLost::Ignore => {}
        }
        // It may be this one's silence that is the reason.
        let _ = tell(supervisor, News::Told);
    }

    fn send(&self, signal: Signal) {
        // The group is there until the command is reaped. It may have made itself another user's.
        if let Err(error) = kill_process_group(self.group, signal) {
            say(&format!("lockkeeper lock: cannot signal the command: {error}"));
        }
    }

    /// What is left of the command's group goes with it, if the lock is gone.
    fn end(&self) {
        if self.is_told {
            self.send(Signal::KILL);
        }
    }
}

/// Waits are no shorter than this.
const MOMENT: Duration = Duration::from_millis(1);
