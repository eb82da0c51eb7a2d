//! Stories of servers that part ways, and of a run in which nothing happened.

use lockkeeper_check::op::Mode;
use lockkeeper_check::verdict::Rule;

use super::Story;
use crate::common::{Service, create, set};

pub fn stories() -> Vec<Story> {
    vec![all_alike(), one_behind(), other_term(), two_terms_crossed()]
}

/// Three servers; the second was killed while it wrote, and told its last lines again.
fn three_servers() -> Story {
    let mut service = Service::default();
    service.run(1, create("/a", Mode::Persistent)).unwrap();
    for value in ["1", "2", "3"] {
        service.run(1, set("/a", value, -1)).unwrap();
    }
    let mut story = Story::of("servers_alike", service);
    let lines = story.audit[0].clone();
    let again = [&lines[..3], &lines[1..]].concat();
    story.audit = vec![lines.clone(), again, lines];
    story
}

fn all_alike() -> Story {
    three_servers().about(&["agreement", "convergence", "log-matching"])
}

fn one_behind() -> Story {
    let mut story = three_servers();
    story.name = "server_behind_at_the_end";
    story.audit[2].pop();
    story.found(&[("convergence", Rule::Converged)])
}

/// One server has left out a transaction of an entry that held two, and comes to the same state.
fn other_term() -> Story {
    let mut story = three_servers();
    story.name = "server_left_out_a_transaction";
    for log in &mut story.audit {
        log.iter_mut().filter(|line| line.index == 2).for_each(|line| line.index = 1);
    }
    story.audit[1] = story.audit[0].clone();
    story.audit[2].remove(2);
    story.found(&[("log-matching", Rule::LogMatching)])
}

/// An entry of an old term was applied behind one of a newer.
fn two_terms_crossed() -> Story {
    let mut story = three_servers();
    story.name = "terms_crossed";
    for log in &mut story.audit {
        log.iter_mut().filter(|line| line.index == 1).for_each(|line| line.term = 2);
    }
    story.found(&[("agreement", Rule::Agreement), ("log-matching", Rule::LogMatching)])
}
