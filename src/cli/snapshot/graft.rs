//! `lockkeeper snapshot restore --subtree`: a part of a backup, into an ensemble that runs.
//!
//! *Owns* which znodes of the backup belong to it. *Never* writes: `cli/graft.rs` does.

use bytes::Bytes;
use serde_json::json;

use crate::backup::Selection;
use crate::cli::client::Client;
use crate::cli::flags::Access;
use crate::cli::graft::{self, Done, OnConflict, Source, Take, Wanted, is_of_servers};
use crate::cli::output::{Failure, Said};
use crate::proto::Request;
use crate::server::offline::Machine;
use crate::tree::{Owner, Tree, path};

/// The znodes of a backup.
struct Znodes(Vec<Wanted>);

impl Source for Znodes {
    fn each(&mut self, take: Take<'_>) -> Result<(), Failure> {
        self.0.iter().try_for_each(take)
    }
}

/// Restores the znode at `subtree` and those below.
pub(super) fn run(
    machine: &Machine,
    subtree: &str,
    on_conflict: OnConflict,
    access: &Access,
) -> Result<Said, Failure> {
    let selection = Selection::below(subtree)
        .map_err(|reason| Failure::usage(format!("--subtree: {reason}")))?;
    let (wanted, ephemerals) = wanted(machine.tree(), &selection);
    if !wanted.iter().any(|znode| znode.is_part) {
        return Err(Failure::refused(format!(
            "the backup has no znode {subtree} that can be restored"
        )));
    }
    let client = Client::connect(access).map_err(|error| graft::failed(&error, subtree))?;
    let ask = &mut |request: &Request| client.call(request);
    let done = graft::run(&mut Znodes(wanted), ask, &access.root, on_conflict)?;
    client.close();
    Ok(said(subtree, &done, ephemerals))
}

fn said(subtree: &str, done: &Done, ephemerals: u64) -> Said {
    let Done { created, overwritten, equal, kept, counters } = done;
    let text = format!(
        "{subtree}: {created} znodes created, {overwritten} overwritten, {equal} were as in the backup, {kept} kept; \
         {counters} \
         counters raised; {ephemerals} ephemerals left out\n"
    );
    let json = json!({
        "done": "restored",
        "subtree": subtree,
        "created": created,
        "overwritten": overwritten,
        "equal": equal,
        "kept": kept,
        "counters": counters,
        "ephemerals_left_out": ephemerals,
    });
    Said { text, json }
}

/// Those of the part and those that lead there, and how many ephemerals are left out.
fn wanted(tree: &Tree, selection: &Selection) -> (Vec<Wanted>, u64) {
    let (mut all, mut ephemerals) = (Vec::new(), 0);
    let taken = tree.for_each_persisted(|at, data, acl, stat| {
        let is_part = selection.has(at);
        // The root is always there, but as a part it has data, a list and a counter.
        let is_way = at == path::ROOT && !is_part;
        let is_there_anyway = is_way || is_of_servers(at);
        if is_there_anyway || !(is_part || selection.includes(at.as_bytes())) {
            return Ok::<(), ()>(());
        }
        let owner = Owner::from_encoded(stat.ephemeral_owner);
        if matches!(owner, Owner::Session(_)) {
            ephemerals += u64::from(is_part);
            return Ok(());
        }
        all.push(Wanted {
            path: at.to_owned(),
            data: data.map(Bytes::copy_from_slice),
            acl: acl.to_vec(),
            owner,
            creates: i64::from(stat.cversion),
            is_part,
        });
        Ok(())
    });
    debug_assert!(taken.is_ok(), "nothing objects");
    // Parents come before their children.
    all.sort_by(|one, other| one.path.split('/').cmp(other.path.split('/')));
    (all, ephemerals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Text;
    use crate::tree::{Context, Options, Rules};

    fn tree() -> Tree {
        let mut tree = Tree::fresh(Options::default());
        let ctx = |zxid| Context {
            zxid,
            time_ms: 5,
            steady_ms: 5,
            session: 0,
            ids: &[],
            rules: Rules::DEFAULT,
        };
        for (zxid, path) in (1..).zip(["/app", "/app/a", "/other"]) {
            let request = crate::proto::request::Create {
                kind: crate::proto::request::CreateKind::Create,
                path: Text::from(path),
                data: None,
                acl: Some(vec![crate::proto::Acl::open()]),
                flags: 0,
                ttl_ms: 0,
            };
            tree.create(&ctx(zxid), &request, &mut Vec::new()).unwrap();
        }
        let (root, data) = (Text::from("/"), Some(&b"of the root"[..]));
        tree.set_data(&ctx(4), &root, data, -1, &mut Vec::new()).unwrap();
        tree
    }

    fn wanted_below(path: &str) -> Vec<Wanted> {
        wanted(&tree(), &Selection::below(path).unwrap()).0
    }

    #[test]
    fn the_root_is_restored_with_all_of_a_backup_and_what_belongs_to_the_servers_is_not() {
        let all = wanted_below("/");
        let paths: Vec<&str> = all.iter().map(|znode| znode.path.as_str()).collect();
        assert_eq!(paths, ["/", "/app", "/app/a", "/other"]);
        let root = &all[0];
        assert!(root.is_part);
        assert_eq!(root.data.as_deref(), Some(&b"of the root"[..]));
        assert_eq!(root.creates, 2, "as many children of the root were created");
    }

    #[test]
    fn with_a_part_the_root_stays_as_it_is() {
        let all = wanted_below("/app/a");
        let paths: Vec<(&str, bool)> =
            all.iter().map(|znode| (znode.path.as_str(), znode.is_part)).collect();
        assert_eq!(paths, [("/app", false), ("/app/a", true)]);
    }
}
