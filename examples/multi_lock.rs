//! Several locks, all or none: here the two below a path. Each has a token of its own.
//!
//! ```sh
//! cargo run --example multi_lock -- 127.0.0.1:2181 /locks/accounts
//! ```

mod common;

use std::error::Error;

use lockkeeper::recipes::{MultiLock, Mutex, Wait};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (client, path, _) = common::begin().await?;
    // In whatever order they are named, they are taken in that of their paths: no deadlock.
    let both = [Mutex::new(format!("{path}/17"))?, Mutex::new(format!("{path}/04"))?];
    let guard = MultiLock::new(both)?.acquire(&client, Wait::Forever).await?;
    let claim = |guard: &lockkeeper::recipes::Guard| format!("{} {}", guard.node(), guard.token());
    let claims: Vec<String> = guard.guards().iter().map(claim).collect();
    claims.iter().for_each(|claim| println!("HELD {claim}"));
    guard.with(common::enter()).await?;
    guard.release().await?;
    claims.iter().for_each(|claim| println!("RELEASED {claim}"));
    Ok(())
}
