//! What an observer of a run sees, written down as steps of the model of sessions (spec/README.md).
//!
//! *Owns* what happened to sessions and to locks in a run, in order, and which of it is told to the model: at
//! most [`STEPS_MAX`] steps. *Invariants*: it is told before anybody judges it, so that a run that breaks a
//! rule has the step that did; what is left out makes the model allow more, never less. *Never* looks into a
//! server: it sees messages, log entries as they are appended, audit lines, and what clients are told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use lockkeeper_core::replica::txn::{Batch, TxnOp};
use lockkeeper_core::replica::{Append, AuditLine, ConnId, EntryKind, PeerMessage};

/// Steps of a run.
pub const STEPS_MAX: usize = 500;
/// A report that names no session is told only if the one before is as old as this.
const QUIET_US: u64 = 1_000_000;
/// Sessions of a run that are told in full.
const SESSIONS_MAX: usize = 8;
/// How long a leader that was deposed may not know it (`TraceDeposed` in spec/TraceCheck.tla).
const DEPOSED_US_MAX: u64 = 750_000;
/// Unit of the model's time, in microseconds.
const UNIT_US: u64 = 10;

/// A process: its server, and how many ran there before.
type Process = (usize, u64);

/// What a transaction is to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Attach {
        timeout_ms: i32,
    },
    Expire,
    Close,
    /// The znode of a lock is created, or deleted.
    Lock {
        path: String,
    },
    Unlock {
        path: String,
    },
    Other,
}

#[derive(Clone, Debug)]
enum Event {
    Leads { process: Process, term: u64, zxid: i64 },
    Heard { process: Process, session: i64 },
    Told(Report),
    Proposed { entry: (u64, u64), session: i64 },
    Applied { entry: (u64, u64), zxid: i64, kind: Kind, session: i64, by: Option<Process> },
}

/// A report as it arrives; times are the world's.
#[derive(Clone, Debug)]
struct Report {
    process: Process,
    /// When the report was made that it goes on from; 0 if none.
    base_us: u64,
    /// Who was heard since then, and not later than `up_to_us`, is named.
    after_us: u64,
    up_to_us: u64,
    sessions: BTreeSet<i64>,
}

/// What a client saw of a lock, at a zxid.
#[derive(Clone, Debug)]
enum Sight {
    Listed(BTreeSet<String>),
    Held { token: i64 },
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Observer {
    /// Nothing is kept otherwise.
    pub is_on: bool,
    /// The world's time.
    pub now_us: u64,
    events: Vec<(u64, Event)>,
    sights: Vec<(String, i64, Sight)>,
    lives: BTreeMap<usize, u64>,
    connected: BTreeMap<ConnId, Process>,
    leader: Option<(usize, u64)>,
    /// By server: up to when a leader knows whom its process has heard, or need not be told.
    confirmed_us: BTreeMap<usize, u64>,
    proposed: BTreeSet<(u64, u64)>,
}

impl Observer {
    fn push(&mut self, event: Event) {
        if self.is_on {
            self.events.push((self.now_us, event));
        }
    }

    fn process(&self, server: usize) -> Process {
        (server, self.lives.get(&server).copied().unwrap_or_default())
    }

    /// A process begins.
    pub fn started(&mut self, server: usize) {
        *self.lives.entry(server).or_default() += 1;
        self.confirmed_us.remove(&server);
    }

    /// A client connects.
    pub fn connected(&mut self, conn: ConnId, server: usize) {
        self.connected.insert(conn, self.process(server));
    }

    /// A server leads, and has applied this.
    pub fn leads(&mut self, server: usize, term: u64, zxid: i64) {
        self.leader = Some((server, term));
        self.push(Event::Leads { process: self.process(server), term, zxid });
    }

    /// A server leads still. It forgets whom it heard longer ago than anybody else can have been elected: a leader that
    /// comes later gives those their time. `rate` is that of its clock, in 1000.
    pub fn goes_on_leading(&mut self, server: usize, rate: u64) {
        let forgotten_us = self.now_us.saturating_sub(DEPOSED_US_MAX * 1000 / rate);
        let known = self.confirmed_us.entry(server).or_default();
        *known = forgotten_us.max(*known);
    }

    /// A client is heard, and will have an answer.
    pub fn heard(&mut self, server: usize, session: i64) {
        self.push(Event::Heard { process: self.process(server), session });
    }

    /// A message arrives. `rate` is that of the clock of the report's server, in 1000.
    pub fn arrived(&mut self, server: usize, from: usize, message: &PeerMessage, rates: &[u64]) {
        match message {
            PeerMessage::Ping { heard: Some(stamp), .. } => {
                let us = stamp.number * 1000 / rates[server];
                let known = self.confirmed_us.entry(server).or_default();
                *known = us.max(*known);
            }
            PeerMessage::Touch { term, stamp, base, sessions, .. }
                if self.leader == Some((server, *term)) && stamp.number > 0 =>
            {
                let of_world = |us: u64| us * 1000 / rates[from];
                let known_us = self.confirmed_us.get(&from).copied().unwrap_or_default();
                self.push(Event::Told(Report {
                    process: self.process(from),
                    base_us: of_world(*base),
                    after_us: if *base == 0 { known_us } else { of_world(*base) },
                    up_to_us: of_world(stamp.number),
                    sessions: sessions.iter().copied().collect(),
                }));
            }
            _ => {}
        }
    }

    /// A server appends entries. The first one to do so has proposed them.
    pub fn appended(&mut self, append: &Append) {
        if !self.is_on {
            return;
        }
        for entry in append.entries.iter().filter(|entry| entry.kind == EntryKind::Normal) {
            let key = (entry.index, entry.term);
            let Ok(batch) = Batch::decode(&entry.data) else { continue };
            if !self.proposed.insert(key) {
                continue;
            }
            for txn in batch.txns.iter().filter(|txn| txn.op == TxnOp::ExpireSession) {
                self.push(Event::Proposed { entry: key, session: txn.session });
            }
        }
    }

    /// A transaction takes effect on the first server.
    pub fn applied(&mut self, line: &AuditLine, op: Option<(&TxnOp, ConnId)>) {
        let is_ok = line.result == "ok";
        let path = line.path.clone().filter(|path| path.contains("/lock-"));
        let kind = match (line.op, op.map(|(op, _)| op), path) {
            _ if !is_ok => Kind::Other,
            (
                _,
                Some(
                    TxnOp::OpenSession { timeout_ms, .. } | TxnOp::AttachSession { timeout_ms, .. },
                ),
                _,
            ) => Kind::Attach { timeout_ms: *timeout_ms },
            ("expireSession", ..) => Kind::Expire,
            ("closeSession", ..) => Kind::Close,
            ("delete", _, Some(path)) => Kind::Unlock { path },
            (op, _, Some(path)) if op.starts_with("create") => Kind::Lock { path },
            _ => Kind::Other,
        };
        let by = op.and_then(|(_, conn)| self.connected.get(&conn).copied());
        let (entry, zxid, session) = ((line.index, line.term), line.zxid, line.session);
        self.push(Event::Applied { entry, zxid, kind, session, by });
    }

    /// A client read who waits for a lock.
    pub fn listed(&mut self, dir: &str, zxid: i64, names: BTreeSet<String>) {
        if self.is_on {
            self.sights.push((dir.to_owned(), zxid, Sight::Listed(names)));
        }
    }

    /// A client holds a lock.
    pub fn held(&mut self, dir: &str, zxid: i64, token: i64) {
        if self.is_on {
            self.sights.push((dir.to_owned(), zxid, Sight::Held { token }));
        }
    }

    /// The run as the model's steps. `rate_max` is that of the fastest clock.
    pub fn tell(&self, rate_max: u64) -> Told {
        let expired = self.events.iter().rev().filter_map(|(_, event)| match event {
            Event::Applied { kind: Kind::Expire, session, .. } => Some(*session),
            _ => None,
        });
        let mut watched: Vec<i64> = Vec::new();
        for session in expired.take(SESSIONS_MAX) {
            watched.push(session);
        }
        let dir = self.sights.first().map(|(dir, ..)| dir.clone());
        let told =
            |watched: &[i64], dir: Option<&str>| Telling::new(self, watched, dir, rate_max).tell();
        // As much as there is room for: the locks, and the sessions that ended last.
        loop {
            let mut known = told(&watched, dir.as_deref());
            if known.steps.len() <= STEPS_MAX {
                return known;
            }
            if watched.len() > 2 {
                watched.pop();
                continue;
            }
            let without = told(&watched, None);
            if without.steps.len() <= STEPS_MAX {
                return without;
            }
            known.steps.truncate(STEPS_MAX);
            return known;
        }
    }
}

/// A run, told.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Records in TLA+.
    pub steps: Vec<String>,
    /// How many sessions it is about, and how many processes a server has in it at most.
    pub sessions: usize,
    pub lives: usize,
}

/// One way to tell a run.
struct Telling<'a> {
    seen: &'a Observer,
    dir: Option<&'a str>,
    rate_max: u64,
    watched: BTreeMap<i64, usize>,
    /// Also those that are told of only because of their znodes.
    sessions: BTreeMap<i64, usize>,
    processes: BTreeMap<Process, usize>,
    committed: BTreeSet<((u64, u64), i64)>,
    steps: Vec<Option<String>>,
    /// By server: which of its processes runs.
    lives: BTreeMap<usize, usize>,
    /// Steps that the next one of their kind may take the place of.
    last_leads: Option<usize>,
    last_heard: BTreeMap<(Process, i64), usize>,
    /// By process: when a report was told last, and one behind it that need not be.
    told_us: BTreeMap<Process, u64>,
    spare: BTreeMap<Process, (usize, Report)>,
    untold: Option<((u64, u64), i64)>,
    sights: BTreeMap<i64, Vec<(&'static str, String)>>,
}

impl<'a> Telling<'a> {
    fn new(seen: &'a Observer, watched: &[i64], dir: Option<&'a str>, rate_max: u64) -> Self {
        let mut committed = BTreeSet::new();
        let mut sessions: BTreeSet<i64> = watched.iter().copied().collect();
        let mut processes: BTreeSet<Process> = BTreeSet::new();
        for (_, event) in &seen.events {
            match event {
                Event::Applied { kind: Kind::Lock { path }, session, .. }
                    if dir.is_some_and(|dir| is_in(dir, path)) =>
                {
                    sessions.insert(*session);
                }
                Event::Applied { kind: Kind::Expire, entry, session, .. } => {
                    committed.insert((*entry, *session));
                }
                _ => {}
            }
        }
        for (_, event) in &seen.events {
            match event {
                Event::Applied { session, by: Some(process), .. } if sessions.contains(session) => {
                    processes.insert(*process);
                }
                // The first report of a process says that those before it on its server have ended.
                Event::Leads { process, .. } | Event::Told(Report { process, .. }) => {
                    processes.insert(*process);
                }
                _ => {}
            }
        }
        let number = |sessions: &BTreeSet<i64>| -> BTreeMap<i64, usize> {
            sessions.iter().enumerate().map(|(at, session)| (*session, at + 1)).collect()
        };
        let sessions = number(&sessions);
        let of = |session: &i64| (*session, sessions[session]);
        let watched = watched.iter().map(of).collect();
        let mut lives: BTreeMap<usize, usize> = BTreeMap::new();
        let mut numbers = BTreeMap::new();
        for process in processes {
            let life = lives.entry(process.0).or_default();
            numbers.insert(process, 8 * *life + process.0 + 1);
            *life += 1;
        }
        let mut telling = Self {
            seen,
            dir,
            rate_max,
            watched,
            sessions,
            processes: numbers,
            committed,
            steps: Vec::new(),
            lives: BTreeMap::new(),
            last_leads: None,
            last_heard: BTreeMap::new(),
            told_us: BTreeMap::new(),
            spare: BTreeMap::new(),
            untold: None,
            sights: BTreeMap::new(),
        };
        telling.sights = telling.sights();
        telling
    }

    fn push(&mut self, us: u64, kind: &str, rest: std::fmt::Arguments<'_>) -> usize {
        let t = us / UNIT_US;
        self.steps.push(Some(format!("[k |-> \"{kind}\", t |-> {t}{rest}]")));
        self.steps.len() - 1
    }

    /// The process's number; whatever ran on its server before has ended.
    fn runs(&mut self, us: u64, process: Process) -> usize {
        let number = self.processes[&process];
        let (server, life) = (process.0 + 1, number / 8);
        while self.lives.get(&server).copied().unwrap_or_default() < life {
            *self.lives.entry(server).or_default() += 1;
            self.push(us, "restart", format_args!(", srv |-> {server}"));
        }
        number
    }

    fn tell(mut self) -> Told {
        let events: &'a [(u64, Event)] = &self.seen.events;
        for (us, event) in events {
            let us = *us;
            match event {
                Event::Leads { process, term, zxid } => self.leads(us, *process, *term, *zxid),
                Event::Heard { process, session } => self.heard(us, *process, *session),
                Event::Told(report) => self.report(us, report.clone()),
                Event::Proposed { entry, session } => self.proposed(us, *entry, *session),
                Event::Applied { .. } => self.transaction(us, event),
            }
        }
        // A run that broke a rule ends with what did.
        if let Some((us, _)) = events.last() {
            self.other(*us);
        }
        let lives = self.processes.values().map(|number| number / 8 + 1).max().unwrap_or(1);
        let steps = self.steps.into_iter().flatten().collect();
        Told { steps, sessions: self.sessions.len(), lives }
    }

    fn leads(&mut self, us: u64, process: Process, term: u64, zxid: i64) {
        // Only the last of elections between which nothing is told matters.
        if self.last_leads.is_some_and(|at| at + 1 == self.steps.len()) {
            self.steps.pop();
        }
        self.other(us);
        let p = self.runs(us, process);
        let rest = format_args!(", p |-> {p}, term |-> {term}, z |-> {}", pair(zxid));
        self.last_leads = Some(self.push(us, "leads", rest));
        self.last_heard.clear();
        self.spare.clear();
        self.told_us.clear();
    }

    /// The last transaction that has not been told, whatever it is.
    fn other(&mut self, us: u64) {
        if let Some((entry, zxid)) = self.untold.take() {
            self.applied(us, "other", entry, zxid, 0, None, "");
        }
    }

    fn heard(&mut self, us: u64, process: Process, session: i64) {
        let Some(s) = self.watched.get(&session).copied() else { return };
        if !self.processes.contains_key(&process) {
            return;
        }
        let p = self.runs(us, process);
        let at = self.push(us, "hear", format_args!(", p |-> {p}, s |-> {s}"));
        if let Some(before) = self.last_heard.insert((process, session), at) {
            self.steps[before] = None;
        }
    }

    fn report(&mut self, us: u64, mut report: Report) {
        let process = report.process;
        report.sessions.retain(|session| self.sessions.contains_key(session));
        if let Some((at, before)) = self.spare.remove(&process)
            && before.up_to_us == report.base_us
        {
            report.base_us = before.base_us;
            report.after_us = before.after_us;
            self.steps[at] = None;
        }
        let at = self.told(us, &report);
        let is_due = self.told_us.get(&process).is_none_or(|last| us >= last + QUIET_US);
        if report.sessions.is_empty() && !is_due {
            self.spare.insert(process, (at, report));
        } else {
            self.told_us.insert(process, us);
            self.last_heard.retain(|(of, _), _| *of != process);
        }
    }

    fn proposed(&mut self, us: u64, entry: (u64, u64), session: i64) {
        let Some(s) = self.sessions.get(&session).copied() else { return };
        if self.committed.contains(&(entry, session)) {
            self.push(us, "expire", format_args!(", s |-> {s}"));
            self.last_heard.retain(|(_, of), _| *of != session);
            self.spare.clear();
        }
    }

    fn transaction(&mut self, us: u64, event: &Event) {
        let Event::Applied { entry, zxid, kind, session, by } = event else { return };
        self.untold = Some((*entry, *zxid));
        let name = match kind {
            Kind::Attach { .. } => "attach",
            Kind::Expire => "expired",
            Kind::Close => "close",
            Kind::Lock { path } if self.is_of_lock(path) => "lock",
            Kind::Unlock { path } if self.is_of_lock(path) => "unlock",
            Kind::Lock { .. } | Kind::Unlock { .. } | Kind::Other => return,
        };
        let Some(s) = self.sessions.get(session).copied() else { return };
        let timeout = match kind {
            Kind::Attach { timeout_ms } => {
                let us = *timeout_ms as u64 * 1000 * 1000 / self.rate_max;
                format!(", timeout |-> {}", us / UNIT_US)
            }
            _ => String::new(),
        };
        self.untold = None;
        self.applied(us, name, *entry, *zxid, s, *by, &timeout);
        self.last_heard.retain(|(_, of), _| of != session);
        for (kind, rest) in self.sights.remove(zxid).unwrap_or_default() {
            self.push(us, kind, format_args!("{rest}"));
        }
    }

    fn told(&mut self, us: u64, report: &Report) -> usize {
        let p = self.runs(us, report.process);
        let mut names = String::new();
        for session in &report.sessions {
            let comma = if names.is_empty() { "" } else { ", " };
            write!(names, "{comma}{}", self.sessions[session]).expect("a String takes everything");
        }
        let [base, after, up_to] =
            [report.base_us, report.after_us, report.up_to_us].map(|us| us / UNIT_US);
        let rest = format_args!(
            ", p |-> {p}, base |-> {base}, after |-> {after}, upTo |-> {up_to}, names |-> {{{names}}}"
        );
        self.push(us, "told", rest)
    }

    #[expect(clippy::too_many_arguments, reason = "they are the parts of one line")]
    fn applied(
        &mut self,
        us: u64,
        kind: &str,
        entry: (u64, u64),
        zxid: i64,
        s: usize,
        by: Option<Process>,
        rest: &str,
    ) {
        let p = by.map_or(0, |process| self.runs(us, process));
        let (term, z) = (entry.1, pair(zxid));
        let rest = format_args!(", s |-> {s}, p |-> {p}, term |-> {term}, z |-> {z}{rest}");
        self.push(us, kind, rest);
    }

    fn is_of_lock(&self, path: &str) -> bool {
        self.dir.is_some_and(|dir| is_in(dir, path))
    }

    /// What clients saw of the lock, by the zxid of the transaction behind which it is told.
    fn sights(&self) -> BTreeMap<i64, Vec<(&'static str, String)>> {
        let mut tokens = BTreeMap::new();
        let mut places = BTreeSet::new();
        for (_, event) in &self.seen.events {
            let Event::Applied { zxid, kind, session, .. } = event else { continue };
            match kind {
                Kind::Lock { path } if self.is_of_lock(path) => {
                    tokens.insert(path.rsplit('/').next().unwrap_or_default().to_owned(), *zxid);
                    places.insert(*zxid);
                }
                Kind::Unlock { path } if self.is_of_lock(path) => {
                    places.insert(*zxid);
                }
                Kind::Expire | Kind::Close if self.sessions.contains_key(session) => {
                    places.insert(*zxid);
                }
                _ => {}
            }
        }
        let mut sights: BTreeMap<i64, Vec<(&'static str, String)>> = BTreeMap::new();
        for (dir, zxid, sight) in &self.seen.sights {
            let Some(place) = places.range(..=*zxid).next_back() else { continue };
            if self.dir != Some(dir.as_str()) {
                continue;
            }
            let told = match sight {
                Sight::Held { token } => ("held", format!(", token |-> {}", pair(*token))),
                Sight::Listed(names) => {
                    let of = |name: &String| pair(tokens.get(name).copied().unwrap_or_default());
                    let all: Vec<String> = names.iter().map(of).collect();
                    ("list", format!(", tokens |-> {{{}}}", all.join(", ")))
                }
            };
            let known = sights.entry(*place).or_default();
            if !known.contains(&told) {
                known.push(told);
            }
        }
        sights
    }
}

fn is_in(dir: &str, path: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

/// A zxid in the model: term and counter.
fn pair(zxid: i64) -> String {
    format!("<<{}, {}>>", zxid >> 32, zxid & 0xffff_ffff)
}
