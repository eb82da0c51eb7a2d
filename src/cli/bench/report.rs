//! The figures of a run, for people and for programs.

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::bench::{Lives, Outcome, Plan, milliseconds};

/// The quantiles that are shown, and what each is called.
const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// What was asked for, and what it came to.
pub(super) struct Report {
    pub workload: String,
    pub plan: Plan,
    pub figures: Figures,
    /// It was ended before its time.
    pub interrupted: bool,
    /// Memory of the servers before, if their processes are known.
    pub rss_before_mib: f64,
}

/// What was measured.
pub(super) enum Figures {
    Load(Outcome),
    Lives(Lives),
}

impl Report {
    /// For people: a line per figure.
    pub(super) fn text(&self) -> String {
        match &self.figures {
            Figures::Load(outcome) => self.load_text(outcome),
            Figures::Lives(lives) => self.lives_text(lives),
        }
    }

    /// For programs: one object.
    pub(super) fn json(&self) -> Value {
        match &self.figures {
            Figures::Load(outcome) => self.load_json(outcome),
            Figures::Lives(lives) => self.lives_json(lives),
        }
    }

    fn load_text(&self, outcome: &Outcome) -> String {
        let plan = &self.plan;
        let threads =
            if plan.threads > 1 { format!(", {} threads", plan.threads) } else { String::new() };
        let mut out = format!(
            "{}: {} clients x {} in flight{threads}, {} bytes, {:.1} s\n",
            self.workload, plan.connections, plan.depth, plan.size, outcome.seconds
        );
        let mut line = |name: &str, value: String| {
            writeln!(out, "  {name:<14} {value}").expect("writing to a string cannot fail");
        };
        line("operations", format!("{}  {:.0}/s", outcome.ops, outcome.per_second()));
        if let Some(rate) = plan.rate {
            line("asked for", format!("{rate}/s; {} due and not sent at the end", outcome.unsent));
        }
        line("latency ms", quantiles(&outcome.latencies));
        if let Some(contention) = &outcome.contention {
            line("acquire ms", quantiles(&contention.acquires));
            if !contention.handoffs.is_empty() {
                line("hand-off ms", quantiles(&contention.handoffs));
            }
        }
        if plan.work.contends() {
            let received = outcome.events_per_release().unwrap_or(f64::NAN);
            let sent = outcome.contention.as_ref().and_then(|c| c.server_events_per_release());
            let sent = sent.map_or_else(
                || "the servers do not say (mntr)".to_owned(),
                |sent| format!("{sent:.3} by the servers' count"),
            );
            line("notifications", format!("{received:.3} received per release; {sent}"));
        }
        line("CPU us/op", self.cpu(outcome));
        if !plan.pids.is_empty() {
            line("by thread", by_thread(outcome));
            let (before, after) = (self.rss_before_mib, outcome.server_rss_mib);
            line("servers' MiB", format!("{before:.1} before, {after:.1} after"));
        }
        out
    }

    fn cpu(&self, outcome: &Outcome) -> String {
        let tool = format!("{:.2} of this tool", outcome.client_us());
        if self.plan.pids.is_empty() {
            return tool;
        }
        let others = outcome.other_cpu / outcome.seconds;
        let stolen = outcome.stolen_cpu / outcome.seconds;
        let servers = outcome.server_us();
        format!(
            "{servers:.2} of the servers, {tool}; others {others:.2} processors, stolen {stolen:.2}"
        )
    }

    fn load_json(&self, outcome: &Outcome) -> Value {
        let plan = &self.plan;
        let mut all = json!({
            "workload": self.workload, "clients": plan.connections, "pipeline": plan.depth,
            "threads": plan.threads, "size": plan.size, "seconds": outcome.seconds, "operations": outcome.ops,
            "per_second": outcome.per_second(), "latency_ms": quantiles_json(&outcome.latencies),
            "tool_cpu_us": outcome.client_us(), "interrupted": self.interrupted,
        });
        if let Some(rate) = plan.rate {
            all["rate"] = json!(rate);
            all["unsent"] = json!(outcome.unsent);
        }
        if let Some(contention) = &outcome.contention {
            all["acquire_ms"] = quantiles_json(&contention.acquires);
            all["handoff_ms"] = quantiles_json(&contention.handoffs);
            all["events_per_release"] = json!(outcome.events_per_release());
            all["server_events_per_release"] = json!(contention.server_events_per_release());
        }
        if !plan.pids.is_empty() {
            all["server_cpu_us"] = json!(outcome.server_us());
            let each = outcome.server_threads.iter();
            let each = each.map(|thread| (thread.name.clone(), json!(outcome.us(thread.seconds))));
            all["server_thread_cpu_us"] = Value::Object(each.collect());
            all["other_cpu"] = json!(outcome.other_cpu / outcome.seconds);
            all["stolen_cpu"] = json!(outcome.stolen_cpu / outcome.seconds);
            all["server_rss_before_mib"] = json!(self.rss_before_mib);
            all["server_rss_mib"] = json!(outcome.server_rss_mib);
        }
        all
    }

    fn lives_text(&self, lives: &Lives) -> String {
        let plan = &self.plan;
        let mut out = format!(
            "{}: {}, {} opened at a time, in {:.1} s\n",
            self.workload, lives.opened, plan.depth, lives.seconds
        );
        let mut line = |name: &str, value: String| {
            writeln!(out, "  {name:<14} {value}").expect("writing to a string cannot fail");
        };
        let each = lives.opened.max(1) as f64;
        line("opened", format!("{:.0}/s", lives.opened as f64 / lives.seconds));
        line("open ms", quantiles(&lives.opens));
        line("create ms", quantiles(&lives.creates));
        if let Some((first, last)) = lives.gone {
            line(
                "gone",
                format!(
                    "{:.2} to {:.2} s after their connections; the timeout is {:.2} s",
                    first.as_secs_f64(),
                    last.as_secs_f64(),
                    lives.timeout.as_secs_f64()
                ),
            );
        }
        line("CPU us each", format!("{:.1} of this tool", lives.client_cpu * 1e6 / each));
        if !plan.pids.is_empty() {
            line("", format!("{:.1} of the servers", lives.server_cpu * 1e6 / each));
            let (before, after) = (self.rss_before_mib, lives.server_rss_mib);
            line("servers' MiB", format!("{before:.1} before, {after:.1} with all"));
        }
        out
    }

    fn lives_json(&self, lives: &Lives) -> Value {
        let plan = &self.plan;
        let each = lives.opened.max(1) as f64;
        let mut all = json!({
            "workload": self.workload, "clients": plan.connections, "pipeline": plan.depth,
            "seconds": lives.seconds, "operations": lives.opened,
            "per_second": lives.opened as f64 / lives.seconds,
            "latency_ms": quantiles_json(&lives.opens), "create_ms": quantiles_json(&lives.creates),
            "session_timeout_seconds": lives.timeout.as_secs_f64(),
            "tool_cpu_us": lives.client_cpu * 1e6 / each, "interrupted": self.interrupted,
        });
        if let Some((first, last)) = lives.gone {
            all["first_gone_seconds"] = json!(first.as_secs_f64());
            all["last_gone_seconds"] = json!(last.as_secs_f64());
        }
        if !plan.pids.is_empty() {
            all["server_cpu_us"] = json!(lives.server_cpu * 1e6 / each);
            all["server_rss_before_mib"] = json!(self.rss_before_mib);
            all["server_rss_mib"] = json!(lives.server_rss_mib);
        }
        all
    }
}

/// CPU of the servers' threads by name, without those that have used a hundredth of it or less.
fn by_thread(outcome: &Outcome) -> String {
    let each = outcome.server_threads.iter();
    let each = each.filter(|thread| thread.seconds > outcome.server_cpu / 100.0);
    let shown: Vec<String> =
        each.map(|thread| format!("{} {:.2}", thread.name, outcome.us(thread.seconds))).collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join("  ") }
}

fn quantiles(histogram: &Histogram<u64>) -> String {
    if histogram.is_empty() {
        return "none".to_owned();
    }
    let shown: Vec<String> = QUANTILES
        .iter()
        .map(|(name, quantile)| format!("{name} {:.3}", milliseconds(histogram, *quantile)))
        .collect();
    shown.join("  ")
}

fn quantiles_json(histogram: &Histogram<u64>) -> Value {
    if histogram.is_empty() {
        return Value::Null;
    }
    let shown = QUANTILES
        .iter()
        .map(|(name, quantile)| ((*name).to_owned(), json!(milliseconds(histogram, *quantile))));
    Value::Object(shown.collect())
}
