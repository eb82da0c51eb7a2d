//! `lockkeeper snapshot verify` and `inspect`.
//!
//! *Owns* how a backup is shown. *Invariant*: nothing is shown of a file that does not verify. Data and access control
//! lists are shown as they are: who has the file has them.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::{Failure, Said, load, open};
use crate::admin::java_date;
use crate::backup::{BackupReader, Header, Trailer};
use crate::cli::flags::OutputFlag;
use crate::config::Config;
use crate::server::offline::record_digest;
use crate::tree::Shown;

/// Flags of `lockkeeper snapshot verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyFlags {
    /// The backup; - for standard input
    file: PathBuf,
    #[command(flatten)]
    pub(super) output: OutputFlag,
}

/// Flags of `lockkeeper snapshot inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectFlags {
    /// The backup; - for standard input
    file: PathBuf,
    /// The znode to begin with
    #[arg(default_value = "/")]
    path: String,
    #[command(flatten)]
    pub(super) output: OutputFlag,
}

/// Reads all of a file.
pub(super) fn verify(flags: &VerifyFlags) -> Result<Said, Failure> {
    let refused =
        |problem: &dyn std::fmt::Display| Failure::refused(super::named(&flags.file, problem));
    let reader =
        BackupReader::open(open(&flags.file)?, record_digest()).map_err(|error| refused(&error))?;
    let header = reader.header().clone();
    let trailer = reader.read(&mut |_, _| Ok(())).map_err(|error| refused(&error))?;
    let text = format!("{}: whole\n{}", flags.file.display(), about(&header, &trailer));
    Ok(Said { text, json: super::json(&header, &trailer) })
}

/// What is known of it, a line for each.
pub(super) fn about(header: &Header, trailer: &Trailer) -> String {
    let subtree = match &header.subtree {
        Some(path) => format!("part      {path}\n"),
        None => String::new(),
    };
    format!(
        "made      {} by server {} (lockkeeper {})\n{subtree}ensemble  {:032x}\nzxid      {:#x}\nrecords   {}\n\
         digest    {:032x}\n",
        java_date(header.made_ms),
        header.server_id,
        header.release,
        header.ensemble,
        header.zxid,
        trailer.records,
        trailer.digest,
    )
}

/// Shows the znodes.
pub(super) fn run(flags: &InspectFlags) -> Result<Said, Failure> {
    let (header, trailer, machine) = load(&flags.file, &Config::without_file())?;
    let tree = machine.tree();
    let Some(first) = tree.shown(&flags.path) else {
        return Err(Failure::refused(format!(
            "{}: it has no znode {}",
            flags.file.display(),
            flags.path
        )));
    };
    let mut text = about(&header, &trailer);
    let (sessions, count) = (machine.session_count(), tree.node_count());
    writeln!(text, "sessions  {sessions}\nznodes    {count}\n").expect("a String takes it");
    let mut json = super::json(&header, &trailer);
    json["sessions"] = sessions.into();
    json["znodes"] = count.into();
    let mut all = Vec::new();
    let mut unseen = vec![(flags.path.clone(), first, 0)];
    while let Some((path, shown, depth)) = unseen.pop() {
        line(&mut text, &path, &shown, depth);
        all.push(znode(tree.data_unchecked(&path), &path, &shown, &tree.acl_entries(&path)));
        let mut children: Vec<_> = tree.shown_children(&path).collect();
        children.sort_by(|one, other| other.name.cmp(one.name));
        let parent = if path == "/" { "" } else { &path };
        for child in children {
            unseen.push((format!("{parent}/{}", child.name), child, depth + 1));
        }
    }
    json["tree"] = Value::Array(all);
    Ok(Said { text, json })
}

fn line(text: &mut String, path: &str, shown: &Shown<'_>, depth: usize) {
    let name = if depth == 0 { path } else { shown.name };
    let stat = &shown.stat;
    let owner = match stat.ephemeral_owner {
        0 => String::new(),
        session => format!("  ephemeral of 0x{session:x}"),
    };
    writeln!(
        text,
        "{:indent$}{name}  {} bytes, version {}, czxid {:#x}{owner}",
        "",
        stat.data_length,
        stat.version,
        stat.czxid,
        indent = 2 * depth,
    )
    .expect("a String takes it");
}

fn znode(data: Option<&[u8]>, path: &str, shown: &Shown<'_>, acl: &[crate::proto::Acl]) -> Value {
    let stat = &shown.stat;
    let entry = |acl: &crate::proto::Acl| {
        let (scheme, id) = (acl.scheme.as_str(), acl.id.as_str());
        json!({ "scheme": scheme, "id": id, "perms": acl.perms })
    };
    json!({
        "path": path,
        "data_hex": data.map(hex),
        "text": data.and_then(|data| std::str::from_utf8(data).ok()),
        "czxid": stat.czxid,
        "mzxid": stat.mzxid,
        "pzxid": stat.pzxid,
        "ctime_ms": stat.ctime,
        "mtime_ms": stat.mtime,
        "version": stat.version,
        "cversion": stat.cversion,
        "aversion": stat.aversion,
        "session": (stat.ephemeral_owner != 0).then(|| format!("0x{:x}", stat.ephemeral_owner)),
        "next_child": shown.next_child,
        "acl": acl.iter().map(entry).collect::<Value>(),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes it");
        text
    })
}
