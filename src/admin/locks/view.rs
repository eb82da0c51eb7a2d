//! `/locks` and `/sessions`: who holds what, who waits for it, and what is wrong.
//!
//! *Owns* the keys of their JSON, which are stable: docs/LOCKS.md lists them. *Invariants*: a server that
//! has not answered is named, and what it alone would know is null, never guessed; what was left out for
//! its size is said. *Never* decides what a lock is: that is `crate::locks`.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::admin::Source;
use crate::admin::http::{Answer, Question, page, plain, stopping};
use crate::admin::source::question;
use crate::locks::snapshot::Session;
use crate::locks::{Clients, Finding, Local, Lock, Place, Presence, Scope, Snapshot, Step, view};
use crate::supervision::{self, Task};

/// The path of a prefix: the root without one.
///
/// # Errors
/// It is no path.
pub(super) fn prefix(text: Option<&str>) -> Result<String, &'static str> {
    match text.unwrap_or("/") {
        "/" => Ok("/".to_owned()),
        path if path.starts_with('/') => Ok(path.trim_end_matches('/').to_owned()),
        _ => Err("a path begins with a slash"),
    }
}

/// The locks below the parameter `prefix`.
pub(super) async fn locks(asked: &Question<'_>) -> Answer {
    match prefix(asked.parameter("prefix").as_deref()) {
        Ok(prefix) => page_of(Scope::Locks { prefix }, asked.source).await,
        Err(reason) => plain(StatusCode::BAD_REQUEST, format!("prefix: {reason}\n")),
    }
}

/// The page of a scope.
pub(super) async fn page_of(scope: Scope, source: &dyn Source) -> Answer {
    match text(scope, source).await {
        Some(text) => page(StatusCode::OK, "application/json", text),
        None => stopping(),
    }
}

/// `None` while the server is stopping.
async fn text(scope: Scope, source: &dyn Source) -> Option<String> {
    let asked = Asked::ask(scope, source).await?;
    // The sockets' thread has better things to do than to think about thousands of contenders.
    let write = move || format!("{:#}", asked.json());
    supervision::spawn_blocking(Task::HttpAnswer, write).await.ok()
}

/// All that was answered.
pub(in crate::admin) struct Asked {
    scope: Scope,
    own: u64,
    leader: Option<u64>,
    serving: bool,
    pub(in crate::admin) snapshot: Snapshot,
    others: Vec<(u64, Option<Local>)>,
}

impl Asked {
    /// Asks this server and the others; `None` while this one is stopping.
    pub(in crate::admin) async fn ask(scope: Scope, source: &dyn Source) -> Option<Self> {
        let gathering = source.gather(scope.clone());
        let (snapshot, others) = tokio::join!(question::locks(source, &scope), gathering);
        let (own, status) = (source.facts().server_id, source.status());
        let (leader, serving) = (status.leader.map(u64::from), status.serving);
        Some(Self { scope, own, leader, serving, snapshot: snapshot?, others })
    }

    /// What each server that has answered alone knows.
    fn locals(&self) -> Vec<(u64, &Local)> {
        let others = self.others.iter().filter_map(|(id, local)| Some((*id, local.as_ref()?)));
        std::iter::once((self.own, &self.snapshot.local)).chain(others).collect()
    }

    fn clients(&self) -> Clients<'_> {
        let is_complete = self.others.iter().all(|(_, local)| local.is_some());
        Clients::new(&self.snapshot, &self.locals(), is_complete)
    }

    pub(in crate::admin) fn locks(&self) -> Vec<Lock> {
        view(&self.snapshot, &self.clients())
    }

    /// Whether there is more than was answered.
    pub(in crate::admin) fn is_cut(&self) -> bool {
        self.snapshot.is_cut || self.locals().iter().any(|(_, local)| local.is_cut)
    }

    fn json(&self) -> Value {
        let Self { scope, own, leader, serving, snapshot, others } = self;
        let mut answer = json!({
            "server": own,
            "leader": leader,
            "serving": serving,
            "time_ms": snapshot.wall_ms,
            "zxid": snapshot.zxid,
        });
        match scope {
            Scope::Locks { prefix } => {
                answer["prefix"] = json!(prefix);
                answer["locks"] = self.locks().iter().map(lock).collect();
            }
            Scope::Sessions => {
                let (sessions, clients) = (snapshot.sessions.iter(), self.clients());
                answer["sessions"] = sessions.map(|known| session(known, &clients)).collect();
            }
        }
        let servers = std::iter::once((*own, true))
            .chain(others.iter().map(|(id, local)| (*id, local.is_some())))
            .map(|(id, answered)| json!({ "server": id, "answered": answered }));
        answer["servers"] = servers.collect();
        answer["cut"] = json!(self.is_cut());
        answer
    }
}

fn lock(lock: &Lock) -> Value {
    json!({
        "path": lock.path,
        "name": lock.name,
        "kind": lock.kind.name(),
        "dialects": lock.dialects,
        "limit": lock.limit,
        "holders": lock.holders.iter().map(place).collect::<Value>(),
        "waiters": lock.waiters.iter().map(place).collect::<Value>(),
        "hidden": lock.hidden,
        "findings": lock.findings.iter().map(finding).collect::<Value>(),
    })
}

fn place(place: &Place) -> Value {
    let watches = place.watches.as_ref().map(|watches| -> Value {
        let shown = |(path, kind): &(String, crate::locks::snapshot::WatchKind)| {
            json!({ "path": path, "kind": kind.name() })
        };
        watches.iter().map(shown).collect()
    });
    let mut shown = json!({
        "node": place.node,
        "mode": place.mode.name(),
        "dialect": place.dialect,
        "token": place.token,
        "age_ms": place.age_ms,
        "held_ms": place.held_ms,
        "identity": place.identity,
        "asked_to_release": place.is_asked_to_release,
        "session": (place.session != 0).then(|| session_id(place.session)),
        "timeout_ms": place.timeout_ms,
        "expires_in_ms": place.expires_in_ms,
    });
    put_presence(&mut shown, &place.presence);
    shown["watches"] = json!(watches);
    shown
}

fn session(known: &Session, clients: &Clients<'_>) -> Value {
    let mut shown = json!({
        "session": session_id(known.id),
        "timeout_ms": known.timeout_ms,
        "expires_in_ms": clients.expires_in_ms(known.id),
        "ephemerals": known.ephemerals,
    });
    let presence = clients.presence(known.id);
    let is_known = matches!(presence, Presence::Connected { .. });
    put_presence(&mut shown, &presence);
    shown["watches"] = json!(is_known.then(|| clients.watch_count(known.id)));
    shown
}

/// Numbers beyond 2^53 lose digits in many readers.
pub(super) fn session_id(id: i64) -> String {
    format!("{id:#x}")
}

fn put_presence(shown: &mut Value, presence: &Presence) {
    let (word, at) = match presence {
        Presence::Connected { server, remote, heard_ms } => {
            ("connected", Some((server, remote, heard_ms)))
        }
        Presence::Disconnected => ("disconnected", None),
        Presence::Elsewhere => ("elsewhere", None),
        Presence::Unknown => ("unknown", None),
        Presence::NoSession => ("none", None),
    };
    shown["client"] = json!(word);
    shown["server"] = json!(at.map(|(server, _, _)| server));
    shown["remote"] = json!(at.map(|(_, remote, _)| remote));
    shown["heard_ms"] = json!(at.map(|(_, _, heard_ms)| heard_ms));
}

fn finding(finding: &Finding) -> Value {
    let mut shown =
        json!({ "kind": finding.kind.name(), "text": finding.text, "nodes": finding.nodes });
    if !finding.cycle.is_empty() {
        shown["cycle"] = finding.cycle.iter().map(step).collect();
    }
    shown
}

fn step(step: &Step) -> Value {
    json!({
        "session": session_id(step.session),
        "identity": step.identity,
        "holds": step.holds,
        "holds_node": step.holds_node,
        "waits_for": step.waits_for,
        "waits_node": step.waits_node,
    })
}
