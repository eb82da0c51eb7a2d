//! A meeting: so many members begin together and end together.
//!
//! ```sh
//! cargo run --example double_barrier -- 127.0.0.1:2181 /meetings/step 3
//! ```

mod common;

use std::error::Error;

use lockkeeper::recipes::{DoubleBarrier, Wait};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (client, path, members) = common::begin().await?;
    let members = members.map_or(Ok(3), |members| members.parse())?;
    let meeting = DoubleBarrier::new(&path, members)?;
    let inside = meeting.enter(&client, Wait::Forever).await?; // all of them are there
    println!("ENTERED {path}");
    common::enter().await;
    inside.leave(Wait::Forever).await?; // all of them have finished
    println!("LEFT {path}");
    Ok(())
}
