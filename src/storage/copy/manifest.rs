//! What a state store says of its contents.
//!
//! *Owns* the manifest: which runs there are, and which state they are together. *Never* is believed
//! unless its checksum is right, whatever version it claims to be of.
//!
//! ```text
//! version u8, mark (mark.rs), number of runs u32, then of each, oldest first: id u64, blocks u32,
//! records u64, removed u64, bytes u64, sum u128; crc32c u32
//! ```

use std::path::Path;

use super::run::Run;
use super::store::{StateError, StateStore};
use crate::formats::KNOWN;
use crate::mark::{self, take};
use lockkeeper_core::replica::Mark;

/// 1 was a store with one entry for each record.
const ONE_FOR_EACH_RECORD: u8 = 1;

/// Which state the runs of a store are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// The state.
    pub mark: Mark,
    /// Its runs, oldest first.
    pub runs: Vec<Run>,
}

/// What was found in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing was ever completed there.
    Nothing,
    /// A state.
    State(Manifest),
    /// What an earlier version of this program left there.
    Earlier,
}

impl Manifest {
    /// As bytes.
    #[must_use]
    pub(crate) fn encode(&self, version: u8) -> Vec<u8> {
        let mut out = vec![version];
        mark::encode(&self.mark, &mut out);
        let count = u32::try_from(self.runs.len()).expect("runs are merged when there are many");
        out.extend_from_slice(&count.to_le_bytes());
        for run in &self.runs {
            out.extend_from_slice(&run.id.to_le_bytes());
            out.extend_from_slice(&run.blocks.to_le_bytes());
            out.extend_from_slice(&run.records.to_le_bytes());
            out.extend_from_slice(&run.removed.to_le_bytes());
            out.extend_from_slice(&run.bytes.to_le_bytes());
            out.extend_from_slice(&run.sum.to_le_bytes());
        }
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out
    }

    /// What `store` says of itself.
    pub(crate) fn read(store: &mut dyn StateStore) -> Result<Found, StateError> {
        let Some(bytes) = store.manifest()? else { return Ok(Found::Nothing) };
        decode(&bytes).map_err(|what| StateError::new(store.path(), what))
    }

    /// Objects if there are not as many records in the runs as the state has.
    pub(crate) fn check_records(&self, store: &Path, found: u64) -> Result<(), StateError> {
        if found == self.mark.records {
            return Ok(());
        }
        let Mark { index, records, .. } = self.mark;
        let what = format!("it has {found} records at index {index}, the state has {records}");
        Err(StateError::new(store, what))
    }

    /// The numbers of its runs.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().map(|run| run.id)
    }
}

fn decode(bytes: &[u8]) -> Result<Found, String> {
    let damaged = || "its manifest is damaged".to_owned();
    let (mut reader, crc) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
    if u32::from_le_bytes(*crc) != crc32c::crc32c(reader) {
        return Err(damaged());
    }
    match take(&mut reader) {
        Some([ONE_FOR_EACH_RECORD]) => Ok(Found::Earlier),
        Some([version]) if version > ONE_FOR_EACH_RECORD && version <= KNOWN.manifest => {
            manifest(reader).map(Found::State).ok_or_else(damaged)
        }
        Some([version]) => Err(format!(
            "its format has version {version}, this program knows up to {}: use the \
             version of lockkeeper that wrote it",
            KNOWN.manifest
        )),
        None => Err(damaged()),
    }
}

fn manifest(mut reader: &[u8]) -> Option<Manifest> {
    let mark = mark::decode(&mut reader)?;
    let count = u32::from_le_bytes(take(&mut reader)?);
    // Nothing is reserved for a number that was read: it ends where the bytes do.
    let runs = (0..count).map(|_| run(&mut reader)).collect::<Option<_>>()?;
    reader.is_empty().then_some(Manifest { mark, runs })
}

fn run(reader: &mut &[u8]) -> Option<Run> {
    Some(Run {
        id: u64::from_le_bytes(take(reader)?),
        blocks: u32::from_le_bytes(take(reader)?),
        records: u64::from_le_bytes(take(reader)?),
        removed: u64::from_le_bytes(take(reader)?),
        bytes: u64::from_le_bytes(take(reader)?),
        sum: u128::from_le_bytes(take(reader)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_core::replica::Membership;

    fn some() -> Manifest {
        let run = |id| Run { id, blocks: 2, records: 9, removed: 1, bytes: 70, sum: 1 << 99 };
        Manifest {
            mark: Mark { index: 7, records: 8, ..Mark::default() },
            runs: vec![run(3), run(9)],
        }
    }

    fn with_crc(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    #[test]
    fn a_manifest_survives_encoding_and_no_other_bytes_do() {
        let bytes = some().encode(2);
        assert_eq!(decode(&bytes), Ok(Found::State(some())));
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), Err("its manifest is damaged".to_owned()));
            let mut flipped = bytes.clone();
            flipped[len] ^= 1;
            assert_eq!(decode(&flipped), Err("its manifest is damaged".to_owned()));
        }
        // Nor what is damaged under a checksum that is right.
        for len in 0..bytes.len() - 4 {
            assert!(decode(&with_crc(bytes[..len].to_vec())).is_err(), "cut to {len}");
        }
    }

    /// A change of this is a new version.
    #[test]
    fn the_bytes_of_a_manifest_are_these() {
        let membership = Membership { voters: vec![1, 258], learners: vec![3] };
        let (index, term, zxid, records) = (7, 6, -2, 8);
        let mark = Mark { index, term, zxid, digest: 1 << 120 | 5, records, membership };
        let run = |id| Run { id, blocks: 2, records: 9, removed: 1, bytes: 70, sum: 1 << 99 };
        let bytes = Manifest { mark, runs: vec![run(3), run(4)] }.encode(2);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let golden = "02 \
             0700000000000000 0600000000000000 feffffffffffffff \
             05000000000000000000000000000001 0800000000000000 \
             02000000 0100000000000000 0201000000000000 01000000 0300000000000000 \
             02000000 \
             0300000000000000 02000000 0900000000000000 0100000000000000 4600000000000000 \
             00000000000000000000000008000000 \
             0400000000000000 02000000 0900000000000000 0100000000000000 4600000000000000 \
             00000000000000000000000008000000 \
             a24dd176";
        assert_eq!(hex, golden.replace(' ', ""));
    }

    #[test]
    fn an_earlier_format_is_known_and_a_later_one_is_named() {
        assert_eq!(decode(&with_crc(vec![1, 0])), Ok(Found::Earlier));
        let (later, known) = (KNOWN.manifest + 1, KNOWN.manifest);
        let error = decode(&with_crc(vec![later, 1, 2])).unwrap_err();
        let named = format!("version {later}, this program knows up to {known}");
        assert!(error.contains(&named), "{error}");
    }
}
