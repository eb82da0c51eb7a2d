//! The limit of open files: every connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::server::limits::OPEN_FILES_MIN;

/// Raises the soft limit to the hard one, and warns if that is not much.
pub fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, wanted)
    {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    match getrlimit(Resource::Nofile).current {
        Some(files) if files < OPEN_FILES_MIN => tracing::warn!(
            files,
            "few files may be open at once, and every connection is one: raise `ulimit -n`"
        ),
        Some(files) => tracing::debug!(files, "limit of open files"),
        None => {}
    }
}
