//! Values that ZooKeeper does not mind.

use super::{ALONE, start, stop};
use testkit::say;

#[tokio::test]
async fn a_lone_server_starts_on_values_that_it_does_not_need_or_does_not_know_and_warns() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("data")).unwrap();
    std::fs::write(directory.path().join("data/myid"), "zk-1\n").unwrap();
    let lines = "4lw.commands.whitelist=mntr, everything\njute.maxbuffer=100\n";
    let server = start(directory.path(), &format!("{ALONE}{lines}"));
    assert!(say(server.address, b"mntr").await.contains("zk_version"));
    assert!(say(server.address, b"ruok").await.contains("not in the whitelist"));
    let said = stop(server);
    for (key, words) in [
        ("4lw.commands.whitelist", "there is no four-letter word `everything`"),
        ("jute.maxbuffer", "100 is too small: the least value is 1024; 1024 is in force"),
        ("myid", "the server id `zk-1` is not a number"),
    ] {
        let line = said.lines().find(|line| line.contains("WARN") && line.contains(key));
        assert!(line.is_some_and(|line| line.contains(words)), "{key}: {said}");
    }
}
