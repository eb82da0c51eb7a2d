//! The variables of the image `zookeeper` of Docker's official images.
//!
//! *Owns* the zoo.cfg that they stand for, line by line as that image's entry point writes it, and one line more:
//! ZooKeeper offers its HTTP port at all addresses, this server at the loopback address, where no probe reaches it.

use std::path::{Path, PathBuf};

use super::files::{NewFile, Plan};
use super::variables::Variables;

/// The server line of a container that is told of no others.
const SERVERS_DEFAULT: &str = "server.1=localhost:2888:3888;2181";

/// Takes the number of the server from the name of its host; what is added to it.
const ID_FROM_HOSTNAME: &str = "LOCKKEEPER_ID_FROM_HOSTNAME";

/// Names of variables, what each is without one, and the keys that they are.
const KEYS: [(&str, &str, &str); 8] = [
    ("ZOO_TICK_TIME", "2000", "tickTime"),
    ("ZOO_INIT_LIMIT", "5", "initLimit"),
    ("ZOO_SYNC_LIMIT", "2", "syncLimit"),
    ("ZOO_AUTOPURGE_SNAPRETAINCOUNT", "3", "autopurge.snapRetainCount"),
    ("ZOO_AUTOPURGE_PURGEINTERVAL", "0", "autopurge.purgeInterval"),
    ("ZOO_MAX_CLIENT_CNXNS", "60", "maxClientCnxns"),
    ("ZOO_STANDALONE_ENABLED", "true", "standaloneEnabled"),
    ("ZOO_ADMINSERVER_ENABLED", "true", "admin.enableServer"),
];

/// What is to be there.
///
/// # Errors
/// What is wrong with the variables.
pub(super) fn plan(variables: &Variables) -> Result<Plan, String> {
    let directory = |name: &str, default: &str| PathBuf::from(variables.or(name, default));
    let data = directory("ZOO_DATA_DIR", "/data");
    let log = directory("ZOO_DATA_LOG_DIR", "/datalog");
    let config_dir = directory("ZOO_CONF_DIR", "/conf");
    let myid = NewFile::new(data.join("myid"), format!("{}\n", id(variables)?));
    let config = NewFile::new(config_dir.join("zoo.cfg"), config(variables, &data, &log));
    Ok(Plan {
        directories: vec![data, log, directory("ZOO_LOG_DIR", "/logs")],
        files: vec![config, myid],
        config_dir,
    })
}

/// `ZOO_MY_ID`, or the number at the end of the host's name, as the pods of a StatefulSet have it, and so much more.
fn id(variables: &Variables) -> Result<String, String> {
    let Some(offset) = variables.get(ID_FROM_HOSTNAME) else {
        return Ok(variables.or("ZOO_MY_ID", "1").to_string());
    };
    let offset: u32 =
        offset.parse().map_err(|_| format!("{ID_FROM_HOSTNAME}: `{offset}` is no number"))?;
    let host = variables.or("HOSTNAME", "");
    let number = host.rsplit_once('-').and_then(|(_, number)| number.parse::<u32>().ok());
    match number.and_then(|number| number.checked_add(offset)) {
        Some(id) => Ok(id.to_string()),
        None => Err(format!("{ID_FROM_HOSTNAME}: HOSTNAME is `{host}`, and does not end in -N")),
    }
}

fn config(variables: &Variables, data: &Path, log: &Path) -> String {
    let mut lines =
        vec![format!("dataDir={}", data.display()), format!("dataLogDir={}", log.display())];
    for (name, default, key) in KEYS {
        lines.push(format!("{key}={}", variables.or(name, default)));
    }
    let words = |name: &str, default| {
        let words = variables.or(name, default).split_whitespace();
        words.map(str::to_string).collect::<Vec<_>>()
    };
    let extra = words("ZOO_CFG_EXTRA", "");
    if !extra.iter().any(|line| line.starts_with("admin.serverAddress=")) {
        lines.push("admin.serverAddress=0.0.0.0".to_string());
    }
    lines.extend(words("ZOO_SERVERS", SERVERS_DEFAULT));
    if let Some(allowed) = variables.get("ZOO_4LW_COMMANDS_WHITELIST") {
        lines.push(format!("4lw.commands.whitelist={allowed}"));
    }
    // Last, so that they win.
    lines.extend(extra);
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Draft;

    fn texts(variables: &str) -> (String, String) {
        let plan = plan(&Variables::of(variables)).unwrap();
        let [config, myid] = plan.files.as_slice() else { panic!("two files") };
        assert_eq!(config.path, plan.config_dir.join("zoo.cfg"));
        (config.text.clone(), myid.text.clone())
    }

    /// The configuration that a server takes from it.
    fn resolved(variables: &str) -> crate::config::Config {
        let (config, myid) = texts(variables);
        let mut draft = Draft::from_text("zoo.cfg", &config);
        draft.set_myid("myid", &myid);
        let config = draft.resolve().unwrap_or_else(|errors| panic!("{errors:?}"));
        assert_eq!(config.mistakes, Vec::new());
        config
    }

    #[test]
    fn without_variables_it_is_the_images_own_zoo_cfg() {
        let (config, myid) = texts("");
        assert_eq!(
            config,
            "dataDir=/data\ndataLogDir=/datalog\ntickTime=2000\ninitLimit=5\nsyncLimit=2\n\
             autopurge.snapRetainCount=3\nautopurge.purgeInterval=0\nmaxClientCnxns=60\n\
             standaloneEnabled=true\nadmin.enableServer=true\nadmin.serverAddress=0.0.0.0\n\
             server.1=localhost:2888:3888;2181\n"
        );
        assert_eq!(myid, "1\n");
        assert_eq!(resolved("").client_addr.to_string(), "0.0.0.0:2181");
    }

    #[test]
    fn the_variables_of_a_compose_file_for_three_make_an_ensemble() {
        let three = "ZOO_MY_ID=2\nZOO_SERVERS=server.1=zoo1:2888:3888;2181 server.2=0.0.0.0:2888:3888;2181 \
                     server.3=zoo3:2888:3888;2181";
        let config = resolved(three);
        assert_eq!((config.servers.len(), config.server_id), (3, Some(2)));
        assert_eq!(config.client_addr.port, 2181);
    }

    #[test]
    fn a_pod_has_the_number_of_its_name_and_the_offset() {
        let id = |text: &str| id(&Variables::of(text));
        assert_eq!(id("ZOO_MY_ID=7\nHOSTNAME=zk-2").unwrap(), "7");
        assert_eq!(id("LOCKKEEPER_ID_FROM_HOSTNAME=1\nHOSTNAME=lock-keeper-2").unwrap(), "3");
        for host in ["lockkeeper", "a-b", "a-99999999999"] {
            let reason =
                id(&format!("LOCKKEEPER_ID_FROM_HOSTNAME=1\nHOSTNAME={host}")).unwrap_err();
            assert!(reason.contains("does not end in -N"), "{reason}");
        }
    }

    #[test]
    fn every_variable_has_its_line_and_extra_words_come_last() {
        for (variable, line) in [
            ("ZOO_DATA_DIR=/d", "dataDir=/d"),
            ("ZOO_DATA_LOG_DIR=/l", "dataLogDir=/l"),
            ("ZOO_TICK_TIME=1", "tickTime=1"),
            ("ZOO_INIT_LIMIT=7", "initLimit=7"),
            ("ZOO_SYNC_LIMIT=8", "syncLimit=8"),
            ("ZOO_AUTOPURGE_PURGEINTERVAL=1", "autopurge.purgeInterval=1"),
            ("ZOO_AUTOPURGE_SNAPRETAINCOUNT=9", "autopurge.snapRetainCount=9"),
            ("ZOO_MAX_CLIENT_CNXNS=0", "maxClientCnxns=0"),
            ("ZOO_STANDALONE_ENABLED=false", "standaloneEnabled=false"),
            ("ZOO_ADMINSERVER_ENABLED=false", "admin.enableServer=false"),
            (
                "ZOO_4LW_COMMANDS_WHITELIST=srvr, mntr, ruok",
                "4lw.commands.whitelist=srvr, mntr, ruok",
            ),
        ] {
            assert!(texts(variable).0.lines().any(|found| found == line), "{variable}");
        }
        let (config, _) =
            texts("ZOO_CFG_EXTRA=maxSessionTimeout=90000 admin.serverAddress=127.0.0.1");
        assert!(
            config.ends_with("\nmaxSessionTimeout=90000\nadmin.serverAddress=127.0.0.1\n"),
            "{config}"
        );
        let allowed = resolved("ZOO_4LW_COMMANDS_WHITELIST=srvr, mntr,  ruok").four_letter_words;
        for (word, is_allowed) in [("ruok", true), ("mntr", true), ("dump", false)] {
            assert_eq!(allowed.allows(word, false), is_allowed, "{word}");
        }
    }
}
