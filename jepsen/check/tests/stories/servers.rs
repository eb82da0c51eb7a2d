//! Stories of servers that part ways, and of what they remove by themselves.

use lockkeeper_check::op::{Acl, Call, Create, CreateOp, Mode};
use lockkeeper_check::verdict::Rule;

use super::Story;
use crate::common::{Service, create, create_as, delete, exists, set};

pub fn stories() -> Vec<Story> {
    vec![
        all_alike(),
        one_behind(),
        other_term(),
        two_terms_crossed(),
        reaped(),
        reaped_unused(),
        reaped_before_its_time(),
    ]
}

/// A container that had a child, and a znode that lives for a second.
fn mortals() -> Service {
    let mut service = Service::default();
    service.run(1, create_as(CreateOp::Container, "/c", Mode::Container)).unwrap();
    service.run(1, create("/c/child", Mode::Persistent)).unwrap();
    service.run(1, delete("/c/child")).unwrap();
    let ttl = Create {
        op: CreateOp::Ttl,
        path: "/t".to_owned(),
        data: None,
        acl: Acl::open(),
        mode: Mode::PersistentWithTtl,
        ttl_ms: 1000,
    };
    service.run(1, Call::Create(ttl)).unwrap();
    service.wait_ms(700);
    service.run(1, set("/t", "again", -1)).unwrap();
    service
}

fn reaped() -> Story {
    let mut service = mortals();
    service.reap("/c");
    service.wait_ms(1001);
    service.reap("/t");
    service.run(1, exists("/t")).unwrap_err();
    Story::of("reaped", service).about(&["reaped"])
}

fn reaped_unused() -> Story {
    let mut service = mortals();
    service.run(1, create_as(CreateOp::Container, "/unused", Mode::Container)).unwrap();
    service.reap("/unused");
    Story::of("reaped_without_use", service).found(&[("reaped", Rule::Reaped)])
}

fn reaped_before_its_time() -> Story {
    let mut service = mortals();
    service.wait_ms(500);
    service.reap("/t");
    service.run(1, exists("/t")).unwrap_err();
    Story::of("reaped_before_its_time", service).found(&[("reaped", Rule::Reaped)])
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
