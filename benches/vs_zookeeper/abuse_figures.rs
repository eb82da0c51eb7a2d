//! The figures of abusive clients, and their table.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use crate::abuser::Abuse;
use crate::figures::{PeerName, Site};
use crate::table;
use crate::witness::{self, Waited};

/// Everything that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Abuses {
    pub site: Site,
    pub window_ms: u64,
    pub peers: Vec<AbusedPeer>,
}

/// Of one kind of server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AbusedPeer {
    #[serde(flatten)]
    pub peer: PeerName,
    pub abuses: Vec<Abused>,
}

/// One abuse.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Abused {
    pub abuse: Abuse,
    /// The well-behaved client alone.
    pub alone: Waited,
    /// While another server is abused, and while its own is; that may have failed.
    pub elsewhere: Stand,
    pub beside: Option<Stand>,
    pub failed: Option<String>,
}

/// The well-behaved client while a server is abused, and that server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stand {
    pub waited: Waited,
    /// What the abusive client has done, and how often it was cut off.
    pub per_second: f64,
    pub cut_off: u64,
    pub rss_max_mib: f64,
    /// CPU seconds per second.
    pub server_cpu: f64,
}

pub fn to_markdown(figures: &Abuses) -> String {
    let mut out = table::site(&figures.site);
    write_all(figures, &mut out).expect("writing to a string cannot fail");
    out
}

fn write_all(figures: &Abuses, out: &mut String) -> fmt::Result {
    writeln!(
        out,
        "1 server of each kind. A well-behaved client begins {} lock cycles a second on {} connections at fixed \
         moments, from which latency counts, for {} ms each: alone, while another server on this machine is \
         abused, and while its own is.\n",
        witness::RATE,
        witness::CONNECTIONS,
        figures.window_ms,
    )?;
    write!(out, "| abuse | server | p99 ms alone | another server abused | its own abused ")?;
    write!(
        out,
        "| own / alone | own / another | max ms alone, another, own | done/s by the abuser "
    )?;
    writeln!(out, "| cut off | server CPU s/s | largest RSS MiB |\n|{}", "---|".repeat(12))?;
    for of in &figures.peers {
        for abused in &of.abuses {
            write_row(&of.peer.name, abused, out)?;
        }
    }
    Ok(())
}

fn write_row(name: &str, abused: &Abused, out: &mut String) -> fmt::Result {
    let Abused { abuse, alone, elsewhere, beside, failed } = abused;
    let another = &elsewhere.waited;
    write!(out, "| {} | {name} | {:.2} | {:.2} ", abuse.title(), alone.p99_ms, another.p99_ms)?;
    let Some(own) = beside else {
        let failed = failed.as_deref().unwrap_or("failed");
        return writeln!(
            out,
            "| {failed} | | | {:.1}, {:.1}, | | | | |",
            alone.max_ms, another.max_ms
        );
    };
    let p99_ms = own.waited.p99_ms;
    write!(out, "| {p99_ms:.2} | {:.2} ", p99_ms / alone.p99_ms)?;
    write!(out, "| {:.2} ", p99_ms / another.p99_ms)?;
    write!(out, "| {:.1}, {:.1}, {:.1} ", alone.max_ms, another.max_ms, own.waited.max_ms)?;
    write!(out, "| {:.0} | {} ", own.per_second, own.cut_off)?;
    writeln!(out, "| {:.2} | {:.0} |", own.server_cpu, own.rss_max_mib)
}
