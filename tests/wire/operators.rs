//! Four-letter words on the client port: what operators' scripts read.

use crate::bytes::mode;
use crate::fixture::{server, server_with};

/// The value of a `key=value`, `key: value` or `key<tab>value` line.
fn value<'a>(text: &'a str, key: &str, separator: &str) -> &'a str {
    let prefix = format!("{key}{separator}");
    text.lines()
        .find_map(|line| line.strip_prefix(&prefix))
        .unwrap_or_else(|| panic!("no {key} in {text}"))
}

#[test]
fn ruok_is_answered_before_the_handshake_only() {
    let server = server();
    assert_eq!(server.four_letters("ruok"), "imok");
    let mut client = server.connect();
    client.wire.send(b"ruok");
    client.assert_closed();
}

#[test]
fn isro_says_rw() {
    assert_eq!(server().four_letters("isro"), "rw");
}

#[test]
fn a_word_that_is_not_whitelisted_is_named_in_the_answer() {
    let Some(server) = server_with(&["4lw.commands.whitelist=ruok,mntr"]) else { return };
    for word in ["stat", "cons", "isro", "dump"] {
        let answer = server.four_letters(word);
        let refusal = "is not executed because it is not in the whitelist.";
        assert_eq!(answer, format!("{word} {refusal}\n"));
    }
    assert_eq!(server.four_letters("ruok"), "imok");
    assert!(server.four_letters("srvr").contains("\nMode: "), "srvr is always allowed");
}

#[test]
fn a_word_may_arrive_letter_by_letter() {
    let server = server();
    let mut wire = server.wire();
    for letter in b"ruok" {
        wire.send(&[*letter]);
    }
    assert_eq!(wire.rest(), b"imok");
}

#[test]
fn srvr_tells_mode_zxid_and_nodes() {
    let server = server();
    let mut client = server.connect();
    client.create(&format!("{}/a", server.scratch()));
    let text = server.four_letters("srvr");
    assert!(text.starts_with("Zookeeper version: 3."), "{text}");
    assert!(text.lines().next().unwrap().contains(", built on "), "{text}");
    assert_eq!(value(&text, "Mode", ": "), "standalone");
    let zxid = value(&text, "Zxid", ": 0x");
    assert!(i64::from_str_radix(zxid, 16).unwrap() >= client.last_zxid, "{zxid}");
    assert!(value(&text, "Node count", ": ").parse::<u64>().unwrap() >= 6);
    for key in ["Received", "Sent", "Connections", "Outstanding"] {
        assert!(value(&text, key, ": ").parse::<u64>().is_ok(), "{key}");
    }
    assert_eq!(value(&text, "Latency min/avg/max", ": ").split('/').count(), 3);
}

#[test]
fn a_fresh_server_counts_five_nodes() {
    let Some(server) = server_with(&[]) else { return };
    assert_eq!(value(&server.four_letters("srvr"), "Node count", ": "), "5");
    let text = server.four_letters("mntr");
    assert_eq!(value(&text, "zk_znode_count", "\t"), "5");
    assert_eq!(value(&text, "zk_watch_count", "\t"), "0");
}

#[test]
fn mntr_is_lines_of_key_tab_value() {
    let server = server();
    let text = server.four_letters("mntr");
    for line in text.lines() {
        let (key, _) = line.split_once('\t').unwrap_or_else(|| panic!("no tab in {line:?}"));
        assert!(key.starts_with("zk_"), "{line}");
    }
    assert_eq!(value(&text, "zk_server_state", "\t"), "standalone");
    assert!(value(&text, "zk_version", "\t").starts_with("3."));
    for key in [
        "zk_znode_count",
        "zk_watch_count",
        "zk_ephemerals_count",
        "zk_num_alive_connections",
        "zk_outstanding_requests",
        "zk_approximate_data_size",
        "zk_packets_received",
        "zk_packets_sent",
        "zk_open_file_descriptor_count",
        "zk_max_file_descriptor_count",
        "zk_global_sessions",
    ] {
        let number = value(&text, key, "\t");
        assert!(number.parse::<u64>().is_ok(), "{key} is {number}");
    }
}

#[test]
fn stat_lists_clients_and_then_tells_what_srvr_tells() {
    let server = server();
    let _client = server.connect();
    let text = server.four_letters("stat");
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with("Zookeeper version: "));
    assert_eq!(lines.next(), Some("Clients:"));
    let client = lines.next().unwrap();
    assert!(client.starts_with(" /127.0.0.1:") && client.contains("(queued="), "{client}");
    assert_eq!(value(&text, "Mode", ": "), "standalone");
}

#[test]
fn dump_lists_sessions_and_their_ephemerals() {
    let server = server();
    let path = format!("{}/e", server.scratch());
    let mut owner = server.connect();
    owner.create_as(&path, mode::EPHEMERAL).unwrap();
    let text = server.four_letters("dump");
    assert!(text.starts_with("SessionTracker dump:\n"), "{text}");
    let id = format!("0x{:x}", owner.session.session_id);
    let ephemerals = text.split("Sessions with Ephemerals (").nth(1).expect("the block");
    let own = ephemerals.split(&format!("{id}:\n")).nth(1).expect("this session's block");
    assert!(own.starts_with(&format!("\t{path}\n")), "{own}");
}

#[test]
fn cons_shows_each_session() {
    let server = server();
    let mut client = server.connect();
    client.ping();
    let text = server.four_letters("cons");
    let id = format!("sid=0x{:x},", client.session.session_id);
    let line = text.lines().find(|line| line.contains(&id)).expect("a line of this session");
    assert!(line.contains("lop=PING,"), "{line}");
    assert!(line.contains(&format!(",to={},", client.session.timeout_ms)), "{line}");
}

#[test]
fn wchs_counts_watches_and_wchp_names_them() {
    let server = server();
    let path = server.scratch();
    let mut client = server.connect();
    client.data(&path, true).unwrap();
    let id = format!("0x{:x}", client.session.session_id);
    assert!(server.four_letters("wchs").contains("\nTotal watches:"));
    assert!(server.four_letters("wchp").contains(&format!("{path}\n\t{id}\n")));
    let by_session = server.four_letters("wchc");
    let own = by_session.split(&format!("{id}\n")).nth(1).expect("this session's block");
    assert!(own.starts_with(&format!("\t{path}\n")), "{own}");
}

#[test]
fn conf_tells_the_configuration() {
    let server = server();
    let text = server.four_letters("conf");
    let min: i32 = value(&text, "minSessionTimeout", "=").parse().unwrap();
    let max: i32 = value(&text, "maxSessionTimeout", "=").parse().unwrap();
    assert_eq!((min, max), (server.session_timeout_ms_min, server.session_timeout_ms_max));
    let port: u16 = value(&text, "clientPort", "=").parse().unwrap();
    assert_eq!(port, server.address.port());
    let tick: u128 = value(&text, "tickTime", "=").parse().unwrap();
    assert_eq!(tick, server.tick.as_millis());
}

#[test]
fn other_words_answer_something() {
    let server = server();
    assert!(server.four_letters("envi").starts_with("Environment:\n"));
    assert!(server.four_letters("dirs").starts_with("datadir_size: "));
    assert_eq!(server.four_letters("crst"), "Connection stats reset.\n");
    assert_eq!(server.four_letters("srst"), "Server stats reset.\n");
    for word in ["RUOK", "none", "\0\0\0\0"] {
        assert_eq!(server.four_letters(word), "", "{word:?} is no word");
    }
}
