//! The committed membership as text: `/zookeeper/config`, dynamic files, and what differs.
//!
//! Owns [`Membership`] and the texts of the files that a reconfiguration rewrites. Invariants: the
//! lines are in order of their ids; a text that is read and written again is the same; whatever an
//! operator wrote into the static file (comments, blank lines, order) stays as it was. Reproduces
//! `QuorumMaj.toString` and `QuorumPeerConfig.writeDynamicConfig` and `editStaticConfig`, save that
//! those lose the comments. Never reads or writes a file.

use std::fmt;
use std::fmt::Write as _;

use super::draft::plain_name;
use super::groups;
use super::properties;
use super::servers::{ServerSpec, server_id};

/// Who is in the ensemble, as committed at some zxid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// In order of their ids.
    pub servers: Vec<ServerSpec>,
    /// The zxid of the change that made it so; 0 before the first.
    pub version: u64,
}

impl Membership {
    /// Reads the text of `/zookeeper/config`. Lines of groups and weights, which ZooKeeper's has where it votes by
    /// those, are passed over: see [`Membership::has_groups`].
    ///
    /// # Errors
    /// Names the line that is none.
    pub fn parse(text: &str) -> Result<Membership, String> {
        let mut membership = Membership::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let fault = |reason: String| format!("`{line}`: {reason}");
            if let Some(version) = line.strip_prefix("version=") {
                let parsed = u64::from_str_radix(version, 16);
                membership.version =
                    parsed.map_err(|_| fault("not a hexadecimal number".to_string()))?;
                continue;
            }
            if groups::is_line(line) {
                continue;
            }
            let server = line.strip_prefix("server.").and_then(|rest| rest.split_once('='));
            let Some((id, spec)) = server else {
                return Err(fault("neither server.N=... nor version=...".to_string()));
            };
            let spec = server_id(id.trim()).and_then(|id| ServerSpec::parse(id, spec.trim()));
            membership.servers.push(spec.map_err(fault)?);
        }
        membership.servers.sort_by_key(|spec| spec.id);
        Ok(membership)
    }

    /// Whether the ensemble of this text of `/zookeeper/config` votes by groups and weights: a majority of its servers
    /// may be no majority there, and fewer of them one.
    #[must_use]
    pub fn has_groups(text: &str) -> bool {
        text.lines().any(|line| groups::is_line(line.trim()))
    }

    /// What these server lines of a configuration file say otherwise, with the commands that would
    /// make it true; nothing if they agree. The membership holds, whatever the lines say.
    #[must_use]
    pub fn differences(&self, lines: &[ServerSpec]) -> Vec<String> {
        let mut differences = Vec::new();
        for line in lines {
            let ServerSpec { id, .. } = line;
            // A member that is added must say where its clients connect.
            let client = if line.client.is_some() { "" } else { ";<client port>" };
            match self.servers.iter().find(|member| member.id == *id) {
                Some(member) if member == line => {}
                Some(member) => differences.push(format!(
                    "the configuration says server.{id}={line}, the ensemble has {member}; to \
                     change it: lockkeeper member add 'server.{id}={line}{client}'"
                )),
                None => differences.push(format!(
                    "server.{id} of the configuration is no member of the ensemble; to add it: \
                     lockkeeper member add 'server.{id}={line}{client}'"
                )),
            }
        }
        for ServerSpec { id, .. } in &self.servers {
            if !lines.iter().any(|line| line.id == *id) {
                differences.push(format!(
                    "server.{id} is a member of the ensemble and has no line in the \
                     configuration; to remove it: lockkeeper member remove {id}"
                ));
            }
        }
        differences
    }
}

/// The text of `/zookeeper/config`: no newline at its end.
impl fmt::Display for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for server in &self.servers {
            writeln!(f, "server.{}={server}", server.id)?;
        }
        write!(f, "version={:x}", self.version)
    }
}

/// The text of a dynamic file: the server lines; the version is in the file's name.
#[must_use]
pub fn dynamic_text(servers: &[ServerSpec]) -> String {
    let mut text = String::new();
    for server in servers {
        let _ = writeln!(text, "server.{}={server}", server.id);
    }
    text
}

/// The static file's text when the server lines have gone to the file `dynamic`: without them,
/// without what they replace, and with `dynamicConfigFile`. `has_client_address`: the own server
/// line says where clients connect, so `clientPort` and `clientPortAddress` go, too.
#[must_use]
pub fn static_text(old: &str, dynamic: &str, has_client_address: bool) -> String {
    let mut text = properties::without(old, |key| {
        let key = plain_name(key.trim());
        let is_replaced = matches!(key, "dynamicConfigFile" | "peerType");
        let is_group = groups::is_line(key);
        let is_client = matches!(key, "clientPort" | "clientPortAddress");
        key.starts_with("server.") || is_group || is_replaced || (has_client_address && is_client)
    });
    if !text.is_empty() && !text.ends_with(['\n', '\r']) {
        text.push('\n');
    }
    // What ends in a backslash would go on in the next line.
    if text.trim_end_matches(['\n', '\r']).ends_with('\\') {
        text.push('\n');
    }
    let _ = writeln!(text, "dynamicConfigFile={}", escaped(dynamic));
    text
}

/// A value as a properties file takes it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &str = "server.1=a:1:2:participant;0.0.0.0:2181\n\
                         server.2=b:1:2:participant\n\
                         server.3=c:1:2:observer\n\
                         version=100000005";

    #[test]
    fn lines_of_groups_are_passed_over_and_told_of() {
        let text = THREE.replace("version", "group.1=1:2\nweight.1=1\nversion");
        assert_eq!(Membership::parse(&text), Membership::parse(THREE));
        assert_eq!((Membership::has_groups(&text), Membership::has_groups(THREE)), (true, false));
    }

    #[test]
    fn the_text_of_the_config_znode_reads_and_prints_as_it_is() {
        let membership = Membership::parse(THREE).unwrap();
        assert_eq!(membership.version, 0x1_0000_0005);
        assert_eq!(membership.servers.len(), 3);
        assert_eq!(membership.to_string(), THREE);
        assert_eq!(Membership::parse("").unwrap(), Membership::default());
    }

    #[test]
    fn a_line_of_another_kind_is_named() {
        for (text, part) in [
            ("peerType=observer", "`peerType=observer`: neither"),
            ("server.255=a:1:2", "the server id `255`"),
            ("server.1=a:1", "expected host:peerPort"),
            ("version=xyz", "hexadecimal"),
        ] {
            let reason = Membership::parse(text).unwrap_err();
            assert!(reason.contains(part), "{reason}");
        }
    }

    #[test]
    fn lines_that_differ_are_told_with_the_command_that_makes_them_true() {
        let membership = Membership::parse(THREE).unwrap();
        let same = membership.servers.clone();
        assert_eq!(membership.differences(&same), Vec::<String>::new());
        let lines = [
            same[0].clone(),
            ServerSpec::parse(2, "b:9:2").unwrap(),
            ServerSpec::parse(4, "d:1:2;5").unwrap(),
        ];
        let told = membership.differences(&lines).join("\n");
        assert!(
            told.contains("lockkeeper member add 'server.2=b:9:2:participant;<client port>'"),
            "{told}"
        );
        assert!(
            told.contains("lockkeeper member add 'server.4=d:1:2:participant;0.0.0.0:5'"),
            "{told}"
        );
        assert!(told.contains("lockkeeper member remove 3"), "{told}");
        assert!(!told.contains("server.1="), "{told}");
    }

    #[test]
    fn a_dynamic_file_holds_the_lines_without_the_version() {
        let text = dynamic_text(&Membership::parse(THREE).unwrap().servers);
        assert_eq!(text.lines().count(), 3);
        assert!(!text.contains("version"));
        assert_eq!(Membership::parse(&text).unwrap().servers.len(), 3);
    }

    #[test]
    fn the_static_file_keeps_what_the_operator_wrote() {
        let old = "# ours\r\ndataDir=/d\n\nserver.1=a:1:2\\\n  ;2181\npeerType=observer\n\
                   zookeeper.server.2=b:1:2\ngroup.1=1:2\nweight.1=1\nclientPort=2181\n\
                   ! end";
        assert_eq!(
            static_text(old, "/c/zoo.cfg.dynamic.1", false),
            "# ours\r\ndataDir=/d\n\nclientPort=2181\n! end\n\
             dynamicConfigFile=/c/zoo.cfg.dynamic.1\n"
        );
        assert_eq!(
            static_text(old, "d", true),
            "# ours\r\ndataDir=/d\n\n! end\ndynamicConfigFile=d\n"
        );
    }

    #[test]
    fn a_last_line_that_would_go_on_does_not_swallow_the_new_one() {
        for old in ["a=b\\", "a=b\\\n"] {
            let (properties, _) = properties::parse(&static_text(old, "d", false));
            let last = properties.last().unwrap();
            assert_eq!((last.key.as_str(), last.value.as_str()), ("dynamicConfigFile", "d"));
        }
    }

    #[test]
    fn a_static_file_that_was_rewritten_is_rewritten_to_the_same() {
        let once = static_text("dataDir=/d\nserver.1=a:1:2", "x.dynamic.1", true);
        assert_eq!(static_text(&once, "x.dynamic.1", true), once);
        assert_eq!(
            static_text(&once, "x.dynamic.2", true),
            "dataDir=/d\ndynamicConfigFile=x.dynamic.2\n"
        );
    }
}
