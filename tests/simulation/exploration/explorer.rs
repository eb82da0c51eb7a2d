//! Every schedule of a scope, the shortest first.
//!
//! *Owns* the states that were seen, and how each was reached. *Invariants*: a state is pruned only if one with the
//! same fingerprint was seen, in at most as many steps; so the schedule of a violation is a shortest one, and a scope
//! is complete if the frontier becomes empty. *Never* draws a number, or looks at a clock but for its budget.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Display};
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The rule that was broken, in words.
pub type Violation = String;

/// A part of the product in a world with few choices.
pub trait Scope {
    /// The world and the servers in it.
    type World;
    /// One step.
    type Choice: Copy + Display;

    /// Worlds to begin with, each with words for it.
    fn beginnings(&self) -> Vec<(String, Self::World)>;

    /// One of those again: worlds that cannot be cloned are reached anew, step by step.
    fn begin(&self, beginning: usize) -> Self::World;

    /// The same world, if that costs less than to reach it anew.
    fn cloned(&self, world: &Self::World) -> Option<Self::World>;

    /// Every step that can be taken.
    fn choices(&self, world: &Self::World) -> Vec<Self::Choice>;

    /// Takes a step.
    ///
    /// # Errors
    /// A rule is broken by it.
    fn take(&self, world: &mut Self::World, choice: Self::Choice) -> Result<(), Violation>;

    /// Equal for worlds that no rule and no further step tells apart.
    fn fingerprint(&self, world: &Self::World) -> u128;

    /// From here on all faults are over: one step of what happens then. `true` once all is well.
    ///
    /// # Errors
    /// It never will be.
    fn recover(&self, world: &mut Self::World) -> Result<bool, Violation>;

    /// Whether [`Scope::recover`] is asked of every state.
    fn must_recover(&self) -> bool;
}

/// How much is explored at most.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    pub depth: usize,
    pub states: usize,
    pub time: Duration,
}

impl Budget {
    /// As much as there is.
    pub const COMPLETE: Self =
        Self { depth: usize::MAX, states: usize::MAX, time: Duration::from_secs(24 * 3600) };
}

/// What an exploration has seen.
#[derive(Clone, Debug)]
pub struct Explored {
    pub states: usize,
    /// Steps taken, those that led to a state seen before included.
    pub steps: u64,
    /// All schedules of so many steps were tried.
    pub depth: usize,
    /// There is nothing beyond.
    pub is_complete: bool,
    pub time: Duration,
    pub found: Option<Counterexample>,
}

/// A shortest schedule that breaks a rule.
#[derive(Clone, Debug)]
pub struct Counterexample {
    pub beginning: String,
    pub schedule: Vec<String>,
    pub violation: Violation,
}

impl Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.beginning)?;
        for (at, step) in self.schedule.iter().enumerate() {
            writeln!(f, "{:>4}. {step}", at + 1)?;
        }
        write!(f, "      {}", self.violation)
    }
}

impl Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, steps, depth, is_complete, time, .. } = self;
        let complete = if *is_complete { "complete" } else { "not complete" };
        write!(
            f,
            "{states} states, {steps} steps, {complete} at depth {depth}, {:.1} s",
            time.as_secs_f64()
        )
    }
}

/// Fingerprints are hashes already.
#[derive(Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only fingerprints are kept");
    }

    fn write_u128(&mut self, fingerprint: u128) {
        self.0 = fingerprint as u64;
    }
}

type Seen = HashSet<u128, BuildHasherDefault<Itself>>;

/// States that were taken for one, and went on differently.
///
/// Takes every `nth` step that leads to a state seen before, and from both ways to it every further step: what these
/// lead to must be the same as well. Says how many were compared.
///
/// # Errors
/// Both schedules, and where they part.
pub fn compare_merged<S: Scope>(scope: &S, depth: usize, nth: usize) -> Result<usize, String>
where
    S::Choice: PartialEq + fmt::Debug,
{
    let mut ways: HashMap<u128, Vec<S::Choice>> = HashMap::new();
    let reach = |way: &[S::Choice]| {
        let mut world = scope.begin(0);
        way.iter().try_for_each(|choice| scope.take(&mut world, *choice)).map(|()| world)
    };
    let behind = |way: &[S::Choice]| -> Result<Vec<(String, u128)>, String> {
        let choices = scope.choices(&reach(way)?);
        let taken = choices.into_iter().map(|choice| {
            let world = reach(&[way, &[choice]].concat())?;
            Ok((choice.to_string(), scope.fingerprint(&world)))
        });
        taken.collect()
    };
    ways.insert(scope.fingerprint(&scope.begin(0)), Vec::new());
    let (mut frontier, mut merged, mut compared) = (vec![Vec::new()], 0, 0);
    for _ in 0..depth {
        let mut next = Vec::new();
        for way in frontier {
            for choice in scope.choices(&reach(&way)?) {
                let longer = [&way[..], &[choice]].concat();
                let world = reach(&longer)?;
                let Some(known) = ways.get(&scope.fingerprint(&world)) else {
                    ways.insert(scope.fingerprint(&world), longer.clone());
                    next.push(longer);
                    continue;
                };
                merged += 1;
                if merged % nth != 0 {
                    continue;
                }
                compared += 1;
                let (one, other) = (behind(known)?, behind(&longer)?);
                if one != other {
                    return Err(format!("{known:?}\nand {longer:?} part:\n{one:?}\n{other:?}"));
                }
            }
        }
        frontier = next;
    }
    Ok(compared)
}

struct Exploration<'a, S: Scope> {
    scope: &'a S,
    beginnings: Vec<String>,
    /// How each state was reached: from the state of that number, or as the beginning of that number.
    reached: Vec<(u32, Option<S::Choice>)>,
    seen: Seen,
    recovered: Seen,
    steps: u64,
}

/// Explores a scope, and tells of every depth that is done.
pub fn explore<S: Scope>(scope: &S, budget: Budget, tell: &mut dyn FnMut(&Explored)) -> Explored {
    let begun = Instant::now();
    let mut exploration = Exploration {
        scope,
        beginnings: Vec::new(),
        reached: Vec::new(),
        seen: Seen::default(),
        recovered: Seen::default(),
        steps: 0,
    };
    let mut depth = 0;
    let explored = |it: &Exploration<'_, S>, depth, is_complete, found| Explored {
        states: it.reached.len(),
        steps: it.steps,
        depth,
        is_complete,
        time: begun.elapsed(),
        found,
    };
    let mut frontier = match exploration.begin() {
        Ok(frontier) => frontier,
        Err(found) => return explored(&exploration, 0, false, Some(found)),
    };
    loop {
        tell(&explored(&exploration, depth, frontier.is_empty(), None));
        if frontier.is_empty() || depth >= budget.depth {
            return explored(&exploration, depth, frontier.is_empty(), None);
        }
        let mut next = Vec::new();
        for (at, world) in frontier {
            if exploration.reached.len() >= budget.states || begun.elapsed() >= budget.time {
                return explored(&exploration, depth, false, None);
            }
            if let Err(found) = exploration.expand(at, world, &mut next) {
                return explored(&exploration, depth, false, Some(found));
            }
        }
        frontier = next;
        depth += 1;
    }
}

/// Worlds of a frontier that are kept; others are reached anew.
const KEPT_MAX: usize = 30_000;

type Frontier<W> = Vec<(u32, Option<W>)>;

impl<S: Scope> Exploration<'_, S> {
    fn begin(&mut self) -> Result<Frontier<S::World>, Counterexample> {
        let mut frontier = Vec::new();
        for (at, (words, world)) in self.scope.beginnings().into_iter().enumerate() {
            self.beginnings.push(words);
            if self.seen.insert(self.scope.fingerprint(&world)) {
                let number = self.push(u32::try_from(at).expect("few beginnings"), None);
                self.must_recover(number, &world)?;
                frontier.push((number, self.scope.cloned(&world)));
            }
        }
        Ok(frontier)
    }

    fn push(&mut self, from: u32, choice: Option<S::Choice>) -> u32 {
        self.reached.push((from, choice));
        u32::try_from(self.reached.len() - 1).expect("fewer states than memory has room for")
    }

    /// All steps from a state.
    fn expand(
        &mut self,
        at: u32,
        world: Option<S::World>,
        next: &mut Frontier<S::World>,
    ) -> Result<(), Counterexample> {
        let mut here = Some(match world {
            Some(world) => world,
            None => self.reach(at),
        });
        let choices = self.scope.choices(here.as_ref().expect("it was just reached"));
        for (nth, choice) in choices.iter().enumerate() {
            let is_last = nth + 1 == choices.len();
            let copy = match &here {
                Some(world) if !is_last => self.scope.cloned(world),
                _ => here.take(),
            };
            let copy = copy.or_else(|| here.take());
            let mut world = copy.unwrap_or_else(|| self.reach(at));
            self.steps += 1;
            let taken = self.take(&mut world, *choice);
            if let Err(violation) = taken {
                return Err(self.counterexample(at, Some(*choice), Vec::new(), violation));
            }
            if self.seen.insert(self.scope.fingerprint(&world)) {
                let number = self.push(at, Some(*choice));
                self.must_recover(number, &world)?;
                let kept = (next.len() < KEPT_MAX).then(|| self.scope.cloned(&world)).flatten();
                next.push((number, kept));
            }
        }
        Ok(())
    }

    /// A step, in which a product that panics breaks a rule.
    fn take(&self, world: &mut S::World, choice: S::Choice) -> Result<(), Violation> {
        let taken = AssertUnwindSafe(|| self.scope.take(world, choice));
        catch_unwind(taken).unwrap_or_else(|panic| {
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Err(format!("it panics: {}", words.unwrap_or_default()))
        })
    }

    fn path(&self, mut at: u32) -> (usize, Vec<S::Choice>) {
        let mut choices = Vec::new();
        loop {
            let (from, choice) = self.reached[at as usize];
            let Some(choice) = choice else {
                choices.reverse();
                return (from as usize, choices);
            };
            choices.push(choice);
            at = from;
        }
    }

    /// A state again.
    fn reach(&self, at: u32) -> S::World {
        let (beginning, choices) = self.path(at);
        let mut world = self.scope.begin(beginning);
        for choice in choices {
            let taken = self.scope.take(&mut world, choice);
            taken.expect("the same steps have the same outcome");
        }
        world
    }

    /// Once faults are over, all must become well. What was found of one state holds for all that come to it.
    fn must_recover(&mut self, at: u32, world: &S::World) -> Result<(), Counterexample> {
        if !self.scope.must_recover() {
            return Ok(());
        }
        let mut world = self.scope.cloned(world).unwrap_or_else(|| self.reach(at));
        let mut passed = Vec::new();
        loop {
            match self.scope.recover(&mut world) {
                Ok(true) => break,
                Ok(false) => {}
                Err(violation) => {
                    let then = format!("all faults are over, and {} rounds pass", passed.len() + 1);
                    return Err(self.counterexample(at, None, vec![then], violation));
                }
            }
            // Only what has become well counts: a world that comes back to itself never does.
            let fingerprint = self.scope.fingerprint(&world);
            if self.recovered.contains(&fingerprint) {
                break;
            }
            passed.push(fingerprint);
        }
        self.recovered.extend(passed);
        Ok(())
    }

    fn counterexample(
        &self,
        at: u32,
        last: Option<S::Choice>,
        then: Vec<String>,
        violation: Violation,
    ) -> Counterexample {
        let (beginning, choices) = self.path(at);
        let steps = choices.iter().chain(&last).map(ToString::to_string);
        Counterexample {
            beginning: self.beginnings[beginning].clone(),
            schedule: steps.chain(then).collect(),
            violation,
        }
    }
}
