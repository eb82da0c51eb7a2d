//! What the shell remembers from one command to the next: the session, the history, the root.
//!
//! *Owns* [`Shell`]. *Invariant*: no session is begun before a command needs one, and none is begun
//! by itself after `close` or an expiry: ephemeral znodes would seem to be still there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use super::failure::Failure;
use super::output::Answer;
use super::screen::Screen;
use super::znodes::{Znodes, shown};
use crate::cli::client::{Client, Notice, Phase, Wish};
use crate::cli::credential::Credential;
use crate::cli::flags::connect_string;
use crate::proto::EventType;

/// What a command comes to.
pub(super) type Outcome = Result<Answer, Failure>;

/// The shell.
pub(super) struct Shell {
    wish: Wish,
    /// As it was given.
    connect: String,
    /// The path that is the root for the user; empty if it is the root itself.
    chroot: String,
    session: Begun,
    pub(super) screen: Screen,
    /// The lines so far, the current one included.
    pub(super) history: Vec<String>,
    pub(super) shows_events: Arc<AtomicBool>,
    /// Whether commands come from standard input.
    pub(super) reads_stdin: bool,
    seen: Arc<Seen>,
    done: bool,
}

enum Begun {
    NotYet,
    Session(Znodes),
    Closed,
}

/// Counts what has happened to the session, for those who wait for it.
#[derive(Default)]
struct Seen {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Default)]
struct Counts {
    events: u64,
    is_over: bool,
}

impl Shell {
    /// A shell for the servers, and below the path, of `connect`.
    pub(super) fn new(wish: Wish, connect: &str, screen: Screen) -> Result<Self, Failure> {
        let mut shell = Self {
            wish,
            connect: String::new(),
            chroot: String::new(),
            session: Begun::NotYet,
            screen,
            history: Vec::new(),
            shows_events: Arc::new(AtomicBool::new(true)),
            reads_stdin: false,
            seen: Arc::default(),
            done: false,
        };
        shell.aim(connect)?;
        Ok(shell)
    }

    /// The session, which begins now if it has not yet.
    pub(super) fn znodes(&mut self) -> Result<&Znodes, Failure> {
        if matches!(self.session, Begun::NotYet) {
            self.begin()?;
        }
        match &self.session {
            Begun::Session(znodes) if znodes.session.phase() != Phase::Closed => Ok(znodes),
            Begun::NotYet | Begun::Session(_) | Begun::Closed => {
                Err(Failure::unavailable("Not connected: `connect` begins a session"))
            }
        }
    }

    /// The session, if there is one.
    pub(super) fn session(&self) -> Option<&Znodes> {
        match &self.session {
            Begun::Session(znodes) => Some(znodes),
            Begun::NotYet | Begun::Closed => None,
        }
    }

    /// A new session, here or elsewhere.
    pub(super) fn connect(&mut self, connect: Option<&str>) -> Result<(), Failure> {
        self.close();
        if let Some(connect) = connect {
            self.aim(connect)?;
        }
        self.begin()
    }

    /// Ends the session.
    pub(super) fn close(&mut self) {
        if let Begun::Session(znodes) = std::mem::replace(&mut self.session, Begun::Closed) {
            znodes.session.close();
        }
    }

    pub(super) fn quit(&mut self) {
        self.done = true;
    }

    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// An identity for the sessions to come; the current one has it already.
    pub(super) fn remember(&mut self, credential: Credential) {
        self.wish.access.credentials.push(credential);
    }

    /// Waits until a watch has fired.
    pub(super) fn wait_for_event(&self) -> Result<(), Failure> {
        self.wait_until(|counts| counts.events > 0)
    }

    /// Waits for as long as the session lives.
    pub(super) fn wait_for_the_end(&self) -> Result<(), Failure> {
        self.wait_until(|_| false)
    }

    fn wait_until(&self, enough: impl Fn(&Counts) -> bool) -> Result<(), Failure> {
        let mut counts = self.seen.counts.lock().expect(NO_PANIC);
        while !enough(&counts) {
            if counts.is_over {
                return Err(Failure::unavailable("the session is over, and with it its watches"));
            }
            counts = self.seen.changed.wait(counts).expect(NO_PANIC);
        }
        Ok(())
    }

    /// zkCli's prompt.
    pub(super) fn prompt(&self) -> String {
        let phase = match self.session().map_or(Phase::Closed, |znodes| znodes.session.phase()) {
            Phase::Connected => "CONNECTED",
            Phase::ConnectedReadOnly => "CONNECTEDREADONLY",
            Phase::Connecting => "CONNECTING",
            Phase::Closed => "CLOSED",
        };
        format!("[zk: {}({phase}) {}] ", self.connect, self.history.len())
    }

    fn aim(&mut self, connect: &str) -> Result<(), Failure> {
        let wrong = |reason: String| Failure::usage(format!("{connect}: {reason}"));
        let (servers, root) = connect_string(connect).map_err(wrong)?;
        self.wish.access.servers = servers;
        self.chroot = root;
        self.connect = connect.to_string();
        Ok(())
    }

    fn begin(&mut self) -> Result<(), Failure> {
        self.seen = Arc::default();
        let (screen, seen) = (self.screen.clone(), Arc::clone(&self.seen));
        let (chroot, shows_events) = (self.chroot.clone(), Arc::clone(&self.shows_events));
        let session = Client::open(self.wish.clone(), move |notice| {
            tell(&screen, &chroot, shows_events.load(Ordering::Relaxed), &notice);
            let mut counts = seen.counts.lock().expect(NO_PANIC);
            match notice {
                Notice::Event { .. } => counts.events += 1,
                Notice::Expired => counts.is_over = true,
                Notice::Disconnected { .. } | Notice::Reconnected { .. } => {}
            }
            seen.changed.notify_all();
        });
        let session = session.map_err(|error| Failure::of(&error, "/"))?;
        self.session = Begun::Session(Znodes { session, chroot: self.chroot.clone() });
        Ok(())
    }
}

fn tell(screen: &Screen, chroot: &str, shows_events: bool, notice: &Notice) {
    match notice {
        Notice::Event { kind, path, zxid } => {
            if shows_events {
                screen.event(event_name(*kind), shown(chroot, path.as_str()), *zxid);
            }
        }
        Notice::Disconnected { server, reason } => {
            screen.news(&format!("{server}: {reason}; looking for another connection"));
        }
        Notice::Reconnected { server } => screen.news(&format!("{server}: connected again")),
        Notice::Expired => screen.news("the session has expired; `connect` begins another"),
    }
}

fn event_name(kind: EventType) -> &'static str {
    match kind {
        EventType::NodeCreated => "NodeCreated",
        EventType::NodeDeleted => "NodeDeleted",
        EventType::NodeDataChanged => "NodeDataChanged",
        EventType::NodeChildrenChanged => "NodeChildrenChanged",
    }
}

const NO_PANIC: &str = "no thread panics while it holds this";
