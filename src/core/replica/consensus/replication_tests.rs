//! The rules of replication when entries get lost on their way.

use crate::replica::cluster::{Cluster, create};
use crate::replica::*;

/// Heartbeats find a loss, and what was lost is sent again.
const FOUND_WITHIN_MS: u64 = 500;

/// A write at the leader, whose entry does not reach `server`, although the link stands.
fn lose_entry(cluster: &mut Cluster, leader: u8, server: u8) {
    cluster.connect(leader, 7, None);
    cluster.advance_ms(4 * TICK_MS);
    cluster.cut.insert((leader, server));
    cluster.send(leader, 7, &[(1, create("/a", 0))]);
    cluster.cut.clear();
}

#[test]
fn an_entry_that_was_lost_comes_again_where_every_server_that_is_up_is_needed_for_a_majority() {
    for count in [2, 3] {
        let mut cluster = Cluster::new(count);
        let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
        if count == 3 {
            cluster.kill(6 - leader - follower);
        }
        lose_entry(&mut cluster, leader, follower);
        assert_eq!(cluster.replies(leader, 7), [], "nothing is committed without it");
        cluster.advance_ms(FOUND_WITHIN_MS);
        assert_eq!(cluster.replies(leader, 7), [(1, 0)], "{count} servers");
        cluster.assert_equal();
    }
}

#[test]
fn an_entry_that_was_lost_comes_again_where_others_have_committed_it() {
    let mut cluster = Cluster::new(3);
    let (leader, follower) = (cluster.leader().unwrap(), cluster.follower());
    lose_entry(&mut cluster, leader, follower);
    assert_eq!(cluster.replies(leader, 7), [(1, 0)]);
    cluster.advance_ms(FOUND_WITHIN_MS);
    let has_all = |id: u8| cluster.replicas[&id].consensus.last_index();
    assert_eq!(has_all(follower), has_all(leader));
    cluster.assert_equal();
}
