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
            // The end of a meeting has a test of its own (tests/recipes).
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

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "/l/_c_0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55-lock-0000000000";
    const B: &str = "/l/_c_1af2b9d632cd4bd08c9c6c2f2f4d4f55-lock-0000000001";
    const C: &str = "/l/2af2b9d632cd4bd08c9c6c2f2f4d4f55-lock-0000000002";

    fn line(zxid: i64, session: i64, op: &str, path: Option<&str>) -> AuditLine {
        AuditLine {
            index: 0,
            term: 1,
            zxid,
            time_ms: 0,
            session,
            cxid: 0,
            op: op.to_string(),
            path: path.map(str::to_string),
            result: Ok(()),
            digest: String::new(),
        }
    }

    /// A (session 1), B (2) and C (3) queue; A releases at 20, B is killed and expires at 30, C
    /// releases at 40.
    fn audit() -> Vec<AuditLine> {
        vec![
            line(10, 1, "create2", Some(A)),
            line(11, 2, "create", Some(B)),
            line(12, 3, "create2", Some(C)),
            line(20, 1, "delete", Some(A)),
            line(30, 2, "expireSession", None),
            line(40, 3, "delete", Some(C)),
        ]
    }

    fn claim(who: usize, word: Word, node: &str, token: i64, stamp: i64) -> Claim {
        Claim { who, word, node: node.to_string(), token, stamp }
    }

    fn claims() -> Vec<Claim> {
        vec![
            claim(0, Word::Held, A, 10, 13),
            claim(0, Word::Released, A, 10, 21),
            claim(1, Word::Held, B, 11, 22),
            claim(2, Word::Held, C, 12, 31),
            claim(2, Word::Released, C, 12, 41),
        ]
    }

    const ONE: Departure = Departure { waiting: 2, promised: 1, events: 1 };

    fn lies(audit: &[AuditLine], claims: &[Claim], departures: &[Departure]) -> Vec<Lie> {
        judge(audit, claims, departures, 1).iter().map(|violation| violation.lie).collect()
    }

    #[test]
    fn the_truth_is_believed() {
        assert_eq!(lies(&audit(), &claims(), &[ONE]), []);
    }

    #[test]
    fn two_holders_are_found() {
        let mut claims = claims();
        claims[2].stamp = 19; // B, while A has the lock
        claims.swap(1, 2);
        assert_eq!(lies(&audit(), &claims, &[ONE]), [Lie::TwoHolders]);
    }

    #[test]
    fn one_znode_that_two_claim_to_be_theirs_is_found() {
        let mut claims = claims();
        claims.insert(1, claim(1, Word::Held, A, 10, 14));
        assert_eq!(lies(&audit(), &claims, &[ONE]), [Lie::TwoHolders]);
    }

    #[test]
    fn a_grant_out_of_order_is_found() {
        let mut claims = claims();
        claims[3].stamp = 22; // C, when it is B's turn
        claims.swap(2, 3);
        claims[3].stamp = 23;
        assert_eq!(lies(&audit(), &claims, &[ONE]), [Lie::OutOfOrder, Lie::OutOfOrder]);
    }

    #[test]
    fn an_orphan_is_found_also_one_that_nobody_speaks_of() {
        let mut audit = audit();
        audit.insert(3, line(13, 4, "create2", Some("/l/lock-0000000003")));
        assert_eq!(lies(&audit, &claims(), &[ONE]), [Lie::Orphan]);
    }

    #[test]
    fn two_wake_ups_of_one_release_are_found_and_so_is_none() {
        for events in [0, 2] {
            assert_eq!(
                lies(&audit(), &claims(), &[ONE, Departure { events, ..ONE }]),
                [Lie::WakeUps]
            );
        }
    }

    #[test]
    fn a_token_of_another_transaction_is_found() {
        let mut claims = claims();
        claims[0].token = 9;
        assert_eq!(lies(&audit(), &claims, &[ONE]), [Lie::NeverCreated]);
        let mut audit = audit();
        audit[0].result = Err(lockkeeper_check::op::Code::NODE_EXISTS);
        assert!(lies(&audit, &self::claims(), &[ONE]).contains(&Lie::NeverCreated));
    }

    #[test]
    fn a_release_that_did_not_take_place_is_found() {
        let mut early = claims();
        early[1].stamp = 20;
        assert_eq!(lies(&audit(), &early, &[ONE]), [Lie::NotReleased]);
        let mut broken = audit();
        broken[3].session = 2; // somebody else removed it
        assert_eq!(lies(&broken, &claims(), &[ONE]), [Lie::NotReleased]);
    }

    #[test]
    fn holding_what_is_gone_is_found() {
        let mut claims = claims();
        claims[2].stamp = 32; // B's session has expired
        assert_eq!(lies(&audit(), &claims, &[ONE]), [Lie::HeldNothing]);
    }

    #[test]
    fn readers_hold_together_but_not_with_a_writer() {
        let names = [
            "/l/_c_a-__READ__0000000000",
            "/l/_c_b-__READ__0000000001",
            "/l/_c_c-__WRIT__0000000002",
        ];
        let names = names.map(|name| {
            let (start, rest) = name.split_at("/l/_c_".len());
            format!("{start}{}{rest}", "0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f5")
        });
        let create = |at: usize| line(10 + at as i64, at as i64, "create2", Some(&names[at]));
        let delete = |at: usize| line(20 + at as i64, at as i64, "delete", Some(&names[at]));
        let audit: Vec<_> = (0..3).map(create).chain((0..3).map(delete)).collect();
        let held = |at: usize, stamp| claim(at, Word::Held, &names[at], 10 + at as i64, stamp);
        assert_eq!(lies(&audit, &[held(1, 13), held(0, 14)], &[]), []);
        assert_eq!(lies(&audit, &[held(0, 13), held(2, 20)], &[]), [Lie::OutOfOrder]);
        assert_eq!(lies(&audit, &[held(1, 13), held(2, 20)], &[]), [Lie::TwoHolders]);
    }

    #[test]
    fn a_writer_that_goes_on_as_a_reader_is_believed_and_no_writer_beside_it() {
        let protection = "/l/_c_0af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55-";
        let writer = format!("{protection}__WRIT__0000000000");
        let reader = format!("{protection}__READ__0000000000");
        let next = format!("{protection}__WRIT__0000000001");
        let audit = [
            line(10, 1, "create2", Some(&writer)),
            line(11, 2, "create2", Some(&next)),
            line(20, 1, "multi", Some(&format!("{reader},{writer}"))),
            line(30, 1, "delete", Some(&reader)),
            line(40, 2, "delete", Some(&next)),
        ];
        let mut claims = [
            claim(0, Word::Held, &writer, 10, 12),
            claim(0, Word::Held, &reader, 10, 21),
            claim(0, Word::Released, &reader, 10, 31),
            claim(1, Word::Held, &next, 11, 32),
            claim(1, Word::Released, &next, 11, 41),
        ];
        assert_eq!(lies(&audit, &claims, &[]), []);
        claims[3].stamp = 22;
        claims.swap(2, 3);
        assert_eq!(lies(&audit, &claims, &[]), [Lie::TwoHolders]);
    }

    #[test]
    fn a_semaphore_has_as_many_holders_as_permits() {
        let held = [claim(0, Word::Held, A, 10, 13), claim(1, Word::Held, B, 11, 14)];
        assert!(judge(&audit(), &held, &[], 2).is_empty());
        let third = [held.to_vec(), vec![claim(2, Word::Held, C, 12, 15)]].concat();
        let violations = judge(&audit(), &third, &[], 2);
        assert_eq!(violations.iter().map(|one| one.lie).collect::<Vec<_>>(), [Lie::TwoHolders]);
    }

    #[test]
    fn locks_of_other_names_in_one_directory_do_not_exclude_each_other() {
        let other = "/l/_c_3af2b9d6-32cd-4bd0-8c9c-6c2f2f4d4f55-report-0000000003";
        let mut audit = audit();
        audit.insert(3, line(13, 4, "create2", Some(other)));
        audit.push(line(50, 4, "delete", Some(other)));
        let mut claims = claims();
        claims.insert(1, claim(3, Word::Held, other, 13, 14));
        assert_eq!(lies(&audit, &claims, &[ONE]), []);
    }
}
