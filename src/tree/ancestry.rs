//! The path of a znode, which keeps its name alone.
//!
//! *Owns* how a path is put together from the names of a znode and its ancestors, and how text is
//! compared with it. *Invariants*: every byte is compared, from the end up to the root, so text that
//! looks like a path and is none (`/a/`, `//a`, `a`) has no znode; no recursion, because a path may
//! have as many components as a frame has room for.
//! *Never* looks for a znode.

use super::path;
use super::slab::{Slab, ZnodeId};
use super::znode::Znode;

/// Whether this is the path of the znode.
pub(super) fn has_path(slab: &Slab, id: ZnodeId, path: &[u8]) -> bool {
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
pub(super) fn path(slab: &Slab, id: ZnodeId) -> String {
    let mut path = Vec::new();
    put_path(slab, id, &mut path);
    String::from_utf8(path).expect("names are made from strings")
}

/// Puts its path in the place of what is in `path`.
pub(super) fn put_path(slab: &Slab, id: ZnodeId, path: &mut Vec<u8>) {
    path.clear();
    if id == ZnodeId::ROOT {
        path.extend_from_slice(path::ROOT.as_bytes());
        return;
    }
    path.resize(up_to_root(slab, id).map(|znode| 1 + znode.name().len()).sum(), b'/');
    let mut end = path.len();
    for znode in up_to_root(slab, id) {
        let start = end - znode.name().len();
        path[start..end].copy_from_slice(znode.name());
        end = start - 1;
    }
}

/// A znode, its parent, and so on; without the root.
fn up_to_root(slab: &Slab, id: ZnodeId) -> impl Iterator<Item = &Znode> {
    let known = |id: ZnodeId| (id != ZnodeId::ROOT).then(|| &slab[id]);
    std::iter::successors(known(id), move |znode| known(znode.parent))
}
