//! Deliberate bugs, to prove that the tests find bugs.
//!
//! *Owns* which bug, if any, is planted in this thread, and which in the whole process. `mutant!("name")`
//! stands at the one place where the bug of that name would live; jepsen/TRACK_RECORD.md says what each is,
//! tests/simulation/runs/mutants.rs shows that the simulation catches it, and the harness's table
//! (jepsen/src/calibration) which of them it catches in real servers. *Invariants*: without the feature
//! `mutants` it is the constant `false`, and nothing of the branch is left; a release cannot be built with the
//! feature; with it, nothing is planted until a test says so, and then in that test's thread alone, or the
//! hidden flag `--plant` of `lockkeeper server`, and then once for all threads. *Never* reads an environment or
//! a configuration.

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!("the feature `mutants` plants bugs: no release has it");

/// Whether the bug of this name is planted.
#[doc(hidden)]
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        $crate::mutants::is_planted($name)
    };
}

#[cfg(not(feature = "mutants"))]
#[doc(hidden)]
#[must_use]
pub const fn is_planted(_name: &str) -> bool {
    false
}

#[cfg(feature = "mutants")]
mod planted {
    use std::cell::Cell;
    use std::sync::OnceLock;

    /// Of all threads. A server has several, and some of them begin before and some behind its start.
    static EVERYWHERE: OnceLock<String> = OnceLock::new();

    thread_local! {
        static NAME: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    #[doc(hidden)]
    #[must_use]
    pub fn is_planted(name: &str) -> bool {
        NAME.get() == Some(name) || EVERYWHERE.get().is_some_and(|planted| planted == name)
    }

    /// Plants this bug in the whole process, for as long as it lives.
    ///
    /// # Panics
    ///
    /// When another one is planted there.
    pub fn plant_everywhere(name: &str) {
        let planted = EVERYWHERE.get_or_init(|| name.to_owned());
        assert_eq!(planted, name, "one bug at a time");
    }

    /// Plants this bug, and no other, in this thread.
    pub fn plant(name: Option<&'static str>) {
        NAME.set(name);
    }

    /// The bug that is planted in this thread.
    #[must_use]
    pub fn planted() -> Option<&'static str> {
        NAME.get()
    }
}

#[cfg(feature = "mutants")]
pub use planted::{is_planted, plant, plant_everywhere, planted};
