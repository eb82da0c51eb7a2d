//! What the server tells systemd: that it is ready, how it is doing, and that its driver lives.
//!
//! *Owns* the datagrams of `sd_notify(3)` and the thread that sends them. *Invariants*: without `NOTIFY_SOCKET` there
//! is neither a socket nor a thread; a server is not ended by systemd because it loads for long, or because a
//! majority of the voters is missing; the watchdog is fed only while the driver comes to the end of its turns, so a
//! driver that hangs ends the process. *Never* says that it serves while it does not: whether it is ready to be told
//! apart from whether it serves, the status line says.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::admin::Source;

/// Where systemd listens.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";
/// How often it wants to hear that the process lives, microseconds.
const WATCHDOG_VARIABLE: &str = "WATCHDOG_USEC";
/// Of which process that is said.
const WATCHDOG_PID_VARIABLE: &str = "WATCHDOG_PID";

/// Time between two looks at the server.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// For so long a server that has started, and does not serve yet, keeps who starts it waiting. The first servers of
/// an ensemble wait for the others: a tool that starts one after the other must come to them.
const READY_ANYHOW: Duration = Duration::from_secs(15);
/// So much longer the start may take, with every look.
const EXTENSION: Duration = Duration::from_secs(60);

/// What one look at the server shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Look {
    serves: bool,
    /// Its driver comes to the end of its turns.
    lives: bool,
    /// For people, in one line.
    status: String,
}

type Looking = Box<dyn Fn() -> Look + Send>;

/// What has happened.
enum Event {
    Started(Looking),
    Reloading,
    Reloaded,
    Stopping,
}

/// The way to systemd; dropping it ends the thread.
pub(super) struct SdNotify {
    events: Option<Sender<Event>>,
    thread: Option<JoinHandle<()>>,
}

impl SdNotify {
    /// As the environment says; does nothing if it says nothing. A socket that cannot be used is warned of: it may
    /// have been left by what started this program, and not be meant for it.
    pub(super) fn start() -> Self {
        Self::from_environment().unwrap_or_else(|error| {
            tracing::warn!(%error, "systemd cannot be told how this server is doing ({SOCKET_VARIABLE})");
            Self { events: None, thread: None }
        })
    }

    fn from_environment() -> io::Result<Self> {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let is_meant =
            number(WATCHDOG_PID_VARIABLE).is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number(WATCHDOG_VARIABLE).filter(|us| is_meant && *us > 0);
        match std::env::var_os(SOCKET_VARIABLE).filter(|name| !name.is_empty()) {
            Some(name) => Self::to(name, watchdog.map(Duration::from_micros), READY_ANYHOW),
            None => Ok(Self { events: None, thread: None }),
        }
    }

    fn to(name: OsString, watchdog: Option<Duration>, ready_anyhow: Duration) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address(&name)?)?;
        // systemd that does not read must not stop the thread that feeds its watchdog.
        socket.set_nonblocking(true)?;
        let (events, received) = channel();
        // Twice in the time would do: one look may be late.
        let interval = watchdog.map_or(LOOK_INTERVAL, |watchdog| LOOK_INTERVAL.min(watchdog / 4));
        let interval = interval.max(Duration::from_millis(10));
        let mut teller = Teller {
            socket,
            has_watchdog: watchdog.is_some(),
            ready_anyhow,
            started: None,
            is_ready: false,
            is_stopping: false,
            has_failed: false,
            status: String::new(),
        };
        let thread = std::thread::Builder::new().name("lk-systemd".to_string());
        let thread = thread.spawn(move || teller.run(&received, interval))?;
        Ok(Self { events: Some(events), thread: Some(thread) })
    }

    /// The server has loaded its data and opened its ports.
    pub(super) fn started(&self, server: Arc<dyn Source>) {
        self.tell(Event::Started(Box::new(move || look(server.as_ref()))));
    }

    /// Its files are read again.
    pub(super) fn reloading(&self) {
        self.tell(Event::Reloading);
    }

    /// They were.
    pub(super) fn reloaded(&self) {
        self.tell(Event::Reloaded);
    }

    /// It is about to end.
    pub(super) fn stopping(&self) {
        self.tell(Event::Stopping);
    }

    fn tell(&self, event: Event) {
        if let Some(events) = &self.events {
            // It ends with this value alone.
            let _ = events.send(event);
        }
    }
}

impl Drop for SdNotify {
    fn drop(&mut self) {
        self.events = None;
        if let Some(thread) = self.thread.take() {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "expected a path, or a name that begins with @",
        )),
    }
}

fn look(server: &dyn Source) -> Look {
    let status = server.status();
    let mut text = status.mode.name().to_string();
    if status.term > 0 {
        text += &format!(", term {}", status.term);
    }
    text += &format!(", zxid {:#x}, {} sessions", status.zxid, status.sessions);
    if !status.serving {
        text = format!("does not serve: {text}");
    }
    for condition in server.conditions() {
        text += "; ";
        text += &condition;
    }
    Look {
        serves: status.serving,
        lives: server.stalled().is_none() && server.failure().is_none(),
        status: text.replace('\n', " "),
    }
}

/// The thread's.
struct Teller {
    socket: UnixDatagram,
    has_watchdog: bool,
    ready_anyhow: Duration,
    /// Since when there is something to look at.
    started: Option<(Instant, Looking)>,
    is_ready: bool,
    is_stopping: bool,
    has_failed: bool,
    /// As it was told last.
    status: String,
}

impl Teller {
    fn run(&mut self, events: &Receiver<Event>, interval: Duration) {
        self.look();
        let mut due = Instant::now() + interval;
        loop {
            match events.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(Event::Started(looking)) => {
                    self.started = Some((Instant::now(), looking));
                    self.look();
                }
                Ok(Event::Reloading) if self.is_ready && !self.is_stopping => {
                    self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_us()));
                }
                Ok(Event::Reloaded) if self.is_ready && !self.is_stopping => self.tell("READY=1"),
                // It is about to say for the first time that it is ready.
                Ok(Event::Reloading | Event::Reloaded) => {}
                Ok(Event::Stopping) => {
                    self.is_stopping = true;
                    self.tell("STOPPING=1\nSTATUS=stopping");
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.look();
                    due = Instant::now() + interval;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn look(&mut self) {
        if self.is_stopping {
            return;
        }
        let extension = EXTENSION.as_micros();
        let Some((since, looking)) = &self.started else {
            let first = if self.status.is_empty() { "STATUS=loading the data\n" } else { "" };
            self.status = "loading the data".to_string();
            return self.tell(&format!("{first}EXTEND_TIMEOUT_USEC={extension}"));
        };
        let (look, waited) = (looking(), since.elapsed());
        let mut lines = Vec::new();
        if look.status != self.status {
            lines.push(format!("STATUS={}", look.status));
            self.status = look.status;
        }
        if !self.is_ready {
            self.is_ready = look.serves || waited >= self.ready_anyhow;
            lines.push(match self.is_ready {
                true => "READY=1".to_string(),
                false => format!("EXTEND_TIMEOUT_USEC={extension}"),
            });
        }
        if self.has_watchdog && look.lives {
            lines.push("WATCHDOG=1".to_string());
        }
        if !lines.is_empty() {
            self.tell(&lines.join("\n"));
        }
    }

    fn tell(&mut self, text: &str) {
        match self.socket.send(text.as_bytes()) {
            Ok(_) => self.has_failed = false,
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                tracing::warn!(%error, "systemd cannot be told how this server is doing ({SOCKET_VARIABLE})");
            }
            Err(_) => {}
        }
    }
}

fn monotonic_us() -> u128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = Duration::from_secs(now.tv_sec.unsigned_abs());
    (seconds + Duration::from_nanos(now.tv_nsec.unsigned_abs())).as_micros()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// systemd, as far as it listens.
    struct Listener {
        socket: UnixDatagram,
        _directory: tempfile::TempDir,
    }

    impl Listener {
        fn start(watchdog: Option<Duration>, ready_anyhow: Duration) -> (Self, SdNotify) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("notify");
            let socket = UnixDatagram::bind(&path).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let notify = SdNotify::to(path.into(), watchdog, ready_anyhow).unwrap();
            (Self { socket, _directory: directory }, notify)
        }

        fn hears(&self) -> String {
            let mut bytes = [0; 4096];
            let length = self.socket.recv(&mut bytes).expect("it says something");
            String::from_utf8(bytes[..length].to_vec()).unwrap()
        }

        /// What comes until a datagram has this line, that one included.
        fn hears_until(&self, line: &str) -> Vec<String> {
            let mut heard = Vec::new();
            loop {
                heard.extend(self.hears().lines().map(str::to_owned));
                if heard.iter().any(|heard| heard == line) {
                    return heard;
                }
            }
        }

        fn hears_nothing_for(&self, time: Duration) {
            self.socket.set_read_timeout(Some(time)).unwrap();
            let error = self.socket.recv(&mut [0; 64]).expect_err("silence");
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
    }

    const OFTEN: Duration = Duration::from_millis(40);
    const NEVER: Duration = Duration::from_secs(3600);

    /// A server, as far as it is looked at.
    fn play(notify: &SdNotify, look: &Look) -> Arc<Mutex<Look>> {
        let shown = Arc::new(Mutex::new(look.clone()));
        let looked = Arc::clone(&shown);
        notify.tell(Event::Started(Box::new(move || looked.lock().unwrap().clone())));
        shown
    }

    fn look(serves: bool, status: &str) -> Look {
        Look { serves, lives: true, status: status.to_string() }
    }

    #[test]
    fn a_start_that_takes_long_is_given_time_and_ready_is_said_once_it_serves() {
        let (systemd, notify) = Listener::start(Some(OFTEN), NEVER);
        assert_eq!(systemd.hears(), "STATUS=loading the data\nEXTEND_TIMEOUT_USEC=60000000");
        assert_eq!(systemd.hears(), "EXTEND_TIMEOUT_USEC=60000000");
        let shown = play(&notify, &look(false, "does not serve: looking"));
        let heard = systemd.hears_until("STATUS=does not serve: looking");
        assert!(!heard.contains(&"READY=1".to_string()), "{heard:?}");
        let heard = systemd.hears_until("WATCHDOG=1");
        assert!(heard.contains(&"EXTEND_TIMEOUT_USEC=60000000".to_string()), "{heard:?}");
        *shown.lock().unwrap() = look(true, "leader");
        assert!(systemd.hears_until("READY=1").contains(&"STATUS=leader".to_string()));
        assert_eq!(systemd.hears(), "WATCHDOG=1");
    }

    #[test]
    fn a_server_that_waits_for_others_is_ready_after_a_while() {
        let (systemd, notify) = Listener::start(None, Duration::ZERO);
        let _shown = play(&notify, &look(false, "does not serve: looking"));
        let heard = systemd.hears_until("READY=1");
        assert!(heard.contains(&"STATUS=does not serve: looking".to_string()), "{heard:?}");
        assert!(!heard.contains(&"WATCHDOG=1".to_string()), "it was not asked for: {heard:?}");
    }

    #[test]
    fn the_watchdog_is_not_fed_by_a_driver_that_hangs() {
        let (systemd, notify) = Listener::start(Some(OFTEN), NEVER);
        let shown = play(&notify, &look(true, "leader"));
        systemd.hears_until("WATCHDOG=1");
        *shown.lock().unwrap() = Look { lives: false, ..look(true, "hangs") };
        systemd.hears_until("STATUS=hangs");
        systemd.hears_nothing_for(OFTEN * 5);
    }

    #[test]
    fn a_reload_and_the_end_are_said_in_this_order() {
        let (systemd, notify) = Listener::start(None, NEVER);
        notify.reloading();
        notify.reloaded();
        let _shown = play(&notify, &look(true, "leader"));
        let heard = systemd.hears_until("READY=1");
        assert!(!heard.iter().any(|line| line.starts_with("RELOADING")), "too early: {heard:?}");
        notify.reloading();
        let reloading = systemd.hears();
        let (first, second) = reloading.split_once('\n').unwrap();
        assert_eq!(first, "RELOADING=1");
        let said: u128 = second.strip_prefix("MONOTONIC_USEC=").unwrap().parse().unwrap();
        assert!(said > 0 && said <= monotonic_us());
        notify.reloaded();
        assert_eq!(systemd.hears(), "READY=1");
        notify.stopping();
        assert_eq!(systemd.hears(), "STOPPING=1\nSTATUS=stopping");
        drop(notify);
        systemd.hears_nothing_for(Duration::from_millis(20));
    }

    #[test]
    fn a_socket_is_a_path_or_an_abstract_name() {
        assert_eq!(
            address(OsStr::new("/run/x")).unwrap().as_pathname().unwrap().to_str(),
            Some("/run/x")
        );
        assert_eq!(address(OsStr::new("@a/b")).unwrap().as_abstract_name(), Some(&b"a/b"[..]));
        for name in ["run/x", "vsock:2:1234"] {
            assert!(address(OsStr::new(name)).is_err(), "{name}");
        }
    }
}
