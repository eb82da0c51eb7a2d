//! `multi`: clients that move money between accounts, several znodes at a time, all or nothing.

use lockkeeper_check::op::{Answer, Call, Mode};

use super::{Body, Required, Workload};
use crate::client::{Client, Disconnected};
use crate::workload as w;

const ROOT: &str = "/multi";
/// Accounts.
const ACCOUNTS: u64 = 5;
/// What is in each at the start.
const START: i64 = 100;

/// The workload.
#[derive(Debug)]
pub struct Multis;

fn account(at: u64) -> String {
    format!("{ROOT}/a{at}")
}

/// All accounts, read at once.
fn read_all() -> Call {
    Call::MultiRead((0..ACCOUNTS).map(|at| w::get(&account(at))).collect())
}

impl Workload for Multis {
    fn setup(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::ensure(client, ROOT)?;
        let create = |at| w::create(&account(at), &START.to_string(), Mode::Persistent);
        client.call(Call::Multi((0..ACCOUNTS).map(create).collect())).map(drop)
    }

    fn body(&self) -> Box<dyn Body> {
        Box::new(One { moved: 0 })
    }

    fn finale(&self, client: &mut Client) -> Result<(), Disconnected> {
        client.call(w::sync(ROOT))?;
        client.call(read_all())?;
        w::read_all(client, ROOT)
    }

    fn required(&self) -> Required {
        Required { always: &["witness"], with_account: &[] }
    }
}

/// What one client knows.
struct One {
    moved: u64,
}

/// What is in an account, and its version.
type Balance = (i64, i32);

fn balances(answer: &Answer) -> Option<Vec<Balance>> {
    let Answer::Parts(parts) = answer else { return None };
    let balance = |part: &Result<Answer, _>| match part {
        Ok(Answer::Data(Some(data), stat)) => {
            let text = std::str::from_utf8(data).ok()?;
            Some((text.parse().ok()?, stat.version))
        }
        Ok(_) | Err(_) => None,
    };
    parts.iter().map(balance).collect()
}

impl Body for One {
    fn step(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        let reply = client.call(read_all())?;
        let Some(balances) = reply.result.ok().as_ref().and_then(balances) else { return Ok(()) };
        let (from, to) = (client.random().index(balances.len()), client.random().below(ACCOUNTS));
        let (from, to) = (u64::try_from(from).expect("a few accounts"), to);
        if from == to {
            return Ok(());
        }
        let balance = |at: u64| balances[usize::try_from(at).expect("a few accounts")];
        let amount = i64::try_from(client.random().below(10)).expect("below 10");
        let ((has, version), (gets, version_there)) = (balance(from), balance(to));
        self.moved += 1;
        let note = format!("{ROOT}/m{}.{}", client.process(), self.moved);
        let mut parts = vec![
            w::set(&account(from), &(has - amount).to_string(), version),
            w::set(&account(to), &(gets + amount).to_string(), version_there),
        ];
        match client.random().below(10) {
            0..4 => parts.push(w::create(&note, &amount.to_string(), Mode::Persistent)),
            4..6 => parts.push(w::create(&format!("{ROOT}/s-"), "", Mode::EphemeralSequential)),
            // The last part fails, and with it all of them.
            6..7 => parts.push(w::delete(&format!("{ROOT}/nobody"), -1)),
            // What one part makes the next one finds.
            7..8 => {
                parts.insert(0, w::create(&note, "", Mode::Persistent));
                parts.push(w::delete(&note, 0));
            }
            _ => parts.insert(0, Call::Check { path: ROOT.to_owned(), version: 0 }),
        }
        client.call(Call::Multi(parts)).map(drop)
    }
}
