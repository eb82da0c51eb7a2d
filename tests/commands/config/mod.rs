//! What a zoo.cfg amounts to: defaults, limits, refusals, flags. Who the servers are is in `server_lines.rs`.

mod sasl;
mod server_lines;
mod tls;

use std::path::PathBuf;

use lockkeeper::internals::config::{
    CONFIG_ERRORS_MAX, CONFIG_TEXT_BYTES_MAX, Config, CpuPolicyKey, Draft, Form, FourLetterWords,
    HostPort, PATH_BYTES_MAX, SECTIONS, VALUE_BYTES_MAX,
};

const LEAST: &str = "dataDir=/data\nclientPort=2181\n";

/// A file of the least keys and these.
fn with(lines: &str) -> Result<Config, Vec<String>> {
    parse(&format!("{LEAST}{lines}"))
}

fn parse(text: &str) -> Result<Config, Vec<String>> {
    Config::parse("zoo.cfg", text)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

fn good(lines: &str) -> Config {
    with(lines).unwrap_or_else(|errors| panic!("{lines}: {errors:?}"))
}

/// The one error of a file whose third line is `line`.
fn fault(line: &str) -> String {
    match with(line) {
        Ok(_) => panic!("{line} was accepted"),
        Err(errors) => {
            assert_eq!(errors.len(), 1, "{errors:?}");
            errors[0].clone()
        }
    }
}

fn addr(host: &str, port: u16) -> HostPort {
    HostPort::new(host, port).unwrap()
}

fn reasons(notes: &[(String, String)]) -> Vec<&str> {
    notes.iter().map(|(key, _)| key.as_str()).collect()
}

// --- defaults

#[test]
fn without_a_file_it_is_a_loopback_server_with_short_ticks() {
    let config = Config::default();
    assert_eq!(config.data_dir, PathBuf::from("./lockkeeper-data"));
    assert_eq!(config.data_log_dir, config.data_dir);
    assert_eq!(config.client_addr, addr("127.0.0.1", 2181));
    assert_eq!(config.tick_time_ms, 2000);
    assert_eq!((config.min_session_timeout_ms, config.max_session_timeout_ms), (4000, 40_000));
    assert_eq!(config.max_client_cnxns, 0);
    assert!(config.admin.enabled);
    assert_eq!(config.admin.addr, addr("127.0.0.1", 8080));
    assert_eq!((config.ignored.len(), config.warnings.len()), (0, 0));
}

#[test]
fn with_a_file_the_defaults_are_zookeepers() {
    let config = good("");
    assert_eq!(config.data_log_dir, PathBuf::from("/data"));
    assert!(config.data_dir_autocreate && config.db_autocreate);
    assert_eq!(config.client_addr, addr("0.0.0.0", 2181));
    assert_eq!(config.listen_backlog, 4096);
    assert!(!config.client_tcp_keep_alive);
    assert_eq!(config.image_log_bytes, 64 << 20);
    assert_eq!(config.tick_time_ms, 3000);
    assert_eq!((config.min_session_timeout_ms, config.max_session_timeout_ms), (6000, 60_000));
    assert_eq!(config.sessionless_timeout_ms, 10_000);
    assert_eq!((config.max_client_cnxns, config.max_cnxns), (60, 0));
    assert_eq!(config.global_outstanding_limit, 1000);
    assert_eq!((config.incoming_bytes_max, config.outgoing_bytes_max), (256 << 20, 256 << 20));
    assert_eq!(config.jute_max_buffer, 1_048_575);
    assert!(!config.extended_types_enabled && !config.enforce_quota);
    assert!(!config.skip_acl && !config.eager_acl_check);
    assert!(config.digest_auth_enabled);
    assert_eq!(config.super_digest, None);
    assert_eq!(config.containers.check_interval_ms, 60_000);
    assert_eq!(config.containers.max_per_minute, 10_000);
    assert_eq!(config.containers.max_never_used_interval_ms, 0);
    assert_eq!(config.four_letter_words, FourLetterWords::Default);
    assert!(config.admin.enabled);
    assert_eq!(config.admin.addr, addr("127.0.0.1", 8080), "ZooKeeper's is open to all machines");
    assert_eq!(config.admin.command_url, "/commands");
    assert_eq!((config.metrics_addr, config.audit_log), (None, None));
    assert_eq!(config.fsync_warning_threshold_ms, 1000);
    assert!(config.standalone_enabled && !config.reconfig_enabled);
    assert!(!config.quorum_listen_on_all_ips);
    assert!(!config.read_only_mode_enabled && !config.linearizable_reads);
    assert_eq!(config.session_expiry_grace_ms, 0);
    assert_eq!((config.server_id, config.servers.len()), (None, 0));
}

#[test]
fn a_file_must_name_the_data_directory_and_the_client_port() {
    assert_eq!(
        parse("").unwrap_err(),
        [
            "zoo.cfg: dataDir: missing: the directory of the server's data",
            "zoo.cfg: clientPort: missing: the TCP port for clients"
        ]
    );
    assert_eq!(parse("dataDir=\nclientPort=x").unwrap_err().len(), 2, "named once each");
}

// --- values and their limits

/// A flag is told what is wrong with it, also where a file is started on.
fn flag(key: &str, value: &str) -> Result<Config, String> {
    let mut draft = Draft::from_text("zoo.cfg", LEAST);
    draft.set(key, value, "--set");
    draft.resolve().map_err(|errors| errors[0].to_string())
}

/// The one warning of a file that is started on although its third line is `line`.
fn warned(line: &str) -> (Config, String) {
    let config = good(line);
    let [(key, reason)] = &config.warnings[..] else { panic!("{line}: {:?}", config.warnings) };
    let reason = format!("{key}: {reason}");
    (config, reason)
}

#[test]
fn numbers_hold_at_their_limits_and_fail_beyond() {
    for (key, least, greatest, lenient) in [
        ("clientPort", "0", "65535", false),
        ("tickTime", "1", "3600000", false),
        ("nio.sessionlessCnxnTimeout", "1", "2147483647", true),
        ("maxCnxns", "0", "2147483647", true),
        ("globalOutstandingLimit", "1", "1000000", true),
        ("jute.maxbuffer", "1024", "134217728", true),
        ("znode.container.checkIntervalMs", "1", "2147483647", true),
        ("znode.container.maxPerMinute", "1", "2147483647", true),
        ("znode.container.maxNeverUsedIntervalMs", "0", "2147483647", true),
        ("admin.serverPort", "0", "65535", true),
        ("metricsProvider.httpPort", "-1", "65535", true),
        ("fsync.warningthresholdms", "0", "2147483647", true),
        ("lockkeeper.imageLogBytes", "1048576", "1099511627776", false),
        ("lockkeeper.checkpointMillis", "1", "3600000", false),
        ("lockkeeper.incomingBytesMax", "1048576", "1099511627776", false),
        ("lockkeeper.outgoingBytesMax", "1048576", "1099511627776", false),
        ("lockkeeper.sessionExpiryGraceMillis", "0", "3600000", false),
        ("lockkeeper.diskStallMillis", "-1", "3600000", false),
    ] {
        good(&format!("{key}={least}"));
        good(&format!("{key}={greatest}"));
        let below = (least.parse::<i64>().unwrap() - 1).to_string();
        let above = (greatest.parse::<i64>().unwrap() + 1).to_string();
        for (value, wrong, nearest) in [
            (&below, format!("{below} is too small: the least value is {least}"), least),
            (&above, format!("{above} is too large: the greatest value is {greatest}"), greatest),
        ] {
            assert_eq!(flag(key, value).unwrap_err(), format!("--set: {key}: {wrong}"));
            let line = format!("{key}={value}");
            if lenient {
                let (config, reason) = warned(&line);
                assert_eq!(reason, format!("{key}: line 3: {wrong}; {nearest} is in force"));
                let shown = config.values().into_iter().find(|(known, _)| known == key);
                assert_eq!(shown.unwrap().1, nearest, "{key}");
            } else {
                assert_eq!(fault(&line), format!("zoo.cfg:3: {key}: {wrong}"));
            }
        }
        assert!(flag(key, "99999999999999999999999").unwrap_err().contains("too large"));
        assert!(flag(key, "ten").unwrap_err().ends_with("`ten` is not a whole number"));
        assert!(flag(key, "").unwrap_err().ends_with("`` is not a whole number"));
    }
}

#[test]
fn a_value_that_zookeeper_does_not_read_is_warned_of_and_another_one_refused() {
    for key in SECTIONS.iter().flat_map(|section| section.keys) {
        let line = format!("{}=nonsense", key.name);
        match key.form {
            Form::Number { .. } | Form::Switch { .. } | Form::YesNo { .. } => {
                let reason = format!("{}: `nonsense` is ", key.name);
                let said = flag(key.name, "nonsense").unwrap_err();
                assert!(said.starts_with(&format!("--set: {reason}")), "{said}");
                match key.stand_in {
                    None => assert!(fault(&line).starts_with(&format!("zoo.cfg:3: {reason}"))),
                    Some(stand_in) => {
                        let (_, said) = warned(&line);
                        assert!(said.contains(&format!("; {stand_in} is in force")), "{said}");
                    }
                }
            }
            Form::Text { .. } => {}
        }
    }
    let (config, reason) = warned("jute.maxbuffer=many");
    assert_eq!(config.jute_max_buffer, 1_048_575);
    assert!(reason.ends_with("`many` is not a whole number; 1048575 is in force"), "{reason}");
}

#[test]
fn switches_are_true_or_false_whatever_the_case() {
    assert!(good("enforceQuota=TRUE").enforce_quota);
    assert!(!good("admin.enableServer=False").admin.enabled);
    let (config, reason) = warned("enforceQuota=yes");
    assert!(!config.enforce_quota);
    assert!(reason.ends_with("`yes` is neither true nor false; false is in force"), "{reason}");
    assert_eq!(
        fault("syncEnabled=maybe"),
        "zoo.cfg:3: syncEnabled: `maybe` is neither true nor false",
        "also where the key has no effect"
    );
}

#[test]
fn access_control_is_switched_off_by_the_one_word_that_zookeeper_knows() {
    assert!(good("skipACL=yes").skip_acl);
    for value in ["true", "YES", "maybe", ""] {
        let (config, reason) = warned(&format!("skipACL={value}"));
        assert!(!config.skip_acl);
        assert!(
            reason.ends_with(&format!("`{value}` is neither yes nor no; no is in force")),
            "{reason}"
        );
    }
}

#[test]
fn values_are_trimmed_and_have_a_longest_length() {
    assert_eq!(good("tickTime =  500 \t").tick_time_ms, 500);
    let long = "x".repeat(VALUE_BYTES_MAX + 1);
    assert_eq!(good(&format!("foo={}", &long[1..])).mistakes.len(), 1);
    assert!(fault(&format!("ssl.x={long}")).contains("longer than 65536 bytes"));
    let path = "p".repeat(PATH_BYTES_MAX);
    good(&format!("dataLogDir={path}"));
    assert!(fault(&format!("dataLogDir={path}p")).contains("longer than 4095 bytes"));
    assert!(fault("dataLogDir=a\\u0000b").contains("control characters"));
}

#[test]
fn session_timeouts_follow_the_tick_unless_given() {
    let limits = |lines: &str| {
        let config = good(lines);
        (config.min_session_timeout_ms, config.max_session_timeout_ms)
    };
    assert_eq!(limits("tickTime=100"), (200, 2000));
    assert_eq!(limits("tickTime=100\nminSessionTimeout=-1\nmaxSessionTimeout=9000"), (200, 9000));
    assert_eq!(limits("minSessionTimeout=7\nmaxSessionTimeout=7"), (7, 7));
    assert_eq!(limits("tickTime=3600000"), (7_200_000, 72_000_000));
    assert_eq!(limits("maxSessionTimeout=2147483647").1, 2_147_483_647);
    assert_eq!(limits("minSessionTimeout=0").0, 1, "ZooKeeper has no least one then");
    assert_eq!(limits("minSessionTimeout=-7").0, 1);
    assert!(fault("maxSessionTimeout=0").contains("least value is 1, or -1"));
    assert!(fault("maxSessionTimeout=-2").contains("too small"));
}

#[test]
fn a_shortest_timeout_above_the_longest_is_an_error_at_its_line() {
    assert_eq!(
        fault("minSessionTimeout=60001"),
        "zoo.cfg:3: minSessionTimeout: the shortest timeout, 60001 ms, is above the longest, \
         60000 ms"
    );
    assert!(fault("maxSessionTimeout=5999").starts_with("zoo.cfg:3: maxSessionTimeout: "));
    assert!(with("minSessionTimeout=20\nmaxSessionTimeout=10").is_err());
}

#[test]
fn addresses_are_host_names_ipv4_or_ipv6() {
    for (text, host) in [("zk.example", "zk.example"), ("::1", "::1"), ("[::1]", "::1")] {
        assert_eq!(good(&format!("clientPortAddress={text}")).client_addr.host, host);
    }
    assert!(fault("clientPortAddress=a b").contains("not a host name or address"));
    assert!(fault("admin.serverAddress=").contains("host is empty"));
}

#[test]
fn the_metrics_port_opens_by_port_or_by_provider() {
    let port = |lines: &str| good(lines).metrics_addr.map(|addr| addr.to_string());
    assert_eq!(port(""), None);
    assert_eq!(port("metricsProvider.httpPort=7001").as_deref(), Some("0.0.0.0:7001"));
    let class = "metricsProvider.className=\
                 org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\n";
    assert_eq!(port(class).as_deref(), Some("0.0.0.0:7000"));
    let all = format!("{class}metricsProvider.httpHost=::1\nmetricsProvider.httpPort=1");
    assert_eq!(port(&all).as_deref(), Some("[::1]:1"));
    assert_eq!(port(&format!("{class}metricsProvider.httpPort=-1")), None);
    let other =
        "metricsProvider.className=org.apache.zookeeper.metrics.impl.DefaultMetricsProvider";
    assert_eq!(port(other), None);
}

#[test]
fn the_whitelist_of_words_is_honoured_and_read_only_mode_adds_isro() {
    let words = good("4lw.commands.whitelist=*").four_letter_words;
    assert!(words.allows("wchp", false));
    let words = good("4lw.commands.whitelist=mntr, ruok").four_letter_words;
    assert!(words.allows("ruok", false) && words.allows("srvr", false));
    assert!(!words.allows("isro", true));
    let words = good("4lw.commands.whitelist=mntr\nreadonlymode.enabled=true").four_letter_words;
    assert!(words.allows("isro", false));
    let (config, reason) = warned("4lw.commands.whitelist=mntr, everything, reqs");
    assert!(reason.contains("no four-letter word `everything`, `reqs`"), "{reason}");
    assert!(config.four_letter_words.allows("mntr", false));
    assert!(!config.four_letter_words.allows("ruok", false));
    assert!(flag("4lw.commands.whitelist", "mntr,everything").is_err());
}

#[test]
fn the_super_digest_is_taken_but_never_shown() {
    let config =
        good("DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
    assert_eq!(config.super_digest.as_deref(), Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU="));
    assert!(!config.describe().contains("D/InIHSb7"));
    let (config, reason) = warned("DigestAuthenticationProvider.superDigest=secret");
    assert_eq!(config.super_digest, None);
    assert!(!reason.contains("secret"), "{reason}");
    assert!(flag("DigestAuthenticationProvider.superDigest", "secret").is_err());
    assert_eq!(good("DigestAuthenticationProvider.superDigest=").super_digest, None);
}

#[test]
fn only_sha1_hashes_digest_ids() {
    good("DigestAuthenticationProvider.digestAlg=sha1");
    assert!(fault("DigestAuthenticationProvider.digestAlg=SHA3-256").contains("only SHA1"));
}

#[test]
fn the_command_url_is_a_plain_path() {
    assert_eq!(good("admin.commandURL=/zk/commands").admin.command_url, "/zk/commands");
    for bad in ["commands", "/", "", "/a/", "/a b", "/a?b"] {
        assert!(flag("admin.commandURL", bad).is_err(), "{bad}");
        assert_eq!(warned(&format!("admin.commandURL={bad}")).0.admin.command_url, "/commands");
    }
    assert!(flag("admin.commandURL", &format!("/{}", "a".repeat(254))).is_ok());
    assert!(flag("admin.commandURL", &format!("/{}", "a".repeat(255))).is_err());
}

#[test]
fn what_zookeepers_parser_does_not_bound_is_taken_as_it_means_it() {
    assert_eq!(good("maxClientCnxns=-1").max_client_cnxns, 0, "no limit");
    assert_eq!(good("clientPortListenBacklog=-5").listen_backlog, 4096);
    assert_eq!(good("clientPortListenBacklog=100000").listen_backlog, 65_535);
}

#[test]
fn the_backlog_of_minus_one_or_zero_is_ours() {
    assert_eq!(good("clientPortListenBacklog=-1").listen_backlog, 4096);
    assert_eq!(good("clientPortListenBacklog=0").listen_backlog, 4096);
    assert_eq!(good("clientPortListenBacklog=1").listen_backlog, 1);
}

// --- keys: names, duplicates, unknown ones

#[test]
fn the_last_of_equal_keys_wins_even_over_a_faulty_one() {
    assert_eq!(good("tickTime=1\ntickTime=2").tick_time_ms, 2);
    assert_eq!(good("tickTime=nonsense\ntickTime=2").tick_time_ms, 2);
    assert_eq!(good("zookeeper.maxCnxns=1\nmaxCnxns=2").max_cnxns, 2);
    assert_eq!(good("maxCnxns=1\nzookeeper.maxCnxns=2").max_cnxns, 2);
    good("sslQuorum=true\nsslQuorum=false");
}

#[test]
fn keys_may_carry_the_prefix_of_system_properties() {
    let config = good("zookeeper.extendedTypesEnabled=true\nzookeeper.4lw.commands.whitelist=*");
    assert!(config.extended_types_enabled);
    assert_eq!(config.four_letter_words, FourLetterWords::All);
}

#[test]
fn an_unknown_key_is_a_mistake_of_its_own_with_the_key_that_was_probably_meant() {
    let lines = "foo=1\ntimeTick=2\ninitialLimit=5\nclientPrt=7\nautopurge.purgeInteval=1\n\
                 snapRetainCount=3\nsever.1=h:1:2\nsnapCount=7";
    let config = good(lines);
    let said: Vec<String> = config.mistakes.iter().map(ToString::to_string).collect();
    let unknown = "neither this server nor ZooKeeper 3.9 has such a key";
    assert_eq!(
        said,
        [
            format!("zoo.cfg:3: foo: {unknown}"),
            format!("zoo.cfg:4: timeTick: {unknown}; did you mean tickTime?"),
            format!("zoo.cfg:5: initialLimit: {unknown}; did you mean initLimit?"),
            format!("zoo.cfg:6: clientPrt: {unknown}; did you mean clientPort?"),
            format!(
                "zoo.cfg:7: autopurge.purgeInteval: {unknown}; did you mean autopurge.purgeInterval?"
            ),
            format!(
                "zoo.cfg:8: snapRetainCount: {unknown}; did you mean autopurge.snapRetainCount?"
            ),
            format!("zoo.cfg:9: sever.1: {unknown}; did you mean server.N?"),
        ]
    );
    assert_eq!(reasons(&config.ignored), ["snapCount"], "what is harmless is apart from them");
}

#[test]
fn a_key_that_is_given_twice_with_different_values_is_a_mistake() {
    let config = good("tickTime=5\ninitLimit=1\ninitLimit=1\nzookeeper.tickTime=6");
    let said: Vec<String> = config.mistakes.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "zoo.cfg:3: tickTime: given again in line 6, which holds: this line has no effect: remove one of the two"
        ]
    );
    assert_eq!(config.tick_time_ms, 6);
}

#[test]
fn a_line_without_a_key_is_a_mistake_as_zookeeper_starts_on_it() {
    let said = good("=5").mistakes[0].to_string();
    assert_eq!(said, "zoo.cfg:3: a line without a key; write key=value");
}

#[test]
fn mistakes_are_counted_beyond_a_bound() {
    let many = |count: usize| (0..count).fold(String::new(), |text, n| text + &format!("x{n}=\n"));
    assert_eq!(good(&many(CONFIG_ERRORS_MAX)).mistakes.len(), CONFIG_ERRORS_MAX);
    let mistakes = good(&many(CONFIG_ERRORS_MAX + 5)).mistakes;
    assert_eq!(mistakes.len(), CONFIG_ERRORS_MAX + 1);
    let last = mistakes.last().unwrap().to_string();
    assert_eq!(last, "zoo.cfg: and 5 more lines that are probably mistakes");
}

#[test]
fn unknown_keys_of_our_own_are_errors() {
    assert_eq!(
        fault("lockkeeper.auditlogs=x"),
        "zoo.cfg:3: lockkeeper.auditlogs: there is no such key; did you mean lockkeeper.auditLog?"
    );
    assert_eq!(fault("lockkeeper.x=y"), "zoo.cfg:3: lockkeeper.x: there is no such key");
    fault(&format!("lockkeeper.{}=y", "x".repeat(10_000)));
}

#[test]
fn every_error_is_reported_in_the_order_of_the_lines() {
    let text =
        "tickTime=0\ndataDir=/d\n\nclientPort=70000\nlockkeeper.a=\nserver.255=h:1:2\n\\u1=2\n";
    let lines: Vec<String> = parse(text)
        .unwrap_err()
        .iter()
        .map(|error| error.split(": ").take(2).collect::<Vec<_>>().join(": "))
        .collect();
    assert_eq!(
        lines,
        [
            "zoo.cfg:1: tickTime",
            "zoo.cfg:4: clientPort",
            "zoo.cfg:5: lockkeeper.a",
            "zoo.cfg:6: server.255",
            "zoo.cfg:7: a \\u escape needs four hexadecimal digits"
        ]
    );
}

#[test]
fn errors_are_counted_beyond_a_bound() {
    let many = |count: usize| {
        (0..count).fold(String::new(), |text, n| text + &format!("lockkeeper.{n}=\n"))
    };
    assert_eq!(with(&many(CONFIG_ERRORS_MAX)).unwrap_err().len(), CONFIG_ERRORS_MAX);
    let errors = with(&many(CONFIG_ERRORS_MAX + 5)).unwrap_err();
    assert_eq!(errors.len(), CONFIG_ERRORS_MAX + 1);
    assert_eq!(errors.last().unwrap(), "zoo.cfg: and 5 more errors");
}

#[test]
fn a_file_has_a_longest_length() {
    let padding = |bytes: usize| format!("{LEAST}#{}", "x".repeat(bytes - LEAST.len() - 1));
    assert!(parse(&padding(CONFIG_TEXT_BYTES_MAX)).is_ok());
    let errors = parse(&padding(CONFIG_TEXT_BYTES_MAX + 1)).unwrap_err();
    assert!(errors[0].contains("longer than 1048576 bytes"), "{errors:?}");
}

// --- protection that is not there

#[test]
fn keys_that_ask_for_missing_protection_are_refused_by_name() {
    for key in [
        "quorum.auth.enableSasl",
        "quorum.auth.serverRequireSasl",
        "quorum.auth.learnerRequireSasl",
    ] {
        let error = fault(&format!("{key}=true"));
        assert!(error.starts_with(&format!("zoo.cfg:3: {key}: refused: ")), "{error}");
        assert!(with(&format!("zookeeper.{key}=True")).is_err());
        good(&format!("{key}=false"));
        assert!(fault(&format!("{key}=perhaps")).contains("neither true nor false"));
    }
}

#[test]
fn other_quorums_are_refused_by_name() {
    for line in ["oraclePath=/o", "group.1=1:2", "weight.1=0", "weight.1=no"] {
        let error = fault(line);
        let key = line.split('=').next().unwrap();
        assert!(error.starts_with(&format!("zoo.cfg:3: {key}: refused: ")), "{error}");
    }
    good("oraclePath=");
}

#[test]
fn what_stands_for_the_built_in_schemes_is_taken() {
    let class = "org.apache.zookeeper.server.auth.X509AuthenticationProvider";
    assert_eq!(reasons(&good(&format!("authProvider.x509={class}")).warnings), [""; 0]);
    good("ssl.authProvider=x509");
    assert!(fault("ssl.authProvider=other").contains("refused"));
}

#[test]
fn what_clients_suites_always_write_only_warns() {
    let config = good(
        "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n\
         ssl.quorum.other=/q\nlocalSessionsEnabled=true",
    );
    assert_eq!(
        reasons(&config.warnings),
        [
            "ssl.quorum.other",
            "localSessionsEnabled",
            // The scheme is offered, and nothing names its users.
            "authProvider.N"
        ]
    );
    assert_eq!(reasons(&good("audit.enable=false").warnings), [""; 0]);
}

#[test]
fn less_protection_than_we_give_is_not_given_and_warned_of() {
    assert_eq!(reasons(&good("forceSync=no").warnings), ["forceSync"]);
    assert_eq!(reasons(&good("forceSync=yes").warnings), [""; 0]);
    assert_eq!(reasons(&good("skipACL=yes").warnings), ["skipACL"]);
    assert_eq!(reasons(&good("forceSync=sometimes").warnings), ["forceSync"]);
    assert_eq!(reasons(&good("leaderServes=no").warnings), ["leaderServes"]);
    assert_eq!(reasons(&good("leaderServes=yes").warnings), [""; 0]);
    assert_eq!(reasons(&good("observerMasterPort=2191").warnings), ["observerMasterPort"]);
    assert_eq!(reasons(&good("observerMasterPort=-1").warnings), [""; 0]);
}

#[test]
fn keys_of_zookeepers_parser_are_checked_though_without_effect() {
    for line in [
        "initLimit=x",
        "electionAlg=0",
        "peerType=leader",
        "autopurge.snapRetainCount=many",
        "jvm.pause.monitor=1",
        "localSessionsEnabled=on",
        "localSessionsUpgradingEnabled=on",
        "syncLimit=2147483648",
    ] {
        fault(line);
    }
    let config =
        good("electionAlg=3\npeerType=Observer\nsnapCount=whatever\nautopurge.purgeInterval=1d");
    assert_eq!(config.ignored.len(), 4);
}

#[test]
fn the_cpu_policy_is_auto_or_plain() {
    assert_eq!(good("").cpu_policy, CpuPolicyKey::Auto);
    assert_eq!(good("lockkeeper.cpuPolicy=plain").cpu_policy, CpuPolicyKey::Plain);
    assert_eq!(
        fault("lockkeeper.cpuPolicy=fast"),
        "zoo.cfg:3: lockkeeper.cpuPolicy: `fast` is neither auto nor plain"
    );
}

#[test]
fn the_threads_for_sockets_are_auto_or_a_number() {
    assert_eq!(good("").io_threads, None);
    assert_eq!(good("lockkeeper.ioThreads=auto").io_threads, None);
    assert_eq!(good("lockkeeper.ioThreads=0").io_threads, Some(0));
    assert_eq!(good("lockkeeper.ioThreads=64").io_threads, Some(64));
    for text in ["65", "-1", "many"] {
        assert_eq!(
            fault(&format!("lockkeeper.ioThreads={text}")),
            format!(
                "zoo.cfg:3: lockkeeper.ioThreads: `{text}` is neither auto nor a number up to 64"
            )
        );
    }
}

#[test]
fn clients_are_admitted_at_a_rate_that_the_cpu_policy_chooses_unless_given() {
    let default = good("");
    assert_eq!((default.admission_rate, default.admission_burst), (None, 64));
    let given = good("lockkeeper.admissionRate=0\nlockkeeper.admissionBurst=1");
    assert_eq!((given.admission_rate, given.admission_burst), (Some(0), 1));
    assert!(fault("lockkeeper.admissionBurst=0").contains("least value is 1"));
}

#[test]
fn reads_are_zookeepers_or_linearizable() {
    assert!(good("lockkeeper.reads=linearizable").linearizable_reads);
    assert!(!good("lockkeeper.reads=zookeeper").linearizable_reads);
    assert_eq!(
        fault("lockkeeper.reads=fast"),
        "zoo.cfg:3: lockkeeper.reads: `fast` is neither zookeeper nor linearizable"
    );
}

// --- flags

#[test]
fn flags_win_over_the_file_and_name_themselves_in_errors() {
    let mut draft = Draft::from_text("zoo.cfg", "clientPort=2181\ntickTime=100");
    draft.set("dataDir", "/flag", "--data-dir");
    draft.set("tickTime", "500", "--tick");
    let config = draft.resolve().unwrap();
    assert_eq!((config.tick_time_ms, config.max_session_timeout_ms), (500, 10_000));
    assert_eq!(config.origin("tickTime").unwrap().to_string(), "--tick");
    assert_eq!(config.origin("clientPort").unwrap().to_string(), "zoo.cfg:1");

    let mut draft = Draft::without_file();
    draft.set("tickTime", "soon", "--tick");
    let errors = draft.resolve().unwrap_err();
    assert_eq!(errors[0].to_string(), "--tick: tickTime: `soon` is not a whole number");
}

#[test]
fn a_whole_configuration_can_be_changed_and_stays_consistent() {
    let mut config = Config::default();
    config.set("clientPort", "0", "test").unwrap();
    config.set("tickTime", "100", "test").unwrap();
    config.set("dataDir", "/elsewhere", "test").unwrap();
    assert_eq!(config.client_addr, addr("127.0.0.1", 0));
    assert_eq!((config.min_session_timeout_ms, config.max_session_timeout_ms), (200, 2000));
    assert_eq!(config.data_log_dir, PathBuf::from("/elsewhere"));

    let before = config.clone();
    let errors = config.set("minSessionTimeout", "5000", "test").unwrap_err();
    assert_eq!(errors[0].key, "minSessionTimeout");
    assert_eq!(config, before, "a refused change changes nothing");
    config.set("skipACL", "yes", "test").unwrap();
    assert_eq!(reasons(&config.warnings), ["skipACL"]);
    config.set("skipACL", "no", "test").unwrap();
    assert_eq!(reasons(&config.warnings), [""; 0]);
}

#[test]
fn a_disk_hangs_after_sync_limit_ticks_or_five_seconds_whichever_is_less() {
    let stall = |lines: &str| good(lines).disk_stall_ms;
    assert_eq!(stall(""), 5000);
    assert_eq!(stall("tickTime=200\nsyncLimit=5"), 1000);
    assert_eq!(stall("tickTime=2000\nsyncLimit=5"), 5000);
    assert_eq!(stall("tickTime=10\nsyncLimit=1"), 200, "several elections fit in");
    assert_eq!(stall("lockkeeper.diskStallMillis=200\nsyncLimit=5"), 200);
    let short = fault("lockkeeper.diskStallMillis=199");
    assert!(short.ends_with("199 is too small: the least value is 200, or -1"), "{short}");
}
