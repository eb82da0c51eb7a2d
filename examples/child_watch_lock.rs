//! Not to be used, but to compare with: everybody who waits watches all the others.
//!
//! ```sh
//! cargo run --example child_watch_lock -- 127.0.0.1:2181 /locks/naive
//! ```

mod common;

use std::error::Error;

use lockkeeper::recipes::{ChildWatchLock, Wait};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (client, path, _) = common::begin().await?;
    let guard = ChildWatchLock::new(&path)?.acquire(&client, Wait::Forever).await?;
    common::hold(guard).await?;
    Ok(())
}
