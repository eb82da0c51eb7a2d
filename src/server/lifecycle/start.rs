//! From a configuration to a server that serves, in a thread of its own.
//!
//! *Owns* the order of a start: configuration, open files, client address, audit log, data directory, replica,
//! and only then anyone who could ask something; and the server's thread, in whose runtime the driver
//! and every socket are tasks: what one of them has for another costs no wake-up, and everything that
//! came in the meantime is one batch. *Invariants*: a start that fails, or that is not waited for any
//! more, leaves nothing running; a caller that is told of an end finds that everything has ended, unless a
//! thread or task has panicked and the others have not ended within `supervision::END_MAX`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tokio::net::lookup_host;
use tokio::runtime::{self, Handle};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinError;

use super::builder::Builder;
use super::handle::{Running, Server, ended};
use super::member::{Member, State};
use super::ports::{HttpTls, Offer, Ports, WORKER};
use super::recovered::Recovered;
use super::recovery::{self, Parts};
use crate::admin::read_token;
use crate::config::{Config, ConfigError, HostPort, ServerSpec};
use crate::replica::Status;
use crate::sasl::SaslSetup;
use crate::server::cpu_policy::{CoreSharing, CpuPolicy};
use crate::server::credentials::{learner_login, sasl_setup};
use crate::server::disk::data_dir;
use crate::server::driver::{Audit, Driver};
use crate::server::error::{ServerError, StartError};
use crate::server::gssapi::Gssapi;
use crate::server::limits::{DRIVER_QUEUE_MAX, EVENT_INTERVAL};
use crate::server::log_lines::RoomLog;
use crate::server::mailbox::{Message, Queue};
use crate::server::peer::{Peers, dynamic_file, ports};
use crate::server::ports::{Files, Port};
use crate::server::stop::Stop;
use crate::server::transport::Protection;
use crate::server::zookeeper::Access;
use crate::server::{clients, credentials};
use crate::storage::{ErrorCount, WatchedFs};
use crate::supervision::{self, End, Failure, Supervisor, Task, TaskSet, spawn_blocking};
use crate::tls::Reloadable;

impl Builder {
    /// Starts the server in threads of its own. Returns when it *serves*: a client that connects
    /// then is answered.
    ///
    /// # Errors
    /// Why it does not start. Nothing is left running or bound.
    pub async fn start(self) -> Result<Server, StartError> {
        if !self.errors.is_empty() {
            return Err(StartError::Config(self.errors));
        }
        start(self).await
    }
}

async fn start(builder: Builder) -> Result<Server, StartError> {
    let (messages, queue) = mpsc::channel(DRIVER_QUEUE_MAX);
    let running = Running { stop: Arc::default(), messages: messages.clone() };
    let (told, hears) = oneshot::channel();
    let (end, mut end_heard) = watch::channel(None);
    let data_dir = (!builder.is_in_memory).then_some(builder.config.data_dir.as_path());
    let errors = Arc::new(ErrorCount::of(Arc::clone(&builder.files), data_dir));
    let ending = Ending {
        stop: Arc::clone(&running.stop),
        messages: messages.clone(),
        ended: Arc::new(end),
        errors: Arc::clone(&errors),
    };
    let (stop, end) = (Arc::clone(&running.stop), Arc::clone(&ending.ended));
    let (errors, counted) = (Arc::clone(&errors), errors);
    let supervisor = Supervisor::new(ending);
    #[cfg(debug_assertions)]
    if let Some(task) = builder.panics_in {
        supervisor.panic_in(task);
    }
    let supervised = Arc::clone(&supervisor);
    let spawned = supervisor.thread(Task::Server, move || {
        let mut told = Some(told);
        let result =
            supervision::catch(|| run(builder, (messages, queue), (stop, errors), &mut told));
        let result = match (supervised.failure(), result) {
            (Some(failure), _) => Err(StartError::Ended(failure.into())),
            (None, Some(result)) => result,
            (None, None) => unreachable!("a panic was recorded"),
        };
        let result = match (result, told) {
            (Ok(()), _) => Ok(()),
            // Only the caller needs to know why a start fails, and it may not wait any more.
            (Err(error), Some(told)) => told.send(Err(error)).map_or(Ok(()), |()| Ok(())),
            (Err(StartError::Ended(error)), None) => Err(error),
            (Err(error), None) => Err(ServerError::Founding(error.to_string())),
        };
        // The process may be gone once the end is told.
        if result.is_err() {
            count(&counted);
        }
        say_ended(&end, result);
    });
    spawned.map_err(StartError::system(Task::Server.name()))?;
    let heard = tokio::select! {
        biased;
        heard = hears => heard.ok(),
        // A thread has panicked, and another one does not end.
        _ = end_heard.wait_for(Option::is_some) => None,
    };
    match heard {
        Some(Ok(started)) => {
            let Started { ports, recovered, peers } = started;
            Ok(Server { ports, running, ended: end_heard, recovered, peers })
        }
        Some(Err(error)) => Err(error),
        None => match ended(end_heard).await {
            Err(error) => Err(error.into()),
            Ok(()) => unreachable!("the thread ends without a word only when it fails"),
        },
    }
}

/// What a panic of a thread or task of the server does.
struct Ending {
    stop: Arc<Stop>,
    messages: mpsc::Sender<Message>,
    ended: Arc<EndSender>,
    errors: Arc<ErrorCount>,
}

/// Where an end is told.
type EndSender = watch::Sender<Option<Result<(), ServerError>>>;

impl End for Ending {
    fn ask(&self, _: &Failure) {
        self.stop.ask();
        // A full queue wakes the driver as well.
        let _ = self.messages.try_send(Message::Wake);
    }

    fn is_late(&self, failure: &Failure) {
        say_ended(&self.ended, Err(failure.into()));
        // Its disk may be why it is late.
        count(&self.errors);
    }
}

/// Leaves word of an error for the next process.
fn count(errors: &ErrorCount) {
    if let Err(error) = errors.add() {
        tracing::warn!(%error, "the next start does not know of the error that ends this server");
    }
}

/// Tells how the server has ended, unless that was told.
fn say_ended(end: &EndSender, result: Result<(), ServerError>) {
    end.send_if_modified(|known| {
        let is_first = known.is_none();
        if is_first {
            *known = Some(result);
        }
        is_first
    });
}

/// The caller that starts a server waits for this, once.
type Told = Option<oneshot::Sender<Result<Started, StartError>>>;

/// A server that could serve, for all that depends on itself.
struct Started {
    ports: Ports,
    recovered: Recovered,
    peers: Option<Arc<Peers>>,
}

/// The server's thread. On return every other thread has ended, and everything is free.
fn run(
    builder: Builder,
    queue: (mpsc::Sender<Message>, mpsc::Receiver<Message>),
    ends: (Arc<Stop>, Arc<ErrorCount>),
    told: &mut Told,
) -> Result<(), StartError> {
    let mut runtime = runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().event_interval(EVENT_INTERVAL).thread_name(WORKER).build();
    let runtime = runtime.map_err(StartError::system("runtime"))?;
    runtime.block_on(serve(builder, queue, ends, told))
}

async fn serve(
    builder: Builder,
    (messages, queue): (mpsc::Sender<Message>, mpsc::Receiver<Message>),
    (stop, errors): (Arc<Stop>, Arc<ErrorCount>),
    told: &mut Told,
) -> Result<(), StartError> {
    let limits = builder.limits();
    let Builder { config, is_in_memory, is_rejoining, cut_off, files, .. } = builder;
    if is_rejoining && (is_in_memory || !config.is_ensemble()) {
        return Err(StartError::Config(vec![no_ensemble_to_rejoin()]));
    }
    let sasl = sasl_setup(&config).map_err(|error| StartError::Config(vec![error]))?;
    let gssapi = gssapi(&config, &sasl, &messages)?;
    let learner = learner_login(&config).map_err(|error| StartError::Config(vec![error]))?;
    let open_files = Files::of(&config)?;
    credentials::warn_of_readable(&config);
    credentials::warn_of_unknown_peers(&config);
    if let Some(path) = config.admin.token_file.as_ref().filter(|_| config.admin.enabled) {
        read_token(path).map_err(|reason| StartError::Token { path: path.clone(), reason })?;
    }
    let tls = credentials::of_clients(&config.tls)?;
    let http = HttpTls {
        operators: credentials::of_operators(&config)?,
        metrics: credentials::of_metrics(&config)?,
    };
    let port = bind(&config, tls.as_ref()).await?;
    let audit = config.audit_log.as_deref().map(open_audit).transpose()?;
    let mut tasks = TaskSet::default();
    let file = watch::Sender::new(config.servers.clone());
    let policy = CpuPolicy::of_process(config.cpu_policy);
    let mut parts = Parts {
        config,
        sasl,
        gssapi,
        zookeeper: Access::default(),
        is_in_memory,
        errors,
        messages,
        queue: Queue::new(queue),
        audit,
        figures: Arc::default(),
        published: Arc::default(),
        stop,
        member: None,
        members: watch::Sender::default(),
        sharing: Arc::new(CoreSharing::new(policy)),
        runtime: Handle::current(),
        files: WatchedFs::new(files),
    };
    let lines = file.subscribe();
    parts.member = join(&parts, (is_rejoining, cut_off), (open_files, lines), &mut tasks).await?;
    if !is_in_memory {
        let look = RoomLog::new(&parts.config).follow(Arc::clone(&parts.figures));
        tasks.spawn(Task::Room, Arc::clone(&parts.stop).before(look));
    }
    let of_peers = parts.member.as_ref().and_then(|member| member.peers.security.certificates());
    let of_zookeeper = credentials::of_zookeeper(&parts.config, of_peers.clone())?;
    parts.zookeeper = Access::new(&parts.config, of_zookeeper.clone(), learner);
    // Those of other servers are followed as theirs.
    let of_zookeeper = of_zookeeper.filter(|_| of_peers.is_none());
    let listeners = [
        ("clients", tls),
        ("servers", of_peers),
        ("zookeeper", of_zookeeper),
        ("operators", http.operators.clone()),
        ("metrics", http.metrics.clone()),
    ];
    let certificates = follow(listeners, &parts.stop, &mut tasks);
    let offer = Offer::of(&parts, limits, open_files, (certificates, http));
    let peers = parts.member.as_ref().map(|member| Arc::clone(&member.peers));
    let result = match peers {
        Some(peers) => with_others(parts, &offer, (port, file), &peers, &mut tasks, told).await?,
        None => alone(parts, &offer, port, &mut tasks, told).await?,
    };
    // A task fails by a defect only, and then there is nothing of it left to wait for.
    while tasks.join_next().await.is_some() {}
    Ok(result?)
}

/// What judges tokens of Kerberos, if that is configured. Warns of a file that offers nothing.
fn gssapi(
    config: &Config,
    sasl: &SaslSetup,
    messages: &mpsc::Sender<Message>,
) -> Result<Gssapi, StartError> {
    let path = config.sasl.jaas_file.as_ref();
    let gssapi = Gssapi::start(sasl.service.as_ref(), messages.clone()).map_err(|reason| {
        let file = path.map_or_else(String::new, |file| file.display().to_string());
        StartError::Config(vec![ConfigError { file, line: 0, key: String::new(), reason }])
    })?;
    if let Some(file) = path.filter(|_| sasl.users.is_none() && sasl.service.is_none()) {
        let (file, section) = (file.display(), &config.sasl.section);
        tracing::warn!(%file, section, "SASL is not offered: the file has no such section");
    }
    Ok(gssapi)
}

/// Has this server be found by the others of its ensemble, and find them. `None`: it is on its own.
/// `lines`: the servers that its configuration file names.
async fn join(
    parts: &Parts,
    (is_rejoining, cut_off): (bool, BTreeSet<u8>),
    (open_files, lines): (Files, watch::Receiver<Vec<ServerSpec>>),
    tasks: &mut TaskSet<()>,
) -> Result<Option<Member>, StartError> {
    let Parts { config, is_in_memory, messages, figures, published, stop, members, .. } = parts;
    let Some(own) = config.own_server().filter(|_| config.is_ensemble()) else { return Ok(None) };
    if is_rejoining {
        put_away(config, own.id)?;
    }
    let (sender, counts) = (messages.clone(), Arc::clone(figures));
    let (member, images) = Member::of(config, own, *is_in_memory, sender, counts)?;
    let is_member = matches!(member.state, State::Founded(_));
    let ports = ports::listen(config, own, is_member, open_files).await?;
    member.peers.bar(cut_off);
    member.begin(images, stop, tasks);
    let (peers, said) = (Arc::clone(&member.peers), members.subscribe());
    let follow = ports.follow(peers, said, lines, Arc::clone(published));
    tasks.spawn(Task::Members, Arc::clone(stop).before(follow));
    Ok(Some(member))
}

/// Has the files of keys and certificates be followed until the end is asked for.
fn follow(
    listeners: [(&'static str, Option<Arc<Reloadable>>); 5],
    stop: &Arc<Stop>,
    tasks: &mut TaskSet<()>,
) -> Vec<credentials::Followed> {
    let listeners = listeners.into_iter().filter_map(|(name, source)| Some((name, source?)));
    let followed = listeners.map(|(name, source)| {
        let (followed, follow) = credentials::Followed::new(name, source);
        tasks.spawn(Task::Certificates, Arc::clone(stop).before(follow));
        followed
    });
    followed.collect()
}

/// Serves until the end as a server of an ensemble. The client port is open from the start on:
/// a client that connects before this server serves is sent away, and tries another one.
async fn with_others(
    parts: Parts,
    offer: &Offer,
    (port, file): (clients::Ports, watch::Sender<Vec<ServerSpec>>),
    peers: &Arc<Peers>,
    tasks: &mut TaskSet<()>,
    told: &mut Told,
) -> Result<Result<(), ServerError>, StartError> {
    let start = Instant::now();
    let follow = dynamic_file::follow(parts.config.clone(), parts.members.subscribe(), file);
    tasks.spawn(Task::Members, Arc::clone(&parts.stop).before(follow));
    let ports = offer.open(port, tasks).await?;
    let mut tell = |recovered| {
        if let Some(told) = told.take() {
            let (recovered, peers) = (recovered, Some(Arc::clone(peers)));
            // A start that was given up is not waited for.
            let _ = told.send(Ok(Started { ports: ports.clone(), recovered, peers }));
        }
    };
    let Some((driver, is_new)) = recover(parts, &mut tell).await? else { return Ok(Ok(())) };
    tell(Recovered::of(&driver.replica.status(), is_new, start));
    let (serves, _) = oneshot::channel();
    let driving = supervision::spawn(Task::Driver, drive(driver, serves));
    let result = driving.await.unwrap_or_else(|error| Err(panicked(&error)));
    peers.transfers.ended().await;
    Ok(result)
}

/// Serves until the end as the only server. The client port is opened when it serves.
async fn alone(
    parts: Parts,
    offer: &Offer,
    port: clients::Ports,
    tasks: &mut TaskSet<()>,
    told: &mut Told,
) -> Result<Result<(), ServerError>, StartError> {
    let start = Instant::now();
    let Some((driver, is_new)) = recover(parts, |_| ()).await? else { return Ok(Ok(())) };
    let (serves, serving) = oneshot::channel();
    let driving = supervision::spawn(Task::Driver, drive(driver, serves));
    // If it does not, the driver has ended.
    if let Ok(status) = serving.await {
        let recovered = Recovered::of(&status, is_new, start);
        let ports = offer.open(port, tasks).await?;
        if let Some(told) = told.take() {
            // A start that was given up is not waited for.
            let _ = told.send(Ok(Started { ports, recovered, peers: None }));
        }
    }
    Ok(driving.await.unwrap_or_else(|error| Err(panicked(&error))))
}

/// Makes the driver in a thread of its own: meanwhile the others are listened to. Calls `waits` if
/// it has to wait for them. `None`: the end was asked for.
async fn recover(
    parts: Parts,
    waits: impl FnOnce(Recovered),
) -> Result<Option<(Driver, bool)>, StartError> {
    let (waits_for_others, waiting) = oneshot::channel();
    let mut waits_for_others = Some(waits_for_others);
    let mut recovering = spawn_blocking(Task::Recovery, move || {
        let errors = Arc::clone(&parts.errors);
        let driver = recovery::driver(parts, |recovered| {
            if let Some(waits_for_others) = waits_for_others.take() {
                // It is waited for as long as this runs.
                let _ = waits_for_others.send(recovered);
            }
        })?;
        if let Err(error) = errors.keep() {
            tracing::warn!(%error, "an error that ends this server will not be counted");
        }
        Ok(driver)
    });
    let recovered = tokio::select! {
        biased;
        recovered = &mut recovering => recovered,
        Ok(known) = waiting => {
            waits(known);
            recovering.await
        }
    };
    recovered.unwrap_or_else(|error| Err(panicked(&error).into()))
}

/// Runs the driver to its end, and ends the disk's threads.
async fn drive(mut driver: Driver, serves: oneshot::Sender<Status>) -> Result<(), ServerError> {
    // A panic unwinds no further than this: to drop the driver takes as long as the disk does.
    let result = supervision::caught(driver.run(serves)).await;
    driver.stop.ask();
    // The clients are not to wait for the disk.
    let ended = spawn_blocking(Task::DriverEnd, move || driver.end()).await;
    ended.map_err(|error| panicked(&error))?;
    // Of a panic the supervisor knows more.
    result.unwrap_or(Ok(()))
}

/// What is known of a panic here: the supervisor knows more.
fn panicked(error: &JoinError) -> ServerError {
    ServerError::Panic { task: Task::Server.name(), message: error.to_string(), location: None }
}

/// Binds the ports of clients. `tls`: for those that speak it.
async fn bind(
    config: &Config,
    tls: Option<&Arc<Reloadable>>,
) -> Result<clients::Ports, StartError> {
    let main = bind_one(&config.client_addr).await?;
    let Some(tls) = tls else { return Ok(clients::Ports::new(main, Protection::Plain, None)) };
    let speaks = match (config.tls.is_only, config.tls.port_unification) {
        (true, _) => Protection::Tls(Arc::clone(tls)),
        (false, true) => Protection::Either(Arc::clone(tls)),
        (false, false) => Protection::Plain,
    };
    let secure = match config.tls.secure_client_port {
        Some(port) if !config.tls.is_only => {
            let host = config.tls.secure_client_host.clone();
            Some((bind_one(&HostPort { host, port }).await?, Arc::clone(tls)))
        }
        Some(_) | None => None,
    };
    Ok(clients::Ports::new(main, speaks, secure))
}

async fn bind_one(address: &HostPort) -> Result<Port, StartError> {
    let failed = |error| StartError::Address { address: address.to_string(), error };
    let addresses = lookup_host((address.host.as_str(), address.port)).await.map_err(failed)?;
    let addresses: Vec<SocketAddr> = addresses.collect();
    if ports::is_hidden(&address.host, &addresses) {
        tracing::warn!(
            host = address.host,
            address = %addresses[0],
            "the host that clients are to connect to is a loopback address here, at which other machines cannot \
             reach this server: clientPortAddress=0.0.0.0, or another address for the name in /etc/hosts"
        );
    }
    Port::bind(addresses).map_err(failed)
}

fn open_audit(path: &Path) -> Result<Audit, StartError> {
    Audit::open(path).map_err(|error| StartError::Audit { path: path.to_path_buf(), error })
}

fn no_ensemble_to_rejoin() -> ConfigError {
    let reason = "there are no other servers that have the data: this is for a server of an \
                  ensemble, which its configuration file names";
    let (file, key) = ("--rejoin".to_string(), String::new());
    ConfigError { file, line: 0, key, reason: reason.to_string() }
}

fn put_away(config: &Config, server_id: u8) -> Result<(), StartError> {
    for path in data_dir::set_aside(config, server_id)? {
        let path = path.display();
        tracing::warn!(
            "the data that was here is in {path} now; it is not needed any more once \
            this server has caught up"
        );
    }
    Ok(())
}
