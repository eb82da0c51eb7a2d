//! Deliberate bugs of the recipes, each of which a test here must catch: `cargo test --features mutants
//! --test locks planted`.
//!
//! *Owns* the catalogue. jepsen/TRACK_RECORD.md is the table for people. *Invariant*: a bug is planted in the
//! thread of its test alone, and the servers, which have threads of their own, have none.

use std::panic::catch_unwind;

use lockkeeper::internals::mutants;

use super::{barrier, election, hold, multi, overflow, queues, rwlock};

/// A deliberate bug.
struct Mutant {
    /// As `mutant!` has it.
    name: &'static str,
    /// The test that has to fail because of it.
    test: fn(),
}

/// All of them.
const CATALOGUE: &[Mutant] = &[
    Mutant {
        name: "any-wakeup-is-the-lock",
        test: queues::who_is_woken_by_one_that_gives_up_goes_on_to_wait_for_the_holder,
    },
    Mutant {
        name: "who-was-removed-holds",
        test: queues::who_was_removed_while_it_waited_is_told_so_in_its_turn,
    },
    Mutant {
        name: "numbers-compared-plainly",
        test: overflow::grants_come_in_the_order_of_arrival_over_the_overflow,
    },
    Mutant {
        name: "numbers-compared-plainly",
        test: overflow::leases_are_no_more_than_there_may_be_over_the_overflow,
    },
    Mutant {
        name: "candidates-sorted-plainly",
        test: overflow::candidates_are_listed_in_their_order_over_the_overflow,
    },
    Mutant {
        name: "hold-counts-from-the-answer",
        test: hold::a_hold_lasts_from_when_the_question_was_sent_not_from_the_answer,
    },
    Mutant {
        name: "any-server-confirms-the-hold",
        test: hold::a_server_that_is_cut_off_from_the_others_confirms_no_hold,
    },
    Mutant {
        name: "anothers-znode-confirms-the-hold",
        test: hold::a_znode_of_the_same_name_that_another_made_confirms_no_hold,
    },
    Mutant {
        name: "any-change-lifts-the-barrier",
        test: barrier::a_barrier_whose_data_change_is_not_lifted,
    },
    Mutant {
        name: "waits-anew-for-each-lock",
        test: multi::the_time_to_wait_is_that_for_all_of_them_together,
    },
    Mutant {
        name: "candidate-shows-its-last-change",
        test: election::a_candidate_whose_znode_was_written_to_shows_the_same_token,
    },
    Mutant {
        name: "exchange-outlasts-the-hold",
        test: rwlock::an_exchange_that_is_not_answered_ends_with_the_hold,
    },
];

/// Whether the test fails.
fn is_caught(mutant: &'static Mutant) -> bool {
    mutants::plant(Some(mutant.name));
    catch_unwind(mutant.test).is_err()
}

#[test]
fn planted_bugs_are_caught() {
    let hunt = |mutant| (mutant, std::thread::spawn(move || is_caught(mutant)));
    let hunts: Vec<_> = CATALOGUE.iter().map(hunt).collect();
    let hunted = hunts
        .into_iter()
        .map(|(mutant, hunt)| (mutant.name, hunt.join().expect("it catches what its test does")));
    let escaped: Vec<_> = hunted.filter(|(_, is_caught)| !is_caught).collect();
    assert_eq!(escaped, [], "not caught");
}
