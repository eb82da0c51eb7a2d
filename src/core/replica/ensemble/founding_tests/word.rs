//! An operator has an ensemble be founded without some of its participants.

use super::*;

/// Servers 2 and 3 of three, which have waited for server 1.
fn two_that_wait() -> World {
    let mut world = World::new(3, 0);
    world.start_empty(2);
    world.start_empty(3);
    world.run_ms(4000);
    world
}

#[test]
fn an_operators_word_takes_the_place_of_a_consent_once_and_the_missing_one_joins_later() {
    for told in [2, 3] {
        let mut world = two_that_wait();
        let word = world.bootstrap(told, &[1]).unwrap();
        assert_eq!(word.without, [1]);
        world.run_ms(500);
        assert_eq!(world.fates(), [Undecided, Founder, Joined], "said to server {told}");
        let founder = world.decision(2).unwrap();
        assert_eq!(founder.without, [1]);
        assert_eq!(founder.identity.members.len(), 3, "it stays a participant");
        assert_eq!(world.decision(3).unwrap().without, [], "the founder keeps it");
        world.start_empty(1);
        world.run_ms(500);
        assert_eq!(world.fates(), [Joined, Founder, Joined]);
        assert_eq!(world.ensembles().len(), 1);
    }
}

#[test]
fn an_operators_word_is_refused_while_anything_speaks_against_it() {
    let refusals = |world: &mut World, without: &[u8]| world.bootstrap(2, without).unwrap_err();
    let mut world = two_that_wait();
    let says = |reasons: &[String], words: &str| {
        assert!(reasons.iter().any(|reason| reason.contains(words)), "{words}: {reasons:?}");
    };
    says(&refusals(&mut world, &[]), "no server is named");
    says(&refusals(&mut world, &[2]), "server 2 is the one that was told");
    says(&refusals(&mut world, &[7]), "server 7 is no participant");
    says(&refusals(&mut world, &[1, 3]), "2 of 3 participants are no minority");
    says(&refusals(&mut world, &[3]), "server 3 is there, without data");
    says(&refusals(&mut world, &[3]), "server 1 is not heard and not named");
    let now_us = world.now_us;
    world.founding(2).answered(1, Port::Mute, now_us);
    says(&refusals(&mut world, &[1]), "server 1 may run");
    world.founding(2).answered(1, Port::ServesNot, now_us);
    says(&refusals(&mut world, &[1]), "server 1 runs");
    world.founding(2).answered(1, serves(), now_us);
    says(&refusals(&mut world, &[1]), "server 1 serves by itself");
    // However long ago: it has a state.
    world.run_ms(600_000);
    says(&refusals(&mut world, &[1]), "served by itself (Mode: standalone) when it answered last");
    // One that was heard with a state, and then falls silent, has it.
    let mut world = two_that_wait();
    world.start_with_state(1, 12);
    world.cut.push((1, 3));
    world.run_ms(500);
    world.stop(1);
    world.run_ms(10_000);
    says(
        &refusals(&mut world, &[1]),
        "server 1 has a state of its own, or had it when it was heard last",
    );
    // And one that has only begun to listen knows nothing.
    world.start_empty(2);
    world.run_ms(1000);
    says(&refusals(&mut world, &[1]), "has begun to listen to the others only now");
}

#[test]
fn an_operators_word_ends_after_a_minute_or_with_a_life_of_those_that_it_binds() {
    let mut world = two_that_wait();
    world.cut.push((2, 3));
    world.bootstrap(2, &[1]).unwrap();
    world.start_empty(3);
    world.run_ms(2000);
    world.cut.clear();
    world.run_ms(10_000);
    assert_eq!(world.ensembles(), [], "server 3 is another life");
    let mut world = two_that_wait();
    world.cut.push((2, 3));
    world.bootstrap(2, &[1]).unwrap();
    world.run_ms(WORD_COUNTS_US / MS);
    world.cut.clear();
    world.run_ms(10_000);
    assert_eq!(world.ensembles(), [], "it was said more than a minute ago");
    assert!(world.bootstrap(2, &[1]).is_ok());
    world.run_ms(500);
    assert_eq!(world.ensembles().len(), 1);
}

#[test]
fn of_two_operators_only_those_who_say_the_same_found_an_ensemble() {
    let start = || {
        let mut world = World::new(5, 0);
        (1..=3).for_each(|id| world.start_empty(id));
        world.run_ms(4000);
        world
    };
    let mut world = start();
    world.bootstrap(1, &[4, 5]).unwrap();
    world.bootstrap(2, &[5, 4]).unwrap();
    world.run_ms(500);
    assert_eq!(world.fates(), [Founder, Joined, Joined, Undecided, Undecided]);
    // Behind links that are cut, two views of who is there.
    let mut world = start();
    world.start_empty(4);
    world.start_empty(5);
    world.cut = vec![(1, 4), (1, 5), (2, 4), (2, 5)];
    world.run_ms(4000);
    world.bootstrap(1, &[4, 5]).unwrap();
    let refused = world.bootstrap(5, &[1, 2]).unwrap_err();
    assert_eq!(refused, ["servers 3 and 5 do not agree on who founds it: see /readyz of both"]);
    world.run_ms(10_000);
    assert_eq!(world.ensembles(), [], "server 3 hears all of them");
}

#[test]
fn a_state_that_comes_too_late_is_kept_and_not_served() {
    let mut world = two_that_wait();
    world.bootstrap(2, &[1]).unwrap();
    world.run_ms(500);
    let [ensemble] = world.ensembles()[..] else { panic!() };
    world.start_with_state(1, 12);
    world.run_ms(10_000);
    assert_eq!(world.ensembles(), [ensemble]);
    let expected = format!(
        "servers 2, 3 founded the ensemble {ensemble:032x} without server 1, which has a state of its own \
         (12 znodes): it serves no client and keeps its data. To have it join with the ensemble's state \
         instead, start it with --rejoin, which sets its data aside"
    );
    assert_eq!(world.obstacle(1), expected);
}

#[test]
fn what_was_said_before_a_server_stood_still_is_no_consent_when_it_goes_on() {
    // The last answers of 2 and 3 lie unread while 1 stands still.
    let mut world = World::new(3, 0);
    (1..=3).for_each(|id| world.start_empty(id));
    world.run_ms(100);
    let asked_us = world.now_us;
    let said = world.introductions();
    let mut stands_still = world.founding(1).clone();
    // Meanwhile these two are started anew, one of them with a state.
    let now_us = asked_us + 10_000_000;
    for (from, introduction) in said {
        stands_still.heard(from, introduction.clone(), Some(asked_us), now_us);
        stands_still.heard(from, introduction, None, now_us);
    }
    assert_eq!(stands_still.decide(now_us), Ok(None));
}

#[test]
fn a_server_that_says_so_by_itself_has_lost_no_state_before_it_answers() {
    let mut world = two_that_wait();
    world.start_with_state(1, 12);
    world.cut.push((1, 3));
    world.run_ms(100);
    let with_state = world.introductions()[0].clone();
    world.start_empty(1);
    let without = world.introductions()[0].clone();
    let now_us = world.now_us;
    let waits = world.founding(2);
    waits.heard(1, with_state.1, Some(now_us), now_us);
    waits.heard(1, without.1.clone(), None, now_us);
    assert!(waits.bootstrap(&[1], now_us, now_us + 1).unwrap_err()[0].contains("has a state"));
    waits.heard(1, without.1, Some(now_us), now_us);
    assert!(waits.bootstrap(&[1], now_us, now_us + 1).unwrap_err()[0].contains("without data"));
}

#[test]
fn two_words_that_differ_found_nothing() {
    // Server 2 does not hear 4, so it is told to go without it; 1 does.
    let mut world = World::new(5, 0);
    (1..=4).for_each(|id| world.start_empty(id));
    world.cut.push((2, 4));
    world.run_ms(4000);
    world.bootstrap(1, &[5]).unwrap();
    world.bootstrap(2, &[4, 5]).unwrap();
    world.run_ms(10_000);
    assert_eq!(world.ensembles(), []);
    let said = world.obstacle(1);
    assert!(said.contains("do not agree on whom to leave out"), "{said}");
}
