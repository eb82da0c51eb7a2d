//! Who holds which lock, as a server tells operators: `/locks`, `/sessions`, and the commands that show
//! them.

use std::net::SocketAddr;
use std::process::{Command, Output};

use bytes::Bytes;
use lockkeeper::internals::proto::request::{Create, CreateKind};
use lockkeeper::internals::proto::{Acl, Request, Text};
use lockkeeper::{Ensemble, Server};
use serde_json::Value;
use testkit::{Client, EPHEMERAL, fresh, get, say, text, wait_until};

const EPHEMERAL_SEQUENTIAL: i32 = 3;
const KAZOO: &str = "0af2b9d632cd4bd08c9c6c2f2f4d4f55__lock__";
const CURATOR: &str = "_c_0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55-lock-";

async fn server() -> Server {
    testkit::builder()
        .set("admin.enableServer", "true")
        .set("admin.serverPort", "0")
        .start()
        .await
        .expect("it starts")
}

async fn ensemble() -> Ensemble {
    let builder =
        Ensemble::builder(3).set("admin.enableServer", "true").set("admin.serverPort", "0");
    builder.start().await.expect("it starts")
}

fn admin(server: &Server) -> SocketAddr {
    server.admin_addr().expect("it has an HTTP port")
}

/// A status and a body.
async fn http(address: SocketAddr, target: &str) -> (u16, String) {
    let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let answer = say(address, head.as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    (head[9..12].parse().expect("a status"), body.to_string())
}

async fn page(address: SocketAddr, target: &str) -> Value {
    let (status, body) = http(address, target).await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("JSON")
}

/// Enters a queue; the path of the contender.
async fn enter(client: &mut Client, directory: &str, name: &str, identity: &str) -> String {
    let path = format!("{directory}/{name}");
    client.create(&path, identity.as_bytes(), EPHEMERAL_SEQUENTIAL).await.expect("created")
}

async fn watch(client: &mut Client, path: &str) {
    client.call(&Request::GetData { path: text(path), watch: true }).await.expect("it is there");
}

fn identities(places: &Value) -> Vec<&str> {
    let places = places.as_array().expect("an array");
    places.iter().map(|place| place["identity"].as_str().expect("a text")).collect()
}

fn findings(lock: &Value) -> Vec<&str> {
    let found = lock["findings"].as_array().expect("an array");
    found.iter().map(|finding| finding["kind"].as_str().expect("a word")).collect()
}

fn session(client: &Client) -> String {
    format!("{:#x}", client.session.session_id)
}

/// Runs the binary where this runtime's servers can answer it.
async fn lockkeeper(arguments: &[&str]) -> Output {
    let mut command = Command::new(testkit::binary());
    command.args(arguments);
    let run = tokio::task::spawn_blocking(move || command.output());
    run.await.expect("no panic").expect("the binary runs")
}

#[tokio::test]
async fn holder_and_queue_are_shown_with_whatever_they_watch() {
    let server = server().await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(Client::connect(server.local_addr()).await);
    }
    clients[0].create("/locks", b"", 0).await.unwrap();
    clients[0].create("/locks/demo", b"", 0).await.unwrap();
    let mut nodes: Vec<String> = Vec::new();
    for (client, identity) in clients.iter_mut().zip(["first", "second", "third"]) {
        let node = enter(client, "/locks/demo", KAZOO, identity).await;
        if let Some(before) = nodes.last() {
            watch(client, before).await;
        }
        nodes.push(node);
    }
    let answer = page(admin(&server), "/locks?prefix=/locks").await;
    assert_eq!((&answer["prefix"], &answer["cut"]), (&"/locks".into(), &false.into()));
    assert_eq!(answer["servers"], serde_json::json!([{ "server": 0, "answered": true }]));
    assert_eq!(answer["locks"].as_array().unwrap().len(), 1);
    let lock = &answer["locks"][0];
    assert_eq!(
        (lock["path"].as_str(), lock["kind"].as_str()),
        (Some("/locks/demo"), Some("mutex"))
    );
    assert_eq!(lock["dialects"], serde_json::json!(["kazoo"]));
    assert_eq!(identities(&lock["holders"]), ["first"]);
    assert_eq!(identities(&lock["waiters"]), ["second", "third"]);
    let holder = &lock["holders"][0];
    assert_eq!(holder["node"], nodes[0]);
    assert_eq!(holder["session"], session(&clients[0]));
    assert_eq!(holder["client"], "connected");
    assert!(holder["remote"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(holder["timeout_ms"], 20_000);
    assert!(holder["expires_in_ms"].as_u64().unwrap() <= 20_000);
    assert!(holder["age_ms"].as_u64().unwrap() < 20_000);
    let Ok(lockkeeper::internals::proto::Response::Data(_, stat)) =
        clients[0].call(&get(&nodes[0])).await
    else {
        panic!("it is there")
    };
    assert_eq!(holder["token"], stat.czxid);
    let watched = serde_json::json!([{ "path": nodes[1], "kind": "data" }]);
    assert_eq!(lock["waiters"][1]["watches"], watched);
    assert_eq!(findings(lock), [""; 0]);
    for (prefix, count) in [("/", 1), ("/locks/demo/", 1), ("/lock", 0), ("/none", 0)] {
        let answer = page(admin(&server), &format!("/locks?prefix={prefix}")).await;
        assert_eq!(answer["locks"].as_array().unwrap().len(), count, "{prefix}");
    }
    assert_eq!(http(admin(&server), "/locks?prefix=x").await.0, 400);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_wrong_is_found() {
    let server = server().await;
    let mut curator = Client::connect(server.local_addr()).await;
    let mut kazoo = Client::connect(server.local_addr()).await;
    for path in ["/mixed", "/mixed/lost", "/mixed/two"] {
        curator.create(path, b"", 0).await.unwrap();
    }
    enter(&mut curator, "/mixed/two", CURATOR, "10.0.0.1").await;
    enter(&mut kazoo, "/mixed/two", KAZOO, "py").await;
    let mut lost = Client::connect(server.local_addr()).await;
    enter(&mut lost, "/mixed/lost", KAZOO, "gone").await;
    drop(lost);
    wait_until("the server knows that the client is gone", async || {
        let answer = page(admin(&server), "/locks").await;
        findings(&answer["locks"][0]) == ["holder-disconnected"]
    })
    .await;
    let answer = page(admin(&server), "/locks").await;
    assert_eq!(answer["locks"][0]["holders"][0]["client"], "disconnected");
    let mixed = &answer["locks"][1];
    assert_eq!(findings(mixed), ["mixed-dialects"]);
    assert_eq!(identities(&mixed["holders"]), ["10.0.0.1", "py"]);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn data_that_are_not_for_everybody_are_not_shown() {
    let server = server().await;
    let mut client = Client::connect(server.local_addr()).await;
    let auth = Some(Bytes::from_static(b"me:secret"));
    client
        .send_bytes(&testkit::request_frame(
            -4,
            &Request::Auth { scheme: Some(text("digest")), auth },
        ))
        .await;
    assert_eq!(client.receive().await.expect("a reply").err, 0);
    let create = Create {
        kind: CreateKind::Create,
        path: text("/lock-"),
        data: Some(Bytes::from_static(b"confidential")),
        acl: Some(vec![Acl { perms: 31, scheme: Text::from("auth"), id: Text::from("") }]),
        flags: EPHEMERAL_SEQUENTIAL,
        ttl_ms: 0,
    };
    client.call(&Request::Create(create)).await.expect("created");
    let answer = page(admin(&server), "/locks").await;
    let holder = &answer["locks"][0]["holders"][0];
    assert_eq!((&holder["identity"], &holder["node"]), (&Value::Null, &"/lock-0000000000".into()));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_server_that_is_asked_says_what_the_others_know_and_names_who_is_silent() {
    let mut ensemble = ensemble().await;
    let mut clients = Vec::new();
    for id in 1..=3 {
        let address = ensemble.server(id).expect("it runs").local_addr();
        clients.push(Client::connect(address).await);
    }
    clients[0].create("/p", b"", 0).await.unwrap();
    let first = enter(&mut clients[0], "/p", KAZOO, "at 1").await;
    let second = enter(&mut clients[1], "/p", KAZOO, "at 2").await;
    enter(&mut clients[2], "/p", KAZOO, "at 3").await;
    watch(&mut clients[1], &first).await;
    watch(&mut clients[2], &second).await;
    let leader = ensemble.leader().expect("one leads");
    for id in 1..=3 {
        let asked = admin(ensemble.server(id).expect("it runs"));
        let mut answer = Value::Null;
        wait_until("it has applied the last contender", async || {
            answer = page(asked, "/locks").await;
            answer["locks"][0]["waiters"].as_array().is_some_and(|waiters| waiters.len() == 2)
        })
        .await;
        assert_eq!(answer["server"], id);
        let lock = &answer["locks"][0];
        assert_eq!(findings(lock), [""; 0], "{lock:#}");
        let places = [&lock["holders"][0], &lock["waiters"][0], &lock["waiters"][1]];
        for (place, at) in places.into_iter().zip(1..) {
            assert_eq!(place["server"], at, "{place:#}");
            assert!(place["remote"].as_str().unwrap().starts_with("127.0.0.1:"));
            assert!(place["expires_in_ms"].is_u64(), "the leader, server {leader}, decides that");
        }
        assert_eq!(lock["waiters"][1]["watches"][0]["path"], second);
        assert!(answer["servers"].as_array().unwrap().iter().all(|s| s["answered"] == true));
    }
    // A follower falls silent.
    let silent = (1..=3).find(|id| *id != leader).expect("three");
    ensemble.kill(silent).await.unwrap();
    let answer = page(admin(ensemble.server(leader).expect("it runs")), "/locks").await;
    let lock = &answer["locks"][0];
    let places: Vec<_> =
        ["holders", "waiters"].iter().flat_map(|key| lock[key].as_array().unwrap()).collect();
    for (place, at) in places.into_iter().zip(1_u8..) {
        let expected = if at == silent { "unknown" } else { "connected" };
        assert_eq!(place["client"], expected, "{place:#}");
    }
    assert_eq!(findings(lock), [""; 0], "nothing is found in what is not known");
    let answered = answer["servers"].as_array().unwrap();
    let silent_ones: Vec<_> =
        answered.iter().filter(|server| server["answered"] == false).collect();
    assert_eq!(silent_ones.len(), 1);
    assert_eq!(silent_ones[0]["server"], silent);
    ensemble.shutdown().await.unwrap();
}

#[tokio::test]
async fn sessions_are_shown_with_their_clients() {
    let server = server().await;
    let mut client = Client::connect(server.local_addr()).await;
    client.create("/a", b"", EPHEMERAL).await.unwrap();
    watch(&mut client, "/a").await;
    let gone = Client::open(server.local_addr(), &fresh(8_000)).await.expect("a session");
    let id = session(&gone);
    drop(gone);
    let mut answer = Value::Null;
    wait_until("the server knows that a client is gone", async || {
        answer = page(admin(&server), "/sessions").await;
        answer["sessions"][1]["client"] == "disconnected"
    })
    .await;
    let sessions = answer["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2);
    let (here, away) = (&sessions[0], &sessions[1]);
    assert_eq!(
        (&here["session"], &here["client"]),
        (&session(&client).into(), &"connected".into())
    );
    assert_eq!((&here["ephemerals"], &here["watches"]), (&1.into(), &1.into()));
    assert!(here["heard_ms"].is_u64());
    assert_eq!((&away["session"], &away["timeout_ms"]), (&id.into(), &8_000.into()));
    assert!(away["expires_in_ms"].as_u64().unwrap() <= 8_000);
    assert_eq!(away["remote"], Value::Null);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_commands_show_it_and_say_what_is_missing() {
    let server = server().await;
    let mut client = Client::connect(server.local_addr()).await;
    client.create("/p", b"", 0).await.unwrap();
    enter(&mut client, "/p", "lock-", "me").await;
    let at = server.admin_url().expect("it has an HTTP port");
    let shown = lockkeeper(&["locks", "/p", "--admin", &at]).await;
    let said = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.success(), "{said}");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[0], "/p  mutex (plain)");
    assert!(lines[1].starts_with("  holds  me  127.0.0.1:"), "{said}");
    let shown = lockkeeper(&["locks", "-o", "json", "--admin", &at]).await;
    let answer: Value = serde_json::from_slice(&shown.stdout).expect("one document");
    assert_eq!(answer["locks"][0]["path"], "/p");
    let shown = lockkeeper(&["sessions", "--admin", &at]).await;
    let said = String::from_utf8(shown.stdout).unwrap();
    assert!(said.lines().nth(1).is_some_and(|line| line.starts_with(&session(&client))), "{said}");
    let clients = server.connect_string();
    for (arguments, code, words) in [
        (["locks", "p", "--admin", &at], 2, "a path begins with a slash"),
        (["locks", "/p", "--admin", "127.0.0.1:1"], 69, "no server answers: 127.0.0.1:1: "),
        (["locks", "/p", "--admin", "a:b"], 2, "--admin: "),
        (["locks", "/p", "--admin", &clients], 1, "does not answer as a lockkeeper server's HTTP"),
    ] {
        let failed = lockkeeper(&arguments).await;
        let said = String::from_utf8(failed.stderr).unwrap();
        assert_eq!(failed.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_lock_is_broken_after_a_yes_and_the_audit_log_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let audit = directory.path().join("audit");
    let server = testkit::builder().audit_log(&audit).start().await.expect("it starts");
    let at = server.connect_string();
    let mut client = Client::connect(server.local_addr()).await;
    let mut waiter = Client::connect(server.local_addr()).await;
    client.create("/p", b"", 0).await.unwrap();
    let node = enter(&mut client, "/p", KAZOO, "stuck").await;
    watch(&mut waiter, &node).await;
    let missing = format!("{node}1");
    for (arguments, code, words) in [
        (["locks", "break", &node, "--server", &at], 2, "there is no terminal to ask at: --yes"),
        (["locks", "break", "/p", "--server", &at], 1, "/p is no contender of a lock"),
        (["locks", "break", &missing, "--server", &at], 1, "it is not there"),
        (["locks", "break", &node, "--server", "127.0.0.1:1"], 69, "no server answers"),
        (["locks", "break", "p", "--server", &at], 2, "a path begins with a slash"),
    ] {
        let failed = lockkeeper(&arguments).await;
        let said = String::from_utf8(failed.stderr).unwrap();
        assert_eq!(failed.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    assert!(client.exists(&node).await);
    let done = lockkeeper(&["locks", "break", &node, "--yes", "--server", &at]).await;
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success() && said.starts_with(&format!("broken: {node}\n")), "{said}");
    assert_eq!(waiter.event().await.path, node, "whoever waits is told");
    assert!(!client.exists(&node).await);
    server.stop().await.unwrap();
    let lines = std::fs::read_to_string(&audit).unwrap();
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let deleted: Vec<_> = lines.iter().filter(|line| line["op"] == "delete").collect();
    assert_eq!(deleted.len(), 1);
    assert_eq!((&deleted[0]["path"], &deleted[0]["result"]), (&node.into(), &"ok".into()));
    assert_ne!(deleted[0]["session"], session(&client), "the operator's");
}

#[tokio::test]
async fn whoever_is_asked_to_release_a_lock_finds_the_word_of_its_library() {
    let server = server().await;
    let at = server.connect_string();
    let mut client = Client::connect(server.local_addr()).await;
    for (name, word) in [(CURATOR, "__REVOKE__"), ("lock-", "unlock")] {
        let node = enter(&mut client, "", name, "me").await;
        let asked = lockkeeper(&["locks", "revoke", &node, "--server", &at]).await;
        assert!(asked.status.success(), "{asked:?}");
        assert_eq!(client.data(&node).await.unwrap(), word.as_bytes());
        let answer = page(admin(&server), "/locks").await;
        let places = ["holders", "waiters"].map(|key| &answer["locks"][0][key]);
        let place = places.into_iter().flat_map(|places| places.as_array().unwrap());
        let place = place.into_iter().find(|place| place["node"] == node).expect("it is there");
        assert_eq!((&place["asked_to_release"], &place["identity"]), (&true.into(), &Value::Null));
    }
    client.create("/lock-1234567890", b"", 0).await.unwrap();
    let refused = lockkeeper(&["locks", "revoke", "/lock-1234567890", "--server", &at]).await;
    assert_eq!(refused.status.code(), Some(1));
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_has_the_locks_in_numbers_and_nobody_else() {
    let ensemble = ensemble().await;
    let servers: Vec<&Server> = ensemble.servers().map(|(_, server)| server).collect();
    let mut holder = Client::connect(servers[0].local_addr()).await;
    let mut waiter = Client::connect(servers[1].local_addr()).await;
    holder.create("/l", b"", 0).await.unwrap();
    let held = enter(&mut holder, "/l", CURATOR, "holder").await;
    enter(&mut waiter, "/l", CURATOR, "waiter").await;
    watch(&mut waiter, &held).await;
    let leader = ensemble.leader().expect("there is one");
    // The others may have made it durable, and applied it, before the leader's own disk did.
    let zxid = servers[1].status().zxid;
    wait_until("all have applied it", async || servers.iter().all(|one| one.status().zxid >= zxid))
        .await;
    for (id, server) in ensemble.servers() {
        let (status, text) = http(admin(server), "/metrics").await;
        assert_eq!(status, 200);
        if id != leader {
            // What it has measured while it led stays; what there is now, the leader says.
            let measured =
                ["lockkeeper_lock_wait_", "lockkeeper_lock_hold_", "lockkeeper_lock_stays_"];
            let is_of_now = |line: &&str| {
                line.starts_with("lockkeeper_lock")
                    && !measured.iter().any(|name| line.starts_with(name))
            };
            assert_eq!(text.lines().find(is_of_now), None);
            continue;
        }
        let figure = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("{name} in {text}")).trim().to_string()
        };
        assert_eq!(figure("lockkeeper_locks{key=\"mutex\"}"), "1");
        assert_eq!(figure("lockkeeper_locks{key=\"semaphore\"}"), "0");
        assert_eq!(figure("lockkeeper_lock_holders "), "1");
        assert_eq!(figure("lockkeeper_lock_waiters "), "1");
        assert_eq!(figure("lockkeeper_lock_findings{key=\"orphan\"}"), "0");
        assert_eq!(figure("lockkeeper_locks_cut "), "0");
        assert_eq!(page(admin(server), "/locks").await["leader"], leader);
    }
    ensemble.shutdown().await.unwrap();
}

/// A POST that changes something, with these further headers.
async fn change(address: SocketAddr, target: &str, headers: &str) -> (u16, String) {
    let head =
        format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
    let answer = say(address, head.as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    (head[9..12].parse().expect("a status"), body.to_string())
}

#[tokio::test]
async fn a_deadlock_is_found_and_can_be_broken_and_is_remembered() {
    let server = server().await;
    let mut one = Client::connect(server.local_addr()).await;
    let mut two = Client::connect(server.local_addr()).await;
    for path in ["/a", "/b"] {
        one.create(path, b"", 0).await.unwrap();
    }
    let first = enter(&mut one, "/a", KAZOO, "one").await;
    let second = enter(&mut two, "/b", KAZOO, "two").await;
    let waits = enter(&mut one, "/b", KAZOO, "one").await;
    watch(&mut one, &second).await;
    enter(&mut two, "/a", KAZOO, "two").await;
    watch(&mut two, &first).await;
    wait_until("it has lasted", async || {
        let answer = page(admin(&server), "/locks").await;
        answer["locks"].as_array().unwrap().iter().all(|lock| findings(lock) == ["deadlock"])
    })
    .await;
    let answer = page(admin(&server), "/locks").await;
    let cycle = &answer["locks"][0]["findings"][0]["cycle"];
    assert_eq!(cycle.as_array().unwrap().len(), 2);
    assert_eq!((&cycle[0]["identity"], &cycle[0]["holds"]), (&"one".into(), &"/a".into()));
    assert_eq!((&cycle[0]["waits_for"], &cycle[0]["waits_node"]), (&"/b".into(), &waits.into()));
    let (_, metrics) = http(admin(&server), "/metrics").await;
    assert!(metrics.contains("lockkeeper_lock_findings{key=\"deadlock\"} 2"), "{metrics}");
    let shown = lockkeeper(&["locks", "--admin", &admin(&server).to_string()]).await;
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("  ! deadlock: 2 sessions wait for each other: session 0x"), "{shown}");

    let token = answer["locks"][0]["holders"][0]["token"].as_i64().unwrap();
    let target = format!("/locks/break?node={first}&token=");
    let header = "X-Lockkeeper-Change: yes\r\n";
    let (status, said) = change(admin(&server), &format!("{target}{}", token + 1), header).await;
    assert_eq!((status, said.trim()), (409, "it is another contender by now; nothing was done"));
    assert_eq!(change(admin(&server), &format!("{target}{token}"), "").await.0, 403);
    let (status, said) = change(admin(&server), &format!("{target}{token}"), header).await;
    assert_eq!(status, 200, "{said}");
    let answer = page(admin(&server), "/locks?prefix=/a").await;
    assert_eq!(identities(&answer["locks"][0]["holders"]), ["two"]);
    let history = page(admin(&server), "/locks/history?path=/a").await;
    let left = &history["left"][0];
    assert_eq!((&left["node"], &left["held"]), (&first.into(), &true.into()));
    assert_eq!((&left["end"], &left["token"]), (&"removed".into(), &token.into()));
    assert_eq!(left["session"], session(&one));
    assert_eq!(left["held_since_ms"], left["created_ms"]);
}

#[tokio::test]
async fn the_tree_is_browsed_and_what_is_protected_is_not_shown_without_a_proof() {
    let server = server().await;
    let mut client = Client::connect(server.local_addr()).await;
    client.create("/app", b"{\"a\":1}", 0).await.unwrap();
    for number in 0..7 {
        client.create(&format!("/app/{number}"), b"", 0).await.unwrap();
    }
    let acl = vec![Acl {
        perms: 31,
        scheme: text("digest"),
        id: text("ann:QhC0sPVVcqUzjOAMYsMoXqpaOx4="),
    }];
    let secret = Create {
        kind: CreateKind::Create,
        path: text("/app/secret"),
        data: Some(Bytes::from_static(b"hush")),
        acl: Some(acl),
        flags: 0,
        ttl_ms: 0,
    };
    client.call(&Request::Create(secret)).await.unwrap();
    let names = |answer: &Value| -> Vec<String> {
        let children = answer["children"].as_array().unwrap().iter();
        children.map(|child| child["name"].as_str().unwrap().to_owned()).collect()
    };
    let answer = page(admin(&server), "/znodes?path=/app&limit=3").await;
    assert_eq!(
        (names(&answer), &answer["more"]),
        (["0", "1", "2"].map(str::to_owned).to_vec(), &true.into())
    );
    assert_eq!(answer["data"]["text"], "{\"a\":1}");
    let answer = page(admin(&server), "/znodes?path=/app&limit=9&after=5").await;
    assert_eq!(
        (names(&answer), &answer["more"]),
        (["6", "secret"].map(str::to_owned).to_vec(), &false.into())
    );
    let (_, body) = http(admin(&server), "/znodes?path=/app/secret").await;
    assert!(
        !body.contains("hush") && !body.contains("68757368") && !body.contains("QhC0"),
        "{body}"
    );
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&answer["data"]["hidden"], &answer["acl"][0]["id"]),
        (&true.into(), &"ann:x".into())
    );
    assert_eq!(page(admin(&server), "/znodes").await["path"], "/");
    assert_eq!(http(admin(&server), "/znodes?path=/nowhere").await.0, 404);
}
