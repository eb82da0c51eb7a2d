//! A state as a snapshot of ZooKeeper 3.9.
//!
//! *Owns* what of a state belongs into one, and in which order. *Invariants*: two writings of one snapshot are equal,
//! byte for byte, so that its size is known before it is sent; it carries ZooKeeper's digest of its tree. *Never* knows
//! where it is written.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{self, Write};

use crate::proto::Acl;
use crate::replica::Machine;
use crate::zookeeper::Trailer;
use crate::zookeeper::snapshot::{OPEN_ACL_KEY, put_acls, put_end, put_node, put_sessions};
use crate::zookeeper::snapshot_file::SnapshotFileEncoder;

/// Bytes that are collected before they are written.
const PIECE_BYTES: usize = 1 << 20;
const DIGEST_VERSION: i32 = 2;

/// See the module.
#[derive(Debug)]
pub(crate) struct Snapshot {
    machine: Machine,
    /// The open ones, with their timeouts.
    sessions: Vec<(i64, i32)>,
    /// Access control lists other than the open one, with their numbers.
    acls: BTreeMap<Vec<Acl>, i64>,
    digest: u64,
}

impl Snapshot {
    /// Of a state, with all its sessions.
    ///
    /// # Errors
    /// It is no state of ours.
    pub(crate) fn of(mut machine: Machine) -> Result<Self, String> {
        machine.settle_foreign()?;
        let digest = machine.tree().compute_legacy_digest();
        let mut sessions: Vec<(i64, i32)> = Vec::new();
        sessions.extend(machine.foreign_sessions().map(|(id, timeout_ms, _)| (id, timeout_ms)));
        let mut acls: BTreeMap<Vec<Acl>, i64> = BTreeMap::new();
        let open = [Acl::open()];
        let collected: Result<(), Infallible> =
            machine.tree().for_each_persisted(|_, _, acl, _| {
                if acl != open && !acls.contains_key(acl) {
                    let key = i64::try_from(acls.len()).unwrap_or(i64::MAX) + 1;
                    acls.insert(acl.to_vec(), key);
                }
                Ok(())
            });
        let Ok(()) = collected;
        Ok(Self { machine, sessions, acls, digest })
    }

    /// That of the last transaction in it.
    pub(crate) fn zxid(&self) -> i64 {
        self.machine.last_zxid()
    }

    /// ZooKeeper's digest of the tree.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// How many sessions are in it.
    pub(crate) fn sessions(&self) -> u64 {
        self.sessions.len() as u64
    }

    /// Its size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.write(&mut io::sink()).unwrap_or(0)
    }

    /// Writes it. Returns its size.
    ///
    /// # Errors
    /// Those of `out`.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<u64> {
        let open = [Acl::open()];
        let mut encoder = SnapshotFileEncoder::default();
        let header = encoder.header();
        out.write_all(&header)?;
        let mut bytes = header.len() as u64;
        let mut piece = Vec::new();
        put_sessions(&self.sessions, &mut piece);
        put_acls(self.acls.iter().map(|(acl, key)| (*key, &acl[..])), &mut piece);
        let mut flush =
            |piece: &mut Vec<u8>, encoder: &mut SnapshotFileEncoder| -> io::Result<()> {
                encoder.count(piece);
                bytes += piece.len() as u64;
                out.write_all(piece)?;
                piece.clear();
                Ok(())
            };
        self.machine.tree().for_each_persisted(|path, data, acl, stat| {
            let key = if acl == open { OPEN_ACL_KEY } else { self.acls[acl] };
            put_node(path, data, key, stat, &mut piece);
            if piece.len() >= PIECE_BYTES { flush(&mut piece, &mut encoder) } else { Ok(()) }
        })?;
        put_end(&mut piece);
        flush(&mut piece, &mut encoder)?;
        // Without a digest ZooKeeper could not read what stands behind it.
        let digest = Some((self.zxid(), DIGEST_VERSION, self.digest));
        let trailer = encoder.trailer(&Trailer { digest, last_zxid: Some(self.zxid()) });
        out.write_all(&trailer)?;
        Ok(bytes + trailer.len() as u64)
    }
}
