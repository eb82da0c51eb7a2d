//! The way from the tasks of a live migration to the driver.

use tokio::sync::mpsc;

use crate::replica::LinkInput;
use crate::server::mailbox::{Message, ZooKeeperEvent};

pub(super) async fn tell(driver: &mpsc::Sender<Message>, number: u64, input: LinkInput) {
    send(driver, ZooKeeperEvent::Link { number, input }).await;
}

pub(super) async fn send(driver: &mpsc::Sender<Message>, event: ZooKeeperEvent) {
    // Fails when the server is ending.
    let _ = driver.send(Message::ZooKeeper(event)).await;
}
