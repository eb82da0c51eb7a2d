//! `lockkeeper config check FILE`: what a configuration file amounts to, without starting anything.
//!
//! Owns the command's output and exit codes: 0 and the values in force on standard output, or 2 and
//! every fault on standard error as `file:line: key: reason`. With `--strict` lines that are probably
//! mistakes are faults, too, although a server starts on them.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::config_file;
use crate::config::Config;
use crate::server;

/// Exit code of a configuration that cannot be used, as ZooKeeper's for an invalid invocation.
pub const EXIT_INVALID: i32 = 2;

/// Runs the command and returns its exit code.
#[must_use]
pub fn run(path: &Path, myid: Option<&str>, is_strict: bool, is_json: bool) -> i32 {
    match check(path, myid, is_strict, is_json, &mut io::stdout().lock(), &mut io::stderr().lock())
    {
        Ok(code) => code,
        // A reader that went away (`| head`) has seen what it wanted: an error has no reader.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(_) => 1,
    }
}

/// Writes the values in force on the server `myid` (of the file `myid`, unless given) to `out`, or the
/// faults to `err`; returns the exit code. `is_strict`: lines that are probably mistakes are faults. `is_json`: the
/// values are one JSON object.
///
/// # Errors
/// Those of writing.
pub fn check(
    path: &Path,
    myid: Option<&str>,
    is_strict: bool,
    is_json: bool,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<i32> {
    match config_file::draft(path, None, myid).resolve() {
        Ok(config) if is_strict && !config.mistakes.is_empty() => {
            for mistake in &config.mistakes {
                writeln!(err, "{mistake}")?;
            }
            Ok(EXIT_INVALID)
        }
        Ok(config) => {
            if let Err(error) = server::sasl_setup(&config) {
                writeln!(err, "{error}")?;
                return Ok(EXIT_INVALID);
            }
            let faults = server::file_faults(&config);
            if !faults.is_empty() {
                for fault in faults {
                    writeln!(err, "{fault}")?;
                }
                return Ok(EXIT_INVALID);
            }
            let text = if is_json { format!("{}\n", json(&config)) } else { config.describe() };
            out.write_all(text.as_bytes())?;
            out.flush()?;
            Ok(0)
        }
        Err(errors) => {
            for error in &errors {
                writeln!(err, "{error}")?;
            }
            Ok(EXIT_INVALID)
        }
    }
}

fn json(config: &Config) -> Value {
    let values: Map<String, Value> =
        config.values().into_iter().map(|(key, value)| (key, value.into())).collect();
    let servers: Vec<Value> = config
        .servers
        .iter()
        .map(|spec| json!({ "id": spec.id, "server": spec.to_string() }))
        .collect();
    let mistakes: Vec<String> = config.mistakes.iter().map(ToString::to_string).collect();
    let warnings: Vec<Value> = config
        .warnings
        .iter()
        .map(|(key, why)| json!({ "key": key, "why": why.to_string() }))
        .collect();
    let leaders: Vec<&str> = config.leaders_keys().iter().map(|key| key.name).collect();
    json!({
        "leader_only": leaders, "values": values, "servers": servers, "myid": config.server_id,
        "mistakes": mistakes, "warnings": warnings,
    })
}
