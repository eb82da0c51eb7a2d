//! Why a server gives no session, and what an operator can do about it.
//!
//! *Owns* the words for errors of the resolver, of sockets and of TLS, and one more question to a server that has
//! closed a connection without a word: its four-letter word `srvr` tells a server without a leader from a port that
//! speaks something else. *Invariants*: every reason says what to do; nothing waits for ever.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use super::connection::{NOT_ZOOKEEPER, is_close};
use super::line::{Line, NO_ADDRESS};
use crate::config::HostPort;

/// How long a server may take to say what it is.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Bytes that tell what it is.
const ANSWER_BYTES_MAX: usize = 256;

/// What was to listen there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Port {
    Client,
    Http,
}

/// Meaning of this error of a connection, and advice. `by_tls`: TLS was spoken.
pub(in crate::cli) fn of_error(error: &io::Error, port: Port, by_tls: bool) -> String {
    use io::ErrorKind::{
        ConnectionRefused, HostUnreachable, InvalidData, NetworkUnreachable, TimedOut, WouldBlock,
    };
    let text = error.to_string();
    let advice = match error.kind() {
        ConnectionRefused => match port {
            Port::Client => {
                "nothing listens there: is the server started, and is this its clientPort?"
            }
            Port::Http => {
                "nothing listens there: is the server started, and is this its admin.serverPort?"
            }
        },
        // Of a connection that does not come about, and of an answer that does not come.
        TimedOut | WouldBlock => {
            return "it does not answer in time: is the machine up, does a firewall drop the connection, or does the \
                    port speak something else?"
                .to_owned();
        }
        HostUnreachable | NetworkUnreachable => {
            "there is no way to it: check the address and the network"
        }
        _ if text.contains("failed to lookup address") => {
            "the name does not resolve: check its spelling and the resolver, or give an address"
        }
        _ if text == NO_ADDRESS => "check the name, or give an address",
        InvalidData if by_tls && text.contains("InvalidContentType") => NO_TLS,
        InvalidData if by_tls => {
            "TLS does not come about: check the trust store of --client-configuration, and the server's certificate"
        }
        _ if text.contains(NOT_ZOOKEEPER) => {
            "name its clientPort; an HTTP port or another service is no server of locks"
        }
        _ => "check the address, and the server's log",
    };
    format!("{text}: {advice}")
}

/// Why a server gives no session, found out by asking it what it is.
pub(in crate::cli) fn of_server(server: &HostPort, tls: Option<&Arc<ClientConfig>>) -> String {
    match word(server, tls, b"srvr") {
        Ok(said) => of_answer(&said, tls.is_some()),
        Err(error) if is_close(&error) && tls.is_some() => match word(server, None, b"srvr") {
            Ok(plain) if plain.first().is_some_and(|byte| *byte != TLS_ALERT) => NO_TLS.to_owned(),
            Ok(_) | Err(_) => of_answer(b"", true),
        },
        // What speaks TLS may close on a word without a word, but answers what looks like TLS.
        Err(error) if is_close(&error) => match word(server, None, &BROKEN_HELLO) {
            Ok(answer) if answer.first() == Some(&TLS_ALERT) => of_answer(&answer, false),
            Ok(_) | Err(_) => of_answer(b"", false),
        },
        Err(error) => of_error(&error, Port::Client, tls.is_some()),
    }
}

/// What this answer to `srvr` tells.
fn of_answer(said: &[u8], by_tls: bool) -> String {
    let text = String::from_utf8_lossy(said);
    let what = if said.first() == Some(&TLS_ALERT) && !by_tls {
        "it speaks TLS at this port: name a file with its trust store by --client-configuration, or use the clientPort"
    } else if text.starts_with("HTTP/") {
        "an HTTP port answers there: name the server's clientPort"
    } else if text.contains("not currently serving") {
        "it does not serve clients, for lack of a leader: start the other servers of the ensemble, until a majority \
         runs; or a migration from ZooKeeper is not there yet, or was given up: /readyz of its HTTP port says which"
    } else if text.starts_with("Zookeeper version") {
        "it serves; if it gives this client no session, its log says why (maxClientCnxns, or a restored ensemble)"
    } else if by_tls {
        "it closes the connection: it has no leader at the moment (see its log), or it wants a certificate of the \
         client (ssl.keyStore.location in the file of --client-configuration)"
    } else {
        "it closes the connection: it has no leader at the moment (see its log), or speaks another protocol at this \
         port (TLS needs --client-configuration)"
    };
    what.to_owned()
}

/// The beginning of what it answers to this word. That the connection ends instead is an error.
fn word(server: &HostPort, tls: Option<&Arc<ClientConfig>>, said: &[u8]) -> io::Result<Vec<u8>> {
    let mut line = Line::open(server, tls, ANSWER_MAX)?;
    line.send(said)?;
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    let length = match line.read(&mut answer)? {
        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
        length => length,
    };
    answer.truncate(length);
    Ok(answer)
}

/// What is said of a port that answers without TLS alone.
const NO_TLS: &str = "it does not speak TLS at this port: name its secureClientPort, or leave out \
                      --client-configuration";
/// A record of TLS with a hello that has no contents.
const BROKEN_HELLO: [u8; 9] = [22, 3, 1, 0, 4, 1, 0, 0, 0];
/// The first byte of a record of TLS that says what is wrong.
const TLS_ALERT: u8 = 21;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_port_answers_tells_what_it_is() {
        for (said, words) in [
            (&b"\x15\x03\x03\0\x02\x02\x32"[..], "--client-configuration"),
            (b"HTTP/1.1 400 Bad Request", "clientPort"),
            (b"This ZooKeeper instance is not currently serving requests", "majority"),
            (b"Zookeeper version: 3.9", "maxClientCnxns"),
            (b"", "leader"),
        ] {
            let told = of_answer(said, false);
            assert!(told.contains(words), "{said:?}: {told}");
        }
    }

    #[test]
    fn every_reason_says_what_to_do() {
        for (kind, words) in [
            (io::ErrorKind::ConnectionRefused, "is the server started"),
            (io::ErrorKind::TimedOut, "firewall"),
            (io::ErrorKind::WouldBlock, "firewall"),
            (io::ErrorKind::HostUnreachable, "check the address"),
            (io::ErrorKind::Other, "the server's log"),
        ] {
            let said = of_error(&kind.into(), Port::Client, false);
            assert!(said.contains(words), "{kind}: {said}");
        }
        let name =
            io::Error::other("failed to lookup address information: Name or service not known");
        assert!(of_error(&name, Port::Client, false).contains("check its spelling"));
        let tls = || {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "received corrupt message of type InvalidContentType",
            )
        };
        assert!(of_error(&tls(), Port::Client, true).contains("secureClientPort"));
    }
}
