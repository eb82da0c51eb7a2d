//! Log lines about servers whose state is not that of a majority.
//!
//! *Owns* which of the other servers were named, and the words about this one. *Invariants*: another server is named
//! once, and again only after its state was that of the majority; the words say what to do. *Never* decides anything:
//! the replica ends a server that differs, or lets it go on.

use std::collections::BTreeSet;

use crate::replica::Status;
use crate::replica::txn_version::FIRST;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::server) struct DifferingLog {
    named: BTreeSet<u8>,
}

impl DifferingLog {
    /// A turn of the driver is over. `own`: this server's id. Gives the words for this server, if its own state
    /// differs.
    pub(in crate::server) fn look(&mut self, status: &Status, own: u8) -> Option<String> {
        for words in self.news(status, own) {
            tracing::warn!("{words}");
        }
        status.differing.contains(&own).then(|| {
            "the state of this server is not that of the majority, probably because its file decides otherwise \
             (extendedTypesEnabled, enforceQuota, skipACL, DigestAuthenticationProvider.enabled). Make the files of \
             all servers equal, stop this server, and start it with --rejoin"
                .to_owned()
        })
    }

    fn news(&mut self, status: &Status, own: u8) -> Vec<String> {
        self.named.retain(|server| status.differing.contains(server));
        let others = status.differing.iter().filter(|server| **server != own);
        let way_on = if status.ensemble_version > FIRST {
            "It ends by itself: start it with --rejoin"
        } else {
            "It goes on until the upgrade is finished: make the files of all servers equal, stop it, and start it \
             with --rejoin"
        };
        others
            .filter(|server| self.named.insert(**server))
            .map(|server| {
                format!("the state of server {server} is not that of the majority. {way_on}")
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_server_is_named_once_until_its_state_was_that_of_the_majority() {
        let mut log = DifferingLog::default();
        let of = |differing: &[u8]| Status {
            differing: differing.to_vec(),
            ensemble_version: FIRST,
            ..Status::default()
        };
        assert_eq!(log.news(&of(&[]), 1), Vec::<String>::new());
        let words = log.news(&of(&[1, 3]), 1);
        assert_eq!(words.len(), 1, "{words:?}");
        assert!(words[0].starts_with("the state of server 3 is not that"), "{words:?}");
        assert_eq!(log.news(&of(&[3]), 1), Vec::<String>::new());
        assert_eq!(log.news(&of(&[2, 3]), 1).len(), 1, "server 2");
        assert_eq!(log.news(&of(&[]), 1), Vec::<String>::new());
        assert_eq!(log.news(&of(&[3]), 1).len(), 1);
    }

    #[test]
    fn a_server_whose_own_state_differs_says_what_to_do() {
        let status = Status { differing: vec![1], ..Status::default() };
        assert!(DifferingLog::default().look(&status, 1).unwrap().contains("--rejoin"));
        assert_eq!(DifferingLog::default().look(&status, 2), None);
    }
}
