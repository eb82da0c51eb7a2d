//! State of a server and its ensemble, and operations of operators on them.
//!
//! *Owns* the routes of health checks, of the overview, of foundings, stops, upgrades and migrations. *Never*
//! decides for the ensemble: the replica does.

mod bootstrap;
mod health;
mod migration;
mod overview;
mod pre_stop;
mod upgrade;

pub(super) use self::health::STALLED_DEAD;
use self::migration::Migrate;
use super::http::{Asks, Route, shown};

/// Health checks and what concerns the ensemble.
pub(super) const ROUTES: &[Route] = &[
    Route::reads("/livez", Asks::Figures, |asked| Box::pin(health::liveness(asked.source)))
        .at_once(),
    Route::reads("/readyz", Asks::Figures, |asked| {
        Box::pin(async { health::readiness(asked.source) })
    })
    .at_once(),
    Route::reads("/pre_stop", Asks::Figures, |asked| Box::pin(pre_stop::answer(asked))),
    Route::reads("/overview", Asks::Commands, |asked| {
        Box::pin(async { shown(overview::overview(asked.source).await) })
    }),
    Route::changes("/bootstrap", |asked| Box::pin(bootstrap::answer(asked))),
    Route::changes("/upgrade", |asked| Box::pin(upgrade::answer(asked))),
    Route::reads("/migration", Asks::Znodes, |asked| {
        Box::pin(migration::answer(asked, Migrate::Status))
    }),
    Route::changes("/migration/check", |asked| Box::pin(migration::check(asked))),
    Route::changes("/migration/follow", |asked| {
        Box::pin(migration::answer(asked, Migrate::Follow))
    }),
    Route::changes("/migration/cutover", |asked| {
        Box::pin(migration::answer(asked, Migrate::CutOver))
    }),
    Route::changes("/migration/abort", |asked| Box::pin(migration::answer(asked, Migrate::Abort))),
    Route::changes("/migration/finish", |asked| {
        Box::pin(migration::answer(asked, Migrate::Finish))
    }),
];
