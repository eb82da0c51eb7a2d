//! The way of `lockkeeper lock` to servers that speak TLS: for each of them a port of the loopback interface in this
//! very process, behind which the bytes of the session go through TLS.
//!
//! *Owns* these ports. The client of the recipes speaks TLS by another library than this program does, and takes no
//! configuration of it. *Invariants*: a connection is served only if its other end is a socket of this process, so
//! that no other program gets to a server by the certificate that is shown here; a server is spoken to only if what
//! was given vouches for it. *Never* speaks plain text to a server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::config::HostPort;

/// Longest time until a server has agreed on TLS.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long to wait when the system refuses a connection (usually: no file left).
const ACCEPT_RETRY: Duration = Duration::from_millis(200);

/// Opens a port for each server, for as long as the runtime lives. The servers, as the client is to be told.
///
/// # Errors
/// The system gives no port.
pub(super) async fn open(servers: &[HostPort], tls: &Arc<ClientConfig>) -> io::Result<String> {
    let mut ports = Vec::new();
    for server in servers {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        ports.push(listener.local_addr()?.to_string());
        tokio::spawn(serve(listener, server.clone(), Arc::clone(tls)));
    }
    Ok(ports.join(","))
}

async fn serve(listener: TcpListener, server: HostPort, tls: Arc<ClientConfig>) {
    let server = Arc::new(server);
    loop {
        let (stream, remote) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::error!(%server, "no connection to the way through TLS: {error}");
                sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let own = listener.local_addr().and_then(|here| is_of_this_process(remote, here));
        if !own.unwrap_or(false) {
            tracing::warn!(%remote, "a connection of another program to the way to the servers was closed");
            continue;
        }
        let (server, tls) = (Arc::clone(&server), Arc::clone(&tls));
        tokio::spawn(async move {
            if let Err(error) = relay(stream, &server, tls).await {
                tracing::error!(%server, "no way through TLS: {error}");
            }
        });
    }
}

async fn relay(mut stream: TcpStream, server: &HostPort, tls: Arc<ClientConfig>) -> io::Result<()> {
    let name = ServerName::try_from(server.host.clone()).map_err(io::Error::other)?;
    let connect = async {
        let there = TcpStream::connect((server.host.as_str(), server.port)).await?;
        there.set_nodelay(true)?;
        TlsConnector::from(tls).connect(name, there).await
    };
    let mut there = timeout(CONNECT_MAX, connect).await??;
    stream.set_nodelay(true)?;
    // How it ends, the client sees by itself.
    let _ = copy_bidirectional(&mut stream, &mut there).await;
    Ok(())
}

/// Whether the socket at `remote` that is connected to `here` is one of this process, as the kernel says.
fn is_of_this_process(remote: SocketAddr, here: SocketAddr) -> io::Result<bool> {
    let table = std::fs::read_to_string("/proc/net/tcp")?;
    let Some(inode) = inode_of(&table, remote, here) else { return Ok(false) };
    let socket = format!("socket:[{inode}]");
    for file in std::fs::read_dir("/proc/self/fd")? {
        // One may have been closed meanwhile.
        if std::fs::read_link(file?.path()).is_ok_and(|target| target.as_os_str() == &*socket) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The inode of the socket with these two ends in the kernel's table: `sl local remote state ... inode` by columns.
fn inode_of(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<&str> {
    let written = |address: SocketAddr| match address {
        SocketAddr::V4(address) => {
            // In the byte order of the machine.
            let ip = u32::from_ne_bytes(address.ip().octets());
            Some(format!("{ip:08X}:{:04X}", address.port()))
        }
        SocketAddr::V6(_) => None,
    };
    let (local, remote) = (written(local)?, written(remote)?);
    table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_it = columns.get(1) == Some(&&*local) && columns.get(2) == Some(&&*remote);
        if is_it { columns.get(9).copied() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_socket_is_found_in_the_kernels_table_by_both_of_its_ends() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                     0: 0100007F:1F90 00000000:0000 0A 0:0 00:0 0 0 0 111 1 0 100 0 0\n\
                     1: 0100007F:C350 0100007F:1F90 01 0:0 00:0 0 0 0 222 1 0 20 4 30\n";
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if cfg!(target_endian = "little") {
            assert_eq!(inode_of(table, at(50_000), at(8080)), Some("222"));
        }
        assert_eq!(inode_of(table, at(50_001), at(8080)), None);
        assert_eq!(inode_of(table, at(8080), at(50_000)), None);
    }

    #[tokio::test]
    async fn a_connection_of_this_process_is_told_from_that_of_another_one() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let here = listener.local_addr().unwrap();
        let (_own, accepted) = tokio::join!(TcpStream::connect(here), listener.accept());
        assert!(is_of_this_process(accepted.unwrap().1, here).unwrap());
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{}; read -r _ <&3", here.port());
        let mut other = Command::new("bash");
        let mut other = other.args(["-c", &script]).stdin(Stdio::null()).spawn().unwrap();
        let (stream, remote) = listener.accept().await.unwrap();
        assert!(!is_of_this_process(remote, here).unwrap());
        drop(stream);
        other.wait().unwrap();
    }
}
