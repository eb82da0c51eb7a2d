//! What is typed, and what comes of it.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::recipes::{Mutex, Wait};
use rustix::process::Signal;
use tokio::task::spawn_blocking;
use zookeeper_client::{Acls, CreateMode};

use super::{Lock, PATIENCE, Site};

/// Not INT: who starts the tests in the background has it ignored, and what is ignored from the start stays so.
const END: Signal = Signal::TERM;

#[tokio::test]
async fn commands_under_one_lock_never_overlap() {
    let site = Site::new().await;
    let room = site.file("room");
    let script = format!(
        "mkdir {0} || {{ echo crowded; exit 9; }}; sleep 0.02; rmdir {0}; echo alone",
        room.display()
    );
    let locks: Vec<Lock> = (0..8).map(|_| site.lock(&["/l", "-c", &script])).collect();
    for lock in locks {
        let end = lock.end().await;
        assert_eq!((end.code, end.stdout.as_str()), (Some(0), "alone\n"), "{end:?}");
        // On a busy machine one may wait for so long that it says so.
        let is_wait = |line: &str| line.starts_with("lockkeeper lock: waits for /l: held by ");
        assert!(end.stderr.lines().all(is_wait), "{end:?}");
    }
    assert_eq!(site.contenders("/l").await, 0);
    site.stop().await;
}

#[tokio::test]
async fn shared_locks_are_held_together_and_exclude_exclusive_ones() {
    let site = Site::new().await;
    for style in ["curator", "curator-rw", "kazoo"] {
        let mut one = site.lock(&["-s", "--style", style, "/s"]);
        assert!(one.line().await.starts_with("HELD /s/"), "{style}");
        let other = site.lock(&["-n", "-s", "--style", style, "/s", "true"]).end().await;
        assert_eq!((other.code, other.stderr.as_str()), (Some(0), ""), "{style}");
        let alone = site.lock(&["-n", "-x", "--style", style, "/s", "true"]).end().await;
        assert_eq!(alone.code, Some(1), "{style}");
        let waits = site.lock(&["--style", style, "/s", "true"]);
        site.wait_for_contenders("/s", 2).await;
        one.signal(END);
        assert_eq!(one.end().await.code, Some(0), "{style}");
        let end = waits.end().await;
        assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""), "{style}");
    }
    assert_eq!(site.contenders("/s").await, 0);
    site.stop().await;
}

#[tokio::test]
async fn as_many_commands_run_at_a_time_as_there_are_permits() {
    let site = Site::new().await;
    let mut holders = Vec::new();
    for _ in 0..2 {
        let mut lock = site.lock(&["--permits", "2", "/p"]);
        assert!(lock.line().await.starts_with("HELD /p/leases/"));
        holders.push(lock);
    }
    let end = site.lock(&["-n", "--permits", "2", "/p", "true"]).end().await;
    assert_eq!(end.code, Some(1), "{end:?}");
    let waits = site.lock(&["--permits", "2", "/p", "-c", "echo in"]);
    site.wait_for_contenders("/p/leases", 3).await;
    let first = holders.remove(0);
    first.signal(END);
    assert_eq!(first.end().await.code, Some(0));
    let end = waits.end().await;
    assert_eq!((end.code, end.stdout.as_str()), (Some(0), "in\n"), "{end:?}");
    drop(holders);
    site.stop().await;
}

#[tokio::test]
async fn the_command_knows_its_lock_and_is_in_a_group_of_its_own() {
    let site = Site::new().await;
    let script = "echo $LOCKKEEPER_LOCK_PATH; echo $LOCKKEEPER_LOCK_NODE; echo $LOCKKEEPER_FENCE; \
                  echo $LOCKKEEPER_SESSION; ps -o pgid= -p $$; echo $$; read line";
    let mut lock = Lock::start_with(
        &site.server.connect_string(),
        &["--id", "the test", "/locks/deep", "--", "sh", "-c", script],
        Stdio::piped(),
    );
    assert_eq!(lock.line().await, "/locks/deep");
    let node = lock.line().await;
    let (data, stat) = site.observer.get_data(&node).await.unwrap();
    assert!(node.starts_with("/locks/deep/_c_"), "{node}");
    assert_eq!(data, b"the test");
    assert_eq!(lock.line().await, stat.czxid.to_string());
    assert_eq!(lock.line().await, format!("{:#x}", stat.ephemeral_owner));
    let group = lock.line().await;
    assert_eq!(group.trim(), lock.line().await);
    drop(lock.child.stdin.take());
    // `read` found the end of its input.
    assert_eq!(lock.end().await.code, Some(1));
    site.stop().await;
}

#[tokio::test]
async fn the_command_reads_what_was_meant_for_it() {
    let site = Site::new().await;
    let servers = site.server.connect_string();
    let mut lock = Lock::start_with(&servers, &["/l", "cat"], Stdio::piped());
    let mut stdin = lock.child.stdin.take().expect("piped");
    stdin.write_all(b"one\ntwo\n").unwrap();
    drop(stdin);
    let end = lock.end().await;
    assert_eq!((end.code, end.stdout.as_str()), (Some(0), "one\ntwo\n"));
    site.stop().await;
}

#[tokio::test]
async fn the_exit_code_is_that_of_the_command() {
    let site = Site::new().await;
    for (arguments, code, word) in [
        (&["/l", "true"][..], 0, ""),
        (&["/l", "--", "sh", "-c", "exit 7"], 7, ""),
        (&["/l", "-c", "kill -KILL $$"], 128 + 9, ""),
        (&["/l", "/no/such/program"], 127, "cannot execute /no/such/program: No such file"),
        (&["/l", "/etc/passwd"], 126, "cannot execute /etc/passwd: Permission denied"),
    ] {
        let end = site.lock(arguments).end().await;
        assert_eq!(end.code, Some(code), "{arguments:?}: {end:?}");
        assert!(end.stderr.contains(word), "{end:?}");
        assert_eq!(site.contenders("/l").await, 0, "{arguments:?}");
    }
    site.stop().await;
}

#[tokio::test]
async fn who_does_not_get_the_lock_says_so_by_the_exit_code_and_leaves_the_queue() {
    let site = Site::new().await;
    let holder = Mutex::new("/l").unwrap().acquire(&site.observer, Wait::No).await.unwrap();
    for (arguments, code) in [
        (&["-n", "/l", "true"][..], 1),
        (&["--nonblock", "-E", "42", "/l", "true"], 42),
        (&["-w", "0", "/l", "true"], 1),
        (&["-w", "0.2", "-E", "0", "/l", "false"], 0),
        (&["-w", "200ms", "/l"], 1),
    ] {
        let begun = Instant::now();
        let end = site.lock(arguments).end().await;
        assert_eq!(end.code, Some(code), "{arguments:?}: {end:?}");
        assert_eq!((end.stdout.as_str(), end.stderr.as_str()), ("", ""));
        assert!(begun.elapsed() < testkit::PATIENCE);
        assert_eq!(site.contenders("/l").await, 1, "{arguments:?}");
    }
    let waits = site.lock(&["-w", "20", "/l", "true"]);
    site.wait_for_contenders("/l", 2).await;
    holder.release().await.unwrap();
    assert_eq!(waits.end().await.code, Some(0));
    site.stop().await;
}

#[tokio::test]
async fn without_a_command_it_holds_the_lock_until_it_is_interrupted() {
    let site = Site::new().await;
    let mut lock = site.lock(&["/l"]);
    let line = lock.line().await;
    let words: Vec<&str> = line.split(' ').collect();
    let [word, node, token] = words[..] else { panic!("{line}") };
    let stat = site.observer.check_stat(node).await.unwrap().expect("the node is there");
    assert_eq!((word, token), ("HELD", stat.czxid.to_string().as_str()));
    lock.signal(END);
    let end = lock.end().await;
    assert_eq!((end.code, end.stdout), (Some(0), format!("RELEASED {node} {token}\n")));
    assert_eq!(site.contenders("/l").await, 0);
    site.stop().await;
}

#[tokio::test]
async fn who_is_interrupted_while_waiting_leaves_the_queue() {
    let site = Site::new().await;
    let holder = Mutex::new("/l").unwrap().acquire(&site.observer, Wait::No).await.unwrap();
    let lock = site.lock(&["/l", "true"]);
    site.wait_for_contenders("/l", 2).await;
    lock.signal(Signal::TERM);
    assert_eq!(lock.end().await.code, Some(128 + 15));
    assert_eq!(site.contenders("/l").await, 1);
    holder.release().await.unwrap();
    site.stop().await;
}

#[tokio::test]
async fn signals_are_handed_to_the_command() {
    let site = Site::new().await;
    let script = "trap 'echo usr1' USR1; trap 'echo term; exit 3' TERM; echo ready; \
                  while :; do sleep 0.02; done";
    let mut lock = site.lock(&["/l", "-c", script]);
    assert_eq!(lock.line().await, "ready");
    lock.signal(Signal::USR1);
    assert_eq!(lock.line().await, "usr1");
    lock.signal(Signal::TERM);
    let end = lock.end().await;
    assert_eq!((end.code, end.stdout.as_str()), (Some(3), "term\n"));
    assert_eq!(site.contenders("/l").await, 0);
    site.stop().await;
}

#[tokio::test]
async fn others_on_the_path_who_do_not_wait_are_named_and_strange_children_do_not_matter() {
    let site = Site::new().await;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    site.observer.create("/l", b"", &open).await.unwrap();
    site.observer.create("/l/notes", b"", &open).await.unwrap();
    let holder = Mutex::new("/l").unwrap().acquire(&site.observer, Wait::No).await.unwrap();
    let lock = site.lock(&["/l", "true"]);
    site.wait_for_contenders("/l", 3).await;
    let ours = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let kazoo = "/l/0af2b9d632cd4bd08c9c6c2f2f4d4f55__lock__";
    site.observer.create(kazoo, b"", &ours).await.unwrap();
    holder.release().await.unwrap();
    let end = lock.end().await;
    assert_eq!(end.code, Some(0));
    assert!(end.stderr.contains("kazoo"), "{end:?}");
    assert_eq!(site.contenders("/l").await, 2);
    site.stop().await;
}

#[tokio::test]
async fn bad_input_is_refused_in_words_with_the_documented_code() {
    let site = Site::new().await;
    let closed = CreateMode::Persistent.with_acls(Acls::anyone_read());
    site.observer.create("/closed", b"", &closed).await.unwrap();
    for (arguments, code, word) in [
        (&["locks", "true"][..], 64, "does not begin with a slash"),
        (&["/", "true"], 64, "root"),
        (&["/a//b", "true"], 64, "empty or a relative part"),
        (&[], 64, "<PATH>"),
        (&["--no-such-flag", "/l"], 64, "--no-such-flag"),
        (&["-w", "soon", "/l"], 64, "expected a time"),
        (&["-w", "-1", "/l"], 64, "-1"),
        (&["-n", "-w", "1", "/l"], 64, "cannot be used with"),
        (&["-E", "256", "/l"], 64, "256"),
        (&["--session-timeout", "0", "/l"], 64, "at least 1 s"),
        (&["--session-timeout", "4s", "--grace", "3s", "/l"], 64, "at most half"),
        (&["--on-lost", "shout", "/l"], 64, "term, kill"),
        (&["-s", "--style", "plain", "/l"], 64, "curator and kazoo only"),
        (&["--permits", "2", "--style", "kazoo", "/l"], 64, "curator only"),
        (&["--permits", "0", "/l"], 64, "--permits"),
        (&["--permits", "2", "-s", "/l"], 64, "cannot be used with"),
        (&["-s", "-x", "/l"], 64, "cannot be used with"),
        (&["--style", "etcd", "/l"], 64, "curator-rw, kazoo"),
        (&["--auth", "secret", "/l"], 64, "SCHEME:CREDENTIAL"),
        (&["-c", "true", "/l", "true"], 64, "cannot be used with"),
        (&["/closed", "true"], 77, "no permission"),
        (&["/closed/below", "true"], 77, "no permission"),
        (&["--auth", "none:such", "/l", "true"], 77, "no permission"),
    ] {
        let end = site.lock(arguments).end().await;
        assert_eq!(end.code, Some(code), "{arguments:?}: {end:?}");
        assert!(end.stderr.contains(word), "{arguments:?}: {end:?}");
        assert_eq!(end.stdout, "");
    }
    assert_eq!(site.contenders("/closed").await + site.contenders("/l").await, 0);
    site.stop().await;
}

#[tokio::test]
async fn no_server_is_told_apart_from_a_lock_that_is_taken() {
    let port = testkit::ports::closed();
    for (arguments, longest) in [
        (&["-n", "/l", "true"][..], Duration::from_secs(5)),
        (&["-w", "300ms", "/l", "true"], Duration::from_secs(5)),
        (&["--session-timeout", "1s", "/l", "true"], Duration::from_secs(10)),
    ] {
        let begun = Instant::now();
        let end = Lock::start(&port.to_string(), arguments).end().await;
        assert_eq!(end.code, Some(69), "{arguments:?}: {end:?}");
        assert!(end.stderr.contains("no server answers"), "{end:?}");
        assert!(
            begun.elapsed() < testkit::at_this_load(longest),
            "{arguments:?}: {:?}",
            begun.elapsed()
        );
    }
    let end = Lock::start("a:b:c", &["/l", "true"]).end().await;
    assert_eq!(end.code, Some(64), "{end:?}");
}

#[tokio::test]
async fn who_holds_the_lock_is_said_while_it_is_waited_for_and_only_then() {
    let site = Site::new().await;
    let free = site.lock(&["/w", "true"]).end().await;
    assert_eq!((free.code, free.stderr.as_str()), (Some(0), ""));
    let mut holder = site.lock(&["-o", "json", "--id", "the nightly\treport", "/w"]);
    let held: serde_json::Value = serde_json::from_str(&holder.line().await).expect("JSON");
    assert_eq!(held["event"], "held");
    let end = site.lock(&["-w", "1500ms", "/w", "true"]).end().await;
    assert_eq!(end.code, Some(1), "{end:?}");
    let (token, session) = (held["token"].to_string(), held["session"].as_str().expect("text"));
    let words = format!(
        "waits for /w: held by the nightly report (session {session}, token {token}), there since "
    );
    assert!(end.stderr.contains(&words), "{end:?}");
    assert_eq!(end.stderr.lines().count(), 1, "once: {end:?}");
    // Who does not wait is told nothing, as by flock.
    let end = site.lock(&["-n", "/w", "true"]).end().await;
    assert_eq!((end.code, end.stderr.as_str()), (Some(1), ""));
    holder.signal(END);
    assert_eq!(holder.end().await.code, Some(0));
    site.stop().await;
}

#[tokio::test]
async fn each_server_that_gives_no_session_is_named_with_the_reason() {
    let closed = testkit::ports::closed();
    let servers = format!("{closed},no.invalid:7");
    let end = Lock::start(&servers, &["-w", "1s", "/l", "true"]).end().await;
    assert_eq!(end.code, Some(69), "{end:?}");
    for words in [
        "no server answers yet: ",
        &format!("{closed}: Connection refused"),
        "is the server started, and is this its clientPort?",
        "no.invalid:7: failed to lookup address",
        "check its spelling",
    ] {
        assert!(end.stderr.contains(words), "{words}: {end:?}");
    }
}

#[tokio::test]
async fn what_is_typed_at_a_terminal_reaches_the_command() {
    let site = Site::new().await;
    let lock = testkit::binary();
    let line = format!(
        "{} lock --server {} /t -- head -n 1",
        lock.display(),
        site.server.connect_string()
    );
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut script) = script.spawn() else {
        testkit::left_out::left_out("what is typed at a terminal", "there is no script(1)");
        return site.stop().await;
    };
    let mut typed = script.stdin.take().expect("piped");
    let output = spawn_blocking(move || {
        std::io::Write::write_all(&mut typed, b"a line\n").expect("it reads");
        let output = script.wait_with_output();
        drop(typed);
        output.expect("it ends")
    });
    let output = tokio::time::timeout(PATIENCE, output).await.expect("it ends").expect("no panic");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // Once as the terminal's echo, once by the command.
    assert_eq!(said.matches("a line").count(), 2, "{said:?}");
    assert_eq!(output.status.code(), Some(0), "{said:?}");
    site.stop().await;
}
