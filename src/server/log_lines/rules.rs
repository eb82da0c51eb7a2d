//! Log line about rules of the leader that are not those of this server's file.
//!
//! *Owns* the rules that were named last. *Invariant*: a difference is named once, with both values of each key, until
//! the leader's rules change. *Never* speaks on a server that leads: its own rules count.

use crate::replica::Status;
use crate::replica::inspect::Mode;
use crate::tree::Rules;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::server) struct RulesLog {
    named: Option<Rules>,
}

impl RulesLog {
    /// A turn of the driver is over. `own`: rules of this server's file.
    pub(in crate::server) fn look(&mut self, status: &Status, own: Rules) {
        if let Some(words) = self.news(status, own) {
            tracing::info!("{words}");
        }
    }

    fn news(&mut self, status: &Status, own: Rules) -> Option<String> {
        let follows = matches!(status.mode, Mode::Follower | Mode::Observer);
        let leaders = status.leader_rules.filter(|rules| follows && self.named != Some(*rules))?;
        self.named = Some(leaders);
        let both = own.settings().into_iter().zip(leaders.settings());
        let differing: Vec<String> = both
            .filter(|((_, own), (_, leaders))| own != leaders)
            .map(|((key, own), (_, leaders))| format!("{key}={leaders} (here {own})"))
            .collect();
        (!differing.is_empty()).then(|| {
            format!(
                "the leader decides by other settings than this server's file has: {}. Writes are judged by the \
                 leader's, reads of this server's clients by its own: set them alike on all servers",
                differing.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_named_once_until_the_leaders_rules_change() {
        let mut log = RulesLog::default();
        let own = Rules { skip_acl: true, ..Rules::DEFAULT };
        let mut status = Status { mode: Mode::Follower, ..Status::default() };
        assert_eq!(log.news(&status, own), None, "the leader's rules are not known");
        status.leader_rules = Some(Rules { enforce_quota: true, ..own });
        let words = log.news(&status, own).unwrap();
        assert!(words.contains("has: enforceQuota=true (here false). Writes"), "{words}");
        assert_eq!(log.news(&status, own), None, "it was named");
        status.leader_rules = Some(own);
        assert_eq!(log.news(&status, own), None, "they are equal");
        status.leader_rules = Some(Rules::DEFAULT);
        assert!(log.news(&status, own).unwrap().contains("skipACL=no (here yes)"));
        let leads = Status { mode: Mode::Leader, ..status };
        assert_eq!(RulesLog::default().news(&leads, own), None);
    }
}
