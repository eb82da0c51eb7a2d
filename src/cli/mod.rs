//! The commands of the `lockkeeper` binary.
//!
//! Owns what a user types and reads on a terminal. Uses the library's public parts only.

mod admin;
#[cfg(feature = "bench")]
mod bench;
mod client;
mod client_configuration;
pub mod config_check;
pub mod config_file;
mod core_dumps;
mod dev;
#[cfg(any(feature = "bench", feature = "recipes"))]
mod duration;
#[cfg(feature = "recipes")]
mod lock;
mod locks;
mod log_output;
mod member;
mod open_files;
mod peer_secret;
mod server;
mod shell;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[cfg(feature = "bench")]
pub(crate) use bench::BenchFlags;
pub(crate) use dev::DevFlags;
#[cfg(feature = "recipes")]
pub(crate) use lock::{LockFlags, WatchdogFlags};
pub(crate) use locks::{LocksFlags, SessionsFlags};
pub(crate) use log_output::LogFormat;
pub(crate) use member::MemberCommand;
pub(crate) use peer_secret::PeerSecretFlags;
pub(crate) use server::ServerFlags;
pub(crate) use shell::CliFlags;

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
    /// Look at znodes and change them by hand, with the commands of ZooKeeper's zkCli
    #[command(alias = "shell")]
    Cli(CliFlags),
    /// Run a command while a lock is held, and stop it before the lock can be lost
    #[cfg(feature = "recipes")]
    Lock(LockFlags),
    /// The part of `lock` that holds the clock
    #[cfg(feature = "recipes")]
    #[command(hide = true)]
    LockWatchdog(WatchdogFlags),
    /// Show who holds which lock, who waits for it, and what is wrong
    Locks(LocksFlags),
    /// Show the sessions, and where their clients are
    Sessions(SessionsFlags),
    /// Load a server, Lockkeeper's or ZooKeeper's, and measure it; every answer is checked
    #[cfg(feature = "bench")]
    Bench(BenchFlags),
    /// Make the file with the secret that the servers of an ensemble share
    PeerSecret(PeerSecretFlags),
    /// Look at configuration files
    #[command(subcommand)]
    Config(ConfigCommand),
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
    },
}

/// Runs the binary.
#[must_use]
pub fn run() -> ExitCode {
    let line = match CommandLine::try_parse_from(shell::translated(std::env::args_os())) {
        Ok(line) => line,
        Err(error) => return misread(&error),
    };
    match line.command {
        Command::Server(flags) => server::run(&flags),
        Command::Dev(flags) => dev::run(&flags),
        Command::Member(command) => member::run(&command),
        Command::Cli(flags) => shell::run(&flags),
        #[cfg(feature = "recipes")]
        Command::Lock(flags) => lock::run(&flags),
        #[cfg(feature = "recipes")]
        Command::LockWatchdog(flags) => lock::run_watchdog(&flags),
        Command::Locks(flags) => locks::run(&flags),
        Command::Sessions(flags) => locks::run_sessions(&flags),
        #[cfg(feature = "bench")]
        Command::Bench(flags) => bench::run(&flags),
        Command::PeerSecret(flags) => peer_secret::run(&flags),
        Command::Config(ConfigCommand::Check { file, myid, strict }) => {
            exit_code(config_check::run(&file, myid.as_deref(), strict))
        }
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

fn exit_code(code: i32) -> ExitCode {
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn say(line: &str) {
    // With standard error closed an error has no reader; the exit code remains.
    let _ = writeln!(io::stderr(), "{line}");
}
