//! A run: records sorted by key, written once and never changed.
//!
//! *Owns* its format, and that what is read is what was written. *Invariants*: keys ascend and none
//! is there twice; a run that was read to its end had every byte that was written to it, in order,
//! and nothing else. *Never* vouches for a record before that: a caller that reads a run must not use
//! what it gave if its end is not reached. *Never* takes memory for a long
//! record before the whole run has turned out to be what was written: nothing else bounds a length.
//!
//! ```text
//! record   length of key u32, length of value u32 (u32::MAX: the key is removed), key, value
//! block    7 KiB of records one behind the other; a record may go on in the next block
//! ```

use twox_hash::XxHash3_128;

use super::store::{BLOCK_BYTES, StateError, StateStore};
use lockkeeper_core::replica::Record;

/// Length of the value of a record that is gone.
const REMOVED: u32 = u32::MAX;
const HEADER_BYTES: usize = 8;
const OTHER: &str = "it is not what was written there";
/// Memory that a reader keeps for long records.
const KEPT_BYTES_MAX: usize = 4 * BLOCK_BYTES;
/// The longest record that memory is taken for before its run is proved. Requests of the usual size
/// make none that is longer; a run with longer ones is read twice.
const UNPROVED_BYTES_MAX: usize = 4 << 20;

/// What is known of a complete run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// Its number, which no other run of the store has.
    pub id: u64,
    /// How many blocks it has.
    pub blocks: u32,
    /// How many records, removals among them.
    pub records: u64,
    /// How many of them are removals.
    pub removed: u64,
    /// Bytes of all blocks.
    pub bytes: u64,
    /// Sum over the hashes of its blocks, each hashed together with its place.
    pub sum: u128,
}

impl Run {
    /// Counts the next block.
    fn add_block(&mut self, block: &[u8]) {
        // A seed keeps two equal blocks in different places apart.
        let place = self.id.rotate_left(32) ^ u64::from(self.blocks);
        self.sum = self.sum.wrapping_add(XxHash3_128::oneshot_with_seed(place, block));
        self.bytes += block.len() as u64;
        self.blocks += 1;
    }
}

/// Appends a record to `out` as it is in a run.
pub(crate) fn pack(record: Record<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&length(record.key.len()).to_le_bytes());
    let value_len = record.value.map_or(REMOVED, |value| length(value.len()));
    out.extend_from_slice(&value_len.to_le_bytes());
    out.extend_from_slice(record.key);
    out.extend_from_slice(record.value.unwrap_or_default());
}

fn length(len: usize) -> u32 {
    u32::try_from(len).ok().filter(|len| *len < REMOVED).expect("a frame limits a record")
}

/// How many bytes the key and the value of the record at the front have, if that much is there.
fn lengths(bytes: &[u8]) -> Option<(usize, Option<usize>)> {
    let (key_len, rest) = bytes.split_first_chunk::<4>()?;
    let value_len = u32::from_le_bytes(*rest.first_chunk()?);
    let value_len = (value_len != REMOVED).then_some(value_len as usize);
    Some((u32::from_le_bytes(*key_len) as usize, value_len))
}

/// The record at the front of what [`pack`] made.
pub(crate) fn unpack(bytes: &[u8]) -> Record<'_> {
    let (key_len, value_len) = lengths(bytes).expect("a record was packed there");
    let (key, rest) = bytes[HEADER_BYTES..].split_at(key_len);
    Record { key, value: value_len.map(|len| &rest[..len]) }
}

/// Writes a run into a store. What it has written is of no use before it is finished.
#[derive(Debug)]
pub(crate) struct RunWriter {
    run: Run,
    block: Vec<u8>,
    packed: Vec<u8>,
    last_key: Vec<u8>,
}

impl RunWriter {
    pub(crate) fn new(id: u64) -> Self {
        Self {
            run: Run { id, ..Run::default() },
            block: Vec::with_capacity(BLOCK_BYTES),
            packed: Vec::new(),
            last_key: Vec::new(),
        }
    }

    /// Adds a record. Keys must ascend.
    pub(crate) fn record(
        &mut self,
        store: &mut dyn StateStore,
        record: Record<'_>,
    ) -> Result<(), StateError> {
        if self.run.records > 0 && record.key <= &self.last_key[..] {
            let what = format!("run {}: its keys do not ascend", self.run.id);
            return Err(StateError::new(store.path(), what));
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(record.key);
        self.run.records += 1;
        self.run.removed += u64::from(record.value.is_none());
        self.packed.clear();
        pack(record, &mut self.packed);
        let mut packed = &self.packed[..];
        while !packed.is_empty() {
            let (now, later) = packed.split_at(packed.len().min(BLOCK_BYTES - self.block.len()));
            self.block.extend_from_slice(now);
            packed = later;
            if self.block.len() == BLOCK_BYTES {
                Self::flush(&mut self.run, &mut self.block, store)?;
            }
        }
        Ok(())
    }

    fn flush(
        run: &mut Run,
        block: &mut Vec<u8>,
        store: &mut dyn StateStore,
    ) -> Result<(), StateError> {
        store.put_block(run.id, run.blocks, block)?;
        run.add_block(block);
        block.clear();
        Ok(())
    }

    /// Completes the run.
    pub(crate) fn finish(mut self, store: &mut dyn StateStore) -> Result<Run, StateError> {
        if !self.block.is_empty() {
            Self::flush(&mut self.run, &mut self.block, store)?;
        }
        Ok(self.run)
    }
}

/// Reads a run, one record after the other.
#[derive(Debug)]
pub(crate) struct RunReader {
    expected: Run,
    found: Run,
    /// What was read and not gone past yet; the current record begins at `at`.
    bytes: Vec<u8>,
    at: usize,
    key_end: usize,
    /// End of the current record, and whether it has a value.
    end: usize,
    has_value: bool,
    /// Whether all of the run is known to be what was written.
    is_proved: bool,
}

impl RunReader {
    /// In front of the first record.
    pub(crate) fn new(run: &Run) -> Self {
        Self {
            expected: run.clone(),
            found: Run { id: run.id, ..Run::default() },
            bytes: Vec::new(),
            at: 0,
            key_end: 0,
            end: 0,
            has_value: false,
            is_proved: false,
        }
    }

    /// Goes to the next record; false at the end, which is only reached if everything was there.
    pub(crate) fn advance(&mut self, store: &mut dyn StateStore) -> Result<bool, StateError> {
        self.at = self.end;
        if !self.fill(store, 1)? {
            return match self.found == self.expected {
                true => Ok(false),
                false => Err(self.wrong(store, OTHER)),
            };
        }
        let is_whole = self.fill(store, HEADER_BYTES)?;
        let (key_len, value_len) = match lengths(&self.bytes[self.at..]) {
            Some(lengths) if is_whole => lengths,
            Some(_) | None => return Err(self.wrong(store, "its last record is cut off")),
        };
        let len = HEADER_BYTES + key_len + value_len.unwrap_or(0);
        if len > UNPROVED_BYTES_MAX && self.may_have(len) {
            self.prove(store)?;
        }
        if !self.fill(store, len)? {
            return Err(self.wrong(store, "a record is longer than what is left"));
        }
        self.key_end = self.at + HEADER_BYTES + key_len;
        self.end = self.at + len;
        self.has_value = value_len.is_some();
        self.found.records += 1;
        self.found.removed += u64::from(value_len.is_none());
        Ok(true)
    }

    /// The record that [`RunReader::advance`] went to.
    pub(crate) fn record(&self) -> Record<'_> {
        let value = self.has_value.then(|| &self.bytes[self.key_end..self.end]);
        Record { key: self.key(), value }
    }

    /// The key of that.
    pub(crate) fn key(&self) -> &[u8] {
        &self.bytes[self.at + HEADER_BYTES..self.key_end]
    }

    /// Whether the run has room for `len` bytes from the current place on.
    fn may_have(&self, len: usize) -> bool {
        let left = self.expected.bytes.saturating_sub(self.found.bytes);
        len as u64 <= (self.bytes.len() - self.at) as u64 + left
    }

    /// Reads until `len` bytes from the current place on are there; false if the run has no more.
    fn fill(&mut self, store: &mut dyn StateStore, len: usize) -> Result<bool, StateError> {
        if !self.may_have(len) {
            return Ok(false);
        }
        while self.bytes.len() - self.at < len {
            if self.found.blocks == self.expected.blocks {
                return Ok(false);
            }
            self.bytes.drain(..self.at);
            self.at = 0;
            if self.bytes.capacity() > KEPT_BYTES_MAX {
                self.bytes.shrink_to(KEPT_BYTES_MAX.max(len));
            }
            let begin = self.bytes.len();
            if !store.read_block(self.found.id, self.found.blocks, &mut self.bytes)? {
                return Err(self.missing(store, self.found.blocks));
            }
            self.found.add_block(&self.bytes[begin..]);
        }
        Ok(true)
    }

    /// Reads the blocks that were not read yet, and keeps none of them: afterwards every length in
    /// the run is one that was written there.
    fn prove(&mut self, store: &mut dyn StateStore) -> Result<(), StateError> {
        if self.is_proved {
            return Ok(());
        }
        let mut whole = self.found.clone();
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        while whole.blocks < self.expected.blocks {
            block.clear();
            if !store.read_block(whole.id, whole.blocks, &mut block)? {
                return Err(self.missing(store, whole.blocks));
            }
            whole.add_block(&block);
        }
        self.is_proved = (whole.bytes, whole.sum) == (self.expected.bytes, self.expected.sum);
        match self.is_proved {
            true => Ok(()),
            false => Err(self.wrong(store, OTHER)),
        }
    }

    fn missing(&self, store: &dyn StateStore, block: u32) -> StateError {
        self.wrong(store, &format!("its block {block} is missing"))
    }

    fn wrong(&self, store: &dyn StateStore, what: &str) -> StateError {
        let what = format!("run {} of {} records: {what}", self.found.id, self.expected.records);
        StateError::new(store.path(), what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestState;

    const LONG: usize = UNPROVED_BYTES_MAX + 1;

    /// A run of records with values of these lengths.
    fn written(store: &mut TestState, lens: &[usize]) -> Run {
        let mut writer = RunWriter::new(1);
        for (i, len) in lens.iter().enumerate() {
            let key = &(i as u64).to_be_bytes()[..];
            let value = vec![i as u8; *len];
            writer.record(store, Record { key, value: Some(&value) }).unwrap();
        }
        writer.finish(store).unwrap()
    }

    /// Has the first record of the run say that its value is this long.
    fn claim(store: &TestState, value_len: usize) {
        let value_len = u32::try_from(value_len).unwrap().to_le_bytes();
        store.alter((1, 0), |block| block.as_mut().unwrap()[4..8].copy_from_slice(&value_len));
    }

    /// A change of this is a new version of the manifest (`copy/manifest.rs`), which decides how
    /// runs are read.
    #[test]
    fn the_bytes_of_a_run_are_these() {
        let mut store = TestState::default();
        let mut writer = RunWriter::new(3);
        for (key, value) in [(&b"/a"[..], Some(&b"one"[..])), (b"/b", None), (b"/c", Some(b""))] {
            writer.record(&mut store, Record { key, value }).unwrap();
        }
        let run = writer.finish(&mut store).unwrap();
        let mut block = Vec::new();
        assert!(store.read_block(3, 0, &mut block).unwrap());
        let golden: [&[u8]; 3] = [
            b"\x02\0\0\0\x03\0\0\0/aone",
            b"\x02\0\0\0\xff\xff\xff\xff/b",
            b"\x02\0\0\0\0\0\0\0/c",
        ];
        assert_eq!(block, golden.concat());
        let sum = 0x0216f182b16e80db38ef780200d2092e;
        let expected = Run { id: 3, blocks: 1, records: 3, removed: 1, bytes: 33, sum };
        assert_eq!(run, expected);
    }

    #[test]
    fn the_sum_over_a_run_is_that_of_its_blocks_and_their_places() {
        let mut run = Run { id: 3, ..Run::default() };
        let mut sums = Vec::new();
        for block in [&b"one"[..], b"two"] {
            run.add_block(block);
            sums.push(format!("{:032x}", run.sum));
        }
        assert_eq!(sums, ["b128fe2a417dbb4aa0accf38bc352d5f", "30b75233b3714f62524b3b1f0a6dba77"]);
    }

    #[test]
    fn a_damaged_length_takes_no_memory() {
        let mut store = TestState::default();
        let run = written(&mut store, &[100; 100_000]);
        assert!(run.bytes > 2 * LONG as u64, "there is enough to believe it");
        claim(&store, LONG);
        let mut reader = RunReader::new(&run);
        let error = reader.advance(&mut store).unwrap_err();
        assert!(error.what.ends_with(OTHER), "{error}");
        assert!(reader.bytes.capacity() <= KEPT_BYTES_MAX, "{}", reader.bytes.capacity());
    }

    #[test]
    fn a_length_that_is_more_than_what_is_left_is_refused_at_once() {
        for value_len in [LONG, REMOVED as usize - 1] {
            let mut store = TestState::default();
            let run = written(&mut store, &[100; 1000]);
            claim(&store, value_len);
            let error = RunReader::new(&run).advance(&mut store).unwrap_err();
            assert!(error.what.ends_with("longer than what is left"), "{error}");
            assert_eq!(store.blocks_read(), 1);
        }
    }

    #[test]
    fn a_run_is_read_once_and_one_with_long_records_twice() {
        for (longest, times) in [(LONG - 100, 1), (LONG, 2)] {
            let mut store = TestState::default();
            let lens = [longest, 7, longest, longest, 7];
            let run = written(&mut store, &lens);
            let mut reader = RunReader::new(&run);
            for (i, len) in lens.into_iter().enumerate() {
                assert!(reader.advance(&mut store).unwrap());
                assert!(reader.record().value == Some(&vec![i as u8; len]), "record {i}");
            }
            assert!(!reader.advance(&mut store).unwrap());
            let read = store.blocks_read();
            // The first block was read before it was known what comes.
            assert_eq!(read, u64::from(run.blocks * times) - u64::from(times - 1));
        }
    }
}
