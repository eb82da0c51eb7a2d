//! How an ensemble lives through the loss of servers, of links and of data, as clients see it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use lockkeeper::Ensemble;
use lockkeeper::internals::admin::LinkCounters;
use lockkeeper::internals::proto::ErrorCode;
use testkit::authority::{Authority, put};
use testkit::{CONNECTION_LOSS, Client, fresh, wait_until};

async fn client(ensemble: &Ensemble, id: u8) -> Client {
    Client::connect(address(ensemble, id)).await
}

fn address(ensemble: &Ensemble, id: u8) -> SocketAddr {
    ensemble.server(id).expect("it runs").local_addr()
}

fn others(ensemble: &Ensemble, id: u8) -> Vec<u8> {
    ensemble.servers().map(|(other, _)| other).filter(|other| *other != id).collect()
}

/// Waits until all servers that run have applied the same and have the same digest.
async fn agree(ensemble: &Ensemble) {
    wait_until("all servers have the same state", async || {
        let mut states = ensemble.servers().map(|(_, server)| {
            let status = server.status();
            (status.serving, status.zxid, status.digest)
        });
        let first = states.next().expect("one runs");
        first.0 && states.all(|state| state == first)
    })
    .await;
}

const NODE_EXISTS: i32 = ErrorCode::NodeExists as i32;
const SESSION_EXPIRED: i32 = ErrorCode::SessionExpired as i32;

/// Creates a znode of 16 KiB, or writes one that is there; over another connection where a change of leaders has ended
/// this one.
async fn write(ensemble: &Ensemble, client: &mut Client, path: &str, is_new: bool) {
    let data = vec![b'x'; 16 << 10];
    loop {
        let written = match is_new {
            true => client.create(path, &data, 0).await.map(|_| ()),
            false => client.set(path, &data).await,
        };
        match written {
            // An earlier try made it, whose answer was lost.
            Ok(()) | Err(NODE_EXISTS) => return,
            Err(CONNECTION_LOSS | SESSION_EXPIRED) => {
                let (_, server) = ensemble.servers().next().expect("one runs");
                *client = Client::served(server.local_addr()).await;
            }
            Err(refused) => panic!("{path}: {refused:?}"),
        }
    }
}

async fn fill(ensemble: &Ensemble, client: &mut Client, from: u32, count: u32) {
    for number in from..from + count {
        write(ensemble, client, &format!("/fill-{number}"), true).await;
    }
}

/// Writes until no server that runs has the log up to `applied` any more; returns the next number.
///
/// From some size on the same znode is written: on a busy machine the tree would grow faster than images are written.
async fn fill_until_cut(ensemble: &Ensemble, client: &mut Client, applied: u64) -> u32 {
    const ZNODES_MAX: u32 = 1000;
    let mut next = 0;
    loop {
        if next < ZNODES_MAX {
            fill(ensemble, client, next, 50).await;
            next += 50;
        } else {
            for _ in 0..50 {
                write(ensemble, client, "/fill-0", false).await;
            }
        }
        let is_cut = |(id, _)| {
            let names = images(ensemble.data_dir(id).expect("it has one"));
            let index = |name: &String| u64::from_str_radix(name.strip_suffix(".image")?, 16).ok();
            let mut indexes: Vec<u64> = names.iter().filter_map(index).collect();
            indexes.sort_unstable();
            // Up to a segment, which holds less than a hundred of these, stays behind the older one.
            indexes.len() > 1 && indexes[0] > applied + 100
        };
        if ensemble.servers().all(is_cut) {
            return next;
        }
    }
}

fn links(ensemble: &Ensemble, id: u8) -> LinkCounters {
    ensemble.server(id).expect("it runs").counters().links.expect("it has others")
}

/// The index with which the first file of the log begins; 0 while there is none.
fn log_begins(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory.join("log")) else { return 0 };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let begins = names.filter_map(|name| u64::from_str_radix(name.strip_suffix(".log")?, 16).ok());
    begins.min().unwrap_or(0)
}

fn images(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory.join("image")) else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_through_any_server_is_on_all_of_them_and_outlives_the_leader() {
    let mut ensemble = Ensemble::start(3).await.unwrap();
    for id in 1..=3 {
        client(&ensemble, id).await.create(&format!("/by-{id}"), b"x", 0).await.unwrap();
    }
    let leader = ensemble.leader().expect("there is one");
    ensemble.kill(leader).await.unwrap();
    let next = ensemble.wait_for_leader().await.unwrap();
    assert_ne!(next, leader);
    for id in others(&ensemble, leader) {
        let mut client = client(&ensemble, id).await;
        for by in 1..=3 {
            assert!(client.exists(&format!("/by-{by}")).await, "on {id}");
        }
    }
    client(&ensemble, next).await.create("/without", b"x", 0).await.unwrap();
    ensemble.restart(leader).await.unwrap();
    ensemble.wait_until_all_serve().await.unwrap();
    assert!(client(&ensemble, leader).await.exists("/without").await);
    agree(&ensemble).await;
    ensemble.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_stopped_hands_over_and_its_sessions_go_on_elsewhere() {
    let mut ensemble = Ensemble::start(3).await.unwrap();
    let leader = ensemble.leader().expect("there is one");
    let mut session = client(&ensemble, leader).await;
    session.create("/mine", b"", testkit::EPHEMERAL).await.unwrap();
    let begun = Instant::now();
    ensemble.stop(leader).await.unwrap();
    let next = ensemble.wait_for_leader().await.unwrap();
    assert_ne!(next, leader);
    let mut again =
        Client::open(address(&ensemble, next), &session.again()).await.expect("an answer");
    assert!(begun.elapsed().as_secs() < 2, "it took {:?}", begun.elapsed());
    assert_eq!(again.session.session_id, session.session.session_id);
    assert!(again.exists("/mine").await);
    ensemble.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_gives_way_and_takes_over_what_the_others_did() {
    let mut ensemble = Ensemble::start(3).await.unwrap();
    let leader = ensemble.leader().expect("there is one");
    ensemble.partition(&[leader]);
    let next = ensemble.wait_for_leader().await.unwrap();
    assert_ne!(next, leader);
    client(&ensemble, next).await.create("/meanwhile", b"x", 0).await.unwrap();
    let minority = Client::open(address(&ensemble, leader), &fresh(4000)).await;
    assert!(minority.is_none(), "nobody gets a session without a majority");
    ensemble.heal();
    ensemble.wait_until_all_serve().await.unwrap();
    assert!(client(&ensemble, leader).await.exists("/meanwhile").await);
    agree(&ensemble).await;
    ensemble.shutdown().await.unwrap();
}

/// ClickHouse #114401: a request for a session was lost with the leader, and its client hung.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_connect_while_the_leader_goes_are_served_by_the_next_one() {
    let mut ensemble = Ensemble::start(3).await.unwrap();
    let leader = ensemble.leader().expect("there is one");
    let addresses: Vec<SocketAddr> =
        others(&ensemble, leader).into_iter().map(|id| address(&ensemble, id)).collect();
    let storm: Vec<_> = (0..60)
        .map(|number| tokio::spawn(Client::served(addresses[number % addresses.len()])))
        .collect();
    ensemble.kill(leader).await.unwrap();
    ensemble.wait_for_leader().await.unwrap();
    let elected = Instant::now();
    for (number, client) in storm.into_iter().enumerate() {
        let mut client = client.await.unwrap();
        client.create(&format!("/{number}"), b"", testkit::EPHEMERAL).await.unwrap();
    }
    assert!(elected.elapsed().as_secs() < 5, "it took {:?}", elected.elapsed());
    ensemble.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_session_sees_the_end_of_the_one_before_on_every_server() {
    let mut ensemble = Ensemble::builder(3).set("tickTime", "200").start().await.unwrap();
    let leader = ensemble.leader().expect("there is one");
    let behind = others(&ensemble, leader)[0];
    let mut old = Client::open(address(&ensemble, leader), &fresh(400)).await.expect("a session");
    old.create("/mine", b"", testkit::EPHEMERAL).await.unwrap();
    agree(&ensemble).await;
    ensemble.partition(&[behind]);
    let mut other = client(&ensemble, leader).await;
    wait_until("it is gone", async || !other.exists("/mine").await).await;
    ensemble.heal();
    let mut new = Client::served(address(&ensemble, behind)).await;
    assert!(!new.exists("/mine").await);
    ensemble.shutdown().await.unwrap();
}

/// ZOOKEEPER-1367: sessions and their znodes stayed for ever after a restart of all servers.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_whose_clients_stay_away_end_after_a_restart_of_all() {
    let directory = tempfile::tempdir().unwrap();
    let builder = || Ensemble::builder(3).data_dir(directory.path()).set("tickTime", "200");
    let ensemble = builder().start().await.unwrap();
    let mut sessions = Vec::new();
    for number in 0..6 {
        let through = address(&ensemble, 1 + number % 3);
        let mut client = Client::open(through, &fresh(2000)).await.expect("a session");
        client.create(&format!("/{number}"), b"", testkit::EPHEMERAL).await.unwrap();
        sessions.push(client.again());
    }
    ensemble.shutdown().await.unwrap();
    let ensemble = builder().start().await.unwrap();
    let mut back = Vec::new();
    for again in &sessions[..3] {
        let client = Client::open(address(&ensemble, 2), again).await.expect("an answer");
        assert_eq!(client.session.session_id, again.session_id);
        back.push(client);
    }
    wait_until("the others are gone", async || {
        let mut are_gone = true;
        for client in &mut back {
            for number in 3..6 {
                are_gone &= !client.exists(&format!("/{number}")).await;
            }
        }
        are_gone
    })
    .await;
    for number in 0..3 {
        assert!(back[0].exists(&format!("/{number}")).await, "/{number}");
    }
    agree(&ensemble).await;
    ensemble.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ensemble_continues_from_the_directory_that_it_left() {
    let directory = tempfile::tempdir().unwrap();
    let builder = || Ensemble::builder(3).observers(1).data_dir(directory.path());
    let ensemble = builder().start().await.unwrap();
    assert_eq!(ensemble.connect_string().split(',').count(), 4);
    client(&ensemble, 4).await.create("/kept", b"x", 0).await.unwrap();
    ensemble.shutdown().await.unwrap();
    let ensemble = builder().start().await.unwrap();
    assert!(client(&ensemble, 4).await.exists("/kept").await);
    ensemble.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_behind_a_log_that_was_cut_is_sent_an_image() {
    is_sent_an_image(small_log()).await;
}

async fn is_sent_an_image(builder: lockkeeper::EnsembleBuilder) {
    let mut ensemble = builder.start().await.unwrap();
    let leader = ensemble.leader().expect("there is one");
    let lagging = others(&ensemble, leader)[0];
    let applied = ensemble.server(lagging).expect("it runs").status().applied;
    ensemble.kill(lagging).await.unwrap();
    let mut writer = client(&ensemble, leader).await;
    let next = fill_until_cut(&ensemble, &mut writer, applied).await;
    ensemble.restart(lagging).await.unwrap();
    // While it is sent, more comes.
    fill(&ensemble, &mut writer, next, 100).await;
    ensemble.wait_until_all_serve().await.unwrap();
    agree(&ensemble).await;
    assert!(client(&ensemble, lagging).await.exists(&format!("/fill-{}", next + 99)).await);
    assert!(links(&ensemble, lagging).images_received > 0);
    // By the leader of that moment: on a busy machine another server may have been elected.
    assert!((1..=3).any(|id| links(&ensemble, id).images_sent > 0));
    // What it received is what it starts from.
    ensemble.restart(lagging).await.unwrap();
    ensemble.wait_until_all_serve().await.unwrap();
    agree(&ensemble).await;
    ensemble.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_lost_its_data_joins_again_while_others_write() {
    let mut ensemble = small_log().start().await.unwrap();
    let leader = ensemble.leader().expect("there is one");
    let wiped = others(&ensemble, leader)[1];
    let mut writer = client(&ensemble, leader).await;
    ensemble.kill(wiped).await.unwrap();
    ensemble.wipe(wiped).unwrap();
    let next = fill_until_cut(&ensemble, &mut writer, 0).await;
    ensemble.restart(wiped).await.unwrap();
    fill(&ensemble, &mut writer, next, 100).await;
    ensemble.wait_until_all_serve().await.unwrap();
    agree(&ensemble).await;
    assert!(links(&ensemble, wiped).images_received > 0);
    // It votes again: with it, one other may fail.
    let voters = async || {
        let status = ensemble.server(wiped).expect("it runs").status();
        status.mode == lockkeeper::internals::replica::inspect::Mode::Follower
    };
    wait_until("it is a follower", voters).await;
    ensemble.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_all_of_whose_copies_are_damaged_fetches_an_image_and_stays_who_it_is() {
    fetches_an_image(small_log()).await;
}

async fn fetches_an_image(builder: lockkeeper::EnsembleBuilder) {
    let mut ensemble = builder.start().await.unwrap();
    let leader = ensemble.leader().expect("there is one");
    let damaged = others(&ensemble, leader)[0];
    let mut writer = client(&ensemble, leader).await;
    let next = fill_until_cut(&ensemble, &mut writer, 0).await;
    let directory = ensemble.data_dir(damaged).expect("it has one").to_path_buf();
    // Another thread than that of images cuts the log; a whole one would do without an image.
    wait_until("its log is cut", async || log_begins(&directory) > 1).await;
    ensemble.kill(damaged).await.unwrap();
    for name in images(&directory) {
        let path = directory.join("image").join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
        std::fs::write(&path, bytes).unwrap();
    }
    std::fs::remove_dir_all(directory.join("state")).unwrap();
    let identity = std::fs::read(directory.join("identity")).unwrap();
    // Nobody has an image for it while it is alone, and it waits.
    for id in others(&ensemble, damaged) {
        ensemble.kill(id).await.unwrap();
    }
    ensemble.restart(damaged).await.unwrap();
    assert!(!ensemble.server(damaged).expect("it waits").status().serving);
    for id in 1..=3 {
        if id != damaged {
            ensemble.restart(id).await.unwrap();
        }
    }
    ensemble.wait_until_all_serve().await.unwrap();
    agree(&ensemble).await;
    assert!(client(&ensemble, damaged).await.exists(&format!("/fill-{}", next - 1)).await);
    assert_eq!(std::fs::read(directory.join("identity")).unwrap(), identity);
    assert_eq!(links(&ensemble, damaged).images_received, 1);
    // What is damaged is kept.
    assert!(images(&directory).iter().any(|name| name.ends_with(".bad")));
    ensemble.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_or_a_sender_that_dies_in_the_middle_of_an_image_leaves_nothing_half() {
    let mut ensemble = small_log().start().await.unwrap();
    let leader = ensemble.leader().expect("there is one");
    let lagging = others(&ensemble, leader)[0];
    ensemble.kill(lagging).await.unwrap();
    let mut writer = client(&ensemble, leader).await;
    // Large enough to take its time.
    let next = fill_until_cut(&ensemble, &mut writer, 500).await;
    let directory = ensemble.data_dir(lagging).expect("it has one").to_path_buf();
    let is_receiving = || images(&directory).iter().any(|name| name.ends_with(".tmp"));

    // In the middle, unless the machine is so fast that it is the end.
    ensemble.restart(lagging).await.unwrap();
    wait_until("an image arrives", async || {
        is_receiving() || links(&ensemble, lagging).images_received > 0
    })
    .await;
    ensemble.kill(lagging).await.unwrap();
    assert!(!is_receiving(), "{:?}", images(&directory));

    // It may have installed that one while it was killed, and need no other.
    ensemble.restart(lagging).await.unwrap();
    wait_until("it is sent what it lacks", async || {
        is_receiving()
            || links(&ensemble, lagging).bytes_received > 100_000
            || ensemble.server(lagging).expect("it runs").status().serving
    })
    .await;
    ensemble.kill(leader).await.unwrap();
    wait_until("the other one leads and sends it", async || {
        let status = ensemble.server(lagging).expect("it runs").status();
        status.serving && status.znode_count > u64::from(next)
    })
    .await;
    ensemble.restart(leader).await.unwrap();
    ensemble.wait_until_all_serve().await.unwrap();
    agree(&ensemble).await;
    ensemble.shutdown().await.unwrap();
}

fn small_log() -> lockkeeper::EnsembleBuilder {
    Ensemble::builder(3)
        .set("lockkeeper.imageLogBytes", "1048576")
        .set("lockkeeper.checkpointMillis", "20")
}

#[tokio::test(flavor = "multi_thread")]
async fn images_go_over_links_that_prove_a_secret_as_over_others() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    std::fs::write(&file, "ab".repeat(32)).unwrap();
    let secured = || small_log().set("lockkeeper.peerSecretFile", file.to_str().unwrap());
    is_sent_an_image(secured()).await;
    fetches_an_image(secured()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn images_go_through_tls_as_over_other_links() {
    let (directory, ours) = (tempfile::tempdir().unwrap(), Authority::new("ours"));
    let key = put(directory.path(), "key.pem", &ours.issue_for(&["127.0.0.1"]).pem());
    let trust = put(directory.path(), "trust.pem", &ours.pem());
    let secured = || {
        small_log()
            .set("sslQuorum", "true")
            .set("ssl.quorum.keyStore.location", key.to_str().unwrap())
            .set("ssl.quorum.trustStore.location", trust.to_str().unwrap())
    };
    is_sent_an_image(secured()).await;
    fetches_an_image(secured()).await;
}
