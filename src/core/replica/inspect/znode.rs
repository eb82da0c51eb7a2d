//! A znode as operators browse it: a question for one, and its answer.
//!
//! *Owns* [`ZnodeQuestion`] and [`ZnodeReport`], and how much one answer may hold. *Never* decides who may see what.

use bytes::Bytes;

use crate::proto::{Acl, Stat};

/// Bytes of data in one answer.
pub const DATA_BYTES_MAX: usize = 64 << 10;
/// Children in one answer.
pub const CHILDREN_MAX: usize = 500;
/// Children that are looked at for one answer: the driver waits for it.
pub const CHILDREN_LOOKS_MAX: usize = 100_000;

/// Which znode, and which of its children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZnodeQuestion {
    /// Its path.
    pub path: String,
    /// The children behind this name, in the order of their names; empty: from the first one on.
    pub after: String,
    /// How many children at most; no more than [`CHILDREN_MAX`].
    pub children: usize,
    /// Whether data are shown that the ACL does not let everyone read.
    pub shows_all: bool,
}

/// A znode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZnodeReport {
    /// The last zxid in the tree that it was read from.
    pub zxid: i64,
    /// Its stat.
    pub stat: Stat,
    /// Its access control list; hashes of passwords are left out.
    pub acl: Vec<Acl>,
    /// The first [`DATA_BYTES_MAX`] bytes of its data; `None` if it has none, or they are not shown.
    pub data: Option<Bytes>,
    /// It has data, and the ACL does not let everyone read them.
    pub is_hidden: bool,
    /// Children, in the order of their names.
    pub children: Vec<ChildReport>,
    /// There are more behind those.
    pub has_more: bool,
    /// There are too many to look at all of them: those shown are not all that belong here.
    pub is_cut: bool,
}

/// A child of a znode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildReport {
    /// The last component of its path.
    pub name: String,
    /// How many children it has.
    pub children: i32,
    /// Bytes of its data.
    pub data_bytes: i32,
    /// Its session; 0 of one that is not ephemeral.
    pub session: i64,
}
