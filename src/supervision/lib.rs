//! Supervision of threads and tasks: a panic in any of them ends the server that it belongs to.
//!
//! *Owns* every spawn of `server` and `admin` (tests/house/imports.rs refuses any other), and the list of what is
//! spawned: [`Task`]. A thread or task belongs to the server whose thread or task spawned it; the first one
//! is spawned by [`Supervisor::thread`]. *Invariants*: the first panic is recorded before its thread
//! unwinds, so that nothing that a destructor waits for keeps it secret; the supervisor then asks for the
//! end, and after [`END_MAX`] says that there is one even if the threads of the server still wait for
//! something. *Never* ends the process: that is for its `main` to do.
//!
//! What a panicked thread was changing may be half changed, also behind a mutex. The others may look at it
//! until the end, which the figures, queues and tables of the shell survive; the log does not trust a
//! poisoned lock, and the replica has one owner, whose panic is its end.

#![deny(missing_docs)]

#[cfg(test)]
mod tests;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::mem;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Once, OnceLock};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinError, JoinHandle, JoinSet};

/// How long the threads and tasks of a server may take to end behind a panic, before it counts as ended.
pub const END_MAX: Duration = Duration::from_millis(800);

/// Everything that is spawned in a server.
macro_rules! tasks {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// A thread of a server, or a kind of its tasks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Task { $($(#[$doc])* $variant,)+ }

        impl Task {
            /// All there are.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// What operators read.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

tasks! {
    /// The thread whose runtime the driver and the sockets are tasks of.
    Server = "lk-server",
    /// Reads the data, founds or joins, and makes the driver.
    Recovery = "recovery",
    /// Owns the replica.
    Driver = "driver",
    /// Ends the threads of the disk behind the driver.
    DriverEnd = "end of the driver",
    /// A thread whose runtime sockets of clients are tasks of.
    Io = "lk-io",
    /// Appends and syncs.
    Log = "lk-log",
    /// Writes checkpoints and images.
    State = "lk-state",
    /// Judges tokens of Kerberos.
    Gssapi = "lk-gssapi",
    /// Accepts clients.
    Clients = "accepting of clients",
    /// One client's.
    Client = "client connection",
    /// Computes a handshake of TLS that takes long.
    Handshake = "handshake of TLS",
    /// Follows the files of keys and certificates.
    Certificates = "following of certificates",
    /// Looks how much room the disks have.
    Room = "look at the room on the disks",
    /// Follows the file with the users of SASL.
    Users = "following of users",
    /// Tells a driver whose queue was full that a connection or a link has ended.
    Notice = "notice of an end",
    /// Admits the clients of a reconnect storm one by one.
    Admission = "admission of a reconnect storm",
    /// The thread whose runtime the HTTP connections are tasks of.
    Http = "lk-http",
    /// Accepts them.
    HttpPort = "HTTP port",
    /// One of them.
    HttpConnection = "HTTP connection",
    /// Makes a long answer.
    HttpAnswer = "making of an HTTP answer",
    /// Of a live migration: the link with ZooKeeper, or a look at its ports.
    ZooKeeper = "link with ZooKeeper",
    /// Keeps one [`Task::Link`] for each other server.
    Links = "links to servers",
    /// Connects to one other server, and sends.
    Link = "link to a server",
    /// Accepts other servers.
    Peers = "accepting of servers",
    /// What one of them sends.
    Peer = "link from a server",
    /// Keeps one [`Task::Image`] for each server that needs an image.
    Images = "sending of images",
    /// Sends one image.
    Image = "sending of an image",
    /// Makes a backup of an image.
    Backup = "making of a backup",
    /// The thread that asks the others while an operator decides whether a survivor goes on alone.
    Survey = "survey of the other servers",
    /// Reads or writes one image.
    ImageWork = "work on an image",
    /// Asks the others for an image.
    ImageFetch = "fetching of an image",
    /// Asks another server for its locks, or its client port whether it serves.
    Question = "question to a server",
    /// Follows the membership.
    Members = "following of the members",
    /// Writes it to the configuration files.
    MembersFile = "writing of the members",
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Where it happened.
    pub task: Task,
    /// Its text.
    pub message: String,
    /// File and line; `None` if the program has replaced the panic hook.
    pub location: Option<String>,
}

/// What is to be done about a panic.
pub trait End: Send + Sync + 'static {
    /// Ends the server.
    fn ask(&self, failure: &Failure);

    /// [`END_MAX`] are over: a caller that waits for the end waits no longer.
    fn is_late(&self, failure: &Failure);
}

/// Supervises the threads and tasks of one server.
pub struct Supervisor {
    failure: OnceLock<Failure>,
    end: Box<dyn End>,
    #[cfg(any(test, debug_assertions))]
    armed: std::sync::Mutex<Option<Task>>,
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("failure", &self.failure).finish_non_exhaustive()
    }
}

impl Supervisor {
    /// Of a server that has no thread yet.
    #[must_use]
    pub fn new(end: impl End) -> Arc<Self> {
        watch_panics();
        Arc::new(Self {
            failure: OnceLock::new(),
            end: Box::new(end),
            #[cfg(any(test, debug_assertions))]
            armed: std::sync::Mutex::default(),
        })
    }

    /// The first panic.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.get()
    }

    /// Starts the first thread of the server.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn thread<T: Send + 'static>(
        self: &Arc<Self>,
        task: Task,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<thread::JoinHandle<T>> {
        start(Place { supervisor: Some(Arc::clone(self)), task }, run)
    }

    fn fail(self: &Arc<Self>, failure: Failure) {
        if self.failure.set(failure).is_err() {
            return;
        }
        let this = Arc::clone(self);
        let end = move || {
            let Some(failure) = this.failure() else { return };
            this.end.ask(failure);
            thread::sleep(END_MAX);
            this.end.is_late(failure);
        };
        // This is the middle of whatever has panicked, and may hold what the end needs.
        if thread::Builder::new().name(END_THREAD.to_owned()).spawn(end).is_err()
            && let Some(failure) = self.failure()
        {
            self.end.ask(failure);
        }
    }

    /// Has the next thread or task of this kind panic, when it runs next. For tests.
    #[cfg(any(test, debug_assertions))]
    #[doc(hidden)]
    pub fn panic_in(&self, task: Task) {
        *self.armed.lock().expect("its holders do not panic") = Some(task);
    }

    #[cfg(any(test, debug_assertions))]
    fn is_armed(&self, task: Task) -> bool {
        let mut armed = self.armed.lock().expect("its holders do not panic");
        let is_armed = *armed == Some(task);
        if is_armed {
            *armed = None;
        }
        is_armed || armed_by_environment(task)
    }
}

/// Whose thread or task runs.
#[derive(Clone)]
struct Place {
    /// `None`: a unit test's.
    supervisor: Option<Arc<Supervisor>>,
    task: Task,
}

thread_local! {
    static CURRENT: RefCell<Option<Place>> = const { RefCell::new(None) };
    /// How many calls of [`contain`] this thread is in.
    static CONTAINED: Cell<u32> = const { Cell::new(0) };
}

impl Place {
    /// A place for what this thread spawns.
    fn beside(task: Task) -> Self {
        let supervisor = current();
        debug_assert!(supervisor.is_some() || cfg!(test), "{task} is spawned outside of a server");
        Self { supervisor, task }
    }
}

/// The supervisor of the server that this thread or task belongs to.
#[must_use]
pub fn current() -> Option<Arc<Supervisor>> {
    CURRENT.with_borrow(|current| current.as_ref()?.supervisor.clone())
}

/// Whether this thread or task belongs to a server.
#[must_use]
pub fn is_supervised() -> bool {
    CURRENT.try_with(|current| current.try_borrow().is_ok_and(|current| current.is_some()))
        == Ok(true)
}

/// Runs `run` at a place, which is in `place` before and after. A panic is recorded.
fn within<T>(place: &mut Option<Place>, run: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    let swap = |place: &mut Option<Place>| CURRENT.with_borrow_mut(|now| mem::swap(now, place));
    swap(place);
    let result = catch_unwind(AssertUnwindSafe(run));
    swap(place);
    if let (Err(payload), Some(Place { supervisor: Some(supervisor), task })) = (&result, &place) {
        // The hook was faster, unless the program has replaced it.
        let message = message_of(&**payload);
        supervisor.fail(Failure { task: *task, message, location: None });
    }
    result
}

/// As [`within`], of a whole thread.
fn run_at<T>(place: Place, run: impl FnOnce() -> T) -> T {
    let run = || {
        panic_point();
        run()
    };
    within(&mut Some(place), run).unwrap_or_else(|payload| resume_unwind(payload))
}

fn start<T: Send + 'static>(
    place: Place,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<thread::JoinHandle<T>> {
    let thread = thread::Builder::new().name(place.task.name().to_owned());
    thread.spawn(move || run_at(place, run))
}

/// Starts another thread of this server.
///
/// # Errors
/// The system gives no thread.
pub fn thread<T: Send + 'static>(
    task: Task,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<thread::JoinHandle<T>> {
    start(Place::beside(task), run)
}

/// Starts another task of this server. In a runtime only.
pub fn spawn<F>(task: Task, future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(Supervised::new(task, future))
}

/// Tasks that are waited for together; dropping it cancels them.
#[derive(Debug)]
pub struct TaskSet<T>(JoinSet<T>);

impl<T> Default for TaskSet<T> {
    fn default() -> Self {
        Self(JoinSet::new())
    }
}

impl<T: Send + 'static> TaskSet<T> {
    /// Starts another task of this server. In a runtime only.
    pub fn spawn(
        &mut self,
        task: Task,
        future: impl Future<Output = T> + Send + 'static,
    ) -> AbortHandle {
        self.0.spawn(Supervised::new(task, future))
    }

    /// Starts another task of this server in that runtime.
    pub fn spawn_on(
        &mut self,
        task: Task,
        future: impl Future<Output = T> + Send + 'static,
        runtime: &Handle,
    ) -> AbortHandle {
        self.0.spawn_on(Supervised::new(task, future), runtime)
    }

    /// How many there are, ended ones included that were not taken by [`TaskSet::join_next`].
    #[must_use]
    #[allow(
        clippy::len_without_is_empty,
        reason = "a set is asked how many it has, against a limit"
    )]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Waits until one has ended; `None` if there are none. One that has panicked is an error here, and
    /// the end of the server.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        self.0.join_next().await
    }

    /// As [`TaskSet::join_next`], without waiting.
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        self.0.try_join_next()
    }

    /// Cancels all of them, and waits for that.
    pub async fn shutdown(&mut self) {
        self.0.shutdown().await;
    }
}

/// A task of a server. *Invariant*: it runs and is dropped as a task of the server that it was spawned in, so that its
/// panic is told.
struct Supervised<F> {
    /// `None` while it is being dropped.
    future: Option<Pin<Box<F>>>,
    /// `None` while it runs.
    place: Option<Place>,
}

impl<F> Supervised<F> {
    fn new(task: Task, future: F) -> Self {
        Self { future: Some(Box::pin(future)), place: Some(Place::beside(task)) }
    }
}

impl<F: Future> Future for Supervised<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { future, place } = &mut *self;
        let future = future.as_mut().expect("it is there until it is dropped");
        let poll = || {
            panic_point();
            future.as_mut().poll(context)
        };
        within(place, poll).unwrap_or_else(|payload| resume_unwind(payload))
    }
}

impl<F> Drop for Supervised<F> {
    fn drop(&mut self) {
        let future = self.future.take();
        // A panic was recorded, and no caller can be told here.
        let _ = within(&mut self.place, || drop(future));
    }
}

/// Runs what may block in a thread for such work. In a runtime only.
pub fn spawn_blocking<T: Send + 'static>(
    task: Task,
    run: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let place = Place::beside(task);
    tokio::task::spawn_blocking(move || run_at(place, run))
}

/// Runs something to its end or to its panic, which is recorded.
pub fn catch<T>(run: impl FnOnce() -> T) -> Option<T> {
    within(&mut CURRENT.with_borrow(Clone::clone), run).ok()
}

/// Runs a future to its end or to its panic, which is recorded, and drops nothing but the future then.
pub async fn caught<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut place = CURRENT.with_borrow(Clone::clone);
    std::future::poll_fn(move |context| {
        match within(&mut place, || future.as_mut().poll(context)) {
            Ok(Poll::Ready(output)) => Poll::Ready(Some(output)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(_) => Poll::Ready(None),
        }
    })
    .await
}

/// Calls what may panic without harm to anything but its caller.
///
/// # Errors
/// The text of the panic.
pub fn contain<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    CONTAINED.set(CONTAINED.get() + 1);
    let result = catch_unwind(AssertUnwindSafe(run));
    CONTAINED.set(CONTAINED.get() - 1);
    result.map_err(|payload| message_of(&*payload))
}

/// A place at which a test has this thread or task panic. Nothing of it is in a release.
#[inline]
pub fn panic_point() {
    #[cfg(any(test, debug_assertions))]
    {
        let armed = CURRENT.with_borrow(|current| {
            let Place { supervisor, task } = current.as_ref()?;
            supervisor.as_ref()?.is_armed(*task).then_some(*task)
        });
        if let Some(task) = armed {
            panic!("planted in: {task}");
        }
    }
}

/// `LOCKKEEPER_PANIC_IN=driver:/path`: that one panics once the file is there.
#[cfg(any(test, debug_assertions))]
fn armed_by_environment(task: Task) -> bool {
    static PLANTED: OnceLock<Option<(String, std::path::PathBuf)>> = OnceLock::new();
    let planted = PLANTED.get_or_init(|| {
        let text = std::env::var("LOCKKEEPER_PANIC_IN").ok()?;
        let (name, path) = text.split_once(':')?;
        Some((name.to_owned(), path.into()))
    });
    planted.as_ref().is_some_and(|(name, path)| name == task.name() && path.exists())
}

/// Adds to the panic hook of the process, once, whatever that is.
fn watch_panics() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            note(info);
            before(info);
        }));
    });
}

/// Runs in the thread that panics, before anything of it is unwound.
fn note(info: &PanicHookInfo<'_>) {
    if CONTAINED.try_with(Cell::get).is_ok_and(|depth| depth > 0) {
        return;
    }
    let place = CURRENT.try_with(|current| current.try_borrow().ok().and_then(|now| now.clone()));
    if let Ok(Some(Place { supervisor: Some(supervisor), task })) = place {
        let location = info.location().map(|at| format!("{}:{}", at.file(), at.line()));
        let message = message_of(info.payload());
        supervisor.fail(Failure { task, message, location });
    }
}

/// The text of a panic, in one line.
fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    let text = text.unwrap_or_else(|| "panicked without a text".to_string());
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

const END_THREAD: &str = "lk-end";
