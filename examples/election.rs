//! One of several leads. The third argument is what it says of itself to those who look.
//!
//! ```sh
//! cargo run --example election -- 127.0.0.1:2181 /service/leader 10.0.0.7:8080
//! ```

mod common;

use std::error::Error;

use lockkeeper::recipes::{Election, RecipeOptions, Wait};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (client, path, id) = common::begin().await?;
    let id = id.unwrap_or_else(|| "nobody in particular".into());
    let election = Election::new(RecipeOptions::at(path).id(id))?;
    let office = election.campaign(&client, Wait::Forever).await?;
    for (place, candidate) in election.candidates(&client).await?.iter().enumerate() {
        println!(
            "{} {} {}",
            if place == 0 { "leads" } else { "waits" },
            candidate.id,
            candidate.node
        );
    }
    common::hold(office).await?; // released, it resigns
    Ok(())
}
