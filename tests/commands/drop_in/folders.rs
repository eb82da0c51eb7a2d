//! Data directories as ZooKeeper's scripts leave them.

use std::fs;
use std::path::Path;

use super::{ALONE, start, stop};
use testkit::process::{output, stderr};

/// What `zkServer-initialize.sh` leaves, which runs before the first start.
fn initialized(directory: &Path) {
    fs::create_dir_all(directory.join("data/version-2")).unwrap();
    fs::write(directory.join("data/initialize"), "").unwrap();
}

#[test]
fn a_server_starts_on_what_zookeepers_initialize_script_leaves_and_uses_it_up() {
    let directory = tempfile::tempdir().unwrap();
    for file in [ALONE.to_string(), format!("{ALONE}db.autocreate=false\n")] {
        let _ = fs::remove_dir_all(directory.path().join("data"));
        initialized(directory.path());
        let server = start(directory.path(), &file);
        assert_eq!(server.screen[1], "data     data (new)");
        assert!(!directory.path().join("data/initialize").exists());
        stop(server);
        let server = start(directory.path(), &file);
        assert!(server.screen[1].contains("recovered"), "{:?}", server.screen);
        stop(server);
    }
}

#[test]
fn an_empty_folder_of_zookeepers_is_no_data_of_zookeepers_and_one_with_a_file_is() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(directory.path().join("data/version-2")).unwrap();
    fs::write(directory.path().join("data/myid"), "1\n").unwrap();
    stop(start(directory.path(), ALONE));

    let directory = tempfile::tempdir().unwrap();
    initialized(directory.path());
    fs::write(directory.path().join("data/version-2/currentEpoch"), "1").unwrap();
    fs::write(directory.path().join("zoo.cfg"), ALONE).unwrap();
    let refused = output(directory.path(), &["server", "zoo.cfg"]);
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("holds data of Apache ZooKeeper"), "{said}");
    assert!(directory.path().join("data/initialize").exists(), "nothing was changed");
}

#[test]
fn a_server_that_is_not_said_to_be_new_does_not_serve_an_empty_tree() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(directory.path().join("data/version-2")).unwrap();
    fs::write(directory.path().join("zoo.cfg"), format!("{ALONE}db.autocreate=false\n")).unwrap();
    let refused = output(directory.path(), &["server", "zoo.cfg"]);
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("db.autocreate is false") && said.contains("`initialize`"), "{said}");
    assert_eq!(fs::read_dir(directory.path().join("data")).unwrap().count(), 1);
}
