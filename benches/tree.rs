//! What a znode costs: nanoseconds of each operation, bytes of memory.
//!
//! `cargo bench --no-default-features --bench tree [-- ZNODES]`, one thread, nothing but the tree.
//! Paths of 32 bytes in 1000 lock directories, 100 bytes of data.

#![allow(clippy::disallowed_methods)] // a bench is there to read the clock

use std::hint::black_box;
use std::time::Instant;

use lockkeeper::internals::proto::request::Create;
use lockkeeper::internals::proto::{MultiOp, Text};
use lockkeeper::internals::tree::Tree;

#[path = "../tests/simulation/rng.rs"]
mod rng;
#[path = "common/woods.rs"]
mod woods;

use rng::Rng;
use woods::{DIRECTORIES, Woods, create, directory_path, path};

fn main() {
    let count = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(1_000_000);
    let mut bench = Woods::new();
    fill(&mut bench, count);

    let mut order: Vec<usize> = (0..count).collect();
    shuffle(&mut order);
    order.truncate(200_000);
    let paths: Vec<Text> = order.iter().map(|number| Text::from(path(*number))).collect();
    random_access(&mut bench, &paths);
    locks(&mut bench);
    list(&bench);
    persist(&mut bench);
    let spent = timed(|| paths.iter().for_each(|path| bench.delete(path)));
    report("delete, random, with a tombstone", spent, paths.len());
}

fn fill(bench: &mut Woods, count: usize) {
    let before = resident_bytes();
    let mut spent = 0;
    for start in (0..count).step_by(BATCH) {
        let requests: Vec<Create> =
            (start..count.min(start + BATCH)).map(|number| create(&path(number), 100, 0)).collect();
        spent += timed(|| {
            for request in &requests {
                bench.create(request);
            }
        });
    }
    report("create", spent, count);
    println!("{:>10} bytes a znode", (resident_bytes() - before) / count as u64);
}

fn random_access(bench: &mut Woods, paths: &[Text]) {
    let spent = timed(|| {
        for path in paths {
            black_box(bench.tree.get_data(&[], path.as_str()).unwrap());
        }
    });
    report("get, random", spent, paths.len());
    let data = [b'y'; 100];
    let spent = timed(|| {
        for path in paths {
            let ctx = bench.context();
            bench.tree.set_data(&ctx, path, Some(&data), -1, &mut bench.events).unwrap();
            bench.events.clear();
        }
    });
    report("set, random", spent, paths.len());
}

fn locks(bench: &mut Woods) {
    let requests: Vec<Create> = (0..200_000)
        .map(|number| create(&format!("{}/contender-", directory_path(number)), 40, 3))
        .collect();
    let spent = timed(|| {
        for request in &requests {
            let path = bench.create(request);
            bench.delete(&path);
        }
    });
    report("lock: create and delete", spent, requests.len());
    let multis: Vec<[MultiOp; 2]> = requests
        .into_iter()
        .map(|request| {
            let check = MultiOp::Check { path: Text::from("/nope"), version: 0 };
            [MultiOp::Create(request), check]
        })
        .collect();
    let spent = timed(|| {
        for ops in &multis {
            let ctx = bench.context();
            assert!(bench.tree.multi(&ctx, ops, &mut bench.events).is_err());
        }
    });
    report("multi taken back: create, check", spent, multis.len());
}

fn list(bench: &Woods) {
    let mut listed = 0;
    let spent = timed(|| {
        for directory in 0..DIRECTORIES {
            let children = bench.tree.children(&[], &directory_path(directory)).unwrap();
            listed += children.len();
            black_box(children.names().map(str::len).sum::<usize>());
        }
    });
    report("list, a child", spent, listed);
}

fn persist(bench: &mut Woods) {
    let tree = &mut bench.tree;
    let waiting = tree.changes_waiting();
    let mut records = Vec::with_capacity(waiting);
    let spent = timed(|| {
        // One call hands out a bounded number of bytes.
        while tree.drain_changes(usize::MAX, &mut |path, record| {
            records.push((path.to_vec(), record.map(<[u8]>::to_vec)));
        }) {}
    });
    report("drain, a record", spent, waiting);
    records.sort_unstable();
    let mut loaded = Tree::empty(tree.options().clone());
    let spent = timed(|| {
        for (path, record) in &records {
            loaded.load_record(path, record.as_deref().unwrap_or_default()).unwrap();
        }
        loaded.load_finished().unwrap();
    });
    report("load, a record", spent, records.len());
    assert_eq!(loaded.digest(), tree.digest());
    report("mark all changed", timed(|| tree.mark_all_changed()), 1);
    while tree.drain_changes(usize::MAX, &mut |_, _| {}) {}
}

const BATCH: usize = 10_000;

fn timed<T>(work: impl FnOnce() -> T) -> u128 {
    let start = Instant::now();
    black_box(work());
    start.elapsed().as_nanos()
}

fn report(name: &str, nanoseconds: u128, count: usize) {
    println!("{:>10.0} ns  {name}", nanoseconds as f64 / count as f64);
}

/// Fisher-Yates: the same order every time.
fn shuffle(order: &mut [usize]) {
    let mut rng = Rng::new(1, 0);
    for index in (1..order.len()).rev() {
        order.swap(index, rng.index(index + 1));
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("this runs on Linux");
    let pages: u64 = statm.split(' ').nth(1).expect("statm has fields").parse().unwrap();
    pages * 4096
}
