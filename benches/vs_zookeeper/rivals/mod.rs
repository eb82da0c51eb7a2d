//! Locks of other systems, driven as those of ZooKeeper are: Redis by its usual recipe, Redlock over
//! several Redis servers, etcd's lock service.
//!
//! One thread, one epoll loop, sockets that stay open, a codec of a few lines for each protocol, and
//! nothing sent before what it depends on is answered: so the client costs about what that of
//! `lockkeeper bench` does. *Invariant*, checked at each grant: nobody else holds the lock.

mod driver;
pub mod etcd;
pub mod grpc;
pub mod redis;
pub mod resp;
#[path = "../../../tests/simulation/rng.rs"]
mod rng;
mod socket;

use std::net::SocketAddr;

use lockkeeper::internals::bench::PATIENCE;

use crate::figures::Cell;

pub use driver::{Drive, Driven};

/// Which of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rival {
    /// One server, or Redlock over several.
    Redis,
    Etcd,
}

impl From<Driven> for Cell {
    fn from(driven: Driven) -> Self {
        let mut cell = Cell::from(&driven.outcome);
        if let Some(lock) = &mut cell.lock {
            lock.events_per_release = None;
            lock.tries = driven.tries_per_lock;
        }
        cell
    }
}

/// Has so many clients take and release locks at these servers.
pub fn run(
    rival: Rival,
    addrs: &[SocketAddr],
    clients: usize,
    drive: &Drive<'_>,
) -> Result<Driven, String> {
    let lock = |number: usize| match drive.shares {
        true => "lock".to_owned(),
        false => format!("lock-{number}"),
    };
    match rival {
        Rival::Redis => {
            let mut script = String::new();
            for &addr in addrs {
                script = redis::prepare(addr, PATIENCE)?;
            }
            let open = |number| redis::Client::open(addrs, number, &lock(number), &script);
            driver::drive((0..clients).map(open).collect::<Result<_, _>>()?, drive)
        }
        Rival::Etcd => {
            let mut control = etcd::Control::open(addrs[0], PATIENCE)?;
            let leases: Vec<i64> =
                (0..clients).map(|_| control.lease()).collect::<Result<_, _>>()?;
            let open = |(number, &lease): (usize, &i64)| {
                etcd::Client::open(addrs[number % addrs.len()], &lock(number), lease)
            };
            let opened = leases.iter().enumerate().map(open).collect::<Result<_, _>>()?;
            let driven = driver::drive(opened, drive)?;
            leases.into_iter().try_for_each(|lease| control.revoke(lease))?;
            Ok(driven)
        }
    }
}
