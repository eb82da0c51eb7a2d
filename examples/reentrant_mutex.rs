//! A mutex that its owner can take again: the second time no server is asked.
//!
//! ```sh
//! cargo run --example reentrant_mutex -- 127.0.0.1:2181 /locks/demo
//! ```

mod common;

use std::error::Error;

use lockkeeper::recipes::{LockError, Mutex, Owner, ReentrantMutex, Wait};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (client, path, _) = common::begin().await?;
    let owner = ReentrantMutex::new(Mutex::new(&path)?).owner(&client);
    let outer = owner.acquire(Wait::Forever).await?;
    let claim = format!("{} {}", outer.node(), outer.token());
    println!("HELD {claim}");
    outer.with(work(&owner)).await??;
    assert!(outer.release().await?, "it is the last guard that gives the lock away");
    println!("RELEASED {claim}");
    Ok(())
}

/// Need not know whether its caller has the lock.
async fn work(owner: &Owner) -> Result<(), LockError> {
    let inner = owner.acquire(Wait::Forever).await?;
    println!("AGAIN {} {}", inner.node(), inner.token());
    common::enter().await;
    assert!(!inner.release().await?, "the caller has it still");
    Ok(())
}
