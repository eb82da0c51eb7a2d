//! A drawing as one self-contained SVG file, readable on a light and on a dark background.
//!
//! It has a background of its own, and its colours follow what the reader prefers. Text is not
//! measured: whoever draws leaves room for it.

use std::fmt::{Display, Write as _};

/// Colours by use; `s1` to `s4` are series, told apart also without seeing colours well.
const STYLE: &str = "\
    svg{--bg:#ffffff;--ink:#1f2328;--soft:#656d76;--grid:#d8dee4;\
    --s1:#1f6fb2;--s2:#c4621a;--s3:#2c8a5b;--s4:#8250a8}\
    @media(prefers-color-scheme:dark){svg{--bg:#0d1117;--ink:#e6edf3;--soft:#9198a1;--grid:#30363d;\
    --s1:#58a6e6;--s2:#e8924a;--s3:#56c288;--s4:#b48ee0}}\
    text{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:var(--ink)}\
    .t{font-size:15px;font-weight:600}.h{font-weight:600}.q{fill:var(--soft);font-size:11px}\
    .e{text-anchor:end}.m{text-anchor:middle}\
    .bg{fill:var(--bg)}.g{stroke:var(--grid)}.a{stroke:var(--soft)}\
    .s1{fill:var(--s1)}.s2{fill:var(--s2)}.s3{fill:var(--s3)}.s4{fill:var(--s4)}\
    .l1{stroke:var(--s1)}.l2{stroke:var(--s2)}.l3{stroke:var(--s3)}.l4{stroke:var(--s4)}\
    .w{stroke:var(--ink)}polyline{fill:none;stroke-width:2}.d{stroke-dasharray:5 4}";

/// What has been drawn so far.
pub struct Drawing {
    body: String,
}

impl Drawing {
    /// Nothing yet.
    pub fn new() -> Self {
        Drawing { body: String::new() }
    }

    /// The whole file; `title` is read aloud where the drawing cannot be seen.
    pub fn finish(self, width: f64, height: f64, title: &str) -> String {
        let title = escape(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n\
             <rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n{}</svg>\n",
            self.body
        )
    }

    /// Text on its base line; `class` says how it looks and on which side of `x` it is.
    pub fn text(&mut self, class: &str, x: f64, y: f64, text: impl Display) {
        let text = escape(&text.to_string());
        self.put(format_args!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"));
    }

    /// A filled rectangle between two places, given in any order.
    pub fn bar(&mut self, class: &str, from: f64, to: f64, y: f64, height: f64) {
        let (x, width) = (from.min(to), (from - to).abs());
        self.put(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"/>"
        ));
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.put(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    /// A line through some places.
    pub fn path(&mut self, class: &str, places: &[(f64, f64)]) {
        let places: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.put(format_args!("<polyline class=\"{class}\" points=\"{}\"/>", places.join(" ")));
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.body, "{element}").expect("writing to a string cannot fail");
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
