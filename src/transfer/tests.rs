//! Tests with directories that real servers of ZooKeeper have made (`tests/zookeeper/run fixtures`), and with such as
//! they would make.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::tree::Options;
use crate::zookeeper::log_file::{put_entry, put_header};
use crate::zookeeper::txn::kind;
use crate::zookeeper::{CreateTxn, Lifetime, Txn, TxnBody, TxnHeader};

fn want() -> Want {
    Want { options: Options::default(), up_to: None, any_digest: false, now_ms: i64::MAX }
}

fn member(dir: &Path) -> Member {
    Member::at(&Source { data: dir.to_owned(), log: dir.to_owned() }).unwrap()
}

fn fixtures() -> Vec<PathBuf> {
    let below = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zookeeper/fixtures");
    let mut dirs: Vec<_> =
        fs::read_dir(below).unwrap().map(|entry| entry.unwrap().path()).collect();
    dirs.sort();
    assert!(dirs.len() > 3, "there are some");
    dirs
}

#[test]
fn directories_of_real_servers_give_the_digest_that_zookeeper_has() {
    for dir in fixtures() {
        let loaded = load(&member(&dir), &want()).unwrap();
        let told = format!(
            "{} {} {} {:#x}\n",
            loaded.digest,
            Counts::of(&loaded.machine).znodes,
            loaded.machine.session_count(),
            loaded.machine.last_zxid()
        );
        assert_eq!(told, fs::read_to_string(dir.join("expected")).unwrap(), "{}", dir.display());
    }
}

#[test]
fn a_directory_that_is_exported_reads_back_as_itself() {
    for dir in fixtures() {
        let loaded = load(&member(&dir), &want()).unwrap();
        let (znodes, digest) = (Counts::of(&loaded.machine).znodes, loaded.digest);
        let sessions = loaded.machine.session_count();
        let temporary = tempfile::tempdir().unwrap();
        let out = temporary.path().join("out");
        let exported = export(loaded.machine, &out, Some(3), false).unwrap();
        assert_eq!((exported.digest, exported.left_out.len()), (digest, 0));
        let again = member(&out);
        assert_eq!(again.myid.as_deref(), Some("3"));
        assert_eq!(again.current_epoch, Some(epoch(exported.zxid)));
        let again = load(&again, &want()).unwrap();
        assert_eq!((again.digest, again.machine.session_count()), (digest, sessions));
        assert_eq!(Counts::of(&again.machine).znodes, znodes);
        let refused = export(again.machine, &out, None, false).unwrap_err();
        assert!(refused.contains("not empty"), "{refused}");
    }
}

#[test]
fn no_flipped_bit_of_a_real_snapshot_is_taken() {
    let dir = fixtures().into_iter().find(|dir| dir.ends_with("3.9.4")).unwrap();
    let original = member(&dir);
    let (_, path) = &original.snapshots[0];
    let bytes = fs::read(path).unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let versioned = temporary.path().join("version-2");
    fs::create_dir(&versioned).unwrap();
    let copy = versioned.join(path.file_name().unwrap());
    for byte in (0..bytes.len()).step_by(7) {
        let mut bytes = bytes.clone();
        bytes[byte] ^= 1 << (byte % 8);
        fs::write(&copy, bytes).unwrap();
        let refused = load(&member(temporary.path()), &want());
        assert!(refused.is_err(), "byte {byte}");
    }
}

/// A server that has logged these transactions.
fn server(dir: &Path, myid: u8, epoch: Option<i64>, txns: &[Txn]) -> Member {
    let versioned = dir.join(format!("{myid}/version-2"));
    fs::create_dir_all(&versioned).unwrap();
    let mut log = Vec::new();
    put_header(&mut log);
    txns.iter().for_each(|txn| put_entry(txn, &mut log));
    fs::write(versioned.join(format!("log.{:x}", txns[0].header.zxid)), log).unwrap();
    fs::write(dir.join(format!("{myid}/myid")), format!("{myid}\n")).unwrap();
    if let Some(epoch) = epoch {
        fs::write(versioned.join("currentEpoch"), epoch.to_string()).unwrap();
    }
    member(&dir.join(myid.to_string()))
}

fn txns(zxids: impl IntoIterator<Item = i64>, name: &str) -> Vec<Txn> {
    let txn = |zxid| Txn {
        header: TxnHeader { client_id: 1, cxid: 1, zxid, time_ms: zxid, kind: kind::CREATE },
        body: TxnBody::Create(CreateTxn {
            path: format!("/{name}{zxid:x}").into(),
            data: None,
            acl: vec![],
            lifetime: Lifetime::Persistent,
            parent_cversion: -1,
        }),
        digest: None,
    };
    zxids.into_iter().map(txn).collect()
}

const EPOCH: i64 = 1 << 32;

#[test]
fn the_highest_epoch_then_the_highest_zxid_is_taken_and_the_tail_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let made = |myid, epoch, last| {
        server(dir.path(), myid, Some(epoch), &txns(EPOCH + 1..=EPOCH + last, "a"))
    };
    let members = [made(1, 1, 8), made(2, 1, 10), made(3, 1, 8)];
    let chosen = choose(&members).unwrap();
    assert_eq!((chosen.winner, chosen.majority_has, chosen.tail), (1, EPOCH + 8, 2));
    assert!(chosen.why.contains("epoch 1, last zxid 0x10000000a, the highest"), "{}", chosen.why);
    let dropped = Want { up_to: Some(chosen.majority_has), ..want() };
    assert_eq!(load(&members[1], &dropped).unwrap().machine.last_zxid(), EPOCH + 8);
    assert_eq!(load(&members[1], &want()).unwrap().machine.last_zxid(), EPOCH + 10);
    let other = tempfile::tempdir().unwrap();
    let later = server(other.path(), 4, Some(2), &txns(EPOCH + 1..=EPOCH + 8, "a"));
    let chosen = choose(&[members[1].clone(), later]).unwrap();
    assert_eq!((chosen.winner, chosen.highest_epoch), (1, 2));
}

#[test]
fn servers_of_different_ensembles_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let one = server(dir.path(), 1, Some(1), &txns(EPOCH + 1..=EPOCH + 5, "a"));
    let other = server(dir.path(), 2, Some(1), &txns(EPOCH + 1..=EPOCH + 5, "b"));
    let alone = server(dir.path(), 3, None, &txns(EPOCH + 1..=EPOCH + 5, "a"));
    let again = tempfile::tempdir().unwrap();
    let same = server(again.path(), 1, Some(1), &txns(EPOCH + 1..=EPOCH + 5, "a"));
    let later = server(again.path(), 5, Some(1), &txns(EPOCH + 1000..=EPOCH + 1001, "a"));
    let refused = |members: &[Member]| choose(members).unwrap_err();
    assert!(refused(&[one.clone(), other]).contains("different ensembles"));
    assert!(refused(&[one.clone(), alone]).contains("on its own"));
    assert!(refused(&[one.clone(), same]).contains("server 1"));
    assert_eq!(choose(&[one, later]).unwrap().doubts.len(), 1);
}

#[test]
fn a_transaction_that_is_missing_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (mut gap, mut start) = (vec![EPOCH + 1, EPOCH + 2], vec![EPOCH + 5]);
    gap.push(EPOCH + 4);
    start.push(EPOCH + 6);
    for (myid, zxids) in [(1, gap), (2, start), (3, vec![3 * EPOCH + 1])] {
        let member = server(dir.path(), myid, Some(1), &txns(zxids, "a"));
        let refused = load(&member, &want()).unwrap_err();
        assert!(refused.contains("missing"), "{refused}");
    }
    let next_epoch = txns([EPOCH + 1, EPOCH + 2, 3 * EPOCH + 1], "a");
    let member = server(dir.path(), 4, Some(3), &next_epoch);
    assert_eq!(load(&member, &want()).unwrap().txns, 3);
}

/// Where the entries of a log begin, and the zxid of each.
fn entries(log: &[u8]) -> Vec<(usize, i64)> {
    let long = |at: usize| i64::from_be_bytes(log[at..at + 8].try_into().unwrap());
    let (mut at, mut found) = (16, Vec::new());
    while at + 12 < log.len() {
        let length = i32::from_be_bytes(log[at + 8..at + 12].try_into().unwrap());
        if length == 0 {
            break;
        }
        found.push((at, long(at + 24)));
        at += 12 + usize::try_from(length).unwrap() + 1;
    }
    found
}

#[test]
fn damage_in_front_of_a_whole_entry_is_named_by_its_byte_and_nothing_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let member = server(dir.path(), 1, Some(1), &txns(EPOCH + 1..=EPOCH + 1000, "a"));
    // The next file begins a new epoch: no zxid tells that some are missing in front of it.
    let mut next = Vec::new();
    put_header(&mut next);
    put_entry(&txns([2 * EPOCH + 1], "a")[0], &mut next);
    let (_, path) = &member.logs[0];
    fs::write(path.with_file_name("log.200000001"), next).unwrap();
    let whole = fs::read(path).unwrap();
    let member = self::member(&dir.path().join("1"));
    assert_eq!(load(&member, &want()).unwrap().txns, 1001);
    let all = entries(&whole);
    assert_eq!(all.len(), 1000);
    let ((begins, _), (next, _)) = (all[499], all[500]);
    let mut damages = vec![
        ("its mark", next - 1, whole[next - 1] ^ 2),
        ("its mark, as if it were not written", next - 1, 0),
        ("a length behind the end of the file", begins + 9, 1),
        ("a length behind the next entries", begins + 10, 4),
        ("a length of 0", begins + 11, 0),
    ];
    for (what, at, byte) in damages.drain(..) {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        refused_at(&member, begins, &bytes, what);
        bytes.resize(1 << 20, 0);
        refused_at(&member, begins, &bytes, what);
    }
    for lost in [12, next - begins, 4096] {
        let mut bytes = whole.clone();
        bytes[begins..begins + lost].fill(0);
        refused_at(&member, begins, &bytes, "zeros");
    }
}

fn refused_at(member: &Member, byte: usize, log: &[u8], what: &str) {
    fs::write(&member.logs[0].1, log).unwrap();
    for refused in
        [load(member, &want()).unwrap_err(), choose(std::slice::from_ref(member)).unwrap_err()]
    {
        assert!(refused.contains(&format!("damaged at byte {byte}:")), "{what}: {refused}");
    }
}

#[test]
fn an_entry_that_a_crash_cut_off_is_left_out_in_any_file_that_the_next_one_goes_on_from() {
    let dir = tempfile::tempdir().unwrap();
    let member = server(dir.path(), 1, Some(2), &txns(EPOCH + 1..=EPOCH + 3, "a"));
    let (_, path) = &member.logs[0];
    let whole = fs::read(path).unwrap();
    let (third, _) = entries(&whole)[2];
    // The server starts again in the same epoch, or in the next one.
    for next in [EPOCH + 3, 2 * EPOCH + 1] {
        let mut log = Vec::new();
        put_header(&mut log);
        txns(next..next + 2, "b").iter().for_each(|txn| put_entry(txn, &mut log));
        let later = path.with_file_name(format!("log.{next:x}"));
        fs::write(&later, log).unwrap();
        for cut in [third + 6, third + 20, whole.len() - 1] {
            let mut bytes = whole[..cut].to_vec();
            for size in [cut, 64 << 10] {
                bytes.resize(size, 0);
                fs::write(path, &bytes).unwrap();
                let member = self::member(&dir.path().join("1"));
                let loaded = load(&member, &want()).unwrap();
                assert_eq!((loaded.txns, loaded.machine.last_zxid()), (4, next + 1));
                let torn = loaded.torn.unwrap();
                assert!(torn.ends_with(&format!("at byte {third}")), "{torn}");
            }
        }
        fs::remove_file(later).unwrap();
    }
}

#[test]
fn a_server_that_lacks_what_another_one_has_in_between_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let made = |myid, zxids: Vec<i64>| server(dir.path(), myid, Some(2), &txns(zxids, "a"));
    let [first, last] = [EPOCH + 1, 2 * EPOCH + 2];
    let whole = made(1, vec![first, first + 1, first + 2, last - 1]);
    let lacks = made(2, vec![first, last - 1, last]);
    let refused = choose(&[whole.clone(), lacks]).unwrap_err();
    assert!(refused.contains("lacks transaction 0x100000002"), "{refused}");
    // A leader that died had logged what no other server has, and a later epoch began without it.
    let deposed = made(3, vec![first, first + 1, first + 2]);
    let later = made(4, vec![first, first + 1, last - 1, last]);
    let chosen = choose(&[deposed, later]).unwrap();
    assert_eq!((chosen.winner, chosen.doubts.len()), (1, 1));
    assert!(
        chosen.doubts[0].contains("has 1 transactions from 0x100000003"),
        "{:?}",
        chosen.doubts
    );
    // A snapshot that came from the leader has what the log lacks.
    let synced = made(5, vec![first, last - 1, last]);
    fs::write(dir.path().join("5/version-2/snapshot.100000003"), b"").unwrap();
    let synced = member(&synced.dir);
    assert_eq!(choose(&[whole, synced]).unwrap().doubts, Vec::<String>::new());
}

#[test]
fn what_a_deposed_leader_had_logged_is_left_out_although_it_came_back_and_went_on() {
    let dir = tempfile::tempdir().unwrap();
    let made = |myid, zxids: Vec<i64>| server(dir.path(), myid, Some(2), &txns(zxids, "a"));
    let [first, last] = [EPOCH + 1, 2 * EPOCH + 3];
    let others = [1, 2].map(|myid| made(myid, vec![first, last - 2, last - 1, last]));
    // It took the state with which the epoch began, and then each transaction of it.
    let at_once = made(3, vec![first, first + 1, last - 2, last - 1]);
    // It took a later one.
    let later = made(4, vec![first, first + 1, last - 1]);
    for deposed in [&at_once, &later] {
        let [one, two] = others.clone();
        let chosen = choose(&[deposed.clone(), one, two]).unwrap();
        assert_eq!((chosen.winner, chosen.doubts.len()), (1, 1), "{:?}", chosen.doubts);
        let told = "has 1 transactions from 0x100000002";
        assert!(chosen.doubts[0].contains(told), "{:?}", chosen.doubts);
        assert!(chosen.doubts[0].contains("was deposed"), "{:?}", chosen.doubts);
    }
    // Of two, either may be right where nothing is missing behind it.
    let refused = choose(&[at_once, others[0].clone()]).unwrap_err();
    assert!(refused.contains("more servers would show"), "{refused}");
    assert!(choose(&[later, others[0].clone()]).is_ok());
}

#[test]
fn a_directory_whose_logs_do_not_reach_its_newest_snapshot_names_the_data_log_dir() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path(), 1, Some(1), &txns(EPOCH + 1..=EPOCH + 5, "a"));
    let versioned = server.dir.join("version-2");
    let refused = |other: Option<&Path>| {
        let members = [self::member(&server.dir)];
        refuse_without_logs(&members, &choose(&members).unwrap(), other)
    };
    assert_eq!(refused(None), Ok(()), "all is in the log");
    // A server makes a snapshot when it starts, and may stop before the next transaction.
    fs::write(versioned.join("snapshot.100000005"), b"").unwrap();
    assert_eq!(refused(None), Ok(()));
    // The logs are those from before they got a directory of their own, or none.
    fs::write(versioned.join("snapshot.100000006"), b"").unwrap();
    let named = format!("{0},LOGDIR", server.dir.display());
    let stale = refused(None).unwrap_err();
    assert!(stale.contains("end at 0x100000005") && stale.contains(&named), "{stale}");
    fs::remove_file(&server.logs[0].1).unwrap();
    let none = refused(Some(Path::new("/log"))).unwrap_err();
    assert!(none.contains("there is no log in") && none.contains(",/log;"), "{none}");
    assert!(none.contains("--without-logs"), "{none}");
    assert!(!Member::has_logs_in(&server.dir) && !Member::has_logs_in(Path::new("/nowhere")));
    // A server that was never written to has an empty snapshot, and its logs may be elsewhere all the same.
    for zxid in [5, 6] {
        fs::remove_file(versioned.join(format!("snapshot.10000000{zxid}"))).unwrap();
    }
    fs::write(versioned.join("snapshot.0"), b"").unwrap();
    assert!(refused(None).unwrap_err().contains("of zxid 0x0"));
}

#[test]
fn directories_of_real_servers_have_their_logs() {
    for dir in fixtures() {
        let members = [member(&dir)];
        let chosen = choose(&members).unwrap();
        assert_eq!(refuse_without_logs(&members, &chosen, None), Ok(()), "{}", dir.display());
        assert!(Member::has_logs_in(&dir));
    }
}

#[test]
fn a_stamp_of_the_future_makes_no_znode_older() {
    const DAY_MS: i64 = 86_400_000;
    const STOPPED_MS: i64 = 20_000 * DAY_MS;
    let create = |zxid, time_ms, path: &str, lifetime, kind| Txn {
        header: TxnHeader { client_id: 1, cxid: 1, zxid, time_ms, kind },
        body: TxnBody::Create(CreateTxn {
            path: path.into(),
            data: None,
            acl: vec![],
            lifetime,
            parent_cversion: -1,
        }),
        digest: None,
    };
    let ttl = |zxid, time_ms, path: &str, ttl_ms| {
        create(zxid, time_ms, path, Lifetime::Ttl(ttl_ms), kind::CREATE_TTL)
    };
    let plain =
        |zxid, time_ms, path: &str| create(zxid, time_ms, path, Lifetime::Persistent, kind::CREATE);
    let txns = [
        ttl(EPOCH + 1, STOPPED_MS - 2 * DAY_MS, "/over", DAY_MS),
        ttl(EPOCH + 2, STOPPED_MS - DAY_MS, "/young", 2 * DAY_MS),
        // One leader had a clock that was a year ahead.
        plain(EPOCH + 3, STOPPED_MS + 365 * DAY_MS, "/ahead"),
        plain(EPOCH + 4, STOPPED_MS, "/last"),
    ];
    // Imported a week later, from the log, and from a snapshot.
    let want = Want { now_ms: STOPPED_MS + 7 * DAY_MS, ..want() };
    let due = |loaded: &Loaded| -> Vec<String> {
        let due = loaded.machine.tree().reapable(loaded.machine.steady_ms(), 0, 10);
        due.iter().map(|path| path.as_str().to_owned()).collect()
    };
    let dir = tempfile::tempdir().unwrap();
    let from_log = load(&server(dir.path(), 1, Some(1), &txns), &want).unwrap();
    assert_eq!(due(&from_log), ["/over"]);
    let out = dir.path().join("out");
    export(from_log.machine, &out, None, false).unwrap();
    let from_snapshot = load(&member(&out), &want).unwrap();
    assert_eq!(from_snapshot.txns, 0);
    assert_eq!(due(&from_snapshot), ["/over"]);
}

/// The directory of a real server, in a place where it may be changed.
fn copied(name: &str, into: &Path) -> PathBuf {
    let dir = fixtures().into_iter().find(|dir| dir.ends_with(name)).unwrap().join("version-2");
    let versioned = into.join("version-2");
    fs::create_dir_all(&versioned).unwrap();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, versioned.join(path.file_name().unwrap())).unwrap();
    }
    versioned
}

#[test]
fn an_older_snapshot_is_taken_only_if_the_logs_reach_to_the_newest() {
    let temporary = tempfile::tempdir().unwrap();
    let versioned = copied("3.4.14", temporary.path());
    // The snapshot that the server would have made behind its last transaction, and lost.
    fs::write(versioned.join("snapshot.1c"), b"ZKSN").unwrap();
    let loaded = load(&member(temporary.path()), &want()).unwrap();
    assert_eq!((loaded.machine.last_zxid(), loaded.skipped.len()), (0x1c, 1));
    fs::remove_file(versioned.join("log.1c")).unwrap();
    let refused = load(&member(temporary.path()), &want()).unwrap_err();
    assert!(refused.contains("snapshot.1c") && refused.contains("reach 0x1b only"), "{refused}");
    fs::remove_file(versioned.join("log.1")).unwrap();
    let refused = load(&member(temporary.path()), &want()).unwrap_err();
    assert!(refused.contains("no other snapshot is usable"), "{refused}");
}

#[test]
fn a_snapshot_that_was_finished_behind_the_end_of_the_logs_is_not_taken() {
    let temporary = tempfile::tempdir().unwrap();
    let versioned = copied("3.9.4", temporary.path());
    let loaded = load(&member(temporary.path()), &want()).unwrap();
    let out = temporary.path().join("out");
    let exported = export(loaded.machine, &out, None, false).unwrap();
    let older = versioned.join("snapshot.1e");
    let newest = versioned.join("snapshot.1d");
    fs::rename(&exported.file, newest).unwrap();
    fs::remove_file(older).unwrap();
    for entry in fs::read_dir(&versioned).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|zxid| zxid == "1f") {
            fs::remove_file(path).unwrap();
        }
    }
    let refused = load(&member(temporary.path()), &want()).unwrap_err();
    assert!(
        refused.contains("it was finished at zxid 0x1f, and the logs end at 0x1d"),
        "{refused}"
    );
}

#[test]
fn a_source_is_one_directory_or_two() {
    let parsed = |text: &str| text.parse::<Source>();
    assert_eq!(parsed("/a").unwrap(), Source { data: "/a".into(), log: "/a".into() });
    assert_eq!(parsed("/a,/b").unwrap(), Source { data: "/a".into(), log: "/b".into() });
    assert!(parsed("/a,").is_err());
}
