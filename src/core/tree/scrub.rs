//! The scrub: a slow recomputation of the digest from what is in memory.
//!
//! *Owns* a pass over all znodes. *Invariant*: writes go on meanwhile, and the sum follows those to znodes that were
//! seen. *Never* repairs a znode.
//!
//! The digest is kept by differences, so it stays right while the memory under a znode changes that no request touches.

use super::slab::ZnodeId;
use super::{Scrub, Tree, ancestry, digest};

impl Tree {
    /// Recomputes what the next znodes contribute to the digest: at most so many, and about so many
    /// bytes of data and of paths, each of which counts [`ancestry::PATH_BYTES_COST`] times.
    /// Begins a pass if none is under way. Once it is complete, whether the digest is the kept one.
    pub fn scrub(&mut self, znodes_max: usize, bytes_max: usize) -> Option<bool> {
        let mut pass = self.scrub.take().unwrap_or(Scrub { next: ZnodeId::MIN, sum: 0 });
        let (mut path, mut bytes) = (String::new(), 0);
        for _ in 0..znodes_max {
            let Some(id) = self.slab.used_from(pass.next) else {
                return Some(pass.sum == self.digest);
            };
            ancestry::put_path(&self.slab, id, &mut path);
            let shares = self.shares(id, path.as_bytes(), digest::path(path.as_bytes()));
            let contribution = self.contribution(id, path.as_bytes(), shares, true);
            pass.sum = pass.sum.wrapping_add(contribution);
            pass.next = id.next();
            bytes += ancestry::PATH_BYTES_COST * path.len() + self.slab[id].data_length();
            if bytes >= bytes_max {
                break;
            }
        }
        self.scrub = Some(pass);
        None
    }

    /// Changes a byte of the data of a znode in memory, as a defect of the memory would.
    pub(crate) fn flip_a_byte(&mut self, path: &str) -> bool {
        let Some(id) = self.find(path) else { return false };
        let znode = &mut self.slab[id];
        let Some(mut data) = znode.data().map(<[u8]>::to_vec).filter(|data| !data.is_empty())
        else {
            return false;
        };
        data[0] = b'!';
        znode.content = super::znode::Content::new(znode.name(), Some(&data));
        true
    }
}
