//! Watches: how many there are, and who watches what.
//!
//! Reproduces `WatchCommand`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::asked::{Asked, Shown};
use crate::admin::source::question;
use crate::admin::text::put;

/// `wchs`.
pub(super) async fn summary(asked: &Asked<'_>) -> Option<Shown> {
    let watches = question::watch_summary(asked.source).await?;
    let (connections, paths, total) = (watches.connections, watches.paths, watches.total);
    asked.shown(
        || format!("{connections} connections watching {paths} paths\nTotal watches:{total}\n"),
        || {
            json!({ "num_connections": connections, "num_paths": paths, "num_total_watches": total })
        },
    )
}

/// `wchc`: paths by session.
pub(super) async fn by_session(asked: &Asked<'_>) -> Option<Shown> {
    let watches = question::watches(asked.source).await?.by_session;
    let text = || {
        let mut out = String::new();
        for (session, paths) in &watches {
            put(&mut out, format_args!("0x{session:x}\n"));
            paths.iter().for_each(|path| put(&mut out, format_args!("\t{path}\n")));
        }
        out + "\n"
    };
    asked.shown(text, || {
        let watches = watches.iter().map(|(session, paths)| (session.to_string(), json!(paths)));
        json!({ "session_id_to_watched_paths": watches.collect::<Map<String, Value>>() })
    })
}

/// `wchp`: sessions by path, in order of path.
pub(super) async fn by_path(asked: &Asked<'_>) -> Option<Shown> {
    let watches = question::watches(asked.source).await?.by_session;
    let mut by_path: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for (session, paths) in &watches {
        for path in paths {
            by_path.entry(path).or_default().push(*session);
        }
    }
    let text = || {
        let mut out = String::new();
        for (path, sessions) in &by_path {
            put(&mut out, format_args!("{path}\n"));
            sessions.iter().for_each(|session| put(&mut out, format_args!("\t0x{session:x}\n")));
        }
        out + "\n"
    };
    asked.shown(text, || json!({ "path_to_session_ids": by_path }))
}
