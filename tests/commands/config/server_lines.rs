//! Who the servers are: the server lines, in the file or in one of their own, and myid.

use std::path::Path;

use lockkeeper::internals::config::{Config, Draft, Role};

use super::{LEAST, addr, fault, good, parse, reasons, with};

/// A file of the least keys and these, on the server `myid`.
fn on(myid: &str, lines: &str) -> Result<Config, Vec<String>> {
    let mut draft = Draft::from_text("zoo.cfg", &format!("{LEAST}{lines}"));
    draft.set_myid("/data/myid", myid);
    draft.resolve().map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

const THREE: &str = "server.1=a:2888:3888\nserver.2=b:2888:3888\nserver.3=c:2888:3888";

#[test]
fn one_participant_is_a_single_server() {
    let config = good("server.7=host:2888:3888");
    assert_eq!(config.servers.len(), 1);
    assert_eq!((config.servers[0].id, config.servers[0].role), (7, Role::Participant));
    assert!(!config.is_ensemble() && !Config::default().is_ensemble());
}

#[test]
fn several_participants_are_an_ensemble() {
    let config = on("2", THREE).unwrap();
    assert!(config.is_ensemble());
    assert_eq!((config.servers.len(), config.server_id), (3, Some(2)));
    assert_eq!(config.own_server().unwrap().addresses[0].host, "b");
    assert_eq!((config.warnings.len(), config.ignored.len()), (0, 0));
    let with_observers = format!("{THREE}\nserver.4=d:2888:3888:observer");
    assert_eq!(on("4", &with_observers).unwrap().own_server().unwrap().role, Role::Observer);
}

#[test]
fn one_participant_is_an_ensemble_where_standalone_is_off() {
    let alone = "standaloneEnabled=false\nserver.1=[::1]:2888:3888:participant";
    let config = on("1", alone).unwrap();
    assert!(config.is_ensemble());
    assert_eq!(reasons(&config.warnings), ["server.N"], "it may not fail");
    assert!(on("2", &format!("{alone}\nserver.2=h:1:2:observer")).unwrap().is_ensemble());
}

#[test]
fn a_server_of_an_ensemble_needs_its_number() {
    assert_eq!(
        with(THREE).unwrap_err(),
        ["/data/myid: missing: write the number of this server (1, 2, 3: the N of its own line \
          server.N) into this file, or give it once with --myid N"]
    );
    let faulty = on("one", THREE).unwrap_err();
    assert_eq!(faulty.len(), 1, "and nothing else: {faulty:?}");
    let mut draft = Draft::from_text("zoo.cfg", &format!("{LEAST}{THREE}"));
    draft.set_server_id("3", "--myid");
    assert_eq!(draft.resolve().unwrap().server_id, Some(3));
}

#[test]
fn a_number_given_by_flag_must_agree_with_the_file() {
    let both = |flag: &str| {
        let mut draft = Draft::from_text("zoo.cfg", &format!("{LEAST}{THREE}"));
        draft.set_myid("/data/myid", "3\n");
        draft.set_server_id(flag, "--myid");
        draft.resolve().map_err(|errors| errors[0].to_string())
    };
    assert_eq!(both("3").unwrap().server_id, Some(3));
    assert_eq!(both("2").unwrap_err(), "--myid: `2` is not the number in /data/myid, 3");
}

#[test]
fn a_server_of_an_ensemble_needs_a_line_of_its_own() {
    let errors = on("4", THREE).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("/data/myid:1: 4 has no server line (there are 1, 2, 3): "));
    assert!(errors[0].contains("lockkeeper member add 'server.4=...'"), "{errors:?}");
}

#[test]
fn two_servers_cannot_be_on_one_address() {
    let fault = |lines: &str| on("1", lines).unwrap_err();
    assert_eq!(
        fault("server.1=a:1:2\nserver.2=A:1:3\nserver.3=c:1:2"),
        ["zoo.cfg:4: server.2: a:1 is the address of server 1, too"]
    );
    assert_eq!(fault("server.1=a:1:2|x:5:6\nserver.2=b:1:2|x:5:7\nserver.3=c:1:2").len(), 1);
    let clients = "server.1=a:1:2;10.0.0.1:5\nserver.2=b:1:2;10.0.0.1:5\nserver.3=c:1:2";
    let clients = Draft::from_text("zoo.cfg", &format!("dataDir=/d\n{clients}"));
    let mut clients = clients;
    clients.set_myid("myid", "1");
    assert!(clients.resolve().unwrap_err()[0].reason.contains("10.0.0.1:5"));
    on("1", "server.1=a:1:2;2181\nserver.2=b:1:2;2181\nserver.3=c:1:2;2181").unwrap();
    on("1", "server.1=h:1:2\nserver.2=h:3:4\nserver.3=h:5:6").unwrap();
}

#[test]
fn several_addresses_are_refused_where_the_file_says_so() {
    let lines = "server.1=a:1:2\nserver.2=b:1:2|x:1:2\nserver.3=c:1:2\nmultiAddress.enabled=";
    let reason = "several addresses, and multiAddress.enabled=false: leave one, or remove that key";
    assert_eq!(
        on("1", &format!("{lines}false")).unwrap_err(),
        [format!("zoo.cfg:4: server.2: {reason}")]
    );
    on("1", &format!("{lines}true")).unwrap();
    on("1", &lines.replace("multiAddress.enabled=", "")).unwrap();
    on("1", "server.1=a:1:2\nserver.2=b:1:2\nmultiAddress.enabled=false").unwrap();
    assert!(fault("server.1=a:1:2|b:1:2\nmultiAddress.enabled=false").ends_with(reason));
}

#[test]
fn weak_ensembles_are_warned_of_as_zookeeper_does() {
    let warning = |lines: &str| {
        let config = on("1", lines).unwrap();
        config.warnings.iter().map(|(key, why)| format!("{key}: {why}")).collect::<Vec<_>>()
    };
    let two = "server.1=a:1:2\nserver.2=b:1:2";
    assert!(warning(two)[0].starts_with("server.N: two participants: neither may fail"));
    let four = format!("{two}\nserver.3=c:1:2\nserver.4=d:1:2");
    assert!(warning(&four)[0].contains("no more of them may fail than of 3"));
    let observer = format!("{two}\nserver.3=c:1:2\nserver.4=d:1:2:observer");
    assert_eq!(warning(&observer), [""; 0]);
    let of_another = "server.1=a:1:2\nserver.2=0.0.0.0:1:2\nserver.3=c:1:2";
    assert!(warning(of_another)[0].starts_with("server.2: 0.0.0.0 is no address under which"));
    let own = "server.1=0.0.0.0:1:2\nserver.2=b:1:2\nserver.3=c:1:2";
    assert_eq!(warning(own), [""; 0], "it is what this server binds");
}

#[test]
fn a_peer_type_that_differs_from_the_own_line_is_warned_of() {
    let lines = format!("{THREE}\nserver.4=d:2888:3888:observer");
    for (myid, peer_type, warned) in [
        ("1", "participant", 0),
        ("4", "observer", 0),
        ("1", "observer", 1),
        ("4", "PARTICIPANT", 1),
    ] {
        let config = on(myid, &format!("{lines}\npeerType={peer_type}")).unwrap();
        assert_eq!(config.warnings.len(), warned, "{myid} {peer_type}: {:?}", config.warnings);
    }
}

#[test]
fn observers_need_participants() {
    assert!(fault("server.1=a:1:2:observer").contains("observers without a participant"));
    let one = "server.1=a:1:2\nserver.2=b:1:2:observer";
    assert!(fault(one).contains("observers need more than one participant"));
    assert!(fault("standaloneEnabled=false").contains("there are none"));
}

#[test]
fn a_faulty_server_line_names_its_part() {
    assert!(fault("server.1=host:2888").starts_with("zoo.cfg:3: server.1: expected host:peerPort"));
    assert!(fault("server.x=h:1:2").contains("the server id `x` is not a number from 0 to 254"));
    assert!(fault("server.255=h:1:2").contains("is above 254"));
    let twice = "server.1=h:1:2\nserver.01=h:1:2";
    assert_eq!(fault(twice), "zoo.cfg:4: server.01: there are two lines for server 1");
}

#[test]
fn the_own_server_line_may_give_the_client_port() {
    let text = "dataDir=/d\nserver.1=h:1:2;[::1]:2181\n";
    assert_eq!(parse(text).unwrap().client_addr, addr("::1", 2181));
    let config = good("server.1=h:1:2;10.0.0.1:2181");
    assert_eq!(config.client_addr, addr("10.0.0.1", 2181), "the static address was the wildcard");
    let error = on("1", "server.1=h:1:2;2182").unwrap_err();
    assert_eq!(
        error,
        ["zoo.cfg:2: clientPort: 0.0.0.0:2181 differs from 0.0.0.0:2182 of the own server line"]
    );
    assert!(on("1", "clientPortAddress=10.0.0.1\nserver.1=h:1:2;10.0.0.2:2181").is_err());
    // Without myid ZooKeeper does not look at the line.
    let config = good("server.1=h:1:2;2182");
    assert_eq!(config.client_addr, addr("0.0.0.0", 2181));
    assert_eq!(reasons(&config.warnings), ["clientPort"]);
}

#[test]
fn myid_is_a_number_in_the_first_line_and_a_server_on_its_own_needs_none() {
    assert_eq!(on("3\n", "").unwrap().server_id, Some(3));
    assert_eq!(on("0", "").unwrap().server_id, Some(0));
    assert_eq!(on(" 254 \r\nrest", "").unwrap().server_id, Some(254));
    let three = "`three` is not a number from 0 to 254";
    assert_eq!(on("three", THREE).unwrap_err(), [format!("/data/myid:1: the server id {three}")]);
    for bad in ["", "three", "-1", "255", "99999999999999999999", "\u{fe}\u{ff}"] {
        assert!(on(bad, THREE).is_err(), "{bad}");
        let config = on(bad, "server.1=h:1:2").unwrap();
        assert_eq!(config.server_id, None, "{bad}");
        let [(key, reason)] = &config.warnings[..] else { panic!("{:?}", config.warnings) };
        assert_eq!(key, "myid");
        assert!(reason.contains("A server on its own needs none"), "{reason}");
    }
    let mut draft = Draft::from_text("zoo.cfg", LEAST);
    assert_eq!(draft.data_dir(), Some(Path::new("/data")), "where the file is looked for");
    draft.set_myid("/data/myid", "three");
    draft.set_server_id("2", "--myid");
    assert_eq!(
        draft.resolve().unwrap().server_id,
        Some(2),
        "a flag may say what the file does not"
    );
    let mut draft = Draft::from_text("zoo.cfg", LEAST);
    draft.set_server_id("three", "--myid");
    assert_eq!(
        draft.resolve().unwrap_err()[0].to_string(),
        format!("--myid: the server id {three}")
    );
}

#[test]
fn a_server_that_is_given_twice_is_a_mistake_even_if_both_lines_are_the_same() {
    for second in ["server.3=c:2888:3888", "server.3=d:2888:3888"] {
        let config = on("1", &format!("{THREE}\n{second}")).unwrap();
        let said: Vec<String> = config.mistakes.iter().map(ToString::to_string).collect();
        let again = "given again in line 6, which holds: this line has no effect: remove it, or give it the number of \
                     another server";
        assert_eq!(said, [format!("zoo.cfg:5: server.3: {again}")]);
        assert_eq!(config.servers[2].to_string(), format!("{}:participant", &second[9..]));
    }
}

#[test]
fn an_own_line_that_says_loopback_is_warned_of_where_others_are_on_other_machines() {
    let warnings = |host: &str, more: &str| {
        let lines = format!("server.1={host}:1:2\nserver.2=zk2:1:2\nserver.3=10.0.0.3:1:2\n{more}");
        let config = on("1", &lines).unwrap();
        reasons(&config.warnings).into_iter().map(str::to_string).collect::<Vec<_>>()
    };
    for host in ["127.0.0.1", "localhost", "[::1]"] {
        assert_eq!(warnings(host, ""), ["server.1"], "{host}");
        assert_eq!(warnings(host, "quorumListenOnAllIPs=true"), [""; 0]);
    }
    assert_eq!(warnings("zk1", ""), [""; 0]);
    let here = "server.1=127.0.0.1:1:2\nserver.2=127.0.0.1:3:4\nserver.3=localhost:5:6";
    assert_eq!(reasons(&on("1", here).unwrap().warnings), [""; 0]);
}

#[test]
fn a_myid_that_is_not_the_only_servers_is_warned_of() {
    let mut draft = Draft::from_text("zoo.cfg", &format!("{LEAST}server.1=h:1:2"));
    draft.set_myid("myid", "2");
    assert_eq!(reasons(&draft.resolve().unwrap().warnings), ["server.1"]);
}

#[test]
fn server_lines_may_be_in_a_dynamic_file() {
    let text = format!("{LEAST}dynamicConfigFile=zoo.cfg.dynamic.1\n");
    let load = |dynamic: &str| {
        let mut draft = Draft::from_text("zoo.cfg", &text);
        assert_eq!(draft.dynamic_config_file(), Some("zoo.cfg.dynamic.1"));
        draft.load_dynamic("zoo.cfg.dynamic.1", dynamic);
        draft.resolve().map_err(|errors| errors[0].to_string())
    };
    let config = load("server.1=h:1:2:participant;2181\n").unwrap();
    assert_eq!(config.servers[0].to_string(), "h:1:2:participant;0.0.0.0:2181");
    assert_eq!(
        load("server.1=h:1:2\nversion=1").unwrap_err(),
        "zoo.cfg.dynamic.1:2: version: the version is the suffix of the file's name"
    );
    assert!(load("tickTime=1").unwrap_err().contains("only server lines"));
    assert!(load("group.1=1").unwrap_err().contains("refused"));
    let config = load("group.1=1\nserver.1=h:1:2").unwrap();
    assert_eq!(reasons(&config.ignored), ["group.1"]);
    assert!(load("server.1=a:1:2\nserver.2=b:1:2").unwrap_err().contains("/data/myid: missing"));
}

#[test]
fn one_group_of_all_participants_with_equal_weights_is_a_majority() {
    let config = on("2", &format!("group.1=1:2:3\n{THREE}\nweight.1=2\nweight.2=2\nweight.3=2"));
    let config = config.unwrap();
    assert!(config.is_ensemble());
    assert_eq!(reasons(&config.ignored), ["group.1", "weight.1", "weight.2", "weight.3"]);
    assert_eq!(config.warnings.len(), 0);
    let observed = format!("{THREE}\nserver.4=d:2888:3888:observer\ngroup.1=1:2:3");
    assert!(on("4", &observed).is_ok(), "an observer is in no group");
}

#[test]
fn other_groups_are_refused_by_the_line_that_makes_them_so() {
    let more = format!("{THREE}\ngroup.1=1:2:3\nweight.1=10");
    assert_eq!(
        on("1", &more).unwrap_err(),
        [
            "zoo.cfg:6: group.1: refused: hierarchical quorums are not offered, and the weights differ: \
          server 1 has 10, server 2 has 1"
        ]
    );
    let faulty = format!("{THREE}:leader\ngroup.1=1:2:3");
    assert_eq!(on("1", &faulty).unwrap_err().len(), 1, "of the server line alone");
}

#[test]
fn server_lines_beside_a_dynamic_file_are_an_error_wherever_they_stand() {
    for text in [
        "server.1=h:1:2\ndynamicConfigFile=d",
        "dynamicConfigFile=d\nserver.1=h:1:2",
        "dynamicConfigFile=d\ngroup.1=1",
    ] {
        let mut draft = Draft::from_text("zoo.cfg", &format!("{LEAST}{text}"));
        draft.load_dynamic("d", "server.1=h:1:2");
        let errors = draft.resolve().unwrap_err();
        assert!(errors[0].reason.contains("must be in the dynamicConfigFile"), "{errors:?}");
    }
}

#[test]
fn a_dynamic_file_that_was_not_read_is_never_taken_for_a_single_server() {
    assert!(fault("dynamicConfigFile=d").contains("the text of d was not given"));
}
