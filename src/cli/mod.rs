//! The commands of the `lockkeeper` binary.
//!
//! Owns what a user types and reads on a terminal. Uses the library's public parts only.

mod addresses;
mod admin;
#[cfg(feature = "bench")]
mod bench;
mod client;
mod client_configuration;
pub mod config_check;
pub mod config_file;
mod core_dumps;
mod credential;
mod data_flags;
mod dev;
mod docker_entrypoint;
mod duration;
mod exit;
mod export;
mod flags;
mod generate;
mod graft;
mod import;
#[cfg(feature = "recipes")]
mod lock;
mod locks;
mod log_output;
mod member;
mod migrate;
mod new_file;
mod open_files;
mod output;
mod peer_secret;
mod plant;
mod sd_notify;
mod server;
mod shell;
mod snapshot;
mod srvr;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

#[cfg(feature = "bench")]
pub(crate) use bench::BenchFlags;
pub(crate) use dev::DevFlags;
pub(crate) use docker_entrypoint::{DockerEntrypointFlags, ZkServerFlags};
pub(crate) use export::ExportFlags;
use flags::{Output, OutputFlag};
use generate::{CompletionsFlags, ManFlags};
pub(crate) use import::ImportFlags;
#[cfg(feature = "recipes")]
pub(crate) use lock::LockFlags;
pub(crate) use locks::{LocksFlags, SessionsFlags};
pub(crate) use log_output::LogFormat;
pub(crate) use member::MemberCommand;
pub(crate) use migrate::MigrateCommand;
use output::exit_code;
pub(crate) use peer_secret::PeerSecretFlags;
pub(crate) use server::ServerFlags;
pub(crate) use shell::CliFlags;
pub(crate) use snapshot::SnapshotCommand;

/// A ZooKeeper-compatible lock and coordination server.
#[derive(Debug, Parser)]
#[command(
    name = "lockkeeper",
    version = env!("LOCKKEEPER_VERSION"),
    about,
    arg_required_else_help = true
)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a server: by itself on 127.0.0.1:2181 with ./lockkeeper-data, or as a zoo.cfg says
    Server(ServerFlags),
    /// Run an ensemble of three in this process, to see how it takes the loss of a server
    Dev(DevFlags),
    /// See and change which servers an ensemble consists of, while it runs
    #[command(subcommand)]
    Member(MemberCommand),
    /// Save the state of an ensemble, look at what was saved, and begin a new ensemble with it
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Look at znodes and change them by hand, with the commands of ZooKeeper's zkCli
    #[command(alias = "shell")]
    Cli(CliFlags),
    /// Run a command while a lock is held, and stop it before the lock can be lost
    #[cfg(feature = "recipes")]
    Lock(LockFlags),
    /// Show who holds which lock, who waits for it, and what is wrong
    Locks(LocksFlags),
    /// Show the sessions, and where their clients are
    Sessions(SessionsFlags),
    /// Load a server, Lockkeeper's or ZooKeeper's, and measure it; every answer is checked
    #[cfg(feature = "bench")]
    Bench(BenchFlags),
    /// Move from a running ensemble of Apache ZooKeeper to this one, without a stop
    #[command(subcommand)]
    Migrate(MigrateCommand),
    /// Begin a new ensemble with the data of Apache ZooKeeper
    Import(ImportFlags),
    /// Write the data of a server that does not run as data that Apache ZooKeeper starts from
    Export(ExportFlags),
    /// Make the file with the secret that the servers of an ensemble share
    PeerSecret(PeerSecretFlags),
    /// Look at configuration files
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the completion of a shell, for its directory of such
    Completions(CompletionsFlags),
    /// Write the manual pages
    Man(ManFlags),
    /// Prepare a container as ZooKeeper's images do, and run a command in it
    DockerEntrypoint(DockerEntrypointFlags),
    /// What `zkServer.sh` does in images
    #[command(hide = true)]
    ZkServer(ZkServerFlags),
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Say what a zoo.cfg amounts to, or everything that is wrong with it
    Check {
        /// The file
        file: PathBuf,
        /// Check it as the server with this number, whatever the file myid says on this machine
        #[arg(long, value_name = "N")]
        myid: Option<String>,
        /// Fail on lines that are probably mistakes, although a server starts on them: unknown keys, and
        /// keys that are given twice
        #[arg(long)]
        strict: bool,
        #[command(flatten)]
        output: OutputFlag,
    },
}

/// Runs the binary.
#[must_use]
pub fn run() -> ExitCode {
    // No user starts it, so it is no command of the table, and in no help, completion or manual page.
    #[cfg(feature = "recipes")]
    if std::env::args_os().nth(1).is_some_and(|word| word == lock::WATCHDOG_COMMAND) {
        return lock::run_watchdog(std::env::args_os().skip(1));
    }
    let line = match CommandLine::try_parse_from(shell::translated(
        docker_entrypoint::by_name(std::env::args_os()).into_iter(),
    )) {
        Ok(line) => line,
        Err(error) => return misread(&error),
    };
    match line.command {
        Command::Server(flags) => server::run(&flags),
        Command::Dev(flags) => dev::run(&flags),
        Command::Member(command) => member::run(&command),
        Command::Snapshot(command) => snapshot::run(&command),
        Command::Cli(flags) => shell::run(&flags),
        #[cfg(feature = "recipes")]
        Command::Lock(flags) => lock::run(&flags),
        Command::Locks(flags) => locks::run(&flags),
        Command::Sessions(flags) => locks::run_sessions(&flags),
        #[cfg(feature = "bench")]
        Command::Bench(flags) => bench::run(&flags),
        Command::Migrate(command) => migrate::run(&command),
        Command::Import(flags) => import::run(&flags),
        Command::Export(flags) => export::run(&flags),
        Command::PeerSecret(flags) => peer_secret::run(&flags),
        Command::DockerEntrypoint(flags) => docker_entrypoint::run(&flags),
        Command::ZkServer(flags) => docker_entrypoint::run_zk_server(&flags),
        Command::Config(ConfigCommand::Check { file, myid, strict, output }) => {
            let is_json = output.output == Output::Json;
            exit_code(config_check::run(&file, myid.as_deref(), strict, is_json))
        }
        Command::Completions(flags) => generate::run_completions(&flags, CommandLine::command()),
        Command::Man(flags) => generate::run_man(&flags, CommandLine::command()),
    }
}

/// Help that was asked for, or what is wrong with the command line.
fn misread(error: &clap::Error) -> ExitCode {
    // With the stream closed an error has no reader; the exit code remains.
    let _ = error.print();
    #[cfg(feature = "recipes")]
    if error.use_stderr() && std::env::args_os().nth(1).is_some_and(|word| word == "lock") {
        return ExitCode::from(lock::EXIT_USAGE);
    }
    exit_code(error.exit_code())
}
