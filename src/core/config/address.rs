//! Host and port as an operator writes them.
//!
//! Owns [`HostPort`] and the rules for a host's text. Invariant: a host is never empty, holds no
//! blanks and control characters and is at most [`HOST_BYTES_MAX`] long; IPv6 is kept without
//! brackets and printed with them. Never resolves a name: the code that binds or connects does.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// Longest host text accepted, in bytes (the longest DNS name).
pub(crate) const HOST_BYTES_MAX: usize = 253;

/// The rule for a host's text, for people.
pub(super) const HOST: &str = "a host name or address";

/// A host (name, IPv4 or IPv6) and a TCP port. Port 0 lets the system choose where one listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl HostPort {
    /// Checks the host's text; brackets around IPv6 are taken off.
    ///
    /// # Errors
    /// What is wrong with the host.
    pub fn new(host: &str, port: u16) -> Result<HostPort, String> {
        Ok(HostPort { host: host_of(host)?, port })
    }

    /// The address, if the host is one and not a name.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// True if only this machine can reach the host: a loopback address or `localhost`.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self.ip() {
            Some(ip) => ip.is_loopback(),
            None => self.host.eq_ignore_ascii_case("localhost"),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", bracketed(&self.host), self.port)
    }
}

/// `host:port` or `[ipv6]:port`.
impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<HostPort, String> {
        let (host, fields) = split_host(text)?;
        match fields.as_slice() {
            [port] => HostPort::new(host, port_of(port, "port", 0)?),
            _ => Err(format!("`{text}` is not host:port")),
        }
    }
}

/// A host as it is written in front of a port: IPv6 in brackets.
#[must_use]
pub fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_string() }
}

/// Checks a host's text and takes brackets off.
pub(super) fn host_of(text: &str) -> Result<String, String> {
    let host = match text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        // A zone (`fe80::1%eth0`) is for the resolver to judge.
        Some(inner) => match inner.split('%').next().unwrap_or(inner).parse::<Ipv6Addr>() {
            Ok(_) => inner,
            Err(_) => return Err(format!("`{text}` is not an IPv6 address")),
        },
        None => text,
    };
    if host.is_empty() {
        return Err("the host is empty".to_string());
    }
    if host.len() > HOST_BYTES_MAX {
        return Err(format!("the host is longer than {HOST_BYTES_MAX} bytes"));
    }
    let is_plain =
        |char: char| !char.is_whitespace() && !char.is_control() && !"[]/,;|".contains(char);
    if !host.chars().all(is_plain) {
        return Err(format!("`{host}` is not a host name or address"));
    }
    Ok(host.to_string())
}

/// Splits `host:a:b` or `[ipv6]:a:b` into the host (brackets kept) and the fields behind it.
pub(super) fn split_host(text: &str) -> Result<(&str, Vec<&str>), String> {
    if text.starts_with('[') {
        let close = text.find(']').ok_or_else(|| format!("`{text}` lacks the closing bracket"))?;
        let (host, rest) = text.split_at(close + 1);
        return match rest.strip_prefix(':') {
            Some(fields) => Ok((host, fields.split(':').collect())),
            None if rest.is_empty() => Ok((host, Vec::new())),
            None => Err(format!("`{text}` lacks a colon behind the bracket")),
        };
    }
    let mut fields = text.split(':');
    let host = fields.next().unwrap_or_default();
    Ok((host, fields.collect()))
}

/// A port's number; `least` is 1 where 0 would be meaningless.
pub(super) fn port_of(text: &str, what: &str, least: u16) -> Result<u16, String> {
    match text.trim().parse::<u16>() {
        Ok(port) if port >= least => Ok(port),
        Ok(_) | Err(_) => {
            Err(format!("the {what} `{text}` is not a number from {least} to {}", u16::MAX))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_print_as_they_are_read() {
        for text in ["127.0.0.1:2181", "zk-1.example.org:1", "[::1]:65535", "[fe80::1%eth0]:7"] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn ipv6_is_taken_with_and_without_brackets_where_no_port_follows() {
        assert_eq!(HostPort::new("::1", 5).unwrap(), HostPort::new("[::1]", 5).unwrap());
        assert_eq!(HostPort::new("[::1]", 5).unwrap().to_string(), "[::1]:5");
    }

    #[test]
    fn faulty_addresses_are_refused() {
        for text in
            ["", "host", "host:", ":1", "host:65536", "host:-1", "host:1:2", "[::1", "[::1]1"]
        {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
        for text in ["a b:1", "[localhost]:1", "a/b:1", "a\u{7}b:1", "[]:1"] {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_host_has_a_longest_length() {
        assert!(HostPort::new(&"a".repeat(HOST_BYTES_MAX), 1).is_ok());
        assert!(HostPort::new(&"a".repeat(HOST_BYTES_MAX + 1), 1).is_err());
        assert!(HostPort::new(&"a".repeat(1 << 20), 1).is_err());
    }

    #[test]
    fn loopback_is_recognised() {
        for (host, loopback) in [
            ("127.0.0.9", true),
            ("::1", true),
            ("LocalHost", true),
            ("0.0.0.0", false),
            ("a", false),
        ] {
            assert_eq!(HostPort::new(host, 1).unwrap().is_loopback(), loopback, "{host}");
        }
    }
}
