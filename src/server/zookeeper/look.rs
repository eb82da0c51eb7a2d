//! Looks at ZooKeeper's ports: whether clients reach it, and whether it is stopped.
//!
//! *Owns* what counts as closed. *Invariants*: a port is closed when its machine or a firewall says so or is silent,
//! and stopped only when its machine says that nothing listens there; what this server cannot find out is not closed;
//! a look has an end. *Never* sends anything but a question to an AdminServer.

use std::io;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::supervision::{Task, TaskSet};

/// How long one address may take to be connected to.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(1);
/// The same while requests of clients are held: a port behind a firewall that drops is silent.
pub(super) const CONNECT_HELD_MAX: Duration = Duration::from_millis(100);
/// Port of ZooKeeper's AdminServer unless it is configured.
const ADMIN_PORT: u16 = 8080;
/// How long it may take to answer.
const ADMIN_MAX: Duration = Duration::from_millis(1000);
/// Longest answer of it that is read, bytes.
const ADMIN_BYTES_MAX: u64 = 16 << 20;

pub(super) async fn connect(address: &str, longest: Duration) -> Result<TcpStream, String> {
    match timeout(longest, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it does not answer".to_owned()),
    }
}

/// Whether a machine says that nothing listens there.
pub(super) async fn is_refused(address: &str) -> bool {
    let connected = timeout(CONNECT_MAX, TcpStream::connect(address)).await;
    matches!(connected, Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Whether a connection failed because of the other side, or what stands in front of it: not because this server knows
/// no address or no way, or lacks something.
fn says_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::TimedOut
    )
}

/// Whether one of the addresses of this name takes connections.
///
/// # Errors
/// Why that cannot be seen: of none of them.
async fn is_open(port: &str, longest: Duration) -> Result<bool, String> {
    let addresses = match timeout(CONNECT_MAX, lookup_host(port)).await {
        Ok(found) => found.map_err(|error| error.to_string())?,
        Err(_) => return Err("its name is not resolved in time".to_owned()),
    };
    let (mut is_closed, mut unseen) = (false, "it has no address".to_owned());
    for address in addresses {
        match timeout(longest, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Ok(true),
            Ok(Err(error)) if !says_closed(&error) => unseen = error.to_string(),
            Ok(Err(_)) | Err(_) => is_closed = true,
        }
    }
    if is_closed { Ok(false) } else { Err(unseen) }
}

/// Whether no client reaches ZooKeeper: its ports for clients take no connection, and where an AdminServer answers, it
/// knows of no connection.
///
/// # Errors
/// Which is open, or who is connected.
pub(super) async fn look(
    ports: &[String],
    admins: &[String],
    longest: Duration,
) -> Result<(), String> {
    if ports.is_empty() {
        return Err("it is not known where clients reach ZooKeeper".to_owned());
    }
    let mut looks = TaskSet::default();
    for port in ports {
        let port = port.clone();
        looks.spawn(Task::ZooKeeper, async move {
            match is_open(&port, longest).await {
                Ok(false) => Ok(()),
                Ok(true) => Err(format!(
                    "ZooKeeper takes clients at {port}: close it to everybody (a firewall, or \
                     clientPortAddress=127.0.0.1)"
                )),
                Err(why) => {
                    Err(format!("whether ZooKeeper takes clients at {port} cannot be seen: {why}"))
                }
            }
        });
    }
    let mut asked: Vec<(String, bool)> = admins.iter().map(|admin| (admin.clone(), true)).collect();
    if admins.is_empty() {
        let hosts = ports.iter().filter_map(|port| Some(port.rsplit_once(':')?.0.to_owned()));
        let mut hosts: Vec<String> = hosts.collect();
        hosts.dedup();
        asked.extend(hosts.into_iter().map(|host| (format!("{host}:{ADMIN_PORT}"), false)));
    }
    for (admin, must_answer) in asked {
        looks.spawn(Task::ZooKeeper, async move {
            match timeout(ADMIN_MAX.min(longest * 5), connections(&admin)).await {
                Ok(Ok(0)) => Ok(()),
                Ok(Ok(count)) => {
                    Err(format!("{count} clients are connected to ZooKeeper, as {admin} says"))
                }
                _ if !must_answer => Ok(()),
                Ok(Err(error)) => Err(format!("the AdminServer at {admin}: {error}")),
                Err(_) => Err(format!("the AdminServer at {admin} does not answer")),
            }
        });
    }
    let mut open = Vec::new();
    while let Some(looked) = looks.join_next().await {
        match looked {
            Ok(Ok(())) => {}
            Ok(Err(why)) => open.push(why),
            // It has panicked, and the server ends.
            Err(_) => open.push("the look was broken off".to_owned()),
        }
    }
    open.sort();
    if open.is_empty() { Ok(()) } else { Err(open.join("; ")) }
}

/// How many clients an AdminServer of ZooKeeper says are connected.
async fn connections(admin: &str) -> Result<usize, String> {
    let words = |error: io::Error| error.to_string();
    let mut stream = TcpStream::connect(admin).await.map_err(words)?;
    let host = admin.rsplit_once(':').map_or(admin, |(host, _)| host);
    let question =
        format!("GET /commands/connections HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes()).await.map_err(words)?;
    let mut answer = Vec::new();
    stream.take(ADMIN_BYTES_MAX).read_to_end(&mut answer).await.map_err(words)?;
    count_connections(&answer).ok_or_else(|| "its answer is not that of ZooKeeper".to_owned())
}

/// The connections in an answer of `/commands/connections`.
fn count_connections(answer: &[u8]) -> Option<usize> {
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n")?;
    let json: Value = serde_json::from_slice(answer.get(body + 4..)?).ok()?;
    let list = |key: &str| json.get(key).and_then(Value::as_array).map(Vec::len);
    Some(list("connections")? + list("secure_connections").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn an_admin_server_says_how_many_clients_are_connected() {
        let answer = |body: &str| format!("HTTP/1.1 200 OK\r\nX: y\r\n\r\n{body}").into_bytes();
        let two = answer(
            r#"{"connections":[{"session_id":1}],"secure_connections":[{}],"command":"connections"}"#,
        );
        assert_eq!(count_connections(&two), Some(2));
        let none = answer(r#"{"connections":[],"secure_connections":[]}"#);
        assert_eq!(count_connections(&none), Some(0));
        assert_eq!(count_connections(&answer("<html>")), None);
        assert_eq!(count_connections(b"nothing"), None);
    }

    #[tokio::test]
    async fn a_port_that_takes_connections_is_open_and_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = listener.local_addr().unwrap().to_string();
        let refused = look(std::slice::from_ref(&open), &[], CONNECT_MAX).await.unwrap_err();
        assert!(refused.contains(&open), "{refused}");
        drop(listener);
        assert_eq!(look(&[open], &[], CONNECT_MAX).await, Ok(()));
        assert!(look(&[], &[], CONNECT_MAX).await.is_err(), "nothing is known");
    }

    #[tokio::test]
    async fn a_port_that_cannot_be_looked_at_is_not_closed() {
        // No machine has a name of this domain, and none is at this address (RFC 6761, RFC 5737's broadcast).
        for port in ["zookeeper.invalid:2181", "255.255.255.255:2181"] {
            let unknown = look(&[port.to_owned()], &[], CONNECT_MAX).await.unwrap_err();
            assert!(unknown.contains(port) && unknown.contains("cannot be seen"), "{unknown}");
        }
    }

    #[tokio::test]
    async fn an_admin_server_that_was_named_has_to_answer() {
        let gone =
            TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
        let gone = std::slice::from_ref(&gone);
        let refused = look(gone, gone, CONNECT_MAX).await.unwrap_err();
        assert!(refused.contains("AdminServer"), "{refused}");
    }
}
