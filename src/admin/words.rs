//! The four-letter words that operators and clients send instead of a handshake.
//!
//! *Owns* what is a word on the wire, who may send one, and what a refusal says. *Invariants*: words are case
//! sensitive; an answer is the whole text and the connection is closed after it; costly words are
//! computed only for who may send them. *Never* reads from the socket, and never knows what a word answers: that is
//! a row in `commands/table.rs`.
//!
//! Reproduces ZooKeeper's `FourLetterCommands` and `CommandExecutor`.

use std::net::SocketAddr;

use super::Source;
use super::commands::{By, Command, NOT_SERVING, Shown};

/// A known word; `None`: what telnet sends when it closes, known only so that it is not taken for a bad length.
#[derive(Clone, Copy)]
pub struct Word(Option<&'static Command>);

/// The word that a connection's first four bytes are, if they are one.
#[must_use]
pub fn word(first_four_bytes: [u8; 4]) -> Option<Word> {
    if first_four_bytes == TELNET_CLOSE {
        return Some(Word(None));
    }
    Command::of_word(first_four_bytes).map(|command| Word(Some(command)))
}

/// The whole answer to a word; the connection is closed after it.
///
/// `rest` is what came after the word; `asker` is who asks.
pub async fn answer(word: Word, rest: &[u8], asker: SocketAddr, source: &dyn Source) -> Vec<u8> {
    let Some(command) = word.0 else { return Vec::new() };
    let name = command.word();
    if !source.word_allowed(name, asker.ip().to_canonical().is_loopback()) {
        tracing::debug!(target: TARGET, word = name, "four-letter word refused: not in the whitelist");
        return format!("{name} is not executed because it is not in the whitelist.\n")
            .into_bytes();
    }
    tracing::debug!(target: TARGET, word = name, "four-letter word");
    match command.answer(By::Word(rest, asker), source).await {
        Some(Shown::Text(text)) => text.into_bytes(),
        // The one word whose refusal has no newline.
        _ if name == "hash" => NOT_SERVING.into(),
        _ => format!("{NOT_SERVING}\n").into_bytes(),
    }
}

/// Target of the log lines.
const TARGET: &str = "lockkeeper::admin::four_letter";

/// IAC IP IAC DO.
const TELNET_CLOSE: [u8; 4] = [0xff, 0xf4, 0xff, 0xfd];

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use regex_lite::Regex;

    use super::super::commands::{TURN, restore_default, words};
    use super::super::ensemble::STALLED_DEAD;
    use super::super::fake::{Fake, SESSION};
    use super::super::version::full_version as version;
    use super::*;
    use crate::replica::inspect::{ConnectionReport, Mode};

    const ASKER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 50_000);

    async fn ask(word: &str, fake: &Fake) -> String {
        String::from_utf8(ask_with(word, &[], ASKER, fake).await).unwrap()
    }

    async fn ask_with(word: &str, rest: &[u8], asker: SocketAddr, fake: &Fake) -> Vec<u8> {
        let word = super::word(word.as_bytes().try_into().unwrap()).expect("known");
        answer(word, rest, asker, fake).await
    }

    #[test]
    fn words_are_known_by_their_exact_four_bytes() {
        for each in words() {
            let found = word(each.as_bytes().try_into().unwrap()).unwrap();
            assert_eq!(found.0.unwrap().word(), each);
        }
        for other in [*b"RUOK", *b"lsnp", *b"rest", [0, 0, 0, 44]] {
            assert!(word(other).is_none(), "{other:?}");
        }
        assert!(word([0xff, 0xf4, 0xff, 0xfd]).unwrap().0.is_none());
    }

    #[tokio::test]
    async fn short_words_have_no_newline() {
        let fake = Fake::standalone();
        assert_eq!(ask("ruok", &fake).await, "imok");
        assert_eq!(ask("isro", &fake).await, "rw");
        assert!(answer(Word(None), &[], ASKER, &fake).await.is_empty());
        let mut read_only = Fake::standalone();
        read_only.status.mode = Mode::ReadOnly;
        assert_eq!(ask("isro", &read_only).await, "ro");
        assert_eq!(ask("isro", &Fake::looking()).await, "null");
    }

    #[tokio::test]
    async fn a_server_whose_driver_is_stuck_is_not_ok() {
        let mut fake = Fake::standalone();
        fake.stalled = Some(STALLED_DEAD / 2);
        assert_eq!(ask("ruok", &fake).await, "imok", "it may be busy");
        fake.stalled = Some(STALLED_DEAD);
        assert_eq!(ask("ruok", &fake).await, "");
    }

    #[tokio::test]
    async fn srvr_has_zookeepers_lines() {
        assert_eq!(
            ask("srvr", &Fake::standalone()).await,
            format!(
                "Zookeeper version: {}\n\
                 Latency min/avg/max: 1/1.6/2\n\
                 Received: 86\nSent: 87\nConnections: 2\nOutstanding: 2\n\
                 Zxid: 0x100000046\nMode: standalone\nNode count: 5\n",
                version()
            )
        );
    }

    #[tokio::test]
    async fn a_leader_shows_the_sizes_of_its_proposals() {
        let mut fake = Fake::leader();
        let text = ask("srvr", &fake).await;
        assert!(
            text.ends_with(
                "Mode: leader\nNode count: 5\nProposal sizes last/min/max: 48/32/1024\n"
            )
        );
        fake.status.proposal_sizes = None;
        assert!(ask("stat", &fake).await.ends_with("Proposal sizes last/min/max: -1/-1/-1\n"));
        fake.status.mode = Mode::Follower;
        assert!(ask("srvr", &fake).await.ends_with("Mode: follower\nNode count: 5\n"));
    }

    #[tokio::test]
    async fn conf_of_a_member_ends_in_the_membership() {
        let fake = Fake::leader();
        let text = ask("conf", &fake).await;
        let (own, ensemble) = text.split_once("initLimit=").unwrap();
        assert!(own.ends_with("serverId=1\n"), "{text}");
        assert!(ensemble.ends_with(&format!("membership: \n{}", fake.membership)), "{text}");
    }

    #[tokio::test]
    async fn a_read_only_server_says_so_after_its_version() {
        let mut fake = Fake::standalone();
        fake.status.mode = Mode::ReadOnly;
        fake.status.serving = false;
        let text = ask("srvr", &fake).await;
        assert_eq!(text.lines().nth(1), Some("READ-ONLY mode; serving only read-only clients"));
        assert!(text.contains("\nMode: read-only\n"));
    }

    #[tokio::test]
    async fn stat_lists_clients_in_order_before_the_figures() {
        let text = ask("stat", &Fake::standalone()).await;
        let head = format!(
            "Zookeeper version: {}\nClients:\n \
             /127.0.0.1:41684[1](queued=0,recved=86,sent=87)\n \
             /127.0.0.1:34716[1](queued=0,recved=1,sent=0)\n \
             /127.0.0.1:50000[0](queued=0,recved=1,sent=0)\n\n\
             Latency min/avg/max: 1/1.6/2\n",
            version()
        );
        assert!(text.starts_with(&head), "{text}");
        assert!(text.ends_with("Mode: standalone\nNode count: 5\n"), "{text}");
    }

    #[tokio::test]
    async fn cons_shows_what_only_a_session_has() {
        assert_eq!(
            ask("cons", &Fake::standalone()).await,
            " /127.0.0.1:41684[1](queued=0,recved=86,sent=87,sid=0x1000018f5350000,lop=EXIS,\
             est=1795228624662,to=40000,lcxid=0x55,lzxid=0x46,lresp=1644167,llat=0,minlat=0,\
             avglat=1,maxlat=16)\n \
             /127.0.0.1:34716[1](queued=0,recved=1,sent=0)\n \
             /127.0.0.1:50000[0](queued=0,recved=1,sent=0)\n\n",
            "the connection that asks is one of them, and nothing more is read from it"
        );
    }

    #[tokio::test]
    async fn cons_leaves_out_a_negative_cxid_and_shows_ids_as_java_does() {
        let mut fake = Fake::standalone();
        fake.connections = vec![ConnectionReport {
            remote: "[::1]:1".to_string(),
            session: Some(-2),
            last_op: "SESS",
            last_cxid: -2,
            last_zxid: -1,
            ..ConnectionReport::default()
        }];
        assert_eq!(
            ask("cons", &fake).await,
            " /[::1]:1[1](queued=0,recved=0,sent=0,sid=0xfffffffffffffffe,lop=SESS,est=0,to=0,\
             lzxid=0xffffffffffffffff,lresp=0,llat=0,minlat=0,avglat=0,maxlat=0)\n \
             /127.0.0.1:50000[0](queued=0,recved=1,sent=0)\n\n"
        );
    }

    #[tokio::test]
    async fn conf_has_a_pair_on_every_line() {
        let text = ask("conf", &Fake::standalone()).await;
        assert_eq!(
            text,
            "clientPort=2181\nsecureClientPort=-1\ndataDir=/var/lib/lockkeeper/data\n\
             dataDirSize=1234\ndataLogDir=/var/lib/lockkeeper/log\ndataLogSize=67108880\n\
             tickTime=2000\nmaxClientCnxns=60\nminSessionTimeout=4000\nmaxSessionTimeout=40000\n\
             clientPortListenBacklog=-1\nserverId=0\n"
        );
        // Solr's rule.
        assert!(text.lines().all(|line| line.split('=').count() == 2));
    }

    #[tokio::test]
    async fn dump_groups_sessions_by_the_second_in_which_they_expire() {
        assert_eq!(
            ask("dump", &Fake::standalone()).await,
            "SessionTracker dump:\n\
             Session Sets (2)/(3):\n\
             1 expire at Sat Nov 21 02:37:17 UTC 2026:\n\
             \t0x1000018f5350001\n\
             2 expire at Sat Nov 21 02:37:21 UTC 2026:\n\
             \t0x1000018f5350000\n\
             \t0x1000018f5350002\n\
             ephemeral nodes dump:\n\
             Sessions with Ephemerals (2):\n\
             0x1000018f5350000:\n\t/lock/a\n\t/lock/b\n\
             0x1000018f5350001:\n\t/pl1\n\
             Connections dump:\n\
             Connections Sets (1)/(2):\n\
             1 expire at Sat Nov 21 02:37:21 UTC 2026:\n\
             \tip: /127.0.0.1:41684 sessionId: 0x1000018f5350000\n"
        );
    }

    #[tokio::test]
    async fn a_follower_dumps_sessions_with_their_timeouts() {
        let mut fake = Fake::standalone();
        fake.status.mode = Mode::Follower;
        for session in &mut fake.sessions {
            session.expires_in_ms = None;
        }
        let text = ask("dump", &fake).await;
        assert!(
            text.starts_with(
                "SessionTracker dump:\nGlobal Sessions(3):\n0x1000018f5350000\t40000ms\n"
            ),
            "{text}"
        );
        assert!(text.ends_with("Connections Sets (0)/(2):\n"), "{text}");
    }

    #[tokio::test]
    async fn an_absurd_expiry_is_shown_without_panic() {
        let mut fake = Fake::standalone();
        fake.sessions[0].expires_in_ms = Some(u64::MAX);
        assert!(ask("dump", &fake).await.contains("1 expire at "));
    }

    #[tokio::test]
    async fn watches_are_shown_in_sum_by_session_and_by_path() {
        let fake = Fake::standalone();
        assert_eq!(ask("wchs", &fake).await, "2 connections watching 2 paths\nTotal watches:3\n");
        assert_eq!(
            ask("wchc", &fake).await,
            "0x1000018f5350000\n\t/a\n\t/b\n0x1000018f5350001\n\t/a\n\n"
        );
        assert_eq!(
            ask("wchp", &fake).await,
            "/a\n\t0x1000018f5350000\n\t0x1000018f5350001\n/b\n\t0x1000018f5350000\n\n"
        );
    }

    #[tokio::test]
    async fn dirs_and_hash_show_numbers_as_java_does() {
        let fake = Fake::standalone();
        assert_eq!(ask("dirs", &fake).await, "datadir_size: 1234\nlogdir_size: 67108880\n");
        assert_eq!(ask("hash", &fake).await, "80: 1371985504\n100000100: -1\n");
    }

    #[tokio::test]
    async fn resets_reach_the_shell_and_the_replica() {
        let fake = Fake::standalone();
        assert_eq!(ask("crst", &fake).await, "Connection stats reset.\n");
        assert_eq!(ask("srst", &fake).await, "Server stats reset.\n");
        assert_eq!(*fake.asked.lock().unwrap(), ["ResetConnections", "counters", "ResetServer"]);
    }

    #[tokio::test]
    async fn a_set_trace_mask_is_read_back() {
        let _turn = TURN.lock().await;
        let fake = Fake::standalone();
        assert_eq!(ask("gtmk", &fake).await, "306");
        let mask = [0, 0, 0, 0, 0, 0, 1, 0x33];
        assert_eq!(ask_with("stmk", &mask, ASKER, &fake).await, b"307");
        assert_eq!(ask("gtmk", &fake).await, "307");
        assert_eq!(ask_with("stmk", &[1, 2, 3], ASKER, &fake).await, b"");
        assert_eq!(ask("gtmk", &fake).await, "307");
        restore_default();
    }

    #[tokio::test]
    async fn while_not_serving_only_five_words_are_answered() {
        let fake = Fake::looking();
        for word in words() {
            let text = ask(word, &fake).await;
            match word {
                "ruok" | "isro" | "envi" | "gtmk" | "stmk" => {
                    assert!(!text.contains(NOT_SERVING), "{word}");
                }
                "hash" => assert_eq!(text, NOT_SERVING),
                _ => assert_eq!(text, format!("{NOT_SERVING}\n"), "{word}"),
            }
        }
        assert!(fake.asked.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_stopping_server_says_that_it_does_not_serve() {
        let mut fake = Fake::standalone();
        fake.stopping = true;
        for word in ["stat", "cons", "dump", "wchs", "wchc", "wchp", "crst", "srst"] {
            assert_eq!(ask(word, &fake).await, format!("{NOT_SERVING}\n"), "{word}");
        }
    }

    #[tokio::test]
    async fn a_word_outside_the_whitelist_is_refused_by_name_and_costs_nothing() {
        let mut fake = Fake::standalone();
        fake.loopback_only = vec!["dump"];
        let elsewhere = "192.0.2.1:5".parse().unwrap();
        let refused = ask_with("dump", &[], elsewhere, &fake).await;
        assert_eq!(refused, b"dump is not executed because it is not in the whitelist.\n");
        assert!(fake.asked.lock().unwrap().is_empty());
        assert!(ask("dump", &fake).await.starts_with("SessionTracker dump:"));
    }

    /// The expressions of go-zookeeper's `FLWSrvr` and `FLWCons`.
    #[tokio::test]
    async fn the_go_client_can_read_srvr_and_cons() {
        let srvr = Regex::new(concat!(
            r"(?m:\A^Zookeeper version: ([A-Za-z0-9\.\-]+), ",
            r"built on (\d\d/\d\d/\d\d\d\d \d\d:\d\d [A-Za-z0-9:\+\-]+).*\n",
            r"^Latency min/avg/max: (\d+)/([0-9.]+)/(\d+).*\n",
            r"^Received: (\d+).*\n^Sent: (\d+).*\n^Connections: (\d+).*\n^Outstanding: (\d+).*\n",
            r"^Zxid: (0x[A-Za-z0-9]+).*\n^Mode: (\w+).*\n^Node count: (\d+))"
        ))
        .unwrap();
        for mode in [Mode::Standalone, Mode::Leader, Mode::Follower, Mode::Observer] {
            let mut fake = Fake::standalone();
            fake.status.mode = mode;
            let text = ask("srvr", &fake).await;
            let found = srvr.captures(&text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(&found[11], mode.name());
        }
        let cons = Regex::new(concat!(
            r"^ /((?:\d{1,3}\.){3}\d{1,3}):(\d+)\[\d+\]",
            r"\(queued=(\d+),recved=(\d+),sent=(\d+),sid=(0x[A-Za-z0-9]+),lop=(\w+),est=(\d+),",
            r"to=(\d+),lcxid=(0x[A-Za-z0-9]+),lzxid=(0x[A-Za-z0-9]+),lresp=(\d+),llat=(\d+),",
            r"minlat=(\d+),avglat=(\d+),maxlat=(\d+)\)"
        ))
        .unwrap();
        let text = ask("cons", &Fake::standalone()).await;
        let found = cons.captures(text.lines().next().unwrap()).expect("matches");
        assert_eq!(&found[6], format!("0x{SESSION:x}"));
    }

    #[tokio::test]
    async fn every_line_after_the_title_is_a_pair() {
        let text = ask("envi", &Fake::looking()).await;
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("Environment:"));
        let version = lines.next().unwrap();
        assert!(version.starts_with("zookeeper.version=3.9.5-lockkeeper-"), "{version}");
        assert!(version.contains(", built on "), "{version}");
        assert!(
            lines.all(|line| line
                .split_once('=')
                .is_some_and(|(k, v)| !k.is_empty() && !v.is_empty()))
        );
        assert!(text.ends_with('\n'));
    }

    #[tokio::test]
    async fn kazoo_can_read_the_version_from_envi() {
        let text = ask("envi", &Fake::looking()).await;
        let version = text.lines().find_map(|line| line.strip_prefix("zookeeper.version="));
        let digits = Regex::new(r"^([\d.]*)").unwrap();
        assert_eq!(&digits.captures(version.unwrap()).unwrap()[1], "3.9.5");
    }
}
