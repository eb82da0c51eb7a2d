//! Servers with a network each, so that it can be cut between any two of them.
//!
//! *Owns* one network namespace for each server, held open by a process that sleeps in it, a pair of
//! interfaces that leads from it to the harness, and the rules by which the harness's kernel forwards
//! between them. The harness itself must have a namespace of its own ([`enter`]); everything made here
//! is gone when its processes are. *Invariants*: a cut loses packets without a word, in one direction
//! only; the clients, who live with the harness, are never cut off.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::process::{Process, has_program};
use super::switch;

/// Set for a harness that has its own namespaces: which.
const MARK: &str = "LOCKKEEPER_JEPSEN_NAMESPACE";
/// The kinds of namespaces, as `unshare` calls them.
pub const NET: &str = "--net";
pub const MOUNT: &str = "--mount";
/// Not a namespace: a device in that of the network, for the switch.
pub const SWITCH: &str = "switch";
/// Programs that it takes.
const PROGRAMS: [&str; 5] = ["ip", "unshare", "nsenter", "sleep", "sh"];
/// What a kernel must be able to do, tried in a namespace that is thrown away.
const PROBE: &str = "ip link add lk0 type veth peer name lk1 && ip link set lo up && \
    ip rule add from 10.77.1.2 to 10.77.2.2 blackhole && \
    ip rule del from 10.77.1.2 to 10.77.2.2 blackhole && \
    echo 1 > /proc/sys/net/ipv4/ip_forward";
/// Longer than any run.
const FOREVER: &str = "1000000";

/// The servers' networks.
#[derive(Debug)]
pub struct Namespaces {
    holders: Vec<Process>,
    /// From whom to whom nothing gets through.
    cuts: BTreeSet<(usize, usize)>,
}

/// Whether this machine offers partitions; if not, why.
///
/// # Errors
/// It does not.
pub fn probe() -> Result<(), String> {
    if let Some(missing) = PROGRAMS.iter().find(|program| !has_program(program)) {
        return Err(format!("there is no {missing}"));
    }
    run("unshare", &["--net", "--", "sh", "-c", PROBE])
}

/// Whether this process has a namespace of its own of a kind.
#[must_use]
pub fn is_inside(kind: &str) -> bool {
    std::env::var(MARK).is_ok_and(|kinds| kinds.split(' ').any(|known| known == kind))
}

/// Becomes the same program with the same arguments in namespaces of its own. Returns only if that
/// fails, and why.
#[must_use]
pub fn enter(kinds: &[&str]) -> String {
    let this = match std::env::current_exe() {
        Ok(this) => this,
        Err(error) => return error.to_string(),
    };
    let mut command = Command::new("unshare");
    command.args(kinds.iter().filter(|kind| **kind != SWITCH)).arg("--");
    if kinds.contains(&SWITCH) {
        command.args(switch::prefix());
    }
    command.arg(this).args(std::env::args_os().skip(1));
    command.env(MARK, kinds.join(" ")).exec().to_string()
}

impl Namespaces {
    /// Makes a network for each server.
    ///
    /// # Errors
    /// The machine does not offer it, or this process has no namespace of its own.
    pub fn new(nodes: usize, folder: &Path) -> Result<Self, String> {
        if !is_inside(NET) {
            return Err("the harness has no network namespace of its own".to_owned());
        }
        run("ip", &["link", "set", "lo", "up"])?;
        run("sh", &["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])?;
        let mut made = Self { holders: Vec::new(), cuts: BTreeSet::new() };
        for at in 0..nodes {
            made.add(at, folder)?;
        }
        Ok(made)
    }

    fn add(&mut self, at: usize, folder: &Path) -> Result<(), String> {
        let command = ["unshare", "--net", "--", "sleep", FOREVER].map(str::to_owned);
        let holder = Process::start(&command, folder, &folder.join("namespaces.log"))?;
        let id = holder.id().to_string();
        self.holders.push(holder);
        wait_for_another_namespace(&id)?;
        let link = device(at);
        let ours = format!("{}/24", gateway(at));
        let theirs = format!("{}/24", address(at));
        let words: [&[&str]; 3] = [
            &["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &id],
            &["addr", "add", &ours, "dev", &link],
            &["link", "set", &link, "up"],
        ];
        words.iter().try_for_each(|words| run("ip", words))?;
        let gateway = gateway(at).to_string();
        let words: [&[&str]; 4] = [
            &["link", "set", "lo", "up"],
            &["addr", "add", &theirs, "dev", "eth0"],
            &["link", "set", "eth0", "up"],
            &["route", "add", "default", "via", &gateway],
        ];
        let inside = ["--target", &id, "--net", "--", "ip"];
        words.iter().try_for_each(|words| run("nsenter", &[&inside, *words].concat()))
    }

    /// What stands before the command of a server.
    #[must_use]
    pub fn prefix(&self, at: usize) -> Vec<String> {
        let id = self.holders[at].id().to_string();
        ["nsenter", "--target", &id, "--net", "--"].map(str::to_owned).to_vec()
    }

    /// From now on nothing gets from one server to another; the other way is not touched.
    ///
    /// # Errors
    /// The rule cannot be made.
    pub fn cut(&mut self, from: usize, to: usize) -> Result<(), String> {
        if self.cuts.insert((from, to)) {
            rule("add", from, to)?;
        }
        Ok(())
    }

    /// Nothing is cut.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.cuts.is_empty()
    }

    /// Mends all cuts. How many there were.
    ///
    /// # Errors
    /// A rule cannot be removed.
    pub fn mend(&mut self) -> Result<usize, String> {
        let cuts = std::mem::take(&mut self.cuts);
        cuts.iter().try_for_each(|(from, to)| rule("del", *from, *to))?;
        Ok(cuts.len())
    }
}

/// A server's address.
#[must_use]
pub fn address(at: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, network(at), 2)
}

/// Whose address it is.
#[must_use]
pub fn server_at(address: Ipv4Addr) -> Option<usize> {
    let [_, _, network, _] = address.octets();
    let at = usize::from(network).checked_sub(1)?;
    (address == self::address(at)).then_some(at)
}

/// The harness's end of the way to a server.
#[must_use]
pub fn device(at: usize) -> String {
    format!("lk{at}")
}

/// The harness's address on the way to a server.
fn gateway(at: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, network(at), 1)
}

fn network(at: usize) -> u8 {
    u8::try_from(at + 1).expect("a few servers")
}

fn rule(what: &str, from: usize, to: usize) -> Result<(), String> {
    let (from, to) = (address(from).to_string(), address(to).to_string());
    run("ip", &["rule", what, "from", &from, "to", &to, "blackhole"])
}

/// The process has its namespace a moment after it began.
fn wait_for_another_namespace(id: &str) -> Result<(), String> {
    let of = |id: &str| std::fs::read_link(format!("/proc/{id}/ns/net"));
    let own = of("self").map_err(|error| error.to_string())?;
    for _ in 0..500 {
        match of(id) {
            Ok(other) if other != own => return Ok(()),
            Ok(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
            Err(error) => return Err(format!("process {id} has no namespace: {error}")),
        }
    }
    Err(format!("process {id} has no namespace of its own"))
}

/// Runs a command to its end.
pub(crate) fn run(program: &str, words: &[&str]) -> Result<(), String> {
    let said = || format!("{program} {}", words.join(" "));
    let done = Command::new(program).args(words).output();
    let done = done.map_err(|error| format!("{}: {error}", said()))?;
    match done.status.success() {
        true => Ok(()),
        false => {
            let errors = String::from_utf8_lossy(&done.stderr);
            Err(format!("{}: {} {}", said(), done.status, errors.trim()))
        }
    }
}
