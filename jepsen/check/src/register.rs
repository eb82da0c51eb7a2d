//! One znode as a register that may be absent: the model of the search.
//!
//! *Owns* which operations concern only their own path, and what they do to it. The version makes
//! every set a compare-and-set. *Never* uses zxids: that is the witness's part.

use crate::history::{Operation, Outcome};
use crate::op::{Answer, Call, Code, CreateOp, Data};
use crate::path;
use crate::search::{Interval, Model};

/// The model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Register;

/// Version and data, if it is there.
pub type State = Option<(i32, Data)>;

/// What is asked of a znode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    Create(Data),
    /// With the expected version, -1 for any.
    Set(Data, i32),
    Delete(i32),
    Read,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It was done; the version and the length of the data after it, if they were told.
    Done(Option<(i32, i32)>),
    /// Version and data.
    Value(i32, Data),
    /// Version and length.
    There(i32, i32),
    Error(Code),
}

impl Model for Register {
    /// Version and data, if it is there.
    type State = State;
    type Ask = Ask;
    type Said = Said;

    fn initial(&self) -> Self::State {
        None
    }

    fn step(
        &self,
        state: &Self::State,
        ask: &Ask,
        said: Option<&Said>,
        next: &mut Vec<Self::State>,
    ) {
        let (due, after) = carried_out(state, ask);
        match said {
            // Without an effect it is as if it never happened.
            None if due.is_ok() => next.push(after),
            None => {}
            // Its parent is missing, so it is missing too.
            Some(Said::Error(Code::NO_NODE)) if matches!(ask, Ask::Create(_)) => {
                next.extend(state.is_none().then_some(None));
            }
            Some(said) if fits(due, &after, said) => next.push(after),
            Some(_) => {}
        }
    }
}

/// What is due as far as the znode alone decides it, and the state after it.
fn carried_out(state: &State, ask: &Ask) -> (Result<(), Code>, State) {
    let is_expected = |version: i32, expected: i32| expected == -1 || expected == version;
    match (ask, state) {
        (Ask::Create(data), None) => (Ok(()), Some((0, data.clone()))),
        (Ask::Create(_), Some(_)) => (Err(Code::NODE_EXISTS), state.clone()),
        (Ask::Read, Some(_)) => (Ok(()), state.clone()),
        (Ask::Set(..) | Ask::Delete(_) | Ask::Read, None) => (Err(Code::NO_NODE), None),
        (Ask::Set(data, expected), Some((version, _))) if is_expected(*version, *expected) => {
            let next = match version.wrapping_add(1) {
                -1 => 0,
                next => next,
            };
            (Ok(()), Some((next, data.clone())))
        }
        (Ask::Delete(expected), Some((version, _))) if is_expected(*version, *expected) => {
            (Ok(()), None)
        }
        (Ask::Set(..) | Ask::Delete(_), Some(_)) => (Err(Code::BAD_VERSION), state.clone()),
    }
}

/// Whether an answer is possible.
fn fits(due: Result<(), Code>, after: &State, said: &Said) -> bool {
    let length = |data: &Data| data.as_ref().map_or(0, Vec::len);
    match (said, after) {
        (Said::Done(None), _) => due.is_ok(),
        (Said::Done(Some((version, bytes))) | Said::There(version, bytes), Some((now, data))) => {
            due.is_ok() && version == now && usize::try_from(*bytes) == Ok(length(data))
        }
        (Said::Value(version, value), Some((now, data))) => {
            due.is_ok() && version == now && value == data
        }
        (Said::Done(Some(_)) | Said::There(..) | Said::Value(..), None) => false,
        (Said::Error(code), _) => due == Err(*code),
    }
}

impl Register {
    /// An operation as the search takes it, if it concerns its own path alone and was not refused for
    /// a reason that lies elsewhere.
    #[must_use]
    pub fn interval(operation: &Operation) -> Option<Interval<Ask, Said>> {
        let ask = match &operation.call {
            Call::Create(create) if !create.mode.is_sequential() => {
                Ask::Create(create.data.clone())
            }
            Call::SetData { data, version, .. } => Ask::Set(data.clone(), *version),
            Call::Delete { version, .. } => Ask::Delete(*version),
            Call::GetData { .. } | Call::Exists { .. } => Ask::Read,
            _ => return None,
        };
        let returned = match &operation.outcome {
            Outcome::NotSent { .. } => return None,
            // A read that nobody saw says nothing.
            Outcome::Unknown { .. } if ask == Ask::Read => return None,
            Outcome::Unknown { .. } => None,
            Outcome::Replied { at, result, .. } => Some((at.time_ns, said(result)?)),
        };
        Some(Interval { invoked: operation.invoked.time_ns, returned, ask })
    }

    /// Paths that an operation may change beside the one that it names, or that change without one;
    /// a path that ends in `*` stands for all that begin so.
    #[must_use]
    pub fn reaches_elsewhere(operation: &Operation) -> Vec<String> {
        match &operation.call {
            Call::Multi(parts) => {
                parts.iter().flat_map(|part| Self::elsewhere(part, true)).collect()
            }
            call => Self::elsewhere(call, false),
        }
    }

    fn elsewhere(call: &Call, is_part: bool) -> Vec<String> {
        match call {
            Call::Create(create) if create.mode.is_sequential() => {
                vec![format!("{}*", create.path)]
            }
            Call::Create(create)
                if create.mode.is_ephemeral()
                    || matches!(create.op, CreateOp::Container | CreateOp::Ttl) =>
            {
                vec![create.path.clone()]
            }
            call if is_part => call.path().map(str::to_owned).into_iter().collect(),
            call => {
                let special = call.path().filter(|path| path::is_special(path));
                special.map(str::to_owned).into_iter().collect()
            }
        }
    }
}

/// The answer, unless it is a refusal that has nothing to do with what the znode is.
fn said(result: &Result<Answer, Code>) -> Option<Said> {
    Some(match result {
        Ok(Answer::PathStat(_, stat)) => Said::Done(Some((stat.version, stat.data_length))),
        Ok(Answer::Stat(stat)) => Said::There(stat.version, stat.data_length),
        Ok(Answer::Data(data, stat)) => Said::Value(stat.version, data.clone()),
        Ok(_) => Said::Done(None),
        Err(code @ (Code::NO_NODE | Code::NODE_EXISTS | Code::BAD_VERSION)) => Said::Error(*code),
        Err(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(state: State, ask: Ask, said: Option<Said>) -> Vec<State> {
        let mut next = Vec::new();
        Register.step(&state, &ask, said.as_ref(), &mut next);
        next
    }

    #[test]
    fn an_answer_that_the_state_does_not_give_leads_nowhere() {
        let state = Some((3, Some(b"x".to_vec())));
        let set = |version| Ask::Set(None, version);
        let done = |version| Some(Said::There(version, 0));
        assert_eq!(after(state.clone(), set(3), done(4)), [Some((4, None))]);
        assert_eq!(after(state.clone(), set(3), done(5)), []);
        assert_eq!(after(state.clone(), set(2), done(4)), []);
        let refused = Some(Said::Error(Code::BAD_VERSION));
        assert_eq!(after(state.clone(), set(2), refused.clone()), vec![state.clone()]);
        assert_eq!(after(state, set(3), refused), []);
    }

    #[test]
    fn an_unknown_outcome_leads_to_the_effect_or_nowhere() {
        let state = Some((3, None));
        assert_eq!(after(state.clone(), Ask::Delete(-1), None), [None]);
        assert_eq!(after(state, Ask::Delete(2), None), []);
    }
}
