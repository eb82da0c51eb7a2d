//! OTHER SERVERS: links, images and questions between the servers of an ensemble.
//!
//! *Owns* the peer port, the hello that begins every connection, the links, the transfer of images, the questions
//! about locks, and the tasks by which servers found an ensemble. *Invariants*: nothing of a connection is
//! believed before its hello was judged; of two links in one direction the later counts. *Never* decides what a
//! message means: the replica does.

mod accept;
mod admission;
mod connect;
pub(in crate::server) mod dynamic_file;
mod flapping;
pub(in crate::server) mod founding;
mod frame;
mod hello;
mod image_fetch;
mod image_receive;
mod image_send;
#[cfg(test)]
mod image_tests;
mod images;
mod introduction;
mod lines;
mod links;
pub(in crate::server) mod lock_query;
pub(in crate::server) mod peers;
pub(in crate::server) mod ports;
pub(in crate::server) mod security;
pub(in crate::server) mod standings_query;
mod survey;

pub(in crate::server) use connect::connect_all;
pub(in crate::server) use founding::{Founder, Life, Told, Waiting};
pub(in crate::server) use image_fetch::open_or_mend;
pub(in crate::server) use image_send::send_images;
pub(in crate::server) use images::{Store, Transfers};

pub(in crate::server) use links::Links;
pub(in crate::server) use peers::Peers;

pub(in crate::server) use survey::Survey;
