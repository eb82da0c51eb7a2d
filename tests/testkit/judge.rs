//! Whether what contenders said of a lock is true, by the servers' own account.
//!
//! *Owns* the rules. A claim carries a *stamp*: the zxid of a write that was made when it was heard, so
//! that it has a place among the transactions of the audit log. *Invariant*: only the audit log says
//! who held what; a claim is never taken for evidence of anything but what was claimed. *Never*
//! reads files or asks a server: a pure function, with a test for each lie.

use std::fmt;

use lockkeeper_check::audit::AuditLine;

/// What a contender said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Held,
    Released,
}

/// A contender has said something of a znode.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Which contender.
    pub who: usize,
    pub word: Word,
    /// The path of its znode.
    pub node: String,
    /// What it takes for its fencing token.
    pub token: i64,
    /// The zxid of the write that was made when this was heard.
    pub stamp: i64,
}

/// A holder went, by its own will or not, while others waited.
#[derive(Clone, Copy, Debug)]
pub struct Departure {
    /// How many waited.
    pub waiting: u64,
    /// How many events the servers were to send by the lock's promise.
    pub promised: u64,
    /// How many they counted.
    pub events: u64,
}

/// What was found to be untrue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// No such znode was created by that transaction.
    NeverCreated,
    /// The znode was gone when it was said to be held.
    HeldNothing,
    /// Another one held the lock, and had said so.
    TwoHolders,
    /// Another one came first and had not had its turn.
    OutOfOrder,
    /// The znode was still there, or somebody else had removed it.
    NotReleased,
    /// A contender is left that nobody waits for.
    Orphan,
    /// A departure woke more, or fewer, than was promised.
    WakeUps,
}

/// A lie, and where.
#[derive(Clone, Debug)]
pub struct Violation {
    pub lie: Lie,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.lie, self.what)
    }
}

/// What a contender asks for, by its znode's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reader,
    Writer,
}

/// A contender's znode, from its creation to its end.
#[derive(Clone, Debug)]
struct Contender {
    path: String,
    /// Contenders of one lock have the same.
    lock: String,
    kind: Kind,
    session: i64,
    born: i64,
    gone: Option<Gone>,
}

#[derive(Clone, Copy, Debug)]
struct Gone {
    zxid: i64,
    by: i64,
}

impl Contender {
    fn lives_at(&self, zxid: i64) -> bool {
        self.born <= zxid && self.gone.is_none_or(|gone| gone.zxid > zxid)
    }

    /// Whether it keeps `later`, which came after it, waiting.
    fn is_before(&self, later: &Self) -> bool {
        let conflict = self.kind == Kind::Writer || later.kind == Kind::Writer;
        conflict && self.lock == later.lock && self.born < later.born
    }
}

/// Everything untrue in `claims` and `departures`, given what the servers did. Up to `permits`
/// contenders hold a lock at a time.
pub fn judge(
    audit: &[AuditLine],
    claims: &[Claim],
    departures: &[Departure],
    permits: usize,
) -> Vec<Violation> {
    let contenders = contenders(audit, claims);
    let mut violations = Vec::new();
    for (heard, claim) in claims.iter().enumerate() {
        let lie = match claim.word {
            Word::Held => held(&contenders, &claims[..heard], claim, permits),
            Word::Released => released(&contenders, claim),
        };
        violations.extend(lie.map(|(lie, what)| Violation { lie, what }));
    }
    let left = contenders.iter().filter(|contender| contender.gone.is_none());
    violations.extend(left.map(|contender| Violation {
        lie: Lie::Orphan,
        what: format!("{} is left, of session {:#x}", contender.path, contender.session),
    }));
    let wrong = departures.iter().filter(|departure| departure.events != departure.promised);
    violations.extend(wrong.map(|Departure { waiting, promised, events }| Violation {
        lie: Lie::WakeUps,
        what: format!("with {waiting} waiting, {events} events and not {promised}"),
    }));
    violations
}

/// What is wrong with a claim to hold a lock, given those that were heard before.
fn held(
    contenders: &[Contender],
    before: &[Claim],
    claim: &Claim,
    permits: usize,
) -> Option<(Lie, String)> {
    let Claim { who, node, token, stamp, .. } = claim;
    let Some(own) = find(contenders, claim) else {
        return Some((Lie::NeverCreated, format!("{node} was not created by {token}")));
    };
    if !own.lives_at(*stamp) {
        return Some((Lie::HeldNothing, format!("{node} was gone before {stamp}")));
    }
    let has_said = |other: &Contender, word| {
        let mut said = before.iter().filter(|claim| claim.word == word);
        said.find(|claim| claim.node == other.path && claim.token == other.born)
    };
    if has_said(own, Word::Held).is_some_and(|claim| claim.who != *who) {
        return Some((Lie::TwoHolders, format!("{node} is held by another contender")));
    }
    let is_before = |other: &&Contender| other.is_before(own) && other.lives_at(*stamp);
    let earlier: Vec<&Contender> = contenders.iter().filter(is_before).collect();
    if earlier.len() >= permits {
        let holder = earlier.iter().rev().find(|other| has_said(other, Word::Held).is_some());
        return Some(match holder {
            Some(holder) => (Lie::TwoHolders, format!("{} is held with {node}", holder.path)),
            None => (Lie::OutOfOrder, format!("{} came before {node}", earlier[0].path)),
        });
    }
    // A later one that has had its turn, of a lock that is not shared: the token does not fence.
    let later = contenders.iter().filter(|other| own.is_before(other) && permits == 1);
    let overtaken = later.filter(|other| own.kind == Kind::Writer || other.kind == Kind::Writer);
    let mut overtaken = overtaken.filter(|other| has_said(other, Word::Held).is_some());
    overtaken.next().map(|other| (Lie::OutOfOrder, format!("{} had its turn before", other.path)))
}

fn released(contenders: &[Contender], claim: &Claim) -> Option<(Lie, String)> {
    let Claim { node, token, stamp, .. } = claim;
    let Some(own) = find(contenders, claim) else {
        return Some((Lie::NeverCreated, format!("{node} was not created by {token}")));
    };
    match own.gone {
        Some(Gone { zxid, by }) if zxid < *stamp && by == own.session => None,
        Some(Gone { zxid, by }) if zxid < *stamp => {
            Some((Lie::NotReleased, format!("{node} was removed by session {by:#x}")))
        }
        Some(_) | None => Some((Lie::NotReleased, format!("{node} was still there at {stamp}"))),
    }
}

fn find<'a>(contenders: &'a [Contender], claim: &Claim) -> Option<&'a Contender> {
    let mut named = contenders.iter().filter(|contender| contender.path == claim.node);
    named.find(|contender| contender.born == claim.token)
}

/// All contenders that were ever created in the directories that the claims speak of, oldest first.
fn contenders(audit: &[AuditLine], claims: &[Claim]) -> Vec<Contender> {
    let directories: Vec<&str> = claims.iter().map(|claim| split(&claim.node).0).collect();
    let mut contenders: Vec<Contender> = Vec::new();
    for line in audit.iter().filter(|line| line.result.is_ok()) {
        let gone = Some(Gone { zxid: line.zxid, by: line.session });
        let mut living = contenders.iter_mut().filter(|contender| contender.gone.is_none());
        match (line.op.as_str(), &line.path) {
            ("create" | "create2", Some(path)) if directories.contains(&split(path).0) => {
                contenders.push(contender(path, line));
            }
            ("delete", Some(path)) => {
                living.filter(|own| own.path == *path).for_each(|own| own.gone = gone);
            }
            // The end of a meeting has a test of its own (tests/locks/recipes).
            ("multi", Some(paths)) => {
                let touched = living.find(|own| paths.split(',').any(|path| path == own.path));
                if let Some(writer) = touched {
                    let reader = downgraded(writer, paths, line);
                    writer.gone = gone;
                    contenders.push(reader);
                }
            }
            ("closeSession" | "expireSession", _) => {
                living.filter(|own| own.session == line.session).for_each(|own| own.gone = gone);
            }
            _ => {}
        }
    }
    contenders
}

/// What a writer has become by a transaction of its own session: a reader of the same number, with the
/// writer's token.
fn downgraded(writer: &Contender, paths: &str, line: &AuditLine) -> Contender {
    let (path, left) = paths.split_once(',').expect("two paths");
    let reader = Contender { born: writer.born, ..contender(path, line) };
    let number = |path: &str| path.rsplit_once("__").map(|(_, number)| number.to_string());
    let is_way_down = left == writer.path
        && (writer.kind, reader.kind) == (Kind::Writer, Kind::Reader)
        && (writer.session, &writer.lock) == (reader.session, &reader.lock)
        && number(left) == number(path);
    assert!(is_way_down, "not for this judge: {paths}");
    reader
}

/// The name is what protects it from being mistaken (Curator's `_c_<uuid>-`, kazoo's `<hex>`), a label,
/// and a number of ten digits.
fn contender(path: &str, line: &AuditLine) -> Contender {
    let (directory, name) = split(path);
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let bare = name.strip_prefix("_c_").unwrap_or(name);
    let bare = [36, 32].iter().find_map(|length| {
        let (id, rest) = bare.split_at_checked(*length)?;
        is_hex(id).then(|| rest.strip_prefix('-').unwrap_or(rest))
    });
    let label = bare.unwrap_or(name).trim_end_matches(|end: char| end.is_ascii_digit());
    let (label, kind) = match label {
        "__READ__" => ("rw", Kind::Reader),
        "__WRIT__" => ("rw", Kind::Writer),
        other => (other, Kind::Writer),
    };
    let lock = format!("{directory}/{label}");
    let (session, born) = (line.session, line.zxid);
    Contender { path: path.to_string(), lock, kind, session, born, gone: None }
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').expect("a path has a slash")
}
