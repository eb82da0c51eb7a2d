//! A holder that gives its lock away when it is asked to; and, with `revoke` and the path of the
//! holder's znode, one who asks.
//!
//! ```sh
//! cargo run --example revocable -- 127.0.0.1:2181 /locks/demo
//! cargo run --example revocable -- 127.0.0.1:2181 /locks/demo/_c_...-lock-0000000000 revoke
//! ```

mod common;

use std::error::Error;

use lockkeeper::recipes::{Mutex, Wait, revoke};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (client, path, what) = common::begin().await?;
    if what.as_deref() == Some("revoke") {
        let is_there = revoke(&client, &path).await?;
        println!("{} {path}", if is_there { "ASKED" } else { "GONE" });
        return Ok(());
    }
    let guard = Mutex::new(&path)?.acquire(&client, Wait::Forever).await?;
    let claim = format!("{} {}", guard.node(), guard.token());
    println!("HELD {claim}");
    tokio::select! {
        asked = guard.asked_to_release() => asked?, // an error if the lock is lost
        () = common::enter() => {}
    }
    guard.release().await?;
    println!("RELEASED {claim}");
    Ok(())
}
