//! Connections to the client port that speak TLS, HTTP or the PROXY protocol of load balancers.
//!
//! *Owns* how they are told by their first four bytes, how many came, and when the log said so last.
//! *Invariant*: a protocol is said in the log when it first comes, and then at most once a minute. *Never*
//! answers: the connection is closed, as every one whose first frame asks for no session.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::admin::OtherProtocols;

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

/// How many came. See the module.
#[derive(Debug, Default)]
pub(crate) struct Others(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    counts: OtherProtocols,
    said: [Option<Instant>; 3],
}

impl Table {
    fn count_of(&mut self, protocol: Protocol) -> &mut u64 {
        match protocol {
            Protocol::Tls => &mut self.counts.tls,
            Protocol::Http => &mut self.counts.http,
            Protocol::Proxy => &mut self.counts.proxy,
        }
    }

    /// Counts one at `now`: how many there were since the start, if that is to be said.
    fn saw(&mut self, protocol: Protocol, now: Instant) -> Option<u64> {
        let count = self.count_of(protocol);
        *count += 1;
        let count = *count;
        let said = &mut self.said[protocol as usize];
        let is_due = said.is_none_or(|said| now.duration_since(said) >= SAID_INTERVAL);
        is_due.then(|| {
            *said = Some(now);
            count
        })
    }
}

impl Others {
    /// A connection from there began like that.
    pub(crate) fn saw(&self, protocol: Protocol, from: IpAddr) {
        let due =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).saw(protocol, Instant::now());
        if let Some(count) = due {
            tracing::warn!(%from, count, "{}", protocol.words());
        }
    }

    /// How many came since the start, or the last reset.
    pub(crate) fn counts(&self) -> OtherProtocols {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).counts
    }

    /// Begins to count anew.
    pub(crate) fn reset(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).counts = OtherProtocols::default();
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
        let mut table = Table::default();
        let begun = Instant::now();
        assert_eq!(table.saw(Protocol::Tls, begun), Some(1));
        for second in 1..60 {
            assert_eq!(table.saw(Protocol::Tls, begun + Duration::from_secs(second)), None);
        }
        assert_eq!(table.saw(Protocol::Http, begun + Duration::from_secs(59)), Some(1));
        assert_eq!(table.saw(Protocol::Tls, begun + SAID_INTERVAL), Some(61));
    }
}
