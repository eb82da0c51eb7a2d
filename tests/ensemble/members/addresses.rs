//! Servers whose addresses change: by reconfig, in their files, or in the one and not in the other.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockkeeper::Server;

use super::{World, client, data, leader, reconfigurable, stop, until};

#[tokio::test(flavor = "multi_thread")]
async fn servers_listen_where_a_reconfig_says() {
    let world = World::new(&reconfigurable());
    let mut servers = world.start_three().await;
    let leads = leader(&servers);
    let follows = (1..=3).find(|id| *id != leads).unwrap();
    let mut clients = [17181; 3];
    for id in [follows, leads] {
        let mut stays = client(world.address(id)).await;
        world.reconfig(&[world.line_at(id, 17288, 17182)]).await;
        clients[usize::from(id) - 1] = 17182;
        world.all_serve(&servers, clients).await;
        world.is_closed(id, 17181).await;
        assert!(stays.exists("/zookeeper").await, "its connection is kept");
    }
    // One moves its port for the other servers, then all of them do at once.
    let client_port = |id: u8| clients[usize::from(id) - 1];
    world.reconfig(&[world.line_at(follows, 17289, client_port(follows))]).await;
    world.is_closed(follows, 17288).await;
    world.all_serve(&servers, clients).await;
    let lines: Vec<String> = (1..=3).map(|id| world.line_at(id, 17290, client_port(id))).collect();
    world.reconfig(&lines).await;
    for id in 1..=3 {
        world.is_closed(id, if id == follows { 17289 } else { 17288 }).await;
    }
    world.all_serve(&servers, clients).await;
    // The same after a restart of each.
    for id in 1..=3 {
        servers.remove(0).stop().await.unwrap();
        servers.push(world.start(id).await);
    }
    world.all_serve(&servers, clients).await;
    stop(servers).await;
}

impl World {
    /// Waits until a server's file says what the members have decided.
    pub(super) async fn file_is_written(&self, id: u8, from: SocketAddr) {
        until("it is written", async || {
            let text = fs::read_to_string(self.file(id)).ok()?;
            let dynamic = text.lines().find_map(|line| line.strip_prefix("dynamicConfigFile="))?;
            let (_, listed) = dynamic.rsplit_once(".dynamic.")?;
            let config = client(from).await.data("/zookeeper/config").await.ok()?;
            String::from_utf8(config).unwrap().contains(&format!("version={listed}")).then_some(())
        })
        .await;
    }
}

/// Links that servers have made to each other so far.
async fn links_made(servers: &[Server]) -> u64 {
    let mut made = 0;
    for server in servers {
        let admin = server.admin_addr().expect("the HTTP port is on");
        let said = testkit::say(admin, b"GET /metrics HTTP/1.0\r\n\r\n").await;
        let count = said.lines().find_map(|line| line.strip_prefix("lockkeeper_links_made "));
        made += count.expect("the counter").parse::<u64>().unwrap();
    }
    made
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_are_spelt_otherwise_cut_no_link_and_no_write() {
    const IN_FLIGHT: usize = 100;
    let more = "admin.enableServer=true\nadmin.serverPort=0";
    let world = World::new(&format!("{}\n{more}", reconfigurable()));
    let servers = world.start_three().await;
    let leads = leader(&servers);
    let [writes, moves] = [1, 2].map(|step| (leads + step - 1) % 3 + 1);
    let mut writer = client(world.address(writes)).await;
    writer.create("/written", b"", 0).await.unwrap();
    let before = links_made(&servers).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let written = tokio::spawn({
        let is_over = Arc::clone(&is_over);
        async move {
            while !is_over.load(Ordering::Relaxed) {
                let mut requests = Vec::new();
                for _ in 0..IN_FLIGHT {
                    writer.put(&testkit::set("/written", b""), &mut requests);
                }
                writer.send_bytes(&requests).await;
                for _ in 0..IN_FLIGHT {
                    let reply = writer.receive().await.expect("every write is answered");
                    assert_eq!(reply.err, 0);
                }
            }
        }
    });
    let spelt = |id: u8, peer_port: u16| {
        let host = world.host(id);
        let number = u32::from(host.parse::<Ipv4Addr>().unwrap());
        world.line_at(id, peer_port, 17181).replace(&host, &format!("0x{number:08x}"))
    };
    world.reconfig(&[1, 2, 3].map(|id| spelt(id, 17288))).await;
    let unresolved = spelt(moves, 17288).replacen(&spelt(moves, 0)[9..19], "of.no.host.invalid", 1);
    world.reconfig(&[unresolved]).await;
    // All have taken this up when they have followed a server that does move.
    world.reconfig(&[spelt(moves, 17289)]).await;
    world.is_closed(moves, 17288).await;
    is_over.store(true, Ordering::Relaxed);
    written.await.expect("no write was lost");
    assert_eq!(links_made(&servers).await, before + 2, "to the one that has moved alone");
    world.all_serve(&servers, [17181; 3]).await;
    stop(servers).await;
}

/// As after a kill between the decision and the writing of the file, or where a file cannot be written.
#[tokio::test(flavor = "multi_thread")]
async fn servers_whose_files_are_old_meet_where_the_members_say() {
    let world = World::new(&reconfigurable());
    let files: Vec<String> =
        (1..=3).map(|id| fs::read_to_string(world.file(id)).unwrap()).collect();
    let mut servers = world.start_three().await;
    // Server 3 is away when all move.
    servers.pop().unwrap().stop().await.unwrap();
    let lines: Vec<String> = (1..=3).map(|id| world.line_at(id, 17290, 17183)).collect();
    world.reconfig(&lines).await;
    servers.push(world.start(3).await);
    world.all_serve(&servers, [17183; 3]).await;
    world.is_closed(1, 17288).await;
    stop(servers).await;

    for (id, text) in (1..=3).zip(files) {
        fs::write(world.file(id), text).unwrap();
    }
    let servers = world.start_three().await;
    world.all_serve(&servers, [17183; 3]).await;
    stop(servers).await;
}

/// The servers end where they begin to write what was decided, as by a kill: their disks have it, perhaps,
/// and their files do not.
#[cfg(debug_assertions)]
#[tokio::test(flavor = "multi_thread")]
async fn servers_killed_between_a_change_of_addresses_and_its_file_meet_when_they_start_again() {
    use lockkeeper::internals::supervision::Task;

    let world = World::new(&reconfigurable());
    let mut servers = world.start_three().await;
    let mut clients = [17181; 3];
    let leads = leader(&servers);
    let follows = (1..=3).find(|id| *id != leads).unwrap();
    // A follower, the leader, all.
    for (round, moved) in (0..).zip([vec![follows], vec![leads], vec![1, 2, 3]]) {
        let (peer_port, client_port) = (17290 + round, 17182 + round);
        let mut before = Vec::new();
        for id in 1..=3 {
            world.file_is_written(id, servers[0].local_addr()).await;
            before.push(fs::read_to_string(world.file(id)).unwrap());
        }
        for id in &moved {
            servers[usize::from(*id) - 1].panic_in(Task::MembersFile);
        }
        let lines: Vec<String> =
            moved.iter().map(|id| world.line_at(*id, peer_port, client_port)).collect();
        let mut arguments = vec!["add", "--auth", "digest:super:secret"];
        arguments.extend(lines.iter().map(String::as_str));
        // The answer may end with its server.
        world.member(&arguments).await;
        for id in &moved {
            let at = usize::from(*id) - 1;
            servers[at].wait().await.expect_err("it has ended there");
            assert_eq!(fs::read_to_string(world.file(*id)).unwrap(), before[at]);
            clients[at] = client_port;
        }
        for id in moved {
            let at = usize::from(id) - 1;
            servers.remove(at).stop().await.expect_err("it has ended there");
            // A thread of it may go on for a moment behind a panic, and hold the data.
            let again = until("it starts", async || world.builder(id).start().await.ok()).await;
            servers.insert(at, again);
        }
        world.all_serve(&servers, clients).await;
    }
    stop(servers).await;
}

/// Nothing that a server has says where the other one is, but that one finds it, and says where it listens.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_away_when_it_or_all_others_moved_is_found_by_what_it_or_they_say() {
    let world = World::new(&reconfigurable());
    let mut servers = world.start_three().await;
    let moves = [(vec![(3, 17289, 17182)], [17181, 17181, 17182]), {
        (vec![(1, 17290, 17183), (2, 17290, 17183)], [17183, 17183, 17182])
    }];
    for (moves, clients) in moves {
        world.file_is_written(3, servers[0].local_addr()).await;
        servers.pop().unwrap().stop().await.unwrap();
        let lines: Vec<String> =
            moves.iter().map(|(id, peer, client)| world.line_at(*id, *peer, *client)).collect();
        world.reconfig(&lines).await;
        for id in 1..=2 {
            world.file_is_written(id, servers[0].local_addr()).await;
        }
        // Those that stayed forget where the others were.
        stop(servers).await;
        servers = vec![world.start(1).await, world.start(2).await, world.start(3).await];
        world.all_serve(&servers, clients).await;
    }
    world.is_closed(3, 17288).await;
    stop(servers).await;
}

/// Three machines that have other names now: no server has an address that the members say.
#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_renamed_in_all_files_find_each_other() {
    let world = World::new("");
    let servers = world.start_three().await;
    client(world.address(1)).await.create("/kept", b"old", 0).await.unwrap();
    stop(servers).await;
    let old: Vec<_> = (1..=3)
        .map(|id| {
            let listener = std::net::TcpListener::bind(world.at(id, 17288)).unwrap();
            std::thread::spawn({
                let listener = listener.try_clone().unwrap();
                move || while listener.accept().is_ok_and(|(_, from)| from.port() != 0) {}
            });
            let text = fs::read_to_string(world.file(id)).unwrap();
            fs::write(world.file(id), text.replace(":17288:17388", ":17291:17391")).unwrap();
            listener
        })
        .collect();
    let servers = world.start_three().await;
    assert_eq!(data(world.address(3), "/kept").await, b"old");
    world.all_serve(&servers, [17181; 3]).await;
    stop(servers).await;
    drop(old);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_another_process_has_is_named_and_tried_again() {
    let more = "admin.enableServer=true\nadmin.serverPort=0";
    let world = World::new(&format!("{}\n{more}", reconfigurable()));
    let servers = world.start_three().await;
    let taken = [17182, 17289].map(|port| std::net::TcpListener::bind(world.at(3, port)).unwrap());
    world.reconfig(&[world.line_at(3, 17289, 17182)]).await;
    let ready = async || {
        let admin = servers[2].admin_addr().unwrap();
        testkit::say(admin, b"GET /readyz HTTP/1.0\r\n\r\n").await
    };
    until("it is said", async || {
        let said = ready().await;
        let (client, peer) = (world.at(3, 17182), world.at(3, 17289));
        let is_said = said.contains(&format!("clients cannot connect to server 3 at {client}"))
            && said.contains(&format!("cannot listen for the other servers at {peer}"));
        is_said.then_some(())
    })
    .await;
    // Meanwhile it goes on where it was.
    client(world.address(3)).await.create("/meanwhile", b"", 0).await.unwrap();
    drop(taken);
    world.all_serve(&servers, [17181, 17181, 17182]).await;
    world.is_closed(3, 17181).await;
    world.is_closed(3, 17288).await;
    let is_ready = async || ready().await.starts_with("HTTP/1.0 200").then_some(());
    until("it is ready", is_ready).await;
    stop(servers).await;
}
