//! `tree`: clients that grow and cut a tree together, and ask everything that can be asked about it.

use lockkeeper_check::op::{Acl, Call, Mode};

use super::{Body, Required, Workload};
use crate::client::{Client, Disconnected};
use crate::random::Random;
use crate::workload as w;

const ROOT: &str = "/tree";
/// Names on each level.
const NAMES: u64 = 3;
/// Levels below the root.
const DEPTH_MAX: u64 = 3;

/// The workload.
#[derive(Debug)]
pub struct Trees;

impl Workload for Trees {
    fn setup(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::ensure(client, ROOT)
    }

    fn body(&self) -> Box<dyn Body> {
        Box::new(One { written: 0 })
    }

    fn finale(&self, client: &mut Client) -> Result<(), Disconnected> {
        client.call(w::sync(ROOT))?;
        let mut waiting = vec![ROOT.to_owned()];
        while let Some(path) = waiting.pop() {
            client.call(w::get(&path))?;
            let reply = client.call(w::list(&path))?;
            waiting.extend(w::names(&reply).iter().map(|name| format!("{path}/{name}")));
        }
        Ok(())
    }

    fn required(&self) -> Required {
        Required { always: &["witness"], with_account: &[] }
    }
}

/// What one client knows.
struct One {
    written: u64,
}

/// Some path of the tree.
fn some_path(random: &mut Random) -> String {
    let mut path = ROOT.to_owned();
    for _ in 0..=random.below(DEPTH_MAX) {
        path.push_str(&format!("/n{}", random.below(NAMES)));
    }
    path
}

impl Body for One {
    fn step(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        let path = some_path(client.random());
        self.written += 1;
        let value = format!("{}.{}", client.process(), self.written);
        let version = match client.random().chance(70) {
            true => -1,
            false => i32::try_from(client.random().below(3)).expect("below 3"),
        };
        let call = match client.random().below(100) {
            0..30 => w::create(&path, &value, Mode::Persistent),
            30..45 => w::delete(&path, version),
            45..60 => w::set(&path, &value, version),
            60..66 => Call::SetAcl { path, acl: Acl::open(), version },
            66..72 => Call::GetAcl { path },
            72..80 => w::get(&path),
            80..86 => w::exists(&path, false),
            86..92 => w::list(&path),
            92..96 => Call::GetChildren { path, watch: false, stat: false },
            _ => Call::AllChildrenNumber { path },
        };
        client.call(call).map(drop)
    }
}
