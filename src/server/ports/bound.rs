//! Ports that are bound: before the data of a server is touched, and listened at only when it serves.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

/// A bound client port that does not listen yet.
#[derive(Debug)]
pub(in crate::server) struct Port {
    socket: Socket,
    /// Where it is bound.
    pub address: SocketAddr,
}

impl Port {
    /// Binds the first of `addresses` that can be bound; no client can connect yet. An unspecified address
    /// stands for all of the machine, those of IPv6 as well where the system has it, as with ZooKeeper.
    ///
    /// # Errors
    /// What the system says to the last of them.
    pub(in crate::server) fn bind(
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            match Self::bind_one(address) {
                Ok(port) => return Ok(port),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn bind_one(address: SocketAddr) -> io::Result<Self> {
        let all = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port());
        let bound = match address.ip().is_unspecified() {
            true => socket_at(all),
            false => socket_at(address),
        };
        let is_missing = |error: &io::Error| {
            let errno = Errno::from_io_error(error);
            address.is_ipv4()
                && (errno == Some(Errno::AFNOSUPPORT) || errno == Some(Errno::ADDRNOTAVAIL))
        };
        let socket = match bound {
            // The system has no IPv6.
            Err(error) if is_missing(&error) => socket_at(address)?,
            bound => bound?,
        };
        let bound = socket.local_addr()?.as_socket();
        let port = bound.ok_or(io::ErrorKind::AddrNotAvailable)?.port();
        Ok(Self { socket, address: SocketAddr::new(address.ip(), port) })
    }

    /// Begins to listen.
    ///
    /// # Errors
    /// What the system says: another process may have taken the port since.
    pub(in crate::server) fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        self.socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        self.socket.set_nonblocking(true)?;
        TcpListener::from_std(self.socket.into())
    }
}

/// A socket that is bound there: at an unspecified IPv6 address, at those of IPv4 as well.
fn socket_at(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of an earlier server that linger in TIME_WAIT do not keep the port.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Waits for a connection. The address of a client of IPv4 is one of IPv4, whatever the socket is bound to:
/// access lists, limits and logs know it by that.
///
/// # Errors
/// What the system says.
pub(in crate::server) async fn accept_from(
    listener: &TcpListener,
) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, remote) = listener.accept().await?;
    Ok((stream, SocketAddr::new(remote.ip().to_canonical(), remote.port())))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    /// Connects to the port of `bound` at `ip`; what the server sees as the client's address.
    async fn seen_from(listener: &TcpListener, bound: SocketAddr, ip: IpAddr) -> IpAddr {
        let client = TcpStream::connect(SocketAddr::new(ip, bound.port()));
        let (client, accepted) = tokio::join!(client, accept_from(listener));
        client.expect("it is listened at");
        accepted.expect("it has connected").1.ip()
    }

    #[tokio::test]
    async fn all_addresses_are_those_of_ipv6_as_well_and_an_ipv4_client_stays_one() {
        let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        let has_ipv6 = socket_at(SocketAddr::new(loopback[1], 0)).is_ok();
        for any in [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
            if any.is_ipv6() && !has_ipv6 {
                continue;
            }
            let port = Port::bind([SocketAddr::new(any, 0)]).expect("a free port");
            let bound = port.address;
            assert_eq!(bound.ip(), any, "it is shown as it was asked for");
            let listener = port.listen(8).unwrap();
            for ip in &loopback[..if has_ipv6 { 2 } else { 1 }] {
                assert_eq!(seen_from(&listener, bound, *ip).await, *ip);
            }
        }
    }

    #[tokio::test]
    async fn one_address_is_that_alone() {
        let port = Port::bind([SocketAddr::from(([127, 0, 0, 1], 0))]).expect("a free port");
        let bound = port.address;
        let listener = port.listen(8).unwrap();
        let local = IpAddr::from(Ipv4Addr::LOCALHOST);
        assert_eq!(seen_from(&listener, bound, local).await, local);
        let other = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), bound.port());
        assert!(TcpStream::connect(other).await.is_err());
    }
}
