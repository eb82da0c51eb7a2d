//! Tasks of the runtime: one, and a set of them that is waited for together.
//!
//! *Invariant*: a task runs and is dropped as a task of the server that it was spawned in, so that its panic is told.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinError, JoinSet};

use super::{Place, Task, panic_point, within};

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

/// A task of a server.
pub(super) struct Supervised<F> {
    /// `None` while it is being dropped.
    future: Option<Pin<Box<F>>>,
    /// `None` while it runs.
    place: Option<Place>,
}

impl<F> Supervised<F> {
    pub(super) fn new(task: Task, future: F) -> Self {
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
