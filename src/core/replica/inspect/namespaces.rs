//! How much is read and written below each znode of the root, as ZooKeeper's `read_per_namespace` and
//! `write_per_namespace` count it.
//!
//! *Owns* the sums by the first component of a path. *Invariants*: of more than [`NAMESPACES_MAX`] names those that
//! come later are counted together; nothing but what operators see depends on them. *Never* replicated.

use std::collections::BTreeMap;

use super::questions::{NamespaceReport, Volume};
use crate::proto::OpCode;
use crate::proto::request::Request;

/// Each is a label of two metrics, so there must not be many.
const NAMESPACES_MAX: usize = 64;
/// Bytes of a name that is a label.
const NAME_BYTES_MAX: usize = 256;
/// What those that come later are counted as: no component of a path has a slash.
const OTHERS: &str = "/others";
/// Bytes in front of the first path of a multi: the header of its first operation.
const MULTI_HEADER_BYTES: usize = 9;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::replica) struct Namespaces {
    reads: BTreeMap<String, Volume>,
    writes: BTreeMap<String, Volume>,
}

impl Namespaces {
    /// A read was answered with so many bytes.
    pub(in crate::replica) fn note_read(&mut self, request: &Request, bytes: usize) {
        let (Request::GetData { path, .. }
        | Request::Exists { path, .. }
        | Request::GetAcl { path }
        | Request::GetChildren { path, .. }) = request
        else {
            return;
        };
        note(&mut self.reads, path.as_str(), bytes);
    }

    /// A client's transaction of this body was applied.
    pub(in crate::replica) fn note_write(&mut self, op: i32, body: &[u8]) {
        let before = if op == OpCode::Multi as i32 { MULTI_HEADER_BYTES } else { 0 };
        if let Some(path) = body.get(before..).and_then(first_string) {
            note(&mut self.writes, path, body.len());
        }
    }

    /// All of them.
    pub(in crate::replica) fn report(&self) -> Vec<NamespaceReport> {
        let mut all: BTreeMap<&str, NamespaceReport> = BTreeMap::new();
        let report = |name: &String| NamespaceReport { name: name.clone(), ..Default::default() };
        for (name, volume) in &self.reads {
            all.entry(name).or_insert_with(|| report(name)).reads = *volume;
        }
        for (name, volume) in &self.writes {
            all.entry(name).or_insert_with(|| report(name)).writes = *volume;
        }
        all.into_values().collect()
    }

    /// An operator wants the counters to begin anew.
    pub(in crate::replica) fn reset(&mut self) {
        *self = Self::default();
    }
}

fn note(sums: &mut BTreeMap<String, Volume>, path: &str, bytes: usize) {
    let bytes = bytes as u64;
    let Some(name) = path.strip_prefix('/') else { return };
    let name = name.split('/').next().unwrap_or_default();
    if let Some(volume) = sums.get_mut(name) {
        return volume.record(bytes);
    }
    // A client may ask for what is not there, by a name as long as a request.
    let is_kept = sums.len() < NAMESPACES_MAX && name.len() <= NAME_BYTES_MAX;
    let name = if is_kept { name } else { OTHERS };
    sums.entry(name.to_owned()).or_default().record(bytes);
}

/// The string that these bytes begin with.
fn first_string(bytes: &[u8]) -> Option<&str> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let text = rest.get(..usize::try_from(i32::from_be_bytes(*length)).ok()?)?;
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{MultiOp, Text};

    fn read(path: &str) -> Request {
        Request::Exists { path: Text::from(path), watch: false }
    }

    fn body(request: &Request) -> Vec<u8> {
        let mut body = Vec::new();
        request.encode(&mut body);
        body
    }

    #[test]
    fn reads_and_writes_are_counted_by_the_first_component_of_their_path() {
        let mut namespaces = Namespaces::default();
        namespaces.note_read(&read("/app/a/b"), 100);
        namespaces.note_read(&read("/app"), 50);
        namespaces.note_read(&read("/"), 7);
        namespaces.note_read(&Request::Ping, 9);
        let delete = Request::Delete { path: "/other/x".into(), version: -1 };
        let delete = (delete.op() as i32, body(&delete));
        namespaces.note_write(delete.0, &delete.1);
        let multi = Request::Multi(vec![MultiOp::Delete { path: "/app/y".into(), version: 0 }]);
        let multi = (multi.op() as i32, body(&multi));
        namespaces.note_write(multi.0, &multi.1);
        namespaces.note_write(1, &[0, 0, 0, 9, b'/']);
        let report = namespaces.report();
        let names: Vec<&str> = report.iter().map(|known| known.name.as_str()).collect();
        assert_eq!(names, ["", "app", "other"]);
        let app = &report[1];
        assert_eq!(
            (app.reads.count, app.reads.sum, app.reads.min, app.reads.max),
            (2, 150, 50, 100)
        );
        assert_eq!((app.writes.count, app.writes.sum), (1, multi.1.len() as u64));
        assert_eq!((report[2].writes.count, report[2].reads.count), (1, 0));
    }

    #[test]
    fn a_name_that_is_too_long_for_a_label_is_counted_with_others() {
        let mut namespaces = Namespaces::default();
        namespaces.note_read(&read(&format!("/{}", "x".repeat(NAME_BYTES_MAX))), 1);
        namespaces.note_read(&read(&format!("/{}", "x".repeat(NAME_BYTES_MAX + 1))), 1);
        let report = namespaces.report();
        assert_eq!((report.len(), report[0].name.as_str()), (2, OTHERS));
    }

    #[test]
    fn of_too_many_names_the_later_ones_are_counted_together() {
        let mut namespaces = Namespaces::default();
        for number in 0..NAMESPACES_MAX + 10 {
            namespaces.note_read(&read(&format!("/app{number}")), 1);
        }
        let report = namespaces.report();
        assert_eq!(report.len(), NAMESPACES_MAX + 1);
        assert_eq!((report[0].name.as_str(), report[0].reads.count), (OTHERS, 10));
    }
}
