//! From a configuration to a server that serves.
//!
//! *Owns* the order of a start: configuration, client address, audit log, data directory, replica,
//! and only then anyone who could ask something. *Invariant*: a start that fails, or that nobody
//! waits for any more, leaves nothing running.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, lookup_host};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::audit::Audit;
use super::builder::Builder;
use super::checkpoints::Checkpoints;
use super::disk::{self, Found};
use super::driver::{Connections, Disk, Driver, Message, keep_ticking};
use super::error::{ServerError, StartError, panic_message};
use super::figures::Figures;
use super::founding::Founder;
use super::limits::DRIVER_QUEUE_MAX;
use super::listener::{self, Port};
use super::log_writer::LogWriter;
use super::peer_image_fetch::{Waiting, open_or_mend};
use super::peer_image_send::send_images;
use super::peer_images::{Store, Transfers};
use super::peer_links::Links;
use super::peers::{self, Peers};
use super::shared::{Published, Shared, Stop};
use super::throttle::Throttle;
use super::{Ended, Server, dynamic_file, peer_accept};
use crate::admin::{self, Facts, Options, Surface};
use crate::config::{AdminConfig, Config, ConfigError, HostPort, ServerSpec};
use crate::replica::founding::{Identified, Introduction};
use crate::replica::{Machine, Replica, Restored, SendImage, Setup, Status};
use crate::storage::{Checkpointer, Identity, Images, Lock, Log};
use crate::tree;

/// What was found on the disk at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Whether there was nothing: the data directory is new, or there is none.
    pub is_new: bool,
    /// Whether no copy of the tree was usable: one is fetched from another server, and what else is
    /// said here is not known yet.
    pub is_fetching: bool,
    /// Znodes, as ZooKeeper counts them.
    pub znodes: u64,
    /// Sessions that are waited for.
    pub sessions: u64,
    /// The last zxid.
    pub zxid: i64,
    /// Milliseconds from the start to serving.
    pub took_ms: u64,
}

/// Starts what `builder` describes.
pub(super) async fn start(builder: Builder) -> Result<Server, StartError> {
    let limits = builder.limits();
    let Builder { config, is_in_memory, is_rejoining, cut_off, .. } = builder;
    if is_rejoining && (is_in_memory || !config.is_ensemble()) {
        return Err(StartError::Config(vec![nobody_to_rejoin()]));
    }
    let port = bind(&config.client_addr).await?;
    let audit = match &config.audit_log {
        Some(path) => Some(open_audit(path)?),
        None => None,
    };
    let (messages, queue) = mpsc::channel(DRIVER_QUEUE_MAX);
    let running = Running { stop: Arc::default(), messages: messages.clone() };
    let mut others = Vec::new();
    let figures: Arc<Figures> = Arc::default();
    let member = match config.own_server().filter(|_| config.is_ensemble()) {
        Some(own) => {
            if is_rejoining {
                put_away(&config, own.id)?;
            }
            let (sender, counts) = (messages.clone(), Arc::clone(&figures));
            let mut member = Member::of(&config, own, is_in_memory, sender, counts)?;
            let ports = peer_accept::listen(own).await?;
            member.peers.bar(cut_off);
            member.begin(ports, &running.stop, &mut others);
            Some(member)
        }
        None => None,
    };
    let peers = member.as_ref().map(|member| Arc::clone(&member.peers));
    let parts = Parts {
        config: config.clone(),
        is_in_memory,
        messages: messages.clone(),
        figures,
        published: Arc::default(),
        beat: Arc::default(),
        stop: Arc::clone(&running.stop),
        member,
        members: watch::Sender::default(),
        runtime: Handle::current(),
    };
    if peers.is_some() {
        let follow = dynamic_file::follow(config.clone(), parts.members.subscribe());
        others.push(tokio::spawn(until_stopped(Arc::clone(&running.stop), follow)));
    }
    let (figures, published) = (Arc::clone(&parts.figures), Arc::clone(&parts.published));
    let tick = keep_ticking(messages.clone(), Arc::clone(&parts.beat));
    others.push(tokio::spawn(until_stopped(Arc::clone(&running.stop), tick)));
    // The first look need not wait for time to pass.
    let _ = messages.try_send(Message::Wake);
    let address = port.address;
    let shared = |recovered: Option<&Recovered>| {
        Arc::new(Shared {
            driver: messages,
            limits,
            throttle: Arc::new(Throttle::new(limits.outstanding_max)),
            figures,
            published,
            facts: facts(&config, is_in_memory, address, recovered),
            words: config.four_letter_words.clone(),
            commands_path: config.admin.command_url.clone(),
        })
    };
    let stop = Arc::clone(&running.stop);
    let (offered, recovered, ended) = if peers.is_some() {
        // Whoever connects to a server of an ensemble that does not serve yet tries another one.
        let offered = Offered::new(&config, port, shared(None), stop, &mut others).await?;
        let (recovered, ended) = serve_replica(parts, queue, audit).await?;
        (offered, recovered, ended)
    } else {
        let (recovered, ended) = serve_replica(parts, queue, audit).await?;
        let shared = shared(Some(&recovered));
        (Offered::new(&config, port, shared, stop, &mut others).await?, recovered, ended)
    };
    let Offered { shared, listener, admin_address } = offered;
    let server = Server {
        shared,
        running,
        ended,
        listener,
        others,
        address,
        admin_address,
        recovered,
        peers,
    };
    Ok(server)
}

/// What clients and operators find.
struct Offered {
    shared: Arc<Shared>,
    listener: JoinHandle<()>,
    admin_address: Option<SocketAddr>,
}

impl Offered {
    async fn new(
        config: &Config,
        port: Port,
        shared: Arc<Shared>,
        stop: Arc<Stop>,
        others: &mut Vec<JoinHandle<()>>,
    ) -> Result<Self, StartError> {
        let address = || config.client_addr.to_string();
        let clients = port
            .listen(config.listen_backlog)
            .map_err(|error| StartError::Address { address: address(), error })?;
        let keep_alive = config.client_tcp_keep_alive;
        let admin_address = serve_http(config, &shared, &stop, others).await;
        let accept = listener::accept(clients, Arc::clone(&shared), stop, keep_alive);
        Ok(Self { shared, listener: tokio::spawn(accept), admin_address })
    }
}

/// Asks the server to end when it is dropped: by whoever holds the server, or by a start that fails
/// or is given up.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) stop: Arc<Stop>,
    messages: mpsc::Sender<Message>,
}

impl Running {
    pub(super) fn ask_to_end(&self) {
        self.stop.ask();
        // A full queue wakes the driver as well.
        let _ = self.messages.try_send(Message::Wake);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ask_to_end();
    }
}

async fn until_stopped(stop: Arc<Stop>, task: impl Future<Output = ()>) {
    tokio::select! {
        () = stop.asked() => {}
        () = task => {}
    }
}

async fn bind(address: &HostPort) -> Result<Port, StartError> {
    let failed = |error| StartError::Address { address: address.to_string(), error };
    let addresses = lookup_host((address.host.as_str(), address.port)).await.map_err(failed)?;
    Port::bind(addresses).map_err(failed)
}

fn open_audit(path: &Path) -> Result<Audit, StartError> {
    Audit::open(path).map_err(|error| StartError::Audit { path: path.to_path_buf(), error })
}

fn nobody_to_rejoin() -> ConfigError {
    let reason = "there are no other servers that have the data: this is for a server of an \
                  ensemble, which its configuration file names";
    let (file, key) = ("--rejoin".to_string(), String::new());
    ConfigError { file, line: 0, key, reason: reason.to_string() }
}

fn put_away(config: &Config, server_id: u8) -> Result<(), StartError> {
    for path in disk::set_aside(config, server_id)? {
        let path = path.display();
        tracing::warn!(
            "the data that was here is in {path} now; it is not needed any more once \
            this server has caught up"
        );
    }
    Ok(())
}

/// What a server of an ensemble has besides.
struct Member {
    peers: Arc<Peers>,
    state: State,
    /// Images to be sent, until somebody sends them.
    images: Option<mpsc::UnboundedReceiver<SendImage>>,
}

/// Whether it knows what it is.
enum State {
    Founding(Founder),
    Founded(Identified),
}

impl Member {
    /// Looks whether there is data. Nobody is told anything yet.
    fn of(
        config: &Config,
        own: &ServerSpec,
        is_in_memory: bool,
        messages: mpsc::Sender<Message>,
        figures: Arc<Figures>,
    ) -> Result<Self, StartError> {
        let known = if is_in_memory { None } else { disk::peek(config)? };
        let (state, introduction) = match known {
            Some(identity) => {
                let introduction = Introduction::Founded(identity.clone());
                (State::Founded(identity), introduction)
            }
            None => {
                let founder = Founder::new(
                    own.id,
                    &config.servers,
                    !is_in_memory && disk::was_set_aside(config)?,
                )?;
                let introduction = founder.introduction();
                (State::Founding(founder), introduction)
            }
        };
        let servers = config.servers.clone();
        let (transfers, images) = Transfers::new();
        let peers = Peers::new(own.id, servers, introduction, messages, transfers, figures);
        Ok(Self { peers: Arc::new(peers), state, images: Some(images) })
    }

    /// Connects to the other servers, and lets them connect.
    fn begin(
        &mut self,
        ports: Vec<TcpListener>,
        stop: &Arc<Stop>,
        tasks: &mut Vec<JoinHandle<()>>,
    ) {
        if let Some(orders) = self.images.take() {
            let send = send_images(Arc::clone(&self.peers), orders);
            tasks.push(tokio::spawn(until_stopped(Arc::clone(stop), send)));
        }
        let connect = peers::connect(Arc::clone(&self.peers));
        tasks.push(tokio::spawn(until_stopped(Arc::clone(stop), connect)));
        for port in ports {
            let accept = peer_accept::accept(port, Arc::clone(&self.peers));
            tasks.push(tokio::spawn(until_stopped(Arc::clone(stop), accept)));
        }
    }
}

/// What the driver's thread is made from.
struct Parts {
    config: Config,
    is_in_memory: bool,
    messages: mpsc::Sender<Message>,
    figures: Arc<Figures>,
    published: Arc<Published>,
    beat: Arc<AtomicU64>,
    stop: Arc<Stop>,
    member: Option<Member>,
    members: watch::Sender<String>,
    runtime: Handle,
}

/// Starts the driver's thread, which recovers the data first, and waits until it serves; a server of
/// an ensemble: until it could, for all that depends on itself.
async fn serve_replica(
    parts: Parts,
    queue: mpsc::Receiver<Message>,
    audit: Option<Audit>,
) -> Result<(Recovered, Ended), StartError> {
    let (started, starting) = oneshot::channel();
    let (end, ended) = watch::channel(None);
    let stop = Arc::clone(&parts.stop);
    let thread = std::thread::Builder::new().name(THREAD.to_string());
    let spawned = thread.spawn(move || {
        let run = catch_unwind(AssertUnwindSafe(|| run(parts, queue, audit, started)));
        let result = run.unwrap_or_else(|payload| {
            Err(ServerError::Panic { thread: THREAD, message: panic_message(&*payload) })
        });
        stop.ask();
        end.send_replace(Some(result));
    });
    spawned.map_err(|error| StartError::System { what: THREAD, error: error.to_string() })?;
    match starting.await {
        Ok(recovered) => Ok((recovered?, ended)),
        Err(_) => match super::ended(ended).await {
            Err(error) => Err(error.into()),
            Ok(()) => unreachable!("the thread ends without serving only when it fails"),
        },
    }
}

/// The driver's thread: everything is dropped, and with it every other thread joined, on return.
fn run(
    mut parts: Parts,
    mut queue: mpsc::Receiver<Message>,
    audit: Option<Audit>,
    started: oneshot::Sender<Result<Recovered, StartError>>,
) -> Result<(), ServerError> {
    let start = Instant::now();
    let published = Arc::clone(&parts.published);
    let mut started = Some(started);
    // Nobody waits for a start that was given up.
    let mut tell = move |result| started.take().is_some_and(|started| started.send(result).is_ok());
    let is_member = parts.member.is_some();
    if let Some(Member { peers, state: State::Founding(founder), images }) = parts.member {
        // The others may be started only after this one.
        tell(Ok(Recovered { is_new: true, ..Recovered::default() }));
        let Some(decision) = founder.decide(&peers, &mut queue, &parts.beat, &parts.stop)? else {
            return Ok(());
        };
        parts.member = Some(Member { peers, state: State::Founded(decision.identity), images });
    }
    let unready = || {
        // What it lacks comes from others, who may be started only after this one.
        tell(Ok(Recovered { is_fetching: true, ..Recovered::default() }));
    };
    let (driver, is_new) = match driver(parts, queue, audit, unready) {
        Ok(Some(driver)) => driver,
        Ok(None) => return Ok(()),
        Err(error) => {
            let words = error.to_string();
            return if tell(Err(error)) { Ok(()) } else { Err(ServerError::Founding(words)) };
        }
    };
    let recovered = |status: &Status| Recovered {
        is_new,
        is_fetching: false,
        znodes: status.znode_count,
        sessions: status.sessions,
        zxid: status.zxid,
        took_ms: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
    };
    if is_member {
        tell(Ok(recovered(&driver.replica.status())));
    }
    driver.run(|status: &Status| {
        published.publish(status.clone());
        let recovered = recovered(status);
        tracing::debug!(zxid = recovered.zxid, digest = %format_args!("{:032x}", status.digest), "serves");
        tell(Ok(recovered));
    })
}

/// Recovers the data and makes the driver. Also says whether there was nothing to recover. Calls
/// `unready` before it waits for other servers. `None`: the end was asked for meanwhile.
fn driver(
    parts: Parts,
    mut queue: mpsc::Receiver<Message>,
    audit: Option<Audit>,
    unready: impl FnMut(),
) -> Result<Option<(Driver, bool)>, StartError> {
    let seed = seed()?;
    let Parts { config, is_in_memory, messages, figures, published, beat, stop, member, .. } =
        parts;
    let (members, runtime) = (parts.members, parts.runtime);
    let options = tree_options(&config, seed);
    let mut setup = setup(&config, seed, audit.is_some(), !is_in_memory);
    let (peers, identity) = match member {
        Some(Member { peers, state: State::Founded(identity), .. }) => {
            (Some(peers), Some(identity))
        }
        Some(Member { state: State::Founding(_), .. }) | None => (None, None),
    };
    let links = peers.as_ref().map(|peers| Links::new(Arc::clone(peers)));
    let found = if is_in_memory {
        None
    } else {
        let new = new_identity(setup.server_id, identity.as_ref())?;
        let (messages, beat, stop) = (&mut queue, &*beat, &*stop);
        let runtime = &runtime;
        let waiting = peers.as_ref().map(|peers| Waiting { runtime, peers, messages, beat, stop });
        let opened = open_or_mend(&config, &new, &options, waiting, unready)?;
        if opened.is_none() {
            return Ok(None);
        }
        opened
    };
    let driver = |replica, disk, links| Driver {
        replica,
        messages: queue,
        disk,
        audit,
        published,
        beat,
        stop,
        connections: Connections::new(Arc::clone(&figures)),
        members,
        links,
    };
    let Some(found) = found else {
        let membership = identity.as_ref().map(|identity| identity.initial.clone());
        if let (Some(links), Some(identity)) = (&links, identity) {
            setup.raft_id = identity.raft_id;
            links.open(Store { images: None, lock: Weak::new(), options: options.clone() });
            links.introduce(identity);
        }
        let membership = membership.unwrap_or_default();
        let restored = Restored { membership, ..Restored::default() };
        let replica = replica(setup, Machine::fresh(options), restored)?;
        return Ok(Some((driver(replica, None, links), true)));
    };
    let Found { identity, machine, restored, log, images, checkpointer, report, lock } = found;
    setup.raft_id = identity.raft_id;
    let lock = Arc::new(lock);
    if let Some(links) = &links {
        let (images, lock) = (Some(images.clone()), Arc::downgrade(&lock));
        links.open(Store { images, lock, options: options.clone() });
        // It is durable now.
        links.introduce(identity.identified());
    }
    disk::tell(&report);
    let disk = disk_threads(&config, messages, &figures, (log, images, checkpointer, lock))?;
    let replica = replica(setup, machine, restored)?;
    Ok(Some((driver(replica, Some(disk), links), report.new)))
}

fn new_identity(server_id: u8, decided: Option<&Identified>) -> Result<Identity, StartError> {
    match decided {
        Some(decided) => Ok(Identity::new(server_id, decided.clone())),
        None => disk::standalone(server_id),
    }
}

fn disk_threads(
    config: &Config,
    messages: mpsc::Sender<Message>,
    figures: &Arc<Figures>,
    (log, images, checkpointer, lock): (Log, Images, Checkpointer, Arc<Lock>),
) -> Result<Disk, StartError> {
    let system = |what: &'static str| {
        move |error: std::io::Error| StartError::System { what, error: error.to_string() }
    };
    let slow = Duration::from_millis(config.fsync_warning_threshold_ms.into());
    let log = LogWriter::start(log, images, messages.clone(), Arc::clone(figures), slow)
        .map_err(system("log thread"))?;
    let data_dir = config.data_dir.clone();
    let checkpoints =
        Checkpoints::start(checkpointer, data_dir, log.cutter(), messages, Arc::clone(figures))
            .map_err(system("state thread"))?;
    let changes_wait = Duration::from_millis(config.checkpoint_ms.into());
    Ok(Disk { log, checkpoints, changes_wait, lock })
}

fn seed() -> Result<[u8; 32], StartError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed)
        .map_err(|error| StartError::System { what: "random seed", error: error.to_string() })?;
    Ok(seed)
}

fn replica(setup: Setup, machine: Machine, restored: Restored) -> Result<Replica, StartError> {
    Replica::new(setup, machine, restored).map_err(StartError::Data)
}

fn setup(config: &Config, seed: [u8; 32], audit: bool, durable: bool) -> Setup {
    let ms = |ms: u32| i32::try_from(ms).unwrap_or(i32::MAX);
    Setup {
        raft_id: RAFT_ID_IN_MEMORY,
        server_id: config.server_id.unwrap_or(SERVER_ID_STANDALONE),
        seed,
        session_timeout_ms_min: ms(config.min_session_timeout_ms),
        session_timeout_ms_max: ms(config.max_session_timeout_ms),
        container_check_interval_ms: config.containers.check_interval_ms.into(),
        container_max_per_minute: config.containers.max_per_minute,
        container_never_used_ms: config.containers.max_never_used_interval_ms.into(),
        eager_acl_check: config.eager_acl_check,
        reconfig_enabled: config.reconfig_enabled,
        audit,
        durable,
        ensemble: config.is_ensemble().then(|| config.servers.clone()),
        expiry_grace_ms: config.session_expiry_grace_ms.into(),
        linearizable_reads: config.linearizable_reads,
        read_only_mode: config.read_only_mode_enabled,
    }
}

fn tree_options(config: &Config, seed: [u8; 32]) -> tree::Options {
    let hash_seed = seed.first_chunk::<8>().expect("a seed is 32 bytes long");
    tree::Options {
        extended_types: config.extended_types_enabled,
        enforce_quota: config.enforce_quota,
        skip_acl: config.skip_acl,
        digest_auth: config.digest_auth_enabled,
        super_digest: config.super_digest.clone(),
        // Only the `hash` word shows it.
        legacy_digest: config.four_letter_words.allows("hash", true),
        hash_seed: u64::from_le_bytes(*hash_seed),
    }
}

fn facts(
    config: &Config,
    is_in_memory: bool,
    address: SocketAddr,
    recovered: Option<&Recovered>,
) -> Facts {
    let directory = |path: &Path| {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        (!is_in_memory).then_some(absolute)
    };
    let ms = |ms: u32| i32::try_from(ms).unwrap_or(i32::MAX);
    Facts {
        server_id: config.server_id.unwrap_or(0).into(),
        init_limit: config.init_limit(),
        sync_limit: config.sync_limit(),
        client_address: Some(address),
        secure_client_address: None,
        data_dir: directory(&config.data_dir),
        log_dir: directory(&config.data_log_dir),
        tick_time_ms: config.tick_time_ms,
        connections_per_ip_max: config.max_client_cnxns,
        session_timeout_ms_min: ms(config.min_session_timeout_ms),
        session_timeout_ms_max: ms(config.max_session_timeout_ms),
        listen_backlog: ms(config.listen_backlog),
        recovery_ms: recovered.map(|recovered| recovered.took_ms),
        initial_configuration: config.given(),
        properties: config.values(),
    }
}

/// Offers the HTTP port, and the one for metrics alone. One that cannot be bound is warned of.
async fn serve_http(
    config: &Config,
    shared: &Arc<Shared>,
    stop: &Arc<Stop>,
    tasks: &mut Vec<JoinHandle<()>>,
) -> Option<SocketAddr> {
    let AdminConfig { enabled, addr, command_url } = &config.admin;
    let all = Options { commands_path: command_url.clone(), ..Options::default() };
    let metrics = Options { surface: Surface::Metrics, ..Options::default() };
    let ports = [(enabled.then_some(addr), all), (config.metrics_addr.as_ref(), metrics)];
    let mut bound = None;
    for (address, options) in ports {
        let Some(address) = address else { continue };
        let is_admin = options.surface == Surface::All;
        match TcpListener::bind((address.host.as_str(), address.port)).await {
            Ok(listener) => {
                if is_admin {
                    bound = listener.local_addr().ok();
                }
                let (source, stop) = (Arc::clone(shared), Arc::clone(stop));
                let serve =
                    async move { admin::serve(listener, source, options, stop.asked()).await };
                tasks.push(tokio::spawn(serve));
            }
            Err(error) => tracing::warn!(%address, %error, "no HTTP port: it cannot be bound"),
        }
    }
    bound
}

/// The Raft id of a server that has no data directory to say another.
const RAFT_ID_IN_MEMORY: u64 = 1;
/// What ZooKeeper puts into the session ids of a standalone server.
const SERVER_ID_STANDALONE: u8 = 1;
const THREAD: &str = "lk-driver";
