//! The locks of `lockkeeper::recipes`, against servers in this process: what a lock promises, and
//! what it leaves behind.

mod barrier;
mod election;
mod faults;
mod herd;
mod hold;
mod loss;
mod mishaps;
mod multi;
#[cfg(feature = "mutants")]
mod mutants;
mod mutex;
mod named;
mod overflow;
mod queues;
mod reentrant;
mod revoke;
mod rwlock;
mod semaphore;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use lockkeeper::Server;
use lockkeeper::recipes::{Guard, LockError, Mutex, Wait};
use zookeeper_client::{Acls, Client, CreateMode};

/// The session timeout of most tests.
const SESSION: Duration = Duration::from_secs(4);

/// A server in memory that grants sessions of any length.
async fn server() -> Server {
    let shortest = Duration::from_millis(400);
    let builder = testkit::builder().tick_time(Duration::from_millis(100));
    let builder = builder.session_timeouts(shortest, Duration::from_secs(60));
    builder.start().await.expect("a server")
}

async fn client(servers: &str) -> Client {
    client_for(servers, SESSION).await
}

/// Several sessions: of one, several waits for one znode are one watch.
async fn clients(server: &Server, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(client(&server.connect_string()).await);
    }
    clients
}

async fn client_for(servers: &str, session: Duration) -> Client {
    let connector = Client::connector().with_session_timeout(session);
    connector.connect(servers).await.expect("a session")
}

fn lock(path: &str) -> Mutex {
    Mutex::new(path).expect("a path")
}

async fn acquire(client: &Client, path: &str) -> Guard {
    let guard = lock(path).acquire(client, Wait::For(testkit::PATIENCE)).await;
    guard.expect("the lock")
}

/// Begins to acquire the lock, and returns when the contender waits in the queue.
async fn queue(
    client: &Client,
    observer: &Client,
    path: &str,
) -> tokio::task::JoinHandle<Result<Guard, LockError>> {
    let before = children(observer, path).await.len();
    let (client, path) = (client.clone(), path.to_string());
    let task = {
        let path = path.clone();
        tokio::spawn(async move { lock(&path).acquire(&client, Wait::Forever).await })
    };
    testkit::wait_until("it queues", async || children(observer, &path).await.len() > before).await;
    task
}

/// The contenders' names, in their order; none if the lock was never used.
async fn children(client: &Client, path: &str) -> Vec<String> {
    let mut names = match client.list_children(path).await {
        Ok(names) => names,
        Err(zookeeper_client::Error::NoNode) => Vec::new(),
        Err(error) => panic!("{path}: {error}"),
    };
    names.sort_by_key(|name| name[name.len().saturating_sub(10)..].to_string());
    names
}

async fn is_empty(client: &Client, path: &str) {
    testkit::wait_until("nobody is left", async || children(client, path).await.is_empty()).await;
}

/// As somebody else's recipe would.
async fn enter_as(client: &Client, path: &str, prefix: &str) -> String {
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let prefix = format!("{path}/{prefix}");
    let (_, sequence) = client.create(&prefix, b"", &options).await.expect("created");
    format!("{prefix}{sequence}")
}

/// Begins `attempt`, which cannot succeed, and drops it after each of its steps in turn; then nothing
/// of it is left beside the `left` znodes below the paths.
async fn drop_anywhere<T>(
    server: &Server,
    observer: &Client,
    left: &[(&str, usize)],
    mut attempt: impl AsyncFnMut() -> T,
) {
    for steps in 1..=8 {
        // With nothing left to happen, it waits for the holder.
        let got = take_steps(attempt(), steps, Duration::from_millis(100)).await;
        assert!(got.is_none(), "the lock is held by another");
        testkit::wait_until("it has left", async || {
            for (path, count) in left {
                if children(observer, path).await.len() != *count {
                    return false;
                }
            }
            server.status().watch_count == 0
        })
        .await;
    }
}

/// Drops `attempt` after so many of its steps, or that time; what it came to, if it ended before.
async fn take_steps<T>(attempt: impl Future<Output = T>, steps: u64, most: Duration) -> Option<T> {
    let mut attempt = pin!(attempt);
    let mut taken = 0;
    let partly = poll_fn(|context| {
        taken += 1;
        match attempt.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending if taken == steps => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    tokio::time::timeout(most, partly).await.ok().flatten()
}
