//! The commands of the HTTP port by name.
//!
//! *Owns* their names and aliases, and what a command needs before it is run.
//!
//! Reproduces the registry of ZooKeeper's `server.admin.Commands` (3.9: without `shed_connections`).

/// A command that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Configuration,
    ConnectionStatReset,
    Connections,
    Dirs,
    Dump,
    Environment,
    GetTraceMask,
    Hash,
    InitialConfiguration,
    IsReadOnly,
    LastSnapshot,
    Leader,
    Monitor,
    ObserverConnectionStatReset,
    Observers,
    Restore,
    Ruok,
    ServerStats,
    SetTraceMask,
    Snapshot,
    StatReset,
    Stats,
    SystemProperties,
    VotingView,
    WatchSummary,
    Watches,
    WatchesByPath,
    Zabstate,
}

impl Command {
    /// Every command, in order of its primary name.
    pub(super) const ALL: [Command; 28] = [
        Command::Configuration,
        Command::ConnectionStatReset,
        Command::Connections,
        Command::Dirs,
        Command::Dump,
        Command::Environment,
        Command::GetTraceMask,
        Command::Hash,
        Command::InitialConfiguration,
        Command::IsReadOnly,
        Command::LastSnapshot,
        Command::Leader,
        Command::Monitor,
        Command::ObserverConnectionStatReset,
        Command::Observers,
        Command::Restore,
        Command::Ruok,
        Command::ServerStats,
        Command::SetTraceMask,
        Command::Snapshot,
        Command::StatReset,
        Command::Stats,
        Command::SystemProperties,
        Command::VotingView,
        Command::WatchSummary,
        Command::Watches,
        Command::WatchesByPath,
        Command::Zabstate,
    ];

    /// The primary name, then the aliases.
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Command::Configuration => &["configuration", "conf", "config"],
            Command::ConnectionStatReset => &["connection_stat_reset", "crst"],
            Command::Connections => &["connections", "cons"],
            Command::Dirs => &["dirs"],
            Command::Dump => &["dump"],
            Command::Environment => &["environment", "env", "envi"],
            Command::GetTraceMask => &["get_trace_mask", "gtmk"],
            Command::Hash => &["hash"],
            Command::InitialConfiguration => &["initial_configuration", "icfg"],
            Command::IsReadOnly => &["is_read_only", "isro"],
            Command::LastSnapshot => &["last_snapshot", "lsnp"],
            Command::Leader => &["leader", "lead"],
            Command::Monitor => &["monitor", "mntr"],
            Command::ObserverConnectionStatReset => &["observer_connection_stat_reset", "orst"],
            Command::Observers => &["observers", "obsr"],
            Command::Restore => &["restore", "rest"],
            Command::Ruok => &["ruok"],
            Command::ServerStats => &["server_stats", "srvr"],
            Command::SetTraceMask => &["set_trace_mask", "stmk"],
            Command::Snapshot => &["snapshot", "snap"],
            Command::StatReset => &["stat_reset", "srst"],
            Command::Stats => &["stats", "stat"],
            Command::SystemProperties => &["system_properties", "sysp"],
            Command::VotingView => &["voting_view"],
            Command::WatchSummary => &["watch_summary", "wchs"],
            Command::Watches => &["watches", "wchc"],
            Command::WatchesByPath => &["watches_by_path", "wchp"],
            Command::Zabstate => &["zabstate"],
        }
    }

    /// The name that the answer and the list show.
    pub(super) fn name(self) -> &'static str {
        self.names()[0]
    }

    /// The command with this name or alias.
    pub(super) fn find(name: &str) -> Option<Command> {
        Command::ALL.into_iter().find(|command| command.names().contains(&name))
    }

    /// Whether it is sent by POST; all others by GET.
    pub(super) fn is_post(self) -> bool {
        self == Command::Restore
    }

    /// Whether it exists only by name, as in a ZooKeeper whose operator has switched it off.
    pub(super) fn is_disabled(self) -> bool {
        self == Command::Restore
    }

    /// Whether it is refused while the server does not serve.
    pub(super) fn needs_serving(self) -> bool {
        !matches!(
            self,
            Command::Environment
                | Command::GetTraceMask
                | Command::Monitor
                | Command::SetTraceMask
                | Command::SystemProperties
                | Command::Zabstate
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_listed_in_order() {
        let mut names: Vec<_> =
            Command::ALL.iter().flat_map(|command| command.names()).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(Command::ALL.iter().map(|command| command.name()).is_sorted());
    }
}
