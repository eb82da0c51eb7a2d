//! The ways of changing the number of servers that ZooKeeper's documentation teaches, by editing files and
//! restarting servers: the rows of the table in docs/ENSEMBLE.md. Each works or is refused by name; none
//! makes two ensembles out of one. (From one server to three: tests/ensemble/founding.rs.)

use std::collections::BTreeMap;
use std::fs;

use lockkeeper::internals::cli::config_file;
use lockkeeper::internals::replica::inspect::Mode;
use lockkeeper::{Server, StartError};
use tokio::net::TcpStream;

use super::{Client, World, client, data, reconfigurable, said, serves, stop, until, votes};

/// Servers that run, by their ids.
type Running = BTreeMap<u8, Server>;

/// What every server must still have in the end.
const KEPT: &str = "/kept";

impl World {
    /// Starts a server with the file of machine `machine`, and the number in its directory, or `id`.
    async fn start_as(&self, machine: u8, id: Option<u8>) -> Result<Server, StartError> {
        let id = id.map(|id| id.to_string());
        let draft = config_file::draft(&self.file(machine), None, id.as_deref());
        Server::builder().config(draft.resolve().expect("a good file")).start().await
    }

    /// Three servers, or five, with something to lose.
    async fn start_all(&self, ids: &[u8]) -> Running {
        let mut servers = Running::new();
        for id in ids {
            self.write_file(*id, &self.lines(ids));
            servers.insert(*id, self.start(*id).await);
        }
        for server in servers.values() {
            serves(server).await;
        }
        testkit::all_vote(servers.values()).await;
        client(self.address(1)).await.create(KEPT, b"old", 0).await.unwrap();
        servers
    }

    async fn restart(&self, servers: &mut Running, id: u8) {
        servers.remove(&id).unwrap().stop().await.unwrap();
        servers.insert(id, self.start(id).await);
        serves(&servers[&id]).await;
    }

    /// All of them serve, one of them leads, what one writes the others have, and nothing is lost.
    async fn are_one(&self, servers: &Running, path: &str) {
        for server in servers.values() {
            serves(server).await;
        }
        let leads = |server: &&Server| server.status().mode == Mode::Leader;
        until("one of them leads", async || {
            (servers.values().filter(leads).count() == 1).then_some(())
        })
        .await;
        // Where clients connect may be about to move.
        let connect = async |server: &Server| {
            let stream = TcpStream::connect(server.local_addr()).await.ok()?;
            Client::open_on(stream, &testkit::fresh(10_000)).await
        };
        let servers: Vec<&Server> = servers.values().collect();
        until("it takes writes", async || connect(servers[0]).await?.make_sure_of(path).await.ok())
            .await;
        for server in servers {
            for (path, kept) in [(path, b"".as_slice()), (KEPT, b"old")] {
                let data = async || connect(server).await?.data(path).await.ok();
                assert_eq!(until("the znode", data).await, kept);
            }
        }
    }

    async fn members(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let arguments = [arguments, &["--auth", "digest:super:secret"]].concat();
        let done = self.member(&arguments).await;
        (done.status.code(), said(&done))
    }
}

/// Why a server does not start.
async fn refused(start: impl Future<Output = Result<Server, StartError>>) -> String {
    start.await.expect_err("it is refused").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_become_one_neither_by_their_files_nor_by_the_command() {
    let world = World::new(&reconfigurable());
    let mut servers = world.start_all(&[1, 2, 3]).await;
    let (code, words) = world.members(&["remove", "2", "3"]).await;
    assert_ne!(code, Some(0), "{words}");
    assert!(
        words.contains("a single server would vote: an ensemble keeps at least two"),
        "{words}"
    );

    stop(servers.into_values()).await;
    for lines in [vec![], vec![world.line(1)]] {
        world.write_file(1, &lines);
        let words = refused(world.start_as(1, None)).await;
        let expected = "the data is that of an ensemble, in which these servers vote: 1, 2, 3. Start it \
                        with the server lines that name them";
        assert!(words.contains(expected), "{words}");
    }
    // As an ensemble of its own it is still one of three.
    world.write_file(1, &[world.line(1), "standaloneEnabled=false".to_owned()]);
    servers = Running::from([(1, world.start(1).await)]);
    assert!(!servers[&1].status().serving);
    for id in [2, 3] {
        servers.insert(id, world.start(id).await);
    }
    world.are_one(&servers, "/again").await;
    stop(servers.into_values()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_servers_are_five_members_until_the_command_has_removed_two() {
    let world = World::new(&reconfigurable());
    let mut servers = world.start_all(&[1, 2, 3, 4, 5]).await;
    for id in 1..=3 {
        world.write_file(id, &world.lines(&[1, 2, 3]));
        world.restart(&mut servers, id).await;
    }
    for id in [4, 5] {
        servers.remove(&id).unwrap().stop().await.unwrap();
    }
    world.are_one(&servers, "/three").await;
    let (_, listed) = world.members(&["list"]).await;
    assert!(listed.contains(&world.line(4)) && listed.contains(&world.line(5)), "{listed}");
    let (code, words) = world.members(&["remove", "4", "5"]).await;
    assert_eq!(code, Some(0), "{words}");
    servers.remove(&3).unwrap().stop().await.unwrap();
    world.are_one(&servers, "/two-of-three").await;
    // Those that went do not come back by their files, nor are they an ensemble of their own.
    let gone = [world.start(4).await, world.start(5).await];
    servers.insert(3, world.start(3).await);
    world.are_one(&servers, "/in-the-end").await;
    assert!(gone.iter().all(|server| !server.status().serving));
    stop(gone).await;
    stop(servers.into_values()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_go_on_as_two_and_count_the_third_until_the_command_has_removed_it() {
    let world = World::new(&reconfigurable());
    let mut servers = world.start_all(&[1, 2, 3]).await;
    for id in [1, 2] {
        world.write_file(id, &world.lines(&[1, 2]));
        world.restart(&mut servers, id).await;
    }
    servers.remove(&3).unwrap().stop().await.unwrap();
    world.are_one(&servers, "/two").await;
    let (_, listed) = world.members(&["list"]).await;
    assert!(listed.contains(&world.line(3)), "{listed}");
    let (code, words) = world.members(&["remove", "3"]).await;
    assert_eq!(code, Some(0), "{words}");
    let (_, listed) = world.members(&["list"]).await;
    assert!(!listed.contains(&world.line(3)), "{listed}");
    stop(servers.into_values()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_removed_starts_again_says_so_and_is_added_again() {
    let more = "admin.enableServer=true\nadmin.serverPort=0";
    let world = World::new(&format!("{}\n{more}", reconfigurable()));
    let mut servers = world.start_all(&[1, 2, 3]).await;
    let (code, words) = world.members(&["remove", "3"]).await;
    assert_eq!(code, Some(0), "{words}");
    let (_, listed) = world.members(&["list"]).await;
    let version = listed.lines().find_map(|line| line.strip_prefix("version=")).unwrap();
    world.file_is_written(3, world.address(1)).await;
    servers.remove(&3).unwrap().stop().await.unwrap();
    // Those that have not missed it yet would have it go on to learn.
    for id in [1, 2] {
        world.restart(&mut servers, id).await;
    }
    let removed = world.start(3).await;
    let ready = async |server: &Server| {
        testkit::say(server.admin_addr().unwrap(), b"GET /readyz HTTP/1.0\r\n\r\n").await
    };
    let words = format!(
        "this server was removed by reconfig at zxid 0x{version}: to add it again, `lockkeeper member add \
         'server.3=...'` on a member; until then it serves no client"
    );
    until("it is said", async || ready(&removed).await.contains(&words).then_some(())).await;
    assert!(ready(&removed).await.starts_with("HTTP/1.0 503"));
    assert!(!removed.status().serving);
    world.are_one(&servers, "/without").await;
    world.reconfig(&[world.line(3)]).await;
    servers.insert(3, removed);
    world.are_one(&servers, "/again").await;
    until("it is ready", async || {
        ready(&servers[&3]).await.starts_with("HTTP/1.0 200").then_some(())
    })
    .await;
    testkit::all_vote(servers.values()).await;
    stop(servers.into_values()).await;
}

/// The servers that it knows of are gone, and of those that are there it has never heard.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_away_while_all_others_were_replaced_comes_back() {
    let world = World::new(&reconfigurable());
    let mut servers = world.start_all(&[1, 2, 3]).await;
    servers.remove(&3).unwrap().stop().await.unwrap();
    for id in [4, 5] {
        world.write_file(id, &world.lines(&[1, 2, 3, 4, 5]));
        servers.insert(id, world.start(id).await);
    }
    let observers: Vec<String> =
        world.lines(&[4, 5]).iter().map(|line| line.replace(":participant", ":observer")).collect();
    world.reconfig(&observers).await;
    world.are_one(&servers, "/with-observers").await;
    world.reconfig(&world.lines(&[4, 5])).await;
    let (code, words) = world.members(&["remove", "1", "2"]).await;
    assert_eq!(code, Some(0), "{words}");
    for id in [1, 2] {
        servers.remove(&id).unwrap().stop().await.unwrap();
    }
    servers.insert(3, world.start(3).await);
    world.are_one(&servers, "/back").await;
    testkit::all_vote(servers.values()).await;
    stop(servers.into_values()).await;
}

/// The address that all files say, or that the command says and no other file.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_replaced_by_one_with_another_address_and_an_empty_disk() {
    let world = World::new(&reconfigurable());
    let mut servers = world.start_all(&[1, 2, 3]).await;
    let mut old = 3;
    for machine in [13, 14] {
        let line = world.line(3).replace(&world.host(3), &world.host(machine));
        let lines = [world.lines(&[1, 2]), vec![line.clone()]].concat();
        world.write_file(machine, &lines);
        if machine == 13 {
            for id in [1, 2] {
                world.write_file(id, &lines);
                world.restart(&mut servers, id).await;
            }
        }
        servers.remove(&old).unwrap().stop().await.unwrap();
        if machine == 14 {
            world.reconfig(std::slice::from_ref(&line)).await;
        }
        servers.insert(machine, world.start_as(machine, Some(3)).await.expect("it starts"));
        world.are_one(&servers, &format!("/replaced-by-{machine}")).await;
        world.reconfig(std::slice::from_ref(&line)).await;
        let (_, listed) = world.members(&["list"]).await;
        assert!(listed.contains(&line), "{listed}");
        // It takes over the vote of the one that it replaces.
        testkit::all_vote(servers.values()).await;
        servers.remove(&1).unwrap().stop().await.unwrap();
        world.are_one(&servers, &format!("/with-{machine}")).await;
        servers.insert(1, world.start(1).await);
        world.are_one(&servers, &format!("/all-with-{machine}")).await;
        old = machine;
    }
    stop(servers.into_values()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_whose_numbers_are_exchanged_do_not_start() {
    let world = World::new("");
    let mut servers = world.start_all(&[1, 2, 3]).await;
    let number = |machine: u8| world.data(machine).join("myid");
    stop(std::mem::take(&mut servers).into_values()).await;
    let lines = |machines: [u8; 3]| {
        (1..=3).zip(machines).map(|(id, machine)| {
            let line = world.line(id).replace(&world.host(id), &world.host(machine));
            line.split(';').next().unwrap().to_owned()
        })
    };
    // In the directories alone, and in the lines as well.
    for lines in [[1, 2, 3], [1, 3, 2]].map(lines) {
        let lines: Vec<String> = lines.collect();
        world.write_file(1, &lines);
        servers.insert(1, world.start(1).await);
        for (machine, id) in [(2, 3), (3, 2)] {
            world.write_file(machine, &lines);
            fs::write(number(machine), format!("{id}\n")).unwrap();
            let words = refused(world.start_as(machine, None)).await;
            assert!(words.contains(&format!("server {machine}")), "{words}");
        }
        assert!(!servers[&1].status().serving);
        servers.remove(&1).unwrap().stop().await.unwrap();
    }
    // Nothing has become of it but that they did not start.
    for id in 1..=3 {
        world.write_file(id, &world.lines(&[1, 2, 3]));
        fs::write(number(id), format!("{id}\n")).unwrap();
        servers.insert(id, world.start_as(id, None).await.expect("it starts"));
    }
    world.are_one(&servers, "/again").await;
    stop(servers.into_values()).await;
}

/// An ensemble of one is no server on its own: its members are what was decided.
#[tokio::test(flavor = "multi_thread")]
async fn an_ensemble_of_one_takes_others_in_when_the_command_has_named_them() {
    let world = World::new(&format!("standaloneEnabled=false\n{}", reconfigurable()));
    let mut servers = world.start_all(&[1]).await;
    for id in 1..=3 {
        world.write_file(id, &world.lines(&[1, 2, 3]));
    }
    let new = [world.start(2).await, world.start(3).await];
    world.restart(&mut servers, 1).await;
    world.are_one(&servers, "/one").await;
    assert!(new.iter().all(|server| !server.status().serving));
    // Two that the leader has never heard of are no part of a majority of three.
    let [second, third] = [world.line(2), world.line(3)];
    let (code, words) = world.members(&["add", &second, &third]).await;
    assert_eq!(code, Some(75), "{words}");
    assert!(words.contains("add the new ones as observers first"), "{words}");
    let observers = [second, third].map(|line| line.replace(":participant", ":observer"));
    world.reconfig(&observers).await;
    servers.extend([2, 3].into_iter().zip(new));
    world.are_one(&servers, "/observed").await;
    until("they are up to date", async || {
        let (code, _) = world.members(&["add", &world.line(2), &world.line(3)]).await;
        (code == Some(0)).then_some(())
    })
    .await;
    testkit::all_vote(servers.values()).await;
    servers.remove(&3).unwrap().stop().await.unwrap();
    world.are_one(&servers, "/two-of-three").await;
    stop(servers.into_values()).await;
}

/// ZooKeeper's way from three servers to five. No two of them are ever an ensemble of their own.
#[tokio::test(flavor = "multi_thread")]
async fn five_lines_in_all_files_are_five_members_when_the_command_has_said_so() {
    let world = World::new(&reconfigurable());
    let mut servers = world.start_three().await;
    client(world.address(1)).await.create("/kept", b"old", 0).await.unwrap();
    for id in 1..=5 {
        world.write_file(id, &world.lines(&[1, 2, 3, 4, 5]));
    }
    let new = vec![world.start(4).await, world.start(5).await];
    for id in 1..=3 {
        servers.remove(0).stop().await.unwrap();
        servers.push(world.start(id).await);
        serves(&servers[2]).await;
    }
    world.all_serve(&servers, [17181; 3]).await;
    for server in &new {
        let leads = server.status().mode == Mode::Leader;
        assert!(!leads && server.status().znode_count <= servers[0].status().znode_count);
    }
    world.reconfig(&[world.line(4), world.line(5)]).await;
    servers.extend(new);
    for id in [4, 5] {
        until("it votes", async || {
            let is_leader = servers[usize::from(id) - 1].status().mode == Mode::Leader;
            if is_leader { Some(()) } else { votes(&servers, id) }
        })
        .await;
        assert_eq!(data(world.address(id), "/kept").await, b"old");
    }
    stop(servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_given_another_number_does_not_start() {
    let world = World::new("");
    let mut servers = world.start_three().await;
    servers.pop().unwrap().stop().await.unwrap();
    let text = fs::read_to_string(world.file(3)).unwrap();
    let text = text.replace(&world.line(3), &world.line(3).replace("server.3=", "server.4="));
    fs::write(world.file(3), text).unwrap();
    let _ = fs::remove_file(world.data(3).join("myid"));
    let draft = config_file::draft(&world.file(3), None, Some("4"));
    let config = draft.resolve().expect("a good file");
    let error = Server::builder().config(config).start().await.expect_err("it is server 3's data");
    let error = error.to_string();
    assert!(error.contains("server 3") || error.contains("myid"), "{error}");
    world.all_serve(&servers, [17181, 17181, 0]).await;
    stop(servers).await;
}
