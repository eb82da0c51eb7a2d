//! The files of keys and certificates while a server runs.
//!
//! *Owns* when they are looked at, and what is said of them. *Invariants*: a change is in use within
//! [`LOOK_INTERVAL`], or the log says why not, once for each change; a certificate that ends soon is said at the start,
//! and when 30 and 7 days are left. *Never* ends a connection: those that were made stay.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::admin::Certificates;
use crate::config::{
    ClientAuthKey, Config, ListenerTls, PeerTlsConfig, StoreConfig, StoreType, TlsConfig,
};
use crate::supervision::{Task, spawn_blocking};
use crate::tls::{
    ClientAuth, ListenerSettings, PasswordSource, Reloadable, Store, StoreKind, TlsError,
};

/// Time between two looks at the files.
pub(in crate::server) const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Days before the end of a certificate at which it is said.
const NOTICE_DAYS: [i64; 2] = [30, 7];
const DAY_S: i64 = 24 * 60 * 60;

/// What the ports of clients speak TLS by; `None`: they do not.
///
/// # Errors
/// A file is at fault.
pub(in crate::server) fn of_clients(
    config: &TlsConfig,
) -> Result<Option<Arc<Reloadable>>, TlsError> {
    let settings = config.is_offered().then(|| settings(&config.listener, false));
    load("ssl.ciphersuites", settings.flatten())
}

/// What links between servers go by; `None`: not through TLS.
///
/// # Errors
/// A file is at fault.
pub(in crate::server) fn of_peers(
    config: &PeerTlsConfig,
) -> Result<Option<Arc<Reloadable>>, TlsError> {
    let settings = config.is_offered().then(|| settings(&config.listener, true));
    load("ssl.quorum.ciphersuites", settings.flatten())
}

/// What the link with ZooKeeper's leader goes by, in a live migration; `None`: not through TLS. `peers`: what links
/// between servers go by, which is the same.
///
/// # Errors
/// A file is at fault.
pub(in crate::server) fn of_zookeeper(
    config: &Config,
    peers: Option<Arc<Reloadable>>,
) -> Result<Option<Arc<Reloadable>>, TlsError> {
    match (config.speaks_tls_to_zookeeper(), peers) {
        (false, _) => Ok(None),
        (true, Some(peers)) => Ok(Some(peers)),
        (true, None) => load("ssl.quorum.ciphersuites", settings(&config.peer_tls.listener, true)),
    }
}

/// What the HTTP port speaks TLS by; `None`: it does not.
///
/// # Errors
/// A file is at fault.
pub(in crate::server) fn of_operators(
    config: &Config,
) -> Result<Option<Arc<Reloadable>>, TlsError> {
    if !config.admin.speaks_tls() {
        return Ok(None);
    }
    let settings = settings(&config.peer_tls.listener, false);
    // ssl.quorum.clientAuth is for servers.
    let client_auth = match config.admin.need_client_auth {
        true => ClientAuth::Need,
        false => ClientAuth::None,
    };
    load("ssl.quorum.ciphersuites", settings.map(|given| ListenerSettings { client_auth, ..given }))
}

/// What the port for metrics speaks TLS by; `None`: it does not.
///
/// # Errors
/// A file is at fault.
pub(in crate::server) fn of_metrics(config: &Config) -> Result<Option<Arc<Reloadable>>, TlsError> {
    let is_offered = config.metrics_secure_addr.is_some();
    let settings = is_offered.then(|| settings(&config.metrics_tls.resolved(), false));
    load("metricsProvider.ssl.ciphersuites", settings.flatten())
}

/// `connects`: whether it is for connections that are made as well. `None`: there is no key.
fn settings(config: &ListenerTls, connects: bool) -> Option<ListenerSettings> {
    Some(ListenerSettings {
        key_store: store(&config.key_store)?,
        trust_store: store(&config.trust_store),
        client_auth: match config.client_auth {
            ClientAuthKey::None => ClientAuth::None,
            ClientAuthKey::Want => ClientAuth::Want,
            ClientAuthKey::Need => ClientAuth::Need,
        },
        protocols: config.protocols(),
        cipher_suites: config.cipher_suites.clone(),
        crl_file: config.crl_file.clone(),
        connects,
    })
}

fn load(
    suites: &'static str,
    settings: Option<ListenerSettings>,
) -> Result<Option<Arc<Reloadable>>, TlsError> {
    let Some(settings) = settings else { return Ok(None) };
    for name in crate::tls::unknown_cipher_suites(&settings.cipher_suites) {
        tracing::warn!(name, "{suites}: this cipher suite is not offered, and is left out");
    }
    Ok(Some(Arc::new(Reloadable::load(settings)?)))
}

fn store(config: &StoreConfig) -> Option<Store> {
    let kind = config.kind.map(|kind| match kind {
        StoreType::Pem => StoreKind::Pem,
        StoreType::Pkcs12 => StoreKind::Pkcs12,
        StoreType::Jks => StoreKind::Jks,
    });
    let password =
        PasswordSource { text: config.password.0.clone(), path: config.password_path.clone() };
    Some(Store { path: config.location.clone()?, kind, password })
}

/// Somebody asks for the files to be read again, and waits for what that comes to.
type Ask = oneshot::Sender<Result<(), TlsError>>;

/// What ports speak TLS by, and the way to what follows its files.
#[derive(Clone, Debug)]
pub(in crate::server) struct Followed {
    /// Whom these ports are for.
    pub listener: &'static str,
    /// What is in use.
    pub source: Arc<Reloadable>,
    asks: mpsc::Sender<Ask>,
}

impl Followed {
    /// With what is to be run as long as the server.
    pub(in crate::server) fn new(
        listener: &'static str,
        source: Arc<Reloadable>,
    ) -> (Self, impl Future<Output = ()>) {
        let (asks, asked) = mpsc::channel(1);
        (Self { listener, source: Arc::clone(&source), asks }, follow(source, asked))
    }

    /// What operators are to know of it.
    pub(in crate::server) fn certificates(&self) -> Certificates {
        let (listener, source) = (self.listener, &self.source);
        let (expires_s, is_outdated) = (source.current().expires_s, source.failure().is_some());
        Certificates { listener, expires_s, is_outdated }
    }

    /// Has the files be read again.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub(in crate::server) async fn reload(&self) -> Result<(), TlsError> {
        let (ask, answered) = oneshot::channel();
        let ended = || TlsError { path: None, reason: "the server has ended".to_owned() };
        self.asks.send(ask).await.map_err(|_| ended())?;
        answered.await.unwrap_or_else(|_| Err(ended()))
    }
}

async fn follow(source: Arc<Reloadable>, mut asked: mpsc::Receiver<Ask>) {
    let mut notice = Notice::default();
    loop {
        notice.say(&source);
        let ask = tokio::select! {
            () = sleep(LOOK_INTERVAL) => None,
            Some(ask) = asked.recv() => Some(ask),
        };
        let (reads, is_asked) = (Arc::clone(&source), ask.is_some());
        // A file system may let one wait.
        let read = spawn_blocking(Task::Certificates, move || match is_asked {
            true => Some(reads.reload()),
            false => reads.follow(),
        });
        // A panic of it ends the server.
        let Ok(read) = read.await else { return };
        if let Some(result) = &read {
            say(&source, result);
        }
        if let Some((ask, result)) = ask.zip(read) {
            // Who has asked may be gone.
            let _ = ask.send(result);
        }
    }
}

fn say(source: &Reloadable, result: &Result<(), TlsError>) {
    let file = source.key_store().display();
    match result {
        Ok(()) => {
            tracing::info!(%file, "new connections are served by the new keys and certificates")
        }
        Err(error) => tracing::error!(
            "the new keys and certificates cannot be used, and those before stay in use: {error}"
        ),
    }
}

/// The end of a certificate, and which of [`NOTICE_DAYS`] was said of it.
#[derive(Debug, Default)]
struct Notice {
    expires_s: i64,
    said: usize,
}

impl Notice {
    fn say(&mut self, tls: &Reloadable) {
        let expires_s = tls.current().expires_s;
        if let Some(left_s) = self.due(expires_s, now_s()) {
            let file = tls.key_store().display();
            let days = left_s.div_euclid(DAY_S);
            match left_s {
                0.. => tracing::warn!(%file, days, "a certificate of this server ends soon"),
                _ => tracing::error!(
                    %file,
                    "a certificate of this server is not valid any more: put a valid one in its place, which is \
                     read within 5 s"
                ),
            }
        }
    }

    /// The seconds that are left, if that is to be said.
    fn due(&mut self, expires_s: i64, now_s: i64) -> Option<i64> {
        if self.expires_s != expires_s {
            *self = Self { expires_s, said: 0 };
        }
        let left_s = expires_s - now_s;
        let passed = NOTICE_DAYS.iter().filter(|days| left_s < **days * DAY_S).count();
        let passed = passed + usize::from(left_s < 0);
        (passed > self.said).then(|| {
            self.said = passed;
            left_s
        })
    }
}

fn now_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_said_at_the_start_and_at_30_and_7_days_and_at_its_end_and_once_each()
     {
        let end = 1_000 * DAY_S;
        let mut notice = Notice::default();
        assert_eq!(notice.due(end, end - 40 * DAY_S), None);
        assert_eq!(notice.due(end, end - 30 * DAY_S + 1), Some(30 * DAY_S - 1));
        assert_eq!(notice.due(end, end - 29 * DAY_S), None);
        assert_eq!(notice.due(end, end - 7 * DAY_S + 1), Some(7 * DAY_S - 1));
        assert_eq!(notice.due(end, end - DAY_S), None);
        assert_eq!(notice.due(end, end + 1), Some(-1));
        assert_eq!(notice.due(end, end + DAY_S), None);
        // Another certificate is another matter.
        assert_eq!(notice.due(end + 5 * DAY_S, end), Some(5 * DAY_S));
    }
}
