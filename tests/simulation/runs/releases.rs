//! What earlier releases have written is read to the same state, and what a later one has written is refused.
//!
//! The directories are in tests/releases, one folder for each release, made by its own program (tests/releases/make).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockkeeper_core::replica::Machine;
use lockkeeper_core::tree;
use lockkeeper_storage::{self as storage, Identity, Opened, Options, Place};
use serde_json::Value;
use tempfile::TempDir;

/// Of each release: a server on its own, and an ensemble of three.
const DIRECTORIES: [(&str, u8); 4] =
    [("alone", 1), ("server-1", 1), ("server-2", 2), ("server-3", 3)];

fn releases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../releases");
    let entries = fs::read_dir(&folder).expect("the folder is there");
    let mut releases: Vec<PathBuf> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    releases.sort();
    assert!(!releases.is_empty(), "no release in {}", folder.display());
    releases
}

/// A copy of a directory that a release has written.
fn unpacked(release: &Path, name: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let archive = release.join(format!("{name}.tar.gz"));
    let done = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(folder.path()).status();
    assert!(done.expect("tar runs").success(), "{}", archive.display());
    folder
}

fn open(dir: &Path, server_id: u8) -> Result<(Machine, Opened), String> {
    let rules = tree::Rules { extended_types: true, ..tree::Rules::DEFAULT };
    let options = tree::Options { rules, ..tree::Options::default() };
    let mut machine = Machine::fresh(options);
    let options = Options {
        new: Identity::standalone(1, server_id),
        ensemble: server_id > 1,
        ..Options::standalone(1)
    };
    let opened = storage::open(Place::on_disk(dir, dir), &options, &mut machine);
    opened.map(|opened| (machine, opened)).map_err(|error| error.to_string())
}

#[test]
fn data_directories_of_every_release_are_read_to_the_state_that_it_had() {
    for release in releases() {
        let expected = fs::read_to_string(release.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_str(&expected).unwrap();
        for (name, server_id) in DIRECTORIES {
            for without in [None, Some("image"), Some("state")] {
                let dir = unpacked(&release, name);
                if let Some(without) = without {
                    fs::remove_dir_all(dir.path().join(without)).unwrap();
                }
                let at = format!("{}, {name} without {without:?}", release.display());
                let (machine, _opened) = open(dir.path(), server_id).expect(&at);
                assert_eq!(expected[name]["digest"], format!("{:032x}", machine.digest()), "{at}");
                assert_eq!(expected[name]["zxid"], machine.last_zxid(), "{at}");
            }
        }
    }
}

#[test]
fn a_directory_of_a_later_release_is_refused_by_its_name_and_left_as_it_is() {
    let release = releases().pop().expect("there is one");
    let dir = unpacked(&release, "server-2");
    let identity = dir.path().join("identity");
    let text = fs::read_to_string(&identity).unwrap();
    let (_, rest) = text.split_once("\nformat ").unwrap();
    let (_, rest) = rest.split_once('\n').unwrap();
    let (body, _) = rest.rsplit_once("crc32c ").unwrap();
    let body = format!("lockkeeper data directory\nformat 99\nrelease 7.8.9\n{body}");
    fs::write(&identity, format!("{body}crc32c {:08x}\n", crc32c::crc32c(body.as_bytes())))
        .unwrap();
    let before = contents(dir.path());
    let refused = open(dir.path(), 2).expect_err("it is refused");
    assert!(refused.contains("the data has format 99 (lockkeeper 7.8.9 wrote it)"), "{refused}");
    assert!(
        refused.contains("use lockkeeper 7.8.9 or a later one. Nothing was changed"),
        "{refused}"
    );
    let after = contents(dir.path());
    assert!(before == after, "{:?} are not {:?}", before.keys(), after.keys());
}

/// All files of a directory.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            let bytes = fs::read(&path).unwrap();
            all.insert(path, bytes);
        }
    }
    all
}
