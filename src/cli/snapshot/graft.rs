//! `lockkeeper snapshot restore --subtree`: a part of a backup, into an ensemble that runs.
//!
//! *Owns* which znodes of the backup belong to it. *Never* writes: `cli/graft.rs` does.

use bytes::Bytes;
use serde_json::json;

use super::{Failure, Said};
use crate::backup::Selection;
use crate::cli::client::Client;
use crate::cli::flags::Access;
use crate::cli::graft::{self, Done, OnConflict, Refusal, Source, Take, Wanted};
use crate::server::offline::Machine;
use crate::tree::{Owner, path};

/// The znodes of a backup.
struct Znodes(Vec<Wanted>);

impl Source for Znodes {
    fn each(&mut self, take: Take<'_>) -> Result<(), Refusal> {
        self.0.iter().try_for_each(take)
    }
}

impl From<Refusal> for Failure {
    fn from(Refusal { exit, text }: Refusal) -> Self {
        Self::new(exit, text)
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
    let (wanted, ephemerals) = wanted(machine, &selection);
    if !wanted.iter().any(|znode| znode.is_part) {
        return Err(Failure::refused(format!(
            "the backup has no znode {subtree} that can be restored"
        )));
    }
    let mut client = Client::connect(access).map_err(|error| graft::failed(&error, subtree))?;
    let done = graft::run(&mut Znodes(wanted), &mut client, &access.root, on_conflict)?;
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
fn wanted(machine: &Machine, selection: &Selection) -> (Vec<Wanted>, u64) {
    let (mut all, mut ephemerals) = (Vec::new(), 0);
    let taken = machine.tree().for_each_persisted(|at, data, acl, stat| {
        let is_part = selection.has(at);
        let is_there_anyway = path::is_special(at) || at.starts_with("/zookeeper/");
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
