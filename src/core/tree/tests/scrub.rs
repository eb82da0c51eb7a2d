//! The scrub agrees with the digest that is kept, whatever is written meanwhile, and finds memory that changed.

use super::*;
use crate::rng::Rng;

fn pass(fixture: &mut Fixture, mut between: impl FnMut(&mut Fixture)) -> bool {
    loop {
        if let Some(is_equal) = fixture.tree.scrub(3, 1 << 20) {
            return is_equal;
        }
        between(fixture);
    }
}

#[test]
fn a_pass_agrees_with_the_kept_digest_whatever_is_written_meanwhile() {
    for seed in 1..=100 {
        let mut rng = Rng::new(seed, 5);
        let mut fixture = Fixture::new();
        for number in 0..40 {
            fixture.create(&format!("/n{number}"), 0).unwrap();
        }
        let is_equal = pass(&mut fixture, |fixture| {
            let path = format!("/n{}", rng.below(50));
            match rng.below(3) {
                0 => drop(fixture.create(&path, 0)),
                1 => drop(fixture.delete(&path, -1)),
                _ => drop(fixture.set(&path, "changed", -1)),
            }
        });
        assert!(is_equal, "seed {seed}");
    }
}

#[test]
fn a_byte_that_changed_in_memory_is_found() {
    let mut fixture = Fixture::new();
    fixture.create("/a", 0).unwrap();
    fixture.set("/a", "right", -1).unwrap();
    let kept = fixture.tree.digest();
    assert!(fixture.tree.flip_a_byte("/a"));
    assert_eq!(fixture.tree.digest(), kept, "a digest that is kept by differences does not notice");
    assert!(!pass(&mut fixture, |_| {}));
}

#[test]
fn a_step_is_bounded_by_znodes_and_by_bytes() {
    let mut fixture = Fixture::new();
    for number in 0..10 {
        fixture.create(&format!("/n{number}"), 0).unwrap();
        fixture.set(&format!("/n{number}"), &"x".repeat(1000), -1).unwrap();
    }
    let steps = |fixture: &mut Fixture, znodes_max, bytes_max| {
        (1..).find(|_| fixture.tree.scrub(znodes_max, bytes_max).is_some()).unwrap()
    };
    assert_eq!(steps(&mut fixture, 1000, usize::MAX), 1);
    assert_eq!(steps(&mut fixture, 5, usize::MAX), 3, "14 znodes, and the step that finds the end");
    assert!(steps(&mut fixture, 1000, 2000) >= 5);
}
