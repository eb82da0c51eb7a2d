//! `lockkeeper completions` and `lockkeeper man`: files about the commands, made of the table of flags itself.
//!
//! *Owns* what packages ship of them. *Invariant*: the output depends on the binary alone, not on the machine or the
//! time, so that packages can be reproduced. *Never* shows hidden commands.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use super::exit::{EXIT_REFUSED, EXIT_USAGE};
use super::output::failed;

/// `lockkeeper completions`
#[derive(Debug, Args)]
pub(crate) struct CompletionsFlags {
    /// The shell whose completion is printed
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// `lockkeeper man`
#[derive(Debug, Args)]
pub(crate) struct ManFlags {
    /// Where the pages are written, a file for each command; the directory is made if there is none
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Prints a completion.
pub(super) fn run_completions(flags: &CompletionsFlags, mut command: Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, &mut command, "lockkeeper", &mut script);
    match io::stdout().write_all(&script) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(EXIT_REFUSED, &format!("standard output: {error}")),
    }
}

/// Writes the manual pages.
pub(super) fn run_man(flags: &ManFlags, command: Command) -> ExitCode {
    let directory = &flags.directory;
    let written =
        fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(command, directory));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let reason = format!("{}: {error}: name a directory to write to", directory.display());
            failed(EXIT_USAGE, &reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::CommandLine;
    use super::*;

    #[test]
    fn there_is_a_page_for_every_command_and_none_for_hidden_ones() {
        let directory = tempfile::tempdir().unwrap();
        clap_mangen::generate_to(CommandLine::command(), directory.path()).unwrap();
        let page = |name: &str| fs::read_to_string(directory.path().join(name));
        assert!(page("lockkeeper.1").unwrap().contains("lockkeeper"));
        assert!(page("lockkeeper-locks-break.1").unwrap().contains("LOCKKEEPER_SERVERS"));
        assert!(page("lockkeeper-lock-watchdog.1").is_err());
    }

    #[test]
    fn completions_know_commands_and_flags() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            let mut command = CommandLine::command();
            clap_complete::generate(shell, &mut command, "lockkeeper", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("client-configuration"), "{shell}");
            assert!(script.contains("revoke"), "{shell}");
        }
    }
}
