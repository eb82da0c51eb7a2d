//! Log lines about clients that get no session, and about sessions that expire.
//!
//! *Owns* the sentences, each with the cure. *Invariant*: lines of one cause are bounded ([`Limited`]). *Never* decides
//! who gets a session: the replica has.

use std::time::Instant;

use super::limited::{Limited, SPAN};
use crate::replica::{Status, TurnedAway, WhyAway};

/// See the module.
#[derive(Debug, Default)]
pub(in crate::server) struct AwayLog {
    limited: Limited,
    expired: u64,
    was_storm: bool,
}

impl AwayLog {
    /// Clients get no session here.
    pub(in crate::server) fn turned_away(&mut self, clients: &[TurnedAway], now: Instant) {
        for client in clients {
            let remote = client.remote.as_str();
            match client.why {
                WhyAway::SeesAhead { seen, here } if self.limited.may_say(AHEAD, now) => {
                    tracing::warn!(
                        %remote,
                        seen = %format_args!("{seen:#x}"),
                        here = %format_args!("{here:#x}"),
                        "client turned away: it has seen a later state than this server has. A server that lags \
                         catches up, and the client finds another one meanwhile. If the ensemble was rebuilt, or \
                         restored from an older copy, the client never gets in: restart it, so that it begins anew"
                    );
                }
                WhyAway::SessionGone { session } if self.limited.may_say(GONE, now) => {
                    tracing::info!(
                        %remote,
                        session = %format_args!("{session:#x}"),
                        "client turned away: its session has expired, or never was of this ensemble. It opens a new \
                         one, if it handles that; locks of the old one are gone"
                    );
                }
                WhyAway::WrongPassword { session } if self.limited.may_say(PASSWORD, now) => {
                    tracing::warn!(
                        %remote,
                        session = %format_args!("{session:#x}"),
                        "client turned away: the session that it names has another password. Its session is of \
                         another ensemble, or it is a stranger"
                    );
                }
                WhyAway::NotServing if self.limited.may_say(NOT_SERVING, now) => {
                    tracing::info!(%remote, "client turned away: this server serves none now. It tries another one");
                }
                WhyAway::SeesAhead { .. }
                | WhyAway::SessionGone { .. }
                | WhyAway::WrongPassword { .. }
                | WhyAway::NotServing => {}
            }
        }
    }

    /// A turn of the driver is over. `is_storm`: many clients come back at once.
    pub(in crate::server) fn look(&mut self, status: &Status, is_storm: bool, now: Instant) {
        let expired = status.sessions_expired;
        // An operator may have reset it.
        let new = expired.checked_sub(std::mem::replace(&mut self.expired, expired));
        if let Some(count @ 1..) = new
            && self.limited.may_say(EXPIRED, now)
        {
            tracing::info!(
                count,
                open = status.sessions,
                "sessions expired: their clients were not heard from"
            );
        }
        if is_storm != std::mem::replace(&mut self.was_storm, is_storm)
            && self.limited.may_say(STORM, now)
        {
            let connected = status.connections;
            if is_storm {
                tracing::info!(
                    connected,
                    "many clients come at once: they are let in at lockkeeper.admissionRate"
                );
            } else {
                tracing::info!(connected, "no more clients come at once");
            }
        }
        for (cause, more) in self.limited.over(now) {
            tracing::info!("{cause}: and {more} more in the last {} s", SPAN.as_secs());
        }
    }
}

const AHEAD: &str = "clients turned away that have seen a later state";
const GONE: &str = "clients turned away whose session is gone";
const PASSWORD: &str = "clients turned away for another password of their session";
const NOT_SERVING: &str = "clients turned away while this server serves none";
const EXPIRED: &str = "sessions expired, lines";
const STORM: &str = "many clients at once";
