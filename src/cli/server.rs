//! `lockkeeper server [zoo.cfg]`: runs one server until it is told to stop.
//!
//! Owns the command's flags, its first screen and its exit codes: 0 after a clean stop, 1 if the
//! server does not start or cannot go on (behind a panic within a second, whatever its threads wait
//! for), 2 if the configuration is wrong (then nothing was bound or created).

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

use super::config_check::EXIT_INVALID;
use super::exit::EXIT_REFUSED;
use super::output::{exit_code, failed, print, say};
use super::plant::PlantFlag;
use super::sd_notify::SdNotify;
use super::{LogFormat, config_file, core_dumps, log_output, open_files};
use crate::config::{Config, ConfigError, Draft, HostPort};
use crate::server::{Server, ServerError, StartError};
use crate::supervision;

/// Flags of `lockkeeper server`. Each overrides the configuration file.
#[derive(Debug, Args)]
pub(crate) struct ServerFlags {
    /// ZooKeeper configuration file; without one: 127.0.0.1:2181 and ./lockkeeper-data
    config: Option<PathBuf>,
    /// Directory of all data (dataDir)
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Which server of the ensemble this is: the N of its server.N line. Written to the file myid
    /// in the data directory if there is none yet
    #[arg(long, value_name = "N")]
    myid: Option<String>,
    /// Where clients connect (clientPortAddress and clientPort); port 0 takes any free one
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "port")]
    client_addr: Option<String>,
    /// Where clients connect, the port alone (clientPort)
    #[arg(long, value_name = "PORT")]
    port: Option<String>,
    /// Where the HTTP port is, or `off` (admin.serverAddress and admin.serverPort)
    #[arg(long, value_name = "HOST:PORT|off")]
    admin_addr: Option<String>,
    /// Write one line of JSON per transaction to this file (lockkeeper.auditLog)
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// Keep everything in memory: nothing survives the end of the server
    #[arg(long, conflicts_with = "data_dir")]
    in_memory: bool,
    /// Put the data away (nothing is removed) and fetch everything from the other servers: for a
    /// server of an ensemble whose data is damaged. Not for a majority of them
    #[arg(long, conflicts_with = "in_memory")]
    rejoin: bool,
    /// Set any key of the configuration file
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// How log lines look; RUST_LOG says which there are
    #[arg(long = "log", value_name = "FORMAT", default_value = "pretty")]
    log: LogFormat,
    #[command(flatten)]
    plant: PlantFlag,
}

/// Runs the command.
pub(super) fn run(flags: &ServerFlags) -> ExitCode {
    flags.plant.obey();
    log_output::start(flags.log);
    say_panics_once();
    let config = match flags.draft().resolve() {
        Ok(config) => config,
        Err(errors) => return invalid(&errors),
    };
    #[cfg(feature = "gssapi")]
    if let Some(error) = begin_with_key_tab(&config) {
        return failed(EXIT_REFUSED, &error);
    }
    list_keys(&config);
    if !flags.in_memory {
        warn_of_strangers(&config.data_dir);
    }
    if let Err(error) = flags.keep_myid(&config) {
        return failed(EXIT_REFUSED, &error);
    }
    core_dumps::forbid(&config);
    open_files::raise();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(EXIT_REFUSED, &format!("no threads for sockets: {error}")),
    };
    runtime.block_on(serve(config, flags))
}

/// Begins this very process anew with the file of its key of Kerberos in the environment, where MIT's library reads it:
/// a running process cannot change what its threads may be reading. Why that did not succeed, if it has to.
#[cfg(feature = "gssapi")]
fn begin_with_key_tab(config: &Config) -> Option<String> {
    use std::env;
    use std::os::unix::process::CommandExt as _;

    use crate::server::{KEY_TAB_VARIABLE, is_in_environment, sasl_setup};

    // What is wrong with the file the start says.
    let service = sasl_setup(config).ok()?.service?;
    if is_in_environment(&service) {
        return None;
    }
    let program = match env::current_exe() {
        Ok(program) => program,
        Err(error) => return Some(format!("this program is not found: {error}")),
    };
    let mut arguments = env::args_os();
    let mut command = std::process::Command::new(program);
    command.env(KEY_TAB_VARIABLE, format!("FILE:{}", service.key_tab));
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    let error = command.args(arguments).exec();
    Some(format!("this program cannot be begun with {KEY_TAB_VARIABLE}: {error}"))
}

async fn serve(config: Config, flags: &ServerFlags) -> ExitCode {
    // Before anything else, so that a signal during a long recovery ends it at once.
    let [mut terminate, mut interrupt, mut hang_up] = match signals() {
        Ok(signals) => signals,
        Err(error) => return failed(EXIT_REFUSED, &format!("cannot wait for signals: {error}")),
    };
    let systemd = SdNotify::start();
    let data_dir = (!flags.in_memory).then(|| config.data_dir.clone());
    let builder = Server::builder().config(config);
    let builder = if flags.in_memory { builder.in_memory() } else { builder };
    let builder = if flags.rejoin { builder.rejoin() } else { builder };
    let started = tokio::select! {
        started = builder.start() => started,
        // Nothing was acknowledged yet: there is nothing to lose by ending in the middle.
        _ = terminate.recv() => return ExitCode::SUCCESS,
        _ = interrupt.recv() => return ExitCode::SUCCESS,
    };
    let server = match started {
        Ok(server) => server,
        Err(StartError::Config(errors)) => return invalid(&errors),
        Err(error) => return failed(EXIT_REFUSED, &error.to_string()),
    };
    systemd.started(server.source());
    print(&first_screen(&server, data_dir.as_deref()));
    loop {
        tokio::select! {
            ended = server.wait() => return ended_by_itself(ended),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hang_up.recv() => {
                tracing::info!("SIGHUP: reads keys, certificates and users again, and opens the audit log");
                systemd.reloading();
                server.reopen_audit_log().await;
                // It has logged what it has come to.
                let _ = server.reload_certificates().await;
                let _ = server.reload_users().await;
                systemd.reloaded();
            }
        }
    }
    tracing::info!("stopping");
    systemd.stopping();
    tokio::select! {
        stopped = timeout(STOP_MAX, server.stop()) => match stopped {
            Ok(Ok(())) => tracing::info!("stopped"),
            Ok(Err(error)) => return failed(EXIT_REFUSED, &error.to_string()),
            // A checkpoint or an image is being written. It is of no use unfinished, and the next
            // start finds that out: nothing that was acknowledged depends on it.
            Err(_) => tracing::info!("stopped; the copy of the tree is left unfinished"),
        },
        _ = terminate.recv() => std::process::exit(EXIT_IMPATIENT),
        _ = interrupt.recv() => std::process::exit(EXIT_IMPATIENT),
    }
    ExitCode::SUCCESS
}

/// Keeps a panic of the server to the one line that it ends with, unless backtraces are asked for.
fn say_panics_once() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let wants_more = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");
        if wants_more || !supervision::is_supervised() {
            usual(info);
        }
    }));
}

/// The end of the terminal ends a server no more than that of a daemon: it asks for the files to be read again.
fn signals() -> io::Result<[Signal; 3]> {
    let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let [terminate, interrupt, hang_up] = kinds.map(signal);
    Ok([terminate?, interrupt?, hang_up?])
}

impl ServerFlags {
    fn draft(&self) -> Draft {
        let (file, data_dir) = (self.config.as_deref(), self.data_dir.as_deref());
        let mut draft = config_file::draft_of(file, data_dir, self.myid.as_deref());
        if let Some(address) =
            self.address(&mut draft, self.client_addr.as_deref(), "--client-addr")
        {
            draft.set("clientPortAddress", &address.host, "--client-addr");
            draft.set("clientPort", &address.port.to_string(), "--client-addr");
        }
        if let Some(port) = &self.port {
            draft.set("clientPort", port, "--port");
        }
        match self.admin_addr.as_deref() {
            Some("off") => draft.set("admin.enableServer", "false", "--admin-addr"),
            text => {
                if let Some(address) = self.address(&mut draft, text, "--admin-addr") {
                    draft.set("admin.enableServer", "true", "--admin-addr");
                    draft.set("admin.serverAddress", &address.host, "--admin-addr");
                    draft.set("admin.serverPort", &address.port.to_string(), "--admin-addr");
                }
            }
        }
        if let Some(file) = &self.audit_log {
            draft.set("lockkeeper.auditLog", &file.display().to_string(), "--audit-log");
        }
        for setting in &self.set {
            match setting.split_once('=') {
                Some((key, value)) => draft.set(key.trim(), value.trim(), "--set"),
                None => draft.fail(fault("--set", format!("`{setting}` is not KEY=VALUE"))),
            }
        }
        draft
    }

    /// A number that was given once is there at the next start, too.
    fn keep_myid(&self, config: &Config) -> Result<(), String> {
        let (Some(id), true, false) = (config.server_id, self.myid.is_some(), self.in_memory)
        else {
            return Ok(());
        };
        let path = config.data_dir.join("myid");
        let written = match path.exists() {
            true => return Ok(()),
            false if config.data_dir_autocreate => fs::create_dir_all(&config.data_dir),
            false => Ok(()),
        };
        let written = written.and_then(|()| fs::write(&path, format!("{id}\n")));
        written.map_err(|error| format!("{}: cannot be written: {error}", path.display()))
    }

    fn address(&self, draft: &mut Draft, text: Option<&str>, flag: &str) -> Option<HostPort> {
        match text?.parse() {
            Ok(address) => Some(address),
            Err(reason) => {
                draft.fail(fault(flag, reason));
                None
            }
        }
    }
}

fn fault(flag: &str, reason: String) -> ConfigError {
    ConfigError { file: flag.to_string(), line: 0, key: String::new(), reason }
}

/// Lists, once, what of the configuration has no effect, and what in it is probably a mistake.
fn list_keys(config: &Config) {
    for mistake in &config.mistakes {
        tracing::warn!("{mistake}");
    }
    for (key, why) in &config.warnings {
        tracing::warn!("{key}: {why}");
    }
    if let Some(words) = config.leaders_words() {
        tracing::info!("{words}");
    }
    if !config.ignored.is_empty() {
        let keys: Vec<&str> = config.ignored.iter().map(|(key, _)| key.as_str()).collect();
        tracing::info!("keys without effect here: {}", keys.join(", "));
    }
}

/// A new data directory with files of others in it is probably the wrong one.
fn warn_of_strangers(data_dir: &Path) {
    let Ok(entries) = fs::read_dir(data_dir) else { return };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| !EXPECTED.contains(&name.as_str()));
    names.sort();
    // One that holds data of a server is none of a stranger's; what it may not hold, the start says.
    if let Some(first) = names.first().filter(|_| !data_dir.join("identity").exists()) {
        tracing::warn!(
            "dataDir {}: it has files of other programs, such as {first}: if this is not the directory that was meant, \
             stop the server and give it one of its own",
            data_dir.display()
        );
    }
}

/// What may stand in a data directory before its server has run.
const EXPECTED: [&str; 6] = ["myid", "lost+found", "zoo.cfg", "initialize", "version-2", "errors"];

/// Six lines: what runs, what it holds, where it is, and what to try next.
fn first_screen(server: &Server, data_dir: Option<&Path>) -> String {
    let found = server.recovered();
    let counts = format!(
        "{} znodes, {} sessions, zxid {:#x}, in {} ms",
        found.znodes, found.sessions, found.zxid, found.took_ms
    );
    let data = match data_dir {
        None => "in memory: nothing is kept".to_string(),
        Some(path) if found.is_fetching => format!("{} (damaged: see the log)", path.display()),
        Some(path) if found.is_new => format!("{} (new)", path.display()),
        Some(path) => format!("{} (recovered: {counts})", path.display()),
    };
    let admin = server.admin_url().unwrap_or_else(|| "off".to_string());
    let connect = server.connect_string();
    let (host, port) = connect.rsplit_once(':').unwrap_or((&connect, ""));
    let tls = server.secure_connect_string();
    let tls = tls.map(|at| format!("TLS      {at}\n")).unwrap_or_default();
    let mut screen = String::new();
    let written = write!(
        screen,
        "Lockkeeper {} serves ZooKeeper clients\n\
         data     {data}\n\
         connect  {connect}\n\
         {tls}admin    {admin}\n\
         try      echo srvr | nc {host} {port}\n\
         stop     Ctrl-C; sessions and data are kept\n",
        env!("CARGO_PKG_VERSION"),
    );
    written.expect("writing to a String does not fail");
    screen
}

fn ended_by_itself(ended: Result<(), ServerError>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(EXIT_REFUSED, &error.to_string()),
    }
}

fn invalid(errors: &[ConfigError]) -> ExitCode {
    for error in errors {
        say(&error.to_string());
    }
    exit_code(EXIT_INVALID)
}

/// How long a stop may take.
const STOP_MAX: Duration = Duration::from_millis(900);

/// After a second signal: not even a clean stop was waited for.
const EXIT_IMPATIENT: i32 = 130;
