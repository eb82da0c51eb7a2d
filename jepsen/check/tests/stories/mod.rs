//! The stories behind the golden histories: what happened, and who finds what is wrong with it.

mod locks;
mod order;
mod servers;
mod sessions;
mod watches;

use lockkeeper_check::audit::AuditLine;
use lockkeeper_check::history::History;
use lockkeeper_check::op::{Answer, Code};
use lockkeeper_check::verdict::Rule;

use crate::common::Service;

/// What happened, and what the checks must say.
pub struct Story {
    pub name: &'static str,
    /// Checks that must have something to judge in it.
    pub about: &'static [&'static str],
    /// Who finds which rule broken.
    pub found: &'static [(&'static str, Rule)],
    pub history: History,
    /// One account for each server.
    pub audit: Vec<Vec<AuditLine>>,
}

impl Story {
    /// A story with the account of one server.
    pub fn of(name: &'static str, service: Service) -> Self {
        let (history, audit) = service.finish();
        Self { name, about: &[], found: &[], history, audit: vec![audit] }
    }

    pub fn about(mut self, about: &'static [&'static str]) -> Self {
        self.about = about;
        self
    }

    pub fn found(mut self, found: &'static [(&'static str, Rule)]) -> Self {
        self.found = found;
        self
    }

    /// Nobody kept an account.
    pub fn unaudited(mut self) -> Self {
        self.audit.clear();
        self
    }

    /// What the operation at a place was answered.
    pub fn result_mut(&mut self, at: usize) -> &mut Result<Answer, Code> {
        use lockkeeper_check::history::Outcome;
        match &mut self.history.operations[at].outcome {
            Outcome::Replied { result, .. } => result,
            other => panic!("the operation at {at} has no reply: {other:?}"),
        }
    }
}

/// All of them.
pub fn stories() -> Vec<Story> {
    let mut all = order::stories();
    all.extend(sessions::stories());
    all.extend(locks::stories());
    all.extend(watches::stories());
    all.extend(servers::stories());
    all
}
