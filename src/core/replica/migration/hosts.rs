//! The machines of the other ensemble, and where clients may reach ZooKeeper there.
//!
//! *Owns* what is known of them by texts alone. *Invariants*: every machine that anything names is there, once by each
//! name; a port is one that a text names for it. *Never* takes a machine without a known port for a closed one: who
//! looks at them has to find out.

use std::collections::{BTreeMap, BTreeSet};

/// A machine of ZooKeeper's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZooKeeperHost {
    /// Its name or address.
    pub host: String,
    /// Ports at which clients may reach ZooKeeper there.
    pub ports: BTreeSet<u16>,
    /// How many servers of ZooKeeper run there, at least.
    pub servers: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::replica) struct ZooKeeperHosts(BTreeMap<String, (BTreeSet<u16>, usize)>);

impl ZooKeeperHosts {
    /// A server runs there, with these ports for clients.
    pub(in crate::replica) fn runs(&mut self, host: &str, ports: &[u16]) {
        let (known, servers) = self.0.entry(host.to_owned()).or_default();
        known.extend(ports);
        *servers += 1;
    }

    /// Servers listen for each other at these addresses, and for clients at those (`host:port`). Where no other port
    /// is known for a machine, its ports for clients are likely to be the same.
    pub(in crate::replica) fn named(&mut self, quorum: &[String], clients: &[String]) {
        let parted = |all: &[String]| -> Vec<(String, Option<u16>)> {
            let part = |one: &String| {
                let (host, port) = one.rsplit_once(':').unwrap_or((one, ""));
                (host.trim_matches(['[', ']']).to_owned(), port.parse().ok())
            };
            all.iter().map(part).collect()
        };
        for (host, _) in parted(quorum) {
            self.0.entry(host).or_default();
        }
        let clients = parted(clients);
        for (host, port) in &clients {
            self.0.entry(host.clone()).or_default().0.extend(*port);
        }
        for (ports, servers) in self.0.values_mut() {
            *servers = (*servers).max(1);
            if ports.is_empty() {
                ports.extend(clients.iter().filter_map(|(_, port)| *port));
            }
        }
    }

    /// All of them.
    pub(in crate::replica) fn all(self) -> Vec<ZooKeeperHost> {
        let host = |(host, (ports, servers))| ZooKeeperHost { host, ports, servers };
        self.0.into_iter().map(host).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_that_anything_names_is_looked_at() {
        let mut hosts = ZooKeeperHosts::default();
        hosts.runs("zk1", &[2182]);
        hosts.runs("zk1", &[2183]);
        hosts.runs("zk2", &[]);
        let addresses = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        hosts.named(&addresses(&["zk1:2888", "[::1]:2888"]), &addresses(&["zk3:2181"]));
        let host = |host: &str, ports: &[u16], servers| ZooKeeperHost {
            host: host.to_owned(),
            ports: ports.iter().copied().collect(),
            servers,
        };
        assert_eq!(
            hosts.all(),
            [
                host("::1", &[2181], 1),
                host("zk1", &[2182, 2183], 2),
                host("zk2", &[2181], 1),
                host("zk3", &[2181], 1),
            ]
        );
    }
}
