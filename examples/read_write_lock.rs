//! Many who read, or one who writes. Nobody overtakes: a reader waits for the writer who came before it.
//!
//! ```sh
//! cargo run --example read_write_lock -- 127.0.0.1:2181 /locks/index read     # or write, or downgrade
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
        Some("write") => lock.write(&client, Wait::Forever).await?.into(),
        // A writer until Enter, and then, without a moment in between, a reader.
        Some("downgrade") => {
            let writer = lock.write(&client, Wait::Forever).await?;
            println!("HELD {} {}", writer.node(), writer.token());
            writer.with(common::enter()).await?;
            writer.downgrade().await?
        }
        Some(other) => return Err(format!("not read, write or downgrade: {other}").into()),
    };
    common::hold(guard).await?;
    Ok(())
}
