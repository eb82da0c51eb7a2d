//! Up to N holders at a time; all who share the path must say the same N.
//!
//! ```sh
//! cargo run --example semaphore -- 127.0.0.1:2181 /locks/printers 2
//! ```

mod common;

use std::error::Error;

use lockkeeper::recipes::{Semaphore, Wait};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (client, path, permits) = common::begin().await?;
    let permits = permits.map_or(Ok(2), |permits| permits.parse())?;
    let guard = Semaphore::new(&path, permits)?.acquire(&client, Wait::Forever).await?;
    common::hold(guard).await?;
    Ok(())
}
