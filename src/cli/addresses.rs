//! Addresses of servers, as users write them.

use crate::config::HostPort;

/// The port of a server's clients.
const PORT: u16 = 2181;
/// The HTTP port, as of a server without a configuration file.
const HTTP_PORT: u16 = 8080;

/// `host:port`; a host alone is at `port`.
fn address(text: &str, port: u16) -> Result<HostPort, String> {
    match text.parse() {
        Err(_) if !text.contains(':') || text.ends_with(']') => HostPort::new(text, port),
        address => address,
    }
}

/// `host:port,host:port`, as clients write it. A host alone is at port 2181.
///
/// # Errors
/// What is wrong with it.
pub(super) fn servers(text: &str) -> Result<Vec<HostPort>, String> {
    text.split(',').map(|part| address(part.trim(), PORT)).collect()
}

/// `host:port,host:port`, the addresses of HTTP ports; also as a server shows its own,
/// `http://host:port/commands` or `https://`. A host alone is at port 8080. `by_tls`: they are asked through TLS.
///
/// # Errors
/// What is wrong with it.
pub(super) fn http_addresses(text: &str, by_tls: bool) -> Result<Vec<HostPort>, String> {
    let http_address = |part: &str| {
        let part = part.trim();
        let part = match (part.strip_prefix("http://"), part.strip_prefix("https://")) {
            (Some(_), _) if by_tls => {
                return Err(format!("{part}: --client-configuration asks for https"));
            }
            (_, Some(_)) if !by_tls => {
                return Err(format!(
                    "{part}: needs --client-configuration, with what vouches for the server"
                ));
            }
            (plain, encrypted) => plain.or(encrypted).unwrap_or(part),
        };
        address(part.split('/').next().unwrap_or(part), HTTP_PORT)
    };
    text.split(',').map(http_address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_string_names_servers_at_their_ports_or_at_2181() {
        let named: Vec<String> =
            servers("a, b:1,[::1]:2,[::1]").unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(named, ["a:2181", "b:1", "[::1]:2", "[::1]:2181"]);
        for text in ["", "a,", "a:x", "a:1/chroot"] {
            assert!(servers(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_address_may_be_what_a_server_shows() {
        let text = "http://127.0.0.1:8080/commands, zk2, [::1]:9";
        let named: Vec<_> =
            http_addresses(text, false).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(named, ["127.0.0.1:8080", "zk2:8080", "[::1]:9"]);
        for text in ["", "a:x", "http://"] {
            assert!(http_addresses(text, false).is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_address_says_how_to_ask_there_and_nothing_else_is_done() {
        let named = http_addresses("https://zk1:8443/commands, zk2", true).unwrap();
        let named: Vec<_> = named.iter().map(ToString::to_string).collect();
        assert_eq!(named, ["zk1:8443", "zk2:8080"]);
        assert!(http_addresses("http://zk1", true).unwrap_err().contains("asks for https"));
        assert!(
            http_addresses("https://zk1", false).unwrap_err().contains("--client-configuration")
        );
    }
}
