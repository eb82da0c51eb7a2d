//! Deliberate bugs, to prove that the tests find bugs.
//!
//! *Owns* which bug, if any, is planted in this thread. `mutant!("name")` stands at the one place where
//! the bug of that name would live; tests/mutants.rs says what each is, and shows that the simulation
//! catches it. *Invariants*: without the feature `mutants` it is the constant `false`, and nothing of the
//! branch is left; a release cannot be built with the feature; with it, nothing is planted until a test
//! says so, and then in that test's thread alone. *Never* reads an environment or a configuration.

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!("the feature `mutants` plants bugs: no release has it");

/// Whether the bug of this name is planted.
macro_rules! mutant {
    ($name:literal) => {
        $crate::mutants::is_planted($name)
    };
}

#[cfg(not(feature = "mutants"))]
pub(crate) const fn is_planted(_name: &str) -> bool {
    false
}

#[cfg(feature = "mutants")]
mod planted {
    use std::cell::Cell;

    thread_local! {
        static NAME: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    pub(crate) fn is_planted(name: &str) -> bool {
        NAME.get() == Some(name)
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
pub(crate) use planted::is_planted;
#[cfg(feature = "mutants")]
pub use planted::{plant, planted};
