//! What opening a data directory promises, one test each.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::identity::Identity;
use super::open::{Opened, Options, open, peek};
use super::open_error::OpenError;
use super::place::{Place, is_initialized};
use crate::checkpoint::Outcome;
use crate::copy::StateStore;
use crate::formats::KNOWN;
use crate::fs::Fs;
use crate::testing::{Fault, Machine, TestFs, TestState, UNSYNCED, Unsynced, append, entry};
use lockkeeper_core::replica::peer::raft_id;
use lockkeeper_core::replica::{Changes, Entry, Membership, Restore};

fn options() -> Options {
    Options { segment_bytes: 2048, image_every_bytes: 3000, ..Options::standalone(0x5eed) }
}

fn place(fs: &TestFs, state: &TestState) -> Place {
    Place {
        fs: Arc::new(fs.clone()),
        state: Box::new(state.clone()),
        data: PathBuf::from("/data"),
        log: PathBuf::from("/data"),
    }
}

fn try_open(fs: &TestFs, state: &TestState) -> Result<(Opened, Machine), OpenError> {
    let mut machine = Machine::default();
    let opened = open(place(fs, state), &options(), &mut machine)?;
    Ok((opened, machine))
}

/// A server: what it has acknowledged, and what it keeps.
struct Server {
    opened: Opened,
    machine: Machine,
    /// Value by index of everything that became durable.
    acknowledged: Vec<Entry>,
}

impl Server {
    fn start(fs: &TestFs, state: &TestState, acknowledged: Vec<Entry>) -> Result<Self, OpenError> {
        let (opened, mut machine) = try_open(fs, state)?;
        // A single server commits its tail.
        for entry in &opened.restored.tail {
            machine.entry(entry).unwrap();
        }
        Ok(Self { opened, machine, acknowledged })
    }

    /// Appends and applies a batch; sometimes drains a checkpoint.
    fn step(&mut self, i: u64) -> Result<(), String> {
        let first = self.machine.applied + 1;
        let entries: Vec<Entry> =
            (first..first + 4).map(|n| entry(n, 1, format!("/k{}={n} {i}", n % 37))).collect();
        self.opened.log.append(&[append(entries.clone())]).map_err(|e| e.to_string())?;
        for entry in &entries {
            self.machine.entry(entry).unwrap();
        }
        self.acknowledged.extend(entries);
        if i % 3 == 2 {
            let records = self.machine.drain();
            self.checkpoint(Changes {
                begins_full_pass: false,
                records,
                mark: Some(self.machine.mark()),
            })?;
        }
        self.opened.log.prepare();
        Ok(())
    }

    fn checkpoint(&mut self, changes: Changes) -> Result<(), String> {
        match self.opened.checkpointer.apply(changes).map_err(|e| e.to_string())? {
            Outcome::Continue => Ok(()),
            Outcome::CutLog(index) => {
                while self.opened.log.cut(index).map_err(|e| e.to_string())? {}
                Ok(())
            }
            Outcome::RecordsLost => {
                let records = self.machine.all();
                let mark = Some(self.machine.mark());
                self.checkpoint(Changes { begins_full_pass: true, records, mark })
            }
        }
    }
}

/// What the machine is after these entries.
fn replayed(entries: &[Entry]) -> Machine {
    let mut machine = Machine::default();
    for entry in entries {
        machine.entry(entry).unwrap();
    }
    machine
}

/// A data directory with two images and a log that was cut.
fn used() -> (TestFs, TestState, Vec<Entry>) {
    let (fs, state) = (TestFs::default(), TestState::default());
    let mut server = Server::start(&fs, &state, Vec::new()).unwrap();
    for i in 0..62 {
        server.step(i).unwrap();
    }
    assert!(server.opened.log.base().index > 0);
    assert_eq!(images(&fs).len(), 2);
    (fs, state, server.acknowledged)
}

fn images(fs: &TestFs) -> Vec<PathBuf> {
    fs.files().into_keys().filter(|p| p.extension().is_some_and(|e| e == "image")).collect()
}

fn logs(fs: &TestFs) -> Vec<PathBuf> {
    fs.files().into_keys().filter(|p| p.extension().is_some_and(|e| e == "log")).collect()
}

/// Opens, expects a refusal that changed nothing, and returns its text.
fn refused(fs: &TestFs, state: &TestState) -> String {
    let before = fs.files();
    let error = try_open(fs, state).unwrap_err();
    let mut after = fs.files();
    after.retain(|path, _| before.contains_key(path) || !path.ends_with("lock"));
    assert_eq!(before, after, "a refused directory is not changed");
    error.to_string()
}

#[test]
fn the_name_of_an_image_that_was_loaded_is_durable() {
    let (fs, state, _) = used();
    let newest = images(&fs).pop().unwrap();
    let elsewhere = newest.with_extension("elsewhere");
    fs.rename(&newest, &elsewhere).unwrap();
    fs.sync_dir(newest.parent().unwrap()).unwrap();
    // Its writer was killed before, or found that, the directory could not be synced.
    fs.rename(&elsewhere, &newest).unwrap();
    let (opened, _) = try_open(&fs, &state).unwrap();
    assert_eq!(opened.report.begun_from, newest.display().to_string());
    drop(opened);
    fs.crash(Unsynced::Lost);
    assert!(images(&fs).contains(&newest));
}

#[test]
fn a_new_directory_is_made_and_found_again() {
    let (fs, state) = (TestFs::default(), TestState::default());
    let (opened, machine) = try_open(&fs, &state).unwrap();
    assert!(opened.report.new);
    assert_eq!(
        (opened.restored.applied, opened.restored.applied_term, opened.restored.tail.len()),
        (0, 0, 0)
    );
    assert_eq!((opened.restored.membership.voters, machine), (vec![1], Machine::default()));
    assert_eq!((opened.restored.image, opened.restored.begun_after), (None, (0, 0)));
    drop(opened.lock);
    let (opened, _) = try_open(&fs, &state).unwrap();
    assert!(!opened.report.new);
    assert_eq!(opened.identity, Identity { ready: true, ..Identity::standalone(0x5eed, 1) });
}

#[test]
fn the_newest_image_and_the_entries_behind_it_give_the_state_back() {
    let (fs, state, acknowledged) = used();
    let (opened, mut machine) = try_open(&fs, &state).unwrap();
    assert!(opened.report.records > 0 && opened.report.entries > 0);
    assert_eq!(opened.restored.hard_state.commit, opened.restored.applied);
    assert_eq!(opened.restored.membership.voters, [1]);
    // The last batch was not committed as far as the disk knows.
    assert_eq!(opened.restored.tail, acknowledged[acknowledged.len() - 4..]);
    for entry in &opened.restored.tail {
        machine.entry(entry).unwrap();
    }
    assert_eq!(machine.records, replayed(&acknowledged).records);
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let (fs, state) = (TestFs::default(), TestState::default());
    let (opened, _) = try_open(&fs, &state).unwrap();
    let text = refused(&fs, &state);
    assert_eq!(
        text,
        "/data: another lockkeeper server is using this directory: stop that one, or give this one another dataDir"
    );
    drop(opened);
    try_open(&fs, &state).unwrap();
}

#[test]
fn zookeepers_data_is_refused_and_nothing_is_put_beside_it() {
    let (fs, state) = (TestFs::default(), TestState::default());
    fs.create_dir(Path::new("/data/version-2")).unwrap();
    fs.plant(Path::new("/data/version-2/log.1"), b"zookeeper".to_vec());
    fs.plant(Path::new("/data/myid"), b"1".to_vec());
    let text = refused(&fs, &state);
    assert!(text.contains("start on a new, empty dataDir"), "{text}");
    assert_eq!(fs.files().len(), 2);

    let mut place = place(&TestFs::default(), &state);
    place.fs = Arc::new(fs);
    (place.data, place.log) = ("/fresh".into(), "/data".into());
    let error = open(place, &options(), &mut Machine::default()).unwrap_err().to_string();
    assert!(error.contains("start on a new, empty dataLogDir"), "{error}");
}

#[test]
fn zookeepers_data_is_refused_whatever_lies_beside_it() {
    let (fs, state) = (TestFs::default(), TestState::default());
    // Both are common in a dataDir of ZooKeeper's: where its own output goes, and a lock of scripts.
    for dir in ["/data/version-2", "/data/log"] {
        fs.create_dir(Path::new(dir)).unwrap();
    }
    fs.plant(Path::new("/data/version-2/log.1"), b"zookeeper".to_vec());
    fs.plant(Path::new("/data/lock"), Vec::new());
    let text = refused(&fs, &state);
    assert!(text.contains("start on a new, empty dataDir"), "{text}");
    assert_eq!(fs.files().len(), 2);
}

#[test]
fn an_empty_folder_of_zookeepers_is_no_data_and_what_says_so_is_true_once() {
    let (fs, state) = (TestFs::default(), TestState::default());
    fs.create_dir(Path::new("/data/version-2")).unwrap();
    fs.plant(Path::new("/data/initialize"), Vec::new());
    let at = || place(&fs, &state);
    assert_eq!(peek(&at()).unwrap(), None);
    assert!(is_initialized(&at()).unwrap(), "a look does not use it up");
    let (opened, _) = try_open(&fs, &state).unwrap();
    assert!(opened.report.new);
    assert!(!is_initialized(&at()).unwrap());
    drop(opened);
    // Nor is it left to be found when the data has gone.
    fs.plant(Path::new("/data/initialize"), Vec::new());
    drop(try_open(&fs, &state).unwrap());
    assert!(!is_initialized(&at()).unwrap());
}

#[test]
fn data_without_an_identity_is_refused() {
    let (fs, state, _) = used();
    fs.remove(Path::new("/data/identity")).unwrap();
    let text = refused(&fs, &state);
    assert!(text.contains("no file 'identity'"), "{text}");
}

#[test]
fn an_identity_without_a_log_is_refused() {
    let (fs, state, _) = used();
    for path in logs(&fs) {
        fs.remove(&path).unwrap();
    }
    let text = refused(&fs, &state);
    assert!(
        text.starts_with("/data/log: there is no log in this directory, but there was"),
        "{text}"
    );
}

#[test]
fn a_directory_of_another_server_is_refused() {
    let (fs, state, _) = used();
    let options = Options { new: Identity::standalone(0x5eed, 2), ..options() };
    let error = open(place(&fs, &state), &options, &mut Machine::default()).unwrap_err();
    assert!(error.to_string().contains("belongs to server 1, but this is server 2"), "{error}");
}

#[test]
fn a_new_directory_keeps_what_the_founding_decided() {
    let (fs, state) = (TestFs::default(), TestState::default());
    let new = Identity {
        cluster_id: 0xfeed,
        server_id: 2,
        raft_id: raft_id(0xdead_beef, 2),
        membership: Membership { voters: vec![1, 2], learners: vec![9] },
        founders: vec![(1, 11), (2, 22)],
        members: Vec::new(),
        without: Vec::new(),
        alone_after: None,
        ready: false,
        version: 1,
    };
    assert_eq!(peek(&place(&fs, &state)).unwrap(), None);
    let options = Options { new: new.clone(), ensemble: true, ..options() };
    let opened = open(place(&fs, &state), &options, &mut Machine::default()).unwrap();
    assert_eq!(opened.restored.membership, new.membership);
    drop(opened);
    // What another start would have it be does not matter any more.
    let again = Identity { raft_id: 2, founders: Vec::new(), ..new.clone() };
    let options = Options { new: again, ..options };
    let opened = open(place(&fs, &state), &options, &mut Machine::default()).unwrap();
    let expected = Identity { ready: true, ..new };
    assert_eq!(opened.identity, expected);
    assert_eq!(peek(&place(&fs, &state)).unwrap(), Some(expected));
}

#[test]
fn the_log_of_another_incarnation_is_refused() {
    let (fs, state) = (TestFs::default(), TestState::default());
    let of = |incarnation| {
        let new = Identity { raft_id: raft_id(incarnation, 1), ..options().new };
        Options { new, ..options() }
    };
    drop(open(place(&fs, &state), &of(7), &mut Machine::default()).unwrap());
    let mut other = place(&fs, &state);
    other.data = "/other".into();
    let error = open(other, &of(8), &mut Machine::default()).unwrap_err().to_string();
    assert!(error.contains("no file 'identity'"), "{error}");
    // Somebody mixes the directories of two lives.
    let identity = Identity { raft_id: raft_id(8, 1), ready: true, ..options().new };
    identity.store(&fs, Path::new("/data")).unwrap();
    let text = refused(&fs, &state);
    assert!(text.contains("this log belongs to server 1 (raft id 1793)"), "{text}");
}

#[test]
fn a_look_changes_nothing_and_refuses_what_a_start_would_refuse() {
    let (fs, state, _) = used();
    let before = fs.changes();
    let identity = peek(&place(&fs, &state)).unwrap().unwrap();
    assert_eq!((identity.raft_id, identity.ready), (1, true));
    assert_eq!(fs.changes(), before);
    fs.remove(Path::new("/data/identity")).unwrap();
    let error = peek(&place(&fs, &state)).unwrap_err().to_string();
    assert!(error.contains("no file 'identity'"), "{error}");
    let fs = TestFs::default();
    fs.create_dir(Path::new("/data/version-2")).unwrap();
    fs.plant(Path::new("/data/version-2/log.1"), Vec::new());
    let error = peek(&place(&fs, &state)).unwrap_err();
    assert!(matches!(error, OpenError::ZooKeeper { .. }), "{error}");
}

#[test]
fn on_an_ensemble_what_cannot_be_recovered_is_to_be_fetched_again() {
    let options = Options { ensemble: true, ..options() };
    let refusal = |fs: &TestFs, state: &TestState| {
        open(place(fs, state), &options, &mut Machine::default()).unwrap_err().to_string()
    };
    let mut texts = Vec::new();
    let (fs, state, _) = used();
    for path in images(&fs) {
        damage(&fs, &path);
    }
    state.clone().clear().unwrap();
    let text = refusal(&fs, &state);
    assert!(text.contains("an image of another server will do"), "{text}");
    let (fs, state, _) = used();
    let mut bytes = fs.contents(&logs(&fs)[0]);
    bytes[300] ^= 1;
    fs.plant(&logs(&fs)[0], bytes);
    texts.push(refusal(&fs, &state));
    for path in logs(&fs) {
        fs.remove(&path).unwrap();
    }
    texts.push(refusal(&fs, &state));
    for text in texts {
        assert!(text.contains("lockkeeper server --rejoin"), "{text}");
    }
}

#[test]
fn a_damaged_version_of_an_image_does_not_keep_the_one_before_from_being_used() {
    let (fs, state, acknowledged) = used();
    let newest = images(&fs).pop().unwrap();
    let mut bytes = fs.contents(&newest);
    bytes[8] ^= 4;
    fs.plant(&newest, bytes);
    let server = Server::start(&fs, &state, Vec::new()).unwrap();
    assert_eq!(server.machine.records, replayed(&acknowledged).records);
    assert_eq!(server.opened.report.set_aside.len(), 1);
}

#[test]
fn a_damaged_identity_is_refused() {
    let (fs, state, _) = used();
    let path = Path::new("/data/identity");
    let mut bytes = fs.contents(path);
    bytes[60] ^= 1;
    fs.plant(path, bytes);
    let text = refused(&fs, &state);
    assert!(text.contains("/data/identity: damaged: checksum mismatch"), "{text}");
}

fn damage(fs: &TestFs, path: &Path) {
    let mut bytes = fs.contents(path);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs.plant(path, bytes);
}

#[test]
fn a_damaged_image_is_set_aside_and_the_one_before_is_used() {
    let (fs, state, acknowledged) = used();
    let newest = images(&fs).pop().unwrap();
    damage(&fs, &newest);
    let server = Server::start(&fs, &state, Vec::new()).unwrap();
    assert_eq!(server.machine.records, replayed(&acknowledged).records);
    let bad = PathBuf::from(format!("{}.bad", newest.display()));
    assert_eq!(server.opened.report.set_aside, std::slice::from_ref(&bad));
    assert!(fs.files().contains_key(&bad) && !fs.files().contains_key(&newest));
    drop(server);
    // It goes on from there, and the next images are good.
    let mut server = Server::start(&fs, &state, acknowledged).unwrap();
    for i in 0..60 {
        server.step(i).unwrap();
    }
    assert_eq!(images(&fs).len(), 2);
}

#[test]
fn without_images_the_closed_checkpoint_of_the_state_store_is_used() {
    let (fs, state, acknowledged) = used();
    for path in images(&fs) {
        damage(&fs, &path);
    }
    let server = Server::start(&fs, &state, Vec::new()).unwrap();
    assert_eq!(server.opened.report.begun_from, "test");
    assert_eq!(server.machine.records, replayed(&acknowledged).records);
    // The log reaches further back, but what was replayed does not.
    let (begun_after, _) = server.opened.restored.begun_after;
    assert_eq!(begun_after, server.opened.restored.applied - server.opened.report.entries);
    assert!(begun_after > server.opened.log.base().index);
}

#[test]
fn without_any_image_or_checkpoint_a_cut_log_is_refused_by_names() {
    let (fs, state, _) = used();
    for path in images(&fs) {
        damage(&fs, &path);
    }
    state.clone().clear().unwrap();
    let text = refused(&fs, &state);
    for path in images(&fs) {
        assert!(text.contains(&path.display().to_string()), "{text}");
    }
    assert!(text.contains("test: it has no complete checkpoint"), "{text}");
}

#[test]
fn a_state_store_of_another_version_that_is_the_only_copy_is_refused_by_name_and_kept() {
    let (fs, state, _) = used();
    for path in images(&fs) {
        damage(&fs, &path);
    }
    let later = KNOWN.manifest + 1;
    let refused_later = format!("format has version {later}");
    let earlier = "an earlier version of lockkeeper";
    for (version, named) in [(1, earlier), (later, refused_later.as_str())] {
        let mut manifest = vec![version, 0];
        manifest.extend_from_slice(&crc32c::crc32c(&manifest).to_le_bytes());
        state.clone().set_manifest(&manifest).unwrap();
        let blocks = state.blocks();
        let text = refused(&fs, &state);
        assert!(text.contains(named), "{text}");
        assert_eq!(state.clone().manifest().unwrap(), Some(manifest));
        assert_eq!(state.blocks(), blocks);
    }
}

#[test]
fn a_log_from_the_first_entry_needs_no_image() {
    let (fs, state) = (TestFs::default(), TestState::default());
    let mut server = Server::start(&fs, &state, Vec::new()).unwrap();
    for i in 0..22 {
        server.step(i).unwrap();
    }
    assert_eq!((server.opened.log.base().index, images(&fs).len()), (0, 1));
    let acknowledged = server.acknowledged;
    drop(server.opened);
    damage(&fs, &images(&fs)[0]);
    state.clone().clear().unwrap();
    let server = Server::start(&fs, &state, Vec::new()).unwrap();
    assert_eq!(server.opened.report.begun_from, "the log alone");
    assert_eq!(server.machine.records, replayed(&acknowledged).records);
}

#[test]
fn an_image_beyond_the_end_of_the_log_is_refused() {
    let (fs, state, _) = used();
    // The log directory comes from an older copy.
    let (old, _, _) = {
        let (fs, state) = (TestFs::default(), TestState::default());
        let mut server = Server::start(&fs, &state, Vec::new()).unwrap();
        server.step(0).unwrap();
        (fs, state, server.acknowledged)
    };
    for path in logs(&fs) {
        fs.remove(&path).unwrap();
    }
    for path in logs(&old) {
        fs.plant(&path, old.contents(&path));
    }
    let text = refused(&fs, &state);
    assert!(text.contains("but the log in /data/log ends at 4: the log lost its end"), "{text}");
}

#[test]
fn a_damaged_log_is_refused() {
    let (fs, state, _) = used();
    let path = logs(&fs).remove(0);
    let mut bytes = fs.contents(&path);
    bytes[300] ^= 1;
    fs.plant(&path, bytes);
    let text = refused(&fs, &state);
    assert!(text.contains(&format!("{}: damaged at offset", path.display())), "{text}");
}

#[test]
fn an_entry_that_cannot_be_applied_is_refused_by_index() {
    let (fs, state) = (TestFs::default(), TestState::default());
    let (mut opened, _) = try_open(&fs, &state).unwrap();
    opened.log.append(&[append(vec![entry(1, 1, "/a=poison")])]).unwrap();
    opened.log.append(&[append(vec![entry(2, 1, "/a=b")])]).unwrap();
    drop(opened);
    let text = refused(&fs, &state);
    assert_eq!(text, "entry 1 of the log in /data/log cannot be applied: poison");
}

#[test]
fn on_a_real_disk_with_sled_a_killed_server_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged: Vec<Entry> = Vec::new();
    for round in 0..4 {
        // Two names for one directory.
        let place = Place::on_disk(dir.path(), &dir.path().join("."));
        let mut machine = Machine::default();
        let opened = open(place, &options(), &mut machine).unwrap();
        for entry in &opened.restored.tail {
            machine.entry(entry).unwrap();
        }
        assert_eq!(machine.records, replayed(&acknowledged).records, "round {round}");
        let mut server = Server { opened, machine, acknowledged };
        for i in 0..50 {
            server.step(i).unwrap();
        }
        acknowledged = server.acknowledged;
    }
    let names = crate::fs::OsFs.list(dir.path()).unwrap();
    assert_eq!(names, ["identity", "image", "lock", "log", "state"], "sled was never at fault");
}

#[test]
fn the_parts_can_move_to_their_threads() {
    fn can_move<T: Send>() {}
    can_move::<crate::Log>();
    can_move::<crate::Checkpointer>();
    can_move::<Opened>();
}

#[test]
fn whatever_fails_nothing_acknowledged_is_lost() {
    for fault in [Fault::Crash, Fault::Error(ErrorKind::StorageFull)] {
        let mut n = 1;
        while !survives(n, fault) {
            n += 1 + n / 40;
        }
        assert!(n > 120, "{n} changes were tried");
    }
}

/// Lets the `n`th change of the disk fail, and starts again after the power went as well. Whether
/// there were fewer changes.
fn survives(n: u64, fault: Fault) -> bool {
    let (fs, state) = (TestFs::default(), TestState::default());
    fs.fail_at(n, fault);
    let acknowledged = live(&fs, &state);
    for unsynced in UNSYNCED {
        let fs = fs.twin();
        fs.crash(unsynced);
        let mut server = match Server::start(&fs, &state.twin(), acknowledged.clone()) {
            Ok(server) => server,
            Err(error) => panic!("change {n}, {unsynced:?}: {error}"),
        };
        assert_kept(&server, n);
        // The server makes progress, and what it acknowledges then is kept as well.
        server.step(2).unwrap();
        assert_kept(&server, n);
    }
    fs.changes() < n
}

/// Runs a server until it fails or has done enough; returns what it acknowledged.
fn live(fs: &TestFs, state: &TestState) -> Vec<Entry> {
    let Ok(mut server) = Server::start(fs, state, Vec::new()) else {
        return Vec::new();
    };
    for i in 0..45 {
        if server.step(i).is_err() {
            break;
        }
    }
    server.acknowledged
}

/// The machine holds every acknowledged entry, perhaps one batch more.
fn assert_kept(server: &Server, n: u64) {
    let acknowledged = server.acknowledged.len() as u64;
    assert!(server.machine.applied >= acknowledged, "change {n}");
    assert!(server.machine.applied <= acknowledged + 4, "change {n}");
    if server.machine.applied == acknowledged {
        assert_eq!(server.machine.records, replayed(&server.acknowledged).records, "change {n}");
    }
}
