//! Servers that know each other by more than an address: a shared secret, certificates.

mod listeners;
mod secret;
mod tls;
