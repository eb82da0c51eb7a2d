//! Small scopes of the core, explored exhaustively. See `exploration/mod.rs`.

use std::hash::Hash as _;

use lockkeeper_simulation::exploration::digest::Digest;
use lockkeeper_simulation::exploration::explorer::{Budget, Explored, explore};
use lockkeeper_simulation::exploration::founding::{Directory, Founding};

use super::seeds::plays_all;

/// Explores all of a scope, in which no rule is broken.
fn is_sound(name: &str, scope: &Founding) -> Explored {
    let explored = explore(scope, Budget::COMPLETE, &mut |_| {});
    println!("{name}: {explored}");
    if let Some(found) = &explored.found {
        panic!("{name}\n{found}");
    }
    assert!(explored.is_complete);
    explored
}

#[test]
fn founding_breaks_no_rule() {
    use Directory::{Empty, Member, State, Unused};
    for kinds in [&[Empty, Unused][..], &[Empty, State, Member]] {
        // However words are lost, none is founded beside another one.
        let only_one = !kinds.contains(&Member);
        let scope = Founding { step_us: 1_000_000, only_one, ..Founding::of(kinds) };
        is_sound(&format!("{kinds:?}"), &scope);
    }
}

#[test]
fn founding_breaks_no_rule_beside_a_server_that_serves_by_itself() {
    let of = Founding::of(&[Directory::Empty]);
    let scope = Founding { step_us: 1_000_000, alone: 1, only_one: true, ..of };
    is_sound("one alone", &scope);
}

#[test]
fn founding_without_a_server_by_an_operators_word_breaks_no_rule() {
    let of = Founding::of(&[Directory::Empty]);
    // With a crash, ten times as long.
    let crashes = u8::from(plays_all());
    let scope = Founding { step_us: 1_000_000, words: 1, crashes, ..of };
    is_sound("a word", &scope);
}

#[test]
fn founding_with_unequal_lines_breaks_no_rule() {
    let scope = Founding {
        step_us: 1_000_000,
        has_unequal_lines: true,
        only_one: true,
        ..Founding::of(&[Directory::Empty])
    };
    is_sound("unequal lines", &scope);
}

/// Each time that a founding server keeps tells two states apart.
#[test]
fn every_time_of_a_founding_server_counts() {
    use lockkeeper_core::config::ServerSpec;
    use lockkeeper_core::replica::founding::{
        Chance, Founding, Introduction, LISTENS_US, Port, Undecided,
    };

    let line = |id: u8| ServerSpec::parse(id, &format!("h{id}:1:2;3")).expect("well-formed");
    let lines = [line(1), line(2), line(3)];
    let said = |candidate| {
        let lines = lines.to_vec();
        Introduction::Founding(Undecided { candidate, lines, ..Undecided::default() })
    };
    const NOW_US: u64 = 10_000_000;
    type Event<'a> = &'a dyn Fn(&mut Founding, u64);
    let events: [(&str, Event<'_>); 7] = [
        ("a word", &|founding, at_us| founding.heard(2, said(None), None, at_us)),
        ("a consent", &|founding, at_us| founding.heard(2, said(None), Some(at_us), NOW_US)),
        ("a stranger", &|founding, at_us| founding.heard(4, said(None), None, at_us)),
        ("a refusal", &|founding, at_us| founding.refused(2, "no".to_owned(), at_us)),
        ("an answer", &|founding, at_us| founding.answered(3, Port::Closed, at_us)),
        ("a question", &|founding, at_us| {
            founding.heard(2, said(None), None, NOW_US);
            assert!(!founding.to_ask(at_us).is_empty());
        }),
        ("a word of an operator", &|founding, at_us| {
            let begun_us = NOW_US - LISTENS_US;
            assert_eq!(founding.decide(begun_us), Ok(None));
            founding.heard(2, said(Some(1)), None, NOW_US);
            founding.answered(3, Port::Closed, NOW_US);
            founding
                .bootstrap(&[3], NOW_US, at_us + LISTENS_US)
                .expect("nothing speaks against it");
        }),
    ];
    for (what, event) in events {
        let fingerprint = |age_us: u64, now_us: u64| {
            let chance = Chance { nonce: 1, ensemble: 1, incarnation: 1 };
            let mut founding = Founding::new(1, &lines, chance);
            event(&mut founding, NOW_US - age_us);
            let mut digest = Digest::at(now_us);
            founding.aged(now_us, true).hash(&mut digest);
            digest.finish_128()
        };
        assert_ne!(fingerprint(100_000, NOW_US), fingerprint(900_000, NOW_US), "{what}");
        assert_eq!(fingerprint(100_000, NOW_US), fingerprint(100_000, NOW_US), "{what}");
    }
}

/// Deliberate bugs (tests/simulation/catalogue.rs has all of them) that the exploration finds without a seed.
#[cfg(feature = "mutants")]
#[test]
fn quick_ones_are_found_without_a_seed() {
    use Directory::{Empty, Member, State, Unused};
    use lockkeeper_core::mutants::plant;

    let of = |directories| Founding { step_us: 1_000_000, ..Founding::of(directories) };
    for (name, scope, rule) in [
        ("majority-founds", of(&[Empty]), "without the consent of"),
        (
            "word-beside-anything",
            Founding { alone: 1, words: 1, ..of(&[Empty]) },
            "serves by itself",
        ),
        (
            "word-of-another-life",
            Founding { words: 1, crashes: 1, ..of(&[Empty]) },
            "without the consent of",
        ),
        (
            "late-state-joins",
            Founding { words: 1, ..of(&[Empty, State]) },
            "without the consent of",
        ),
        ("first-of-two-states-founds", of(&[Empty, State]), "over the state of"),
        ("state-counts-as-empty", of(&[Empty, State]), "gives up its state"),
        ("unused-counts-as-state", of(&[Empty, Unused]), "never becomes a member"),
        ("absent-voters-count", of(&[Empty]), "votes that are not there"),
        (
            "unequal-lines-found",
            Founding { has_unequal_lines: true, ..of(&[Empty]) },
            "without the consent of",
        ),
        ("emptied-server-keeps-identity", of(&[Empty, Member]), "another life had"),
    ] {
        plant(Some(name));
        let explored = explore(&scope, Budget::COMPLETE, &mut |_| {});
        plant(None);
        println!("\n{name}: {explored}");
        let found = explored.found.unwrap_or_else(|| panic!("{name} is not found"));
        println!("{found}");
        assert!(found.violation.contains(rule), "{name}: {}", found.violation);
    }
}
