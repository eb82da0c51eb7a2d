//! What the user has started: it takes the lock, has the command run, and gives the lock away.
//!
//! *Owns* the session. *Invariants*: the command is started by the watchdog, never here, so that there
//! is no moment at which it runs unwatched; the watchdog hears of every answer that prolongs the
//! hold; when the command ends, the lock is given away; whatever ends an attempt leaves no contender
//! behind, or a session that is being closed.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{interval, sleep, timeout};
use zookeeper_client::{Client, SessionState};

use super::flags::{
    EXIT_CANNOT_EXECUTE, EXIT_LOST, EXIT_NOT_FOUND, EXIT_OS, LockFlags, OnLost, complain,
};
use super::input::standard_input;
use super::interrupts::Interrupts;
use super::kind::Lock;
use super::relay;
use super::waiting::{connect, tell_holders};
use super::watchdog;
use super::wire::{self, News, Order};
use crate::cli::flags::{Access, Output};
use crate::cli::output::print;
use crate::recipes::{BootTime, Guard, Hold, LockError, LostReason, Wait};

/// Runs the command. The exit code.
pub(super) fn run(flags: &LockFlags, lock: &Lock, access: Access) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.and_then(|runtime| {
        let ended = runtime.block_on(async {
            let interrupts = Interrupts::catch()?;
            let servers = match &access.configuration.tls {
                Some(tls) => format!("{}{}", relay::open(&access.servers, tls).await?, access.root),
                None => flags.servers.server.clone(),
            };
            Ok(Supervisor { flags, access, servers, interrupts }.run(lock).await)
        });
        // A resolver that does not answer keeps a thread, which is not waited for.
        runtime.shutdown_background();
        ended
    });
    ended.unwrap_or_else(|error| {
        complain(&error.to_string());
        EXIT_OS
    })
}

struct Supervisor<'a> {
    flags: &'a LockFlags,
    access: Access,
    /// Where the client connects.
    servers: String,
    interrupts: Interrupts,
}

impl Supervisor<'_> {
    async fn run(mut self, lock: &Lock) -> u8 {
        let (client, guard) = match self.acquire(lock).await {
            Ok(held) => held,
            Err(code) => return code,
        };
        for stranger in guard.strangers() {
            complain(&format!(
                "warning: contenders of {} share {} and do not wait for this lock",
                stranger,
                lock.path()
            ));
        }
        let program = self.flags.program();
        let code = if program.is_empty() {
            self.hold(guard).await
        } else {
            self.command(guard, lock.path(), &program).await
        };
        close(client).await;
        code
    }

    /// A session, and the lock; or the exit code.
    async fn acquire(&mut self, lock: &Lock) -> Result<(Client, Guard), u8> {
        let begun = Instant::now();
        let client = tokio::select! {
            client = connect(self.flags, &self.access, &self.servers) => {
                client.map_err(|error| self.refused(&error, false))?
            }
            signal = self.interrupts.next() => return Err(exit_code_of(signal)),
        };
        let wait = match self.flags.wait() {
            // At least one look, however long it took to connect.
            Wait::For(time) => Wait::For(time.saturating_sub(begun.elapsed())),
            Wait::No | Wait::Forever => self.flags.wait(),
        };
        let acquired = tokio::select! {
            guard = lock.acquire(&client, wait) => {
                guard.map_err(|error| self.refused(&error, true))
            }
            never = tell_holders(lock, &client), if wait != Wait::No => match never {},
            signal = self.interrupts.next() => Err(exit_code_of(signal)),
        };
        match acquired {
            Ok(guard) => Ok((client, guard)),
            Err(code) => {
                close(client).await;
                Err(code)
            }
        }
    }

    fn refused(&self, error: &LockError, is_connected: bool) -> u8 {
        match error {
            LockError::Held { .. } if !self.flags.verbose => {}
            // Who looked for a session has said why there is none.
            LockError::Unreachable if !is_connected => {}
            LockError::Unreachable | LockError::Session(_) => {
                complain(&format!("{error} ({})", self.flags.servers.server));
            }
            error => complain(&error.to_string()),
        }
        self.flags.exit_code(error)
    }

    /// Until it is interrupted or lost.
    async fn hold(&mut self, guard: Guard) -> u8 {
        let news = |what: &str| news(self.flags.output.output, what, &guard);
        print(&news("HELD"));
        let mut watch = guard.watch();
        loop {
            tokio::select! {
                _ = self.interrupts.next() => break,
                hold = watch.changed() => match hold {
                    Hold::Held => complain("the server has confirmed the lock again"),
                    Hold::Jeopardy => complain("the server is silent: the lock may be lost soon"),
                    Hold::Lost(reason) => {
                        print(&news("LOST"));
                        complain(&format!("the lock is lost: {reason}"));
                        return EXIT_LOST;
                    }
                }
            }
        }
        let released = news("RELEASED");
        match guard.release().await {
            Ok(()) => {
                print(&released);
                0
            }
            Err(error) => {
                complain(&error.to_string());
                self.flags.exit_code(&error)
            }
        }
    }

    /// Runs the command under the lock.
    async fn command(&mut self, guard: Guard, path: &str, program: &[OsString]) -> u8 {
        let grace = self.flags.grace(guard.session_timeout());
        let outcome = match Leash::attach(self.flags.on_lost, grace, &guard, path, program) {
            Ok(mut leash) => {
                let outcome = leash.follow(&guard, &mut self.interrupts).await;
                leash.let_go().await;
                outcome
            }
            Err(error) => Outcome::NoWatchdog(error),
        };
        let is_told = matches!(outcome, Outcome::Ended { is_told: true, .. });
        let mut code = outcome.exit_code(&program[0]);
        match guard.release().await {
            Ok(()) => {}
            Err(LockError::Lost(reason)) if is_told => complain(&format!("lost: {reason}")),
            Err(LockError::Lost(reason)) => {
                complain(&format!("the lock was lost before the command ended: {reason}"));
                if self.flags.on_lost != OnLost::Ignore {
                    code = EXIT_LOST;
                }
            }
            // It ends with the session.
            Err(error) => complain(&format!("the lock could not be given away at once: {error}")),
        }
        code
    }
}

/// Ends the session, for what is left of it anywhere.
async fn close(client: Client) {
    let mut states = client.state_watcher();
    drop(client);
    let closed = async {
        while !matches!(
            states.changed().await,
            SessionState::Closed | SessionState::Expired | SessionState::AuthFailed
        ) {}
    };
    // Without a server it ends by itself.
    let _ = timeout(CLOSE_MAX, closed).await;
}

/// What has become of the command.
enum Outcome {
    /// It has ended; before that it may have been told to, because the lock was about to be lost.
    Ended { status: Status, is_told: bool },
    /// It could not be executed.
    Cannot(io::Error),
    /// There was no watchdog, and so no command.
    NoWatchdog(io::Error),
    /// The watchdog is gone, and the command was killed for that.
    Unwatched,
}

#[derive(Clone, Copy)]
enum Status {
    Exited(i32),
    Killed(i32),
}

impl Outcome {
    fn exit_code(&self, program: &OsString) -> u8 {
        let program = program.to_string_lossy();
        match self {
            Self::Ended { is_told: true, .. } => EXIT_LOST,
            Self::Ended { status: Status::Exited(code), .. } => u8::try_from(*code).unwrap_or(1),
            Self::Ended { status: Status::Killed(signal), .. } => exit_code_of(*signal),
            Self::Cannot(error) => {
                complain(&format!("cannot execute {program}: {error}"));
                match error.kind() {
                    io::ErrorKind::NotFound => EXIT_NOT_FOUND,
                    _ => EXIT_CANNOT_EXECUTE,
                }
            }
            Self::NoWatchdog(error) => {
                complain(&format!("{program} was not started: no watchdog: {error}"));
                EXIT_OS
            }
            Self::Unwatched => {
                complain(&format!("the watchdog has ended; {program} was killed"));
                EXIT_LOST
            }
        }
    }
}

/// This end of the conversation with the watchdog.
struct Leash {
    on_lost: OnLost,
    watchdog: Child,
    news: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
    deadline: BootTime,
    group: Option<Pid>,
    is_told: bool,
}

impl Leash {
    /// Starts the watchdog, which starts the command.
    fn attach(
        on_lost: OnLost,
        grace: Duration,
        guard: &Guard,
        path: &str,
        program: &[OsString],
    ) -> io::Result<Self> {
        let deadline = guard.deadline();
        let (ours, theirs) = Socket::pair()?;
        wire::send_file(&ours, standard_input()?.as_fd())?;
        let watchdog = Command::new(this_binary()?)
            .arg(watchdog::COMMAND)
            .arg(format!("--on-lost={on_lost}"))
            .arg(format!("--grace={}ms", grace.as_millis()))
            .arg(format!("--deadline={}", wire::nanos(deadline)))
            .arg("--")
            .args(program)
            .env("LOCKKEEPER_LOCK_PATH", path)
            .env("LOCKKEEPER_LOCK_NODE", guard.node())
            .env("LOCKKEEPER_FENCE", guard.token().to_string())
            .env("LOCKKEEPER_SESSION", format!("{:#x}", guard.session()))
            .stdin(OwnedFd::from(theirs))
            // What is sent to everybody on this terminal is not for the watchdog.
            .process_group(0)
            .spawn()?;
        ours.set_nonblocking(true)?;
        let (news, orders) = UnixStream::from_std(ours)?.into_split();
        let news = BufReader::new(news).lines();
        Ok(Self { on_lost, watchdog, news, orders, deadline, group: None, is_told: false })
    }

    /// Until the command has ended.
    async fn follow(&mut self, guard: &Guard, interrupts: &mut Interrupts) -> Outcome {
        let mut looks = interval(guard.session_timeout() / LOOKS);
        let mut is_lost = false;
        loop {
            tokio::select! {
                news = self.news.next_line() => {
                    match news.ok().flatten().and_then(|line| line.parse().ok()) {
                        Some(News::Started(group)) => self.group = Pid::from_raw(group),
                        Some(News::Cannot(error)) => {
                            return Outcome::Cannot(io::Error::from_raw_os_error(error));
                        }
                        Some(News::Told) => {
                            self.is_told = true;
                            complain("the lock is about to be lost: the command is told to end");
                        }
                        Some(News::Exited(code)) => return self.ended(Status::Exited(code)),
                        Some(News::Killed(signal)) => return self.ended(Status::Killed(signal)),
                        None => return self.unwatched().await,
                    }
                }
                reason = guard.lost(), if !is_lost => {
                    is_lost = true;
                    complain(&format!("the lock is lost: {reason}"));
                    self.order(Order::Lost).await;
                    // The watchdog will have done it; it may have been stopped.
                    if reason == LostReason::Silence && self.on_lost != OnLost::Ignore {
                        self.kill();
                    }
                }
                _ = looks.tick() => {
                    let deadline = guard.deadline();
                    if deadline > self.deadline {
                        self.deadline = deadline;
                        self.order(Order::Deadline(deadline)).await;
                    }
                }
                signal = interrupts.next() => self.order(Order::Signal(signal)).await,
            }
        }
    }

    fn ended(&self, status: Status) -> Outcome {
        Outcome::Ended { status, is_told: self.is_told }
    }

    /// If it cannot be heard any more, the news will say so.
    async fn order(&mut self, order: Order) {
        let _ = self.orders.write_all(format!("{order}\n").as_bytes()).await;
    }

    fn kill(&self) {
        if let Some(group) = self.group {
            // Its number is not given up before `let_go`; all of it may have ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// No process holds the clock: then the command must not go on.
    async fn unwatched(&self) -> Outcome {
        let Some(group) = self.group else {
            return Outcome::NoWatchdog(io::Error::other("it has ended"));
        };
        self.kill();
        let gone = async {
            while test_kill_process_group(group).is_ok() {
                sleep(UNWATCHED_LOOK).await;
            }
        };
        // It may stay as a zombie, if the process that inherits it does not wait for it.
        let _ = timeout(CLOSE_MAX, gone).await;
        Outcome::Unwatched
    }

    /// The watchdog ends when it hears no more.
    async fn let_go(self) {
        let Self { mut watchdog, news, orders, .. } = self;
        drop((news, orders));
        let waited = tokio::task::spawn_blocking(move || watchdog.wait());
        // If it was stopped, it ends when it goes on.
        let _ = timeout(CLOSE_MAX, waited).await;
    }
}

/// The file that this process was started from may have been replaced since.
fn this_binary() -> io::Result<std::path::PathBuf> {
    let link = std::path::Path::new("/proc/self/exe");
    if link.exists() { Ok(link.to_path_buf()) } else { std::env::current_exe() }
}

/// As a shell has it.
fn exit_code_of(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// A line about a lock that is held by hand.
fn news(output: Output, what: &str, guard: &Guard) -> String {
    let (node, token) = (guard.node(), guard.token());
    match output {
        Output::Text => format!("{what} {node} {token}\n"),
        Output::Json => {
            let session = format!("{:#x}", guard.session());
            let event = what.to_ascii_lowercase();
            let json = json!({ "event": event, "node": node, "token": token, "session": session });
            format!("{json}\n")
        }
    }
}

/// How long the end of the session, or of the watchdog, is waited for.
const CLOSE_MAX: Duration = Duration::from_secs(1);
/// Looks at the deadline in a session timeout; the guard's own questions are rarer.
const LOOKS: u32 = 20;
/// Pause between two looks at what was killed.
const UNWATCHED_LOOK: Duration = Duration::from_millis(5);
