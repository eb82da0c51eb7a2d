//! What is counted: each body prepares, then has [`counted`] do its part.

use std::hint::black_box;
use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use lockkeeper::internals::proto::frame::{self, FRAME_BYTES_MAX_DEFAULT};
use lockkeeper::internals::proto::response::encode_reply;
use lockkeeper::internals::proto::{ErrorCode, Request, Response, Stat, Text};
use lockkeeper::internals::replica::ClientRequest;

use crate::logs;
use crate::rig::{Rig, client, payload};
use crate::woods::{Woods, create, directory_path, path};

/// One of them.
pub struct Body {
    pub name: &'static str,
    pub what: &'static str,
    /// How many are counted.
    pub operations: usize,
    run: fn(usize),
}

const fn body(name: &'static str, operations: usize, run: fn(usize), what: &'static str) -> Body {
    Body { name, what, operations, run }
}

/// All of them, in the order in which they are shown.
pub const ALL: &[Body] = &[
    body("codec-decode", 10_000, decode, "a request of a lock cycle, from bytes"),
    body("codec-encode", 10_000, encode, "an answer with 100 bytes and a Stat"),
    body("codec-list", 1000, list, "an answer with 64 names"),
    body("apply-create", 10_000, apply_create, "a znode made in a tree of 10,000"),
    body("apply-set", 10_000, apply_set, "a znode changed there"),
    body("apply-delete", 10_000, apply_delete, "a znode deleted there"),
    body("apply-lock", 10_000, apply_lock, "a contender made and deleted there"),
    body("replica-get", 5000, replica_get, "a read, from request to answer"),
    body("replica-set", 5000, replica_set, "a write, from request to answer, log included"),
    body("replica-set-64", 6400, replica_set_64, "the same, 64 arriving together"),
    body("watch-set", 2000, watch_set, "a read that also watches"),
    body("watch-trigger", 1000, watch_trigger, "a notification, one of 1000 of a change"),
    body("log-append", 500, |count| append(count, 1), "an entry of 200 bytes, alone"),
    body("log-append-64", 6400, |count| append(count, 64), "the same, 64 together"),
];

/// Bytes of data in each znode.
const DATA: usize = 100;
const CONN: u64 = 1;

/// Runs one of them as it is.
pub fn run(name: &str) -> Result<(), String> {
    let body = ALL.iter().find(|body| body.name == name);
    let body = body.ok_or_else(|| format!("{name}: there is no such body"))?;
    (body.run)(body.operations);
    Ok(())
}

/// Everything that is done in here counts. Never inlined, because valgrind looks for it.
#[inline(never)]
fn counted(part: &mut dyn FnMut()) {
    part();
    black_box(());
}

fn decode(count: usize) {
    let node = Text::from(path(1));
    let all = [
        Request::Create(create(&format!("{}/contender-", directory_path(1)), 40, 3)),
        Request::GetChildren { path: Text::from(directory_path(1)), watch: false, stat: false },
        Request::GetData { path: node.clone(), watch: true },
        Request::Delete { path: node, version: -1 },
    ];
    let mut bytes = Vec::new();
    for (xid, request) in (0..count).zip(all.iter().cycle()) {
        frame::append(&mut bytes, |out| out.extend(payload(xid as i32, request)));
    }
    let mut bytes = BytesMut::from(&bytes[..]);
    let mut decoded = 0;
    counted(&mut || {
        while let Ok(Some(payload)) = frame::next(&mut bytes, FRAME_BYTES_MAX_DEFAULT) {
            let request = ClientRequest::decode(payload).expect("it has a header");
            decoded += usize::from(black_box(request).decoded.is_ok());
        }
    });
    assert_eq!(decoded, count, "all were valid");
}

fn encode(count: usize) {
    let response = Response::Data(Some(Bytes::from(vec![7; DATA])), Stat::default());
    encode_many(count, &Ok(response));
}

fn list(count: usize) {
    let names = (0..64).map(|at| Text::from(format!("lock-{at:010}"))).collect();
    encode_many(count, &Ok(Response::Names(names)));
}

fn encode_many(count: usize, result: &Result<Response, ErrorCode>) {
    let mut out = Vec::with_capacity(1 << 20);
    counted(&mut || {
        for xid in 0..count {
            out.clear();
            frame::append(&mut out, |out| encode_reply(xid as i32, 1, black_box(result), out));
        }
    });
    assert!(out.len() > DATA);
}

/// A tree with znodes in it.
fn woods(count: usize) -> Woods {
    let mut woods = Woods::new();
    for number in 0..count {
        woods.create(&create(&path(number), DATA, 0));
    }
    woods
}

fn apply_create(count: usize) {
    let mut woods = woods(count);
    let requests: Vec<_> =
        (count..2 * count).map(|number| create(&path(number), DATA, 0)).collect();
    counted(&mut || {
        for request in &requests {
            black_box(woods.create(request));
        }
    });
}

fn apply_set(count: usize) {
    let mut woods = woods(count);
    let paths: Vec<Text> = (0..count).map(|number| Text::from(path(number))).collect();
    let data = [8; DATA];
    counted(&mut || {
        for path in &paths {
            let ctx = woods.context();
            let set = woods.tree.set_data(&ctx, path, Some(&data), -1, &mut woods.events);
            black_box(set.is_ok());
            woods.events.clear();
        }
    });
}

fn apply_delete(count: usize) {
    let mut woods = woods(count);
    let paths: Vec<Text> = (0..count).map(|number| Text::from(path(number))).collect();
    counted(&mut || paths.iter().for_each(|path| woods.delete(path)));
}

fn apply_lock(count: usize) {
    let mut woods = woods(count);
    let requests: Vec<_> = (0..count)
        .map(|number| create(&format!("{}/contender-", directory_path(number)), 40, 3))
        .collect();
    counted(&mut || {
        for request in &requests {
            let path = woods.create(request);
            woods.delete(&path);
        }
    });
}

/// A replica with one session and `count` znodes, and their paths.
fn rig(count: usize) -> (Rig, Vec<Text>) {
    let mut rig = Rig::new();
    rig.connect(CONN);
    let paths: Vec<Text> = (0..count).map(|at| Text::from(format!("/node-{at:010}"))).collect();
    for path in &paths {
        rig.ask(CONN, vec![client(1, &Request::Create(create(path.as_str(), DATA, 0)))]);
    }
    (rig, paths)
}

/// Asks for all of it, so many requests at a time, and counts that.
fn asked(mut rig: Rig, requests: Vec<ClientRequest>, together: usize) {
    let count = requests.len() as u64;
    let batches: Vec<Vec<ClientRequest>> =
        requests.chunks(together).map(<[ClientRequest]>::to_vec).collect();
    let before = rig.frames;
    let mut batches = batches.into_iter();
    counted(&mut || {
        for batch in batches.by_ref() {
            rig.ask(CONN, batch);
        }
    });
    assert_eq!(rig.frames - before, count, "all were answered");
}

fn replica_get(count: usize) {
    let (rig, paths) = rig(100);
    let get = |path: &Text| client(1, &Request::GetData { path: path.clone(), watch: false });
    let requests = paths.iter().cycle().take(count).map(get).collect();
    asked(rig, requests, 1);
}

fn sets(paths: &[Text], count: usize) -> Vec<ClientRequest> {
    let data = Some(Bytes::from(vec![9; DATA]));
    let set = |path: &Text| {
        client(1, &Request::SetData { path: path.clone(), data: data.clone(), version: -1 })
    };
    paths.iter().cycle().take(count).map(set).collect()
}

fn replica_set(count: usize) {
    let (rig, paths) = rig(100);
    asked(rig, sets(&paths, count), 1);
}

fn replica_set_64(count: usize) {
    let (rig, paths) = rig(100);
    asked(rig, sets(&paths, count), 64);
}

fn watch_set(count: usize) {
    let (rig, paths) = rig(count);
    let watch = |path: &Text| client(1, &Request::GetData { path: path.clone(), watch: true });
    asked(rig, paths.iter().map(watch).collect(), 1);
}

fn watch_trigger(count: usize) {
    let (mut rig, paths) = rig(1);
    for conn in 0..count as u64 {
        let conn = CONN + 1 + conn;
        rig.connect(conn);
        let path = paths[0].clone();
        rig.ask(conn, vec![client(1, &Request::GetData { path, watch: true })]);
    }
    let before = rig.frames;
    let mut set = Some(sets(&paths, 1));
    counted(&mut || rig.ask(CONN, set.take().expect("once")));
    assert_eq!(rig.frames - before, count as u64 + 1, "an answer, and all were told");
}

fn append(count: usize, together: usize) {
    let name = format!("counts-log-{}", std::process::id());
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut log = logs::new_log(&dir);
    log.prepare();
    let batches: Vec<_> = (0..count / together)
        .map(|at| logs::batch(1 + (at * together) as u64, together as u64))
        .collect();
    counted(&mut || {
        for batch in &batches {
            log.append(std::slice::from_ref(batch)).expect("append");
        }
    });
    drop(log);
    std::fs::remove_dir_all(&dir).expect("the directory can be removed");
}
