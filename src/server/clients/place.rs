//! The place that a connection takes up: in the count of its address, in the order of arrivals, on a thread.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::server::io_threads::Assignment;
use crate::server::metrics::Figures;
use crate::server::ports::Arrival;

/// Connections by address.
#[derive(Debug, Default)]
pub(super) struct PerIp(Mutex<HashMap<IpAddr, u32>>);

/// A connection's place: its socket must be closed when the last reference is dropped.
#[derive(Debug)]
pub(super) struct Place {
    /// The thread that owns the socket; `None`: the driver's.
    pub thread: Option<Assignment>,
    /// By which it yields as long as it asks for no session.
    pub arrival: Arc<Arrival>,
    /// It counts until then.
    #[expect(dead_code, reason = "held, not read")]
    pub(super) counted: Counted,
}

/// A connection that counts; dropping it ends that.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) per_ip: Arc<PerIp>,
    pub(super) ip: IpAddr,
    pub(super) figures: Arc<Figures>,
}

impl PerIp {
    pub(super) fn of(&self, ip: IpAddr) -> u32 {
        self.lock().get(&ip).copied().unwrap_or(0)
    }

    pub(super) fn add(&self, ip: IpAddr) {
        *self.lock().entry(ip).or_default() += 1;
    }

    fn take_off(&self, ip: IpAddr) {
        if let Entry::Occupied(mut count) = self.lock().entry(ip) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.figures.closed();
        self.per_ip.take_off(self.ip);
    }
}
