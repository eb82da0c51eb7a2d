//! What goes back to Apache ZooKeeper: snapshots of a server that runs, and exports of directories and of backups.
//! `tests/zookeeper/run` has real ZooKeeper read them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use lockkeeper::internals::zookeeper::{
    Item, SnapshotFileDecoder, Trailer, password as computed_password,
};

use super::*;

/// The items of a snapshot, and what stands behind them.
fn decoded(bytes: &[u8]) -> (Vec<Item>, Trailer) {
    let mut decoder = SnapshotFileDecoder::default();
    let mut items = Vec::new();
    for portion in bytes.chunks(1000) {
        decoder.feed(portion).expect("a snapshot");
        while let Some(item) = decoder.next_item().expect("a snapshot") {
            items.push(item);
        }
    }
    (items, decoder.finish().expect("whole"))
}

/// Its sessions.
fn sessions(items: &[Item]) -> Vec<i64> {
    let session = |item: &Item| match item {
        Item::Session { id, .. } => Some(*id),
        _ => None,
    };
    items.iter().filter_map(session).collect()
}

/// Its paths, without those that every tree has.
fn paths(items: &[Item]) -> Vec<String> {
    let path = |item: &Item| match item {
        Item::Node(node) => Some(node.path.as_str().to_owned()),
        _ => None,
    };
    items.iter().filter_map(path).filter(|path| !path.starts_with("/zookeeper")).collect()
}

/// Head and body of the answer to a GET.
fn get(admin: &str, target: &str, authorization: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(admin).unwrap();
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: {authorization}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let body = answer.split_off(end + 4);
    (String::from_utf8(answer).unwrap(), body)
}

#[tokio::test]
async fn a_server_that_runs_gives_a_snapshot_of_zookeeper() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let first = server(directory, "first");
    let mut writer = client(first.address).await;
    for path in ["/a", "/a/b", "/a-c"] {
        writer.create(path, b"data", 0).await.unwrap();
    }
    writer.create("/mine", b"", EPHEMERAL).await.unwrap();
    let zxid = stat(&mut writer, "/mine").await.czxid;
    let admin = admin(&first);
    let admin = admin.strip_prefix("http://").unwrap_or(&admin);
    let admin = admin.split('/').next().expect("an address");
    let token = format!("Bearer {}", TOKEN.trim());
    let (head, body) = get(admin, "/commands/snapshot?streaming=true", &token);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains(&format!("snapshot_size: {}\r\n", body.len())), "{head}");
    assert!(head.contains(&format!("last_zxid: {zxid:#x}\r\n")), "{head}");
    let (items, trailer) = decoded(&body);
    assert_eq!(trailer.last_zxid, Some(zxid));
    assert_eq!(sessions(&items), [writer.session.session_id]);
    let mut found = paths(&items);
    found.sort();
    assert_eq!(found, ["/", "/a", "/a-c", "/a/b", "/mine"]);
    // One more within 0.3 s is refused; a busy machine may need several tries to ask so soon.
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < Duration::from_secs(60), "no two questions within 0.3 s");
        let asked = Instant::now();
        let (granted, _) = get(admin, "/commands/snapshot", &token);
        let (refused, _) = get(admin, "/commands/snapshot", &token);
        if granted.starts_with("HTTP/1.1 200") && asked.elapsed() < Duration::from_millis(300) {
            assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
            break;
        }
    }
    let (head, _) = get(admin, "/commands/snapshot", "digest super:test");
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    end(first);
}

#[tokio::test]
async fn sessions_with_computed_passwords_go_along_in_an_export_of_a_directory_and_of_a_backup() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let first = server(directory, "first");
    let mut left_out = client(first.address).await;
    left_out.create("/other", b"", EPHEMERAL).await.unwrap();
    assert_ne!(left_out.session.password, computed_password(left_out.session.session_id));
    let again = left_out.again();
    end(first);
    let computed = ["--set", "lockkeeper.computedSessionPasswords=true"];
    let second = server_with(directory, "first", &computed);
    let mut left_out = Client::open(second.address, &again).await.expect("its session");
    let mut kept = client(second.address).await;
    kept.create("/mine", b"", EPHEMERAL).await.unwrap();
    let session = kept.session.session_id;
    assert_eq!(kept.session.password, computed_password(session));
    assert!(left_out.exists("/mine").await);
    assert!(save(directory, &second, &["one"]).status.success());
    let again = kept.again();
    end(second);
    let export = |out: &str, more: &[&str]| {
        let own = ["export", "--zookeeper", out, "-o", "json"];
        said(&output(directory, &[&own[..], more].concat()))
    };
    for (out, more) in
        [("of-dir", ["--data-dir", "first"]), ("of-backup", ["--from-backup", "one"])]
    {
        let report = export(out, &more);
        assert_eq!(report["sessions_kept"], 1, "{report}");
        assert_eq!(report["sessions_left_out"][0]["ephemerals"], serde_json::json!(["/other"]));
        let file = directory.join(report["file"].as_str().expect("a file"));
        let (items, _) = decoded(&fs::read(file).unwrap());
        assert_eq!(sessions(&items), [session]);
        assert!(paths(&items).contains(&"/mine".to_owned()));
        assert!(!paths(&items).contains(&"/other".to_owned()));
    }
    // Without the key again, the session is still there.
    let third = server(directory, "first");
    let mut kept = Client::open(third.address, &again).await.expect("its session");
    assert!(kept.exists("/mine").await);
    end(third);
}

#[test]
fn an_export_takes_a_directory_or_a_backup_that_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fs::write(directory.join("broken"), b"no backup").unwrap();
    let refused = |more: &[&str], exit: i32, says: &str| {
        let own = ["export", "--zookeeper", "out", "--from-backup"];
        let done = output(directory, &[&own[..], more].concat());
        assert_eq!(done.status.code(), Some(exit), "{}", stderr(&done));
        assert!(stderr(&done).contains(says), "{}", stderr(&done));
        assert!(!directory.join("out").exists());
    };
    refused(&["broken"], 1, "broken: ");
    refused(&["none"], 2, "No such file");
    refused(&["broken", "--data-dir", "first"], 2, "cannot be used with");
}
