//! What holds of every queue, whatever recipe it is of.

use lockkeeper::recipes::{
    ChildWatchLock, Election, Guard, LockError, LostReason, Mutex, NamedMutex, ReadWriteLock,
    SharedStyle, Style, Wait,
};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use zookeeper_client::Client;

use super::{children, clients, server};
use testkit::{PATIENCE, wait_until};

/// A queue: of it one at a time holds what all want.
#[derive(Clone, Copy, Debug)]
pub(super) enum Queue {
    Mutex(Style),
    Writer(SharedStyle),
    Named,
    Election,
    Crowd,
}

impl Queue {
    pub(super) const ALL: [Self; 9] = [
        Self::Mutex(Style::Curator),
        Self::Mutex(Style::Kazoo),
        Self::Mutex(Style::Plain),
        Self::Mutex(Style::ZooKeeper),
        Self::Writer(SharedStyle::Curator),
        Self::Writer(SharedStyle::Kazoo),
        Self::Named,
        Self::Election,
        Self::Crowd,
    ];

    /// Where the contenders of the queue of this number are.
    pub(super) fn path(number: usize) -> String {
        format!("/queue{number}")
    }

    pub(super) async fn enter(
        self,
        client: &Client,
        path: &str,
        wait: Wait,
    ) -> Result<Guard, LockError> {
        match self {
            Self::Mutex(style) => {
                let mutex = Mutex::new(path).expect("a path").style(style);
                mutex.acquire(client, wait).await
            }
            Self::Writer(style) => {
                let lock = ReadWriteLock::new(path).expect("a path").style(style);
                lock.write(client, wait).await.map(Guard::from)
            }
            Self::Named => {
                NamedMutex::new(path, "one").expect("a name").acquire(client, wait).await
            }
            Self::Election => Election::new(path).expect("a path").campaign(client, wait).await,
            Self::Crowd => ChildWatchLock::new(path).expect("a path").acquire(client, wait).await,
        }
    }

    /// Begins to wait, and returns when the contender is in the queue.
    pub(super) async fn wait(
        self,
        client: &Client,
        path: &str,
    ) -> JoinHandle<Result<Guard, LockError>> {
        let before = children(client, path).await.len();
        let task = {
            let (client, path) = (client.clone(), path.to_string());
            tokio::spawn(async move { self.enter(&client, &path, Wait::Forever).await })
        };
        wait_until("it queues", async || children(client, path).await.len() > before).await;
        act(client).await;
        task
    }
}

/// Returns when whoever uses this client has done what follows from all that happened before. An event is
/// in front of the answer to a later question, and so is the answer to what was asked because of it.
pub(super) async fn act(client: &Client) {
    for _ in 0..5 {
        client.sync("/").await.expect("it is answered");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
pub(super) async fn who_is_woken_by_one_that_gives_up_goes_on_to_wait_for_the_holder() {
    let server = server().await;
    let clients = clients(&server, 3).await;
    for (number, queue) in Queue::ALL.into_iter().enumerate() {
        let path = Queue::path(number);
        let holder = queue.enter(&clients[0], &path, Wait::No).await.unwrap();
        let between = queue.wait(&clients[1], &path).await;
        let last = queue.wait(&clients[2], &path).await;
        between.abort();
        wait_until("it has left", async || children(&clients[0], &path).await.len() == 2).await;
        act(&clients[2]).await;
        assert!(!last.is_finished(), "{queue:?}: two hold it");
        let token = holder.token();
        holder.release().await.unwrap();
        let last = timeout(PATIENCE, last).await.unwrap().unwrap().unwrap();
        assert!(last.token() > token, "{queue:?}");
        last.release().await.unwrap();
    }
    server.stop().await.unwrap();
}

#[tokio::test]
pub(super) async fn who_was_removed_while_it_waited_is_told_so_in_its_turn() {
    let server = server().await;
    let clients = clients(&server, 2).await;
    for (number, queue) in Queue::ALL.into_iter().enumerate() {
        let path = Queue::path(number);
        let holder = queue.enter(&clients[0], &path, Wait::No).await.unwrap();
        let waits = queue.wait(&clients[1], &path).await;
        let held = holder.node();
        for name in children(&clients[0], &path).await {
            let node = format!("{path}/{name}");
            if node != held {
                clients[0].delete(&node, None).await.unwrap();
            }
        }
        holder.release().await.unwrap();
        let refused = timeout(PATIENCE, waits).await.unwrap().unwrap();
        let is_lost = matches!(refused, Err(LockError::Lost(LostReason::Removed)));
        assert!(is_lost, "{queue:?}: {refused:?}");
    }
    server.stop().await.unwrap();
}
