//! What is right of a live migration, written here without looking at the product.
//!
//! * a server that serves before the cutover has, at its zxid, ZooKeeper's digest at that zxid;
//! * what a client was acknowledged before the cutover, ZooKeeper has committed with that zxid;
//! * a cutover never succeeds while a client's session is connected to ZooKeeper, or while the copy is another state;
//! * its zxid is above all that ZooKeeper has given and can still give;
//! * behind it, nothing but the end of sessions happens at ZooKeeper;
//! * what was committed before a client asked for a sync is there when the sync is answered;
//! * no session is lost, whatever a deposed leader of ZooKeeper says, and of each client's sets those that were
//!   acknowledged are there, and no more than were asked for;
//! * what a client asks for behind another request of the same connection is not done without that;
//! * a client that reads `/zookeeper/config` is shown the members of the ensemble that it is connected to, also while
//!   ZooKeeper decides, and hears of it when that changes;
//! * in the end all servers have one state.

use std::collections::BTreeSet;

use lockkeeper_core::replica::{Machine, Phase};
use lockkeeper_core::zookeeper::Txn;
use lockkeeper_core::zookeeper::txn::kind;

use super::super::conn::Violation;
use super::client::Client;
use super::host::{SERVERS, line};
use super::world::{SERVER_ID, World};

/// So many epochs above ZooKeeper's the cutover must begin.
const EPOCHS_ABOVE: i64 = 4096;

impl World {
    /// After each turn of a server.
    pub(super) fn judge(&mut self, id: u8) -> Result<(), Violation> {
        let host = &self.hosts[usize::from(id) - 1];
        let Some(replica) = &host.replica else { return Ok(()) };
        let machine = replica.machine();
        let Some(migration) = machine.migration() else { return Ok(()) };
        for client in &self.clients {
            keeps_its_order(client, machine)?;
            sees_its_servers(client)?;
        }
        match migration.phase {
            Phase::Following if replica.is_serving() => self.has_their_digest(id, machine)?,
            Phase::Stopped if !self.has_lied => {
                return Err(format!("server {id} stopped: {}", migration.why));
            }
            Phase::CutOver => {
                let zxid = machine.last_zxid();
                self.took_over(id, zxid)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn has_their_digest(&self, id: u8, machine: &Machine) -> Result<(), Violation> {
        let zxid = machine.last_zxid();
        let Some(theirs) = self.leader.find_committed(zxid) else { return Ok(()) };
        match machine.tree().legacy_digest() {
            Some(ours) if ours != theirs.digest => {
                let theirs = theirs.digest;
                Err(format!("server {id} at {zxid:#x}: digest {ours:#x}, ZooKeeper's {theirs:#x}"))
            }
            Some(_) => Ok(()),
            None => Err(format!("server {id} follows without ZooKeeper's digest")),
        }
    }

    fn took_over(&mut self, id: u8, zxid: i64) -> Result<(), Violation> {
        let epoch = zxid >> 32;
        if epoch < EPOCHS_ABOVE + 1 || epoch <= self.leader.epoch() {
            return Err(format!("server {id} goes on in epoch {epoch}"));
        }
        if self.has_lied {
            return Err(format!("server {id} took over from what ZooKeeper does not have"));
        }
        if !self.is_cut_over {
            self.is_cut_over = true;
            self.theirs_at_cutover = self.leader.last_committed();
            if self.cutovers.is_empty() {
                return Err("it took over although every order was refused".to_owned());
            }
            if !self.elsewhere.is_empty() {
                return Err(format!(
                    "it took over from {:x?}, which are at ZooKeeper",
                    self.elsewhere
                ));
            }
        }
        Ok(())
    }

    /// What ZooKeeper did behind the cutover.
    pub(super) fn nothing_happens_there(&self) -> Result<(), Violation> {
        if !self.is_cut_over {
            return Ok(());
        }
        for committed in self.leader.committed_after(self.theirs_at_cutover) {
            let txn = Txn::decode(committed.bytes.clone()).map_err(|bad| bad.to_string())?;
            // A deposed leader may still ask: it is refused, or opens a session that no client has.
            let is_late = match txn.header.kind {
                kind::ERROR => true,
                kind::MULTI | kind::SET_DATA | kind::CREATE | kind::CREATE2 => false,
                kind::CREATE_SESSION => txn.header.client_id.to_be_bytes()[0] == SERVER_ID,
                _ => txn.header.kind == kind::CLOSE_SESSION,
            };
            if !is_late {
                return Err(format!("ZooKeeper went on: {txn:?}"));
            }
        }
        Ok(())
    }

    /// At the end, when all is quiet.
    pub(super) fn judge_the_end(&self) -> Result<(), Violation> {
        let machines: Vec<&Machine> = self
            .hosts
            .iter()
            .filter_map(|host| host.replica.as_ref())
            .map(|it| it.machine())
            .collect();
        let digests: BTreeSet<u128> = machines.iter().map(|machine| machine.digest()).collect();
        if digests.len() != 1 || machines.len() != self.hosts.len() {
            return Err(format!("{} servers with {} states", machines.len(), digests.len()));
        }
        for client in &self.clients {
            self.keeps_its_word(client, machines[0])?;
        }
        self.nothing_happens_there()
    }

    fn keeps_its_word(&self, client: &Client, machine: &Machine) -> Result<(), Violation> {
        let number = client.number;
        if client.members.as_ref().is_some_and(|shown| shown != machine.tree().config_text()) {
            return Err(format!(
                "client {number} was not told of {:?}",
                machine.tree().config_text()
            ));
        }
        if client.answers == 0 {
            return Err(format!("client {number} was never answered"));
        }
        for zxid in client.zxids.iter().filter(|zxid| **zxid >> 32 < EPOCHS_ABOVE) {
            if self.leader.find_committed(*zxid).is_none() {
                return Err(format!(
                    "client {number}: {zxid:#x} was acknowledged and is not there"
                ));
            }
        }
        let Some(stat) = machine.tree().stat_unchecked(&client.path()) else {
            return match client.has_created {
                true => Err(format!("client {number}: its ephemeral is gone")),
                false => Ok(()),
            };
        };
        let (least, most) = (client.acknowledged, client.acknowledged + client.unknown);
        if !(least..=most).contains(&stat.version) {
            return Err(format!(
                "client {number}: version {}, not {least} to {most}",
                stat.version
            ));
        }
        Ok(())
    }
}

fn keeps_its_order(client: &Client, machine: &Machine) -> Result<(), Violation> {
    let data = |path: String| {
        String::from_utf8_lossy(machine.tree().data_unchecked(&path).unwrap_or_default())
    };
    let (first, second) = (data(client.path()), data(client.mirror()));
    if second > first {
        let number = client.number;
        return Err(format!("client {number}: {second:?} was set behind {first:?}, which was not"));
    }
    Ok(())
}

/// Curator connects to those servers alone from then on.
fn sees_its_servers(client: &Client) -> Result<(), Violation> {
    let Some(shown) = &client.members else { return Ok(()) };
    let lines: String = (1..=SERVERS).map(|id| format!("server.{id}={}\n", line(id))).collect();
    let version = shown.strip_prefix(&lines).and_then(|rest| rest.strip_prefix("version="));
    match version.map(|hex| i64::from_str_radix(hex, 16)) {
        Some(Ok(_)) => Ok(()),
        _ => Err(format!("client {} is sent to other servers: {shown:?}", client.number)),
    }
}
