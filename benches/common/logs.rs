//! The log that the benchmarks write: entries of 200 bytes.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use lockkeeper::internals::replica::{Append, Entry, EntryKind, HardState, Urgency};
use lockkeeper::internals::storage::{Log, LogOptions, OsFs};

pub fn options() -> LogOptions {
    LogOptions { cluster_id: 1, node_id: 1, segment_bytes: 64 << 20, ensemble: false }
}

pub fn new_log(dir: &Path) -> Log {
    std::fs::create_dir_all(dir).expect("directory");
    Log::create(&OsFs, dir, &options()).expect("create");
    let (mut log, _) = Log::open(Arc::new(OsFs), dir, options()).expect("open");
    log.begin().expect("begin");
    log
}

pub fn batch(first: u64, count: u64) -> Append {
    let data = Bytes::from(vec![7; 200]);
    let entries = (first..first + count)
        .map(|index| Entry { term: 1, index, kind: EntryKind::Normal, data: data.clone() })
        .collect();
    let hard_state = Some(HardState { term: 1, vote: 1, commit: first - 1 });
    Append { number: first, install: None, entries, hard_state, urgency: Urgency::High }
}
