//! Free ports of this machine.
//!
//! *Owns* the choice. Ports lie below those that the kernel gives to connections that ask for none, so
//! that a server that is killed finds its own free when it starts again.

use std::net::{Ipv4Addr, TcpListener};

use crate::random::{PORTS, Random};

/// Where to look. Kernels give out ports from 32768 on.
const FIRST: u64 = 12_000;
const END: u64 = 32_000;
/// Ports that are tried before it is given up.
const TRIES_MAX: usize = 10_000;

/// So many ports that nobody listens on.
///
/// # Errors
/// There are none.
pub fn free(count: usize) -> Result<Vec<u16>, String> {
    let mut random = Random::new(u64::from(std::process::id()), PORTS);
    let mut held: Vec<TcpListener> = Vec::new();
    let mut ports = Vec::new();
    for _ in 0..TRIES_MAX {
        if ports.len() == count {
            return Ok(ports);
        }
        let port = u16::try_from(FIRST + random.below(END - FIRST)).expect("below 65536");
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            held.push(listener);
            ports.push(port);
        }
    }
    Err(format!("no {count} free ports between {FIRST} and {END}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let mut ports = free(9).unwrap();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 9);
    }
}
