//! The plan of a run: which faults strike when.
//!
//! *Owns* the draws. *Invariant*: the same settings and seed give the same plan. Whom a fault hits may
//! depend on who leads then; that goes into the journal.

use std::time::Duration;

use super::{Faults, Harm, Kind, Part, Strike, Target, Way};
use crate::random::{FAULTS, Random};

/// Seconds by which a clock jumps, at least and at most.
const JUMP_SECONDS_MIN: u64 = 60;
const JUMP_SECONDS_MAX: u64 = 600;

/// The faults of a run, with quiet between them, the last over before the end: one at a time, or
/// now and then a second one of another kind within the first.
#[must_use]
pub fn plan(
    seed: u64,
    faults: &Faults,
    nodes: usize,
    length: Duration,
    interval: Duration,
) -> Vec<Strike> {
    let mut random = Random::new(seed, FAULTS);
    let mut plan = Vec::new();
    let kinds = &faults.kinds;
    if kinds.is_empty() {
        return plan;
    }
    let (least, most) = (interval.mul_f64(0.4), interval.mul_f64(1.2));
    let mut at = random.between(least / 2, least);
    let mut turns = 0;
    loop {
        // Each kind in turn first, so that none is left out by chance.
        let kind = match kinds.get(turns) {
            Some(kind) => *kind,
            None => *random.pick(kinds),
        };
        let target = one_if_damaged(kind, target(&mut random, faults, nodes, turns));
        let way = way(&mut random, kind, turns);
        let jump_s = jump(&mut random, kind, &plan);
        let harm = damage(&mut random, kind, &plan);
        let lasts = random.between(least, most);
        if at + lasts > length {
            return plan;
        }
        plan.push(Strike { kind, target, way, jump_s, harm, at, lasts });
        turns += 1;
        if faults.at_once {
            let second = match kinds.get(turns) {
                Some(kind) => *kind,
                None => *random.pick(kinds),
            };
            if second != kind && (turns < kinds.len() || random.chance(50)) {
                let at = at + random.between(Duration::ZERO, lasts / 2);
                let target = target_of_second(&mut random, second, nodes);
                let way = way_of_second(second);
                let jump_s = jump(&mut random, second, &plan);
                let harm = damage(&mut random, second, &plan);
                let lasts = lasts / 2;
                plan.push(Strike { kind: second, target, way, jump_s, harm, at, lasts });
                turns += 1;
            }
        }
        at += lasts + random.between(least, most);
    }
}

/// The first strikes are aimed at the leader: nothing else makes an election certain.
fn target(random: &mut Random, faults: &Faults, nodes: usize, before: usize) -> Target {
    let one = random.index(nodes);
    let chance = random.below(10);
    match chance {
        _ if nodes == 1 => Target::All,
        _ if before < 2 || faults.at_leader => Target::Leader,
        0..4 => Target::Leader,
        4..7 => Target::One(one),
        7..9 => Target::Minority(one),
        _ => Target::All,
    }
}

/// A second fault hits one of them. A clock is the leader's: whose else it is, nobody sees.
fn target_of_second(random: &mut Random, kind: Kind, nodes: usize) -> Target {
    match kind == Kind::Clock || random.chance(50) {
        true => Target::Leader,
        false => Target::One(random.index(nodes)),
    }
}

/// Data that every server has lost is lost: one is damaged at a time.
fn one_if_damaged(kind: Kind, target: Target) -> Target {
    match (kind, target) {
        (Kind::Corruption, Target::Minority(at)) => Target::One(at),
        (Kind::Corruption, Target::All) => Target::Leader,
        _ => target,
    }
}

/// Every part in turn.
fn damage(random: &mut Random, kind: Kind, before: &[Strike]) -> Option<Harm> {
    let turn = before.iter().filter(|strike| strike.harm.is_some()).count();
    let (part, _) = Part::ALL[turn % Part::ALL.len()];
    (kind == Kind::Corruption).then(|| Harm { part, chance: random.below(u64::MAX) })
}

/// The first partitions cut both ways: nothing else makes an election certain.
fn way(random: &mut Random, kind: Kind, before: usize) -> Way {
    if kind == Kind::OneWay {
        return if random.chance(50) { Way::Deaf } else { Way::Mute };
    }
    if kind != Kind::Partition {
        return Way::Both;
    }
    match random.below(10) {
        _ if before < 2 => Way::Both,
        0..6 => Way::Both,
        6..8 => Way::Deaf,
        _ => Way::Mute,
    }
}

fn way_of_second(kind: Kind) -> Way {
    if kind == Kind::OneWay { Way::Mute } else { Way::Both }
}

/// Minutes, forth or back. The first forth: servers' times never go back, so nothing else is sure to
/// be seen, and nobody can take it for a slow machine.
fn jump(random: &mut Random, kind: Kind, before: &[Strike]) -> i64 {
    if kind != Kind::Clock {
        return 0;
    }
    let by = i64::try_from(random.below(JUMP_SECONDS_MAX - JUMP_SECONDS_MIN)).expect("minutes");
    let by = by + i64::try_from(JUMP_SECONDS_MIN).expect("a minute");
    let is_back = !before.is_empty() && random.chance(50);
    let is_first = before.iter().all(|strike| strike.kind != Kind::Clock);
    if is_back && !is_first { -by } else { by }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const INTERVAL: Duration = Duration::from_secs(5);

    fn faults(text: &str) -> Faults {
        text.parse().unwrap()
    }

    #[test]
    fn a_seed_gives_the_same_plan_again_and_another_seed_another_one() {
        let plan = |seed| plan(seed, &faults("kill,pause"), 3, MINUTE, INTERVAL);
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
    }

    #[test]
    fn every_kind_strikes_at_the_leader_first_and_all_is_over_before_the_end() {
        for seed in 0..200 {
            let plan = plan(seed, &faults("kill,pause"), 3, MINUTE, INTERVAL);
            assert_eq!((plan[0].kind, plan[0].target), (Kind::Kill, Target::Leader));
            assert_eq!((plan[1].kind, plan[1].target), (Kind::Pause, Target::Leader));
            for pair in plan.windows(2) {
                assert!(pair[0].at + pair[0].lasts < pair[1].at);
            }
            let last = plan.last().unwrap();
            assert!(last.at + last.lasts <= MINUTE);
        }
    }

    #[test]
    fn partitions_come_in_all_directions_and_the_first_cuts_both() {
        let plans = (0..50).map(|seed| plan(seed, &faults("partition"), 3, MINUTE, INTERVAL));
        let strikes: Vec<Strike> = plans
            .flat_map(|plan| {
                assert_eq!((plan[0].way, plan[0].target), (Way::Both, Target::Leader));
                plan
            })
            .collect();
        for way in [Way::Both, Way::Deaf, Way::Mute] {
            assert!(strikes.iter().any(|strike| strike.way == way));
        }
    }

    #[test]
    fn a_run_without_faults_has_no_plan() {
        assert_eq!(plan(7, &faults("none"), 3, MINUTE, INTERVAL), []);
    }

    #[test]
    fn faults_of_the_leader_hit_nobody_else() {
        for seed in 0..50 {
            let plan = plan(seed, &faults("leader"), 3, MINUTE, INTERVAL);
            assert!(plan.len() > 3 && plan.iter().all(|strike| strike.target == Target::Leader));
        }
    }

    #[test]
    fn one_way_cuts_have_one_direction_and_both_come() {
        let all: Vec<Strike> =
            (0..20).flat_map(|seed| plan(seed, &faults("one-way"), 3, MINUTE, INTERVAL)).collect();
        for way in [Way::Deaf, Way::Mute] {
            assert!(all.iter().any(|strike| strike.way == way));
        }
        assert!(all.iter().all(|strike| strike.way != Way::Both));
    }

    #[test]
    fn a_second_fault_strikes_within_the_first_and_every_kind_has_its_turn() {
        for seed in 0..50 {
            let plan = plan(seed, &faults("all"), 3, MINUTE * 3, INTERVAL);
            for (kind, name) in Kind::ALL {
                assert!(plan.iter().any(|strike| strike.kind == kind), "seed {seed}: no {name}");
            }
            let is_within = |pair: &[Strike]| {
                let end = pair[0].at + pair[0].lasts;
                pair[1].at < end && pair[1].at + pair[1].lasts <= end
            };
            assert!(plan.windows(2).any(is_within));
            assert!(plan.windows(2).all(|pair| pair[0].at <= pair[1].at));
        }
    }

    #[test]
    fn one_server_is_damaged_at_a_time_and_every_part_in_turn() {
        for seed in 0..50 {
            let plan = plan(seed, &faults("corruption"), 3, MINUTE, INTERVAL);
            let parts: Vec<Part> = plan.iter().map(|strike| strike.harm.unwrap().part).collect();
            assert_eq!(parts[..4], Part::ALL.map(|(part, _)| part));
            let is_one = |strike: &Strike| matches!(strike.target, Target::Leader | Target::One(_));
            assert!(plan.iter().all(is_one));
        }
    }

    #[test]
    fn the_first_clock_that_jumps_is_the_leaders_and_jumps_forth() {
        for seed in 0..50 {
            for (name, length) in [("clock", MINUTE), ("all", MINUTE * 3)] {
                let plan = plan(seed, &faults(name), 3, length, INTERVAL);
                let jumps = plan.iter().filter(|strike| strike.kind == Kind::Clock);
                let jumps: Vec<&Strike> = jumps.collect();
                assert!(jumps[0].jump_s >= 60 && jumps[0].target == Target::Leader);
                assert!(jumps.iter().all(|strike| strike.jump_s.abs() >= 60));
            }
        }
    }
}
