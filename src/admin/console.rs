//! The console: the page at `/`, its style and its script.
//!
//! *Owns* the files of `console/`, which depend on nothing from elsewhere, and the policy by which a browser
//! holds the page to that. *Invariant*: the script is one file to the browser, in strict mode, joined from
//! parts in this order. *Never* shows anything itself: the page asks this server.

use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, X_CONTENT_TYPE_OPTIONS};

use super::http::{Answer, Asks, Route, page};

/// Files of the page, by their paths.
pub(super) const ROUTES: &[Route] = &[
    Route::reads("/", Asks::Commands, |_| {
        Box::pin(async { file("text/html; charset=utf-8", PAGE) })
    }),
    Route::reads("/console.css", Asks::Commands, |_| {
        Box::pin(async { file("text/css; charset=utf-8", STYLE) })
    }),
    Route::reads("/console.js", Asks::Commands, |_| {
        Box::pin(async { file("text/javascript; charset=utf-8", SCRIPT) })
    }),
];

fn file(content_type: &'static str, body: &'static str) -> Answer {
    let mut answer = page(StatusCode::OK, content_type, body);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Another version of the server has another page.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answer
}

const PAGE: &str = include_str!("console/page.html");
const STYLE: &str = include_str!("console/console.css");
const SCRIPT: &str = concat!(
    "\"use strict\";\n(() => {\n",
    include_str!("console/base.js"),
    include_str!("console/drawing.js"),
    include_str!("console/overview.js"),
    include_str!("console/locks.js"),
    include_str!("console/history.js"),
    include_str!("console/sessions.js"),
    include_str!("console/tree.js"),
    include_str!("console/main.js"),
    "})();\n"
);

/// What the page may do: run its own script, and ask this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";
