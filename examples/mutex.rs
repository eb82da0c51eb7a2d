//! One holder at a time. Start it twice, press Enter in the first; kill the second without mercy.
//!
//! ```sh
//! cargo run --example mutex -- 127.0.0.1:2181 /locks/demo
//! ```

mod common;

use std::error::Error;

use lockkeeper::recipes::{Mutex, RecipeOptions, Wait};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (client, path, _) = common::begin().await?;
    let mutex = Mutex::new(RecipeOptions::at(path).id("the example mutex"))?;
    let guard = mutex.acquire(&client, Wait::Forever).await?;
    common::hold(guard).await?;
    Ok(())
}
