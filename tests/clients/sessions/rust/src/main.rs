//! The golden session of zookeeper-client. Usage: session HOST:PORT
use std::time::Duration;

use zookeeper_client::{Acls, AddWatchMode, Client, CreateMode, CreateOptions, Error};

fn open(mode: CreateMode) -> CreateOptions<'static> {
    mode.with_acls(Acls::anyone_all())
}

async fn znodes(client: &Client) -> Result<(), Error> {
    let persistent = open(CreateMode::Persistent);
    client.create("/g", b"one", &persistent).await?;
    client.create("/g/e", b"", &open(CreateMode::Ephemeral)).await?;
    client.create("/g/s-", b"x", &open(CreateMode::PersistentSequential)).await?;
    client.create("/g/es-", b"x", &open(CreateMode::EphemeralSequential)).await?;
    client.create("/g/c", b"", &open(CreateMode::Container)).await?;
    client.create("/g/t", b"", &persistent.clone().with_ttl(Duration::from_secs(600))).await?;
    assert_eq!(client.create("/g", b"", &persistent).await.unwrap_err(), Error::NodeExists);
    client.get_data("/g").await?;
    assert_eq!(client.get_data("/none").await.unwrap_err(), Error::NoNode);
    client.check_stat("/g").await?;
    client.check_stat("/none").await?;
    client.list_children("/g").await?;
    client.get_children("/g").await?;
    client.count_descendants_number("/g").await?;
    client.list_ephemerals("/g").await?;
    client.get_config().await?;
    client.sync("/g").await
}

async fn watches(client: &Client) -> Result<(), Error> {
    let (_, _, changed) = client.get_and_watch_data("/g").await?;
    let (_, children) = client.list_and_watch_children("/g").await?;
    let (_, created) = client.check_and_watch_stat("/g/later").await?;
    client.set_data("/g", b"two", None).await?;
    client.create("/g/later", b"", &open(CreateMode::Persistent)).await?;
    changed.changed().await;
    children.changed().await;
    created.changed().await;
    assert_eq!(client.set_data("/g", b"", Some(0)).await.unwrap_err(), Error::BadVersion);
    let mut persistent = client.watch("/g/c", AddWatchMode::Persistent).await?;
    let mut recursive = client.watch("/g/t", AddWatchMode::PersistentRecursive).await?;
    client.set_data("/g/c", b"1", None).await?;
    persistent.changed().await;
    client.create("/g/t/x", b"", &open(CreateMode::Persistent)).await?;
    client.delete("/g/t/x", None).await?;
    recursive.changed().await;
    recursive.changed().await;
    persistent.remove().await?;
    recursive.remove().await?;
    let (_, _, unused) = client.get_and_watch_data("/g/later").await?;
    unused.remove().await
}

async fn transactions(client: &Client) -> Result<(), Error> {
    let mut writer = client.new_multi_writer();
    writer.add_create("/g/m", b"m", &open(CreateMode::Persistent))?;
    writer.add_set_data("/g/m", b"n", Some(0))?;
    writer.add_check_version("/g/m", 1)?;
    writer.add_delete("/g/m", Some(1))?;
    writer.commit().await.expect("every operation fits");
    writer.add_create("/g/u", b"", &open(CreateMode::Persistent))?;
    writer.add_check_version("/g", 99)?;
    writer.commit().await.expect_err("the version differs");
    let mut reader = client.new_multi_reader();
    reader.add_get_data("/g")?;
    reader.add_get_children("/g")?;
    reader.add_get_data("/none")?;
    reader.commit().await?;
    Ok(())
}

async fn access(client: &Client) -> Result<(), Error> {
    client.get_acl("/g").await?;
    client.auth("digest", b"bob:pw").await?;
    client.list_auth_users().await?;
    client.set_acl("/g/later", &Acls::creator_all(), None).await?;
    assert_eq!(client.delete("/g", None).await.unwrap_err(), Error::NotEmpty);
    Ok(())
}

async fn session(address: &str) -> Result<(), Error> {
    let client =
        Client::connector().with_session_timeout(Duration::from_secs(10)).connect(address).await?;
    znodes(&client).await?;
    watches(&client).await?;
    transactions(&client).await?;
    access(&client).await?;
    let (_, _, _kept) = client.get_and_watch_data("/g").await?;
    let _recursive = client.watch("/g", AddWatchMode::PersistentRecursive).await?;
    client.check_stat("/drop").await?;
    while client.get_data("/g/e").await == Err(Error::ConnectionLoss) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for child in client.list_children("/g").await? {
        client.delete(&format!("/g/{child}"), None).await?;
    }
    client.delete("/g", None).await?;
    drop(client);
    tokio::time::sleep(Duration::from_millis(300)).await;
    Ok(())
}

#[tokio::main]
async fn main() {
    let address = std::env::args().nth(1).expect("usage: session HOST:PORT");
    session(&address).await.expect("the golden session");
}
