//! The counter of a directory goes from 2147483647 to -2147483648, and the locks there go on.

use std::path::Path;
use std::sync::Arc;

use lockkeeper::Server;
use lockkeeper::internals::storage::{Images, OsFs, Place, peek};
use lockkeeper::internals::tree::record_digest;
use lockkeeper::recipes::{Election, Guard, RecipeOptions, Semaphore, Wait};
use tempfile::TempDir;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode};

use super::queues::{Queue, act};
use super::{children, client};
use testkit::{PATIENCE, wait_until};

/// Contenders that are there at a time: as many with numbers before the overflow as behind it.
const CONTENDERS: usize = 4;
/// The number of the first of them.
const FIRST: i32 = i32::MAX - 1;
/// Theirs, as their names end.
const NUMBERS: [&str; CONTENDERS] = ["2147483646", "2147483647", "-2147483648", "-2147483647"];
/// Where a znode's record has how many children were ever created (`tree/record.rs`).
const CREATES_AT: usize = 54;

/// On data that outlives it. Images are written as early as can be.
async fn server_on(data: &Path) -> Server {
    let builder = testkit::builder().data_dir(data).set("lockkeeper.imageLogBytes", "1048576");
    builder.set("lockkeeper.checkpointMillis", "1").start().await.expect("a server")
}

/// A server with these directories, in which the next number is [`FIRST`].
async fn server_near_the_end(dirs: &[String]) -> (Server, TempDir) {
    let data = tempfile::tempdir().unwrap();
    let server = server_on(data.path()).await;
    let client = client(&server.connect_string()).await;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for dir in dirs {
        client.mkdir(dir, &open).await.unwrap();
    }
    client.create("/large", b"", &open).await.unwrap();
    wait_until("there is an image of all of them", async || {
        client.set_data("/large", &[7; 600_000], None).await.unwrap();
        has_all(&images(data.path()), dirs)
    })
    .await;
    drop(client);
    server.stop().await.unwrap();
    move_counters(data.path(), dirs);
    (server_on(data.path()).await, data)
}

fn images(data: &Path) -> Images {
    let identity = peek(&Place::on_disk(data, data)).unwrap().expect("there is data");
    Images::new(Arc::new(OsFs), &data.join("image"), identity.cluster_id)
}

/// Whether the newest image has these directories: an image is of a moment before it is written.
fn has_all(images: &Images, dirs: &[String]) -> bool {
    let Some(newest) = images.list().unwrap().first().copied() else { return false };
    // A newer one may take its place meanwhile.
    let Ok(reader) = images.open(newest) else { return false };
    let mut found = 0;
    let read = reader.read(&mut |key, _| {
        found += usize::from(dirs.iter().any(|dir| dir.as_bytes() == key));
        Ok(())
    });
    read.is_ok() && found == dirs.len()
}

/// Writes the newest image once more, with other counters.
fn move_counters(data: &Path, dirs: &[String]) {
    let images = images(data);
    let newest = images.list().unwrap()[0];
    let reader = images.open(newest).unwrap();
    let mut mark = reader.mark().clone();
    let mut records = Vec::new();
    reader
        .read(&mut |key, value| {
            records.push((key.to_vec(), value.to_vec()));
            Ok(())
        })
        .unwrap();
    let mut moved = 0;
    for (key, value) in &mut records {
        if dirs.iter().any(|dir| dir.as_bytes() == key) {
            mark.digest = mark.digest.wrapping_sub(record_digest(key, value).unwrap());
            value[CREATES_AT..CREATES_AT + 4].copy_from_slice(&FIRST.to_be_bytes());
            mark.digest = mark.digest.wrapping_add(record_digest(key, value).unwrap());
            moved += 1;
        }
    }
    assert_eq!(moved, dirs.len(), "the image has all of them");
    let mut writer = images.create(&mark).unwrap();
    for (key, value) in &records {
        writer.record(key, value).unwrap();
    }
    writer.finish().unwrap();
    // What lies beside the images is made from them.
    std::fs::remove_dir_all(data.join("state")).unwrap();
}

async fn clients(server: &Server) -> Vec<Client> {
    super::clients(server, CONTENDERS).await
}

#[tokio::test]
pub(super) async fn grants_come_in_the_order_of_arrival_over_the_overflow() {
    let paths: Vec<String> = (0..Queue::ALL.len()).map(Queue::path).collect();
    let (server, _data) = server_near_the_end(&paths).await;
    let clients = clients(&server).await;
    for (queue, path) in Queue::ALL.into_iter().zip(&paths) {
        let mut holder = queue.enter(&clients[0], path, Wait::No).await.unwrap();
        let mut nodes = vec![holder.node()];
        let mut waiting = Vec::new();
        for client in &clients[1..] {
            waiting.push(queue.wait(client, path).await);
        }
        while !waiting.is_empty() {
            let are_granted = waiting.iter().filter(|waits| waits.is_finished()).count();
            assert_eq!(are_granted, 0, "{queue:?}: more than one holds it");
            let token = holder.token();
            holder.release().await.unwrap();
            holder = timeout(PATIENCE, waiting.remove(0)).await.unwrap().unwrap().unwrap();
            assert!(holder.token() > token, "{queue:?}");
            nodes.push(holder.node());
            act(&clients[CONTENDERS - 1]).await;
        }
        for (node, number) in nodes.iter().zip(NUMBERS) {
            assert!(node.ends_with(number), "{queue:?}: {node} is not {number}");
        }
        holder.release().await.unwrap();
    }
    server.stop().await.unwrap();
}

#[tokio::test]
pub(super) async fn leases_are_no_more_than_there_may_be_over_the_overflow() {
    let dirs = ["/sem/locks".to_string(), "/sem/leases".to_string()];
    let (server, _data) = server_near_the_end(&dirs).await;
    let clients = clients(&server).await;
    let semaphore = Semaphore::new("/sem", 2).unwrap();
    let mut held: Vec<Guard> = Vec::new();
    for client in &clients[..2] {
        held.push(semaphore.acquire(client, Wait::For(PATIENCE)).await.unwrap());
    }
    for client in &clients[2..] {
        let waits = {
            let (semaphore, client) = (semaphore.clone(), client.clone());
            tokio::spawn(async move { semaphore.acquire(&client, Wait::Forever).await })
        };
        let leases = async || children(client, "/sem/leases").await.len() == 3;
        wait_until("it has entered", leases).await;
        act(client).await;
        assert!(!waits.is_finished(), "three hold it");
        held.remove(0).release().await.unwrap();
        held.push(timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap());
    }
    server.stop().await.unwrap();
}

#[tokio::test]
pub(super) async fn candidates_are_listed_in_their_order_over_the_overflow() {
    let (server, _data) = server_near_the_end(&["/office".to_string()]).await;
    let client = client(&server.connect_string()).await;
    let mut standing = Vec::new();
    let ids = ["one", "two", "three", "four"];
    for (count, id) in (1..).zip(ids) {
        let election = Election::new(RecipeOptions::at("/office").id(id)).unwrap();
        let client_of = client.clone();
        standing
            .push(tokio::spawn(async move { election.campaign(&client_of, Wait::Forever).await }));
        let stands = async || children(&client, "/office").await.len() == count;
        wait_until("it stands", stands).await;
    }
    let listed = Election::new("/office").unwrap().candidates(&client).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|candidate| candidate.id.as_str()).collect();
    assert_eq!(listed, ids);
    server.stop().await.unwrap();
}
