//! `lockkeeper server` and `lockkeeper config check` as an operator sees them: first screen, exit
//! codes, signals.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, Signal, getrlimit};
use testkit::process::{Running, lockkeeper, output, stderr};
use testkit::{Client, EPHEMERAL, text};

const ANYWHERE: [&str; 4] = ["--port", "0", "--admin-addr", "127.0.0.1:0"];

#[tokio::test]
async fn a_server_runs_shows_six_lines_and_stops_cleanly_with_its_sessions() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Running::start(directory.path(), &ANYWHERE);
    assert!(server.screen[0].contains(env!("CARGO_PKG_VERSION")), "{:?}", server.screen);
    assert_eq!(server.screen[1], "data     ./lockkeeper-data (new)");
    assert!(server.screen[3].starts_with("admin    http://127.0.0.1:"), "{:?}", server.screen);
    let mut client = Client::connect(server.address).await;
    client.create("/e", b"", EPHEMERAL).await.unwrap();
    server.signal(Signal::TERM);
    let (code, took) = server.exit();
    assert_eq!(code, Some(0));
    assert!(took < testkit::at_this_load(Duration::from_secs(1)), "{took:?}");

    let mut server = Running::start(directory.path(), &ANYWHERE);
    let found = &server.screen[1];
    assert!(found.contains("6 znodes, 1 sessions, zxid 0x100000002"), "{found}");
    let mut again = Client::open(server.address, &client.again()).await.expect("an answer");
    assert!(again.exists("/e").await);
    server.signal(Signal::INT);
    assert_eq!(server.exit().0, Some(0));
}

/// A table that grows under load holds everybody up, each time that it is doubled.
#[test]
fn there_is_room_for_many_connections_before_the_first_comes() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &ANYWHERE);
    let status = format!("/proc/{}/status", server.child.id());
    let status = std::fs::read_to_string(status).expect("it runs");
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).expect("in the kernel");
    let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let room: u64 = size.trim().parse().expect("a number");
    assert!(room >= allowed.min(65_536), "{room} of {allowed}");
}

#[tokio::test]
async fn a_server_runs_from_a_zoo_cfg_and_flags_override_it() {
    let directory = tempfile::tempdir().unwrap();
    let config = "tickTime=2000\ndataDir=from-file\nclientPort=1\nclientPortAddress=127.0.0.1\n\
                  admin.enableServer=false\ninitLimit=10\n4lw.commands.whitelist=ruok\n";
    std::fs::write(directory.path().join("zoo.cfg"), config).unwrap();
    let flags = ["zoo.cfg", "--data-dir", "from-flag", "--port", "0", "--set", "tickTime=50"];
    let mut server = Running::start(directory.path(), &flags);
    assert_eq!(server.screen[3], "admin    off");
    let client = Client::open(server.address, &testkit::fresh(1)).await.expect("an answer");
    assert_eq!(client.session.timeout_ms, 100, "two ticks of 50 ms");
    let refused = testkit::say(server.address, b"mntr").await;
    assert!(refused.contains("not in the whitelist"), "{refused}");
    assert!(directory.path().join("from-flag").exists());
    assert!(!directory.path().join("from-file").exists());
    server.signal(Signal::TERM);
    assert_eq!(server.exit().0, Some(0));
    let mut said = String::new();
    server.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("keys without effect here: initLimit"), "{said}");
}

#[tokio::test]
async fn a_wrong_configuration_is_named_by_line_before_anything_is_created() {
    let directory = tempfile::tempdir().unwrap();
    let config = "dataDir=data\ntickTime=fast\nquorum.auth.enableSasl=true\nclientPort=0\n";
    std::fs::write(directory.path().join("zoo.cfg"), config).unwrap();
    let started = output(directory.path(), &["server", "zoo.cfg"]);
    let said = stderr(&started);
    assert_eq!(started.status.code(), Some(2), "{said}");
    assert!(said.contains("zoo.cfg:2: tickTime: "), "{said}");
    assert!(said.contains("zoo.cfg:3: quorum.auth.enableSasl: "), "{said}");
    assert!(!directory.path().join("data").exists());
    assert!(!directory.path().join("lockkeeper-data").exists());

    let checked = output(directory.path(), &["config", "check", "zoo.cfg"]);
    assert_eq!((checked.status.code(), stderr(&checked)), (Some(2), said));
}

#[tokio::test]
async fn a_wrong_flag_is_named() {
    let directory = tempfile::tempdir().unwrap();
    for (flags, named) in [
        (&["--client-addr", "nonsense"][..], "--client-addr: "),
        (&["--port", "99999"], "--port: clientPort: "),
        (&["--set", "nonsense"], "--set: "),
        (&["missing.cfg"], "missing.cfg: "),
    ] {
        let started = output(directory.path(), &[&["server"], flags].concat());
        let said = stderr(&started);
        assert_eq!(started.status.code(), Some(2), "{flags:?}: {said}");
        assert!(said.contains(named), "{flags:?}: {said}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing was created");
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why_in_one_line_and_exits_with_1() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let started = output(directory.path(), &["server", "--port", &port, "--admin-addr", "off"]);
    assert_eq!(started.status.code(), Some(1));
    let said = stderr(&started);
    assert!(said.contains(&format!("127.0.0.1:{port}")) && said.lines().count() == 1, "{said}");

    std::fs::create_dir_all(directory.path().join("zk/version-2")).unwrap();
    std::fs::write(directory.path().join("zk/version-2/snapshot.0"), "ZKSN").unwrap();
    let flags = ["server", "--data-dir", "zk", "--port", "0", "--admin-addr", "off"];
    let started = output(directory.path(), &flags);
    assert_eq!(started.status.code(), Some(1));
    let said = stderr(&started);
    assert!(said.contains("zk") && said.contains("ZooKeeper"), "{said}");
    assert_eq!(std::fs::read_dir(directory.path().join("zk")).unwrap().count(), 1);
}

#[tokio::test]
async fn three_servers_from_three_zoo_cfgs_are_one_ensemble() {
    let directory = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for (id, port) in (1..).zip(testkit::ports::ports::<3>()) {
        lines += &format!("server.{id}=127.0.0.1:{port}:{}\n", port ^ 1);
    }
    let start = |id: u8| {
        let directory = directory.path().join(id.to_string());
        std::fs::create_dir_all(directory.join("data")).unwrap();
        std::fs::write(directory.join("data/myid"), format!("{id}\n")).unwrap();
        let config = format!(
            "dataDir=data\nclientPort=0\nclientPortAddress=127.0.0.1\ninitLimit=10\nsyncLimit=5\n\
             tickTime=2000\nadmin.enableServer=false\n{lines}"
        );
        std::fs::write(directory.join("zoo.cfg"), config).unwrap();
        Running::start(&directory, &["zoo.cfg"])
    };
    let mut servers: Vec<Running> = (1..=3).map(start).collect();
    for server in &servers {
        serves(server.address).await;
    }
    let mut writer = Client::connect(servers[0].address).await;
    writer.create("/from-1", b"x", 0).await.unwrap();
    for server in &servers {
        let mut client = Client::connect(server.address).await;
        client
            .call(&lockkeeper::internals::proto::Request::Sync { path: Some(text("/")) })
            .await
            .unwrap();
        assert!(client.exists("/from-1").await);
    }
    // One after the other, as an operator does it: two are enough, and one comes back.
    servers[2].signal(Signal::TERM);
    assert_eq!(servers[2].exit().0, Some(0));
    serves(servers[1].address).await;
    Client::connect(servers[1].address).await.create("/from-2", b"x", 0).await.unwrap();
    servers[2] = start(3);
    serves(servers[2].address).await;
    let mut client = Client::connect(servers[2].address).await;
    client
        .call(&lockkeeper::internals::proto::Request::Sync { path: Some(text("/")) })
        .await
        .unwrap();
    assert!(client.exists("/from-2").await);
    for server in &mut servers {
        server.signal(Signal::TERM);
        assert_eq!(server.exit().0, Some(0));
    }
}

/// Waits until a session can be had.
async fn serves(address: SocketAddr) {
    testkit::wait_until("it serves", async || {
        Client::open(address, &testkit::fresh(20_000)).await.is_some()
    })
    .await;
}

/// A debug build panics where it is told to, once a file is there.
#[cfg(debug_assertions)]
#[test]
fn a_server_with_a_thread_that_has_panicked_exits_within_a_second_and_says_so_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let soon = ["--set", "lockkeeper.checkpointMillis=20"];
    for task in ["driver", "lk-state", "client connection"] {
        let now = directory.path().join(task);
        let command = |directory: &Path| {
            let mut command = lockkeeper(directory, &[&["server"], &ANYWHERE[..], &soon].concat());
            command.env("LOCKKEEPER_PANIC_IN", format!("{task}:{}", now.display()));
            command.env_remove("RUST_BACKTRACE");
            command
        };
        let mut server = Running::of(command(directory.path()));
        let mut client = TcpStream::connect(server.address).unwrap();
        std::fs::write(&now, "").unwrap();
        // A session is a change.
        client.write_all(&testkit::connect_frame(&testkit::fresh(20_000))).unwrap();
        let (code, took) = server.exit();
        assert!(
            code == Some(1) && took < testkit::at_this_load(Duration::from_secs(1)),
            "{task}: {code:?}, {took:?}"
        );
        let mut said = String::new();
        server.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let [line] = said.lines().collect::<Vec<_>>()[..] else { panic!("{task}: {said}") };
        let begins = format!("lockkeeper: defect in {task} at src/supervision/lib.rs:");
        assert!(line.starts_with(&begins) && line.contains("start it again"), "{line}");
        if task != "client connection" {
            let started = command(directory.path()).output().unwrap();
            let said = stderr(&started);
            assert_eq!(started.status.code(), Some(1), "{said}");
            assert!(said.contains(&format!("defect in {task} at")), "{said}");
        }
    }
}

/// The driver waits for its audit log (here for the reader of a pipe): it cannot end, and the process does.
#[cfg(debug_assertions)]
#[tokio::test]
async fn a_server_whose_disk_hangs_exits_within_a_second_of_a_panic_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("audit");
    let (kind, mode) =
        (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    let _reader = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let now = directory.path().join("now");
    let flags = [&["server", "--audit-log", "audit"], &ANYWHERE[..]].concat();
    let mut command = lockkeeper(directory.path(), &flags);
    command.env("LOCKKEEPER_PANIC_IN", format!("HTTP connection:{}", now.display()));
    command.env_remove("RUST_BACKTRACE");
    let mut server = Running::of(command);
    let mut client = Client::connect(server.address).await;
    client.create("/a", b"", 0).await.unwrap();
    for number in 0..1000 {
        client.send(&testkit::set("/a", &[number as u8; 10])).await;
    }
    testkit::wait_until("the driver waits", async || {
        let ruok = testkit::ask(server.address, b"ruok");
        tokio::time::timeout(Duration::from_millis(200), ruok).await.is_err()
    })
    .await;
    std::fs::write(&now, "").unwrap();
    let admin = server.screen[3].strip_prefix("admin    http://").expect("the fourth line");
    let admin = admin.split('/').next().unwrap().parse().unwrap();
    let _ = testkit::ask(admin, b"GET /livez HTTP/1.0\r\n\r\n").await;
    let (code, took) = server.exit();
    assert!(
        code == Some(1) && took < testkit::at_this_load(Duration::from_secs(1)),
        "{code:?}, {took:?}"
    );
    let mut said = String::new();
    server.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("defect in HTTP connection at src/supervision/lib.rs:"), "{said}");
}

#[test]
fn the_version_is_the_packages() {
    let said = output(Path::new("."), &["--version"]);
    let expected = format!("lockkeeper {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8(said.stdout).unwrap(), expected);
}

/// A server in a zoo.cfg's ensemble, with its HTTP port.
fn member_of(directory: &Path, id: usize, ports: &[u16]) -> (Running, String) {
    let home = directory.join(id.to_string());
    std::fs::create_dir_all(&home).expect("a directory");
    let mut config = "tickTime=2000\ndataDir=data\nclientPort=0\nclientPortAddress=127.0.0.1\n\
                      admin.serverPort=0\n"
        .to_string();
    for (id, port) in (1..).zip(ports) {
        // The election port is never bound.
        config += &format!("server.{id}=127.0.0.1:{port}:{}\n", port ^ 1);
    }
    std::fs::write(home.join("zoo.cfg"), config).expect("written");
    let running = Running::start(&home, &["zoo.cfg", "--myid", &id.to_string()]);
    let admin = running.screen[3].strip_prefix("admin    ").expect("the fourth line").to_string();
    (running, admin)
}

/// The exit code of `lockkeeper member can-stop`, and what it says.
fn can_stop(arguments: &[&str]) -> (i32, String) {
    let done = output(Path::new("/"), &[&["member", "can-stop"], arguments].concat());
    let code = done.status.code().expect("it ends by itself");
    (code, String::from_utf8(done.stdout.clone()).expect("UTF-8") + &stderr(&done))
}

#[tokio::test]
async fn a_rolling_restart_asks_can_stop_and_nothing_else_and_keeps_the_session() {
    let directory = tempfile::tempdir().unwrap();
    let ports = testkit::ports::ports::<3>();
    let mut members: Vec<_> = (1..=3).map(|id| member_of(directory.path(), id, &ports)).collect();
    let (first, second) = (members[0].1.clone(), members[1].1.clone());
    let (code, said) = can_stop(&["--admin", &first, "--wait", "30s"]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = can_stop(&["9", "--admin", &first]);
    assert_eq!((code, said.contains("server 9 is no member")), (1, true), "{said}");
    serves(members[0].0.address).await;
    let mut client = Client::connect(members[0].0.address).await;
    client.create("/mine", b"", EPHEMERAL).await.unwrap();
    let session = client.again();
    for id in 1..=3 {
        let (code, said) = can_stop(&["--admin", &members[id - 1].1, "--wait", "30s"]);
        assert_eq!(code, 0, "server {id}: {said}");
        members[id - 1].0.signal(Signal::TERM);
        assert_eq!(members[id - 1].0.exit().0, Some(0));
        let other = if id == 1 { second.clone() } else { members[0].1.clone() };
        // The others are needed now, and one that asks for itself is told by the leader, whichever that is.
        let (code, said) = can_stop(&["--admin", &other]);
        assert_eq!(code, 75, "while server {id} is down: {said}");
        members[id - 1] = member_of(directory.path(), id, &ports);
    }
    serves(members[2].0.address).await;
    let mut again = Client::open(members[2].0.address, &session).await.expect("an answer");
    assert_eq!(again.session.session_id, client.session.session_id);
    assert!(again.exists("/mine").await, "the session has gone on");
}

#[test]
fn a_lone_server_says_that_its_stop_interrupts_the_service() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &ANYWHERE);
    let admin = server.screen[3].strip_prefix("admin    ").expect("the fourth line");
    let (code, said) = can_stop(&["--admin", admin]);
    assert_eq!((code, said.contains("this server is on its own")), (1, true), "{said}");
    let (code, said) = can_stop(&["--admin", &format!("{admin},{admin}")]);
    assert_eq!((code, said.contains("which of these servers")), (2, true), "{said}");
    let (code, said) = can_stop(&["--admin", "127.0.0.1:1", "--wait", "1s"]);
    assert_eq!((code, said.contains("no server answers")), (69, true), "{said}");
}

#[test]
fn systemd_is_told_when_a_server_is_ready_reads_files_again_and_stops() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let systemd = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    systemd.set_read_timeout(Some(testkit::PATIENCE)).expect("more than nothing");
    let hears = |line: &str| {
        let mut heard = Vec::new();
        loop {
            let mut bytes = [0; 4096];
            let length =
                systemd.recv(&mut bytes).unwrap_or_else(|_| panic!("{line} after {heard:?}"));
            let text = String::from_utf8(bytes[..length].to_vec()).expect("UTF-8");
            heard.extend(text.lines().map(str::to_owned));
            if heard.iter().any(|heard| heard.starts_with(line)) {
                return heard;
            }
        }
    };
    let mut command = lockkeeper(directory.path(), &[&["server"], &ANYWHERE[..]].concat());
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "2000000");
    let mut server = Running::of(command);
    let heard = hears("READY=1");
    assert!(heard.contains(&"EXTEND_TIMEOUT_USEC=60000000".to_string()), "{heard:?}");
    assert!(heard.iter().any(|line| line.starts_with("STATUS=standalone, term ")), "{heard:?}");
    hears("WATCHDOG=1");
    server.signal(Signal::HUP);
    hears("RELOADING=1");
    hears("READY=1");
    server.signal(Signal::TERM);
    hears("STOPPING=1");
    assert_eq!(server.exit().0, Some(0));
}

#[test]
fn a_container_writes_what_is_missing_and_becomes_its_command() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().display().to_string();
    let run = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command =
            lockkeeper(directory.path(), &[&["docker-entrypoint"], arguments].concat());
        for (name, place) in
            [("CONF", "conf"), ("DATA", "data"), ("DATA_LOG", "datalog"), ("LOG", "logs")]
        {
            command.env(format!("ZOO_{name}_DIR"), format!("{home}/{place}"));
        }
        std::fs::create_dir_all(format!("{home}/conf")).expect("a directory");
        command.envs(variables.iter().copied()).output().expect("the binary runs")
    };
    let three = "server.1=a:2888:3888;2181 server.2=b:2888:3888;2181 server.3=c:2888:3888;2181";
    let config = format!("{home}/conf/zoo.cfg");
    let variables = [("ZOO_MY_ID", "2"), ("ZOO_SERVERS", three)];
    let done = run(&variables, &["lockkeeper", "config", "check", &config]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(std::fs::read_to_string(format!("{home}/data/myid")).unwrap(), "2\n");
    let written = std::fs::read_to_string(&config).unwrap();
    let done = run(&[("ZOO_MY_ID", "3")], &["sh", "-c", "echo $ZOOCFGDIR; exit 7"]);
    assert_eq!(done.status.code(), Some(7));
    assert_eq!(String::from_utf8(done.stdout).unwrap(), format!("{home}/conf\n"));
    assert_eq!(std::fs::read_to_string(&config).unwrap(), written, "it is used as it is");
    let done = run(&[("ZOO_SERVER_ID", "1")], &["true"]);
    assert!(stderr(&done).contains("ALLOW_ANONYMOUS_LOGIN"), "{}", stderr(&done));
    assert_eq!(done.status.code(), Some(1));
}
