//! Many who read, or one who writes. Nobody overtakes: a reader waits for the writer who came before it.
//!
//! ```sh
//! cargo run --example read_write_lock -- 127.0.0.1:2181 /locks/index read     # or write
//! ```

mod common;

use std::error::Error;

use lockkeeper::recipes::{ReadWriteLock, Wait};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (client, path, what) = common::begin().await?;
    let lock = ReadWriteLock::new(&path)?;
    let guard = match what.as_deref() {
        None | Some("read") => lock.read(&client, Wait::Forever).await?,
        // `downgrade` on what `write` returns would go on as a reader.
        Some("write") => lock.write(&client, Wait::Forever).await?.into(),
        Some(other) => return Err(format!("neither read nor write: {other}").into()),
    };
    common::hold(guard).await?;
    Ok(())
}
