//! Core dumps of a server: none where its memory holds keys and passwords.

use crate::config::Config;

/// Has the kernel write none, nor show the memory to other processes of the same user, unless that is wanted.
pub(super) fn forbid(config: &Config) {
    if config.core_dumps || !config.has_secrets() {
        return;
    }
    #[cfg(target_os = "linux")]
    if let Err(error) =
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
    {
        tracing::warn!(%error, "core dumps of this process are not switched off: they would hold keys and passwords");
    }
}
