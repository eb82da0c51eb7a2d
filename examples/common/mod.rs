//! What the examples of the recipes have in common: their arguments, a session, and Enter.

#![allow(dead_code)] // every example uses its own part of this

use std::error::Error;
use std::time::Duration;

use lockkeeper::recipes::{Guard, LockError};
use tokio::sync::oneshot;
use zookeeper_client::Client;

/// A session on the servers that the first argument names, the path that is the second, and what else
/// there is.
pub async fn begin() -> Result<(Client, String, Option<String>), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let servers = arguments.next().unwrap_or_else(|| "127.0.0.1:2181".to_string());
    let path = arguments.next().unwrap_or_else(|| "/locks/demo".to_string());
    let connector = Client::connector().with_session_timeout(Duration::from_secs(10));
    Ok((connector.connect(&servers).await?, path, arguments.next()))
}

/// Keeps the lock until Enter, and gives it away.
///
/// # Errors
/// It is lost before.
pub async fn hold(guard: Guard) -> Result<(), LockError> {
    let claim = format!("{} {}", guard.node(), guard.token());
    println!("HELD {claim}");
    guard.with(enter()).await?; // what is done under the lock; dropped where it waits if that is lost
    guard.release().await?;
    println!("RELEASED {claim}");
    Ok(())
}

/// Waits for Enter, or for the end of the input.
pub async fn enter() {
    let (tell, told) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        let _ = tell.send(());
    });
    let _ = told.await;
}
