//! The rules of the simulation and of the exploration themselves: bounds of a world, digests of a state.

use std::fmt::Debug;

use lockkeeper_simulation::bounds::{BOUNDS, judge};
use lockkeeper_simulation::exploration::digest::{BEGIN_US, Digest};

#[test]
fn a_world_that_holds_too_much_of_anything_fails_and_says_of_what() {
    let most = BOUNDS.map(|(_, most)| most);
    assert_eq!(judge(most), Ok(()));
    for (at, (what, _)) in BOUNDS.into_iter().enumerate() {
        let mut held = most;
        held[at] += 1;
        assert!(judge(held).is_err_and(|said| said.contains(what)), "{what}");
    }
}

#[test]
fn times_count_by_their_distance_from_now() {
    let digest = |now: u64, at: u64| Digest::at(now).and(&Some((at, 7_u8))).finish_128();
    assert_eq!(digest(BEGIN_US + 5, BEGIN_US + 3), digest(BEGIN_US + 1005, BEGIN_US + 1003));
    assert_ne!(digest(BEGIN_US + 5, BEGIN_US + 3), digest(BEGIN_US + 5, BEGIN_US + 4));
}

#[test]
fn everything_else_counts_as_it_is() {
    let digest = |value: &dyn Debug| Digest::at(BEGIN_US).and(value).finish_128();
    for (a, b) in [("12a", "1 2a"), ("a1", "a2"), ("a", "b"), ("1", "01 "), ("x0", "x")] {
        assert_ne!(digest(&a), digest(&b), "{a} {b}");
    }
    assert_ne!(digest(&(1, 23)), digest(&(12, 3)));
    assert_eq!(digest(&vec![1, 2]), digest(&[1, 2]));
}
