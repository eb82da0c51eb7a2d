//! The judgement of a run: its evidence put before the checker, and the results in words and JSON.
//!
//! *Owns* `test.json`'s part that the judge must know, so that an old run can be judged again, and
//! `results.json`. *Invariant*: what was skipped is named in the results.

use lockkeeper_check::audit::{AuditLog, join};
use lockkeeper_check::coverage::{self, Event, Planned};
use lockkeeper_check::history::{History, Outcome};
use lockkeeper_check::session_timing;
use lockkeeper_check::trial::{self, Evidence, Known, Opinion};
use lockkeeper_check::verdict::{Rule, Verdict, Violation};
use lockkeeper_check::witness;
use serde_json::{Map, Value, json};

/// What the judge must know beside the history and the servers' accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Case {
    /// The servers' clock when the journal's was 0, milliseconds since the epoch.
    pub began_at_ms: i64,
    /// How much later than its time a session may end, beside what elections and faults add.
    pub late_ms: i64,
    /// There is one server, and no elections.
    pub is_alone: bool,
    pub planned: Vec<Planned>,
    pub required: Vec<String>,
    /// Servers that ended by themselves.
    pub crashes: Vec<String>,
    /// What servers sent that is no answer.
    pub oddities: Vec<String>,
    /// Faults and parts of the run that this machine does not offer.
    pub skipped: Vec<String>,
    /// The software under test is not Lockkeeper.
    pub is_control: bool,
    /// The servers' clocks were made to jump.
    pub clocks_differ: bool,
    /// Servers that left before the end.
    pub departed: Vec<String>,
    /// Checks that the software under test is known to fail under these faults; only a control has any.
    pub allowed: Vec<String>,
    /// When a leader of the software under test may have ended sessions that it could not hear of,
    /// milliseconds of the run; only a control has any.
    pub deaf_ms: Vec<(i64, i64)>,
}

/// How far the clock of a server on this machine may be from ours: the time between reading a clock
/// and writing down what was read, on a busy machine.
const CLOCK_ERROR_MS: i64 = 100;
/// Events of the coverage by name, as `test.json` and `results.json` have them.
const EVENTS: [(Event, &str); 9] = [
    (Event::Answered, "answered"),
    (Event::Unknown, "unknown"),
    (Event::Expiry, "expiry"),
    (Event::Election, "election"),
    (Event::ClockJump, "clock-jump"),
    (Event::Reconnect, "reconnect"),
    (Event::WatchFired, "watch-fired"),
    (Event::LockGranted, "lock-granted"),
    (Event::LostWithoutFencing, "lost-without-fencing"),
];
/// Before the name of a fault.
const FAULT: &str = "fault:";

/// The name of an event.
#[must_use]
pub fn event_name(event: &Event) -> String {
    match event {
        Event::Fault(name) => format!("{FAULT}{name}"),
        other => {
            let known = EVENTS.iter().find(|(event, _)| event == other);
            known.expect("all but faults are there").1.to_owned()
        }
    }
}

fn event(name: &str) -> Option<Event> {
    if let Some(fault) = name.strip_prefix(FAULT) {
        return Some(Event::Fault(fault.to_owned()));
    }
    EVENTS.iter().find(|(_, known)| *known == name).map(|(event, _)| event.clone())
}

impl Case {
    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let planned: Map<String, Value> = self
            .planned
            .iter()
            .map(|planned| (event_name(&planned.event), json!(planned.at_least)))
            .collect();
        json!({
            "began_at_ms": self.began_at_ms, "late_ms": self.late_ms, "planned": planned,
            "required": self.required, "crashes": self.crashes, "oddities": self.oddities,
            "skipped": self.skipped, "allowed": self.allowed, "departed": self.departed,
            "is_control": self.is_control, "is_alone": self.is_alone,
            "clocks_differ": self.clocks_differ, "deaf_ms": self.deaf_ms,
        })
    }

    /// Reads what `to_json` has written.
    ///
    /// # Errors
    /// A field is missing or wrong.
    pub fn from_json(value: &Value) -> Result<Self, String> {
        let number =
            |name: &str| value[name].as_i64().ok_or_else(|| format!("case.{name} is no number"));
        let texts = |name: &str| {
            let list = value[name].as_array().ok_or_else(|| format!("case.{name} is no list"))?;
            let texts = list.iter().map(|text| text.as_str().map(str::to_owned));
            texts.collect::<Option<Vec<_>>>().ok_or_else(|| format!("case.{name} is no texts"))
        };
        let spans = value["deaf_ms"].as_array().into_iter().flatten().map(|span| {
            span[0].as_i64().zip(span[1].as_i64()).ok_or("case.deaf_ms has what is no span")
        });
        let planned = value["planned"].as_object().ok_or("case.planned is no object")?;
        let planned = planned.iter().map(|(name, at_least)| {
            let event = event(name).ok_or_else(|| format!("case.planned: no event {name}"))?;
            let at_least = at_least.as_u64().ok_or("case.planned has what is no number")?;
            Ok(Planned { event, at_least })
        });
        Ok(Self {
            began_at_ms: number("began_at_ms")?,
            late_ms: number("late_ms")?,
            planned: planned.collect::<Result<_, String>>()?,
            required: texts("required")?,
            crashes: texts("crashes")?,
            oddities: texts("oddities")?,
            skipped: texts("skipped")?,
            // Runs of earlier harnesses had none of these.
            is_alone: value["is_alone"].as_bool().unwrap_or_default(),
            is_control: value["is_control"].as_bool().unwrap_or_default(),
            clocks_differ: value["clocks_differ"].as_bool().unwrap_or_default(),
            departed: texts("departed").unwrap_or_default(),
            allowed: texts("allowed")?,
            deaf_ms: spans.collect::<Result<_, _>>()?,
        })
    }

    /// Judges.
    #[must_use]
    pub fn judge(&self, history: &History, audit: &[AuditLog]) -> Vec<Opinion> {
        let timing = session_timing::Settings {
            started_at_ms: (!self.clocks_differ).then_some(self.began_at_ms),
            clock_error_ms: CLOCK_ERROR_MS,
            late_ms: self.late_ms,
            is_alone: self.is_alone,
        };
        let known = Known { ends_twice: self.is_control, deaf_ms: self.deaf_ms.clone() };
        let required: Vec<&str> = self.required.iter().map(String::as_str).collect();
        let mut opinions = trial::judge(&Evidence {
            history,
            audit,
            witness: witness::Settings { extended_types: true, ..Default::default() },
            timing,
            known: &known,
            departed: &self.departed,
            planned: &self.planned,
            required: &required,
        });
        for opinion in opinions.iter_mut().filter(|one| self.allowed.iter().any(|a| a == one.check))
        {
            if let Verdict::Invalid(violation) = &opinion.verdict {
                let why = format!("allowed, for it is known of it: {violation}");
                opinion.verdict = Verdict::Moot(why);
            }
        }
        // Without an account nobody knows which unknown operations took effect; the search does not
        // need to.
        for opinion in opinions.iter_mut().filter(|one| one.check == "witness" && audit.is_empty())
        {
            if let Verdict::Unknown(why) = &opinion.verdict {
                opinion.verdict = Verdict::Moot(format!("the servers give no account, and {why}"));
            }
        }
        let beside = |check: &'static str, rule: Rule, what: &[String]| {
            let verdict = match what.split_first() {
                None => Verdict::Valid,
                Some((first, others)) => Verdict::Invalid(Violation {
                    rule,
                    what: first.clone(),
                    around: others.to_vec(),
                }),
            };
            Opinion { check, verdict }
        };
        opinions.push(beside("crash", Rule::Crash, &self.crashes));
        opinions.push(beside("wire", Rule::Wire, &self.oddities));
        opinions
    }
}

/// A verdict's word in the results.
fn word(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Valid => json!(true),
        Verdict::Invalid(_) => json!(false),
        Verdict::Unknown(_) => json!("unknown"),
        Verdict::Moot(_) => json!("moot"),
    }
}

/// The results as JSON.
#[must_use]
pub fn results(case: &Case, opinions: &[Opinion], history: &History, audit: &[AuditLog]) -> Value {
    let verdict = trial::verdict(opinions);
    let checks: Vec<Value> = opinions
        .iter()
        .map(|opinion| {
            let what = match &opinion.verdict {
                Verdict::Valid => Value::Null,
                Verdict::Invalid(violation) => json!({
                    "rule": violation.rule.name(), "what": violation.what,
                    "around": violation.around,
                }),
                Verdict::Unknown(reason) | Verdict::Moot(reason) => json!(reason),
            };
            json!({"check": opinion.check, "valid": word(&opinion.verdict), "what": what})
        })
        .collect();
    let (mut ok, mut fail, mut info) = (0, 0, 0);
    for operation in &history.operations {
        match &operation.outcome {
            Outcome::Replied { result: Ok(_), .. } => ok += 1,
            Outcome::Replied { result: Err(_), .. } | Outcome::NotSent { .. } => fail += 1,
            Outcome::Unknown { .. } => info += 1,
        }
    }
    let joined = join(audit).ok().filter(|_| !audit.is_empty());
    let counts: Map<String, Value> = coverage::count(history, joined.as_deref())
        .iter()
        .map(|(event, times)| (event_name(event), json!(times)))
        .collect();
    json!({
        "valid": word(&verdict), "checks": checks, "skipped": case.skipped,
        "operations": {"ok": ok, "fail": fail, "info": info},
        "coverage": counts, "transactions": joined.map(|lines| lines.len()),
    })
}

/// The process's exit code for a verdict: 0, 1 for a violation, 2 for not known.
#[must_use]
pub fn exit_code(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Valid => 0,
        Verdict::Invalid(_) => 1,
        Verdict::Unknown(_) | Verdict::Moot(_) => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_survives_its_json() {
        let case = Case {
            began_at_ms: 7,
            late_ms: 8,
            is_alone: true,
            planned: vec![
                Planned { event: Event::Answered, at_least: 3 },
                Planned { event: Event::Fault("kill".to_owned()), at_least: 1 },
            ],
            required: vec!["witness".to_owned()],
            crashes: vec!["n1".to_owned()],
            oddities: Vec::new(),
            skipped: vec!["partition".to_owned()],
            is_control: true,
            clocks_differ: true,
            departed: vec!["n4".to_owned()],
            allowed: vec!["sync".to_owned()],
            deaf_ms: vec![(5, 70)],
        };
        assert_eq!(Case::from_json(&case.to_json()), Ok(case));
    }
}
