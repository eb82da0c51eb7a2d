//! Drawing along a time axis: panels of SVG with fault bands.
//!
//! *Owns* where a time lies on the paper, and that text from outside cannot become markup.

use std::fmt::Write;

use lockkeeper_check::history::History;
use lockkeeper_check::liveness::HEAL;

use crate::nemesis::Kind;

/// Paper: pixels.
pub const WIDTH: f64 = 1100.0;
/// Room for labels on the left.
pub const LEFT: f64 = 90.0;
const RIGHT: f64 = 10.0;
/// Room for the axis below a panel.
const BOTTOM: f64 = 22.0;
/// Room for band labels above.
pub const TOP: f64 = 18.0;
/// Ticks on an axis, at most.
const TICKS_MAX: f64 = 12.0;
/// Distances between ticks, seconds.
const TICKS: [f64; 14] =
    [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 3600.0, 21600.0];

/// A stretch of time on the paper.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub from_ns: u64,
    pub to_ns: u64,
}

/// A fault from its strike to its end.
#[derive(Clone, Debug)]
pub struct Band {
    pub name: String,
    pub what: String,
    pub from_ns: u64,
    pub to_ns: u64,
}

/// A drawing under way.
#[derive(Debug)]
pub struct Panel {
    span: Span,
    height: f64,
    text: String,
}

/// Text as it may stand in markup.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Seconds, for people.
#[must_use]
pub fn seconds(ns: u64) -> f64 {
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

/// The faults of the servers: each lasts until everything is healed.
#[must_use]
pub fn bands(history: &History, end_ns: u64) -> Vec<Band> {
    let mut bands: Vec<Band> = Vec::new();
    let mut open = 0;
    let is_of_servers = |name: &str| name == HEAL || name.parse::<Kind>().is_ok();
    for fault in history.faults.iter().filter(|fault| is_of_servers(&fault.name)) {
        let at = fault.at.time_ns;
        if fault.name == HEAL {
            bands[open..].iter_mut().for_each(|band| band.to_ns = at);
            open = bands.len();
        } else {
            let (name, what) = (fault.name.clone(), fault.what.clone());
            bands.push(Band { name, what, from_ns: at, to_ns: end_ns });
        }
    }
    bands
}

impl Span {
    /// Where a time lies.
    #[must_use]
    pub fn x(self, ns: u64) -> f64 {
        let inside = ns.clamp(self.from_ns, self.to_ns) - self.from_ns;
        let length = (self.to_ns - self.from_ns).max(1);
        LEFT + (WIDTH - LEFT - RIGHT) * seconds(inside) / seconds(length)
    }

    /// Whether a stretch is seen in it.
    #[must_use]
    pub fn shows(self, from_ns: u64, to_ns: u64) -> bool {
        from_ns <= self.to_ns && to_ns >= self.from_ns
    }
}

impl Panel {
    /// An empty one with faults behind whatever comes.
    #[must_use]
    pub fn new(span: Span, height: f64, bands: &[Band]) -> Self {
        let mut panel = Self { span, height, text: String::new() };
        for band in bands.iter().filter(|band| span.shows(band.from_ns, band.to_ns)) {
            let what = format!("{} {}", band.name, band.what);
            let class = format!("band {}", band.name);
            panel.bar(band.from_ns, band.to_ns, (TOP, height), &class, &what);
            panel.label(span.x(band.from_ns) + 2.0, TOP - 5.0, "bandname", &band.name);
        }
        panel
    }

    /// A stretch of time, from `y` on and so high.
    pub fn bar(
        &mut self,
        from_ns: u64,
        to_ns: u64,
        (y, height): (f64, f64),
        class: &str,
        title: &str,
    ) {
        let (left, right) = (self.span.x(from_ns), self.span.x(to_ns));
        let width = (right - left).max(1.0);
        let (class, title) = (escape(class), escape(title));
        let _ = writeln!(
            self.text,
            "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"><title>{title}</title></rect>"
        );
    }

    /// A mark at a time.
    pub fn mark(&mut self, ns: u64, (y, height): (f64, f64), class: &str, title: &str) {
        self.bar(ns, ns, (y, height), class, title);
    }

    /// A line through points: time and height on the paper.
    pub fn line(&mut self, points: &[(u64, f64)], class: &str) {
        let points: Vec<String> =
            points.iter().map(|(ns, y)| format!("{:.1},{y:.1}", self.span.x(*ns))).collect();
        let _ = writeln!(
            self.text,
            "<polyline class=\"{}\" points=\"{}\"/>",
            escape(class),
            points.join(" ")
        );
    }

    /// A line across, with what it stands for.
    pub fn level(&mut self, y: f64, text: &str) {
        let right = WIDTH - RIGHT;
        let _ = writeln!(
            self.text,
            "<line class=\"level\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
        );
        self.label(4.0, y + 4.0, "axis", text);
    }

    /// Text.
    pub fn label(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let (class, text) = (escape(class), escape(text));
        let _ =
            writeln!(self.text, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
    }

    /// The drawing, with its axis.
    #[must_use]
    pub fn finish(mut self, name: &str) -> String {
        let length = seconds(self.span.to_ns - self.span.from_ns);
        let step = TICKS.iter().find(|step| length / **step <= TICKS_MAX).unwrap_or(&86_400.0);
        let foot = TOP + self.height + 14.0;
        let mut at = (seconds(self.span.from_ns) / step).ceil() * step;
        while at <= seconds(self.span.to_ns) {
            let ns = std::time::Duration::from_secs_f64(at).as_nanos();
            let x = self.span.x(u64::try_from(ns).unwrap_or(u64::MAX));
            let digits = if *step < 1.0 { 2 } else { 0 };
            self.label(x, foot, "axis", &format!("{at:.digits$} s"));
            at += step;
        }
        let height = TOP + self.height + BOTTOM;
        let name = escape(name);
        format!(
            "<figure id=\"{name}\"><svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
             aria-label=\"{name}\">\n{}</svg></figure>\n",
            self.text
        )
    }
}
