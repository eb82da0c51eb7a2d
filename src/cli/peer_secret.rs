//! The command `lockkeeper peer-secret`: makes the file of `lockkeeper.peerSecretFile`.
//!
//! *Owns* what is written. *Invariants*: a file that is there is never overwritten, and with `--add` it is replaced as
//! a whole or not at all; only its owner may read what was made. *Never* shows a secret, unless no file is named.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::OutputFlag;
use super::output::{Said, say};
use crate::peer_auth::{Secrets, new_line};

/// The flags.
#[derive(Debug, clap::Args)]
pub(crate) struct PeerSecretFlags {
    /// The file to be made, for all servers; without one, the secret goes to standard output
    file: Option<PathBuf>,
    /// Put a new secret in front of those that the file has, which are accepted on
    #[arg(long, requires = "file")]
    add: bool,
    #[command(flatten)]
    output: OutputFlag,
}

/// Runs the command.
pub(crate) fn run(flags: &PeerSecretFlags) -> ExitCode {
    let shown = carry_out(flags).and_then(|said| {
        let text = said.lines(flags.output.output);
        io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string())
    });
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            say(&words);
            ExitCode::FAILURE
        }
    }
}

/// What is said of a file, which is nothing to people.
fn said(what: &str, file: &Path) -> Said {
    Said { text: String::new(), json: json!({ "done": what, "file": file.to_string_lossy() }) }
}

fn carry_out(flags: &PeerSecretFlags) -> Result<Said, String> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|error| format!("no random numbers: {error}"))?;
    let line = new_line(&random);
    let Some(file) = &flags.file else {
        let json = json!({ "done": "shown", "secret": line.trim_end() });
        return Ok(Said { text: line, json });
    };
    let named = |error: io::Error| format!("{}: {error}", file.display());
    if !flags.add {
        let written = write_new(file, &line);
        return written.map(|()| said("made", file)).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                format!("{} is there: --add puts a new secret in front of its own", file.display())
            }
            _ => named(error),
        });
    }
    let known = fs::read_to_string(file).map_err(named)?;
    let text = line + &known;
    Secrets::parse(&text).map_err(|reason| format!("{}: {reason}", file.display()))?;
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    write_new(&beside, &text).map_err(|error| format!("{}: {error}", beside.display()))?;
    fs::rename(&beside, file).map(|()| said("added", file)).map_err(named)
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::cli::Output;

    #[test]
    fn a_secret_without_a_file_is_a_line_of_it() {
        let output = OutputFlag { output: Output::Json };
        let shown = carry_out(&PeerSecretFlags { file: None, add: false, output }).unwrap().json;
        let secret = shown["secret"].as_str().unwrap();
        assert!(Secrets::parse(&format!("{secret}\n")).is_ok(), "{shown}");
    }

    #[test]
    fn a_file_is_made_once_for_its_owner_alone_and_grows_at_its_front() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secret");
        let output = || OutputFlag { output: Output::Json };
        let run =
            |add| carry_out(&PeerSecretFlags { file: Some(file.clone()), add, output: output() });
        assert!(run(true).is_err(), "there is none");
        let made = run(false).unwrap().json;
        assert_eq!(made, json!({ "done": "made", "file": file.to_str().unwrap() }));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let first = fs::read_to_string(&file).unwrap();
        assert!(run(false).err().unwrap().contains("--add"));
        assert_eq!(fs::read_to_string(&file).unwrap(), first);
        assert_eq!(run(true).unwrap().json["done"], "added");
        let both = fs::read_to_string(&file).unwrap();
        assert!(both.ends_with(&first) && both.lines().count() == 2, "{both}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        for _ in 2..8 {
            run(true).unwrap();
        }
        assert!(run(true).err().unwrap().contains("at most 8"));
    }
}
