//! The witness check (C1, C2): the zxids of the replies claim an order of everything; the claim is
//! checked, not searched for.
//!
//! *Owns* the order and its replay. Three things make it a proof: every transaction has a zxid of its
//! own; carried out in that order on the model, the transactions explain every reply to the last field
//! of the Stat; and nothing stands behind what was asked for only after it had returned (`realtime`).
//! If all three hold, the order is a linearization of the writes and every read shows one of its
//! states. If one fails, the service is not linearizable or its zxids lie, and clients use them as
//! fencing tokens.
//!
//! Which operations with unknown outcome took effect, and when sessions expired, the servers' account
//! tells ([`audit::join`](crate::audit::join)). Without it such operations are left out: if the rest
//! is explained, the history is valid, for they may never have taken effect; if not, and one of
//! them may be the reason, the verdict is unknown.

use std::collections::{BTreeMap, BTreeSet};

use crate::audit::AuditLine;
use crate::doubt::Doubts;
use crate::history::{History, Operation, Outcome};
use crate::op::{Answer, Call, Code, Stat};
use crate::realtime;
use crate::report;
use crate::tree::{Caller, Tree};
use crate::verdict::{Rule, Verdict, Violation};

/// What the check must know of the service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// ZooKeeper's `extendedTypesEnabled`: znodes with a time to live.
    pub extended_types: bool,
    /// Reads are linearizable too, so that real time binds them.
    pub linearizable_reads: bool,
}

/// A step of the claimed order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'a> {
    /// A transaction, with the client's operation if a client of the history asked for it.
    Write { zxid: i64, operation: Option<&'a Operation>, line: Option<&'a AuditLine> },
    /// A read and the zxid of the state that it claims to show.
    Read { zxid: i64, operation: &'a Operation },
}

/// Checks a history, with the servers' joined account of their transactions if there is one.
#[must_use]
pub fn check(history: &History, audit: Option<&[AuditLine]>, settings: Settings) -> Verdict {
    let steps = match order(history, audit) {
        Ok(steps) => steps,
        Err(verdict) => return verdict,
    };
    if let Err(violation) = realtime::check(&steps, settings.linearizable_reads) {
        return Verdict::Invalid(violation);
    }
    if steps.is_empty() {
        return Verdict::Unknown("nothing was answered that could be checked".to_owned());
    }
    let mut replay = Replay::new(history, audit.is_some(), settings);
    for (at, step) in steps.iter().enumerate() {
        if let Err(what) = replay.step(step) {
            return replay.verdict(&steps, at, what);
        }
    }
    Verdict::Valid
}

/// Codes that refuse a multi as a whole; others may be those of a part.
fn is_of_the_session(code: Code) -> bool {
    matches!(code, Code::SESSION_MOVED | Code::SESSION_EXPIRED)
}

/// Whether a reply speaks for a transaction: the other errors refuse a request before it is one.
pub(crate) fn is_transaction(operation: &Operation) -> bool {
    let Some((_, zxid, result)) = operation.reply() else { return false };
    operation.call.is_write()
        && zxid > 0
        && result.as_ref().err().is_none_or(|code| code.is_of_the_znodes())
}

/// The order that the zxids claim: the transactions, and behind each the reads of the state after it.
fn order<'a>(
    history: &'a History,
    audit: Option<&'a [AuditLine]>,
) -> Result<Vec<Step<'a>>, Verdict> {
    let mut steps = match audit {
        Some(lines) => audited(history, lines)?,
        None => {
            let writes = history.operations.iter().filter(|operation| is_transaction(operation));
            writes.filter_map(write_of).collect()
        }
    };
    let reads = history.operations.iter().filter(|operation| operation.call.is_read());
    steps.extend(reads.filter_map(|operation| {
        let (_, zxid, result) = operation.reply()?;
        let judged = zxid >= 0 && result.as_ref().err().is_none_or(|code| code.is_of_the_znodes());
        judged.then_some(Step::Read { zxid, operation })
    }));
    steps.sort_by_key(|step| (step.zxid(), !step.is_write(), step.index()));
    for pair in steps.windows(2) {
        let [first, second] = pair else { unreachable!("windows of two") };
        if second.is_write() && first.zxid() == second.zxid() {
            return Err(Verdict::Invalid(Violation {
                rule: Rule::OneZxidEach,
                what: format!("two transactions have the zxid {:#x}", first.zxid()),
                around: vec![format!("> {}", first.line()), format!("> {}", second.line())],
            }));
        }
    }
    Ok(steps)
}

fn write_of(operation: &Operation) -> Option<Step<'_>> {
    let (_, zxid, _) = operation.reply()?;
    Some(Step::Write { zxid, operation: Some(operation), line: None })
}

/// The transactions by the servers' account, each with the operation that asked for it.
pub(crate) fn audited<'a>(
    history: &'a History,
    lines: &'a [AuditLine],
) -> Result<Vec<Step<'a>>, Verdict> {
    let asked = asked(history)?;
    let clients: BTreeSet<i64> = history.operations.iter().map(Operation::session_after).collect();
    let mut found: BTreeSet<(i64, i32)> = BTreeSet::new();
    let mut steps = Vec::with_capacity(lines.len());
    let wrong = |what: String, operation: Option<&Operation>| {
        let around = operation.map(report::operation).into_iter().collect();
        Verdict::Invalid(Violation { rule: Rule::Asked, what, around })
    };
    for line in lines {
        let key = (line.session, line.cxid);
        let mut operation = None;
        let is_an_operators = is_an_operators(line) && !clients.contains(&line.session);
        if !is_the_servers_own(line) && !is_an_operators {
            operation = asked.get(&key).copied();
            if operation.is_none() {
                return Err(wrong(format!("nobody asked for {}", report::line(line)), None));
            }
            if !found.insert(key) {
                return Err(wrong(format!("done again: {}", report::line(line)), operation));
            }
        }
        steps.push(Step::Write { zxid: line.zxid, operation, line: Some(line) });
    }
    let is_lost =
        |key: &(i64, i32), operation: &Operation| is_transaction(operation) && !found.contains(key);
    match asked.iter().find(|(key, operation)| is_lost(key, operation)) {
        None => Ok(steps),
        Some((_, operation)) => Err(Verdict::Invalid(Violation {
            rule: Rule::Acknowledged,
            what: "no server has applied what was acknowledged".to_owned(),
            around: vec![format!("> {}", report::operation(operation))],
        })),
    }
}

/// Every write that may have reached a server, by session and xid.
fn asked(history: &History) -> Result<BTreeMap<(i64, i32), &Operation>, Verdict> {
    let mut asked = BTreeMap::new();
    for operation in history.operations.iter().filter(|operation| operation.call.is_write()) {
        if matches!(operation.outcome, Outcome::NotSent { .. }) {
            continue;
        }
        let unclear = |why: &str| {
            let what = report::operation(operation);
            Verdict::Unknown(format!(
                "the history does not fit the servers' account: {why}: {what}"
            ))
        };
        let xid = operation.xid.ok_or_else(|| unclear("a write without an xid"))?;
        if asked.insert((operation.session, xid), operation).is_some() {
            return Err(unclear("two writes of a session with one xid"));
        }
    }
    Ok(asked)
}

/// Whether no client asks for it. A session that was left is closed by the server as well.
fn is_the_servers_own(line: &AuditLine) -> bool {
    const OWN: [&str; 6] =
        ["createSession", "attachSession", "expireSession", "deleteContainer", "found", "refuse"];
    OWN.contains(&line.op.as_str()) || line.op == "closeSession" && line.cxid == 0
}

/// What an operator does, who writes no history: changes of the members, each in a session of its own.
fn is_an_operators(line: &AuditLine) -> bool {
    ["reconfig", "closeSession"].contains(&line.op.as_str())
}

impl<'a> Step<'a> {
    pub(crate) fn zxid(&self) -> i64 {
        match self {
            Step::Write { zxid, .. } | Step::Read { zxid, .. } => *zxid,
        }
    }

    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Step::Write { .. })
    }

    pub(crate) fn operation(&self) -> Option<&'a Operation> {
        match self {
            Step::Write { operation, .. } => *operation,
            Step::Read { operation, .. } => Some(operation),
        }
    }

    fn index(&self) -> u64 {
        self.operation().map_or(0, |operation| operation.invoked.index)
    }

    /// It for people.
    pub(crate) fn line(&self) -> String {
        match self {
            Step::Write { operation: None, line: Some(line), .. } => report::line(line),
            Step::Write { operation: Some(operation), line: Some(line), .. } => {
                format!("{} [{}]", report::operation(operation), report::line(line))
            }
            Step::Write { operation: Some(operation), .. } | Step::Read { operation, .. } => {
                report::operation(operation)
            }
            Step::Write { operation: None, line: None, zxid } => format!("zxid {zxid:#x}"),
        }
    }
}

/// The model, carried from step to step.
struct Replay {
    tree: Tree,
    /// What may have happened beside the known transactions, if not all are known.
    doubts: Option<Doubts>,
}

impl Replay {
    fn new(history: &History, is_complete: bool, settings: Settings) -> Self {
        let doubts = (!is_complete).then(|| Doubts::of(history));
        Self { tree: Tree::new(settings.extended_types), doubts }
    }

    /// Carries out a step. What does not fit.
    fn step(&mut self, step: &Step<'_>) -> Result<(), String> {
        match step {
            Step::Write { zxid, operation, line } => {
                if let Some(line) = line {
                    self.tree.learn_time(*zxid, line.time_ms);
                }
                match (operation, line) {
                    (Some(operation), _) => self.write(*zxid, operation, *line),
                    (None, Some(line)) => self.own(line),
                    (None, None) => Ok(()),
                }
            }
            Step::Read { operation, .. } => {
                let Some((_, _, said)) = operation.reply() else { return Ok(()) };
                if operation.call.paths().into_iter().any(is_the_ensembles) {
                    return Ok(());
                }
                self.learn(said);
                same(&self.tree.read(caller(operation), &operation.call), said)
            }
        }
    }

    fn write(
        &mut self,
        zxid: i64,
        operation: &Operation,
        line: Option<&AuditLine>,
    ) -> Result<(), String> {
        let said = operation.reply().map(|(_, zxid, said)| (zxid, said));
        if let (Some((replied, _)), Some(line)) = (said, line)
            && replied != line.zxid
            && is_transaction(operation)
        {
            return Err(format!("the reply says zxid {replied:#x}, the servers {:#x}", line.zxid));
        }
        if let Some(Err(code)) = line.map(|line| line.result)
            && !code.is_of_the_znodes()
            && (!matches!(operation.call, Call::Multi(_)) || is_of_the_session(code))
        {
            let as_said = said.is_none_or(|(_, said)| *said == Err(code));
            return if as_said { Ok(()) } else { Err(format!("the servers say {code}")) };
        }
        let due = match &operation.call {
            Call::Close => {
                self.tree.close_session(zxid, operation.session);
                Ok(Answer::Done)
            }
            Call::Other(_) => return Ok(()),
            call => {
                if let Some((_, said)) = said {
                    self.learn(said);
                }
                self.tree.apply(zxid, caller(operation), call)
            }
        };
        if let Some(line) = line {
            self.as_audited(&due, line)?;
        }
        said.map_or(Ok(()), |(_, said)| same(&due, said))
    }

    /// The servers' account must have the same result and path.
    fn as_audited(&self, due: &Result<Answer, Code>, line: &AuditLine) -> Result<(), String> {
        let result = match due {
            Ok(Answer::Parts(parts)) => {
                let codes = parts.iter().filter_map(|part| part.as_ref().err());
                codes.copied().find(|code| *code != Code::OK).map_or(Ok(()), Err)
            }
            Ok(_) => Ok(()),
            Err(code) => Err(*code),
        };
        if result != line.result {
            return Err(format!("due is {result:?}, the servers say {:?}", line.result));
        }
        match (due, &line.path) {
            (Ok(Answer::Path(due) | Answer::PathStat(due, _)), Some(path)) if due != path => {
                Err(format!("due is the path {due}, the servers say {path}"))
            }
            _ => Ok(()),
        }
    }

    /// A transaction of the servers.
    fn own(&mut self, line: &AuditLine) -> Result<(), String> {
        match (line.op.as_str(), line.result, &line.path) {
            ("expireSession" | "closeSession", Ok(()), _) => {
                self.tree.close_session(line.zxid, line.session);
                Ok(())
            }
            ("deleteContainer", Ok(()), Some(path)) => {
                let reaped = self.tree.reap(line.zxid, path);
                reaped.map_err(|code| format!("{path} must not be reaped: {code}"))
            }
            _ => Ok(()),
        }
    }

    fn learn(&mut self, said: &Result<Answer, Code>) {
        let mut learn = |stat: &Stat| self.tree.learn_times(stat);
        match said {
            Ok(Answer::Parts(parts)) => {
                parts.iter().flatten().filter_map(stat_of).for_each(&mut learn);
            }
            Ok(answer) => stat_of(answer).into_iter().for_each(learn),
            Err(_) => {}
        }
    }

    /// A step does not fit: a violation, unless something unknown may be the reason.
    fn verdict(&self, steps: &[Step<'_>], at: usize, what: String) -> Verdict {
        if let Some(reason) = self.doubts.as_ref().and_then(|doubts| doubts.on(&steps[at])) {
            return Verdict::Unknown(format!("{what}; the reason may be {reason}"));
        }
        let around = report::around(steps, at, Step::line);
        Verdict::Invalid(Violation { rule: Rule::Replay, what, around })
    }
}

fn caller(operation: &Operation) -> Caller<'_> {
    Caller { session: operation.session, ids: &operation.ids }
}

/// The ensemble writes there itself.
fn is_the_ensembles(path: &str) -> bool {
    path.starts_with("/zookeeper")
}

fn stat_of(answer: &Answer) -> Option<&Stat> {
    match answer {
        Answer::PathStat(_, stat)
        | Answer::Stat(stat)
        | Answer::Data(_, stat)
        | Answer::Acl(_, stat) => Some(stat),
        Answer::Children(_, stat) => stat.as_ref(),
        Answer::Done
        | Answer::Session { .. }
        | Answer::Path(_)
        | Answer::Number(_)
        | Answer::Paths(_)
        | Answer::Parts(_) => None,
    }
}

/// Names come in no particular order.
fn sorted(result: &Result<Answer, Code>) -> Result<Answer, Code> {
    let mut result = result.clone();
    match &mut result {
        Ok(Answer::Children(names, _) | Answer::Paths(names)) => names.sort(),
        Ok(Answer::Parts(parts)) => parts.iter_mut().for_each(|part| *part = sorted_part(part)),
        _ => {}
    }
    result
}

fn sorted_part(part: &Result<Answer, Code>) -> Result<Answer, Code> {
    let mut part = part.clone();
    if let Ok(Answer::Children(names, _)) = &mut part {
        names.sort();
    }
    part
}

fn same(due: &Result<Answer, Code>, said: &Result<Answer, Code>) -> Result<(), String> {
    if sorted(due) == sorted(said) {
        return Ok(());
    }
    Err(format!("due is {}, said was {}", report::result(due), report::result(said)))
}
