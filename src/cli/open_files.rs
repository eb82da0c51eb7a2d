//! The limit of open files: every connection is one.

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::server::limits::{OPEN_FILES_MIN, OPEN_FILES_ROOM};

/// Raises the soft limit to the hard one, and warns if that is not much. To be called while there is
/// one thread.
pub(super) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, wanted)
    {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    let allowed = getrlimit(Resource::Nofile).current;
    match allowed {
        Some(files) if files < OPEN_FILES_MIN => tracing::warn!(
            files,
            "few files may be open at once, and every connection is one: raise `ulimit -n`"
        ),
        Some(files) => tracing::debug!(files, "limit of open files"),
        None => {}
    }
    make_room(allowed.map_or(OPEN_FILES_ROOM, |files| files.min(OPEN_FILES_ROOM)));
}

/// Has the kernel's table of this process's files be as large as that. Otherwise it is doubled whenever
/// it is full, and a thread that opens a file in a process with threads waits until no processor can be in the
/// middle of the smaller one: 10 to 30 ms each time while they are busy, in the server's thread.
fn make_room(files: u64) {
    let last = i32::try_from(files.saturating_sub(1)).unwrap_or(i32::MAX);
    if let Err(error) = fcntl_dupfd_cloexec(std::io::stderr(), last) {
        tracing::debug!(%error, "no room for open files ahead of need");
    }
}
