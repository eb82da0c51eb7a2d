//! The file of a backup: reading all of it, and what it is of.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use serde_json::Value;

use crate::backup::{BackupReader, Header, Trailer};
use crate::cli::output::Failure;
use crate::config::Config;
use crate::server::offline::{self, Machine, Mark, Restore as _};

/// Standard input for `-`, or that file.
pub(super) fn open(file: &Path) -> Result<Box<dyn Read>, Failure> {
    if file == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let opened = File::open(file).map_err(|error| Failure::usage(named(file, &error)))?;
    Ok(Box::new(BufReader::with_capacity(256 << 10, opened)))
}

pub(super) fn named(file: &Path, problem: &dyn std::fmt::Display) -> String {
    format!("{}: {problem}", file.display())
}

/// Reads a backup into an empty state.
pub(in crate::cli) fn load(
    file: &Path,
    config: &Config,
) -> Result<(Header, Trailer, Machine), Failure> {
    let mut machine =
        offline::fresh(config).map_err(|error| Failure::refused(error.to_string()))?;
    let refused = |problem: &dyn std::fmt::Display| Failure::refused(named(file, problem));
    let reader = BackupReader::open(open(file)?, machine.record_digest());
    let reader = reader.map_err(|error| refused(&error))?;
    let header = reader.header().clone();
    let trailer = reader.read(&mut |key, value| machine.record(key, value));
    let trailer = trailer.map_err(|error| refused(&error))?;
    let mark = Mark {
        index: header.index,
        term: header.term,
        zxid: header.zxid,
        digest: trailer.digest,
        records: trailer.records,
        ..Mark::default()
    };
    machine.finish(&mark).map_err(|what| refused(&what))?;
    Ok((header, trailer, machine))
}

/// Head and trailer of a backup, for programs.
pub(super) fn json(header: &Header, trailer: &Trailer) -> Value {
    serde_json::json!({
        "release": header.release,
        "ensemble": format!("{:032x}", header.ensemble),
        "server": header.server_id,
        "zxid": format!("{:#x}", header.zxid),
        "index": header.index,
        "term": header.term,
        "made_ms": header.made_ms,
        "subtree": header.subtree,
        "records": trailer.records,
        "digest": format!("{:032x}", trailer.digest),
    })
}
