//! Backups of servers in processes of their own, and ensembles that begin with them.

mod recover;
mod zookeeper;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lockkeeper::internals::proto::request::Request;
use lockkeeper::internals::proto::{Response, Stat};
use rustix::process::Signal;
use serde_json::Value;
use testkit::process::{Running, output, stderr};
use testkit::three::{ADMIN_PORT, Three};
use testkit::{Client, EPHEMERAL, fresh};

const TOKEN: &str = "token-of-at-least-sixteen\n";
const SEQUENTIAL: i32 = 2;

/// A server on its own whose HTTP port knows the token of the file `token`.
fn server(directory: &Path, data_dir: &str) -> Running {
    server_with(directory, data_dir, &[])
}

/// The same, with more arguments.
fn server_with(directory: &Path, data_dir: &str, more: &[&str]) -> Running {
    fs::write(directory.join("token"), TOKEN).unwrap();
    let arguments = [
        "--data-dir",
        data_dir,
        "--client-addr",
        "127.0.0.1:0",
        "--admin-addr",
        "127.0.0.1:0",
        "--set",
        "lockkeeper.adminTokenFile=token",
    ];
    Running::start(directory, &[&arguments[..], more].concat())
}

/// Where its HTTP port is.
fn admin(server: &Running) -> String {
    server.screen[3].strip_prefix("admin    ").expect("the fourth line").to_owned()
}

fn save(directory: &Path, server: &Running, more: &[&str]) -> Output {
    let admin = admin(server);
    let own = ["snapshot", "save", "--admin", &admin, "--admin-token-file", "token"];
    output(directory, &[&own[..], more].concat())
}

/// What a command says with `-o json`.
fn said(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn end(mut server: Running) {
    server.signal(Signal::TERM);
    assert_eq!(server.exit().0, Some(0));
}

async fn stat(client: &mut Client, path: &str) -> Stat {
    let exists = Request::Exists { path: testkit::text(path), watch: false };
    match client.call(&exists).await {
        Ok(Response::Stat(stat)) => stat,
        other => panic!("{path}: {other:?}"),
    }
}

async fn client(address: SocketAddr) -> Client {
    Client::served(address).await
}

#[tokio::test]
async fn a_restored_server_has_all_but_sessions_and_its_tokens_are_higher() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let first = server(directory, "first");
    let mut writer = client(first.address).await;
    writer.create("/queue", b"data", 0).await.unwrap();
    for _ in 0..3 {
        writer.create("/queue/n-", b"", SEQUENTIAL).await.unwrap();
    }
    writer.create("/mine", b"", EPHEMERAL).await.unwrap();
    let saved = said(&save(directory, &first, &["one", "-o", "json"]));
    // What comes later is not in it.
    writer.create("/later", b"", 0).await.unwrap();
    let last_token = stat(&mut writer, "/later").await.czxid;
    end(first);
    let restore = ["snapshot", "restore", "one", "--data-dir", "second", "-o", "json"];
    let restored = said(&output(directory, &restore));
    assert_eq!(restored["digest"], saved["digest"]);
    assert_eq!(
        (&restored["sessions_closed"], &restored["ephemerals_removed"]),
        (&1.into(), &1.into())
    );
    let second = server(directory, "second");
    // A client that has seen what was lost is served all the same.
    let seen = lockkeeper::ConnectRequest { last_zxid_seen: last_token, ..fresh(4000) };
    let mut reader = Client::open(second.address, &seen).await.expect("a session");
    assert_eq!(reader.data("/queue").await.unwrap(), b"data");
    assert!(!reader.exists("/mine").await && !reader.exists("/later").await);
    let next = reader.create("/queue/n-", b"", SEQUENTIAL).await.unwrap();
    assert_eq!(next, "/queue/n-0000000003");
    assert!(stat(&mut reader, &next).await.czxid > last_token);
    end(second);
}

#[tokio::test]
async fn a_session_that_is_kept_can_be_taken_up_again() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let first = server(directory, "first");
    let mut owner = client(first.address).await;
    owner.create("/mine", b"", EPHEMERAL).await.unwrap();
    assert!(save(directory, &first, &["one"]).status.success());
    let again = owner.again();
    end(first);
    let restore = ["snapshot", "restore", "one", "--data-dir", "second", "--keep-sessions"];
    assert!(output(directory, &restore).status.success());
    let second = server(directory, "second");
    let mut owner = Client::open(second.address, &again).await.expect("its session");
    assert_eq!(owner.session.session_id, again.session_id);
    assert!(owner.exists("/mine").await);
    let mut other = client(second.address).await;
    assert_ne!(other.session.session_id, again.session_id);
    assert!(other.exists("/mine").await);
    end(second);
}

/// Whatever is being written meanwhile.
#[tokio::test]
async fn a_backup_has_all_that_was_acknowledged_before_it_was_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let first = server(directory, "first");
    let (stops, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut writer = client(first.address).await;
    writer.create("/n", b"", 0).await.unwrap();
    let writes = tokio::spawn({
        let (stops, acknowledged) = (Arc::clone(&stops), Arc::clone(&acknowledged));
        async move {
            while !stops.load(Ordering::Relaxed) {
                let number = acknowledged.load(Ordering::Relaxed);
                writer.create(&format!("/n/{number}"), b"x", 0).await.unwrap();
                acknowledged.store(number + 1, Ordering::Relaxed);
            }
        }
    });
    for round in 0..5 {
        testkit::wait_until("something is written", async || {
            acknowledged.load(Ordering::Relaxed) > 20 * (round + 1)
        })
        .await;
        let before = acknowledged.load(Ordering::Relaxed);
        let (dir, admin) = (directory.to_owned(), admin(&first));
        let saved = tokio::task::spawn_blocking(move || {
            let own = ["snapshot", "save", "file", "--admin", &admin];
            output(&dir, &[&own[..], &["--admin-token-file", "token"]].concat())
        });
        assert!(saved.await.unwrap().status.success());
        let shown = said(&output(directory, &["snapshot", "inspect", "file", "/n", "-o", "json"]));
        let znodes = shown["tree"].as_array().unwrap().len() as u64 - 1;
        assert!(znodes >= before, "{znodes} znodes, {before} acknowledged");
    }
    stops.store(true, Ordering::Relaxed);
    writes.await.unwrap();
    end(first);
}

#[tokio::test]
async fn three_servers_begin_with_the_state_that_one_has_restored() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let lone = server(directory, "lone");
    client(lone.address).await.create("/kept", b"data", 0).await.unwrap();
    assert!(save(directory, &lone, &["one"]).status.success());
    end(lone);
    let file = directory.join("one");
    let mut three = Three::new();
    // It makes the file; the server finds no majority yet.
    three.write("", 2);
    let arguments = ["snapshot", "restore", file.to_str().unwrap(), "zoo.cfg2", "--myid", "2"];
    let restored = output(three.path(), &arguments);
    assert!(restored.status.success(), "{}", stderr(&restored));
    for id in 1..=3 {
        three.start(id, "").await;
    }
    three.serve(&[1, 2, 3]).await;
    for id in 1..=3 {
        let mut reader = client(three.address(id, testkit::three::CLIENT_PORT)).await;
        assert_eq!(reader.data("/kept").await.unwrap(), b"data");
        let term = stat(&mut reader, "/zookeeper/config").await.mzxid >> 32;
        assert!(term > 4096, "{term}");
    }
    three.says(2, "restored from").await;
}

#[tokio::test]
async fn a_member_without_a_majority_gives_no_backup_and_its_directory_does() {
    let mut three = Three::new();
    fs::write(three.path().join("token"), TOKEN).unwrap();
    let keys = format!("lockkeeper.adminTokenFile={}\n", three.path().join("token").display());
    for id in 1..=3 {
        three.start(id, &keys).await;
    }
    three.serve(&[1, 2, 3]).await;
    client(three.address(3, testkit::three::CLIENT_PORT))
        .await
        .create("/kept", b"", 0)
        .await
        .unwrap();
    let own = format!("{}:{ADMIN_PORT}", three.host(3));
    let save = ["snapshot", "save", "one", "--admin", &own, "--admin-token-file", "token"];
    assert!(output(three.path(), &save).status.success());
    three.stop(1);
    three.stop(2);
    testkit::wait_until("server 3 does not serve", async || three.mode(3).await.is_empty()).await;
    let refused = output(three.path(), &save);
    assert_eq!(refused.status.code(), Some(69), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("no majority has confirmed"), "{}", stderr(&refused));
    three.stop(3);
    let data = three.file("data", 3);
    let offline = ["snapshot", "save", "two", "--offline", data.to_str().unwrap(), "-o", "json"];
    said(&output(three.path(), &offline));
    let shown = said(&output(three.path(), &["snapshot", "inspect", "two", "/kept", "-o", "json"]));
    assert_eq!(shown["tree"].as_array().unwrap().len(), 1);
}

/// Instead of being tried again and again, with what room the disk has left.
#[tokio::test]
async fn a_backup_whose_image_cannot_be_written_says_so_and_the_next_one_may_succeed() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let first = server(directory, "first");
    let mut writer = client(first.address).await;
    writer.create("/kept", b"", 0).await.unwrap();
    let (images, aside) = (directory.join("first/image"), directory.join("aside"));
    fs::rename(&images, &aside).unwrap();
    fs::write(&images, b"no directory").unwrap();
    let refused = save(directory, &first, &["one"]);
    assert!(stderr(&refused).contains("no image could be written"), "{}", stderr(&refused));
    assert!(!refused.status.success() && !directory.join("one").exists());
    fs::remove_file(&images).unwrap();
    fs::rename(&aside, &images).unwrap();
    writer.create("/later", b"", 0).await.unwrap();
    let saved = save(directory, &first, &["one"]);
    assert!(saved.status.success(), "{}", stderr(&saved));
    end(first);
}

#[tokio::test]
async fn a_backup_is_given_to_operators_alone_and_a_damaged_one_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let first = server(directory, "first");
    let at = admin(&first);
    let refused = output(directory, &["snapshot", "save", "one", "--admin", &at]);
    assert_eq!(refused.status.code(), Some(77), "{}", stderr(&refused));
    assert!(!directory.join("one").exists());
    assert!(save(directory, &first, &["one"]).status.success());
    let names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().ends_with(".tmp")), "{names:?}");
    let mut bytes = fs::read(directory.join("one")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(directory.join("damaged"), bytes).unwrap();
    for command in ["verify", "inspect", "restore"] {
        let arguments = ["snapshot", command, "damaged"];
        let refused = output(directory, &arguments);
        assert_eq!(refused.status.code(), Some(1), "{command}");
        assert!(stderr(&refused).contains("damaged at byte"), "{}", stderr(&refused));
    }
    assert!(!directory.join("lockkeeper-data/identity").exists());
    end(first);
}

#[tokio::test]
async fn a_term_that_leaves_no_room_and_a_directory_with_data_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let first = server(directory, "first");
    client(first.address).await.create("/kept", b"", 0).await.unwrap();
    assert!(save(directory, &first, &["one"]).status.success());
    end(first);
    let restore = |more: &[&str]| {
        output(directory, &[&["snapshot", "restore", "one", "--data-dir"][..], more].concat())
    };
    let refused = restore(&["first"]);
    assert!(stderr(&refused).contains("there is data here already"), "{}", stderr(&refused));
    let refused = restore(&["second", "--above-zxid", "0x7ff00000000000"]);
    assert!(stderr(&refused).contains("2^23"), "{}", stderr(&refused));
    assert!(!directory.join("second/identity").exists());
    assert!(restore(&["second", "--above-zxid", "0x1000000000000"]).status.success());
    let second = server(directory, "second");
    let mut reader = client(second.address).await;
    reader.create("/new", b"", 0).await.unwrap();
    assert!(stat(&mut reader, "/new").await.czxid > 0x1_0000_0000_0000);
    end(second);
}

#[tokio::test]
async fn a_part_of_the_tree_is_saved_with_the_way_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let first = server(directory, "first");
    let mut writer = client(first.address).await;
    for path in ["/a", "/a/b", "/a/b/c", "/a/bc", "/z"] {
        writer.create(path, b"", 0).await.unwrap();
    }
    assert!(save(directory, &first, &["part", "--subtree", "/a/b"]).status.success());
    let shown = said(&output(directory, &["snapshot", "inspect", "part", "-o", "json"]));
    let paths: Vec<&str> = shown["tree"]
        .as_array()
        .unwrap()
        .iter()
        .map(|znode| znode["path"].as_str().unwrap())
        .collect();
    let special = ["/zookeeper", "/zookeeper/config", "/zookeeper/quota"];
    let paths: Vec<&str> = paths.into_iter().filter(|path| !special.contains(path)).collect();
    assert_eq!((paths, &shown["sessions"]), (vec!["/", "/a", "/a/b", "/a/b/c"], &0.into()));
    end(first);
}

#[tokio::test]
async fn a_part_comes_back_into_an_ensemble_that_runs_and_conflicts_are_named_first() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let first = server(directory, "first");
    let mut writer = client(first.address).await;
    for path in ["/app", "/app/queue", "/app/settings", "/other"] {
        writer.create(path, b"old", 0).await.unwrap();
    }
    for _ in 0..130 {
        let made = writer.create("/app/queue/n-", b"", SEQUENTIAL).await.unwrap();
        let delete = Request::Delete { path: testkit::text(&made), version: -1 };
        writer.call(&delete).await.unwrap();
    }
    writer.create("/app/queue/mine", b"", EPHEMERAL).await.unwrap();
    assert!(save(directory, &first, &["one"]).status.success());
    end(first);
    let second = server(directory, "second");
    let mut writer = client(second.address).await;
    writer.create("/app", b"old", 0).await.unwrap();
    writer.create("/app/settings", b"new", 0).await.unwrap();
    let at = second.address.to_string();
    let restore = |more: &[&str]| {
        let own =
            ["snapshot", "restore", "one", "--subtree", "/app", "--server", &at, "-o", "json"];
        output(directory, &[&own[..], more].concat())
    };
    let refused = restore(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("/app/settings: other data"), "{}", stderr(&refused));
    assert!(!writer.exists("/app/queue").await);
    let done = said(&restore(&["--on-conflict", "keep"]));
    assert_eq!((&done["created"], &done["kept"]), (&1.into(), &1.into()), "{done}");
    assert_eq!(&done["ephemerals_left_out"], 1, "{done}");
    assert_eq!(writer.data("/app/settings").await.unwrap(), b"new");
    assert!(!writer.exists("/app/queue/mine").await && !writer.exists("/other").await);
    let next = writer.create("/app/queue/n-", b"", SEQUENTIAL).await.unwrap();
    // 130 and the ephemeral came before.
    assert_eq!(next, "/app/queue/n-0000000131");
    let done = said(&restore(&["--on-conflict", "overwrite"]));
    assert_eq!((&done["created"], &done["overwritten"]), (&0.into(), &1.into()), "{done}");
    assert_eq!(writer.data("/app/settings").await.unwrap(), b"old");
    end(second);
}
