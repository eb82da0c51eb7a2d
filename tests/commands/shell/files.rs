//! `export` and `import`: a part of a tree as a file of JSON, and back.

use std::path::Path;

use serde_json::Value;

use super::{Shell, answer, failure, once, piped, server};
use testkit::{Client, EPHEMERAL};

/// A directory of files, and the path of one in it.
fn file() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("app.json").display().to_string();
    (dir, file)
}

/// The znodes at a path: path, data and access control list of each, without what every ensemble has for itself.
async fn tree(at: &str, path: &str) -> Vec<[String; 3]> {
    let mut found = Vec::new();
    for path in answer(at, &["ls", "-R", path]).await.lines().filter(|at| !at.starts_with("/zoo")) {
        let data = answer(at, &["-o", "json", "get", path]).await;
        let data: Value = serde_json::from_str(&data).expect("JSON");
        let data = format!("{} {}", data["data"], data["dataBase64"]);
        found.push([path.to_string(), data, answer(at, &["getAcl", path]).await]);
    }
    found
}

#[tokio::test]
async fn what_was_exported_is_imported_elsewhere_with_its_counters() {
    let (from, to) = (server().await, server().await);
    let (there, here) = (from.connect_string(), to.connect_string());
    let (_dir, file) = file();
    let mut client = Client::connect(from.local_addr()).await;
    for (path, data) in [
        ("/app", &b"text \xc3\xa4 \x01\x7f\n"[..]),
        ("/app/a", b"\xff\0binary"),
        ("/app/a/b", b""),
        ("/app/a-b", b"{\"json\": [1]}"),
        ("/app/queue", b""),
    ] {
        client.create(path, data, 0).await.expect("created");
    }
    client.create("/app/queue/lock", b"", EPHEMERAL).await.expect("created");
    for _ in 0..3 {
        answer(&there, &["create", "-s", "/app/queue/n-", "x"]).await;
    }
    answer(&there, &["deleteall", "/app/queue/n-0000000001"]).await;
    answer(&there, &["setAcl", "/app/a", "world:anyone:cdra,digest:u:h=:r"]).await;
    answer(&there, &["create", "/app/nothing"]).await;

    let said = answer(&there, &["export", "-o", &file, "/app"]).await;
    assert!(said.starts_with("/app: 8 znodes, "), "{said}");
    assert!(said.contains("1 ephemerals left out") && said.contains("left out: /app/queue/lock\n"));
    let written: Value =
        serde_json::from_slice(&std::fs::read(&file).expect("the file")).expect("one JSON value");
    assert_eq!((&written["root"], &written["version"]), (&"/app".into(), &1.into()));
    assert_eq!(written["znodes"][0]["path"], "/");
    assert_eq!(written["ephemerals_left_out"], serde_json::json!(["/app/queue/lock"]));

    let said = answer(&here, &["import", &file, "/new/app"]).await;
    let counted = "/new/app: 9 znodes created, 0 overwritten, 0 were as in the file, 0 kept; 1 counters raised\n";
    assert_eq!(said, counted, "8 and the one above");
    answer(&there, &["delete", "/app/queue/lock"]).await;
    let expected: Vec<[String; 3]> = tree(&there, "/app").await;
    let found = tree(&here, "/new/app").await;
    assert_eq!(found.len(), expected.len());
    for ([path, data, acl], [new_path, new_data, new_acl]) in expected.iter().zip(&found) {
        assert_eq!((&format!("/new{path}"), data, acl), (new_path, new_data, new_acl));
    }
    // The fourth was the ephemeral's.
    assert_eq!(
        answer(&here, &["create", "-s", "/new/app/queue/n-", "x"]).await,
        "Created /new/app/queue/n-0000000004\n"
    );
    let again = answer(&here, &["import", &file, "/new/app"]).await;
    assert!(
        again.contains(
            ": 0 znodes created, 0 overwritten, 8 were as in the file, 0 kept; 0 counters"
        ),
        "{again}"
    );

    // The root itself, from a pipe to a pipe.
    let whole = once(&there, &["export", "/"]).await;
    assert!(whole.stderr.starts_with("/: 9 znodes, "), "{}", whole.stderr);
    let below = format!("{here}/copy");
    answer(&here, &["create", "/copy", ""]).await;
    let mut shell = Shell::start(&below, &["import", "-", "/"]);
    shell.say(std::str::from_utf8(&whole.stdout).expect("UTF-8"));
    let end = shell.end().await;
    assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""));
    assert_eq!(tree(&below, "/").await, tree(&there, "/").await);
    for server in [from, to] {
        server.stop().await.expect("it stops");
    }
}

#[tokio::test]
async fn conflicts_are_named_before_anything_is_written() {
    let server = server().await;
    let at = server.connect_string();
    let (_dir, file) = file();
    for (path, data) in [("/a", "1"), ("/a/b", "2"), ("/a/c", "3"), ("/a/d", "4")] {
        answer(&at, &["create", path, data]).await;
    }
    answer(&at, &["export", "-o", &file, "/a"]).await;
    let mut client = Client::connect(server.local_addr()).await;
    client.create("/to", b"1", 0).await.expect("created");
    client.create("/to/b", b"other", 0).await.expect("created");
    client.create("/to/d", b"4", EPHEMERAL).await.expect("created");
    let (exit, said) = failure(&at, &["import", &file, "/to"]).await;
    assert_eq!(exit, 1);
    assert!(said.starts_with("nothing was written: 2 znodes are there and differ"), "{said}");
    assert!(said.contains("  /to/b: other data\n  /to/d: it is an ephemeral"), "{said}");
    assert_eq!(answer(&at, &["ls", "/to"]).await, "[b, d]\n");
    let said = answer(&at, &["import", "--on-conflict", "skip", &file, "/to"]).await;
    assert!(
        said.contains(": 1 znodes created, 0 overwritten, 1 were as in the file, 2 kept;"),
        "{said}"
    );
    assert_eq!(answer(&at, &["get", "/to/b"]).await, "other\n");
    let said = answer(&at, &["import", "--on-conflict", "overwrite", &file, "/to"]).await;
    assert!(
        said.contains(": 0 znodes created, 1 overwritten, 2 were as in the file, 1 kept;"),
        "{said}"
    );
    assert_eq!(answer(&at, &["get", "/to/b"]).await, "2\n");
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn kinds_are_taken_from_the_file() {
    let server = server().await;
    let at = server.connect_string();
    let (_dir, file) = file();
    let acl = r#""acl": [{"scheme": "world", "id": "anyone", "perms": "cdrwa"}]"#;
    let text = format!(
        r#"{{"format": "lockkeeper-znodes", "version": 1, "znodes": [
            {{"path": "/", {acl}}},
            {{"path": "/c", "kind": "container", {acl}}},
            {{"path": "/t", "kind": "ttl", "ttl_ms": 600000, "data": "x", "next_child": 7, {acl}}}
        ]}}"#
    );
    std::fs::write(&file, text).expect("written");
    answer(&at, &["import", &file, "/kinds"]).await;
    let made = answer(&at, &["create", "-s", "/kinds/t/n-"]).await;
    assert_eq!(made, "Created /kinds/t/n-0000000007\n");
    // A container is removed after its last child.
    answer(&at, &["create", "/kinds/c/child"]).await;
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn bad_input_is_one_line_and_changes_nothing() {
    let server = server().await;
    let at = server.connect_string();
    let (dir, file) = file();
    answer(&at, &["create", "/a", "x"]).await;
    answer(&at, &["create", "/a/b", "x"]).await;
    answer(&at, &["export", "-o", &file, "/a"]).await;
    let text = std::fs::read_to_string(&file).expect("the file");
    let bad = |name: &str, text: &str| {
        let file = dir.path().join(name);
        std::fs::write(&file, text).expect("written");
        file.display().to_string()
    };
    let cut = bad("cut", &text[..text.len() - 40]);
    let newer = bad("newer", &text.replace("\"version\": 1", "\"version\": 9"));
    let other = bad("other", "[1, 2]");
    let empty = bad("empty", "");
    let orphan = bad("orphan", &text.replace("\"/b\"", "\"/b/c\""));
    let servers = bad("servers", &text.replace("\"/b\"", "\"/zookeeper\""));
    let nowhere = dir.path().join("no/where").display().to_string();
    for (arguments, exit, says) in [
        (&["import", &cut, "/new"][..], 2, "EOF"),
        (&["import", &newer, "/new"], 2, "its version is 9, and this release reads 1"),
        (&["import", &other, "/new"], 2, "the file of `export`"),
        (&["import", &empty, "/new"], 2, "EOF"),
        (&["import", &orphan, "/new"], 2, "/b/c: its parent is missing at line "),
        (&["import", &servers, "/"], 2, "/zookeeper belongs to the servers"),
        (&["import", &nowhere, "/new"], 2, "No such file"),
        (&["import", &file, "new"], 2, "Invalid path string"),
        (&["import", &file, "/zookeeper/x"], 2, "belongs to the servers"),
        (&["import", "--on-conflict", "what", &file, "/new"], 2, "none of fail, skip, overwrite"),
        (&["export", "/none"], 1, "Node does not exist: /none"),
        (&["export", "/zookeeper"], 2, "belongs to the servers"),
        (&["export", "-o", &nowhere, "/a"], 2, "No such file"),
    ] {
        let (code, said) = failure(&at, arguments).await;
        assert_eq!((code, said.lines().count()), (exit, 1), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
    assert_eq!(answer(&at, &["ls", "/"]).await, "[a, zookeeper]\n");
    let end = piped(&at, &["import - /new"]).await;
    assert_eq!(end.code, Some(2));
    assert!(end.stderr.contains("name a file"), "{}", end.stderr);
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a directory").collect();
    let is_part = |path: &Path| path.extension().is_some_and(|extension| extension == "tmp");
    assert!(!left.iter().flatten().any(|entry| is_part(&entry.path())));
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn access_control_lists_hold_for_both() {
    let server = server().await;
    let at = server.connect_string();
    let (dir, file) = file();
    answer(&at, &["create", "/a", "x"]).await;
    answer(&at, &["create", "/a/b", "x"]).await;
    let closed = "world:anyone:rc,digest:u:3R4Ccn+Pjf0wEgRpWhU7GNYJ5RQ=:cdrwa";
    answer(&at, &["setAcl", "/a/b", closed]).await;
    // Without the permission `a` a server does not show hashes: the copy would lock its owner out.
    let (exit, said) = failure(&at, &["export", "-o", &file, "/a"]).await;
    assert_eq!(exit, 77, "{said}");
    assert!(said.contains("/a/b") && said.contains("addauth, or --auth"), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0);
    // What standard output has by then is no whole file, and import refuses it.
    let end = once(&at, &["export", "/a"]).await;
    assert_eq!((end.code, end.stderr.contains("hashes")), (Some(77), true));
    assert!(serde_json::from_slice::<Value>(&end.stdout).is_err());
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn an_import_that_may_not_write_says_where() {
    let server = server().await;
    let at = server.connect_string();
    let (_dir, file) = file();
    answer(&at, &["create", "/a", "x"]).await;
    answer(&at, &["export", "-o", &file, "/a"]).await;
    answer(&at, &["create", "/closed", "x", "world:anyone:r"]).await;
    let (exit, said) = failure(&at, &["import", &file, "/closed/here"]).await;
    assert_eq!(exit, 77, "{said}");
    assert!(said.starts_with("/closed/here: permission is missing"), "{said}");
    assert_eq!(said.lines().count(), 1);
    let (exit, said) =
        failure(&at, &["import", "--on-conflict", "overwrite", &file, "/closed"]).await;
    assert_eq!(exit, 77, "{said}");
    server.stop().await.expect("it stops");
}
