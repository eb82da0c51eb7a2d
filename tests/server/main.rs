//! One server, in this process or in one of its own: what it does, refuses, survives and shows.

mod backup;
mod crash;
mod dashboards;
mod disk_hangs;
mod files;
mod lifecycle;
mod limits;
mod locks_view;
mod panics;
mod sasl;
mod tls;
