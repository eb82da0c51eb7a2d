//! What changed from one list of members to the next, in words.

use std::collections::BTreeMap;

/// What became of the members, from the text of `/zookeeper/config` to the next one. `None`: nothing.
pub(in crate::server) fn changes(before: &str, now: &str) -> Option<String> {
    let (before, now) = (lines(before), lines(now));
    let mut words = Vec::new();
    for (server, line) in &now {
        match before.get(server) {
            None => words.push(format!("{server} joins as {line}")),
            Some(known) if known != line => words.push(format!("{server} is {line} now")),
            Some(_) => {}
        }
    }
    for server in before.keys().filter(|server| !now.contains_key(*server)) {
        words.push(format!("{server} leaves"));
    }
    (!words.is_empty()).then(|| words.join("; "))
}

fn lines(text: &str) -> BTreeMap<&str, &str> {
    let servers = text.lines().filter(|line| line.starts_with("server."));
    servers.filter_map(|line| line.split_once('=')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_joins_leaves_and_moves_is_said() {
        let before = "server.1=a:1:2:participant\nserver.2=b:1:2:participant\nversion=1";
        let now = "server.1=c:1:2:participant\nserver.3=d:1:2:observer\nversion=2";
        assert_eq!(
            changes(before, now).unwrap(),
            "server.1 is c:1:2:participant now; server.3 joins as d:1:2:observer; server.2 leaves"
        );
        assert_eq!(
            changes(before, "server.1=a:1:2:participant\nserver.2=b:1:2:participant\nversion=2"),
            None
        );
    }
}
