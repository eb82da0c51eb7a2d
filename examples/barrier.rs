//! A gate: all wait until somebody lifts it. With `set`, this sets it up and lifts it at Enter.
//!
//! ```sh
//! cargo run --example barrier -- 127.0.0.1:2181 /gates/import set
//! cargo run --example barrier -- 127.0.0.1:2181 /gates/import
//! ```

mod common;

use std::error::Error;

use lockkeeper::recipes::{Barrier, Wait};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (client, path, what) = common::begin().await?;
    let gate = Barrier::new(&path)?;
    if what.as_deref() == Some("set") {
        gate.set(&client).await?; // stays when we end, or are killed
        println!("SET {path}");
        common::enter().await;
        gate.lift(&client).await?;
        println!("LIFTED {path}");
    } else {
        gate.pass(&client, Wait::Forever).await?;
        println!("PASSED {path}");
    }
    Ok(())
}
