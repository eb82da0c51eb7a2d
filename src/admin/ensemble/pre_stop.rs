//! `/pre_stop`: may a server be stopped now without the clients of the ensemble losing anything?
//!
//! *Owns* the judgement and its words. *Is given* what the leader knows: who votes, and who keeps up. *Invariants*:
//! the answer is no unless the leader itself says otherwise; it is no as long as any other member is away or behind,
//! so that an operator who asks before each stop never has two servers down at a time; members that an operator names
//! as down on purpose count as lost, and as no reason. *Never* changes anything: it is a look, no reservation, and
//! two servers that are asked about at the same time may both be told yes.

use hyper::StatusCode;

use crate::admin::Source;
use crate::admin::http::{Answer, Question, plain};
use crate::admin::source::question;
use crate::replica::inspect::{PeerStatus, Standings};

/// Whether a server may be stopped.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It may; what happens then.
    Yes(String),
    /// Not as things are, which may change by themselves: why.
    NotNow(Vec<String>),
    /// Stopping it interrupts the service whenever it is done: why.
    Never(String),
    /// It is no server of this ensemble.
    Unknown,
}

impl Verdict {
    /// As it is shown: the first line alone says what it is.
    fn text(&self) -> String {
        match self {
            Self::Yes(then) => format!("ok\n{then}\n"),
            Self::NotNow(reasons) => {
                reasons.iter().fold("not now\n".to_string(), |text, reason| text + reason + "\n")
            }
            Self::Never(reason) => format!("interrupts the service\n{reason}\n"),
            Self::Unknown => "no such server\n".to_string(),
        }
    }
}

/// What is asked.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    /// Which server is to be stopped; `None`: the one that is asked.
    server: Option<u8>,
    /// Members that are known to be down.
    ignored: Vec<u8>,
}

/// Whether a server may be stopped: this one, or that of the parameter `server`.
pub(super) async fn answer(asked: &Question<'_>) -> Answer {
    let ids = |name| {
        let text = asked.parameter(name).unwrap_or_default();
        let ids = text.split(',').filter(|id| !id.is_empty()).map(str::parse::<u8>);
        ids.collect::<Result<Vec<_>, _>>().ok()
    };
    let (Some(servers), Some(ignored)) = (ids("server"), ids("ignore")) else {
        return plain(StatusCode::BAD_REQUEST, "server, ignore: expected the N of server.N\n");
    };
    let server = match servers.as_slice() {
        [] => None,
        [server] => Some(*server),
        _ => return plain(StatusCode::BAD_REQUEST, "server: one at a time\n"),
    };
    let verdict = judge(asked.source, &Asked { server, ignored }).await;
    let status = match verdict {
        Verdict::Yes(_) => StatusCode::OK,
        Verdict::NotNow(_) | Verdict::Never(_) => StatusCode::SERVICE_UNAVAILABLE,
        Verdict::Unknown => StatusCode::NOT_FOUND,
    };
    plain(status, verdict.text())
}

/// Judges by what the leader says, which is asked if it is another server.
async fn judge(source: &dyn Source, asked: &Asked) -> Verdict {
    let stopping = || Verdict::NotNow(vec!["this server is stopping".to_string()]);
    let Some(own) = question::standings(source).await else { return stopping() };
    let own_id = u8::try_from(source.facts().server_id).unwrap_or(0);
    if !own.is_ensemble {
        return match asked.server {
            Some(server) if server != own_id => Verdict::Unknown,
            Some(_) | None => Verdict::Never(STANDALONE.to_string()),
        };
    }
    let target = asked.server.unwrap_or(own_id);
    if own.leads {
        return verdict(target, own_id, &own, &asked.ignored);
    }
    let Some(leader) = own.leader.filter(|leader| *leader != own_id) else {
        return Verdict::NotNow(vec![NO_LEADER.to_string()]);
    };
    match source.standings_of(leader).await {
        Some(standings) if standings.leads => verdict(target, leader, &standings, &asked.ignored),
        // An election is under way, or has been.
        Some(_) => Verdict::NotNow(vec![NO_LEADER.to_string()]),
        None => Verdict::NotNow(vec![format!(
            "the leader, server {leader}, has not said who keeps up: this server may be cut off from it"
        )]),
    }
}

/// Judges by what the leader knows.
fn verdict(target: u8, leader: u8, standings: &Standings, ignored: &[u8]) -> Verdict {
    let peers = &standings.peers;
    let known = peers.iter().find(|peer| peer.server == target);
    if known.is_none() && target != leader {
        return Verdict::Unknown;
    }
    let is_lost = |peer: &PeerStatus| ignored.contains(&peer.server);
    let others = || peers.iter().filter(|peer| peer.server != target);
    let target_votes = known.is_none_or(|peer| peer.votes);
    let voters = 1 + peers.iter().filter(|peer| peer.votes).count();
    let majority = voters / 2 + 1;
    // A participant that is yet to vote may be spared, or spare another one, when it does.
    let will_vote = |peer: &PeerStatus| !peer.votes && !peer.is_observer && !is_lost(peer);
    if target_votes && voters - 1 < majority && !others().any(will_vote) {
        return Verdict::Never(alone(voters));
    }
    let mut reasons = Vec::new();
    let leader_stays = usize::from(target != leader);
    let stay = others().filter(|peer| peer.votes && peer.is_synced && !is_lost(peer)).count();
    let stay = leader_stays + stay;
    // Who has no vote takes none away: but then there is none to spare, and a reason below says so.
    if target_votes && stay < majority {
        reasons.push(format!(
            "the majority would be lost: without server {target}, {stay} of {voters} voters are there and up to \
             date, and {majority} are needed"
        ));
    }
    if target == leader && stay == 0 {
        reasons.push(format!(
            "server {target} leads and has the only up-to-date copy: no other server could take over"
        ));
    }
    reasons.extend(others().filter(|peer| !is_lost(peer)).filter_map(out_of_step));
    if !reasons.is_empty() {
        return Verdict::NotNow(reasons);
    }
    Verdict::Yes(match (known, target == leader) {
        (_, true) => {
            format!("server {target} leads: it hands over first when it is stopped (SIGTERM)")
        }
        (Some(peer), false) if peer.is_observer => {
            format!("server {target} is an observer: its clients move to other servers")
        }
        _ => format!("server {target} follows: its clients move to other servers"),
    })
}

/// Why a member that stays is one that has to be waited for.
fn out_of_step(peer: &PeerStatus) -> Option<String> {
    let server = peer.server;
    if !peer.is_connected {
        return Some(format!(
            "server {server} is down, or cannot be reached by the leader (ignore={server} if that is meant to be)"
        ));
    }
    if !peer.is_synced {
        return Some(format!("server {server} has not caught up with the leader yet"));
    }
    (!peer.votes && !peer.is_observer).then(|| format!("server {server} has no vote yet"))
}

fn alone(voters: usize) -> String {
    let text = match voters {
        1 => "it is the only voter".to_owned(),
        _ => format!("of {voters} voters none can be spared"),
    };
    text + ": no client is served until it is back. Sessions are kept, each for its timeout from then on"
}

/// What a stop of a server means that has no others.
const STANDALONE: &str = "this server is on its own: no client is served until it is back. Sessions are kept, each \
                          for its timeout from then on";
const NO_LEADER: &str =
    "there is no leader now: an election is under way, or no majority of the voters is there";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::fake::Fake;
    use crate::replica::inspect::Mode;

    /// A voter that keeps up.
    fn voter(server: u8) -> PeerStatus {
        PeerStatus {
            server,
            votes: true,
            is_connected: true,
            is_synced: true,
            ..PeerStatus::default()
        }
    }

    fn down(server: u8) -> PeerStatus {
        PeerStatus { server, votes: true, ..PeerStatus::default() }
    }

    fn behind(server: u8) -> PeerStatus {
        PeerStatus { is_synced: false, ..voter(server) }
    }

    fn observer(server: u8) -> PeerStatus {
        PeerStatus { votes: false, is_observer: true, ..voter(server) }
    }

    fn joining(server: u8) -> PeerStatus {
        PeerStatus { votes: false, ..voter(server) }
    }

    /// The first line of the verdict of leader 1 on a server, and what the rest has to say.
    #[track_caller]
    fn assert_said(peers: &[PeerStatus], target: u8, ignored: &[u8], first: &str, rest: &[&str]) {
        let standings =
            Standings { is_ensemble: true, leader: Some(1), leads: true, peers: peers.to_vec() };
        let text = verdict(target, 1, &standings, ignored).text();
        let (line, reasons) = text.split_once('\n').expect("a line");
        assert_eq!(line, first, "{text}");
        assert_eq!(reasons.lines().count(), rest.len(), "{text}");
        for (reason, expected) in reasons.lines().zip(rest) {
            assert!(reason.contains(expected), "{reason}");
        }
    }

    #[test]
    fn every_one_of_three_that_keep_up_may_be_stopped() {
        let peers = [voter(2), voter(3)];
        assert_said(&peers, 1, &[], "ok", &["hands over first"]);
        assert_said(&peers, 2, &[], "ok", &["server 2 follows"]);
        assert_said(&peers, 9, &[], "no such server", &[]);
    }

    #[test]
    fn none_but_the_one_that_is_away_may_be_stopped_where_three_are_two() {
        for (away, why) in [(down(3), "server 3 is down"), (behind(3), "has not caught up")] {
            let peers = [voter(2), away];
            let lost = "the majority would be lost: without server 2, 1 of 3";
            assert_said(&peers, 2, &[], "not now", &[lost, why]);
            assert_said(&peers, 1, &[], "not now", &["the majority would be lost", why]);
            assert_said(&peers, 3, &[], "ok", &["server 3 follows"]);
        }
    }

    #[test]
    fn a_leader_whose_followers_are_all_behind_has_the_only_copy() {
        let behind = [behind(2), behind(3)];
        let expected =
            ["0 of 3 voters", "the only up-to-date copy", "server 2 has not", "server 3 has not"];
        assert_said(&behind, 1, &[], "not now", &expected);
    }

    #[test]
    fn of_five_with_one_away_none_may_be_stopped_unless_the_operator_counts_it_as_lost() {
        let peers = [voter(2), voter(3), voter(4), down(5)];
        assert_said(&peers, 2, &[], "not now", &["server 5 is down"]);
        assert_said(&peers, 2, &[5], "ok", &["server 2 follows"]);
        let peers = [voter(2), voter(3), down(4), down(5)];
        assert_said(&peers, 2, &[4, 5], "not now", &["the majority would be lost"]);
        // Also one that is there: it is about to be stopped as well.
        assert_said(&[voter(2), voter(3)], 2, &[3], "not now", &["the majority would be lost"]);
    }

    #[test]
    fn a_participant_without_a_vote_and_an_observer_that_is_behind_are_waited_for() {
        let peers = [voter(2), voter(3), joining(4)];
        assert_said(&peers, 2, &[], "not now", &["server 4 has no vote yet"]);
        assert_said(&peers, 4, &[], "ok", &["server 4 follows"]);
        let peers = [voter(2), voter(3), PeerStatus { is_synced: false, ..observer(4) }];
        assert_said(&peers, 2, &[], "not now", &["server 4 has not caught up"]);
        assert_said(&peers, 4, &[], "ok", &["server 4 is an observer"]);
    }

    #[test]
    fn of_two_voters_one_can_be_spared_once_the_third_votes() {
        let peers = [voter(2), joining(3)];
        for target in [1, 2] {
            let lost = format!("the majority would be lost: without server {target}, 1 of 2");
            let reasons: &[&str] = &[&lost, "server 3 has no vote yet"];
            assert_said(&peers, target, &[], "not now", reasons);
        }
        assert_said(&peers, 2, &[3], "interrupts the service", &["of 2 voters none"]);
    }

    #[test]
    fn where_no_voter_can_be_spared_waiting_does_not_help() {
        let none = "of 2 voters none can be spared";
        assert_said(&[voter(2)], 2, &[], "interrupts the service", &[none]);
        assert_said(&[voter(2), observer(3)], 1, &[], "interrupts the service", &[none]);
        assert_said(&[voter(2), observer(3)], 3, &[], "ok", &["server 3 is an observer"]);
        assert_said(&[], 1, &[], "interrupts the service", &["the only voter"]);
    }

    async fn judged(fake: &Fake, server: Option<u8>) -> String {
        judge(fake, &Asked { server, ignored: Vec::new() }).await.text()
    }

    #[tokio::test]
    async fn a_lone_server_says_what_its_stop_means() {
        let fake = Fake::standalone();
        assert!(judged(&fake, None).await.starts_with("interrupts the service\nthis server is on"));
        assert_eq!(judged(&fake, Some(3)).await, "no such server\n");
    }

    #[tokio::test]
    async fn a_follower_asks_the_leader_and_without_a_leader_the_answer_is_no() {
        let mut fake = Fake::leader();
        fake.facts.server_id = 2;
        fake.status.mode = Mode::Follower;
        assert!(judged(&fake, None).await.contains("the leader, server 1, has not said"));
        let standings = |leads| Standings {
            is_ensemble: true,
            leader: Some(1),
            leads,
            peers: vec![voter(2), voter(3)],
        };
        fake.leader_says = Some(standings(true));
        assert_eq!(judged(&fake, None).await.lines().next(), Some("ok"));
        assert!(judged(&fake, Some(1)).await.contains("hands over first"));
        fake.leader_says = Some(standings(false));
        assert!(judged(&fake, None).await.contains("there is no leader now"));
        fake.status.leader = None;
        assert!(judged(&fake, None).await.contains("there is no leader now"));
        fake.stopping = true;
        assert_eq!(judged(&fake, None).await, "not now\nthis server is stopping\n");
    }

    #[tokio::test]
    async fn a_leader_that_does_not_serve_yet_is_none() {
        let mut fake = Fake::looking();
        (fake.facts.server_id, fake.status.leader) = (1, Some(1));
        assert!(judged(&fake, None).await.contains("there is no leader now"));
        assert_eq!(*fake.asked.lock().unwrap(), ["Standings"]);
    }
}
