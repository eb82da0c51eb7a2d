//! Looks at ZooKeeper's machines: whether clients reach it there, and whether it is stopped.
//!
//! *Owns* what counts as closed. *Invariants*: every machine is looked at that anything names; a port is closed when
//! its machine says that nothing listens there, and where it is silent, by an operator's word alone; all ports for
//! clients of a machine are known by its AdminServers or by an operator's word; a look has an end. *Never* sends
//! anything but questions to an AdminServer.

use std::io;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::admin::{ZooKeeperPort, ZooKeeperWords};
use crate::replica::ZooKeeperHost;
use crate::server::mailbox::Looked;
use crate::supervision::{Task, TaskSet};

/// How long one address may take to be connected to.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(1);
/// The same while requests of clients are held: a port behind a firewall that drops is silent.
const CONNECT_HELD_MAX: Duration = Duration::from_millis(100);
/// Port of ZooKeeper's AdminServer unless it is configured.
const ADMIN_PORT: u16 = 8080;
/// How long it may take to answer.
const ADMIN_MAX: Duration = Duration::from_millis(1000);
/// Longest answer of it that is read, bytes.
const ADMIN_BYTES_MAX: u64 = 16 << 20;
/// Keys of ZooKeeper's configuration that name a port for clients.
const PORT_KEYS: [&str; 2] = ["clientPort", "secureClientPort"];

pub(super) async fn connect(address: &str, longest: Duration) -> Result<TcpStream, String> {
    match timeout(longest, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it does not answer".to_owned()),
    }
}

/// Outcome of a look at a port.
#[derive(Debug, PartialEq, Eq)]
enum Port {
    Open,
    /// Its machine says that nothing listens there.
    Closed,
    /// Neither: in words.
    Unseen(String),
}

/// Looks at a port at all addresses of its machine's name.
async fn look_at(host: &str, port: u16, longest: Duration) -> Port {
    let addresses = match timeout(CONNECT_MAX, lookup_host((host, port))).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Port::Unseen(error.to_string()),
        Err(_) => return Port::Unseen("its name is not resolved in time".to_owned()),
    };
    let (mut is_closed, mut unseen) = (false, None);
    for address in addresses {
        match timeout(longest, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Port::Open,
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => is_closed = true,
            Ok(Err(error)) => unseen = Some(error.to_string()),
            Err(_) => unseen = Some("it does not answer".to_owned()),
        }
    }
    match unseen {
        Some(why) => Port::Unseen(why),
        None if is_closed => Port::Closed,
        None => Port::Unseen("it has no address".to_owned()),
    }
}

/// Looks at ports, each `host:port`: in their order, whether something listens there, or why that cannot be seen.
pub(super) async fn look_at_ports(ports: Vec<String>) -> Vec<ZooKeeperPort> {
    let mut looks = TaskSet::default();
    for (place, at) in ports.iter().cloned().enumerate() {
        looks.spawn(Task::ZooKeeper, async move {
            let listens = match parted(&at) {
                Some((host, port)) => match look_at(&host, port, CONNECT_MAX).await {
                    Port::Open => Ok(true),
                    Port::Closed => Ok(false),
                    Port::Unseen(why) => Err(why),
                },
                None => Err("it is no host:port".to_owned()),
            };
            (place, ZooKeeperPort { at, listens })
        });
    }
    let mut found = Vec::new();
    while let Some(looked) = looks.join_next().await {
        found.extend(looked);
    }
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, port)| port).collect()
}

/// Looks whether no client reaches ZooKeeper on any of its machines: what is to be looked at again while requests are
/// held.
///
/// # Errors
/// What is open, who is connected, and what is not known, with what settles that; for each machine.
pub(super) async fn look(
    hosts: &[ZooKeeperHost],
    words: &ZooKeeperWords,
) -> Result<Looked, String> {
    if hosts.is_empty() {
        return Err("it is not known which machines ZooKeeper runs on".to_owned());
    }
    check_words(hosts, words)?;
    let mut looks = TaskSet::default();
    for host in hosts {
        let (host, words) = (host.clone(), words.clone());
        looks.spawn(Task::ZooKeeper, async move { look_at_host(host, &words).await });
    }
    let (mut looked, mut obstacles) = (Looked::default(), Vec::new());
    looked.silent.clone_from(&words.silent);
    while let Some(found) = looks.join_next().await {
        match found {
            Ok(Ok((ports, admins))) => {
                looked.ports.extend(ports);
                looked.admins.extend(admins);
            }
            Ok(Err(why)) => obstacles.push(why),
            // It has panicked, and the server ends.
            Err(_) => obstacles.push("the look was broken off".to_owned()),
        }
    }
    obstacles.sort();
    if !obstacles.is_empty() {
        return Err(obstacles.join("; "));
    }
    look_again(&looked, CONNECT_MAX).await?;
    Ok(looked)
}

/// Checks that an operator speaks of machines that are looked at: a name that is spelled otherwise settles nothing.
fn check_words(hosts: &[ZooKeeperHost], words: &ZooKeeperWords) -> Result<(), String> {
    let known = |name: &str| hosts.iter().any(|known| known.host == name);
    let of_address = |one: &String| parted(one).map_or_else(|| one.clone(), |(host, _)| host);
    let named = words.admins.iter().chain(&words.ports).map(of_address);
    let Some(unknown) = named.chain(words.silent.iter().cloned()).find(|name| !known(name)) else {
        return Ok(());
    };
    let names: Vec<&str> = hosts.iter().map(|known| known.host.as_str()).collect();
    Err(format!(
        "{unknown}: no machine of ZooKeeper has this name in its configuration or in what was said to follow it, but \
         {}",
        names.join(", ")
    ))
}

/// Ports for clients of a machine, and its AdminServers that answer.
async fn look_at_host(
    host: ZooKeeperHost,
    words: &ZooKeeperWords,
) -> Result<(Vec<(String, u16)>, Vec<String>), String> {
    let ZooKeeperHost { host, mut ports, servers } = host;
    let of_host = |all: &[String]| -> Vec<String> {
        let is_it = |one: &&String| parted(one).is_some_and(|(name, _)| name == host);
        all.iter().filter(is_it).cloned().collect()
    };
    let (named, said) = (of_host(&words.admins), of_host(&words.ports));
    let must_answer = !named.is_empty();
    let asked = if must_answer { named } else { vec![joined(&host, ADMIN_PORT)] };
    let (mut admins, mut configured) = (Vec::new(), 0);
    for admin in asked {
        match ask(&admin, "initial_configuration", ADMIN_MAX).await {
            Ok(answer) => {
                let text = answer["initial_configuration"].as_str();
                ports.extend(text.into_iter().flat_map(client_ports));
                configured += usize::from(text.is_some());
                admins.push(admin);
            }
            Err(why) if must_answer => return Err(format!("the AdminServer at {admin}: {why}")),
            Err(_) => {}
        }
    }
    ports.extend(said.iter().filter_map(|one| Some(parted(one)?.1)));
    if said.is_empty() && configured < servers {
        let list = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        let list = if list.is_empty() { "2181".to_owned() } else { list };
        return Err(format!(
            "not all ports at which {host} takes clients are known, secure ones too, because no AdminServer there says \
             so (in an ensemble none does): say which they are, for example --ports {host}={list}"
        ));
    }
    Ok((ports.into_iter().map(|port| (host.clone(), port)).collect(), admins))
}

/// Looks at the same again, while requests of clients are held.
///
/// # Errors
/// What is open, who is connected, or what cannot be seen.
pub(super) async fn look_while_held(looked: &Looked) -> Result<(), String> {
    look_again(looked, CONNECT_HELD_MAX).await
}

async fn look_again(looked: &Looked, longest: Duration) -> Result<(), String> {
    let mut looks = TaskSet::default();
    for (host, port) in looked.ports.clone() {
        let is_silent = looked.silent.contains(&host);
        looks.spawn(Task::ZooKeeper, async move {
            let at = joined(&host, port);
            match look_at(&host, port, longest).await {
                Port::Closed => Ok(()),
                Port::Unseen(_) if is_silent => Ok(()),
                Port::Open => Err(format!(
                    "ZooKeeper takes clients at {at}: close it to everybody (a firewall that rejects, or \
                     clientPortAddress=127.0.0.1)"
                )),
                Port::Unseen(why) => Err(format!(
                    "whether ZooKeeper takes clients at {at} cannot be seen ({why}): if it is closed by a firewall \
                     that drops, say so with --silent {host}"
                )),
            }
        });
    }
    for admin in looked.admins.clone() {
        looks.spawn(Task::ZooKeeper, async move {
            match ask(&admin, "connections", ADMIN_MAX.min(longest * 5)).await.map(|it| count(&it))
            {
                Ok(Some(0)) => Ok(()),
                Ok(Some(count)) => {
                    Err(format!("{count} clients are connected to ZooKeeper, as {admin} says"))
                }
                Ok(None) => {
                    Err(format!("the AdminServer at {admin} does not say who is connected"))
                }
                Err(why) => Err(format!("the AdminServer at {admin}: {why}")),
            }
        });
    }
    let mut obstacles = Vec::new();
    while let Some(looked) = looks.join_next().await {
        match looked {
            Ok(Ok(())) => {}
            Ok(Err(why)) => obstacles.push(why),
            Err(_) => obstacles.push("the look was broken off".to_owned()),
        }
    }
    obstacles.sort();
    if obstacles.is_empty() { Ok(()) } else { Err(obstacles.join("; ")) }
}

/// Looks whether so many of these voters are stopped, each with the ports at which it listens as long as it runs.
///
/// # Errors
/// Which run, or may run.
pub(super) async fn look_for_stopped(
    (voters, needed): (&[Vec<String>], usize),
    words: &ZooKeeperWords,
) -> Result<(), String> {
    if voters.is_empty() {
        return Err("it is not known which servers ZooKeeper has".to_owned());
    }
    let (mut stopped, mut obstacles) = (0, Vec::new());
    for ports in voters {
        let mut obstacle = None;
        for at in ports {
            let Some((host, port)) = parted(at) else { continue };
            match look_at(&host, port, CONNECT_MAX).await {
                Port::Closed => {}
                Port::Unseen(_) if words.silent.contains(&host) => {}
                Port::Open => obstacle = Some(format!("a server of ZooKeeper runs at {at}")),
                Port::Unseen(why) => {
                    obstacle = Some(format!(
                        "whether a server of ZooKeeper runs at {at} cannot be seen ({why}): if that machine is gone, \
                         say so with --silent {host}"
                    ));
                }
            }
        }
        stopped += usize::from(obstacle.is_none());
        obstacles.extend(obstacle);
    }
    if stopped >= needed { Ok(()) } else { Err(obstacles.join("; ")) }
}

fn parted(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
}

fn joined(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Ports for clients in the text of a `zoo.cfg`.
fn client_ports(text: &str) -> Vec<u16> {
    let line = |line: &str| {
        let (key, value) = line.trim().split_once('=')?;
        let is_port = PORT_KEYS.contains(&key.trim());
        value.trim().parse().ok().filter(|_| is_port)
    };
    text.lines().filter_map(line).collect()
}

/// Answer of an AdminServer of ZooKeeper to a command.
async fn ask(admin: &str, command: &str, longest: Duration) -> Result<Value, String> {
    let words = |error: io::Error| error.to_string();
    let asking = async {
        let mut stream = TcpStream::connect(admin).await.map_err(words)?;
        let host = admin.rsplit_once(':').map_or(admin, |(host, _)| host);
        let question = format!(
            "GET /commands/{command} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(question.as_bytes()).await.map_err(words)?;
        let mut answer = Vec::new();
        stream.take(ADMIN_BYTES_MAX).read_to_end(&mut answer).await.map_err(words)?;
        json(&answer).ok_or_else(|| "its answer is not that of ZooKeeper".to_owned())
    };
    let asked = timeout(longest, asking).await;
    asked.unwrap_or_else(|_| Err("it does not answer".to_owned()))
}

fn json(answer: &[u8]) -> Option<Value> {
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n")?;
    serde_json::from_slice(answer.get(body + 4..)?).ok().filter(Value::is_object)
}

/// How many clients are connected, as an answer to `connections` says.
fn count(json: &Value) -> Option<usize> {
    let list = |key: &str| json.get(key).and_then(Value::as_array).map(Vec::len);
    Some(list("connections")? + list("secure_connections").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn host(ports: &[u16]) -> ZooKeeperHost {
        let ports = ports.iter().copied().collect();
        ZooKeeperHost { host: "127.0.0.1".to_owned(), ports, servers: 1 }
    }

    fn said(ports: &[u16]) -> ZooKeeperWords {
        let ports = ports.iter().map(|port| joined("127.0.0.1", *port)).collect();
        ZooKeeperWords { ports, ..ZooKeeperWords::default() }
    }

    async fn listener() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    /// An AdminServer whose server has these lines in its file, and so many clients. `None`: it shows no file.
    async fn admin_server(lines: Option<String>, clients: usize) -> String {
        let (listener, port) = listener().await;
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut question = [0; 512];
                let read = stream.read(&mut question).await.unwrap();
                let is_file =
                    String::from_utf8_lossy(&question[..read]).contains("initial_configuration");
                let body = match &lines {
                    Some(lines) if is_file => serde_json::json!({ "initial_configuration": lines }),
                    _ if is_file => serde_json::json!({ "error": null }),
                    _ => serde_json::json!({ "connections": vec![1; clients] }),
                };
                let answer = format!("HTTP/1.1 200 OK\r\nX: y\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        joined("127.0.0.1", port)
    }

    #[tokio::test]
    async fn a_port_that_takes_connections_is_open_and_is_named() {
        let (listener, port) = listener().await;
        let refused = look(&[host(&[port])], &said(&[port])).await.unwrap_err();
        assert!(refused.contains(&format!("takes clients at 127.0.0.1:{port}")), "{refused}");
        drop(listener);
        let looked = look(&[host(&[port])], &said(&[port])).await.unwrap();
        assert_eq!(look_while_held(&looked).await, Ok(()));
        assert!(look(&[], &said(&[])).await.is_err(), "no machine is known");
    }

    #[tokio::test]
    async fn a_machine_of_which_nothing_says_all_ports_is_named() {
        let (_, port) = listener().await;
        let refused = look(&[host(&[port])], &said(&[])).await.unwrap_err();
        assert!(refused.contains(&format!("--ports 127.0.0.1={port}")), "{refused}");
    }

    #[tokio::test]
    async fn an_admin_server_says_which_ports_there_are_and_who_is_connected() {
        let (_, closed) = listener().await;
        let (_open, secure) = listener().await;
        let words = |admin: String| ZooKeeperWords { admins: vec![admin], ..said(&[]) };
        let lines = |secure: u16| {
            Some(format!("tickTime=2000\n clientPort = {closed}\nsecureClientPort={secure}\n"))
        };
        let admin = admin_server(lines(secure), 0).await;
        let refused = look(&[host(&[])], &words(admin)).await.unwrap_err();
        assert!(refused.contains(&format!("takes clients at 127.0.0.1:{secure}")), "{refused}");
        let admin = admin_server(lines(closed), 2).await;
        let refused = look(&[host(&[])], &words(admin)).await.unwrap_err();
        assert!(refused.contains("2 clients are connected"), "{refused}");
        let admin = admin_server(lines(closed), 0).await;
        assert!(look(&[host(&[])], &words(admin)).await.is_ok());
        let two = ZooKeeperHost { servers: 2, ..host(&[]) };
        let admin = admin_server(lines(closed), 0).await;
        assert!(
            look(&[two], &words(admin)).await.unwrap_err().contains("--ports"),
            "of one server only"
        );
        let admin = admin_server(None, 0).await;
        let refused = look(&[host(&[closed])], &words(admin)).await.unwrap_err();
        assert!(refused.contains("--ports"), "as ZooKeeper 3.5: {refused}");
    }

    #[tokio::test]
    async fn a_word_about_another_machine_is_refused() {
        let (_, port) = listener().await;
        let other = || vec!["zk9:2181".to_owned()];
        for words in [
            ZooKeeperWords { admins: other(), ..said(&[port]) },
            ZooKeeperWords { ports: other(), ..said(&[]) },
            ZooKeeperWords { silent: vec!["zk9".to_owned()], ..said(&[port]) },
        ] {
            let refused = look(&[host(&[port])], &words).await.unwrap_err();
            assert!(
                refused.contains("zk9: no machine") && refused.contains("127.0.0.1"),
                "{refused}"
            );
        }
    }

    #[tokio::test]
    async fn an_admin_server_that_was_named_has_to_answer() {
        let (_, port) = listener().await;
        let words = ZooKeeperWords { admins: vec![joined("127.0.0.1", port)], ..said(&[port]) };
        let refused = look(&[host(&[port])], &words).await.unwrap_err();
        assert!(refused.contains("AdminServer"), "{refused}");
    }

    #[tokio::test]
    async fn a_port_that_cannot_be_looked_at_is_closed_by_a_word_alone() {
        // No machine has a name of this domain, and none is at this address (RFC 6761, RFC 5737's broadcast).
        for name in ["zookeeper.invalid", "255.255.255.255"] {
            let unknown = ZooKeeperHost { host: name.to_owned(), ..host(&[2181]) };
            let mut words = ZooKeeperWords { ports: vec![joined(name, 2181)], ..said(&[]) };
            let refused = look(std::slice::from_ref(&unknown), &words).await.unwrap_err();
            assert!(refused.contains(&format!("--silent {name}")), "{refused}");
            words.silent.push(name.to_owned());
            assert!(look(&[unknown], &words).await.is_ok());
        }
    }

    #[tokio::test]
    async fn a_majority_is_stopped_when_its_machines_say_so() {
        let (open, running) = listener().await;
        let (_, stopped) = listener().await;
        let at = |port: u16| vec![joined("127.0.0.1", port)];
        let gone = vec!["zookeeper.invalid:3888".to_owned()];
        let voters = [at(running), at(stopped), gone];
        let mut words = said(&[]);
        let refused = look_for_stopped((&voters, 2), &words).await.unwrap_err();
        assert!(
            refused.contains("runs at") && refused.contains("--silent zookeeper.invalid"),
            "{refused}"
        );
        words.silent.push("zookeeper.invalid".to_owned());
        assert_eq!(look_for_stopped((&voters, 2), &words).await, Ok(()));
        let by_groups = look_for_stopped((&voters, 3), &words).await;
        assert!(by_groups.unwrap_err().contains("runs at"), "one may be a majority by groups");
        drop(open);
        assert_eq!(look_for_stopped((&voters, 2), &said(&[])).await, Ok(()), "two of three");
    }
}
