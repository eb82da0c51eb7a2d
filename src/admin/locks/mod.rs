//! Locks, sessions and the tree, as pages of the HTTP port.
//!
//! *Owns* the routes of those pages. *Never* decides what a lock is: that is `crate::locks`.

mod change;
mod tree_view;
mod view;

use self::change::Change;
pub(super) use self::view::Asked;
use super::http::{Asks, Route, shown};
use crate::locks::Scope;

/// Pages that show locks, sessions and znodes, and changes of locks.
pub(super) const ROUTES: &[Route] = &[
    Route::reads("/locks", Asks::Znodes, |asked| Box::pin(view::locks(asked))),
    Route::reads("/locks/history", Asks::Znodes, |asked| Box::pin(tree_view::history(asked))),
    Route::changes("/locks/break", |asked| Box::pin(change::answer(asked, Change::Break))),
    Route::changes("/locks/revoke", |asked| Box::pin(change::answer(asked, Change::Revoke))),
    Route::reads("/sessions", Asks::Znodes, |asked| {
        Box::pin(view::page_of(Scope::Sessions, asked.source))
    }),
    Route::reads("/watches", Asks::Znodes, |asked| {
        Box::pin(async { shown(tree_view::watches(asked.source).await) })
    }),
    Route::reads("/znodes", Asks::Znodes, |asked| Box::pin(tree_view::znode(asked))),
];
