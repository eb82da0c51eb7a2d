//! What the process runs on: `envi`.
//!
//! Reproduces ZooKeeper's `Environment`, without what only a JVM has.

use super::version::full_version;

/// Names and values, in ZooKeeper's order.
pub(super) fn environment() -> Vec<(&'static str, String)> {
    let system = rustix::system::uname();
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| UNKNOWN.to_string());
    vec![
        ("zookeeper.version", full_version()),
        ("host.name", one_line(&system.nodename().to_string_lossy())),
        ("os.name", one_line(&system.sysname().to_string_lossy())),
        ("os.arch", one_line(&system.machine().to_string_lossy())),
        ("os.version", one_line(&system.release().to_string_lossy())),
        ("user.name", one_line(&variable("USER"))),
        ("user.home", one_line(&variable("HOME"))),
        (
            "user.dir",
            std::env::current_dir()
                .map_or_else(|_| UNKNOWN.to_string(), |dir| one_line(&dir.to_string_lossy())),
        ),
    ]
}

/// `envi`.
pub(super) fn text() -> String {
    let mut out = String::from("Environment:\n");
    for (name, value) in environment() {
        out.push_str(name);
        out.push('=');
        out.push_str(&value);
        out.push('\n');
    }
    out
}

/// What ZooKeeper writes for a value that it does not know.
const UNKNOWN: &str = "<NA>";

/// A value must not break the line format.
fn one_line(value: &str) -> String {
    value.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_after_the_title_is_a_pair() {
        let text = text();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("Environment:"));
        let version = lines.next().unwrap();
        assert!(version.starts_with("zookeeper.version=3.9.5-lockkeeper-"), "{version}");
        assert!(version.contains(", built on "), "{version}");
        assert!(
            lines.all(|line| line
                .split_once('=')
                .is_some_and(|(k, v)| !k.is_empty() && !v.is_empty()))
        );
        assert!(text.ends_with('\n'));
    }
}
