//! Survivors of an ensemble that lost its majority, of which an operator has one go on.

use super::*;

#[test]
fn a_server_declared_alone_founds_and_empty_ones_join_it() {
    let mut world = World::new(5, 0);
    world.start_empty(3);
    world.start_empty(4);
    world.start_alone(1, 12);
    world.run_ms(4000);
    assert_eq!(world.fates(), [Founder, Undecided, Joined, Joined, Undecided]);
    assert_eq!(world.ensembles(), [standalone(1).ensemble]);
}

#[test]
fn a_server_declared_alone_founds_nothing_while_another_one_refuses_it() {
    let mut world = World::new(3, 0);
    world.start_alone(1, 12);
    for _ in 0..10 {
        let now_us = world.now_us;
        world.founding(1).refused(2, "no member".to_owned(), now_us);
        world.run_ms(1000);
    }
    assert_eq!(world.ensembles(), []);
    assert_eq!(world.obstacle(1), "no member");
    world.run_ms(10_000);
    assert_eq!(world.ensembles(), [standalone(1).ensemble], "that one has gone");
}

#[test]
fn of_two_survivors_that_were_recovered_and_start_together_none_founds() {
    let mut world = World::new(5, 0);
    world.start_alone(1, 12);
    world.start_alone(2, 5);
    world.start_empty(3);
    world.run_ms(500);
    // Nor when they hear each other no more: each would take the other for dead.
    world.cut.push((1, 2));
    world.run_ms(10_000);
    assert_eq!(world.ensembles(), []);
    for id in [1, 2] {
        let said = world.obstacle(id);
        assert!(
            said.starts_with("server 1 (12 znodes) and server 2 (5 znodes) each have"),
            "{said}"
        );
    }
    world.cut.clear();
    world.run_ms(500);
    // One of them was set aside, as the words advise.
    world.start_joining(2);
    world.run_ms(4000);
    assert_eq!(world.ensembles(), [standalone(1).ensemble]);
}

#[test]
fn a_survivor_that_was_recovered_founds_nothing_beside_one_that_runs_though_no_client_port_answers()
{
    let mut world = World::new(5, 0);
    world.start_alone(2, 5);
    world.run_ms(4000);
    assert_eq!(world.ensembles(), [standalone(2).ensemble]);
    world.start_alone(1, 12);
    world.run_ms(500);
    let said = world.obstacle(1);
    assert!(said.contains("founded the ensemble") && said.contains("--rejoin"), "{said}");
    // It restarts, and says nothing meanwhile.
    world.cut.push((1, 2));
    world.run_ms(10_000);
    assert_eq!(world.ensembles(), [standalone(2).ensemble]);
    world.start_joining(1);
    world.cut.clear();
    world.run_ms(500);
    assert_eq!(world.fates()[..2], [Joined, Founder]);
}

#[test]
fn a_recovered_survivor_waits_for_one_that_reads_its_disk_and_not_for_one_that_an_operator_asks() {
    let mut world = World::new(5, 0);
    let chance = world.chance();
    let reading = Founding::reading(2, &world.specs, chance);
    *world.state(2) = State::Undecided(Box::new(reading));
    world.start_alone(1, 12);
    world.run_ms(10_000);
    assert_eq!(world.ensembles(), []);
    // It had never served.
    world.founding(2).has_read(None);
    world.run_ms(4000);
    assert_eq!(world.fates()[..2], [Founder, Joined]);

    let mut founding = Founding::alone(1, &servers(5, 0), world.chance(), BEFORE);
    founding.has_read(Some((standalone(1), 12)));
    let position = Position { ensemble: BEFORE, term: 3, index: 9 };
    let brings = Brings::Position(position);
    let asked = Introduction::Founding(crate::replica::founding::Undecided {
        brings,
        lines: servers(5, 0),
        ..Default::default()
    });
    for now_us in [0, LISTENS_US] {
        founding.heard(2, asked.clone(), Some(now_us), now_us);
        for id in 3..=5 {
            founding.answered(id, Port::Closed, now_us);
        }
        let decision = founding.decide(now_us).unwrap();
        assert_eq!(decision.is_some(), now_us == LISTENS_US);
    }
}

#[test]
fn a_survivor_whose_command_has_ended_is_not_waited_for() {
    let mut founding = Founding::alone(1, &servers(3, 0), World::new(3, 0).chance(), BEFORE);
    founding.has_read(Some((standalone(1), 12)));
    let brings = Brings::Position(Position { ensemble: BEFORE, term: 3, index: 9 });
    let asked =
        crate::replica::founding::Undecided { brings, lines: servers(3, 0), ..Default::default() };
    founding.heard(2, Introduction::Founding(asked), Some(0), 0);
    assert_eq!(founding.decide(0), Ok(None));
    for id in [2, 3] {
        founding.answered(id, Port::Closed, LISTENS_US);
    }
    assert!(founding.decide(LISTENS_US).unwrap().is_some());
}

#[test]
fn what_is_in_the_way_of_a_server_that_goes_on_alone_is_to_be_stopped_not_started() {
    let mut founding = Founding::alone(2, &servers(3, 0), World::new(3, 0).chance(), BEFORE);
    founding.has_read(Some((standalone(2), 5)));
    for now_us in [0, LISTENS_US] {
        founding.answered(1, Port::Mute, now_us);
        assert_eq!(founding.decide(now_us), Ok(None));
    }
    let said = founding.obstacle(LISTENS_US).unwrap();
    assert!(
        said.starts_with("server 2 is to go on alone, and does not yet: server 1 may run"),
        "{said}"
    );
    assert!(said.contains("Stop it") && !said.contains("Start"), "{said}");
}

#[test]
fn an_observer_that_runs_on_with_what_was_given_up_is_waited_for_until_its_ports_are_closed() {
    let mut founding = Founding::alone(1, &servers(1, 1), World::new(1, 1).chance(), BEFORE);
    founding.has_read(Some((standalone(1), 12)));
    let (founders, members, initial) = (Vec::new(), Vec::new(), Membership::default());
    let identity = Identified { ensemble: BEFORE, raft_id: 2, founders, initial, members };
    for now_us in [0, LISTENS_US] {
        founding.heard(2, Introduction::Founded(identity.clone()), Some(now_us), now_us);
        assert_eq!(founding.decide(now_us), Ok(None));
    }
    let stopped_us = LISTENS_US + HEARD_US;
    assert_eq!(founding.to_ask(stopped_us), [2]);
    founding.answered(2, Port::Closed, stopped_us);
    assert!(founding.decide(stopped_us).unwrap().is_some());
}
