//! The verbs, through a pipe: what they print, and what they refuse.

use super::{answer, piped, server};

/// Each line, and what it prints, to standard output or to standard error.
const SCRIPT: &[(&str, &str)] = &[
    ("create /z one", "Created /z"),
    ("create -s /z/s- x", "Created /z/s-0000000000"),
    ("create -e -s /z/es- x", "Created /z/es-0000000001"),
    ("create -c /z/c", "Created /z/c"),
    ("create -t 600000 /z/t", "Created /z/t"),
    ("create /z/t2 x world:anyone:cdrwa,ip:127.0.0.1:r", "Created /z/t2"),
    ("create /z/es-0000000001/x", "Ephemerals cannot have children: /z/es-0000000001/x"),
    ("get /z", "one"),
    ("get /z/c", "null"),
    ("set -v 0 /z 'two words'", ""),
    ("set -v 0 /z three", "version No is not valid : /z"),
    ("get /z", "two words"),
    ("ls /z", "[c, es-0000000001, s-0000000000, t, t2]"),
    ("ls -R /z", "/z\n/z/c\n/z/es-0000000001\n/z/s-0000000000\n/z/t\n/z/t2"),
    ("sync /z", "Sync is OK"),
    ("getAllChildrenNumber /z", "5"),
    ("getEphemerals /z", "[/z/es-0000000001]"),
    ("getEphemerals", "[/z/es-0000000001]"),
    ("getEphemerals /none", "[]"),
    ("getAcl /z", "'world,'anyone\n: cdrwa"),
    ("getAcl /z/t2", "'world,'anyone\n: cdrwa\n'ip,'127.0.0.1\n: r"),
    ("addauth digest bob:pw", ""),
    ("setAcl /z/t2 auth::crwa", ""),
    ("getAcl /z/t2", "'digest,'bob:ikIaKsbtGweaHnb/jKn7OHqbunM=\n: crwa"),
    ("setAcl /z/t2 nosuch:x:r", "Acl is not valid : /z/t2"),
    ("whoami", "Auth scheme: User\nip: 127.0.0.1\ndigest: bob"),
    ("addWatch -m PERSISTENT /z/c", ""),
    ("removewatches /z/c -d", "No such watcher for /z/c"),
    ("printwatches", "printwatches is on"),
    ("printwatches off", ""),
    ("set /z/c unseen", ""),
    ("printwatches on", ""),
    (
        "removewatches /z/c",
        "\nWATCHER::\n\nWatchedEvent state:SyncConnected type:PersistentWatchRemoved path:/z/c zxid: -1",
    ),
    ("config", ""),
    ("config -c", "this server runs on its own: it has no members"),
    ("delete /z", "Node not empty: /z"),
    ("delete -v 0 /z/s-0000000000", ""),
    ("stat /z/s-0000000000", "Node does not exist: /z/s-0000000000"),
    ("deleteall /z", ""),
    ("ls /", "[zookeeper]"),
    ("redo 7", "Node does not exist: /z"),
    ("redo 41", "Command index out of range"),
    ("redo x", "`x` is no number of a command"),
    ("close", ""),
    ("ls /", "Not connected: `connect` begins a session"),
    ("connect", ""),
    ("ls /", "[zookeeper]"),
    ("whoami", "Auth scheme: User\nip: 127.0.0.1\ndigest: bob"),
    ("quit", ""),
    ("ls /never", ""),
];

#[tokio::test]
async fn every_verb_prints_what_zkcli_prints() {
    let server = server().await;
    let lines: Vec<&str> = SCRIPT.iter().map(|(line, _)| *line).collect();
    let end = piped(&server.connect_string(), &lines).await;
    // Two streams: each has its words in the order of the script.
    let (mut out, mut err) = (end.text(), end.stderr.as_str());
    for (line, expected) in SCRIPT {
        let words = match *expected {
            // The text of no members is an empty line.
            "" if *line == "config" => "\n".to_string(),
            "" => String::new(),
            words => format!("{words}\n"),
        };
        match (out.strip_prefix(&words), err.strip_prefix(&words)) {
            (Some(rest), _) => out = rest,
            (None, Some(rest)) => err = rest,
            (None, None) => panic!("{line}: expected {words:?}, next are {out:?} and {err:?}"),
        }
    }
    assert_eq!((out, err), ("", ""), "there is more than expected");
    assert_eq!(end.code, Some(1), "the first failure was a refusal");
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn a_pipe_goes_on_after_a_failure_and_ends_with_the_first_ones_code() {
    let server = server().await;
    let at = server.connect_string();
    let end = piped(&at, &["nonsense", "", "get /none", "create /a", "quit", "create /b"]).await;
    assert_eq!((end.code, end.text()), (Some(2), "Created /a\n"), "{end:?}");
    assert_eq!(answer(&at, &["ls", "/"]).await, "[a, zookeeper]\n");
    let end = piped(&at, &["ls '/a"]).await;
    assert!(end.stderr.contains("there is no second '"), "{end:?}");
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn a_stat_has_zkclis_lines() {
    let server = server().await;
    let at = server.connect_string();
    answer(&at, &["create", "/a", "abc"]).await;
    let stat = answer(&at, &["stat", "/a"]).await;
    let names: Vec<&str> =
        stat.lines().map(|line| line.split(" = ").next().expect("a name")).collect();
    let expected = "cZxid ctime mZxid mtime pZxid cversion dataVersion aclVersion ephemeralOwner \
                    dataLength numChildren";
    assert_eq!(names.join(" "), expected);
    assert!(stat.contains("\ndataLength = 3\n"), "{stat}");
    assert_eq!(answer(&at, &["get", "-s", "/a"]).await, format!("abc\n{stat}"));
    assert_eq!(answer(&at, &["ls", "-s", "/a"]).await, format!("[]\n{stat}"));
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn quotas_are_set_counted_and_taken_away_without_a_trace() {
    let server = server().await;
    let at = server.connect_string();
    let quota = |limits: &str, usage: &str| {
        format!("Output quota for /q/a {limits}\nOutput stat for /q/a {usage}\n")
    };
    let end = piped(
        &at,
        &[
            "create /q",
            "create /q/a xyz",
            "create /q/a/b",
            "listquota /q/a",
            "setquota -n 1 /q/a",
            "setquota -B 100 /q/a",
            "listquota /q/a",
            "setquota -n 5 /q",
            "setquota -n 5 /q/a/b",
            "setquota -n 0 /q/a",
            "setquota -n 5 /",
            "setquota -n 5 /none",
            "setquota -n 5 -b 5 /q/a",
            "delquota -n /q/a",
            "listquota /q/a",
            "delquota /q/a",
            "delquota /q/a",
            "ls -R /zookeeper",
        ],
    )
    .await;
    let expected = [
        "Created /q\nCreated /q/a\nCreated /q/a/b\n",
        "[Warning]: the count quota you create is less than the existing count:2\n",
        "[Warning]: the count quota you create is less than the existing count:2\n",
        &quota("count=1,bytes=-1=;byteHardLimit=100;countHardLimit=-1", "count=2,bytes=3"),
        &quota("count=-1,bytes=-1=;byteHardLimit=100;countHardLimit=-1", "count=2,bytes=3"),
        "/zookeeper\n/zookeeper/config\n/zookeeper/quota\n",
    ];
    assert_eq!(end.text(), expected.concat());
    let refusals: Vec<&str> = end.stderr.lines().collect();
    assert_eq!(
        refusals,
        [
            "quota for /q/a does not exist.",
            "/q has a child /q/a which has a quota",
            "/q/a/b has a parent /q/a which has a quota",
            "-n: the quota is at least 1",
            "/ cannot have a quota",
            "Node does not exist: /none",
            "setquota: expected one of -n, -b, -N and -B",
            "Quota does not exist for /q/a",
        ]
    );
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn a_subtree_is_deleted_in_batches_and_what_is_not_is_named() {
    let server = server().await;
    let at = server.connect_string();
    let mut lines = vec!["create /d".to_string()];
    lines.extend((0..25).map(|number| format!("create /d/{number}")));
    lines.push("create /d/7/below".to_string());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(piped(&at, &lines).await.code, Some(0));
    let deleted = answer(&at, &["-o", "json", "deleteall", "-b", "10", "/d"]).await;
    assert_eq!(deleted, "{\"path\":\"/d\",\"deleted\":27}\n");

    let end = piped(
        &at,
        &[
            "create /d",
            "create /d/a",
            "create /d/a/b",
            "setAcl /d/a world:anyone:r",
            "deleteall /d",
        ],
    )
    .await;
    assert_eq!(end.code, Some(77), "{end:?}");
    assert!(end.stderr.contains("Failed to delete some node(s)"), "{end:?}");
    assert!(end.stderr.contains("/d/a/b"), "{end:?}");
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn acls_are_set_for_a_whole_subtree() {
    let server = server().await;
    let at = server.connect_string();
    let end = piped(
        &at,
        &[
            "create /s",
            "create /s/a",
            "create /s/a/b",
            "setAcl -R /s world:anyone:ra",
            "getAcl /s/a/b",
        ],
    )
    .await;
    assert!(end.text().ends_with("\n'world,'anyone\n: ra\n"), "{end:?}");
    assert_eq!(end.code, Some(0));
    server.stop().await.expect("it stops");
}
