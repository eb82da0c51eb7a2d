//! A route of the HTTP port, and the request that its handler is given.
//!
//! *Owns* what is looked at before a handler runs: the method, the permission of who asks, and the turn. *Never* knows
//! which routes there are, and never reads a body.

use hyper::http::request::Parts;
use tokio::sync::Semaphore;

use super::answer::{Answer, not_found, refusal, refused};
use super::guard::{Asker, Asks};
use super::options::Options;
use crate::admin::{Pending, Source};

/// A request, as handlers see it.
#[derive(Clone, Copy)]
pub(in crate::admin) struct Question<'a> {
    pub(in crate::admin) head: &'a Parts,
    pub(in crate::admin) asker: Asker,
    pub(in crate::admin) source: &'a dyn Source,
    pub(in crate::admin) options: &'a Options,
}

impl Question<'_> {
    /// The first value of a parameter of the query.
    pub(in crate::admin) fn parameter(&self, name: &str) -> Option<String> {
        let query = self.head.uri.query().unwrap_or("");
        query.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key == name).then(|| percent_decoded(value))
        })
    }
}

/// `%41` becomes `A`; what is no valid escape stays, what is no UTF-8 is replaced.
pub(in crate::admin) fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digit =
            |offset: usize| bytes.get(at + offset).and_then(|&byte| char::from(byte).to_digit(16));
        match (bytes[at], digit(1), digit(2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, _, _) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Finds the route of a path.
pub(in crate::admin) type Router = fn(path: &str, options: &Options) -> Option<&'static Route>;
type Handler = for<'a> fn(&'a Question<'a>) -> Pending<'a, Answer>;

/// A route.
pub(in crate::admin) struct Route {
    pub(in crate::admin) path: &'static str,
    /// Methods that it may be asked with, as a header has them.
    methods: &'static str,
    /// Permission that it needs: what it shows.
    shows: Asks,
    /// Whether it changes something: who asks is looked at once more.
    changes: bool,
    /// Whether it waits for its turn. Health checks do not, and of backups one is made at a time anyway.
    waits: bool,
    answer: Handler,
}

impl Route {
    /// A route that changes nothing.
    pub(in crate::admin) const fn reads(path: &'static str, shows: Asks, answer: Handler) -> Self {
        Self { path, methods: READING, shows, changes: false, waits: true, answer }
    }

    /// A route that changes something.
    pub(in crate::admin) const fn changes(path: &'static str, answer: Handler) -> Self {
        Self { path, methods: WRITING, shows: Asks::Znodes, changes: true, waits: true, answer }
    }

    /// The same as a health check: answered at once, whatever else is asked.
    pub(in crate::admin) const fn at_once(self) -> Self {
        Self { waits: false, ..self }
    }

    /// The same by other methods.
    pub(in crate::admin) const fn by(self, methods: &'static str) -> Self {
        Self { methods, ..self }
    }
}

/// hyper leaves out the body of the answer to the latter.
pub(in crate::admin) const READING: &str = "GET, HEAD";
/// As ZooKeeper has it for what changes the server.
pub(in crate::admin) const WRITING: &str = "POST";

/// Answers a request: one of a health check at once, others when it is their turn.
pub(super) async fn respond(question: &Question<'_>, router: Router, turns: &Semaphore) -> Answer {
    let Question { head, asker, options, .. } = *question;
    let Some(route) = router(head.uri.path(), options) else { return not_found() };
    if let Some(refusal) = refusal(&head.method, route.methods) {
        return refusal;
    }
    if let Err(refusal) = options.guard.judge(route.shows, &head.headers, asker) {
        return refused(refusal);
    }
    if route.changes
        && let Err(refusal) = options.guard.judge_change(&head.headers, asker)
    {
        return refused(refusal);
    }
    // Fails when it is closed, which it never is.
    let _turn = if route.waits { turns.acquire().await.ok() } else { None };
    (route.answer)(question).await
}
