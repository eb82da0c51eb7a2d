//! `mortal`: containers and znodes with a time to live, which the servers remove by themselves.
//!
//! Clients make them, use them for longer than they would live unused, leave them alone, and look whether they
//! are there.

use lockkeeper_check::op::{Acl, Call, Create, CreateOp, Mode};

use super::{Body, Required, Workload};
use crate::client::{Client, Disconnected};
use crate::workload as w;

const ROOT: &str = "/mortal";
/// Containers, and as many znodes with a time to live. Few changes to each, so that some grow old.
const NAMES: u64 = 40;
/// How long such a znode lives, in milliseconds: about as long as it takes until it is written again.
const TTL_MS: i64 = 1000;

/// The workload.
#[derive(Debug)]
pub struct Mortals;

impl Workload for Mortals {
    fn setup(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::ensure(client, ROOT)
    }

    fn body(&self) -> Box<dyn Body> {
        Box::new(One)
    }

    fn finale(&self, client: &mut Client) -> Result<(), Disconnected> {
        w::read_all(client, ROOT)
    }

    fn required(&self) -> Required {
        Required { always: &["witness"], with_account: &["reaped"] }
    }
}

fn create(path: &str, op: CreateOp, mode: Mode, ttl_ms: i64) -> Call {
    let (path, acl) = (path.to_owned(), Acl::open());
    Call::Create(Create { op, path, data: Some(Vec::new()), acl, mode, ttl_ms })
}

struct One;

impl Body for One {
    fn step(&mut self, client: &mut Client) -> Result<(), Disconnected> {
        let at = client.random().below(NAMES);
        let (container, aging) = (format!("{ROOT}/c{at}"), format!("{ROOT}/t{at}"));
        let child = format!("{container}/child");
        let call = match client.random().below(100) {
            0..10 => create(&container, CreateOp::Container, Mode::Container, 0),
            10..20 => w::create(&child, "", Mode::Persistent),
            20..30 => w::delete(&child, -1),
            30..55 => create(&aging, CreateOp::Ttl, Mode::PersistentWithTtl, TTL_MS),
            55..75 => w::set(&aging, "young again", -1),
            75..85 => w::exists(&aging, false),
            85..92 => w::exists(&container, false),
            _ => w::list(ROOT),
        };
        client.call(call).map(drop)
    }
}
