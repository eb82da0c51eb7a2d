//! Sequence numbers (C3): each sequential znode gets the next number of its parent, for ever.
//!
//! *Owns* the count of creates below each znode. The number is how many children were created below
//! the parent before, whatever became of them and whoever led: never given twice, no gap.

use std::collections::BTreeMap;

use crate::account;
use crate::audit::AuditLine;
use crate::history::History;
use crate::path;
use crate::report;
use crate::verdict::{Rule, Verdict, Violation};

/// Checks the names that sequential creates were given.
#[must_use]
pub fn check(history: &History, audit: Option<&[AuditLine]>) -> Verdict {
    let transactions = match account::replay(history, audit) {
        Ok(transactions) => transactions,
        Err(verdict) => return verdict,
    };
    let mut created: BTreeMap<String, i32> = BTreeMap::new();
    let mut is_checked = false;
    for transaction in &transactions {
        for (create, path) in transaction.creates() {
            let Some((parent, _)) = path::split(&path) else { continue };
            let next = created.get(parent).copied().unwrap_or_default();
            if create.mode.is_sequential() {
                is_checked = true;
                let given = path::sequence(&create.path, &path);
                if given != Some(next) {
                    let what = format!("{path} should have the number {next}");
                    let around = vec![format!("> {}", report::line(transaction.line))];
                    return Verdict::Invalid(Violation { rule: Rule::Sequence, what, around });
                }
            }
            created.insert(parent.to_owned(), next.wrapping_add(1));
            created.insert(path, 0);
        }
    }
    match is_checked {
        true => Verdict::Valid,
        false => Verdict::Moot("no sequential znode was created".to_owned()),
    }
}
