//! When servers ended sessions, by their own account: the audit log.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lockkeeper_check::audit::{AuditLine, read_audit};

use super::PATIENCE;

/// The first transaction that took a session's locks away.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// When the leader decided it, by its clock: the znodes are there until then at least.
    pub at: SystemTime,
    /// It was another leader than the one under whom the session had begun.
    pub is_by_another_leader: bool,
}

/// Waits until the servers that write this log have ended the session, or it has removed its znode.
pub async fn ending(log: &Path, session: i64) -> Ending {
    let begun = Instant::now();
    loop {
        if let Some(ending) = look(log, session) {
            return ending;
        }
        assert!(begun.elapsed() < PATIENCE, "the session {session:#x} does not end");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn look(log: &Path, session: i64) -> Option<Ending> {
    let text = std::fs::read_to_string(log).expect("the audit log");
    let log = read_audit("audit.log", "all", &text).unwrap_or_else(|error| panic!("{error}"));
    let of_it = |line: &&AuditLine| line.session == session && line.result.is_ok();
    let mut lines = log.lines.iter().filter(of_it);
    let first = lines.next()?;
    let ends = ["expireSession", "closeSession", "delete"];
    let last = lines.find(|line| ends.contains(&line.op.as_str()))?;
    let since = Duration::from_millis(u64::try_from(last.time_ms).expect("after 1970"));
    Some(Ending { at: UNIX_EPOCH + since, is_by_another_leader: last.term > first.term })
}
