//! Connections to the client port that speak TLS, HTTP or the PROXY protocol of load balancers.
//!
//! *Owns* how they are told by their first four bytes, and when the log said so last.
//! *Invariant*: a protocol is said in the log when it first comes, and then at most once a minute. *Never*
//! answers: the connection is closed, as every one whose first frame asks for no session.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::striped::Striped;
use crate::admin::Counts;
use crate::server::clock::Periodic;

/// Time between two lines about one protocol.
const SAID_INTERVAL: Duration = Duration::from_secs(60);

/// A protocol that is not ZooKeeper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// A ClientHello.
    Tls,
    /// A request, or the preface of HTTP/2.
    Http,
    /// Version 1 or 2.
    Proxy,
}

impl Protocol {
    /// Which one begins like that; `None`: none that is known.
    #[must_use]
    pub(crate) fn of(first_four: [u8; 4]) -> Option<Self> {
        match &first_four {
            // A handshake record of TLS 1.0 to 1.3, or of SSL 3.
            [0x16, 3, 0..=4, _] => Some(Self::Tls),
            b"GET " | b"HEAD" | b"POST" | b"PUT " | b"DELE" | b"OPTI" | b"PATC" | b"CONN"
            | b"PRI " => Some(Self::Http),
            b"PROX" | b"\r\n\r\n" => Some(Self::Proxy),
            _ => None,
        }
    }

    /// What an operator is to know.
    fn words(self) -> &'static str {
        match self {
            Self::Tls => {
                "somebody speaks TLS to the client port, which is plain: the connection was closed. \
                 The client is configured for TLS (zookeeper.client.secure=true or the like)"
            }
            Self::Http => {
                "somebody speaks HTTP to the client port: the connection was closed. /livez, /readyz \
                 and /metrics are at the admin port (admin.serverPort)"
            }
            Self::Proxy => {
                "somebody speaks the PROXY protocol to the client port: the connection was closed. \
                 Switch it off at the load balancer (send-proxy, proxy-protocol)"
            }
        }
    }
}

/// When each protocol was said last. See the module.
#[derive(Debug, Default)]
pub(crate) struct Others(Mutex<[Periodic; 3]>);

impl Others {
    /// Counts a connection from there that began like that.
    pub(crate) fn saw(&self, protocol: Protocol, from: IpAddr, counts: &Counts<Striped>) {
        if let Some(count) = self.saw_at(protocol, counts, Instant::now()) {
            tracing::warn!(%from, count, "{}", protocol.words());
        }
    }

    /// Counts one at `now`: how many there were since the start, if that is to be said.
    fn saw_at(&self, protocol: Protocol, counts: &Counts<Striped>, now: Instant) -> Option<u64> {
        let count = match protocol {
            Protocol::Tls => &counts.other_protocols_tls,
            Protocol::Http => &counts.other_protocols_http,
            Protocol::Proxy => &counts.other_protocols_proxy,
        };
        let mut all_said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let said = &mut all_said[protocol as usize];
        count.add(1);
        said.is_due(SAID_INTERVAL, now).then(|| count.total())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_told_by_their_first_bytes_and_a_handshake_of_zookeeper_is_none() {
        for (first_four, protocol) in [
            ([0x16, 3, 1, 2], Some(Protocol::Tls)),
            (*b"GET ", Some(Protocol::Http)),
            (*b"PRI ", Some(Protocol::Http)),
            (*b"PROX", Some(Protocol::Proxy)),
            (*b"\r\n\r\n", Some(Protocol::Proxy)),
            ([0, 0, 0, 45], None),
            (*b"ruok", None),
            ([0xff; 4], None),
        ] {
            assert_eq!(Protocol::of(first_four), protocol, "{first_four:?}");
        }
    }

    #[test]
    fn each_protocol_is_said_at_once_and_then_once_a_minute_with_its_number() {
        let (others, counts, begun) = (Others::default(), Counts::default(), Instant::now());
        let saw = |protocol, second| {
            others.saw_at(protocol, &counts, begun + Duration::from_secs(second))
        };
        assert_eq!(saw(Protocol::Tls, 0), Some(1));
        for second in 1..60 {
            assert_eq!(saw(Protocol::Tls, second), None);
        }
        assert_eq!(saw(Protocol::Http, 59), Some(1));
        assert_eq!(saw(Protocol::Tls, SAID_INTERVAL.as_secs()), Some(61));
    }
}
