//! The verbs of quotas: listquota, setquota, delquota.
//!
//! *Owns* which znodes make a quota and in which order they come and go. *Invariant*: quotas do not lie
//! within each other. Reproduces `SetQuotaCommand`, `DelQuotaCommand` and `ListQuotaCommand`.

use bytes::Bytes;

use super::failure::Failure;
use super::given::Given;
use super::output::Answer;
use super::state::{Outcome, Shell};
use super::znodes::{Znodes, data};
use crate::proto::request::{Create, CreateKind};
use crate::proto::{Acl, ErrorCode, Request, Response, Text};
use crate::tree::Figures;
use crate::tree::path::QUOTA;

const LIMITS: &str = "zookeeper_limits";
const USAGE: &str = "zookeeper_stats";
/// Flags, and what they limit.
const FLAGS: [(&str, char, &str); 4] = [
    ("n", 'n', "count"),
    ("b", 'b', "bytes"),
    ("N", 'N', "countHardLimit"),
    ("B", 'B', "byteHardLimit"),
];

pub(super) fn list(shell: &mut Shell, given: &Given) -> Outcome {
    let path = given.path();
    let quotas = Quotas::new(shell.znodes()?, path)?;
    let (limits, usage) = match (quotas.figures(LIMITS)?, quotas.figures(USAGE)?) {
        (Some(limits), Some(usage)) => (limits.text(), usage.text()),
        (None, _) | (_, None) => {
            return Err(Failure::refused(format!("quota for {path} does not exist.")));
        }
    };
    let answer = Answer::default().line(format!("Output quota for {path} {limits}"));
    let answer = answer.line(format!("Output stat for {path} {usage}"));
    Ok(answer.field("path", path).field("limits", limits).field("usage", usage))
}

pub(super) fn set(shell: &mut Shell, given: &Given) -> Outcome {
    let path = given.path();
    let mut wanted = Vec::new();
    for (flag, _, key) in FLAGS {
        if let Some(limit) = given.number::<i64>(flag)? {
            let least = if key.starts_with("count") { 1 } else { 0 };
            if limit < least {
                return Err(Failure::usage(format!("-{flag}: the quota is at least {least}")));
            }
            wanted.push((key, limit));
        }
    }
    let [(key, limit)] = wanted[..] else {
        return Err(Failure::usage("setquota: expected one of -n, -b, -N and -B"));
    };
    let quotas = Quotas::new(shell.znodes()?, path)?;
    quotas.znodes.stat(path, false)?;
    quotas.refuse_within_others()?;
    let limits = match quotas.figures(LIMITS)? {
        Some(mut limits) => {
            limits.set(key, limit);
            quotas.write(&limits)?;
            limits
        }
        None => {
            let mut limits = none();
            limits.set(key, limit);
            quotas.make(&limits)?;
            limits
        }
    };
    let answer = Answer::default().field("path", path).field("limits", limits.text());
    Ok(match quotas.figures(USAGE)? {
        Some(usage) => warnings(&limits, &usage).iter().fold(answer, Answer::line),
        None => answer,
    })
}

pub(super) fn delete(shell: &mut Shell, given: &Given) -> Outcome {
    let path = given.path();
    let quotas = Quotas::new(shell.znodes()?, path)?;
    let Some(mut limits) = quotas.figures(LIMITS)? else {
        return Err(Failure::refused(format!("Quota does not exist for {path}")));
    };
    let answer = Answer::default().field("path", path);
    let given: Vec<&str> =
        FLAGS.iter().filter(|(_, flag, _)| given.has(*flag)).map(|(_, _, key)| *key).collect();
    match given[..] {
        [] => {
            quotas.delete()?;
            Ok(answer)
        }
        [key] => {
            limits.set(key, -1);
            quotas.write(&limits)?;
            Ok(answer.field("limits", limits.text()))
        }
        [..] => Err(Failure::usage("delquota: expected at most one of -n, -b, -N and -B")),
    }
}

/// No limits.
fn none() -> Figures {
    let mut figures = Figures::default();
    for (_, _, key) in FLAGS {
        figures.set(key, -1);
    }
    figures
}

/// What is exceeded already.
fn warnings(limits: &Figures, usage: &Figures) -> Vec<String> {
    let exceeded = |limit: &str, used: &str| {
        let limit = limits.figure(limit);
        limit > -1 && limit < usage.figure(used)
    };
    let mut warnings = Vec::new();
    for (name, soft, hard) in
        [("count", "count", "countHardLimit"), ("bytes", "bytes", "byteHardLimit")]
    {
        if exceeded(soft, name) || exceeded(hard, name) {
            let used = usage.figure(name);
            warnings.push(format!(
                "[Warning]: the {name} quota you create is less than the existing {name}:{used}"
            ));
        }
    }
    warnings
}

/// The quota of a path. Its znodes lie outside of the user's root.
struct Quotas<'a> {
    znodes: &'a Znodes,
    /// The path as the user knows it.
    path: &'a str,
    /// Where limits and usage lie.
    home: String,
}

impl<'a> Quotas<'a> {
    fn new(znodes: &'a Znodes, path: &'a str) -> Result<Self, Failure> {
        let at = znodes.at(path)?;
        let at = at.as_str();
        if at == "/" || at == QUOTA || at.starts_with(&format!("{QUOTA}/")) {
            return Err(Failure::usage(format!("{path} cannot have a quota")));
        }
        Ok(Self { znodes, path, home: format!("{QUOTA}{at}") })
    }

    fn ask(&self, at: &str, request: impl FnOnce(Text) -> Request) -> Result<Response, Failure> {
        self.znodes.ask(at, &request(Text::copy_from(at)))
    }

    /// Limits or usage, if there are any.
    fn figures(&self, name: &str) -> Result<Option<Figures>, Failure> {
        self.figures_at(&format!("{}/{name}", self.home))
    }

    fn figures_at(&self, at: &str) -> Result<Option<Figures>, Failure> {
        match self.ask(at, |path| Request::GetData { path, watch: false }).and_then(data) {
            Ok((text, _)) => {
                let figures = Figures::parse(&text.unwrap_or_default());
                let wrong = || Failure::refused(format!("{at} does not hold the text of a quota"));
                figures.ok_or_else(wrong).map(Some)
            }
            Err(failure) if failure.is_no_node() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn children(&self, at: &str) -> Result<Vec<String>, Failure> {
        match self.ask(at, |path| Request::GetChildren { path, watch: false, stat: false }) {
            Ok(Response::Names(names)) => {
                Ok(names.iter().map(|name| name.as_str().to_string()).collect())
            }
            Ok(other) => Err(super::znodes::odd(other)),
            Err(failure) if failure.is_no_node() => Ok(Vec::new()),
            Err(failure) => Err(failure),
        }
    }

    /// Only the deepest quota above a znode counts it: one within another would undo that.
    fn refuse_within_others(&self) -> Result<(), Failure> {
        let other = |what: &str, home: &str| {
            let at = &home[QUOTA.len()..];
            let at = self.znodes.shown(at);
            Failure::refused(format!("{} has a {what} {at} which has a quota", self.path))
        };
        let ends = self.home.match_indices('/').map(|(at, _)| at);
        for end in ends.filter(|end| *end > QUOTA.len()) {
            let parent = &self.home[..end];
            if self.figures_at(&format!("{parent}/{LIMITS}"))?.is_some() {
                return Err(other("parent", parent));
            }
        }
        let mut unvisited = vec![self.home.clone()];
        while let Some(home) = unvisited.pop() {
            for name in self.children(&home)? {
                if name == LIMITS && home != self.home {
                    return Err(other("child", &home));
                }
                if name != LIMITS && name != USAGE {
                    unvisited.push(format!("{home}/{name}"));
                }
            }
        }
        Ok(())
    }

    fn make(&self, limits: &Figures) -> Result<(), Failure> {
        let ends = self.home.match_indices('/').map(|(at, _)| at);
        for end in ends.filter(|end| *end > QUOTA.len()).chain([self.home.len()]) {
            self.create(&self.home[..end], None)?;
        }
        self.create(&format!("{}/{LIMITS}", self.home), Some(limits))?;
        // The server counts when this one appears.
        let mut usage = Figures::default();
        usage.set("count", 0);
        usage.set("bytes", 0);
        self.create(&format!("{}/{USAGE}", self.home), Some(&usage))
    }

    /// That it is there already is fine.
    fn create(&self, at: &str, figures: Option<&Figures>) -> Result<(), Failure> {
        let data = figures.map(|figures| Bytes::from(figures.text()));
        let acl = Some(vec![Acl::open()]);
        let (kind, flags, ttl_ms) = (CreateKind::Create, 0, 0);
        let created =
            self.ask(at, |path| Request::Create(Create { kind, path, data, acl, flags, ttl_ms }));
        match created {
            Ok(_) => Ok(()),
            Err(failure) if failure.code == Some(ErrorCode::NodeExists.wire()) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    fn write(&self, limits: &Figures) -> Result<(), Failure> {
        let at = format!("{}/{LIMITS}", self.home);
        let data = Some(Bytes::from(limits.text()));
        self.ask(&at, |path| Request::SetData { path, data, version: -1 })?;
        Ok(())
    }

    /// Limits, usage, and the parents that no other quota needs.
    fn delete(&self) -> Result<(), Failure> {
        let delete = |at: &str| match self.ask(at, |path| Request::Delete { path, version: -1 }) {
            Err(failure) if !failure.is_no_node() => Err(failure),
            Ok(_) | Err(_) => Ok(()),
        };
        for name in [USAGE, LIMITS] {
            delete(&format!("{}/{name}", self.home))?;
        }
        let mut home = self.home.as_str();
        while home != QUOTA && self.children(home)?.is_empty() {
            delete(home)?;
            home = home.rsplit_once('/').map_or(QUOTA, |(parent, _)| parent);
        }
        Ok(())
    }
}
