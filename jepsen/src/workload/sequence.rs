//! `sequence`: clients that create and delete sequential znodes below a few parents.

use std::collections::VecDeque;

use lockkeeper_check::op::{Answer, Call, Create, CreateOp, Mode};

use super::{Body, Required, Workload};
use crate::client::{Client, Disconnected};
use crate::workload as w;

const ROOT: &str = "/sequence";
/// Parents, each with its own count.
const PARENTS: u64 = 3;
/// Znodes that a client leaves before it deletes its oldest.
const OWN_MAX: usize = 20;

/// The workload.
#[derive(Debug)]
pub struct Sequences;

fn parent(at: u64) -> String {
    format!("{ROOT}/p{at}")
}

impl Workload for Sequences {
    fn setup(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::ensure(client, ROOT)?;
        (0..PARENTS).try_for_each(|at| w::ensure(client, &parent(at)))
    }

    fn body(&self) -> Box<dyn Body> {
        Box::new(One { own: VecDeque::new() })
    }

    fn finale(&self, client: &mut Client) -> Result<(), Disconnected> {
        (0..PARENTS).try_for_each(|at| {
            client.call(w::sync(ROOT))?;
            client.call(w::list(&parent(at))).map(drop)
        })
    }

    fn required(&self) -> Required {
        Required { always: &["witness"], with_account: &["sequence"] }
    }
}

/// What one client knows.
struct One {
    /// Znodes that it has made, the oldest first.
    own: VecDeque<String>,
}

impl Body for One {
    fn step(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        let parent = parent(client.random().below(PARENTS));
        if self.own.len() > OWN_MAX {
            let oldest = self.own.pop_front().expect("there are some");
            return client.call(w::delete(&oldest, -1)).map(drop);
        }
        let asked = format!("{parent}/s-");
        let call = match client.random().below(100) {
            0..45 => w::create(&asked, "", Mode::PersistentSequential),
            45..70 => w::create(&asked, "", Mode::EphemeralSequential),
            // Any child moves the count, and the older opcode counts like the newer one.
            70..78 => w::create(&format!("{parent}/plain"), "", Mode::Persistent),
            78..84 => w::delete(&format!("{parent}/plain"), -1),
            84..94 => match w::create(&asked, "", Mode::PersistentSequential) {
                Call::Create(create) => Call::Create(Create { op: CreateOp::Create, ..create }),
                other => other,
            },
            _ => w::list(&parent),
        };
        if let Ok(Answer::PathStat(path, _) | Answer::Path(path)) = client.call(call)?.result {
            self.own.push_back(path);
        }
        Ok(())
    }
}
