//! The limit of open files: every connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Fault;

/// Files that are open beside the connections, at most.
const OTHERS: u64 = 64;

/// Raises the soft limit to the hard one if so many connections need that.
///
/// # Errors
/// The hard one is lower, or the operating system refuses.
pub fn allow(connections: usize) -> Result<(), Fault> {
    let needed = connections as u64 + OTHERS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|files| files >= needed) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|files| files < needed) {
        return Err(Fault::Machine(format!(
            "{connections} connections need {needed} open files, and no more than {} are allowed: \
             raise `ulimit -Hn`",
            limit.maximum.unwrap_or_default()
        )));
    }
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, wanted)
        .map_err(|e| Fault::Machine(format!("cannot raise the limit of open files: {e}")))
}
