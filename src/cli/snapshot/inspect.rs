//! `lockkeeper snapshot verify` and `inspect`.
//!
//! *Owns* how a backup is shown. *Invariant*: nothing is shown of a file that does not verify. Data and access control
//! lists are shown as they are: who has the file has them.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::file::{json as header_json, load, named, open};
use crate::admin::java_date;
use crate::backup::{BackupReader, Header, Trailer};
use crate::cli::flags::{Output, OutputFlag};
use crate::cli::output::{Failure, Said};
use crate::config::Config;
use crate::server::offline::record_digest;
use crate::tree::{Shown, Tree, path};

/// Levels that are shown by indentation; those below are shown by their number.
const INDENTED_MAX: usize = 40;

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
    let refused = |problem: &dyn std::fmt::Display| Failure::refused(named(&flags.file, problem));
    let reader =
        BackupReader::open(open(&flags.file)?, record_digest()).map_err(|error| refused(&error))?;
    let header = reader.header().clone();
    let trailer = reader.read(&mut |_, _| Ok(())).map_err(|error| refused(&error))?;
    let text = format!("{}: whole\n{}", flags.file.display(), about(&header, &trailer));
    Ok(Said { text, json: header_json(&header, &trailer) })
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
    let mut json = header_json(&header, &trailer);
    json["sessions"] = sessions.into();
    json["znodes"] = count.into();
    match flags.output.output {
        Output::Text => each(tree, &flags.path, first, &mut |path, shown, depth| {
            line(&mut text, path, shown, depth);
        }),
        Output::Json => {
            let mut all = Vec::new();
            each(tree, &flags.path, first, &mut |path, shown, _| {
                let (data, acl) = (tree.data_unchecked(path), tree.acl_entries(path));
                all.push(znode(data, path, shown, &acl));
            });
            json["tree"] = Value::Array(all);
        }
    }
    Ok(Said { text, json })
}

/// Gives `first`, which is at `path`, and all below in the order of their names, with how deep each is. Of the paths
/// only the current one is kept: in a deep tree all of them together are very long.
fn each<'a>(
    tree: &'a Tree,
    path: &str,
    first: Shown<'a>,
    take: &mut dyn FnMut(&str, &Shown<'_>, usize),
) {
    let mut path = path.to_owned();
    let mut unseen = vec![(first, 0, 0)];
    while let Some((shown, depth, parent_length)) = unseen.pop() {
        if depth > 0 {
            path.truncate(parent_length);
            path.push('/');
            path.push_str(shown.name);
        }
        take(&path, &shown, depth);
        let mut children: Vec<_> = tree.shown_children(&path).collect();
        children.sort_by(|one, other| other.name.cmp(one.name));
        let length = if path == path::ROOT { 0 } else { path.len() };
        unseen.extend(children.into_iter().map(|child| (child, depth + 1, length)));
    }
}

fn line(text: &mut String, path: &str, shown: &Shown<'_>, depth: usize) {
    let name = if depth == 0 { path } else { shown.name };
    let level = if depth > INDENTED_MAX { format!("[level {depth}] ") } else { String::new() };
    let stat = &shown.stat;
    let owner = match stat.ephemeral_owner {
        0 => String::new(),
        session => format!("  ephemeral of 0x{session:x}"),
    };
    writeln!(
        text,
        "{:indent$}{level}{name}  {} bytes, version {}, czxid {:#x}{owner}",
        "",
        stat.data_length,
        stat.version,
        stat.czxid,
        indent = 2 * depth.min(INDENTED_MAX),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::request::{Create, CreateKind};
    use crate::proto::{Acl, Text};
    use crate::tree::{Context, Options, Rules};

    fn tree(paths: impl Iterator<Item = String>) -> Tree {
        let mut tree = Tree::fresh(Options::default());
        for (zxid, path) in (1..).zip(paths) {
            let ctx = Context {
                zxid,
                time_ms: 5,
                steady_ms: 5,
                session: 0,
                ids: &[],
                rules: Rules::DEFAULT,
            };
            let (kind, path, acl) = (CreateKind::Create, Text::from(path), vec![Acl::open()]);
            let request = Create { kind, path, data: None, acl: Some(acl), flags: 0, ttl_ms: 0 };
            tree.create(&ctx, &request, &mut Vec::new()).unwrap();
        }
        tree
    }

    fn text(tree: &Tree, path: &str) -> String {
        let mut text = String::new();
        let first = tree.shown(path).unwrap();
        each(tree, path, first, &mut |path, shown, depth| line(&mut text, path, shown, depth));
        text
    }

    #[test]
    fn znodes_come_in_the_order_of_their_names_behind_their_parents() {
        let tree = tree(["/b", "/a", "/a/d", "/a/c", "/a/c/e"].map(str::to_owned).into_iter());
        let seen = |from: &str| {
            let mut seen = Vec::new();
            let first = tree.shown(from).unwrap();
            each(&tree, from, first, &mut |path, _, depth| seen.push((path.to_owned(), depth)));
            seen.retain(|(path, _)| !path.starts_with("/zookeeper"));
            seen
        };
        let expected = [("/", 0), ("/a", 1), ("/a/c", 2), ("/a/c/e", 3), ("/a/d", 2), ("/b", 1)];
        assert_eq!(seen("/"), expected.map(|(path, depth)| (path.to_owned(), depth)));
        let expected = [("/a", 0), ("/a/c", 1), ("/a/c/e", 2), ("/a/d", 1)];
        assert_eq!(seen("/a"), expected.map(|(path, depth)| (path.to_owned(), depth)));
    }

    #[test]
    fn a_deep_chain_is_shown_in_lines_that_stay_short() {
        let tree = tree((1..=1000).map(|depth| "/x".repeat(depth)));
        let text = text(&tree, "/x");
        assert_eq!(text.lines().count(), 1000);
        assert!(text.lines().all(|line| line.len() < 2 * INDENTED_MAX + 100), "{text}");
        let last = text.lines().last().unwrap().trim_start();
        assert!(last.starts_with("[level 999] x  0 bytes"), "{last}");
    }

    #[test]
    fn no_depth_is_too_deep_for_a_line() {
        let tree = tree(std::iter::empty());
        let mut text = String::new();
        line(&mut text, "/", &tree.shown("/").unwrap(), 1_000_000);
        assert!(text.contains("[level 1000000]"), "{text}");
    }
}
