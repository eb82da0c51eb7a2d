//! What installing an image of another server promises, one test each.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::images::{Copy, ImageError, Images};
use super::install::{InstallError, append as append_all};
use crate::checkpoint::Outcome;
use crate::copy::StateStore as _;
use crate::dir::{Mending, OpenError, Opened, Options, Place, open};
use crate::log::LogError;
use crate::testing::{Fault, Machine, TestFs, TestState, UNSYNCED, Unsynced, append, entry};
use lockkeeper_core::replica::{Append, Changes, Entry, HardState, Mark, Restore, Urgency};

/// Index and term of the image that is received, far ahead of what the server has.
const FAR: (u64, u64) = (500, 4);

fn place(fs: &TestFs, state: &TestState) -> Place {
    Place {
        fs: Arc::new(fs.clone()),
        state: Box::new(state.clone()),
        data: PathBuf::from("/data"),
        log: PathBuf::from("/data"),
    }
}

fn options() -> Options {
    Options {
        segment_bytes: 1024,
        image_every_bytes: 1500,
        ensemble: true,
        ..Options::standalone(0x5eed)
    }
}

fn try_open(fs: &TestFs, state: &TestState) -> Result<(Opened, Machine), OpenError> {
    let mut machine = Machine::default();
    let opened = open(place(fs, state), &options(), &mut machine)?;
    Ok((opened, machine))
}

/// A server that follows: it applies what it was told is committed, here all of it.
struct Server {
    opened: Opened,
    machine: Machine,
}

impl Server {
    fn start(fs: &TestFs, state: &TestState) -> Result<Self, OpenError> {
        let (opened, mut machine) = try_open(fs, state)?;
        for entry in &opened.restored.tail {
            machine.entry(entry).unwrap();
        }
        Ok(Self { opened, machine })
    }

    /// Four entries more, and every now and then a checkpoint. An error ends the server.
    fn step(&mut self) -> Result<(), String> {
        let entries = self.entries(4);
        self.append(&[append(entries.clone())])?;
        for entry in &entries {
            self.machine.entry(entry).unwrap();
        }
        if self.machine.applied % 12 < 4 {
            let records = self.machine.drain();
            let mark = Some(self.machine.mark());
            self.checkpoint(Changes { begins_full_pass: false, records, mark })?;
        }
        Ok(())
    }

    fn entries(&self, count: u64) -> Vec<Entry> {
        let first = self.machine.applied + 1;
        let term = self.machine.term.max(1);
        (first..first + count).map(|n| entry(n, term, format!("/k{}={n}", n % 23))).collect()
    }

    fn append(&mut self, appends: &[Append]) -> Result<(), String> {
        append_all(&mut self.opened.log, &self.opened.images, appends).map_err(|e| e.to_string())
    }

    fn checkpoint(&mut self, changes: Changes) -> Result<(), String> {
        match self.opened.checkpointer.apply(changes).map_err(|e| e.to_string())? {
            Outcome::Continue => Ok(()),
            Outcome::CutLog(index) => {
                while self.opened.log.cut(index).map_err(|e| e.to_string())? {}
                Ok(())
            }
            Outcome::RecordsLost => self.full_pass(),
        }
    }

    fn full_pass(&mut self) -> Result<(), String> {
        let records = self.machine.all();
        let mark = Some(self.machine.mark());
        self.checkpoint(Changes { begins_full_pass: true, records, mark })
    }

    /// Installs the image of `far` and two entries behind it, all with one append.
    fn install(&mut self, far: Machine) -> Result<(), String> {
        self.machine = far;
        let mark = self.machine.mark();
        let entries = self.entries(2);
        let batch = Append { install: Some(mark.clone()), ..append(entries.clone()) };
        self.append(&[batch])?;
        for entry in &entries {
            self.machine.entry(entry).unwrap();
        }
        self.opened.checkpointer.installed(&mark);
        self.full_pass()
    }
}

/// The state of another server.
fn far() -> Machine {
    let mut machine = Machine { applied: FAR.0, term: FAR.1, ..Machine::default() };
    for i in 0..60 {
        machine.records.insert(format!("/far{i:02}").into(), vec![b'v'; i]);
    }
    machine
}

fn receive(images: &Images, machine: &Machine) -> Result<(), ImageError> {
    let mut writer = images.receive(&machine.mark())?;
    for (key, value) in &machine.records {
        writer.record(key, value)?;
    }
    writer.finish().map(|_| ())
}

/// A server with images and a log that was cut.
fn used() -> (TestFs, TestState, Server) {
    let (fs, state) = (TestFs::default(), TestState::default());
    let mut server = Server::start(&fs, &state).unwrap();
    for _ in 0..24 {
        server.step().unwrap();
    }
    assert!(server.opened.log.base().index > 0);
    (fs, state, server)
}

/// What is on the disk when the server died between the log's new beginning and the image's name.
fn interrupted() -> (TestFs, TestState) {
    let (fs, state, mut server) = used();
    receive(&server.opened.images, &far()).unwrap();
    server.opened.log.reset(&far().mark()).unwrap();
    drop(server);
    (fs, state)
}

#[test]
fn an_installed_image_is_what_the_server_continues_from() {
    let (fs, state, mut server) = used();
    receive(&server.opened.images, &far()).unwrap();
    server.install(far()).unwrap();
    assert_eq!(server.opened.images.list().unwrap(), [FAR.0]);
    for _ in 0..60 {
        server.step().unwrap();
    }
    assert!(server.opened.log.base().index > FAR.0, "images and cuts go on");
    let expected = server.machine.clone();
    drop(server);
    let server = Server::start(&fs, &state).unwrap();
    assert_eq!(server.machine.records, expected.records);
    assert_eq!(server.machine.applied, expected.applied);
}

#[test]
fn what_was_found_says_which_image_was_loaded_and_where_the_log_begins() {
    let (fs, state, mut server) = used();
    receive(&server.opened.images, &far()).unwrap();
    server.install(far()).unwrap();
    drop(server);
    let (opened, _) = try_open(&fs, &state).unwrap();
    assert_eq!(opened.restored.image, Some(far().mark()));
    assert_eq!(opened.restored.begun_after, FAR);
    assert_eq!(opened.restored.membership, far().mark().membership);
    assert_eq!((opened.restored.applied, opened.restored.tail.len()), (FAR.0, 2));
    assert_eq!(opened.checkpointer.newest(), Some(&far().mark()));
}

#[test]
fn batches_before_and_behind_an_installed_image_keep_their_order() {
    let (_, _, mut server) = used();
    receive(&server.opened.images, &far()).unwrap();
    let before = append(server.entries(3));
    server.machine = far();
    let behind = server.entries(5);
    let install = Append {
        number: 7,
        install: Some(far().mark()),
        entries: Vec::new(),
        hard_state: None,
        urgency: Urgency::High,
    };
    let more = append(behind[..2].to_vec());
    let most = append(behind[2..].to_vec());
    server.append(&[before, install, more, most]).unwrap();
    let log = &server.opened.log;
    assert_eq!((log.base().index, log.last().index), (FAR.0, FAR.0 + 5));
    assert_eq!(log.read(FAR.0 + 1, FAR.0 + 5, usize::MAX).unwrap(), behind);
}

#[test]
fn a_server_that_died_while_it_installed_an_image_completes_that() {
    let (fs, state) = interrupted();
    let (opened, machine) = try_open(&fs, &state).unwrap();
    assert_eq!(machine, far());
    assert_eq!((opened.restored.applied, opened.restored.begun_after), (FAR.0, FAR));
    assert_eq!(opened.images.list().unwrap()[0], FAR.0);
    assert!(opened.images.received().unwrap().is_empty());
    assert!(opened.report.set_aside.is_empty(), "older images are not damaged");
}

#[test]
fn a_received_image_that_the_log_does_not_begin_behind_is_removed() {
    let (fs, state, server) = used();
    let expected = server.machine.clone();
    let base = server.opened.log.base();
    let same_index = Machine { applied: base.index, term: base.term + 1, ..far() };
    for machine in [far(), same_index] {
        receive(&server.opened.images, &machine).unwrap();
    }
    drop(server);
    let server = Server::start(&fs, &state).unwrap();
    assert_eq!(server.machine.records, expected.records);
    assert!(server.opened.images.received().unwrap().is_empty());
}

#[test]
fn a_damaged_image_is_never_installed() {
    let (fs, state) = interrupted();
    let path = Path::new("/data/image/00000000000001f4.image.received");
    let mut bytes = fs.contents(path);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs.plant(path, bytes);
    let before = fs.files();
    let error = try_open(&fs, &state).unwrap_err().to_string();
    assert!(error.contains(&path.display().to_string()), "{error}");
    assert!(error.contains("an image of another server will do"), "{error}");
    assert_eq!(fs.files(), before, "nothing was changed");
}

/// A server whose log is whole, and none of whose copies of the state is usable. Also how it was when
/// the log began, a bit later, and in the end; up to the entry in the middle, all is committed.
fn stateless() -> (TestFs, TestState, [Machine; 3]) {
    let (fs, state, mut server) = used();
    let begin = server.machine.clone();
    for _ in 0..2 {
        server.step().unwrap();
    }
    let middle = server.machine.clone();
    let commit = HardState { term: 1, vote: 0, commit: middle.applied };
    let hard_state =
        Append { hard_state: Some(commit), urgency: Urgency::High, ..append(Vec::new()) };
    server.append(&[hard_state]).unwrap();
    let entries = server.entries(3);
    server.append(&[append(entries.clone())]).unwrap();
    for entry in &entries {
        server.machine.entry(entry).unwrap();
    }
    let end = server.machine.clone();
    assert!(server.opened.log.base().index < begin.applied);
    drop(server);
    for (path, mut bytes) in fs.files() {
        if path.extension().is_some_and(|extension| extension == "image") {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs.plant(&path, bytes);
        }
    }
    state.clone().clear().unwrap();
    let refused = try_open(&fs, &state).unwrap_err();
    assert!(matches!(refused, OpenError::NothingToBeginFrom { .. }), "{refused}");
    (fs, state, [begin, middle, end])
}

fn mend(fs: &TestFs, state: &TestState, with: &Machine) -> Result<(), OpenError> {
    let mending = Mending::begin(&place(fs, state), &options())?;
    receive(mending.images(), with).unwrap();
    let damaged = mending.images().list().unwrap().len();
    let set_aside = mending.install(&with.mark())?;
    assert_eq!(set_aside.len(), damaged);
    assert!(set_aside.iter().all(|path| !fs.contents(path).is_empty()), "it is kept");
    Ok(())
}

#[test]
fn an_image_of_another_server_replaces_what_is_damaged_and_no_entry_of_the_log() {
    let (_, _, states) = stateless();
    for at in 0..states.len() {
        let (fs, state, states) = stateless();
        mend(&fs, &state, &states[at]).unwrap();
        let server = Server::start(&fs, &state).unwrap();
        assert_eq!(server.machine.records, states[2].records, "{at}");
        assert_eq!(server.machine.applied, states[2].applied, "{at}");
    }
}

#[test]
fn the_log_begins_anew_behind_an_image_that_it_does_not_reach_or_does_not_agree_with() {
    let (_, _, [_, middle, end]) = stateless();
    let disagrees = Machine { applied: end.applied, term: end.term + 1, ..far() };
    for image in [far(), disagrees] {
        let (fs, state, _) = stateless();
        mend(&fs, &state, &image).unwrap();
        let (opened, machine) = try_open(&fs, &state).unwrap();
        assert_eq!(machine, image);
        assert_eq!(opened.restored.begun_after, (image.applied, image.term));
        assert!(opened.restored.tail.is_empty());
    }
    // What is committed is not replaced by anything that contradicts it.
    let (fs, state, _) = stateless();
    let contradicts = Machine { applied: middle.applied - 1, term: 9, ..far() };
    let refused = mend(&fs, &state, &contradicts).unwrap_err();
    assert!(matches!(refused, OpenError::Log(LogError::WouldForget { .. })), "{refused}");
}

#[test]
fn a_server_that_dies_while_it_is_mended_is_mended_again() {
    for image in [0, 1] {
        let (fs, state, states) = stateless();
        let image = if image == 0 { states[0].clone() } else { far() };
        let mending = Mending::begin(&place(&fs, &state), &options()).unwrap();
        receive(mending.images(), &image).unwrap();
        let begun = fs.changes();
        mending.install(&image.mark()).unwrap();
        let ends =
            (1..=fs.changes() - begun).flat_map(|at| UNSYNCED.map(|unsynced| (at, unsynced)));
        for (at, unsynced) in ends {
            let (fs, state, _) = stateless();
            let mending = Mending::begin(&place(&fs, &state), &options()).unwrap();
            receive(mending.images(), &image).unwrap();
            fs.fail_at(at, Fault::Crash);
            mending.install(&image.mark()).unwrap_err();
            fs.crash(unsynced);
            if try_open(&fs, &state).is_err() {
                mend(&fs, &state, &image).unwrap();
            }
            let server = Server::start(&fs, &state).unwrap();
            let expected = if image == far() { far() } else { states[2].clone() };
            assert_eq!(server.machine.records, expected.records, "{at}, {unsynced:?}");
        }
    }
}

#[test]
fn what_is_not_there_or_something_else_cannot_be_installed_and_the_log_stays() {
    let (fs, state, mut server) = used();
    let install = |mark: Mark| Append { install: Some(mark), ..append(Vec::new()) };
    let (log, images) = (&mut server.opened.log, &server.opened.images);
    let error = append_all(log, images, &[install(far().mark())]).unwrap_err();
    assert!(matches!(error, InstallError::Image(_)), "{error}");
    receive(images, &far()).unwrap();
    let other = Mark { digest: 1, ..far().mark() };
    let error = append_all(log, images, &[install(other)]).unwrap_err();
    assert!(matches!(error, InstallError::Image(ImageError::Refused { .. })), "{error}");
    let old = Machine { applied: server.machine.applied - 8, ..far() };
    receive(images, &old).unwrap();
    let error = append_all(log, images, &[install(old.mark())]).unwrap_err();
    assert!(matches!(error, InstallError::Log(_)), "{error}");
    let expected = server.machine.records.clone();
    drop(server.opened);
    assert_eq!(Server::start(&fs, &state).unwrap().machine.records, expected);
}

#[test]
fn an_image_that_the_state_thread_does_not_know_of_yet_survives_it() {
    let (fs, state, mut server) = used();
    // The log thread is ahead: it has installed the image, while changes of the old state wait.
    receive(&server.opened.images, &far()).unwrap();
    let batch = Append { install: Some(far().mark()), ..append(Vec::new()) };
    let old = server.machine.clone();
    server.append(&[batch]).unwrap();
    server.opened.log.append(&[append(vec![entry(FAR.0 + 1, FAR.1, "/new=1")])]).unwrap();
    let mut machine = old;
    for _ in 0..2 {
        let index = machine.applied + 1;
        machine.entry(&entry(index, 1, format!("/big={}", "x".repeat(4000)))).unwrap();
        server.opened.log.written().fetch_add(9000, std::sync::atomic::Ordering::Relaxed);
        let records = machine.drain();
        let mark = Some(machine.mark());
        server.checkpoint(Changes { begins_full_pass: false, records, mark }).unwrap();
        assert_eq!(server.opened.images.list().unwrap()[..2], [FAR.0, index], "one was due");
    }
    assert_eq!(server.opened.log.base().index, FAR.0, "a cut for an old image does nothing");
    drop(server);
    let (opened, machine) = try_open(&fs, &state).unwrap();
    assert_eq!((machine.records, opened.restored.tail.len()), (far().records, 1));
}

#[test]
fn whatever_fails_an_image_is_installed_completely_or_not_at_all() {
    for fault in [Fault::Crash, Fault::Error(ErrorKind::StorageFull)] {
        let mut n = 1;
        while !survives(n, fault) {
            n += 1;
        }
        assert!(n > 25, "{n} changes were tried");
    }
}

/// How far a server got before the disk failed.
struct Life {
    /// What it was before the image.
    before: Machine,
    /// What it was at its end, if the image was installed.
    after: Option<Machine>,
}

/// Lets the `n`th change of the disk from when an image is received fail. Whether there were fewer.
fn survives(n: u64, fault: Fault) -> bool {
    let (fs, state, server) = used();
    let before = fs.changes();
    fs.fail_at(n, fault);
    let life = live(server);
    let changes = fs.changes() - before;
    for unsynced in UNSYNCED {
        let fs = fs.twin();
        fs.crash(unsynced);
        let what = format!("change {n}, {fault:?}, {unsynced:?}");
        let mut server =
            Server::start(&fs, &state.twin()).unwrap_or_else(|error| panic!("{what}: {error}"));
        judge(&server, &life, &what);
        assert!(server.opened.images.received().unwrap().is_empty(), "{what}");
        for _ in 0..30 {
            server.step().unwrap();
        }
        let expected = server.machine.clone();
        drop(server);
        fs.crash(Unsynced::Lost);
        let again = Server::start(&fs, &state.twin()).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(again.machine.records, expected.records, "{what}");
    }
    changes < n
}

fn live(mut server: Server) -> Life {
    let before = server.machine.clone();
    let mut life = Life { before, after: None };
    // A receiver that fails does not end the server: it is sent the image again.
    if receive(&server.opened.images, &far()).is_err()
        && receive(&server.opened.images, &far()).is_err()
    {
        return life;
    }
    if server.install(far()).is_err() {
        return life;
    }
    life.after = Some(server.machine.clone());
    for _ in 0..4 {
        if server.step().is_err() {
            break;
        }
        life.after = Some(server.machine.clone());
    }
    life
}

fn judge(server: &Server, life: &Life, what: &str) {
    let machine = &server.machine;
    match &life.after {
        Some(after) => {
            assert!(machine.applied >= after.applied, "{what}: {machine:?}, {after:?}");
            if machine.applied == after.applied {
                assert_eq!(machine.records, after.records, "{what}");
            }
        }
        None if machine.applied < FAR.0 => {
            assert_eq!(machine.records, life.before.records, "{what}");
            assert_eq!(machine.applied, life.before.applied, "{what}");
        }
        None => {
            let mut expected = far();
            for entry in &server.opened.restored.tail {
                expected.entry(entry).unwrap();
            }
            assert_eq!(machine.records, expected.records, "{what}");
        }
    }
}

#[test]
fn the_file_of_a_received_image_says_so() {
    let images = Images::new(Arc::new(TestFs::default()), Path::new("/i"), 1);
    let name = images.file(0xab, Copy::Received);
    assert_eq!(name, Path::new("/i/00000000000000ab.image.received"));
}
