//! The verdict on the reports of one window.
//!
//! *Owns* when digests convict. *Invariants*: a verdict follows from equal reports of a majority of the voters, of both
//! sets while they change; a missing report is no other one; observers are judged and never counted. *Never* asks who
//! leads.

use std::collections::BTreeMap;

use super::record::Value;

/// Reports of one window, by raft id.
pub(super) type Values = BTreeMap<u64, Value>;

/// Conclusion from the reports of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing yet.
    Unknown,
    /// A majority has this value: a server that reports another one has diverged.
    Agreed(Value),
    /// Whatever the missing reports will be, no majority has the same value.
    Impossible,
}

/// Judges the reports of a window. `voters`: raft ids of the voters, and of those before a change that is under way,
/// if there is one.
pub(super) fn judge(voters: &[Vec<u64>], values: &Values) -> Verdict {
    let sets: Vec<&Vec<u64>> = voters.iter().filter(|set| !set.is_empty()).collect();
    let have =
        |set: &[u64], value: Value| set.iter().filter(|id| values.get(id) == Some(&value)).count();
    let missing = |set: &[u64]| set.iter().filter(|id| !values.contains_key(id)).count();
    let is_majority = |set: &[u64], count: usize| count > set.len() / 2;
    let reported = values.values().copied();
    let agreed = |value: Value| sets.iter().all(|set| is_majority(set, have(set, value)));
    if let Some(value) = reported.clone().find(|value| agreed(*value) && !sets.is_empty()) {
        return Verdict::Agreed(value);
    }
    let is_possible =
        |value: Value| sets.iter().all(|set| is_majority(set, have(set, value) + missing(set)));
    let is_all_missing = sets.iter().all(|set| is_majority(set, missing(set)));
    if is_all_missing || reported.clone().any(is_possible) {
        return Verdict::Unknown;
    }
    Verdict::Impossible
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Value = Value { digest: 1, sum: 0 };
    const B: Value = Value { digest: 2, sum: 0 };
    const C: Value = Value { digest: 3, sum: 0 };

    fn verdict(voters: &[&[u64]], values: &[(u64, Value)]) -> Verdict {
        let voters: Vec<Vec<u64>> = voters.iter().map(|set| set.to_vec()).collect();
        judge(&voters, &values.iter().copied().collect())
    }

    #[test]
    fn a_majority_of_equal_reports_convicts_and_a_missing_one_is_no_other() {
        let three: &[&[u64]] = &[&[1, 2, 3]];
        assert_eq!(verdict(three, &[]), Verdict::Unknown);
        assert_eq!(verdict(three, &[(1, A)]), Verdict::Unknown);
        assert_eq!(verdict(three, &[(1, A), (2, B)]), Verdict::Unknown);
        assert_eq!(verdict(three, &[(1, A), (3, A)]), Verdict::Agreed(A));
        assert_eq!(verdict(three, &[(1, A), (2, B), (3, A)]), Verdict::Agreed(A));
    }

    #[test]
    fn a_learner_is_never_counted() {
        let three: &[&[u64]] = &[&[1, 2, 3]];
        assert_eq!(verdict(three, &[(1, A), (9, A), (8, A)]), Verdict::Unknown);
        assert_eq!(verdict(three, &[(9, B), (1, A), (2, A)]), Verdict::Agreed(A));
    }

    #[test]
    fn while_voters_change_a_majority_of_both_sets_must_agree() {
        let joint: &[&[u64]] = &[&[1, 2, 3], &[3, 4, 5]];
        assert_eq!(verdict(joint, &[(1, A), (2, A), (3, A)]), Verdict::Unknown);
        assert_eq!(verdict(joint, &[(1, A), (2, A), (3, A), (4, A)]), Verdict::Agreed(A));
        assert_eq!(verdict(joint, &[(1, A), (2, A), (4, B), (5, B)]), Verdict::Impossible);
        let settled: &[&[u64]] = &[&[1, 2, 3], &[]];
        assert_eq!(verdict(settled, &[(1, A), (2, A)]), Verdict::Agreed(A));
    }

    #[test]
    fn all_stop_only_where_no_majority_can_agree() {
        assert_eq!(verdict(&[&[1, 2]], &[(1, A), (2, B)]), Verdict::Impossible);
        assert_eq!(verdict(&[&[1, 2, 3]], &[(1, A), (2, B), (3, C)]), Verdict::Impossible);
        let five: &[&[u64]] = &[&[1, 2, 3, 4, 5]];
        assert_eq!(verdict(five, &[(1, A), (2, B), (3, C)]), Verdict::Unknown);
        assert_eq!(verdict(five, &[(1, A), (2, B), (3, C), (4, B)]), Verdict::Unknown);
        let (d, e) = (Value { digest: 4, sum: 0 }, Value { digest: 4, sum: 1 });
        assert_eq!(verdict(five, &[(1, A), (2, B), (3, C), (4, d)]), Verdict::Impossible);
        assert_eq!(verdict(five, &[(1, d), (2, e), (3, d), (4, e)]), Verdict::Unknown);
    }
}
