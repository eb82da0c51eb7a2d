//! Workloads: what clients do while faults strike.
//!
//! *Owns* their names, what each is made to show, and the calls that they share. A workload draws all
//! its choices from the clients' own chance, so that a seed gives each client the same intentions
//! again; how they interleave is the machine's business.

pub mod ephemeral;
pub mod fifo;
pub mod guarded;
pub mod lock;
pub mod mixed;
pub mod mortal;
pub mod multi;
pub mod queue;
pub mod register;
pub mod sequence;
pub mod session;
pub mod sync;
pub mod tree;
pub mod watch;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_check::coverage::{Event, Planned};
use lockkeeper_check::op::{Acl, Call, Code, Create, CreateOp, Mode};

use crate::client::{Client, Disconnected, Reply};

/// What workloads must know of the run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Operations on a znode before the clients turn to the next one.
    pub ops_per_key: u64,
    pub clients: usize,
    /// Session timeout that clients ask for.
    pub timeout: Duration,
}

/// What clients do.
pub trait Workload: Send + Sync {
    /// Makes the znodes that all clients need. It may be done again after a lost connection.
    ///
    /// # Errors
    /// The connection is lost.
    fn setup(&self, client: &mut Client) -> Result<(), Disconnected>;

    /// What one client does.
    fn body(&self) -> Box<dyn Body>;

    /// What one client looks at when all faults are over and the others are gone. It may be done
    /// again after a lost connection.
    ///
    /// # Errors
    /// The connection is lost.
    fn finale(&self, _client: &mut Client) -> Result<(), Disconnected> {
        Ok(())
    }

    /// Checks that must find something to judge; those behind the bar need the servers' account.
    fn required(&self) -> Required;

    /// What must happen beside answers and faults.
    fn planned(&self) -> Vec<Planned> {
        Vec::new()
    }
}

/// Checks that a workload is made for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Required {
    pub always: &'static [&'static str],
    /// Only if the servers give an account of what they did.
    pub with_account: &'static [&'static str],
}

/// What one client does, step by step.
pub trait Body: Send {
    /// One step: an operation or a few that belong together. It is called again after a lost
    /// connection, when there is another one.
    ///
    /// # Errors
    /// The connection is lost.
    fn step(&mut self, client: &mut Client) -> Result<(), Disconnected>;

    /// The session is another one now.
    fn session_is_new(&mut self) {}

    /// Before the client closes its session, all faults being over.
    ///
    /// # Errors
    /// The connection is lost.
    fn finish(&mut self, _client: &mut Client) -> Result<(), Disconnected> {
        Ok(())
    }
}

/// Makes a workload.
type Make = fn(Settings) -> Arc<dyn Workload>;

/// A workload by name.
#[derive(Clone, Copy)]
pub struct Named {
    pub name: &'static str,
    make: Make,
}

/// All of them.
pub const ALL: &[Named] = &[
    Named { name: "register", make: |s| Arc::new(register::Registers::new(s)) },
    Named { name: "lock", make: |_| Arc::new(lock::Locks::exclusive()) },
    Named { name: "rw-lock", make: |_| Arc::new(lock::Locks::shared()) },
    Named { name: "session", make: |_| Arc::new(session::Sessions) },
    Named { name: "ephemeral", make: |_| Arc::new(ephemeral::Ephemerals) },
    Named { name: "watch", make: |_| Arc::new(watch::Watchers) },
    Named { name: "sequence", make: |_| Arc::new(sequence::Sequences) },
    Named { name: "queue", make: |_| Arc::new(queue::Queues) },
    Named { name: "tree", make: |_| Arc::new(tree::Trees) },
    Named { name: "fifo", make: |_| Arc::new(fifo::Pipelines) },
    Named { name: "sync", make: |s| Arc::new(sync::Syncs::new(s)) },
    Named { name: "multi", make: |_| Arc::new(multi::Multis) },
    Named { name: "mortal", make: |_| Arc::new(mortal::Mortals) },
    Named { name: "mixed", make: |s| Arc::new(mixed::Mixed::new(s)) },
];

impl Named {
    /// The workload for a run.
    #[must_use]
    pub fn make(&self, settings: Settings) -> Arc<dyn Workload> {
        (self.make)(settings)
    }
}

impl std::fmt::Debug for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl FromStr for Named {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names: Vec<&str> = ALL.iter().map(|known| known.name).collect();
        let known = ALL.iter().find(|known| known.name == name);
        known
            .copied()
            .ok_or_else(|| format!("no workload is called {name}; there are {}", names.join(", ")))
    }
}

// --- calls

/// A create of the kind that answers with a Stat.
#[must_use]
pub fn create(path: &str, data: &str, mode: Mode) -> Call {
    let (path, data) = (path.to_owned(), Some(data.as_bytes().to_vec()));
    Call::Create(Create { op: CreateOp::Create2, path, data, acl: Acl::open(), mode, ttl_ms: 0 })
}

#[must_use]
pub fn delete(path: &str, version: i32) -> Call {
    Call::Delete { path: path.to_owned(), version }
}

#[must_use]
pub fn set(path: &str, data: &str, version: i32) -> Call {
    Call::SetData { path: path.to_owned(), data: Some(data.as_bytes().to_vec()), version }
}

#[must_use]
pub fn get(path: &str) -> Call {
    Call::GetData { path: path.to_owned(), watch: false }
}

#[must_use]
pub fn list(path: &str) -> Call {
    Call::GetChildren { path: path.to_owned(), watch: false, stat: true }
}

#[must_use]
pub fn sync(path: &str) -> Call {
    Call::Sync { path: path.to_owned() }
}

/// Makes a persistent znode unless it is there.
///
/// # Errors
/// The connection is lost.
pub fn ensure(client: &mut Client, path: &str) -> Result<(), Disconnected> {
    client.call(create(path, "", Mode::Persistent)).map(drop)
}

/// Looks whether a znode is there.
#[must_use]
pub fn exists(path: &str, watch: bool) -> Call {
    Call::Exists { path: path.to_owned(), watch }
}

/// Whether a reply says that there is no such znode.
#[must_use]
pub fn is_missing(reply: &Reply) -> bool {
    reply.result == Err(Code::NO_NODE)
}

/// The names of children that a reply shows, sorted.
#[must_use]
pub fn names(reply: &Reply) -> Vec<String> {
    match &reply.result {
        Ok(lockkeeper_check::op::Answer::Children(names, _)) => {
            let mut names = names.clone();
            names.sort();
            names
        }
        _ => Vec::new(),
    }
}

/// The name without the parent's.
#[must_use]
pub fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// So many times an event.
#[must_use]
pub fn at_least(at_least: u64, event: Event) -> Planned {
    Planned { event, at_least }
}

/// Reads the children of a znode and the data of each, behind a `sync`.
///
/// # Errors
/// The connection is lost.
pub fn read_all(client: &mut Client, parent: &str) -> Result<(), Disconnected> {
    client.call(sync(parent))?;
    let reply = client.call(list(parent))?;
    for name in names(&reply) {
        client.call(get(&format!("{parent}/{name}")))?;
    }
    Ok(())
}
