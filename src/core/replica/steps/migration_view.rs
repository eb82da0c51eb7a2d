//! What a live migration shows of itself, and where the other ensemble is.
//!
//! *Owns* nothing: reads the state, the link, and the text of ZooKeeper's members. *Never* changes anything.

use crate::config::{Membership, Role};
use crate::proto::Text;
use crate::replica::Replica;
use crate::replica::inspect::{CopyReport, MigrationFigures, MigrationLink, MigrationReport};
use crate::replica::machine::Phase;
use crate::replica::machine::members::{self, Members};
use crate::replica::migration::{ZooKeeperHost, ZooKeeperHosts};

impl Replica {
    /// Where ZooKeeper's leader may be: what the operator said, and what `/zookeeper/config` says.
    pub(super) fn zookeeper_addresses(&self) -> Vec<Text> {
        let machine = self.state.machine();
        let Some(migration) = machine.migration() else { return Vec::new() };
        let mut all = migration.quorum.clone();
        for spec in self.zookeeper_members().values() {
            for address in &spec.addresses {
                let text = Text::from(format!("{}:{}", address.host, address.peer_port));
                if !all.contains(&text) {
                    all.push(text);
                }
            }
        }
        all
    }

    /// The servers of the other ensemble, as it has said last.
    fn zookeeper_members(&self) -> Members {
        members::parse(self.zookeeper_text())
    }

    fn zookeeper_text(&self) -> &str {
        let machine = self.state.machine();
        match machine.migration() {
            Some(migration) if migration.follows() && migration.is_whole => {
                machine.tree().config_text()
            }
            Some(migration) => migration.other_members.as_str(),
            None => "",
        }
    }

    /// The machines of the other ensemble, as its configuration and the operator who had it followed name them.
    #[must_use]
    pub fn zookeeper_hosts(&self) -> Vec<ZooKeeperHost> {
        let mut hosts = ZooKeeperHosts::default();
        let Some(migration) = self.state.machine().migration() else { return Vec::new() };
        for spec in self.zookeeper_members().values() {
            let ports: Vec<u16> = [&spec.client, &spec.secure_client]
                .into_iter()
                .flatten()
                .map(|address| address.port)
                .collect();
            for address in &spec.addresses {
                hosts.runs(&address.host, &ports);
            }
        }
        let texts = |all: &[Text]| all.iter().map(Text::to_string).collect::<Vec<String>>();
        hosts.named(&texts(&migration.quorum), &texts(&migration.clients));
        hosts.all()
    }

    /// The ports of the participants of the other ensemble at which each listens as long as it runs, of each server,
    /// and how many of them must be stopped so that the others decide nothing.
    #[must_use]
    pub fn zookeeper_voters(&self) -> (Vec<Vec<String>>, usize) {
        let members = self.zookeeper_members();
        let voters = members.values().filter(|spec| spec.role == Role::Participant);
        let ports = voters.map(|spec| {
            let ports = spec.addresses.iter();
            ports.map(|address| format!("{}:{}", address.host, address.election_port)).collect()
        });
        let ports: Vec<Vec<String>> = ports.collect();
        let count = ports.len();
        // By groups and weights, few may decide.
        let has_groups = Membership::has_groups(self.zookeeper_text());
        (ports, if has_groups { count } else { count / 2 + 1 })
    }

    /// Whether the shell may read more from the link with ZooKeeper.
    #[must_use]
    pub fn takes_from_zookeeper(&self) -> bool {
        self.following.has_room()
    }

    /// What operators see of it.
    pub(in crate::replica) fn migration_report(&self) -> MigrationReport {
        let machine = self.state.machine();
        let link = self.following.remote();
        let mut report = MigrationReport {
            is_unused: machine.is_unused(),
            zxid: machine.last_zxid(),
            leads: self.leadership.leads().is_some(),
            leader: self.known_leader(),
            sessions: machine.session_count(),
            sessions_elsewhere: self.unconnected_sessions().count() as u64,
            linked_with: link.map(|(remote, _)| remote.to_owned()),
            is_current: link.is_some_and(|(_, is_current)| is_current),
            requests_waiting: self.following.waiting.len() as u64,
            alarms: self.following.alarms(),
            ..MigrationReport::default()
        };
        let Some(migration) = machine.migration() else { return report };
        let texts = |all: &[Text]| all.iter().map(Text::to_string).collect();
        report.state = Some(migration.phase.name());
        report.why = match migration.phase {
            Phase::Stopped => migration.why.to_string(),
            Phase::Joining | Phase::Interrupted => self.following.why().to_owned(),
            Phase::Following | Phase::CutOver | Phase::Aborted | Phase::Done => String::new(),
        };
        (report.foreign_zxid, report.epoch) = (migration.foreign_zxid, migration.epoch);
        (report.compared, report.compared_zxid) = (migration.compared, migration.compared_zxid);
        report.copy = self.copy_report();
        (report.expired, report.expired_last) = (migration.expired, migration.expired_last);
        report.largest = migration.largest;
        report.notes = self.migration_notes();
        report.server_id = migration.server_id;
        (report.quorum, report.clients) = (texts(&migration.quorum), texts(&migration.clients));
        report
    }

    /// How far a copy has come, while one is being made.
    pub(super) fn copy_report(&self) -> Option<CopyReport> {
        let machine = self.state.machine();
        let phase = machine.migration().map(|migration| migration.phase);
        if phase != Some(Phase::Joining) && !machine.is_loading() {
            return None;
        }
        let (znodes, bytes) = machine.loaded().unwrap_or_default();
        let mut report = CopyReport { znodes, bytes, ..CopyReport::default() };
        if self.leadership.leads().is_some() {
            let copies = self.following.copies;
            report.attempt = copies.begun;
            report.since_ms = self.clocks.now_us().saturating_sub(copies.since_us) / 1000;
            report.waits_for = self.following.waits_for();
        }
        Some(report)
    }

    /// Differences between this ensemble and ZooKeeper that clients, or a cutover, would notice.
    fn migration_notes(&self) -> Vec<String> {
        let (min, max) = (self.setup.session_timeout_ms_min, self.setup.session_timeout_ms_max);
        let timeouts = self.state.machine().sessions().iter().map(|(_, one)| one.timeout_ms);
        let outside = timeouts.filter(|timeout_ms| !(min..=max).contains(timeout_ms)).count();
        let of_timeouts = (outside > 0).then(|| {
            format!(
                "{outside} sessions have a timeout that this server does not give ({min} to {max} ms): their clients \
                 get another one when they come here. Set minSessionTimeout and maxSessionTimeout as at ZooKeeper"
            )
        });
        self.following.is_skewed().into_iter().chain(of_timeouts).collect()
    }

    /// The figures of it; `None` without one.
    pub(in crate::replica) fn migration_figures(&self) -> Option<MigrationFigures> {
        let migration = self.state.machine().migration()?;
        let leads = self.leadership.leads().is_some();
        Some(MigrationFigures {
            state: migration.phase.name(),
            foreign_zxid: migration.foreign_zxid,
            compared: migration.compared,
            copy: self.copy_report(),
            of_leader: leads.then(|| MigrationLink {
                is_current: self.following.remote().is_some_and(|(_, is_current)| is_current),
                requests_waiting: self.following.waiting.len() as u64,
                alarms: self.following.alarms(),
            }),
        })
    }
}
