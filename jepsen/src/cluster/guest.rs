//! A guest: a server that joins the ensemble while it runs, and leaves it again.
//!
//! *Owns* the operator's commands for it. It comes as an observer and as a voter in turn, each time
//! with an empty disk; what it applied counts as evidence as that of all others, up to where it left.
//! *Invariant*: a guest that is not let in, or does not serve, while nothing else is wrong, counts as a
//! server that has crashed.

use std::process::Command;
use std::time::{Duration, Instant};

use super::{Cluster, Node, Software, words};

/// How many guests a run has.
pub(super) const GUESTS: usize = 1;
/// What its servers allow; `super:secret` is who may change the members.
pub(super) const SETTINGS: &str = "reconfigEnabled=true\n\
    DigestAuthenticationProvider.superDigest=super:lK75jTNcA+U9vtVEw5vB51mj/w4=\n";
const CREDENTIAL: &str = "digest:super:secret";
/// Seconds after which a command is ended.
const COMMAND_S: &str = "15";
/// A guest that joins serves within this time.
const SERVES_MAX: Duration = Duration::from_secs(15);
/// A guest is let in within this time: an election may be under way behind the fault before.
const ADDED_MAX: Duration = Duration::from_secs(5);
/// A guest has left within this time.
const LEAVES_MAX: Duration = Duration::from_secs(40);
/// Pause between looks, and between attempts.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Cluster {
    /// The guest joins. Who it is and as what.
    ///
    /// # Errors
    /// It does not, or does not serve in time.
    pub fn join(&mut self) -> Result<String, String> {
        if self.is_joined {
            return Err("it is there already".to_owned());
        }
        let at = self.nodes.len();
        let guest = self.guest.as_ref().ok_or("there is no guest")?;
        let role = if guest.starts.is_multiple_of(2) { "observer" } else { "participant" };
        let line = guest.line(at + 1, role);
        guest.remove_data()?;
        self.configure(guest, at, &format!("{}{line}", self.ensemble()))?;
        let is_calm = self.is_calm();
        // Whatever is answered, it may have become a member, and is to be removed again.
        self.is_joined = true;
        let adding = ["add", line.trim_end()];
        let patience = if is_calm { ADDED_MAX } else { Duration::ZERO };
        if let Err(why) = self.insist(&adding, patience) {
            return Err(self.blame(is_calm, why));
        }
        let command = self.command(self.guest.as_ref().expect("it is there"), at);
        let guest = self.guest.as_mut().expect("it is there");
        guest.start(&command)?;
        let deadline = Instant::now() + SERVES_MAX;
        while Instant::now() < deadline {
            if words::mode(guest.address).is_some() {
                return Ok(format!("{} joins as {role}", guest.name));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let why =
            format!("{} joined as {role}, but does not serve {SERVES_MAX:?} later", guest.name);
        Err(self.blame(is_calm, why))
    }

    /// Nothing is to blame but the servers, if nothing was done to them.
    fn blame(&mut self, is_calm: bool, why: String) -> String {
        if is_calm {
            self.crashes.push(format!("with no other fault, {why}"));
        }
        why
    }

    /// Changes the members, again and again until it is done or the time is over.
    fn insist(&self, words: &[&str], patience: Duration) -> Result<(), String> {
        let deadline = Instant::now() + patience;
        while let Err(why) = self.member(words) {
            if Instant::now() >= deadline {
                return Err(why);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// The guest leaves. What was done.
    ///
    /// # Errors
    /// It is not let go.
    pub(super) fn leave(&mut self) -> Result<String, String> {
        let id = (self.nodes.len() + 1).to_string();
        self.insist(&["remove", &id], LEAVES_MAX)?;
        self.is_joined = false;
        let guest = self.guest.as_mut().ok_or("there is no guest")?;
        if let Some(process) = guest.process.take() {
            process.kill();
        }
        Ok(format!("{} leaves", guest.name))
    }

    /// The guest's name, if it was ever there.
    #[must_use]
    pub fn departed(&self) -> Option<&str> {
        self.guest.as_ref().filter(|guest| guest.starts > 0).map(|guest| guest.name.as_str())
    }

    fn member(&self, words: &[&str]) -> Result<(), String> {
        let Software::Lockkeeper { binary } = &self.blueprint.software else {
            return Err("only of a lockkeeper is it known how".to_owned());
        };
        let address = |node: &Node| node.address.to_string();
        let servers = self.nodes.iter().map(address).collect::<Vec<_>>().join(",");
        let mut command = Command::new("timeout");
        command.arg(COMMAND_S).arg(binary).arg("member").args(words);
        command.args(["--server", &servers, "--auth", CREDENTIAL]);
        let done = command.output().map_err(|error| format!("member: {error}"))?;
        match done.status.success() {
            true => Ok(()),
            false => {
                let said = String::from_utf8_lossy(&done.stderr);
                Err(format!("member {}: {} {}", words[0], done.status, said.trim()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::{Backend, Blueprint, write};
    use super::*;

    #[test]
    fn a_guest_that_is_not_let_in_is_a_violation_while_nothing_else_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("servers-that-refuse");
        write(&binary, "#!/bin/sh\n[ $1 = server ] && exec sleep 60\nexit 1\n").unwrap();
        set_permissions(&binary, Permissions::from_mode(0o755)).unwrap();
        let mut cluster = Cluster::new(Blueprint {
            software: Software::Lockkeeper { binary },
            plant: None,
            backend: Backend::Loopback,
            nodes: 3,
            tick_ms: 200,
            snapshot_every: None,
            faults: "membership".parse().unwrap(),
            seed: 1,
            folder: folder.path().to_owned(),
        })
        .unwrap();
        // With one of them down, nobody is to blame.
        cluster.start(0).unwrap();
        cluster.start(1).unwrap();
        cluster.join().unwrap_err();
        assert_eq!(cluster.crashes(), [""; 0]);
        cluster.is_joined = false;
        cluster.start(2).unwrap();
        let why = cluster.join().unwrap_err();
        assert_eq!(cluster.crashes(), [format!("with no other fault, {why}")]);
        // It may have come in all the same.
        assert!(cluster.is_joined);
    }
}
