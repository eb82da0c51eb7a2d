//! `POST /upgrade`: an operator finishes the upgrade of an ensemble to this release.
//!
//! *Owns* the judgement whether all servers are ready, and its words. *Is given* what the leader knows: who is linked,
//! and which protocol is spoken with each. *Invariants*: nothing is proposed unless every member is linked with the
//! leader, runs a release that knows the new version, and is not known to have another state than the majority; done
//! is said only when this server has applied it. *Never* raises anything by itself: until an operator asks, every
//! server can go back to the release before.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::admin::Source;
use crate::admin::http::{Answer, Question, told};
use crate::admin::source::question;
use crate::replica::inspect::Standings;
use crate::replica::txn_version::{NEWEST, RELEASE};

/// How long the entry may take to be applied here.
const APPLIED_MAX: Duration = Duration::from_secs(5);
/// Time between two looks for that.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Finishes the upgrade of the ensemble to this release.
pub(super) async fn answer(asked: &Question<'_>) -> Answer {
    let done = finish(asked.source).await;
    let outcome = done.as_ref().map_or_else(|(_, words)| words.as_str(), |_| "done");
    tracing::info!(target: "lockkeeper::admin::routes", remote = %asked.asker.remote, outcome,
        "an operator finishes the upgrade");
    told(done)
}

/// Finishes it, and says at which version the ensemble is now.
///
/// # Errors
/// A status, and why not: one reason in each line.
async fn finish(source: &dyn Source) -> Result<Value, (StatusCode, String)> {
    let stopping = || (StatusCode::SERVICE_UNAVAILABLE, "this server is stopping".to_owned());
    let standings = question::standings(source).await.ok_or_else(stopping)?;
    let own = u8::try_from(source.facts().server_id).unwrap_or(0);
    match standings.leader.filter(|leader| *leader != own) {
        _ if !standings.is_ensemble || standings.leads => {}
        Some(leader) => {
            let words = format!("server {leader} leads: ask that one");
            return Err((StatusCode::MISDIRECTED_REQUEST, words));
        }
        None => {
            let words = "there is no leader now, so nothing can be decided".to_owned();
            return Err((StatusCode::SERVICE_UNAVAILABLE, words));
        }
    }
    let before = source.status().ensemble_version;
    let answer = |version| json!({ "version": version, "before": before, "release": RELEASE });
    if before >= NEWEST {
        return Ok(answer(before));
    }
    let mut unready = unready(&standings, |server| source.knows_version(server, NEWEST));
    let status = source.status();
    unready.extend(status.differing.iter().map(|server| differs(*server)));
    if standings.is_ensemble && status.comparisons_agreed == 0 && unready.is_empty() {
        unready.push(
            "the servers have not compared their states yet: ask again in a second".to_owned(),
        );
    }
    if !unready.is_empty() {
        return Err((StatusCode::CONFLICT, unready.join("\n")));
    }
    source.finish_upgrade(NEWEST).await;
    let begun = Instant::now();
    loop {
        let version = source.status().ensemble_version;
        if version >= NEWEST {
            return Ok(answer(version));
        }
        if begun.elapsed() > APPLIED_MAX {
            let words =
                "it is not known whether it is finished: no majority has agreed in time. Ask again";
            return Err((StatusCode::SERVICE_UNAVAILABLE, words.to_owned()));
        }
        sleep(LOOK_INTERVAL).await;
    }
}

/// Why the ensemble cannot go on to the new version: a sentence for each server that is not ready.
fn unready(standings: &Standings, knows: impl Fn(u8) -> bool) -> Vec<String> {
    let reason = |server: u8, is_connected: bool| {
        if !is_connected {
            return Some(format!(
                "server {server} is not linked with the leader: start it with lockkeeper {RELEASE}, or remove it \
                 (`lockkeeper member remove {server}`)"
            ));
        }
        let words = format!(
            "server {server} runs an earlier release, which does not know version {NEWEST}: upgrade it to \
             lockkeeper {RELEASE} first"
        );
        (!knows(server)).then_some(words)
    };
    standings.peers.iter().filter_map(|peer| reason(peer.server, peer.is_connected)).collect()
}

/// Why it cannot, while the state of a server differs: the new version would end that server.
fn differs(server: u8) -> String {
    format!(
        "the state of server {server} is not that of the majority, and it would end at once: make the files of all \
         servers equal (keys that count only on the leader: docs/CONFIGURATION.md), stop it, start it with --rejoin, \
         and ask again"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::fake::Fake;
    use crate::replica::inspect::{Mode, PeerStatus};

    fn leads(peers: &[(u8, bool)]) -> Standings {
        let peer = |&(server, is_connected): &(u8, bool)| PeerStatus {
            server,
            votes: true,
            is_observer: false,
            is_connected,
            is_synced: is_connected,
            behind: None,
            clock_skew_ms: None,
        };
        let peers = peers.iter().map(peer).collect();
        Standings { is_ensemble: true, leader: Some(1), leads: true, peers }
    }

    #[test]
    fn every_member_must_be_linked_and_know_the_new_version() {
        let knows_all = |_| true;
        assert_eq!(unready(&leads(&[(2, true), (3, true)]), knows_all), Vec::<String>::new());
        let reasons = unready(&leads(&[(2, true), (3, false)]), knows_all);
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(reasons[0].starts_with("server 3 is not linked"), "{reasons:?}");
        let reasons = unready(&leads(&[(2, true), (3, true)]), |server| server == 3);
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(reasons[0].starts_with("server 2 runs an earlier release"), "{reasons:?}");
    }

    #[tokio::test]
    async fn a_server_whose_state_differs_must_fetch_that_of_the_majority_first() {
        let mut fake = Fake::leader();
        fake.status.ensemble_version = NEWEST - 1;
        fake.status.differing = vec![3];
        let (status, words) = finish(&fake).await.unwrap_err();
        assert_eq!(status, StatusCode::CONFLICT);
        assert!(words.contains("the state of server 3 is not that of the majority"), "{words}");
        assert!(words.contains("--rejoin"), "{words}");
        let asked = fake.asked.lock().unwrap().clone();
        assert!(!asked.iter().any(|asked| asked.starts_with("finish")), "{asked:?}");
    }

    #[tokio::test]
    async fn who_follows_names_the_leader_and_who_has_nothing_to_finish_says_so() {
        let mut fake = Fake::leader();
        fake.status.ensemble_version = NEWEST;
        let done = finish(&fake).await.unwrap();
        assert_eq!((&done["version"], &done["before"]), (&json!(NEWEST), &json!(NEWEST)));
        let asked = fake.asked.lock().unwrap().clone();
        assert!(!asked.iter().any(|asked| asked.starts_with("finish")), "{asked:?}");
        fake.status.mode = Mode::Follower;
        fake.status.leader = Some(2);
        let (status, words) = finish(&fake).await.unwrap_err();
        assert_eq!((status.as_u16(), words.as_str()), (421, "server 2 leads: ask that one"));
        fake.status.leader = None;
        assert_eq!(finish(&fake).await.unwrap_err().0.as_u16(), 503);
    }
}
