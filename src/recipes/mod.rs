//! THE LOCKS, as a library over a client of ZooKeeper.
//!
//! *Owns* the recipes: what a program does with znodes so that one of many holds a lock. *Invariants*
//! (each with tests in tests/locks/recipes): who loses a lock is told before the server can give it
//! away; who gives up leaves neither a znode nor a watch; one release wakes one waiter; every lock
//! that is held has a fencing token that grows from holder to holder. *Never* touches the server's
//! internals: the recipes work on any ZooKeeper. Every recipe is built through [`RecipeOptions`].
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! use std::time::Duration;
//!
//! use lockkeeper::recipes::{Mutex, RecipeOptions, Wait};
//!
//! # let server = lockkeeper::Server::builder().start().await?;
//! # let servers = server.connect_string();
//! let client = zookeeper_client::Client::connect(&servers).await?;
//! let mutex = Mutex::new(RecipeOptions::at("/locks/report").id("the nightly report"))?;
//! let guard = mutex.acquire(&client, Wait::For(Duration::from_secs(5))).await?;
//! println!("held under token {}", guard.token());
//! guard
//!     .with(async {
//!         // Dropped where it waits if the lock is lost.
//!     })
//!     .await?;
//! guard.release().await?;
//! # drop(client);
//! # server.stop().await?;
//! # Ok(())
//! # })
//! # }
//! ```

mod barrier;
mod boottime;
mod contest;
mod dialect;
mod election;
mod entry;
mod error;
mod guard;
mod herd;
mod keeper;
mod multi;
mod mutex;
mod named;
mod options;
mod queue;
mod reentrant;
mod revoke;
mod role;
mod rwlock;
mod semaphore;
mod wait;

pub use barrier::{Barrier, DoubleBarrier, Inside};
pub use boottime::BootTime;
pub use dialect::{Dialect, SharedStyle, Style};
pub use election::{Candidate, Election};
pub use error::{LockError, LostReason};
pub use guard::{Guard, Txn};
pub use herd::{ChildWatchLock, SimpleLock};
pub use keeper::{Hold, HoldWatch};
pub use multi::{MultiGuard, MultiLock};
pub use mutex::Mutex;
pub use named::NamedMutex;
pub use options::RecipeOptions;
pub use reentrant::{Owner, ReentrantGuard, ReentrantMutex};
pub use revoke::revoke;
pub use rwlock::{ReadWriteLock, WriteGuard};
pub use semaphore::Semaphore;
pub use wait::Wait;
