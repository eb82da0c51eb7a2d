//! The flags of `lockkeeper lock` (flock(1)'s, where there are such), and its exit codes.
//!
//! *Owns* [`LockFlags`], the words in them for signals and styles, and the exit codes: the command's own, 128 and more
//! for a signal, or one of those below. *Never* asks a server.

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use rustix::process::Signal;

use super::kind::{Lock, Names, Others};
use crate::cli::client_configuration::ClientConfiguration;
use crate::cli::duration::duration;
use crate::cli::flags::{Access, OutputFlag, ServersFlags};
use crate::cli::output::say;
use crate::recipes::{LockError, RecipeOptions, Style, Wait};

/// Others hold the lock, or it may not be taken; `-E` sets another.
const EXIT_NOT_ACQUIRED: u8 = 1;
/// The command line is wrong (`EX_USAGE`).
pub(in crate::cli) const EXIT_USAGE: u8 = 64;
/// No server answers (`EX_UNAVAILABLE`).
const EXIT_UNAVAILABLE: u8 = 69;
/// The lock was lost, and the command was stopped for that (`EX_TEMPFAIL`).
pub(super) const EXIT_LOST: u8 = 75;
/// Permission is missing (`EX_NOPERM`).
const EXIT_NO_PERMISSION: u8 = 77;
/// The operating system refuses a process, a socket or memory (`EX_OSERR`).
pub(super) const EXIT_OS: u8 = 71;
/// The command is there and cannot be executed.
pub(super) const EXIT_CANNOT_EXECUTE: u8 = 126;
/// There is no such command.
pub(super) const EXIT_NOT_FOUND: u8 = 127;

/// Shortest session timeout that may be asked for.
const SESSION_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// Longest time between the word to stop and the end, unless it is given.
const GRACE_DEFAULT_MAX: Duration = Duration::from_secs(5);

/// Flags of `lockkeeper lock`.
#[derive(Debug, Args)]
#[command(
    mut_arg("timeout", |arg| arg.short('w').visible_alias("wait").help(
        "Give up after this time, if others hold the lock or no server answers: seconds, or 500ms, 10s, 2m \
         [default: wait for others for ever, and for servers as long as a session lasts]",
    )),
    after_help = "Exit codes: that of COMMAND (128 + N after signal N); 1, or that of -E, if the \
                        lock was not acquired; 64 wrong usage; 69 no server answers; 75 the lock was \
                        lost; 77 no permission; 126, 127 COMMAND cannot be executed.\n\
                        COMMAND sees LOCKKEEPER_LOCK_PATH, LOCKKEEPER_LOCK_NODE, LOCKKEEPER_FENCE (the \
                        fencing token) and LOCKKEEPER_SESSION."
)]
pub(crate) struct LockFlags {
    #[command(flatten)]
    pub(super) servers: ServersFlags,
    #[command(flatten)]
    pub(super) output: OutputFlag,
    /// An exclusive lock; this is the default
    #[arg(short = 'x', long, visible_short_alias = 'e')]
    exclusive: bool,
    /// A lock that is shared with others who ask for a shared one
    #[arg(short = 's', long, conflicts_with = "exclusive")]
    shared: bool,
    /// As many holders as this at a time; all who share the path must say the same
    #[arg(long, value_name = "N", conflicts_with_all = ["exclusive", "shared"],
          value_parser = clap::value_parser!(u32).range(1..))]
    permits: Option<u32>,
    /// Do not wait for others
    #[arg(short = 'n', long, visible_alias = "nb", conflicts_with = "timeout")]
    nonblock: bool,
    /// Exit code if the lock was not acquired
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = EXIT_NOT_ACQUIRED)]
    conflict_exit_code: u8,
    /// Have the shell run this
    #[arg(short = 'c', long = "command", value_name = "SCRIPT", conflicts_with = "command")]
    script: Option<OsString>,
    /// Who holds the lock, for those who look at it [default: user@host:pid command]
    #[arg(long, value_name = "TEXT")]
    id: Option<String>,
    /// How long a silent holder keeps the lock
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(super) session_timeout: Duration,
    /// What is done to COMMAND before the lock is lost: term, kill, signal:NAME (each ends with
    /// SIGKILL), or ignore
    #[arg(long, value_name = "WHAT", default_value = "term")]
    pub(super) on_lost: OnLost,
    /// How long before the loss it is told, and so how long it has to end [default: a third of the
    /// session timeout, at most 5s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    grace: Option<Duration>,
    /// Whose names to use in the queue: curator, curator-rw, kazoo, plain or zk
    #[arg(long, value_name = "STYLE", default_value = "curator", value_parser = names)]
    style: Names,
    /// Say what is going on
    #[arg(long)]
    pub(super) verbose: bool,
    /// The lock, for example /locks/report
    path: String,
    /// What to run; without it, the lock is held until it is interrupted
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<OsString>,
}

impl LockFlags {
    /// The lock that is meant, or what is wrong with the flags.
    pub(super) fn lock(&self) -> Result<Lock, String> {
        if self.session_timeout < SESSION_TIMEOUT_MIN {
            return Err(format!(
                "--session-timeout: at least {} s, or every short pause loses the lock",
                SESSION_TIMEOUT_MIN.as_secs()
            ));
        }
        if self.grace.is_some_and(|grace| grace > self.session_timeout / 2) {
            // It would be told to end between two answers of a healthy server.
            return Err("--grace: at most half of the session timeout".to_string());
        }
        let others = match self.permits {
            Some(permits) => Others::Permits(permits),
            None if self.shared => Others::Shared,
            None => Others::None,
        };
        let id = self.id.clone().unwrap_or_else(|| self.identity());
        Lock::new(RecipeOptions::at(&self.path).id(id), others, self.style)
    }

    /// How servers are reached, or what is wrong with that.
    pub(super) fn access(&self) -> Result<Access, String> {
        let access = self.servers.access()?;
        let ClientConfiguration { tls, login } = &access.configuration;
        if tls.is_some() && cfg!(not(target_os = "linux")) {
            return Err(
                "--client-configuration: `lockkeeper lock` speaks TLS on Linux alone".to_owned()
            );
        }
        // The crate writes them into the answer as they are, and hashes them as UTF-8 where servers take ISO 8859-1.
        let is_plain = |text: &str| text.is_ascii() && !text.contains(['"', '\\']);
        if login.as_ref().is_some_and(|login| !is_plain(&login.user) || !login.password.is_ascii())
        {
            return Err("--client-configuration: of `lockkeeper lock` the user and the password have ASCII characters \
                        alone, and the user neither quotes nor backslashes"
                .to_owned());
        }
        Ok(access)
    }

    /// What tells a person who holds the lock.
    fn identity(&self) -> String {
        let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
        let user = user.unwrap_or_else(|_| "?".to_string());
        let system = rustix::system::uname();
        let host = system.nodename().to_string_lossy();
        let command = match (&self.script, self.command.first()) {
            (Some(script), _) => script.to_string_lossy(),
            (None, Some(program)) => program.to_string_lossy(),
            (None, None) => "by hand".into(),
        };
        format!("{user}@{host}:{} {command}", std::process::id())
    }

    pub(super) fn wait(&self) -> Wait {
        match self.servers.client.timeout {
            _ if self.nonblock => Wait::No,
            Some(Duration::ZERO) => Wait::No,
            Some(time) => Wait::For(time),
            None => Wait::Forever,
        }
    }

    /// What to execute, if anything.
    pub(super) fn program(&self) -> Vec<OsString> {
        match &self.script {
            Some(script) => {
                let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
                vec![shell, "-c".into(), script.clone()]
            }
            None => self.command.clone(),
        }
    }

    /// How long before the loss the command is told, given the session timeout that was granted.
    pub(super) fn grace(&self, session: Duration) -> Duration {
        let grace = self.grace.unwrap_or(GRACE_DEFAULT_MAX.min(session / 3));
        // The server may have granted less than was asked for.
        grace.min(session / 2)
    }

    pub(super) fn exit_code(&self, error: &LockError) -> u8 {
        match error {
            LockError::Held { .. } => self.conflict_exit_code,
            LockError::Path { .. } => EXIT_USAGE,
            LockError::NoPermission { .. } => EXIT_NO_PERMISSION,
            LockError::Unreachable | LockError::Session(_) => EXIT_UNAVAILABLE,
            LockError::Lost(_) => EXIT_LOST,
            LockError::Foreign { .. } | LockError::Server { .. } | LockError::Random(_) => {
                EXIT_NOT_ACQUIRED
            }
        }
    }
}

/// Says something about the lock to the user.
pub(super) fn complain(text: &str) {
    say(&format!("lockkeeper lock: {text}"));
}

/// What is done to a command whose lock is about to be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnLost {
    /// It is sent this signal, and killed at the end of its time.
    Signal(Signal),
    /// It is killed at the end of its time.
    Kill,
    /// Nothing.
    Ignore,
}

impl FromStr for OnLost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "term" => Ok(Self::Signal(Signal::TERM)),
            "kill" => Ok(Self::Kill),
            "ignore" => Ok(Self::Ignore),
            _ => match text.strip_prefix("signal:").map(signal) {
                Some(Some(Signal::KILL)) => Ok(Self::Kill),
                Some(Some(signal)) => Ok(Self::Signal(signal)),
                Some(None) => Err(format!("{text:?} names no signal: HUP, USR1, 15 ...")),
                None => Err("expected term, kill, signal:NAME or ignore".to_string()),
            },
        }
    }
}

impl fmt::Display for OnLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(signal) => write!(f, "signal:{}", signal.as_raw()),
            Self::Kill => f.write_str("kill"),
            Self::Ignore => f.write_str("ignore"),
        }
    }
}

fn signal(name: &str) -> Option<Signal> {
    if let Ok(number) = name.parse() {
        return Signal::from_named_raw(number);
    }
    let name = name.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal)
}

const SIGNALS: [(&str, Signal); 9] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("KILL", Signal::KILL),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("ALRM", Signal::ALARM),
    ("TERM", Signal::TERM),
    ("WINCH", Signal::WINCH),
];

fn names(text: &str) -> Result<Names, String> {
    match text {
        "curator" => Ok(Names::Style(Style::Curator)),
        "curator-rw" => Ok(Names::CuratorReadWrite),
        "kazoo" => Ok(Names::Style(Style::Kazoo)),
        "plain" => Ok(Names::Style(Style::Plain)),
        "zk" => Ok(Names::Style(Style::ZooKeeper)),
        _ => Err("expected curator, curator-rw, kazoo, plain or zk".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_go_by_name_or_number() {
        for text in ["term", "signal:TERM", "signal:sigterm", "signal:15"] {
            assert_eq!(text.parse(), Ok(OnLost::Signal(Signal::TERM)), "{text}");
        }
        assert_eq!("signal:KILL".parse(), Ok(OnLost::Kill));
        for text in ["", "signal:", "signal:NONE", "signal:0", "signal:999", "TERM"] {
            assert!(text.parse::<OnLost>().is_err(), "{text}");
        }
        for on_lost in [OnLost::Signal(Signal::USR1), OnLost::Kill, OnLost::Ignore] {
            assert_eq!(on_lost.to_string().parse(), Ok(on_lost));
        }
    }
}
