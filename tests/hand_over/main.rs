//! The hand-over of answers from the driver to the threads of connections, in every order of its steps.
//!
//! `outbox.rs` and `io_threads/wakeups.rs` are compiled here once more, with locks and counters of the model checker
//! loom in place of the standard library's. Each model below is a few steps of the driver's thread and of a
//! connection's; loom runs it once for every order in which these can take locks and see each other's values, and
//! fails if any order loses a byte, changes the order of the bytes, or leaves a thread waiting for ever.
//!
//! Each model is run with deliberate bugs, too, each of which it must find.
//!
//! It has a `main` of its own, without the test harness, because the unit tests of the two files are not to be compiled
//! here. Like the harness it takes a part of a name, and runs the models that have it.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Whether a bug is planted, as in `src/core/mutants.rs`.
macro_rules! mutant {
    ($name:literal) => {
        crate::is_planted($name)
    };
}

#[allow(dead_code, unused_imports, unreachable_pub, reason = "the models do not use all of it")]
#[path = "../../src/server/mailbox/outbox.rs"]
mod outbox;
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the models do not use all of it")]
#[path = "../../src/server/mailbox/wakeups.rs"]
mod wakeups;

mod models;

/// What the two files import.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
    pub(crate) use std::sync::PoisonError;
}

/// What the two files import.
mod replica {
    /// As the replica's.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Outgoing {
        pub(crate) frames: Vec<u8>,
        pub(crate) replies: u32,
        pub(crate) answered: AnsweredList,
        pub(crate) more: bool,
        pub(crate) close: bool,
    }

    /// As the replica's, of which the models look at nothing.
    pub(crate) type AnsweredList = Vec<()>;
}

/// What the unit tests in the two files import, which are compiled and not run.
mod config {
    pub(crate) struct Config;

    impl Config {
        pub(crate) fn without_file() -> Self {
            Self
        }
    }
}

/// What the two files import.
mod server {
    pub(crate) mod limits {
        use std::time::Duration;

        use crate::config::Config;

        /// As the server's.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Limits {
            pub(crate) outgoing_bytes_max: usize,
            pub(crate) outgoing_stall_max: Duration,
        }

        impl Limits {
            pub(crate) fn of(_: &Config) -> Self {
                Self { outgoing_bytes_max: 1 << 20, outgoing_stall_max: Duration::from_secs(1) }
            }
        }
    }
}

static PLANTED: OnceLock<String> = OnceLock::new();

fn is_planted(name: &str) -> bool {
    PLANTED.get().is_some_and(|planted| planted == name)
}

/// Runs a model in every order in which its threads are interrupted at most so often.
fn check(model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(model);
}

/// Runs a model with a bug in a process of its own, which a panic in the middle of a model aborts.
fn finds(model: &str, bug: &str) -> bool {
    let program = std::env::current_exe().expect("this one");
    let mut child = Command::new(program);
    child.env(MODEL, model).env(BUG, bug).stdout(Stdio::null()).stderr(Stdio::null());
    !child.status().expect("it runs").success()
}

fn main() {
    if let (Ok(name), Ok(bug)) = (std::env::var(MODEL), std::env::var(BUG)) {
        PLANTED.set(bug).expect("nothing is planted yet");
        let (_, model, _) = models::MODELS.iter().find(|(known, ..)| *known == name).expect("one");
        return check(*model);
    }
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    for (name, model, bugs) in models::MODELS {
        if filter.as_ref().is_some_and(|part| !name.contains(part.as_str())) {
            continue;
        }
        println!("{name}");
        check(*model);
        for bug in *bugs {
            assert!(finds(name, bug), "{name}: the bug {bug} is not found");
        }
    }
}

/// Without this bound the same models take about ten times as long.
const PREEMPTIONS_MAX: usize = 4;

/// Which model a process runs with which bug.
const MODEL: &str = "HAND_OVER_MODEL";
const BUG: &str = "HAND_OVER_BUG";
