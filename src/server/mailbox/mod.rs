//! MAILBOX: what crosses between the driver and the tasks and threads of a server.
//!
//! *Owns* [`Message`], which all of them may send, the queue in which the driver finds it, and the ways back: the
//! [`Line`] to a client, the [`Wire`] to another server, the [`Wakeups`] of an I/O thread. *Invariants*: whatever waits
//! here is bounded; what goes one way stays in order. *Never* names who sends or receives.

mod line;
mod message;
mod outbox;
mod queue;
mod sync;
mod ticks;
mod wakeups;
mod wire;

pub(in crate::server) use line::{IoThreadOf, Line};
pub(in crate::server) use message::{
    Bootstrapped, LinkEvent, Looked, Message, PAST_FOUNDING, WantedImage, ZooKeeperEvent, inspect,
    tell,
};
pub(in crate::server) use outbox::{Debt, Debts, End, Outbox, Pushed};
pub(in crate::server) use queue::Queue;
pub(in crate::server) use wakeups::Wakeups;
pub(in crate::server) use wire::{Overfull, Wire};
