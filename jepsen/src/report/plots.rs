//! Latencies and rates over time.

use lockkeeper_check::history::{History, Outcome};
use lockkeeper_check::op::Call;

use super::svg::{Band, Panel, Span, TOP};

/// Points along the axis.
const BUCKETS: usize = 200;
/// Height of a plot, pixels.
const HEIGHT: f64 = 150.0;
/// What a latency plot reaches to: 0.1 ms to 10 s, in powers of ten.
const DECADES: [&str; 6] = ["0.1 ms", "1 ms", "10 ms", "100 ms", "1 s", "10 s"];

/// What happened in a stretch of time.
#[derive(Clone, Debug, Default)]
struct Bucket {
    latencies_ns: Vec<u64>,
    ok: u64,
    fail: u64,
    unknown: u64,
}

fn buckets(history: &History, span: Span) -> Vec<Bucket> {
    let mut buckets = vec![Bucket::default(); BUCKETS];
    let length = (span.to_ns - span.from_ns).max(1);
    for operation in history.operations.iter().filter(|operation| operation.call != Call::Ping) {
        let end = operation.completed().map_or(span.to_ns, |at| at.time_ns);
        let inside = u128::from(end.clamp(span.from_ns, span.to_ns) - span.from_ns);
        let at = inside * BUCKETS as u128 / u128::from(length);
        let bucket = &mut buckets[usize::try_from(at).unwrap_or(BUCKETS).min(BUCKETS - 1)];
        match &operation.outcome {
            Outcome::Replied { result, .. } => {
                bucket.latencies_ns.push(end - operation.invoked.time_ns);
                match result {
                    Ok(_) => bucket.ok += 1,
                    Err(_) => bucket.fail += 1,
                }
            }
            Outcome::NotSent { .. } => bucket.fail += 1,
            Outcome::Unknown { .. } => bucket.unknown += 1,
        }
    }
    buckets.iter_mut().for_each(|bucket| bucket.latencies_ns.sort_unstable());
    buckets
}

/// The middle of a bucket.
fn middle(span: Span, at: usize) -> u64 {
    let length = span.to_ns - span.from_ns;
    let (at, count) = (at as u64, BUCKETS as u64);
    span.from_ns + length / (2 * count) * (2 * at + 1)
}

fn log_y(ns: u64) -> f64 {
    let tenths_of_ms = (super::svg::seconds(ns) * 10_000.0).max(1.0);
    let share = (tenths_of_ms.log10() / 5.0).min(1.0);
    TOP + HEIGHT * (1.0 - share)
}

/// Median, 95th percentile and worst latency, on a logarithmic scale.
#[must_use]
pub fn latencies(history: &History, span: Span, bands: &[Band]) -> String {
    let mut panel = Panel::new(span, HEIGHT, bands);
    for (power, text) in (0_u32..).zip(DECADES) {
        panel.level(TOP + HEIGHT * (1.0 - f64::from(power) / 5.0), text);
    }
    let buckets = buckets(history, span);
    for (permille, class) in [(1000, "worst"), (950, "p95"), (500, "p50")] {
        let full = buckets.iter().enumerate().filter(|(_, one)| !one.latencies_ns.is_empty());
        let points: Vec<(u64, f64)> = full
            .map(|(at, bucket)| {
                let count = bucket.latencies_ns.len();
                let place = (count * permille).div_ceil(1000).clamp(1, count) - 1;
                (middle(span, at), log_y(bucket.latencies_ns[place]))
            })
            .collect();
        panel.line(&points, class);
    }
    for (at, bucket) in buckets.iter().enumerate().filter(|(_, bucket)| bucket.unknown > 0) {
        let title = format!("{} with unknown outcome", bucket.unknown);
        panel.mark(middle(span, at), (TOP + HEIGHT - 10.0, 10.0), "unknown", &title);
    }
    panel.finish("latency")
}

/// Answers a second: successes, refusals, and what nobody knows.
#[must_use]
pub fn rates(history: &History, span: Span, bands: &[Band]) -> String {
    let mut panel = Panel::new(span, HEIGHT, bands);
    let buckets = buckets(history, span);
    let seconds = super::svg::seconds((span.to_ns - span.from_ns).max(1)) / BUCKETS as f64;
    let rate = |count: u64| count as f64 / seconds;
    let most = buckets.iter().map(|one| one.ok.max(one.fail).max(one.unknown)).max();
    let most = rate(most.unwrap_or(0)).max(1.0);
    for share in [0.0, 0.5, 1.0] {
        panel.level(TOP + HEIGHT * (1.0 - share), &format!("{:.0} /s", most * share));
    }
    let y = |count: u64| TOP + HEIGHT * (1.0 - rate(count) / most);
    for (place, class) in ["rate-ok", "rate-fail", "rate-unknown"].iter().enumerate() {
        let count = |bucket: &Bucket| [bucket.ok, bucket.fail, bucket.unknown][place];
        let all = buckets.iter().enumerate();
        let points: Vec<(u64, f64)> =
            all.map(|(at, bucket)| (middle(span, at), y(count(bucket)))).collect();
        panel.line(&points, class);
    }
    panel.finish("rate")
}
