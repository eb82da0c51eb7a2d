//! The threads that own clients' sockets, where the server's thread does not (`lockkeeper.ioThreads`).
//!
//! Each has an event loop of its own: it accepts (the first of them), reads, frames, decodes and writes. Requests go to
//! the driver through its queue of messages. Answers go into the outbox of their connection; the driver then
//! hands each thread the tasks that it has answered, many at a time (`mailbox/wakeups.rs`), so that a batch of answers
//! costs one wake-up of a thread and not one of each connection.
//!
//! *Owns* [`IoThreads`], and how many connections each thread has. *Invariants*: a connection stays on its thread; a
//! new one goes to the thread with the fewest; a thread ends when [`IoThreads`] is dropped, which is behind its
//! connections. *Never* calls the replica. *Costs* on a machine with two cores: each request crosses threads twice, so
//! `auto` has none there.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::task::yield_now;

use crate::server::error::StartError;
use crate::server::limits::EVENT_INTERVAL;
use crate::server::mailbox::{IoThreadOf, Wakeups};
use crate::supervision::{self, Task, TaskSet};

/// The threads of one server.
#[derive(Debug, Default)]
pub(in crate::server) struct IoThreads(Vec<Arc<IoThread>>);

#[derive(Debug)]
struct IoThread {
    index: usize,
    runtime: Handle,
    wakeups: Arc<Wakeups>,
    /// Connections that it has.
    connections: AtomicUsize,
}

impl IoThreads {
    /// Starts so many. `tasks`: has ended when they have.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(in crate::server) fn start(
        count: usize,
        tasks: &mut TaskSet<()>,
    ) -> Result<Self, StartError> {
        let mut threads = Self::default();
        for index in 0..count {
            let wakeups: Arc<Wakeups> = Arc::default();
            let runtime = start(&wakeups, tasks);
            let runtime = runtime.map_err(StartError::system(Task::Io.name()))?;
            let connections = AtomicUsize::new(0);
            threads.0.push(Arc::new(IoThread { index, runtime, wakeups, connections }));
        }
        Ok(threads)
    }

    /// Where clients are accepted: in the first of them, or in the calling thread's runtime.
    pub(in crate::server) fn accepting(&self) -> Handle {
        self.0.first().map_or_else(Handle::current, |thread| thread.runtime.clone())
    }

    /// The thread of a new connection; `None`: the one that accepts it, which is the server's.
    pub(in crate::server) fn assign(&self) -> Option<Assignment> {
        let fewest = |thread: &&Arc<IoThread>| thread.connections.load(Ordering::Relaxed);
        let thread = self.0.iter().min_by_key(fewest)?;
        thread.connections.fetch_add(1, Ordering::Relaxed);
        Some(Assignment(Arc::clone(thread)))
    }
}

impl Drop for IoThreads {
    fn drop(&mut self) {
        for thread in &self.0 {
            thread.wakeups.close();
        }
    }
}

/// The thread that owns a connection's socket. Dropping it ends that.
#[derive(Debug)]
pub(in crate::server) struct Assignment(Arc<IoThread>);

impl Assignment {
    /// Whether it is the thread that accepts clients.
    pub(in crate::server) fn accepts(&self) -> bool {
        self.0.index == 0
    }

    /// Where its tasks are spawned.
    pub(in crate::server) fn runtime(&self) -> &Handle {
        &self.0.runtime
    }

    /// The way of the driver to its tasks.
    pub(in crate::server) fn way(&self) -> IoThreadOf {
        IoThreadOf { index: self.0.index, wakeups: Arc::clone(&self.0.wakeups) }
    }
}

impl Drop for Assignment {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn start(wakeups: &Arc<Wakeups>, tasks: &mut TaskSet<()>) -> io::Result<Handle> {
    let mut runtime = runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().event_interval(EVENT_INTERVAL).build()?;
    let handle = runtime.handle().clone();
    let wakeups = Arc::clone(wakeups);
    let run = move || runtime.block_on(wake(&wakeups));
    start_thread(Task::Io, run, (tasks, Task::Clients))?;
    Ok(handle)
}

/// Starts a thread, and a task that ends when it has.
///
/// # Errors
/// The system gives no thread.
pub(in crate::server) fn start_thread(
    thread: Task,
    run: impl FnOnce() + Send + 'static,
    (tasks, task): (&mut TaskSet<()>, Task),
) -> io::Result<()> {
    let (ending, ended) = oneshot::channel::<()>();
    let thread = supervision::thread(thread, move || {
        // Dropped at the end, also by a panic, and behind what `run` owns.
        let _ending = ending;
        run();
    })?;
    tasks.spawn(task, async move {
        let _ = ended.await;
        // A panic of it was recorded.
        let _ = thread.join();
    });
    Ok(())
}

/// Wakes the tasks that the driver has answered, until there will be none.
async fn wake(wakeups: &Wakeups) {
    // If this panics the driver must not wait for it.
    let _closes = Closes(wakeups);
    let mut tasks = Vec::new();
    while let Some(number) = poll_fn(|context| wakeups.poll_take(context, &mut tasks)).await {
        tasks.drain(..).for_each(std::task::Waker::wake);
        // They all run, and write what they can, before this one goes on.
        yield_now().await;
        wakeups.pass(number);
    }
}

struct Closes<'a>(&'a Wakeups);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
