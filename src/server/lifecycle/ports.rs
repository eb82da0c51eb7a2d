//! The ports of one server that clients and operators find, and what is behind them.
//!
//! *Owns* the moment when they are opened: see `lifecycle/start.rs`.

use std::io;
use std::net::{self, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpListener, lookup_host};
use tokio::runtime;
use tokio::sync::{self, Semaphore, mpsc, watch};

use super::recovery::Parts;
use super::settings;
use crate::admin::{self, Options, PortTls, Surface};
use crate::config::{AdminConfig, Config, HostPort};
use crate::sasl::SaslUsers;
use crate::server::clients::{
    self, Admission, ClientPort, Rates, Received, ServerContext, Throttle,
};
use crate::server::cpu_policy::{self, CoreSharing};
use crate::server::credentials::{Followed, FollowedUsers};
use crate::server::error::{StartError, port_advice};
use crate::server::io_threads::{IoThreads, start_thread};
use crate::server::limits::Limits;
use crate::server::mailbox::Message;
use crate::server::metrics::{Figures, Published};
use crate::server::operators::Shared;
use crate::server::peer::Peers;
use crate::server::ports::{Announced, Files, Port};
use crate::server::stop::Stop;
use crate::server::transport::Handshakes;
use crate::storage::ErrorCount;
use crate::supervision::{self, Task, TaskSet};
use crate::tls::Reloadable;

/// HTTP connections that may wait to be accepted.
const HTTP_BACKLOG: u32 = 128;

/// What is going to be offered.
pub(super) struct Offer {
    config: Config,
    is_in_memory: bool,
    errors: Arc<ErrorCount>,
    limits: Limits,
    files: Files,
    messages: mpsc::Sender<Message>,
    figures: Arc<Figures>,
    published: Arc<Published>,
    stop: Arc<Stop>,
    sharing: Arc<CoreSharing>,
    peers: Option<Arc<Peers>>,
    members: watch::Receiver<Announced>,
    certificates: Vec<Followed>,
    http: HttpTls,
    users: Option<SaslUsers>,
    /// Whether users may come from the file of JAAS: it has no key of Kerberos.
    follows_users: bool,
}

/// Name of threads that read and wait in the place of the server's.
pub(super) const WORKER: &str = "lk-worker";

/// What is offered.
#[derive(Clone, Debug)]
pub(super) struct Ports {
    /// What is behind the ports.
    pub shared: Arc<Shared>,
    /// Where clients connect.
    pub address: SocketAddr,
    /// Where they connect through TLS alone, if they may.
    pub secure_address: Option<SocketAddr>,
    /// Where the HTTP ports are.
    pub http: HttpAddresses,
}

/// By what HTTP ports speak TLS, if they do.
#[derive(Clone, Default)]
pub(super) struct HttpTls {
    /// The one for everything.
    pub operators: Option<Arc<Reloadable>>,
    /// The one for metrics alone.
    pub metrics: Option<Arc<Reloadable>>,
}

/// Where HTTP ports are; `None` where there is none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HttpAddresses {
    /// The one for everything.
    pub admin: Option<SocketAddr>,
    /// The one for metrics alone that takes TLS.
    pub metrics: Option<SocketAddr>,
}

impl Offer {
    /// Of a server that is made from these parts, before it has a driver.
    #[must_use]
    pub(super) fn of(
        parts: &Parts,
        limits: Limits,
        files: Files,
        (certificates, http): (Vec<Followed>, HttpTls),
    ) -> Self {
        Self {
            config: parts.config.clone(),
            is_in_memory: parts.is_in_memory,
            errors: Arc::clone(&parts.errors),
            limits,
            files,
            messages: parts.messages.clone(),
            figures: Arc::clone(&parts.figures),
            published: Arc::clone(&parts.published),
            stop: Arc::clone(&parts.stop),
            sharing: Arc::clone(&parts.sharing),
            peers: parts.member.as_ref().map(|member| Arc::clone(&member.peers)),
            members: parts.members.subscribe(),
            certificates,
            http,
            users: parts.sasl.users.clone(),
            follows_users: parts.config.sasl.jaas_file.is_some() && parts.sasl.service.is_none(),
        }
    }

    /// Lets clients and operators connect, until the end is asked for.
    ///
    /// # Errors
    /// Another process has taken the client port meanwhile, or the system gives no thread.
    pub(super) async fn open(
        &self,
        ports: clients::Ports,
        tasks: &mut TaskSet<()>,
    ) -> Result<Ports, StartError> {
        let Self { config, limits, messages, figures, published, stop, .. } = self;
        let (address, secure_address) = (ports.address(), ports.secure_address());
        let shared = Arc::new(self.shared((address, secure_address), tasks));
        let count = cpu_policy::io_threads(cpu_policy::cores(), config.io_threads);
        let threads = IoThreads::start(count, tasks)?;
        let accepting = threads.accepting();
        let clients = {
            // It is the listener of that runtime.
            let _runtime = accepting.enter();
            ports.listen(config.listen_backlog)?
        };
        let http = self.serve_http(&shared, tasks).await?;
        let options =
            clients::Options { keep_alive: config.client_tcp_keep_alive, files: self.files };
        let (moves, moved) = mpsc::channel(1);
        if let Some(peers) = &self.peers {
            let port = ClientPort {
                own: peers.own,
                backlog: config.listen_backlog,
                at: (config.client_addr.clone(), address),
                shown: shared.facts.client_address.clone(),
                accepting: accepting.clone(),
                moves,
            };
            let follow = port.follow(self.members.clone(), Arc::clone(published));
            tasks.spawn(Task::Members, Arc::clone(stop).before(follow));
        }
        let rates = Rates::of(config, self.sharing.policy());
        let server = Arc::new(ServerContext {
            driver: messages.clone(),
            limits: *limits,
            throttle: Arc::new(Throttle::new(limits.outstanding_max)),
            received: Arc::clone(&shared.received),
            admission: Admission::new(rates, Arc::clone(&self.sharing)),
            handshakes: Arc::clone(&shared.handshakes),
            figures: Arc::clone(figures),
            source: Arc::clone(&shared) as _,
        });
        let accept = clients::accept(clients, moved, server, Arc::clone(stop), (options, threads));
        tasks.spawn_on(Task::Clients, accept, &accepting);
        Ok(Ports { shared, address, secure_address, http })
    }

    /// What is behind the ports, which are there.
    fn shared(
        &self,
        addresses: (SocketAddr, Option<SocketAddr>),
        tasks: &mut TaskSet<()>,
    ) -> Shared {
        let Self { config, messages, .. } = self;
        let users = self.follows_users.then(|| {
            let users = self.users.clone();
            let (followed, follow) = FollowedUsers::new(config.clone(), users, messages.clone());
            tasks.spawn(Task::Users, Arc::clone(&self.stop).before(follow));
            followed
        });
        Shared {
            driver: messages.clone(),
            received: Arc::new(Received::new(self.limits.incoming_total_bytes_max)),
            certificates: self.certificates.clone(),
            users,
            handshakes: Arc::new(Handshakes::new(
                Duration::from_millis(config.tls.listener.handshake_timeout_ms.into()),
                config.tls.x509_super_user.clone(),
            )),
            figures: Arc::clone(&self.figures),
            published: Arc::clone(&self.published),
            facts: settings::facts(config, self.is_in_memory, addresses),
            words: config.four_letter_words.clone(),
            commands_path: config.admin.command_url.clone(),
            forces_https: config.admin.force_https,
            peers: self.peers.clone(),
            turn: sync::Mutex::default(),
            supervisor: supervision::current(),
            errors: Arc::clone(&self.errors),
            backup_turn: Arc::new(Semaphore::new(1)),
            snapshot_asked: Mutex::default(),
        }
    }

    /// Offers the HTTP port, and the one for metrics alone. One that cannot be bound is warned of.
    ///
    /// They have a thread of their own: whether this server lives is answered also while its own thread is
    /// busy with a long turn or waits for a disk, and what is made for operators takes no time of it.
    ///
    /// # Errors
    /// The system gives no thread.
    async fn serve_http(
        &self,
        shared: &Arc<Shared>,
        tasks: &mut TaskSet<()>,
    ) -> Result<HttpAddresses, StartError> {
        let mut bound = HttpAddresses::default();
        let mut listeners = Vec::new();
        for (address, options) in self.http_ports() {
            let Some(address) = address else { continue };
            let is_admin = options.surface == Surface::All;
            match bind_http(address).await {
                Ok((at, listener)) => {
                    match (is_admin, &options.tls) {
                        (true, _) => bound.admin = Some(at),
                        (false, Some(_)) => bound.metrics = Some(at),
                        (false, None) => {}
                    }
                    listeners.push((listener, options));
                }
                Err(error) => {
                    let key =
                        if is_admin { "admin.serverPort" } else { "metricsProvider.httpPort" };
                    let advice = port_advice(&error, key);
                    tracing::warn!(%address, %error, "no HTTP port: it cannot be bound{advice}");
                }
            }
        }
        if listeners.is_empty() {
            return Ok(bound);
        }
        let failed = StartError::system(Task::Http.name());
        let mut runtime = runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().thread_name(WORKER).build().map_err(&failed)?;
        let serve = serve_ports(listeners, Arc::clone(shared), Arc::clone(&self.stop));
        let run = move || runtime.block_on(serve);
        start_thread(Task::Http, run, (tasks, Task::HttpPort)).map_err(failed)?;
        Ok(bound)
    }

    /// The HTTP ports: for everything, for metrics in plain text, and for metrics through TLS.
    fn http_ports(&self) -> [(Option<&HostPort>, Options); 3] {
        let config = &self.config;
        let AdminConfig { enabled, addr, command_url, force_https, .. } = &config.admin;
        let any = Options { connections_max: self.files.http, ..Options::default() };
        let guard = settings::guard(config);
        let HttpTls { operators, metrics: of_metrics } = self.http.clone();
        let tls = operators.map(|source| PortTls { source, takes_plain: !force_https });
        let all = Options { commands_path: command_url.clone(), guard, tls, ..any.clone() };
        let metrics = Options { surface: Surface::Metrics, ..any };
        let (plain, encrypted) =
            (config.metrics_addr.as_ref(), config.metrics_secure_addr.as_ref());
        // Port 0 is another one each time.
        let is_unified = plain == encrypted && plain.is_some_and(|plain| plain.port != 0);
        let of_metrics = of_metrics.map(|source| PortTls { source, takes_plain: is_unified });
        let secure_metrics = Options { tls: of_metrics, ..metrics.clone() };
        [
            (enabled.then_some(addr), all),
            (plain.filter(|_| !is_unified), metrics),
            (encrypted, secure_metrics),
        ]
    }
}

async fn bind_http(address: &HostPort) -> io::Result<(SocketAddr, net::TcpListener)> {
    let port = Port::bind(lookup_host((address.host.as_str(), address.port)).await?)?;
    let at = port.address;
    Ok((at, port.listen(HTTP_BACKLOG)?.into_std()?))
}

async fn serve_ports(
    listeners: Vec<(net::TcpListener, Options)>,
    shared: Arc<Shared>,
    stop: Arc<Stop>,
) {
    let mut ports = TaskSet::default();
    for (listener, options) in listeners {
        let listener = match TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::warn!(%error, "no HTTP port: it cannot be served");
                continue;
            }
        };
        let (source, stop) = (Arc::clone(&shared), Arc::clone(&stop));
        ports.spawn(Task::HttpPort, async move {
            admin::serve(listener, source, options, stop.asked()).await;
        });
    }
    // One that has panicked ends the server.
    while ports.join_next().await.is_some() {}
}
