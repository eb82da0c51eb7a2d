//! The verbs of watches: addWatch, removewatches, printwatches.

use std::sync::atomic::Ordering;

use super::failure::Failure;
use super::given::Given;
use super::output::{Answer, Watch};
use super::state::{Outcome, Shell};
use crate::cli::client::Removed;
use crate::proto::Request;
use crate::proto::request::{AddWatchMode, WatcherType};

/// The zxid of an event that no change has caused.
const NO_ZXID: i64 = -1;

pub(super) fn add(shell: &mut Shell, given: &Given) -> Outcome {
    let name = given.value("m").unwrap_or("PERSISTENT_RECURSIVE").to_uppercase();
    let mode = match name.as_str() {
        "PERSISTENT" => AddWatchMode::Persistent,
        "PERSISTENT_RECURSIVE" => AddWatchMode::PersistentRecursive,
        _ => return Err(Failure::usage("-m: expected PERSISTENT or PERSISTENT_RECURSIVE")),
    };
    shell.znodes()?.call(given.path(), |path| Request::AddWatch { path, mode })?;
    let answer = Answer::default().field("path", given.path()).field("mode", name);
    Ok(answer.watch(Watch::Lasting))
}

pub(super) fn remove(shell: &mut Shell, given: &Given) -> Outcome {
    let kinds = [
        ('c', WatcherType::Children),
        ('d', WatcherType::Data),
        ('p', WatcherType::Persistent),
        ('r', WatcherType::PersistentRecursive),
    ];
    let kind = kinds.iter().find(|(flag, _)| given.has(*flag));
    let kind = kind.map_or(WatcherType::Any, |(_, kind)| *kind);
    let path = given.path();
    let screen = shell.screen.clone();
    let znodes = shell.znodes()?;
    let removed = znodes
        .session
        .remove_watches(&znodes.at(path)?, kind, given.has('l'))
        .map_err(|error| Failure::of(&error, path))?;
    let names: Vec<&str> = removed.into_iter().map(name).collect();
    for name in &names {
        screen.event(name, path, NO_ZXID);
    }
    Ok(Answer::default().field("path", path).field("removed", names))
}

fn name(removed: Removed) -> &'static str {
    match removed {
        Removed::Data => "DataWatchRemoved",
        Removed::Child => "ChildWatchRemoved",
        Removed::Persistent => "PersistentWatchRemoved",
    }
}

pub(super) fn print(shell: &mut Shell, given: &Given) -> Outcome {
    match given.arguments.first().map(String::as_str) {
        Some("on") => shell.shows_events.store(true, Ordering::Relaxed),
        Some("off") => shell.shows_events.store(false, Ordering::Relaxed),
        Some(_) => return Err(Failure::usage("printwatches: expected on or off")),
        None => {
            let shows = shell.shows_events.load(Ordering::Relaxed);
            let words = if shows { "on" } else { "off" };
            let answer = Answer::default().line(format!("printwatches is {words}"));
            return Ok(answer.field("printwatches", shows));
        }
    }
    Ok(Answer::silent())
}
