//! What people look at: one file with everything in it that a browser needs.
//!
//! *Owns* the document. *Never* loads anything, runs nothing, and decides nothing: the words are those
//! of the judgement.

pub mod edn;
pub mod lanes;
mod plots;
pub mod svg;

use lockkeeper_check::audit::{AuditLog, join};
use lockkeeper_check::history::History;
use serde_json::Value;

use lanes::Led;
use svg::{Span, escape};

const STYLE: &str = "body{font:14px/1.45 system-ui,sans-serif;max-width:1140px;margin:24px auto;\
padding:0 16px;color:#1c2126;background:#fff}h1{font-size:22px}h2{font-size:17px;margin-top:28px}\
table{border-collapse:collapse}td,th{padding:3px 10px;border-bottom:1px solid #e3e6ea;\
text-align:left;vertical-align:top}figure{margin:6px 0}svg{width:100%;height:auto;\
background:#fafbfc;border:1px solid #e3e6ea}pre{white-space:pre-wrap;word-break:break-word;\
background:#f5f6f8;padding:8px;font-size:12px}.verdict{color:#fff;padding:2px 10px;\
border-radius:4px}.true{background:#1a7f37}.false{background:#c4232b}.unknown-verdict{\
background:#9a6700}.moot{background:#8b949e}.axis{font-size:11px;fill:#57606a}.bandname{\
font-size:10px;fill:#7a4b00}.inbar{font-size:10px;fill:#fff}.level{stroke:#e3e6ea}\
.band{fill:#f0b429;opacity:.18}.band.pause{fill:#2f81f7}.band.partition{fill:#a371f7}\
polyline{fill:none;stroke-width:1.4}.worst{stroke:#c9ced6}.p95{stroke:#e08a1e}\
.p50{stroke:#1f6feb}.rate-ok{stroke:#1a7f37}.rate-fail{stroke:#e08a1e}.rate-unknown{\
stroke:#c4232b}.unknown{fill:#c4232b}.holds{fill:#1f6feb}.reads{fill:#2da44e}.overlap{\
fill:#d1242f}.asleep{fill:#d0d7de}.expired{fill:#000}.leader{fill:#57606a}.n1{fill:#1f6feb}\
.n2{fill:#2da44e}.n3{fill:#bf5700}.n4{fill:#8250df}.n5{fill:#bf3989}.term{fill:#6e7781}\
.key span{padding:0 6px;margin-right:12px;border-left:10px solid}.hit{font-weight:bold;\
color:#c4232b}";

/// What there is to show.
#[derive(Clone, Copy, Debug)]
pub struct Material<'a> {
    /// `test.json`.
    pub test: &'a Value,
    /// `results.json`.
    pub results: &'a Value,
    pub history: &'a History,
    pub audit: &'a [AuditLog],
}

/// The document.
#[must_use]
pub fn html(material: Material<'_>) -> String {
    let Material { test, results, history, audit } = material;
    let end_ns = end(history).max(1);
    let span = Span { from_ns: 0, to_ns: end_ns };
    let bands = svg::bands(history, end_ns);
    let lines = join(audit).unwrap_or_default();
    let began_at_ms = test["case"]["began_at_ms"].as_i64().unwrap_or_default();
    let title = format!(
        "{} with {} under {}, seed {}",
        words(&test["workload"]),
        words(&test["server"]),
        words(&test["nemesis"]),
        words(&test["seed"])
    );
    let title = escape(&title);
    let parts = [
        format!("<h1>{title} {}</h1>\n", badge(&results["valid"])),
        settings(test, results),
        first_violation(results),
        "<h2>Checks</h2>\n".to_owned(),
        checks(results),
        "<h2>Latency</h2>\n".to_owned(),
        key(&[("#1f6feb", "median"), ("#e08a1e", "95 %"), ("#c9ced6", "worst")]),
        plots::latencies(history, span, &bands),
        "<h2>Rate</h2>\n".to_owned(),
        key(&[("#1a7f37", "ok"), ("#e08a1e", "refused"), ("#c4232b", "unknown outcome")]),
        plots::rates(history, span, &bands),
        "<h2>Leaders and terms</h2>\n".to_owned(),
        lanes::leaders(&lines, &led(test), began_at_ms, span, &bands),
        locks(history, span, &bands),
        "<h2>What happened</h2>\n".to_owned(),
        table(&results["coverage"]),
    ];
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <link rel=\"icon\" href=\"data:,\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>\n{}</body></html>\n",
        parts.concat()
    )
}

/// When the last thing happened.
fn end(history: &History) -> u64 {
    let operations =
        history.operations.iter().map(|one| one.completed().unwrap_or(one.invoked).time_ns);
    let notices = history.notices.iter().map(|notice| notice.at.time_ns);
    operations.chain(notices).max().unwrap_or_default()
}

/// A value without quotes.
fn words(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn badge(valid: &Value) -> String {
    let (class, word) = match valid {
        Value::Bool(true) => ("true", "valid"),
        Value::Bool(false) => ("false", "INVALID"),
        Value::String(word) if word == "moot" => ("moot", "nothing to judge"),
        _ => ("unknown-verdict", "unknown"),
    };
    format!("<span class=\"verdict {class}\">{word}</span>")
}

fn key(entries: &[(&str, &str)]) -> String {
    let entry = |(colour, text): &(&str, &str)| {
        format!("<span style=\"border-color:{colour}\">{}</span>", escape(text))
    };
    format!("<p class=\"key\">{}</p>\n", entries.iter().map(entry).collect::<String>())
}

fn settings(test: &Value, results: &Value) -> String {
    let of = |name: &str| escape(&words(&test[name]));
    let list = |value: &Value| {
        let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
        items.iter().map(|item| format!("<li>{}</li>", escape(&words(item)))).collect::<String>()
    };
    let mut out = format!(
        "<p>{} servers, {} clients, {} s, {} steps/s, session timeout {} ms. Operations: {}.</p>\n",
        of("nodes"),
        of("clients"),
        of("time_limit_s"),
        of("rate"),
        of("session_timeout_ms"),
        escape(&words(&results["operations"]))
    );
    out.push_str(&format!("<ul>{}</ul>\n", list(&test["plan"])));
    let skipped = list(&results["skipped"]);
    if !skipped.is_empty() {
        out.push_str(&format!(
            "<p>Not offered by the machine, and skipped:</p><ul>{skipped}</ul>\n"
        ));
    }
    out
}

/// The first check that found something, with what stands around it.
fn first_violation(results: &Value) -> String {
    let checks = results["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(broken) = checks.iter().find(|check| check["valid"] == Value::Bool(false)) else {
        return String::new();
    };
    let what = &broken["what"];
    let around = what["around"].as_array().map(Vec::as_slice).unwrap_or_default();
    let line = |line: &Value| {
        let text = words(line);
        let class = if text.starts_with("> ") { "hit" } else { "near" };
        format!("<span class=\"{class}\">{}</span>\n", escape(&text))
    };
    format!(
        "<h2 id=\"violation\">First violation: {} ({})</h2>\n<p>{}</p>\n<pre>{}</pre>\n",
        escape(&words(&broken["check"])),
        escape(&words(&what["rule"])),
        escape(&words(&what["what"])),
        around.iter().map(line).collect::<String>()
    )
}

fn checks(results: &Value) -> String {
    let rows = results["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |check: &Value| {
        let what = match &check["what"] {
            Value::Null => String::new(),
            Value::Object(violation) => violation.get("what").map(words).unwrap_or_default(),
            other => words(other),
        };
        let (name, badge) = (escape(&words(&check["check"])), badge(&check["valid"]));
        format!("<tr><td>{name}</td><td>{badge}</td><td>{}</td></tr>\n", escape(&what))
    };
    format!("<table id=\"checks\">{}</table>\n", rows.iter().map(row).collect::<String>())
}

fn table(value: &Value) -> String {
    let rows = value.as_object().into_iter().flatten().map(|(name, value)| {
        format!("<tr><td>{}</td><td>{}</td></tr>\n", escape(name), escape(&words(value)))
    });
    format!("<table id=\"coverage\">{}</table>\n", rows.collect::<String>())
}

fn locks(history: &History, span: Span, bands: &[svg::Band]) -> String {
    let drawn = lanes::locks(history, span, bands);
    if drawn.is_empty() {
        return drawn;
    }
    let key = key(&[
        ("#1f6feb", "holds"),
        ("#2da44e", "shares"),
        ("#d1242f", "two believe"),
        ("#d0d7de", "asleep"),
        ("#000", "is told that its session is over"),
    ]);
    let say = "<p>Bars are what clients believed. Two may believe at once only while the first cannot \
               know better; the store that asks for tokens refuses it then.</p>\n";
    format!("<h2>Locks</h2>\n{say}{key}{drawn}")
}

/// Who led, as `test.json` has it.
fn led(test: &Value) -> Vec<Led> {
    let entries = test["leaders"].as_array().map(Vec::as_slice).unwrap_or_default();
    let one = |entry: &Value| {
        let from_ns = entry["from_ns"].as_u64()?;
        Some(Led { from_ns, leader: entry["leader"].as_str().map(str::to_owned) })
    };
    entries.iter().filter_map(one).collect()
}
