//! The inner modules, for this project's own tests, benches, examples and fuzz targets.
//!
//! *Owns* nothing. *Never* part of a promise: what stands here changes with every version. Each module hands out
//! what its front page names; the files behind it are closed to everybody else.

macro_rules! front_pages {
    ($($(#[$only_with:meta])? $name:ident),* $(,)?) => {
        $(
            $(#[$only_with])?
            pub mod $name {
                // The page of the deliberate bugs is empty unless they are built.
                #[allow(unused_imports, unreachable_pub)]
                pub use crate::$name::*;
            }
        )*
    };
}

front_pages! {
    #[cfg(feature = "server")]
    admin,
    #[cfg(feature = "server")]
    backup,
    #[cfg(feature = "bench")]
    bench,
    #[cfg(feature = "cli")]
    cli,
    config,
    learner,
    locks,
    mutants,
    #[cfg(feature = "server")]
    peer_auth,
    proto,
    replica,
    sasl,
    #[cfg(feature = "server")]
    server,
    #[cfg(feature = "server")]
    storage,
    #[cfg(feature = "server")]
    supervision,
    tree,
    zookeeper,
}
