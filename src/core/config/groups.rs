//! The lines `group.N` and `weight.N` of ZooKeeper's hierarchical quorums.
//!
//! Owns [`Groups`] and the judgement on them. Invariant: groups that are taken have the quorums of a plain
//! majority, which is all that is offered: with one group of all voters, each of weight w, ZooKeeper asks for a
//! set whose weights add up to more than half of all, and k * w > n * w / 2 is k > n / 2, also where the half
//! is rounded down. Everything else is refused by name. Reproduces `QuorumHierarchical`.

use std::collections::{BTreeMap, BTreeSet};

use super::error::{ConfigError, Origin};
use super::key::VALUE_BYTES_MAX;
use super::servers::{Role, ServerSpec, server_id};

/// What is said of lines that are taken.
pub(super) const TAKEN: &str =
    "one group of all participants with equal weights decides as no groups do: by majority";

/// The lines as they were given.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    lines: Vec<Line>,
}

#[derive(Clone, Debug)]
struct Line {
    key: String,
    value: String,
    origin: Origin,
}

/// Whether a key is one of these lines'.
pub(super) fn is_line(key: &str) -> bool {
    key.starts_with(GROUP) || key.starts_with(WEIGHT)
}

impl Groups {
    /// Adds a line.
    pub(super) fn give(&mut self, key: &str, value: &str, origin: Origin) {
        self.lines.push(Line { key: key.to_string(), value: value.to_string(), origin });
    }

    /// The keys of all lines.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|line| line.key.as_str())
    }

    /// Why these groups are not what a majority of the participants is, if they are not.
    pub(super) fn fault(&self, servers: &[ServerSpec]) -> Option<ConfigError> {
        let (line, reason) = self.judge(servers).err()?;
        let reason = format!("refused: hierarchical quorums are not offered, and {reason}");
        Some(line.origin.error(&line.key, reason))
    }

    fn judge(&self, servers: &[ServerSpec]) -> Result<(), (&Line, String)> {
        if let Some(line) = self.lines.iter().find(|line| line.value.len() > VALUE_BYTES_MAX) {
            return Err((line, format!("the value is longer than {VALUE_BYTES_MAX} bytes")));
        }
        let (groups, weights): (Vec<_>, Vec<_>) =
            self.lines.iter().partition(|line| line.key.starts_with(GROUP));
        let group = match (groups.as_slice(), weights.first()) {
            ([], None) => return Ok(()),
            ([], Some(first)) => return Err((first, "there is no group".to_string())),
            ([only], _) => *only,
            ([_, second, ..], _) => {
                return Err((second, format!("there are {} groups", groups.len())));
            }
        };
        let members = members(group, servers).map_err(|reason| (group, reason))?;
        let mut given = BTreeMap::new();
        for line in weights {
            let (id, weight) = weight(line, &members).map_err(|reason| (line, reason))?;
            if given.insert(id, weight).is_some() {
                return Err((line, format!("server {id} has another weight in another line")));
            }
        }
        equal(&members, &given).map_err(|reason| (group, reason))
    }
}

/// The servers of a group, which are the participants.
fn members(group: &Line, servers: &[ServerSpec]) -> Result<BTreeSet<u8>, String> {
    let number = group.key.strip_prefix(GROUP).unwrap_or_default();
    if number.parse::<u32>().is_err() {
        return Err(format!("the group's name `{number}` is not a number"));
    }
    let mut members = BTreeSet::new();
    for text in group.value.trim_end_matches(':').split(':') {
        let id = server_id(text)?;
        if !members.insert(id) {
            return Err(format!("server {id} is in the group twice"));
        }
        let server = servers.iter().find(|spec| spec.id == id);
        match server.map(|spec| spec.role) {
            Some(Role::Participant) => {}
            Some(Role::Observer) => return Err(format!("server {id} is an observer")),
            None => return Err(format!("server {id} has no server line")),
        }
    }
    let outside =
        servers.iter().find(|spec| spec.role == Role::Participant && !members.contains(&spec.id));
    match outside {
        Some(spec) => Err(format!("server {} is not in the group", spec.id)),
        None => Ok(members),
    }
}

/// Whose weight a line says, and which.
fn weight(line: &Line, members: &BTreeSet<u8>) -> Result<(u8, i64), String> {
    let id = server_id(line.key.strip_prefix(WEIGHT).unwrap_or_default())?;
    if !members.contains(&id) {
        return Err(format!("server {id} is not in the group"));
    }
    match line.value.parse::<i64>() {
        Ok(weight) if weight > 0 => Ok((id, weight)),
        Ok(weight) => Err(format!("with the weight {weight} server {id} has no vote")),
        Err(_) => Err(format!("the weight `{}` is not a number", line.value)),
    }
}

/// Whether all have the same weight, and ZooKeeper can add them up.
fn equal(members: &BTreeSet<u8>, given: &BTreeMap<u8, i64>) -> Result<(), String> {
    let weights = members.iter().map(|id| (*id, given.get(id).copied().unwrap_or(WEIGHT_DEFAULT)));
    let mut all: i64 = 0;
    let mut first = None;
    for (id, weight) in weights {
        let (first_id, first_weight) = *first.get_or_insert((id, weight));
        if weight != first_weight {
            return Err(format!(
                "the weights differ: server {first_id} has {first_weight}, server {id} has {weight}"
            ));
        }
        all = all.checked_add(weight).ok_or("the weights do not fit in 64 bits together")?;
    }
    Ok(())
}

const GROUP: &str = "group.";
const WEIGHT: &str = "weight.";
/// The weight of a server that has no line.
const WEIGHT_DEFAULT: i64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with these lines, in an ensemble of so many participants and the observer 9.
    fn fault(participants: u8, lines: &[&str]) -> Option<String> {
        let mut servers: Vec<_> =
            (1..=participants).map(|id| ServerSpec::parse(id, "h:1:2").unwrap()).collect();
        servers.push(ServerSpec::parse(9, "h:1:2:observer").unwrap());
        let mut groups = Groups::default();
        for (line, at) in lines.iter().zip(1..) {
            let (key, value) = line.split_once('=').unwrap();
            groups.give(key, value, Origin { file: "f".to_string(), line: at });
        }
        groups.fault(&servers).map(|fault| fault.to_string())
    }

    /// `QuorumHierarchical.containsQuorum` for one group of `all` servers that have this weight each, of which
    /// `present` are there: its division rounds down.
    fn is_quorum_of_zookeeper(present: u8, all: u8, weight: i64) -> bool {
        let (groups, weight_of_all) = (1, i64::from(all) * weight);
        let majorities = i32::from(present > 0 && i64::from(present) * weight > weight_of_all / 2);
        majorities > groups / 2
    }

    #[test]
    fn one_group_of_equal_weights_has_the_quorums_of_a_majority() {
        for all in 1..=9 {
            for weight in [1, 2, 3, 7, 10, i64::MAX / 9] {
                for present in 0..=all {
                    let is_majority = present > all / 2;
                    assert_eq!(is_quorum_of_zookeeper(present, all, weight), is_majority);
                }
            }
        }
    }

    #[test]
    fn one_group_of_all_participants_with_equal_weights_is_taken() {
        let largest = format!("{}", i64::MAX / 3);
        let lines = |weight: &str| [1, 2, 3].map(|id| format!("weight.{id}={weight}")).to_vec();
        let mut all = vec![vec![], lines("1"), lines("10"), lines(&largest)];
        all.push(vec!["weight.2=1".to_string()]);
        for weights in all {
            for group in ["group.1=1:2:3", "group.7=3:1:2", "group.1=1:2:3:"] {
                let lines: Vec<&str> =
                    std::iter::once(group).chain(weights.iter().map(String::as_str)).collect();
                assert_eq!(fault(3, &lines), None, "{lines:?}");
            }
        }
        assert_eq!(fault(1, &["weight.1=5", "group.1=1"]), None);
        assert_eq!(fault(3, &[]), None);
    }

    #[test]
    fn other_groups_are_refused_where_they_differ() {
        let too_large = format!("{}", i64::MAX / 3 + 1);
        let too_large = [1, 2, 3].map(|id| format!("weight.{id}={too_large}"));
        let too_large =
            [&["group.1=1:2:3"][..], &too_large.each_ref().map(String::as_str)].concat();
        let too_long = format!("group.1={}", "1:".repeat(40_000));
        for (lines, line, words) in [
            (&["weight.1=1"][..], "f:1: weight.1", "there is no group"),
            (&["group.1=1:2", "group.2=3"], "f:2: group.2", "there are 2 groups"),
            (&["group.1=1:2"], "f:1: group.1", "server 3 is not in the group"),
            (&["group.1=1:2:3:4"], "f:1: group.1", "server 4 has no server line"),
            (&["group.1=1:2:3:9"], "f:1: group.1", "server 9 is an observer"),
            (&["group.1=1:2:3:1"], "f:1: group.1", "server 1 is in the group twice"),
            (&["group.1=1:2:x"], "f:1: group.1", "the server id `x`"),
            (&["group.1="], "f:1: group.1", "the server id ``"),
            (&["group.a=1:2:3"], "f:1: group.a", "`a` is not a number"),
            (&["group.1=1:2:3", "weight.2=2"], "f:1: group.1", "server 1 has 1, server 2 has 2"),
            (&["group.1=1:2:3", "weight.2=0"], "f:2: weight.2", "server 2 has no vote"),
            (&["group.1=1:2:3", "weight.2=-1"], "f:2: weight.2", "server 2 has no vote"),
            (&["group.1=1:2:3", "weight.2=no"], "f:2: weight.2", "`no` is not a number"),
            (
                &["group.1=1:2:3", "weight.2=1", "weight.02=1"],
                "f:3: weight.02",
                "server 2 has another weight",
            ),
            (&["group.1=1:2:3", "weight.9=1"], "f:2: weight.9", "server 9 is not in the group"),
            (&[&too_long], "f:1: group.1", "longer than 65536 bytes"),
            (&too_large, "f:1: group.1", "do not fit in 64 bits"),
        ] {
            let said = fault(3, lines).expect("it is refused");
            let begin = format!("{line}: refused: hierarchical quorums are not offered, and ");
            assert!(said.starts_with(&begin) && said.contains(words), "{lines:?}: {said}");
        }
    }
}
