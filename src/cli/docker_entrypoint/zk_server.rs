//! `zkServer.sh`, as images, operators and charts call it.
//!
//! *Owns* its arguments and what each prints and ends with. *Invariants*: `start-foreground` becomes `lockkeeper
//! server`, with the keys that flags of the JVM stand for where zoo.cfg does not say otherwise; `status` asks the
//! server at the client port that its configuration names. *Never* starts a server in the background.
//!
//! Reproduces `bin/zkServer.sh` and `bin/zkEnv.sh` of ZooKeeper 3.9.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::jvm::Flags;
use super::own_command;
use super::variables::Variables;
use crate::cli::config_file;
use crate::cli::output::{print, say};
use crate::cli::srvr::srvr;
use crate::config::{HostPort, properties_of};

/// Where zoo.cfg is, unless something says otherwise.
const CONFIG_DIR: &str = "/conf";
/// What ZooKeeper's HTTP port is at where its file does not say, and a probe expects.
const ADMIN_ADDRESS: (&str, &str) = ("admin.serverAddress", "0.0.0.0");

/// Flags of `zkServer.sh`.
#[derive(Debug, Args)]
pub(crate) struct ZkServerFlags {
    /// Directory of zoo.cfg
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
    /// start-foreground, status, version or print-cmd
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
    /// The configuration file: a path, or a name in that directory
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Runs the command.
pub(in crate::cli) fn run(flags: &ZkServerFlags) -> ExitCode {
    let variables = Variables::of_process();
    let config = flags.config_path(&variables);
    let words = match flags.command.as_deref() {
        Some("start-foreground") => {
            let (arguments, note) = server_arguments(&config, &variables);
            if let Some(note) = note {
                say(&format!("lockkeeper: {note}"));
            }
            let error = own_command().map(|mut command| {
                if let Some(level) = log_level(&variables) {
                    command.env("RUST_LOG", level);
                }
                command.args(arguments).exec().to_string()
            });
            Err(format!("lockkeeper: {}", error.unwrap_or_else(|reason| reason)))
        }
        Some("print-cmd") => {
            let (arguments, _) = server_arguments(&config, &variables);
            Ok(format!("lockkeeper {}\n", arguments.join(" ")))
        }
        Some("version") => Ok(format!("Lockkeeper, version {}\n", env!("LOCKKEEPER_VERSION"))),
        Some("status") => status(&config),
        Some("start" | "stop" | "restart" | "upgrade") => Err(
            "lockkeeper: a server is not run in the background by this command: start-foreground runs one, and \
             SIGTERM stops it"
                .to_owned(),
        ),
        Some(_) | None => Err(
            "Usage: zkServer.sh [--config <conf-dir>] {start-foreground|status|version|print-cmd} [zoo.cfg]"
                .to_owned(),
        ),
    };
    match words {
        Ok(text) => print(&text),
        Err(reason) => {
            say(&reason);
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

impl ZkServerFlags {
    fn config_path(&self, variables: &Variables) -> PathBuf {
        let of_variables = || {
            let names = ["ZOOCFGDIR", "ZOO_CONF_DIR"];
            names.iter().find_map(|name| variables.get(name)).unwrap_or(CONFIG_DIR).into()
        };
        let directory = self.config.clone().unwrap_or_else(of_variables);
        match &self.file {
            // A name with a directory is a path of its own, as for zkServer.sh.
            Some(file) if file.components().count() > 1 => file.clone(),
            Some(file) => directory.join(file),
            None => directory.join(variables.or("ZOOCFG", "zoo.cfg")),
        }
    }
}

/// What `lockkeeper` is started with, and what people are to be told.
fn server_arguments(config: &Path, variables: &Variables) -> (Vec<String>, Option<String>) {
    let flags = Flags::of(variables);
    // A file that cannot be read the server itself complains of.
    let known = std::fs::read(config).ok();
    let known =
        known.map(|bytes| properties_of(&String::from_utf8_lossy(&bytes)).unwrap_or_default());
    let known = known.unwrap_or_default();
    let is_said = |key: &str| {
        known.iter().any(|(known, _)| known.strip_prefix("zookeeper.").unwrap_or(known) == key)
    };
    let mut arguments = vec!["server".to_string(), config.display().to_string()];
    let mut set = |key: &str, value: &str| {
        if !is_said(key) {
            arguments.extend(["--set".to_string(), format!("{key}={value}")]);
        }
    };
    if flags.keys.iter().all(|(key, _)| key != ADMIN_ADDRESS.0) {
        set(ADMIN_ADDRESS.0, ADMIN_ADDRESS.1);
    }
    for (key, value) in &flags.keys {
        set(key, value);
    }
    (arguments, flags.note())
}

/// The level of logs that the variables of images name, unless `RUST_LOG` is there.
fn log_level(variables: &Variables) -> Option<&'static str> {
    if variables.get("RUST_LOG").is_some() {
        return None;
    }
    let names = ["ZOO_LOG4J_PROP", "ZOO_LOG_LEVEL"];
    let level = names.iter().find_map(|name| variables.get(name))?;
    let level = level.split(',').next()?.trim();
    let levels = [
        ("TRACE", "trace"),
        ("DEBUG", "debug"),
        ("INFO", "info"),
        ("WARN", "warn"),
        ("ERROR", "error"),
    ];
    levels.iter().find(|(name, _)| level.eq_ignore_ascii_case(name)).map(|(_, level)| *level)
}

/// As zkServer.sh says it: probes look for the line with the mode.
fn status(config: &Path) -> Result<String, String> {
    // zkServer.sh says where it looks on the other stream.
    say(&format!("Using config: {}", config.display()));
    let address = client_address(config).map_err(|reason| format!("lockkeeper: {reason}"))?;
    say(&format!("Client port found: {}. Client address: {}.", address.port, address.host));
    let answer = srvr(&address).map_err(|error| {
        format!("Error contacting service. It is probably not running: {error}")
    })?;
    let mode = answer.lines().find(|line| line.starts_with("Mode: "));
    let mode = mode.ok_or("The server runs and does not serve: it has no leader.")?;
    Ok(format!("{mode}\n"))
}

/// Where the server that this configuration is for is asked.
fn client_address(config: &Path) -> Result<HostPort, String> {
    let resolved = config_file::draft(config, None, None).resolve();
    let mut address = resolved.map_err(|errors| config_file::lines(&errors))?.client_addr;
    if address.ip().is_some_and(|ip| ip.is_unspecified()) {
        address.host = "localhost".to_string();
    }
    match address.port {
        0 => Err("the configuration names no port for clients without TLS".to_string()),
        _ => Ok(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(config: Option<&str>, file: Option<&str>) -> ZkServerFlags {
        ZkServerFlags { config: config.map(Into::into), command: None, file: file.map(Into::into) }
    }

    #[test]
    fn the_file_is_where_the_flag_the_argument_or_the_variables_say() {
        let variables = Variables::of("ZOOCFGDIR=/z\nZOO_CONF_DIR=/c");
        for (config, file, expected) in [
            (None, None, "/z/zoo.cfg"),
            // pravega's operator
            (Some("/data/conf"), None, "/data/conf/zoo.cfg"),
            // Stackable's
            (None, Some("/stackable/rwconfig/zoo.cfg"), "/stackable/rwconfig/zoo.cfg"),
            (None, Some("other.cfg"), "/z/other.cfg"),
        ] {
            assert_eq!(flags(config, file).config_path(&variables), PathBuf::from(expected));
        }
        let nothing = Variables::default();
        assert_eq!(flags(None, None).config_path(&nothing), PathBuf::from("/conf/zoo.cfg"));
        let official = Variables::of("ZOO_CONF_DIR=/c");
        assert_eq!(flags(None, None).config_path(&official), PathBuf::from("/c/zoo.cfg"));
    }

    #[test]
    fn flags_of_the_jvm_are_set_where_the_file_says_nothing_and_probes_reach_the_http_port() {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("zoo.cfg");
        let arguments = |text: &str, variables: &str| {
            std::fs::write(&config, text).unwrap();
            let (arguments, note) = server_arguments(&config, &Variables::of(variables));
            (arguments[2..].join(" "), note)
        };
        let jvm = "SERVER_JVMFLAGS=-Dzookeeper.admin.serverPort=9 -Xmx1g -Djute.maxbuffer=5";
        let (set, note) = arguments("clientPort=1\n", jvm);
        let expected =
            "--set admin.serverAddress=0.0.0.0 --set admin.serverPort=9 --set jute.maxbuffer=5";
        assert_eq!(set, expected);
        assert_eq!(note.unwrap(), "without effect, for there is no JVM: -Xmx1g");
        let said = "zookeeper.admin.serverPort=1\nadmin.serverAddress=::1\njute.maxbuffer=2\n";
        assert_eq!(arguments(said, jvm).0, "");
        let jvm = "JVMFLAGS=-Dzookeeper.admin.serverAddress=127.0.0.1";
        assert_eq!(arguments("", jvm).0, "--set admin.serverAddress=127.0.0.1");
    }

    #[test]
    fn the_level_of_logs_is_that_of_the_images_variables() {
        for (variables, level) in [
            ("ZOO_LOG4J_PROP=WARN,CONSOLE", Some("warn")),
            ("ZOO_LOG_LEVEL=ERROR", Some("error")),
            ("ZOO_LOG_LEVEL=ERROR\nRUST_LOG=debug", None),
            ("ZOO_LOG_LEVEL=strange", None),
            ("", None),
        ] {
            assert_eq!(log_level(&Variables::of(variables)), level, "{variables}");
        }
    }
}
