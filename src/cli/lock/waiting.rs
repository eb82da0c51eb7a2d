//! What is told to a user while the lock, or a server, is waited for.
//!
//! *Owns* the wait for a session, with the reason why each server gives none, and who is in front of us in the queue.
//! *Invariants*: nothing is told of a wait that is over at once; what is told again is told at a bounded rate; what a
//! client has written commands no terminal. *Never* decides who holds the lock.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout, timeout_at};
use zookeeper_client as zk;
use zookeeper_client::{Client, SaslOptions};

use super::flags::{LockFlags, complain};
use super::kind::Lock;
use crate::admin::java_date;
use crate::cli::client;
use crate::cli::duration::now_ms;
use crate::cli::flags::Access;
use crate::config::HostPort;
use crate::locks::contender::{Contender, compare, marked};
use crate::locks::species::LEASE;
use crate::recipes::{LockError, Wait};
use crate::sasl::ClientLogin;

/// A wait that is over earlier is not worth a word.
const SILENCE: Duration = Duration::from_millis(500);
/// The second report, if nothing has changed.
const SECOND_REPORT: Duration = Duration::from_secs(10);
/// All later ones.
const LATER_REPORTS: Duration = Duration::from_secs(60);
/// Looks at the queue: a new holder is told then.
const LOOK: Duration = Duration::from_secs(2);
/// How long the reasons of servers that are silent are waited for, when the time is over.
const REASONS_MAX: Duration = Duration::from_secs(3);
/// Characters of what a holder says of itself.
const ID_CHARACTERS_MAX: usize = 200;

/// A session at `servers`, by which the client reaches those of `access`.
///
/// # Errors
/// There is none within the time that the flags give; then the user knows why.
pub(super) async fn connect(
    flags: &LockFlags,
    access: &Access,
    servers: &str,
) -> Result<Client, LockError> {
    let patience = match flags.wait() {
        Wait::For(time) => time,
        Wait::No | Wait::Forever => flags.session_timeout,
    };
    let report = async {
        sleep(SILENCE).await;
        let known = reasons(access).await;
        if !known.is_empty() {
            complain(&format!("no server answers yet: {known}"));
        }
        std::future::pending().await
    };
    let connected = tokio::select! {
        connected = timeout(patience, attempts(flags, access, servers)) => connected,
        never = report => never,
    };
    match connected {
        Ok(Ok(client)) => return Ok(client),
        Ok(Err(zk::Error::AuthFailed)) => {
            let (what, path) = ("open a session on", flags.servers.server.clone());
            return Err(LockError::NoPermission { what, path });
        }
        Ok(Err(error)) => tracing::info!(%error, "no session"),
        Err(_) => {}
    }
    let known = reasons(access).await;
    let known = if known.is_empty() { access.server_list() } else { known };
    complain(&format!("no server answers: {known}"));
    Err(LockError::Unreachable)
}

/// Tries until there is a session; without waiting, once.
async fn attempts(flags: &LockFlags, access: &Access, servers: &str) -> Result<Client, zk::Error> {
    loop {
        let mut connector = Client::connector().with_session_timeout(flags.session_timeout);
        for credential in &access.credentials {
            connector = connector.with_auth(credential.scheme(), credential.secret().as_bytes());
        }
        if let Some(ClientLogin { user, password }) = &access.configuration.login {
            let options = SaslOptions::digest_md5(user.clone(), password.clone());
            connector = connector.with_sasl(options);
        }
        if flags.wait() == Wait::No {
            connector = connector.with_fail_eagerly();
        }
        match connector.connect(servers).await {
            Ok(client) => return Ok(client),
            Err(error) if error == zk::Error::AuthFailed || flags.wait() == Wait::No => {
                return Err(error);
            }
            Err(error) => tracing::info!(%error, "no session yet"),
        }
        sleep(client::ROUND_PAUSE).await;
    }
}

/// Why servers give no session, as far as that is known in time. Each is asked by a thread of its own.
async fn reasons(access: &Access) -> String {
    let ask = |server: &HostPort| {
        let (server, tls) = (server.clone(), access.configuration.tls.clone());
        spawn_blocking(move || format!("{server}: {}", client::diagnosed(&server, tls.as_ref())))
    };
    let asked: Vec<JoinHandle<String>> = access.servers.iter().map(ask).collect();
    let mut known = Vec::new();
    let until = tokio::time::Instant::now() + REASONS_MAX;
    for thread in asked {
        if let Ok(Ok(reason)) = timeout_at(until, thread).await {
            known.push(reason);
        }
    }
    known.join("; ")
}

/// Tells who is in front of us, for as long as it is polled. Never ends.
pub(super) async fn tell_holders(lock: &Lock, client: &Client) -> Infallible {
    sleep(SILENCE).await;
    let mut reports = 0;
    let mut told = None;
    let mut next = Instant::now();
    loop {
        // Without an answer there is nothing to tell; that servers are silent, others say.
        if let Ok(Some(front)) = Front::look(lock, client).await {
            let is_new = told.as_ref() != Some(&front.token);
            if is_new || Instant::now() >= next {
                complain(&front.words(lock.path()));
                next = Instant::now() + if reports == 0 { SECOND_REPORT } else { LATER_REPORTS };
                reports += 1;
                told = Some(front.token);
            }
        }
        sleep(if reports < REPORTS_SOON { LOOK } else { LATER_REPORTS }).await;
    }
}

/// After so many reports the queue is looked at more rarely: it moves fast, or for long not at all.
const REPORTS_SOON: u32 = 5;

/// Who holds the lock, and who waits before us.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Front {
    /// What it says of itself.
    id: String,
    session: i64,
    token: i64,
    /// When its znode was made, by the leader's clock.
    came_ms: i64,
    /// How many are before us, the holder included.
    before: usize,
}

impl Front {
    /// `None`: no other is before us, as far as we see.
    async fn look(lock: &Lock, client: &Client) -> Result<Option<Self>, zk::Error> {
        let directory = lock.queue();
        let names = client.list_children(&directory).await?;
        let mut queue: Vec<(i32, &String)> =
            names.iter().filter_map(|name| Some((rival(lock, name)?, name))).collect();
        queue.sort_by(|(one, _), (other, _)| compare(*one, *other));
        let Some((_, first)) = queue.first() else { return Ok(None) };
        let (data, stat) = client.get_data(&format!("{directory}/{first}")).await?;
        let own = client.session_id().0;
        if stat.ephemeral_owner == own {
            return Ok(None);
        }
        let id: String = String::from_utf8_lossy(&data).chars().take(ID_CHARACTERS_MAX).collect();
        let id: String = id.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Ok(Some(Self {
            id: id.trim().to_owned(),
            session: stat.ephemeral_owner,
            token: stat.czxid,
            came_ms: stat.ctime,
            before: queue.len().saturating_sub(1).max(1),
        }))
    }

    fn words(&self, path: &str) -> String {
        let Self { id, session, token, came_ms, before } = self;
        let id = if id.is_empty() { "a client without a name" } else { id };
        let others = match before {
            0 | 1 => String::new(),
            many => format!("; about {} more are in the queue", many - 1),
        };
        let ago = ago(*came_ms, now_ms());
        format!(
            "waits for {path}: held by {id} (session {session:#x}, token {token}), there since {}{ago}{others}",
            java_date(*came_ms)
        )
    }
}

/// The number in the queue of one whom we may have to wait for.
fn rival(lock: &Lock, name: &str) -> Option<i32> {
    match lock {
        Lock::Permits(_) => marked(name, LEASE),
        Lock::Read(_) => {
            let contender = Contender::parse(name)?;
            (!contender.dialect.is_shared()).then_some(contender.sequence)
        }
        Lock::Exclusive(_) | Lock::Write(_) => Contender::parse(name).map(|one| one.sequence),
    }
}

/// The clocks of two machines may differ: what seems to be in the future is not counted.
fn ago(then_ms: i64, now_ms: i64) -> String {
    match now_ms.saturating_sub(then_ms) / 1000 {
        ..=0 => String::new(),
        seconds @ 1..60 => format!(" ({seconds} s ago)"),
        seconds @ 60..3600 => format!(" ({} min {} s ago)", seconds / 60, seconds % 60),
        seconds => format!(" ({} h {} min ago)", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_ago_has_two_units_at_most() {
        for (seconds, text) in [
            (-5, ""),
            (0, ""),
            (59, " (59 s ago)"),
            (61, " (1 min 1 s ago)"),
            (7265, " (2 h 1 min ago)"),
        ] {
            assert_eq!(ago(1_000_000, 1_000_000 + seconds * 1000), text);
        }
        assert_eq!(ago(i64::MAX, i64::MIN), "");
    }

    #[test]
    fn a_holder_without_a_name_is_told_all_the_same() {
        let mut front = Front { id: String::new(), session: 0x10, token: 7, came_ms: 0, before: 1 };
        let said = front.words("/l");
        assert!(
            said.starts_with(
                "waits for /l: held by a client without a name (session 0x10, token 7)"
            ),
            "{said}"
        );
        (front.id, front.before) = ("me".to_owned(), 4);
        assert!(front.words("/l").ends_with("about 3 more are in the queue"));
    }
}
