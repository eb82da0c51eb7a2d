//! `lockkeeper cli`: znodes by hand, with the verbs and flags of ZooKeeper's zkCli.
//!
//! *Owns* the command's flags, the three ways to run it (one command, commands from a pipe, or at a
//! terminal), and its exit codes: 0, or of the first command that failed: 1 refused by the server, 2
//! the command is wrong, 69 no server answers, 75 not now (worth repeating), 77 no permission.
//! *Invariants*: speaks the client protocol alone, so it works with ZooKeeper, too; what a command
//! says goes to standard output and why it failed to standard error, and nothing else goes to either.
//! Reproduces `ZooKeeperMain`; docs/CLI.md says what differs.

mod acl;
mod document;
mod ensemble;
mod export;
mod failure;
mod given;
mod hexdump;
mod import;
mod interactive;
mod output;
mod quota;
mod read;
mod screen;
mod session;
mod state;
mod verbs;
mod watch;
mod write;
mod znodes;

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead as _, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, Args, Command};

use super::client::Wish;
use super::duration::duration;
use super::flags::{OutputFlag, ServersFlags};
use super::output::exit_code;
use failure::Failure;
use output::Watch;
use screen::Screen;
use state::Shell;
use verbs::{execute, execute_line};

/// Flags of `lockkeeper cli`.
#[derive(Debug, Args)]
#[command(
    after_help = "Commands are those of zkCli: `lockkeeper cli help` lists them. zkCli's own spelling of the flags \
                        (-server, -timeout, -r, -waitforconnection) is understood as well.\n\
                        Without COMMAND, commands are read from the terminal or from a pipe, one in a line. \
                        Exit code: 0, or that of the first command that failed: 1 refused, 2 wrong usage, \
                        69 no server answers, 75 not now, 77 no permission."
)]
pub(crate) struct CliFlags {
    #[command(flatten)]
    servers: ServersFlags,
    /// How long a silent session lives; the server may grant another time
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    session_timeout: Duration,
    /// Be content with a server that can only be read
    #[arg(short, long)]
    read_only: bool,
    /// Wait for a server: as long as --timeout, or as the session timeout
    #[arg(long)]
    wait_for_connection: bool,
    #[command(flatten)]
    output: OutputFlag,
    /// A command, such as ls /
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// zkCli's spelling of flags, made ours; a line of another command is left as it is.
pub(super) fn translated(line: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut line: Vec<OsString> = line.collect();
    if line.get(1).is_none_or(|word| word != "cli" && word != "shell") {
        return line;
    }
    let mut at = 2;
    while let Some(word) = line.get_mut(at) {
        let is_in_ms = word == TIMEOUT_OF_ZKCLI;
        if let Some((_, ours)) = SPELLINGS.iter().find(|(zkcli, _)| *zkcli == word.as_os_str()) {
            *word = ours.into();
        }
        if !word.as_encoded_bytes().starts_with(b"-") {
            // From here on it is the command's.
            break;
        }
        at += if takes_value(word) { 2 } else { 1 };
        if let Some(value) = line.get_mut(at - 1).filter(|_| is_in_ms) {
            value.push("ms");
        }
    }
    line
}

/// zkCli's timeout is that of the session, in milliseconds.
const TIMEOUT_OF_ZKCLI: &str = "-timeout";
const SPELLINGS: [(&str, &str); 5] = [
    ("-server", "--server"),
    ("-s", "--server"),
    (TIMEOUT_OF_ZKCLI, "--session-timeout"),
    ("-waitforconnection", "--wait-for-connection"),
    ("-client-configuration", "--client-configuration"),
];

/// Whether the value of this flag is the next word.
fn takes_value(word: &OsStr) -> bool {
    let command = CliFlags::augment_args(Command::new("cli"));
    let is_meant = |arg: &Arg| {
        let long = arg.get_long().is_some_and(|long| word == &*format!("--{long}"));
        long || arg.get_short().is_some_and(|short| word == &*format!("-{short}"))
    };
    command.get_arguments().any(|arg| arg.get_action().takes_values() && is_meant(arg))
}

/// Runs the command.
pub(super) fn run(flags: &CliFlags) -> ExitCode {
    let screen = Screen::new(flags.output.output);
    let mut shell = match flags.shell(screen.clone()) {
        Ok(shell) => shell,
        Err(failure) => {
            screen.failure(&failure);
            return exit_code(failure.exit);
        }
    };
    let exit = if !flags.command.is_empty() {
        once(&mut shell, &screen, &flags.command)
    } else if io::stdin().is_terminal() && io::stdout().is_terminal() {
        return exit_code(interactive::run(shell, &screen));
    } else {
        piped(&mut shell, &screen)
    };
    shell.close();
    exit_code(exit)
}

/// One command. If it watches, its events are waited for.
fn once(shell: &mut Shell, screen: &Screen, words: &[String]) -> i32 {
    match execute(shell, words) {
        Ok(answer) => {
            screen.answer(&answer);
            let watched = match answer.watch {
                Watch::No => Ok(()),
                Watch::Once => shell.wait_for_event(),
                Watch::Lasting => shell.wait_for_the_end(),
            };
            watched.map_or_else(|failure| told(screen, &failure), |()| 0)
        }
        Err(failure) => told(screen, &failure),
    }
}

/// Commands of standard input, all of them, whatever becomes of each.
fn piped(shell: &mut Shell, screen: &Screen) -> i32 {
    let mut exit = 0;
    shell.reads_stdin = true;
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    while !shell.is_done() {
        line.clear();
        let failure = match input.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => match execute_line(shell, &String::from_utf8_lossy(&line)) {
                Ok(answer) => {
                    screen.answer(&answer);
                    continue;
                }
                Err(failure) => failure,
            },
            Err(error) => {
                exit = told(screen, &Failure::usage(format!("standard input: {error}")));
                break;
            }
        };
        let code = told(screen, &failure);
        exit = if exit == 0 { code } else { exit };
    }
    exit
}

fn told(screen: &Screen, failure: &Failure) -> i32 {
    screen.failure(failure);
    failure.exit
}

impl CliFlags {
    fn shell(&self, screen: Screen) -> Result<Shell, Failure> {
        // Flags end where the command begins, so one that is unknown seems to be a command.
        if let Some(flag) = self.command.first().filter(|word| word.starts_with('-')) {
            let text = format!("{flag} is no flag; `lockkeeper cli --help` lists them");
            return Err(Failure::usage(text));
        }
        let mut access = self.servers.access().map_err(Failure::usage)?;
        if self.wait_for_connection && self.servers.client.timeout.is_none() {
            access.patience = self.session_timeout;
        }
        let (timeout, read_only) = (self.session_timeout, self.read_only);
        let wish = Wish { access, timeout, read_only, lasts: true };
        Shell::new(wish, &self.servers.server, screen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_zkcli_are_understood_in_front_of_the_command_only() {
        for (theirs, ours) in [
            ("x cli -server a:1 get /x", "x cli --server a:1 get /x"),
            (
                "x cli -r -timeout 5 -o json -server a ls",
                "x cli -r --session-timeout 5ms -o json --server a ls",
            ),
            ("x cli set /x -server", "x cli set /x -server"),
            ("x shell -waitforconnection quit", "x shell --wait-for-connection quit"),
            ("x cli -s -server -server b", "x cli --server -server --server b"),
            ("x lock -server a", "x lock -server a"),
        ] {
            let translated = translated(theirs.split(' ').map(OsString::from));
            let words: Vec<OsString> = ours.split(' ').map(OsString::from).collect();
            assert_eq!(translated, words);
        }
    }
}
