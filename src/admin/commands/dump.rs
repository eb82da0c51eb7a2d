//! `dump`: sessions by when they expire, and who owns which ephemeral znode.
//!
//! *Owns* the text and the JSON of it. *Invariant*: sessions are grouped by whole seconds, rounded
//! up, the resolution of the date that is shown; a server that does not track sessions (a follower)
//! lists them with their timeouts instead, as ZooKeeper's learners do.
//!
//! Reproduces `DumpCommand`, `ExpiryQueue.dump` and `LearnerSessionTracker.dumpSessions`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::asked::{Asked, Shown};
use crate::admin::Source;
use crate::admin::source::question;
use crate::admin::text::{java_date, put};
use crate::replica::inspect::{ConnectionReport, Mode, SessionReport};

/// `dump`.
pub(super) async fn dump(asked: &Asked<'_>) -> Option<Shown> {
    let dump = Dump::collect(asked.source).await?;
    asked.shown(|| dump.text(), || dump.json())
}

/// Everything that `dump` shows.
struct Dump {
    tracked: bool,
    wall_ms: i64,
    sessions: Vec<SessionReport>,
    ephemerals: Vec<(i64, Vec<String>)>,
    connections: Vec<ConnectionReport>,
}

impl Dump {
    /// Asks the replica; `None` while it is stopping.
    async fn collect(source: &dyn Source) -> Option<Dump> {
        let sessions = question::sessions(source).await?;
        let ephemerals = question::ephemerals(source).await?;
        let connections = question::connections(source).await?;
        let tracked = match source.status().mode {
            Mode::Standalone | Mode::Leader | Mode::ReadOnly | Mode::Looking => true,
            Mode::Follower | Mode::Observer => false,
        };
        let wall_ms = source.counters().wall_ms;
        Some(Dump { tracked, wall_ms, sessions, ephemerals, connections })
    }

    /// The four-letter word's text.
    fn text(&self) -> String {
        let mut out = String::from("SessionTracker dump:\n");
        self.put_sessions(&mut out);
        out.push_str("ephemeral nodes dump:\n");
        put(&mut out, format_args!("Sessions with Ephemerals ({}):\n", self.ephemerals.len()));
        for (session, paths) in &self.ephemerals {
            put(&mut out, format_args!("0x{session:x}:\n"));
            for path in paths {
                put(&mut out, format_args!("\t{path}\n"));
            }
        }
        out.push_str("Connections dump:\n");
        self.put_connections(&mut out);
        out
    }

    fn put_sessions(&self, out: &mut String) {
        if !self.tracked {
            put(out, format_args!("Global Sessions({}):\n", self.sessions.len()));
            for session in &self.sessions {
                put(out, format_args!("0x{:x}\t{}ms\n", session.id, session.timeout_ms));
            }
            return;
        }
        let buckets = self.sessions_by_expiry();
        put(out, format_args!("Session Sets ({})/({}):\n", buckets.len(), self.sessions.len()));
        for (at_ms, ids) in buckets {
            put(out, format_args!("{} expire at {}:\n", ids.len(), java_date(at_ms)));
            for id in ids {
                put(out, format_args!("\t0x{id:x}\n"));
            }
        }
    }

    /// A connection expires with its session; one that has none yet is only counted.
    fn put_connections(&self, out: &mut String) {
        let expiry: BTreeMap<i64, i64> = self
            .sessions
            .iter()
            .filter_map(|session| Some((session.id, self.expiry_ms(session)?)))
            .collect();
        let mut buckets: BTreeMap<i64, Vec<&ConnectionReport>> = BTreeMap::new();
        for connection in &self.connections {
            if let Some(at_ms) = connection.session.and_then(|id| expiry.get(&id)) {
                buckets.entry(*at_ms).or_default().push(connection);
            }
        }
        put(
            out,
            format_args!("Connections Sets ({})/({}):\n", buckets.len(), self.connections.len()),
        );
        for (at_ms, connections) in buckets {
            put(out, format_args!("{} expire at {}:\n", connections.len(), java_date(at_ms)));
            for connection in connections {
                let session = connection.session.unwrap_or(0);
                put(out, format_args!("\tip: /{} sessionId: 0x{session:x}\n", connection.remote));
            }
        }
    }

    /// The HTTP command's keys.
    fn json(&self) -> Value {
        let expiries: Map<String, Value> = self
            .sessions_by_expiry()
            .into_iter()
            .map(|(at_ms, ids)| (at_ms.to_string(), json!(ids)))
            .collect();
        let ephemerals: Map<String, Value> =
            self.ephemerals.iter().map(|(id, paths)| (id.to_string(), json!(paths))).collect();
        json!({
            "expiry_time_to_session_ids": expiries,
            "session_id_to_ephemeral_paths": ephemerals,
        })
    }

    fn sessions_by_expiry(&self) -> BTreeMap<i64, Vec<i64>> {
        let mut buckets: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for session in &self.sessions {
            if let Some(at_ms) = self.expiry_ms(session) {
                buckets.entry(at_ms).or_default().push(session.id);
            }
        }
        buckets
    }

    /// Wall clock of the end of the second in which a session expires; `None` if not tracked.
    fn expiry_ms(&self, session: &SessionReport) -> Option<i64> {
        let in_ms = i64::try_from(session.expires_in_ms?).unwrap_or(i64::MAX);
        let at_ms = self.wall_ms.saturating_add(in_ms);
        let second = at_ms.div_euclid(1000) + i64::from(at_ms.rem_euclid(1000) != 0);
        Some(second.saturating_mul(1000))
    }
}
