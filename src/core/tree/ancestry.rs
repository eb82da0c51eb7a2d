//! The path of a znode, which keeps its name alone.
//!
//! *Owns* how a path is put together from the names of a znode and its ancestors, and how text is
//! compared with it. *Invariants*: every byte is compared, from the end up to the root, so text that
//! looks like a path and is none (`/a/`, `//a`, `a`) has no znode; no recursion, because a path may
//! have as many components as a frame has room for.
//! *Never* looks for a znode.

use super::path;
use super::slab::ZnodeId;
use super::znode::{Totals, Znode, Znodes};

/// Bytes of data that cost as much as one byte of a path, which is put together from the names up to the root: one of
/// 20,000 names takes a millisecond.
pub(super) const PATH_BYTES_COST: usize = 16;

/// Whether this is the path of the znode.
pub(super) fn has_path(slab: &Znodes, id: ZnodeId, path: &[u8]) -> bool {
    if id == ZnodeId::ROOT {
        return path == path::ROOT.as_bytes();
    }
    let mut id = id;
    let mut rest = path;
    while id != ZnodeId::ROOT {
        let znode = &slab[id];
        let above = rest.strip_suffix(znode.name()).and_then(|above| above.strip_suffix(b"/"));
        let Some(above) = above else {
            return false;
        };
        (rest, id) = (above, znode.parent);
    }
    rest.is_empty()
}

/// Its path.
pub(super) fn path(slab: &Znodes, id: ZnodeId) -> String {
    let mut path = String::new();
    put_path(slab, id, &mut path);
    path
}

/// Puts its path in the place of what is in `path`, whose memory it uses.
pub(super) fn put_path(slab: &Znodes, id: ZnodeId, path: &mut String) {
    let znode = &slab[id];
    if id == ZnodeId::ROOT {
        path.clear();
        path.push_str(path::ROOT);
    } else {
        put_child_path(slab, znode.parent, znode.name(), path);
    }
}

/// The same of a child of `parent` with this name, whether or not it is there.
pub(super) fn put_child_path(slab: &Znodes, parent: ZnodeId, name: &[u8], path: &mut String) {
    let mut bytes = std::mem::take(path).into_bytes();
    bytes.clear();
    let names = || std::iter::once(name).chain(up_to_root(slab, parent).map(Znode::name));
    bytes.resize(names().map(|name| 1 + name.len()).sum(), b'/');
    let mut end = bytes.len();
    for name in names() {
        let start = end - name.len();
        bytes[start..end].copy_from_slice(name);
        end = start - 1;
    }
    *path = String::from_utf8(bytes).expect("names are made from strings");
}

/// Adds to the totals of a znode, of its parent, and so on up to the root.
pub(super) fn count(slab: &mut Znodes, from: ZnodeId, change: Totals) {
    let mut id = from;
    loop {
        let znode = &mut slab[id];
        znode.count_below(change);
        if id == ZnodeId::ROOT {
            return;
        }
        id = znode.parent;
    }
}

/// A znode, its parent, and so on; without the root.
fn up_to_root(slab: &Znodes, id: ZnodeId) -> impl Iterator<Item = &Znode> {
    let known = |id: ZnodeId| (id != ZnodeId::ROOT).then(|| &slab[id]);
    std::iter::successors(known(id), move |znode| known(znode.parent))
}
