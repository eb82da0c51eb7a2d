//! Whole configuration files: those that clients' test suites write, conf/zoo.cfg and
//! docs/CONFIGURATION.md (which must say what the code does), and `lockkeeper config check`.

use std::path::{Path, PathBuf};

use lockkeeper::internals::config::{Config, Draft, Effect, SECTIONS};
use testkit::rng::Rng;

const LEAST: &str = "dataDir=/data\nclientPort=2181\n";

fn parse(text: &str) -> Result<Config, Vec<String>> {
    Config::parse("zoo.cfg", text)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

fn reasons(notes: &[(String, String)]) -> Vec<&str> {
    notes.iter().map(|(key, _)| key.as_str()).collect()
}

// --- files that clients' test suites write

#[test]
fn the_file_of_kazoos_harness_is_a_server() {
    let text = "\ntickTime=2000\ndataDir=/tmp/x/data\nclientPort=20000\nsecureClientPort=20004\n\
        maxClientCnxns=0\nadmin.serverPort=20003\n\
        serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
        authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n\
        ssl.keyStore.location=/tmp/x/keystore.jks\nssl.keyStore.password=apassword\n\
        ssl.trustStore.location=/tmp/x/truststore.jks\nssl.trustStore.password=apassword\n\
        reconfigEnabled=true\n4lw.commands.whitelist=*\n\
        DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n\
        extendedTypesEnabled=true\nemulate353TTLNodes=true\nenableEagerACLCheck=true\n\
        localSessionsEnabled=true\nlocalSessionsUpgradingEnabled=true\n\
        readonlymode.enabled=true\nznode.container.checkIntervalMs=500\n\
        jute.maxbuffer=0x1fffff\ninitLimit=4\nsyncLimit=2\n\
        server.1=localhost:20002:20001:participant\npeerType=participant\n";
    let config = parse(text).unwrap();
    assert_eq!(config.client_addr.port, 20_000);
    assert_eq!((config.max_client_cnxns, config.admin.addr.port), (0, 20_003));
    assert_eq!(config.jute_max_buffer, 0x1f_ffff);
    assert_eq!(config.containers.check_interval_ms, 500);
    assert!(config.extended_types_enabled && config.eager_acl_check && config.reconfig_enabled);
    // One of them: a scheme whose users nothing names.
    assert_eq!(config.warnings.len(), 2);
    assert!(config.warnings.iter().any(|(key, _)| key == "authProvider.N"));
    assert_eq!(config.tls.secure_client_port, Some(20_004));
}

#[test]
fn the_file_of_the_go_clients_harness_is_a_server() {
    let text = "tickTime=500\ninitLimit=10\nsyncLimit=5\ndataDir=/tmp/gozk/srv1\nclientPort=33221\n\
        4lw.commands.whitelist=*\nreconfigEnabled=true\nstandaloneEnabled=true\n\
        admin.enableServer=false\nautopurge.snapRetainCount=1\nautopurge.purgeInterval=0\n\
        server.1=127.0.0.1:33222:33223\n";
    let config = parse(text).unwrap();
    assert_eq!(config.max_session_timeout_ms, 10_000);
    assert!(!config.admin.enabled && config.reconfig_enabled);
}

#[test]
fn the_file_of_curators_test_server_is_a_server() {
    let text = "#Sat Nov 21 02:37:21 UTC 2026\ninitLimit=10\nsyncLimit=5\nclientPort=43211\n\
        dataDir=C\\:\\\\Temp\\\\curator\ntickTime=1000\nmaxClientCnxns=100\n\
        extendedTypesEnabled=true\n";
    let config = parse(text).unwrap();
    assert_eq!(config.data_dir, PathBuf::from("C:\\Temp\\curator"));
    assert_eq!(config.max_client_cnxns, 100);
}

#[test]
fn an_old_production_file_is_a_server() {
    let text = "# The number of milliseconds of each tick\ntickTime=2000\ninitLimit=10\nsyncLimit=5\n\
        dataDir=/var/lib/zookeeper\ndataLogDir=/var/log/zk-txn\nclientPort=2181\n\
        clientPortAddress=10.1.2.3\nmaxClientCnxns=200\nautopurge.snapRetainCount=3\n\
        autopurge.purgeInterval=24\nsnapCount=50000\npreAllocSize=65536\nglobalOutstandingLimit=2000\n\
        forceSync=no\nfsync.warningthresholdms=50\nleaderServes=yes\ncnxTimeout=5\n\
        metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\n\
        metricsProvider.exportJvmInfo=true\nminSessionTimeout=4000\nmaxSessionTimeout=120000\n\
        electionAlg=3\nserver.1=zk1:2888:3888\n";
    let config = parse(text).unwrap();
    assert_eq!(config.data_log_dir, PathBuf::from("/var/log/zk-txn"));
    assert_eq!(config.global_outstanding_limit, 2000);
    assert_eq!(reasons(&config.warnings), ["forceSync"]);
    assert!(reasons(&config.ignored).contains(&"metricsProvider.exportJvmInfo"));
}

// --- the documents

/// Compares a generated file of the repository with what the table says now.
fn assert_up_to_date(name: &str, now: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if std::fs::read_to_string(&path).is_ok_and(|text| text == now) {
        return;
    }
    let file = path.file_name().expect("the name is that of a file");
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    std::fs::write(&fresh, now).unwrap();
    panic!("{name} lags behind the table in src/config; run: cp {} {name}", fresh.display());
}

#[test]
fn the_reference_page_is_generated_from_the_table() {
    assert_up_to_date("docs/CONFIGURATION.md", &Config::markdown());
}

#[test]
fn the_sample_file_is_generated_from_the_table() {
    assert_up_to_date("conf/zoo.cfg", &Config::sample());
}

/// `key=value` and `#key=value` lines of the sample, and whether they are commented out.
fn sample_settings() -> Vec<(String, String, bool)> {
    let setting = |line: &str| {
        let commented = line.starts_with('#');
        let (key, value) = line.strip_prefix('#').unwrap_or(line).split_once('=')?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_');
        key.chars().all(plain).then(|| (key.to_string(), value.to_string(), commented))
    };
    include_str!("../../conf/zoo.cfg").lines().filter_map(setting).collect()
}

#[test]
fn the_sample_shows_every_effective_key_with_its_default_and_no_other() {
    let shown: Vec<(String, String)> = sample_settings()
        .into_iter()
        .map(|(key, value, commented)| (key, if commented { value } else { String::new() }))
        .collect();
    let known: Vec<(String, String)> = SECTIONS
        .iter()
        .flat_map(|section| section.keys)
        .map(|key| {
            assert_eq!(key.effect, Effect::Effective);
            let default = if key.sample.is_some() { "" } else { key.default };
            (key.name.to_string(), default.to_string())
        })
        .collect();
    assert_eq!(shown, known);
}

#[test]
fn taking_the_comments_off_the_sample_changes_nothing() {
    let sample = parse(include_str!("../../conf/zoo.cfg")).unwrap();
    let all: String =
        sample_settings().iter().map(|(key, value, _)| format!("{key}={value}\n")).collect();
    let uncommented = parse(&all).unwrap();
    let values = |config: &Config| -> Vec<String> {
        let text = config.describe();
        text.lines().map(|line| line.split("  (").next().unwrap().to_string()).collect()
    };
    assert_eq!(values(&sample), values(&uncommented));
}

#[test]
fn the_description_shows_values_and_where_they_come_from() {
    let text = parse(&format!("{LEAST}server.1=h:1:2\nfoo=1\nskipACL=yes")).unwrap().describe();
    for line in [
        "dataDir = /data  (zoo.cfg:1)",
        "tickTime = 3000",
        "minSessionTimeout = 6000",
        "lockkeeper.auditLog = -",
        "server.1 = h:1:2:participant",
        "warning: skipACL: no ACL is checked: everybody may do everything",
        "probably a mistake: zoo.cfg:4: foo: neither this server nor ZooKeeper 3.9 has such a key",
    ] {
        assert!(text.lines().any(|known| known == line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn keys_that_only_count_on_the_leader_are_named_where_an_ensemble_sets_them() {
    let three = "server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2\n";
    let words = |lines: &str| {
        let mut draft = Draft::from_text("zoo.cfg", &format!("{LEAST}{lines}"));
        draft.set_server_id("1", "--myid");
        draft.resolve().unwrap().leaders_words()
    };
    let set = "enforceQuota=true\nskipACL=yes\nenableEagerACLCheck=false\ntickTime=2000\n";
    assert_eq!(words(set), None, "a single server");
    assert_eq!(words(three), None, "nothing is set");
    assert_eq!(
        words(&format!("{three}{set}")).unwrap(),
        "count only on the server that leads, so set them alike on all servers: enforceQuota, skipACL (for writes)"
    );
}

// --- the three servers of conf/ensemble

#[test]
fn the_sample_ensemble_is_three_servers_on_loopback() {
    let mut lines = Vec::new();
    for id in 1..=3_u8 {
        let path = format!("conf/ensemble/zoo{id}.cfg");
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&path));
        let mut draft = Draft::from_text(&path, &text.unwrap());
        draft.set_server_id(&id.to_string(), "--myid");
        let config = draft.resolve().unwrap();
        assert!(config.is_ensemble() && config.own_server().unwrap().id == id);
        assert_eq!(config.data_dir, PathBuf::from(format!("./lockkeeper-data/{id}")));
        assert!(config.client_addr.is_loopback() && config.admin.addr.is_loopback());
        assert_eq!(config.client_addr.port, 2180 + u16::from(id));
        assert_eq!(reasons(&config.warnings), [""; 0]);
        lines.push(config.servers);
    }
    assert!(lines.iter().all(|servers| *servers == lines[0]), "the same lines everywhere");
}

// --- hostile input

#[test]
fn no_text_makes_the_parser_panic() {
    let sample = Config::sample() + "server.1=[::1]:1:2|h:3:4:observer;5;6\na=\\u00e9\\\n b\n";
    let mut rng = Rng::new(1, 0);
    let mut next = |bound: usize| rng.index(bound);
    let spice = b"=:#!\\u0-9.;|[]\r\n\t \x00xN*%\xc3\xa9";
    for _ in 0..2000 {
        let mut bytes = sample.clone().into_bytes();
        let start = next(bytes.len());
        bytes.drain(..start);
        bytes.truncate(1 + next(600));
        for _ in 0..1 + next(8) {
            let at = next(bytes.len());
            bytes[at] = spice[next(spice.len())];
        }
        let text = String::from_utf8_lossy(&bytes);
        let mut draft = Draft::from_text("f", &text);
        draft.load_dynamic("d", &text);
        draft.set_myid("m", &text);
        if let Ok(config) = draft.resolve() {
            assert!(!config.describe().is_empty());
        }
    }
}

// --- the command

#[cfg(feature = "server")]
mod command {
    use super::LEAST;
    use lockkeeper::internals::cli::config_check;
    use std::fs;
    use std::path::Path;

    fn check(path: &Path) -> (i32, String, String) {
        check_as(path, false)
    }

    fn check_as(path: &Path, is_strict: bool) -> (i32, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = config_check::check(path, None, is_strict, false, &mut out, &mut err).unwrap();
        (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn config_check_shows_the_values_of_a_good_file_and_exits_with_0() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("zoo.cfg");
        let data = dir.path().display();
        fs::write(dir.path().join("myid"), "5\n").unwrap();
        fs::write(dir.path().join("dyn"), "server.5=h:1:2").unwrap();
        let text = format!("dataDir={data}\nclientPort=2181\ndynamicConfigFile={data}/dyn\n");
        fs::write(&path, text).unwrap();
        let (code, out, err) = check(&path);
        assert_eq!((code, err.as_str()), (0, ""));
        for line in ["myid = 5", "server.5 = h:1:2:participant"] {
            assert!(out.lines().any(|known| known == line), "{line} is not in\n{out}");
        }
    }

    #[test]
    fn config_check_names_every_fault_and_exits_with_2() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("zoo.cfg");
        fs::write(&path, format!("{LEAST}tickTime=x\nquorum.auth.enableSasl=true\n")).unwrap();
        let (code, out, err) = check(&path);
        assert_eq!((code, out.as_str()), (2, ""));
        let name = path.display();
        assert!(err.starts_with(&format!("{name}:3: tickTime: ")), "{err}");
        assert!(err.contains(&format!("{name}:4: quorum.auth.enableSasl: refused: ")), "{err}");
    }

    #[test]
    fn config_check_opens_the_files_of_keys_and_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("zoo.cfg");
        for (lines, word) in [
            (
                "secureClientPort=1\nssl.clientAuth=none\nssl.keyStore.location=/there/is/none.pem\n",
                "/there/is/none.pem",
            ),
            ("lockkeeper.adminTokenFile=/there/is/no-token\n", "/there/is/no-token"),
        ] {
            fs::write(&path, format!("{LEAST}{lines}")).unwrap();
            let (code, out, err) = check(&path);
            assert_eq!((code, out.as_str()), (2, ""), "{err}");
            assert!(err.contains(word), "{err}");
        }
    }

    #[test]
    fn config_check_names_files_that_cannot_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let (code, _, err) = check(&dir.path().join("absent.cfg"));
        assert_eq!(code, 2);
        assert!(err.contains("absent.cfg: cannot be read: "), "{err}");
        assert_eq!(err.lines().count(), 1, "and nothing else: {err}");

        let path = dir.path().join("zoo.cfg");
        fs::write(&path, format!("{LEAST}dynamicConfigFile=/nonexistent/dyn\n")).unwrap();
        let (code, _, err) = check(&path);
        assert_eq!(code, 2);
        assert!(err.contains("/nonexistent/dyn: dynamicConfigFile: cannot be read: "), "{err}");
        assert_eq!(err.lines().count(), 1, "and nothing else: {err}");
    }

    #[test]
    fn a_file_that_is_not_utf_8_is_latin_1_as_java_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("zoo.cfg");
        fs::write(&path, b"# Gr\xfc\xdfe\ndataDir=/d\xe9\nclientPort=1\n").unwrap();
        let (code, out, err) = check(&path);
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.starts_with("dataDir = /d\u{e9}  ("), "{out}");
    }

    #[test]
    fn a_strict_check_fails_on_lines_that_are_probably_mistakes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("zoo.cfg");
        let name = path.display();
        let server = "server.1=h:1:2";
        for (line, said) in [
            ("timeTick=5\n", format!("{name}:3: timeTick: ")),
            (
                &format!("{server}\n{server}\n"),
                format!("{name}:3: server.1: given again in line 4"),
            ),
        ] {
            fs::write(&path, format!("{LEAST}{line}")).unwrap();
            assert_eq!(check(&path).0, 0);
            let (code, out, err) = check_as(&path, true);
            assert_eq!((code, out.as_str()), (2, ""));
            assert!(err.starts_with(&said) && err.lines().count() == 1, "{err}");
        }
        fs::write(&path, format!("{LEAST}initLimit=5\nforceSync=no\n")).unwrap();
        assert_eq!(check_as(&path, true).0, 0, "what is warned of is no mistake");
    }
}
