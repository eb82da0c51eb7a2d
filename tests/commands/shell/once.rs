//! One command: flags, exit codes, JSON, and watches that are waited for.

use std::process::Command;

use super::{Shell, answer, failure, once, server};
use testkit::{Client, EPHEMERAL};

#[tokio::test]
async fn one_command_prints_its_answer_and_nothing_else() {
    let server = server().await;
    let at = server.connect_string();
    assert_eq!(answer(&at, &["create", "/a", "two words"]).await, "Created /a\n");
    assert_eq!(answer(&at, &["get", "/a"]).await, "two words\n");
    assert_eq!(answer(&at, &["ls", "/"]).await, "[a, zookeeper]\n");
    assert_eq!(answer(&at, &["set", "/a", "x"]).await, "");
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn the_exit_code_says_what_kind_of_failure_it_was() {
    let server = server().await;
    let at = server.connect_string();
    answer(&at, &["create", "/locked", "x", "digest:u:hash:r"]).await;
    let closed = testkit::ports::closed().to_string();
    for (servers, arguments, code, says) in [
        (&at, &["get", "/none"][..], 1, "Node does not exist: /none"),
        (&at, &["create", "/zookeeper"], 1, "Node already exists: /zookeeper"),
        (&at, &["create", "/a/b"], 1, "Node does not exist: /a/b"),
        (&at, &["delete", "-v", "7", "/locked"], 1, "version No is not valid : /locked"),
        (&at, &["reconfig", "-remove", "1"], 1, "Reconfig is disabled"),
        (&at, &["lss", "/"], 2, "Command not found lss"),
        (&at, &["ls", "-q", "/"], 2, "Unrecognized option: -q"),
        (&at, &["ls", "a"], 2, "Invalid path string \"a\""),
        (&at, &["create", "-c", "-e", "/c"], 2, "-c cannot be combined"),
        (&at, &["setAcl", "/a", "world:anyone"], 2, "does not have the form scheme:id:perm"),
        (&at, &["--nonsense", "ls", "/"], 2, "--nonsense is no flag"),
        (&at, &["-client-configuration", "f", "ls", "/"], 2, "f: No such file"),
        (&at, &["get", "/locked"], 77, "Insufficient permission : /locked"),
        (&at, &["--auth", "nonsense:x", "ls", "/"], 77, "does not know the scheme"),
        (&closed, &["ls", "/"], 69, "no server answers"),
    ] {
        let (exit, said) = failure(servers, arguments).await;
        assert_eq!(exit, code, "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn help_and_version_need_no_server() {
    let closed = testkit::ports::closed().to_string();
    let help = answer(&closed, &["help"]).await;
    for verb in ["addWatch ", "getAllChildrenNumber ", "whoami"] {
        assert!(help.contains(&format!("\n{verb}")) || help.starts_with(verb), "{verb}: {help}");
    }
    let version = format!("Lockkeeper CLI version: {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(answer(&closed, &["version"]).await, version);
}

#[tokio::test]
async fn the_servers_are_named_by_flag_or_variable() {
    let server = server().await;
    let at = server.connect_string();
    let shell = |arguments: &[&str], variable: &str| {
        let mut command = Command::new(testkit::binary());
        command.arg("shell").args(arguments).env("LOCKKEEPER_SERVERS", variable);
        let output = command.output().expect("it runs");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    assert_eq!(shell(&["ls", "/"], &at), "[zookeeper]\n");
    assert_eq!(shell(&["-timeout", "4000", "-server", &at, "ls", "/"], "nowhere"), "[zookeeper]\n");
    assert_eq!(shell(&["-r", "-s", &at, "ls", "/"], "nowhere"), "[zookeeper]\n");
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn json_has_what_text_has_and_the_stat() {
    let server = server().await;
    let at = server.connect_string();
    let json = async |arguments: &[&str]| -> serde_json::Value {
        let answer = answer(&at, &[&["-o", "json"], arguments].concat()).await;
        serde_json::from_str(&answer).expect("one JSON value")
    };
    let created = json(&["create", "-s", "/a-", "x"]).await;
    assert_eq!(created["path"], "/a-0000000000");
    let got = json(&["get", "/a-0000000000"]).await;
    assert_eq!((&got["data"], &got["stat"]["dataLength"]), (&"x".into(), &1.into()));
    assert_eq!(got["stat"]["cZxid"], created["stat"]["cZxid"]);
    json(&["set", "-b", "/a-0000000000", "/wA="]).await;
    let got = json(&["get", "/a-0000000000"]).await;
    assert_eq!((&got["dataBase64"], &got["data"]), (&"/wA=".into(), &serde_json::Value::Null));
    assert_eq!(json(&["ls", "/"]).await["children"][0], "a-0000000000");
    assert_eq!(json(&["getAcl", "/"]).await["acl"][0]["perms"], "cdrwa");
    assert_eq!(json(&["whoami"]).await["identities"][0]["scheme"], "ip");
    let (exit, said) = failure(&at, &["-o", "json", "get", "/none"]).await;
    let said: serde_json::Value = serde_json::from_str(&said).expect("one JSON value");
    assert_eq!((exit, &said["code"], &said["name"]), (1, &(-101).into(), &"NONODE".into()));
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn data_is_printed_as_it_is() {
    let server = server().await;
    let at = server.connect_string();
    let mut client = Client::connect(server.local_addr()).await;
    client.create("/binary", b"\xff\x00\x1b", 0).await.expect("created");
    assert_eq!(once(&at, &["get", "/binary"]).await.stdout, b"\xff\x00\x1b\n");
    assert_eq!(answer(&at, &["get", "-b", "/binary"]).await, "/wAb\n");
    assert!(answer(&at, &["get", "-x", "/binary"]).await.contains("| ff 00 1b "));
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn one_command_with_a_watch_waits_until_it_fires() {
    let server = server().await;
    let at = server.connect_string();
    let mut client = Client::connect(server.local_addr()).await;
    client.create("/a", b"x", 0).await.expect("created");
    let shell = Shell::start(&at, &["get", "-w", "/a"]);
    shell.prints("x\n").await;
    client.set("/a", b"y").await.expect("set");
    let end = shell.end().await;
    assert_eq!(end.code, Some(0), "{end:?}");
    let event = "WATCHER::\n\nWatchedEvent state:SyncConnected type:NodeDataChanged path:/a zxid: ";
    assert!(end.text().contains(event), "{end:?}");

    let shell = Shell::start(&at, &["-o", "json", "addWatch", "/a"]);
    shell.prints("PERSISTENT_RECURSIVE").await;
    client.create("/a/b", b"", 0).await.expect("created");
    client.create("/a/c", b"", EPHEMERAL).await.expect("created");
    shell.prints("{\"event\":\"NodeCreated\",\"path\":\"/a/b\",").await;
    shell.prints("{\"event\":\"NodeCreated\",\"path\":\"/a/c\",").await;
    drop(shell);
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn a_path_behind_the_servers_is_the_root() {
    let server = server().await;
    let at = server.connect_string();
    let below = format!("{at}/app");
    answer(&at, &["create", "/app"]).await;
    assert_eq!(answer(&below, &["create", "/x", "y"]).await, "Created /x\n");
    assert_eq!(answer(&below, &["ls", "-R", "/"]).await, "/\n/x\n");
    assert_eq!(answer(&at, &["get", "/app/x"]).await, "y\n");
    assert_eq!(
        failure(&below, &["get", "/none"]).await,
        (1, "Node does not exist: /none\n".into())
    );
    answer(&below, &["setquota", "-n", "3", "/x"]).await;
    let quota = answer(&at, &["listquota", "/app/x"]).await;
    assert!(quota.starts_with("Output quota for /app/x count=3,bytes=-1"), "{quota}");
    let shell = Shell::start(&below, &["stat", "-w", "/x"]);
    shell.prints("numChildren").await;
    answer(&at, &["deleteall", "/app"]).await;
    let end = shell.end().await;
    assert!(end.text().contains("type:NodeDeleted path:/x "), "{end:?}");
    server.stop().await.expect("it stops");
}
