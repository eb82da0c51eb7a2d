//! Several locks in one directory: who asks for another name neither waits nor is waited for.
//!
//! ```sh
//! cargo run --example named_mutex -- 127.0.0.1:2181 /locks/all report
//! ```

mod common;

use std::error::Error;

use lockkeeper::recipes::{NamedMutex, Wait};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (client, directory, name) = common::begin().await?;
    let mutex = NamedMutex::new(&directory, name.as_deref().unwrap_or("report"))?;
    let guard = mutex.acquire(&client, Wait::Forever).await?;
    common::hold(guard).await?;
    Ok(())
}
