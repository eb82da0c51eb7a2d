//! Not to be used, but to compare with: everybody who waits is woken to create one znode, and one of them can.
//!
//! ```sh
//! cargo run --example simple_lock -- 127.0.0.1:2181 /locks/simple
//! ```

mod common;

use std::error::Error;

use lockkeeper::recipes::{SimpleLock, Wait};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (client, path, _) = common::begin().await?;
    let guard = SimpleLock::new(&path)?.acquire(&client, Wait::Forever).await?;
    common::hold(guard).await?;
    Ok(())
}
