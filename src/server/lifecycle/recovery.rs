//! From a data directory, or from none, to a driver.
//!
//! *Owns* the thread in which that happens, next to the server's own: reading may take seconds, and
//! what is missing comes from other servers, who are listened to meanwhile. *Invariants*: no client is
//! told who this server is before that is durable; a start that is given up ends at the next message.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use super::member::{Member, State};
use super::recovered::Recovered;
use super::settings;
use crate::admin::Quantity;
use crate::config::Config;
use crate::replica::founding::{Decision, Identified, Introduction, Past};
use crate::replica::{Machine, Replica, Restored, Setup};
use crate::sasl::SaslSetup;
use crate::server::cpu_policy::CoreSharing;
use crate::server::disk::{
    CheckpointSchedule, Checkpoints, DiskAlarm, Found, LogDisk, LogWriter, Refused, data_dir,
};
use crate::server::driver::{Audit, Connections, Disk, Driver};
use crate::server::error::StartError;
use crate::server::gssapi::Gssapi;
use crate::server::limits::Limits;
use crate::server::log_lines::RoleLog;
use crate::server::mailbox::{Message, Queue, tell};
use crate::server::metrics::{Figures, Measures, Published};
use crate::server::peer::{Founder, Links, Peers, Store, Told, Waiting, open_or_mend};
use crate::server::ports::Announced;
use crate::server::stop::Stop;
use crate::server::zookeeper::{Access, ZooKeeper};
use crate::storage::{
    BackupMade, Checkpointer, ErrorCount, FormatSwitch, Identity, Images, Lock, Log, Opened, OsFs,
    Report, WatchedFs,
};
use crate::tree;

/// What a driver is made from.
pub(super) struct Parts {
    /// The configuration.
    pub config: Config,
    /// Its users, and what else it says about SASL.
    pub sasl: SaslSetup,
    /// What judges tokens of Kerberos.
    pub gssapi: Gssapi,
    /// Whether there is no disk.
    pub is_in_memory: bool,
    /// How many errors have ended servers of its data.
    pub errors: Arc<ErrorCount>,
    /// How the link of a live migration is protected.
    pub zookeeper: Access,
    /// The driver's queue.
    pub messages: mpsc::Sender<Message>,
    /// Its other end.
    pub queue: Queue,
    /// The audit log, if there is one.
    pub audit: Option<Audit>,
    /// What is counted.
    pub figures: Arc<Figures>,
    /// Where the replica's figures go.
    pub published: Arc<Published>,
    /// Says when to end.
    pub stop: Arc<Stop>,
    /// What a server of an ensemble has besides.
    pub member: Option<Member>,
    /// Told of the text of the members.
    pub members: watch::Sender<Announced>,
    /// How it shares the cores.
    pub sharing: Arc<CoreSharing>,
    /// The server's runtime.
    pub runtime: Handle,
    /// Where its data is.
    pub files: WatchedFs,
}

/// Recovers the data and makes the driver. Also says whether there was nothing to recover. Calls
/// `waits` before it waits for other servers, who may be started only after this one. `None`: the
/// end was asked for meanwhile.
///
/// # Errors
/// Why the server does not start.
pub(super) fn driver(
    mut parts: Parts,
    mut waits: impl FnMut(Recovered),
) -> Result<Option<(Driver, bool)>, StartError> {
    let seed = settings::seed()?;
    let (mut read, mut founding) = (None, None);
    match parts.member.take() {
        Some(Member { peers, state: State::Founding(founder) }) => {
            let held = (!parts.is_in_memory).then(|| data_dir::hold(&parts.config)).transpose()?;
            waits(Recovered { is_new: true, ..Recovered::default() });
            let Some(decided) = decide(founder, &peers, &mut parts)? else { return Ok(None) };
            drop(held);
            let identity = decided.0.identity.clone();
            parts.member = Some(Member { peers, state: State::Founded(identity) });
            founding = Some(decided);
        }
        Some(Member { peers, state: State::Standalone(founder, identity) }) => {
            let found = read_standalone(&parts, &identity, seed)?;
            let standalone = from_standalone((founder, found), &peers, &mut parts, &mut waits)?;
            let Some(Became { identity, found, decided }) = standalone else { return Ok(None) };
            (read, founding) = (found, decided);
            parts.member = Some(Member { peers, state: State::Founded(identity) });
        }
        known => parts.member = known,
    }
    let unready = || waits(Recovered { is_fetching: true, ..Recovered::default() });
    let without = founding.as_ref().map_or_else(Vec::new, |(decision, _)| decision.without.clone());
    let driver = founded(parts, seed, (read, without), unready)?;
    if let (Some((decision, Some(told))), Some(_)) = (founding, &driver) {
        // It is durable now.
        tell(told, Ok(decision.identity.ensemble));
    }
    Ok(driver)
}

/// Asks the other servers what this one is to become.
fn decide(
    founder: Founder,
    peers: &Arc<Peers>,
    parts: &mut Parts,
) -> Result<Option<(Decision, Told)>, StartError> {
    let (runtime, messages, stop) = (&parts.runtime, &mut parts.queue, &*parts.stop);
    let mut waiting = Waiting { runtime, peers, messages, stop };
    let mut decided = founder.decide(&mut waiting, &parts.published.conditions)?;
    if let (Some((decision, told)), Some(audit)) = (&mut decided, &mut parts.audit)
        && !decision.without.is_empty()
    {
        // Before it is done: a kill in between leaves a line too many, and never one too few.
        let ensemble = format!("{:032x}", decision.identity.ensemble);
        let more = json!({ "ensemble": ensemble, "without": decision.without });
        if let Err(error) = audit.said("bootstrap", (0, 0, 0, 0), more) {
            let error = StartError::Audit { path: audit.path().to_path_buf(), error };
            if let Some(told) = told.take() {
                tell(told, Err(format!("nothing is founded: {error}")));
            }
            return Err(error);
        }
    }
    Ok(decided)
}

/// What a server on its own has: there is no other copy of it.
fn read_standalone(
    parts: &Parts,
    identity: &Identified,
    seed: [u8; 32],
) -> Result<Found, StartError> {
    let Parts { config, files, .. } = parts;
    let server_id = config.own_server().map_or(0, |own| own.id);
    let new = Identity::new(server_id, identity.clone());
    let machine = fresh(&settings::tree_options(config, seed), parts.audit.as_ref());
    data_dir::open(config, files, &new, true, machine).map_err(|refused| match refused {
        Refused::Start(error) => error,
        Refused::Stateless(words) => StartError::Data(words),
    })
}

/// A server that was on its own: who it is now, its data if they go on, and what was decided just now.
struct Became {
    identity: Identified,
    found: Option<Found>,
    decided: Option<(Decision, Told)>,
}

/// What becomes of a server that was on its own and is started with the lines of an ensemble. `None`: the end was asked
/// for meanwhile.
fn from_standalone(
    (mut founder, mut found): (Founder, Found),
    peers: &Arc<Peers>,
    parts: &mut Parts,
    waits: &mut impl FnMut(Recovered),
) -> Result<Option<Became>, StartError> {
    let identity = found.opened.identity.identified();
    let past = Past::of(identity.raft_id, &found.machine, &found.opened.restored);
    match past {
        Past::Member => return Ok(Some(Became { identity, found: Some(found), decided: None })),
        Past::Served { znodes } => founder.has_read(Some((identity, znodes))),
        Past::Unused => founder.has_read(None),
    }
    waits(Recovered { is_new: past == Past::Unused, ..Recovered::default() });
    let Some(decided) = decide(founder, peers, parts)? else { return Ok(None) };
    let identity = decided.0.identity.clone();
    let found = if decided.0.keeps_data {
        data_dir::founds(&parts.config, &mut found.opened, &decided.0)?;
        Some(found)
    } else {
        data_dir::begin_anew(&parts.config, found.opened)?;
        None
    };
    Ok(Some(Became { identity, found, decided: Some(decided) }))
}

/// As [`driver`], of a server that knows what it is. `read`: what is on its disk, if that was read before. `without`:
/// participants that an operator has left out of what it has founded just now.
fn founded(
    mut parts: Parts,
    seed: [u8; 32],
    (read, without): (Option<Found>, Vec<u8>),
    unready: impl FnMut(),
) -> Result<Option<(Driver, bool)>, StartError> {
    let options = settings::tree_options(&parts.config, seed);
    let sasl = std::mem::take(&mut parts.sasl);
    let (has_audit, has_disk) = (parts.audit.is_some(), !parts.is_in_memory);
    let mut setup = settings::setup(&parts.config, sasl, seed, has_audit, has_disk);
    let (peers, identity) = parts.member.take().and_then(Member::founded).unzip();
    // The address of each server as the others name it.
    if let Some(identity) = identity.as_ref().filter(|identity| !identity.members.is_empty()) {
        setup.ensemble = Some(identity.members.clone());
    }
    let mut found = if has_disk && read.is_none() {
        let new = match &identity {
            Some(decided) => {
                Identity { without, ..Identity::new(setup.server_id, decided.clone()) }
            }
            None => data_dir::standalone(setup.server_id)?,
        };
        let (runtime, messages, stop) = (&parts.runtime, &mut parts.queue, &*parts.stop);
        let waiting = peers.as_ref().map(|peers| Waiting { runtime, peers, messages, stop });
        let (config, files) = (&parts.config, &parts.files);
        let fresh = || fresh(&options, parts.audit.as_ref());
        let opened = open_or_mend((config, files), &new, &options, fresh, waiting, unready)?;
        if opened.is_none() {
            return Ok(None);
        }
        opened
    } else {
        read
    };
    if let (Some(audit), Some(found)) = (&mut parts.audit, &mut found) {
        audit_replayed(audit, &mut found.machine)?;
    }
    let is_new = found.as_ref().is_none_or(|found| found.opened.report.new);
    let (replica, disk) = match found {
        Some(found) => restored(&parts, setup, options, peers.as_ref(), found)?,
        None => (without_data(setup, options, peers.as_ref().zip(identity))?, None),
    };
    let server_id = parts.config.own_server().map_or(0, |own| own.id);
    let driver = Driver {
        state: Default::default(),
        replica,
        messages: parts.queue,
        disk,
        audit: parts.audit,
        published: parts.published,
        stop: parts.stop,
        connections: Connections::new(&Limits::of(&parts.config), parts.figures),
        sharing: parts.sharing,
        members: parts.members,
        links: peers.map(Links::new),
        gssapi: parts.gssapi,
        zookeeper: ZooKeeper::new(parts.messages, parts.zookeeper),
        role_log: RoleLog::new(server_id, Instant::now()),
    };
    Ok(Some((driver, is_new)))
}

/// A machine that takes the state of a disk. It keeps the lines of what is not in the audit log yet, if that has some.
fn fresh(options: &tree::Options, audit: Option<&Audit>) -> Machine {
    let mut machine = Machine::fresh(options.clone());
    if let Some(last) = audit.and_then(Audit::last_zxid) {
        machine.audit_replay(last);
    }
    machine
}

/// Writes the lines that a kill has kept from the audit log.
///
/// # Errors
/// They cannot be written.
fn audit_replayed(audit: &mut Audit, machine: &mut Machine) -> Result<(), StartError> {
    let lines = machine.take_replayed_audit();
    if lines.len() == Machine::REPLAYED_LINES_MAX {
        tracing::warn!(
            first = %format_args!("{:#x}", lines[0].zxid),
            "the audit log lacks lines: too many transactions were applied without it since its last one"
        );
    }
    let path = audit.path().to_path_buf();
    audit.write(&lines, &[]).map_err(|error| StartError::Audit { path, error })
}

/// The replica of a server that has no disk. `member`: the other servers, and who it is.
fn without_data(
    mut setup: Setup,
    options: tree::Options,
    member: Option<(&Arc<Peers>, Identified)>,
) -> Result<Replica, StartError> {
    let mut restored = Restored::default();
    if let Some((peers, identity)) = member {
        setup.raft_id = identity.raft_id;
        restored.membership = identity.initial.clone();
        let store = Store { images: None, lock: Weak::new(), options: options.clone() };
        peers.transfers.open(store);
        peers.introduce(Introduction::Founded(identity));
    }
    replica(setup, Machine::fresh(options), restored)
}

/// The replica of a server that has data, and the threads of its disk.
fn restored(
    parts: &Parts,
    mut setup: Setup,
    options: tree::Options,
    peers: Option<&Arc<Peers>>,
    Found { machine, opened }: Found,
) -> Result<(Replica, Option<Disk>), StartError> {
    let Opened { identity, format_switch, restored, log, images, checkpointer, report, lock } =
        opened;
    setup.raft_id = identity.raft_id;
    setup.is_declared_alone = identity.alone_after.is_some();
    let lock = Arc::new(lock);
    if let Some(peers) = peers {
        // Another server waits for what is sent or received.
        let images = Some(images.asking(parts.sharing.background().awaited()));
        peers.transfers.open(Store { images, lock: Arc::downgrade(&lock), options });
        // It is durable now.
        peers.introduce(Introduction::Founded(identity.identified()));
    }
    data_dir::tell(&report);
    if let Some(origin) = data_dir::origin(&parts.config)? {
        tracing::info!("this ensemble began with a state that was {origin}");
    }
    let last_backup = BackupMade::load(&OsFs, &parts.config.data_dir);
    parts.figures.disk().last_backup = last_backup.map(Into::into);
    measure(&parts.figures.measures, &report);
    let disk = disk_threads(parts, ((log, format_switch), images, checkpointer, lock))?;
    Ok((replica(setup, machine, restored)?, Some(disk)))
}

/// What the start has taken, of a server that had data.
fn measure(measures: &Measures, report: &Report) {
    if report.new {
        return;
    }
    let micros = |took: Duration| u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    measures.record(Quantity::StartLoad, micros(report.begin_took + report.entries_took));
    measures.record(Quantity::StartImage, micros(report.begin_took));
    measures.record(Quantity::StartEntries, report.entries);
    measures.record(Quantity::StartEntriesTime, micros(report.entries_took));
}

fn disk_threads(
    parts: &Parts,
    ((log, format_switch), images, checkpointer, lock): (
        (Log, FormatSwitch),
        Images,
        Checkpointer,
        Arc<Lock>,
    ),
) -> Result<Disk, StartError> {
    let Parts { config, files, messages, figures, sharing, .. } = parts;
    let background = sharing.background();
    let slow = Duration::from_millis(config.fsync_warning_threshold_ms.into());
    let log = LogDisk::new(log, images, Arc::clone(figures), slow)
        .switching(format_switch)
        .telling(background.disk());
    let log = LogWriter::start(log, messages.clone()).map_err(StartError::system("log thread"))?;
    let checkpoints = Checkpoints::start(
        checkpointer,
        config.data_dir.clone(),
        log.cutter(),
        messages.clone(),
        Arc::clone(figures),
        background.clone(),
    )
    .map_err(StartError::system("state thread"))?;
    let stall = Duration::from_millis(config.disk_stall_ms.into());
    Ok(Disk {
        log,
        checkpoints,
        schedule: CheckpointSchedule::new(Instant::now()),
        changes_wait: Duration::from_millis(config.checkpoint_ms.into()),
        alarm: DiskAlarm::new(Arc::clone(files.calls()), stall),
        files: files.clone(),
        data_dir: config.data_dir.clone(),
        lock,
    })
}

fn replica(setup: Setup, machine: Machine, restored: Restored) -> Result<Replica, StartError> {
    Replica::new(setup, machine, restored).map_err(StartError::Data)
}
