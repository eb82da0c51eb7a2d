//! Our own commands at servers that serve only clients who authenticate by SASL.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Output;
use std::thread;
use std::time::Duration;

use lockkeeper::Server;
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::spawn_blocking;

use crate::sasl::Scene;
use testkit::process::{lockkeeper, output, stderr};
use testkit::proxy::{Proxy, Weather};

const NO_PERMISSION: Option<i32> = Some(77);
/// Each password is in one file of these, and in none of the lines that are checked for them.
const PASSWORD: &str = "bob-secret";

/// Users, and the files of clients: of bob, of bob with a wrong password, and of one that proves nothing.
fn scene() -> Scene {
    let scene = Scene::new(&[("bob", PASSWORD), ("carl", "carl-secret")]);
    for (name, user, password) in
        [("client", "bob", PASSWORD), ("wrong", "bob", "another"), ("unknown", "eve", PASSWORD)]
    {
        let jaas = scene.directory.path().join(format!("{name}.jaas"));
        let module = "org.apache.zookeeper.server.auth.DigestLoginModule required";
        let section =
            format!("Client {{ {module} username=\"{user}\" password=\"{password}\"; }};");
        fs::write(&jaas, section).unwrap();
        let keys = format!(
            "java.security.auth.login.config={}\nzookeeper.sasl.client.username=zookeeper\n",
            jaas.display()
        );
        fs::write(scene.directory.path().join(format!("{name}.cfg")), keys).unwrap();
    }
    fs::write(scene.directory.path().join("none.cfg"), "zookeeper.client.secure=false\n").unwrap();
    scene
}

async fn secured(scene: &Scene) -> Server {
    let builder = scene.builder().set("enforce.auth.schemes", "sasl");
    builder.set("enforce.auth.enabled", "true").start().await.expect("it starts")
}

/// What the command does; servers of this process go on meanwhile.
async fn run(scene: &Scene, arguments: &[&str]) -> Output {
    let directory = scene.directory.path().to_owned();
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let run = move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        output(&directory, &arguments)
    };
    let output = spawn_blocking(run).await.expect("it ends");
    assert!(!stderr(&output).contains(PASSWORD), "{}", stderr(&output));
    output
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn refused(output: &Output, words: &str) {
    assert_eq!(output.status.code(), NO_PERMISSION, "{}", stderr(output));
    assert!(stderr(output).contains(words), "{}", stderr(output));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shell_proves_who_asks() {
    let scene = scene();
    let server = secured(&scene).await;
    let at = server.connect_string();
    let cli = async |configuration: &str, command: &[&str]| {
        let flags = ["cli", "-server", &at, "-client-configuration", configuration];
        run(&scene, &[&flags[..], command].concat()).await
    };
    succeeded(&cli("client.cfg", &["create", "/a", "data", "auth::cdrwa"]).await);
    assert_eq!(succeeded(&cli("client.cfg", &["get", "/a"]).await), "data\n");
    let list = succeeded(&cli("client.cfg", &["getAcl", "/a"]).await);
    assert!(list.contains("'sasl,'bob"), "{list}");
    for configuration in ["wrong.cfg", "unknown.cfg"] {
        refused(&cli(configuration, &["get", "/a"]).await, "only clients that authenticate");
    }
    refused(&cli("none.cfg", &["get", "/a"]).await, "only clients that authenticate");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_said_where_clients_need_none() {
    let scene = scene();
    let server = scene.server().await;
    let at = server.connect_string();
    let cli = ["cli", "-server", &at, "-client-configuration", "wrong.cfg", "ls", "/"];
    refused(&run(&scene, &cli).await, "not this credential");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_no_users_is_not_taken_for_one_that_knows_the_password() {
    let scene = scene();
    let server = testkit::builder().start().await.unwrap();
    let at = server.connect_string();
    for command in [
        &["cli", "-server", &at, "-client-configuration", "client.cfg", "ls", "/"][..],
        &["member", "list", "--server", &at, "--client-configuration", "client.cfg"],
    ] {
        refused(&run(&scene, command).await, "does not authenticate clients by SASL");
    }
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_proves_it_again_on_every_connection() {
    let scene = scene();
    let server = secured(&scene).await;
    let proxy = Proxy::start(server.local_addr()).await;
    let at = proxy.connect_string();
    let flags = ["cli", "--server", &at, "--client-configuration", "client.cfg"];
    let mut shell = lockkeeper(scene.directory.path(), &flags);
    let mut shell = shell.stdin(std::process::Stdio::piped()).spawn().expect("it starts");
    let (mut input, out) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
    let (tell, said) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(out).lines() {
            // The test may have seen enough.
            let _ = tell.send(line.unwrap());
        }
    });
    // A command is lost with its connection: it is given again, until there is an answer.
    let mut ask = move |command: &str, answer: &str| {
        let begun = std::time::Instant::now();
        while begun.elapsed() < testkit::PATIENCE {
            writeln!(input, "{command}").unwrap();
            while let Ok(line) = said.recv_timeout(Duration::from_millis(300)) {
                if line.contains(answer) {
                    return;
                }
            }
        }
        panic!("{command}: no answer");
    };
    let asked = spawn_blocking(move || {
        ask("create /a first auth::cdrwa", "Created /a");
        ask
    });
    let mut ask = asked.await.unwrap();
    proxy.set(Weather::Down);
    proxy.set(Weather::Fair);
    spawn_blocking(move || ask("get /a", "first")).await.unwrap();
    spawn_blocking(move || shell.wait()).await.unwrap().unwrap();
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_asked_by_a_client_that_authenticates() {
    let scene = scene();
    let server = secured(&scene).await;
    let at = server.connect_string();
    let list = async |configuration: &str| {
        let flags = ["member", "list", "--server", &at, "--client-configuration", configuration];
        run(&scene, &flags).await
    };
    let listed = list("client.cfg").await;
    // A server alone has no members to show, and says so: it was asked.
    assert!(stderr(&listed).contains("this server runs on its own"), "{}", stderr(&listed));
    refused(&list("none.cfg").await, "only clients that authenticate");
    refused(&list("wrong.cfg").await, "");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_taken_revoked_and_broken_by_clients_that_authenticate() {
    let scene = scene();
    let server = secured(&scene).await;
    let at = server.connect_string();
    let flags = ["lock", "--server", &at, "--client-configuration", "client.cfg", "/locks/a"];
    let mut holder = lockkeeper(scene.directory.path(), &flags).spawn().expect("it starts");
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let held = spawn_blocking(move || lines.next()).await.unwrap().expect("it says so").unwrap();
    let node = held.split(' ').nth(1).expect("a znode").to_owned();
    let change = async |configuration: &str, command: &[&str]| {
        let flags = ["--server", &at, "--client-configuration", configuration];
        run(&scene, &[&["locks"], command, &flags[..]].concat()).await
    };
    refused(&change("none.cfg", &["revoke", &node]).await, "only clients that authenticate");
    refused(&change("wrong.cfg", &["break", &node, "--yes"]).await, "");
    let asked = succeeded(&change("client.cfg", &["revoke", &node]).await);
    assert!(asked.contains("asked to release"), "{asked}");
    let broken = succeeded(&change("client.cfg", &["break", &node, "--yes"]).await);
    assert!(broken.contains("broken"), "{broken}");
    let ended = spawn_blocking(move || holder.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(75), "the lock is lost");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_under_a_lock_of_a_client_that_authenticates_and_of_no_other() {
    let scene = scene();
    let server = secured(&scene).await;
    let at = server.connect_string();
    let lock = async |configuration: &str| {
        let flags = ["lock", "--server", &at, "-w", "5s", "--client-configuration", configuration];
        run(&scene, &[&flags[..], &["/locks/b", "echo", "done"]].concat()).await
    };
    assert_eq!(succeeded(&lock("client.cfg").await), "done\n");
    for configuration in ["none.cfg", "wrong.cfg", "unknown.cfg"] {
        let refused = lock(configuration).await;
        assert_eq!(refused.status.code(), NO_PERMISSION, "{configuration}: {}", stderr(&refused));
        assert!(refused.stdout.is_empty());
    }
    server.stop().await.unwrap();
}

/// A frame with this payload.
fn frame(payload: &[u8]) -> Vec<u8> {
    [&u32::try_from(payload.len()).unwrap().to_be_bytes()[..], payload].concat()
}

fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("a length");
    let mut payload = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut payload).expect("a frame");
    payload
}

/// A server that takes every answer to its challenge for right, and knows no password.
fn impostor() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_frame(&mut stream);
        let answer = [
            &[0; 4][..],
            &30_000_u32.to_be_bytes(),
            &[0, 0, 0, 0, 0, 0, 0, 7],
            &16_u32.to_be_bytes(),
            &[1; 16],
            &[0],
        ];
        stream.write_all(&frame(&answer.concat())).unwrap();
        for token in [
            "realm=\"zk-sasl-md5\",nonce=\"bm9uY2U\",charset=utf-8,algorithm=md5-sess",
            "rspauth=00000000000000000000000000000000",
        ] {
            let request = read_frame(&mut stream);
            let length = u32::try_from(token.len()).unwrap().to_be_bytes();
            let answer = [&request[..4], &[0; 12], &length, token.as_bytes()].concat();
            stream.write_all(&frame(&answer)).unwrap();
        }
        // It waits for what the client would ask it.
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "the client goes on");
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_know_the_password_is_asked_nothing() {
    let scene = scene();
    for command in [&["cli"][..], &["member", "list"]] {
        let at = impostor().to_string();
        let flags = ["--server", &at, "--client-configuration", "client.cfg"];
        let verb: &[&str] = if command == ["cli"] { &["ls", "/"] } else { &[] };
        let ended = run(&scene, &[command, &flags[..], verb].concat()).await;
        refused(&ended, "has not proved that it knows the password");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_has_the_users_be_read_again() {
    let scene = scene();
    let configuration = scene.directory.path().join("zoo.cfg");
    let lines = format!(
        "dataDir={}\nclientPort=0\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n\
         lockkeeper.jaasFile={}\n",
        scene.directory.path().join("data").display(),
        scene.users().display()
    );
    fs::write(&configuration, lines).unwrap();
    let path = configuration.display().to_string();
    let directory = scene.directory.path().to_owned();
    let server = spawn_blocking(move || testkit::process::Running::start(&directory, &[&path]));
    let server = server.await.unwrap();
    let at = server.address.to_string();
    let cli = ["cli", "-server", &at, "-client-configuration", "client.cfg", "ls", "/"];
    succeeded(&run(&scene, &cli).await);
    scene.put(&[("bob", "other")]);
    kill_process(Pid::from_child(&server.child), Signal::HUP).unwrap();
    let begun = std::time::Instant::now();
    while run(&scene, &cli).await.status.success() {
        assert!(begun.elapsed() < testkit::PATIENCE, "the old password is still good");
    }
    refused(&run(&scene, &cli).await, "not this credential");
}
