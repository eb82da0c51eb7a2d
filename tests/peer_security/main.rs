//! Servers that know each other by more than an address: a shared secret, certificates.

#[path = "../tls/authority.rs"]
#[allow(dead_code, reason = "the tests of clients use what is not used here")]
mod authority;
#[path = "../common/mod.rs"]
mod common;
mod listeners;
#[path = "../common/process.rs"]
mod process;
#[path = "../common/rng.rs"]
mod rng;
mod secret;
#[path = "../common/three.rs"]
mod three;
mod tls;
