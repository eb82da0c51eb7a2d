//! The figures of one parent with very many children, and their table.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use crate::figures::{PeerName, Site, Spread};
use crate::table;
use crate::witness::{self, Waited};

/// The longest frame that ZooKeeper's own client takes unless it is told otherwise (`jute.maxbuffer`).
const JUTE_MAXBUFFER: usize = 0xf_ffff;
/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

/// Everything that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ManyChildren {
    pub site: Site,
    pub children: usize,
    pub peers: Vec<Parent>,
}

/// Of one kind of server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parent {
    #[serde(flatten)]
    pub peer: PeerName,
    pub created_per_second: f64,
    /// Without the children, and with them.
    pub rss_before_mib: f64,
    pub rss_mib: f64,
    pub lists_ms: Vec<f64>,
    pub list_bytes: usize,
    /// A read of the parent, whose Stat has the number of its children.
    pub stat_ms: f64,
    /// The well-behaved client alone, and beside the lists.
    pub alone: Waited,
    pub beside: Waited,
    pub deleted_per_second: f64,
}

pub fn to_markdown(figures: &ManyChildren) -> String {
    let mut out = table::site(&figures.site);
    write_all(figures, &mut out).expect("writing to a string cannot fail");
    out
}

fn write_all(figures: &ManyChildren, out: &mut String) -> fmt::Result {
    writeln!(
        out,
        "1 server of each kind; {} children of 100 bytes of one znode, created and deleted by one connection with \
         64 requests in flight. Beside the lists, {} lock cycles a second begin at fixed moments.\n",
        figures.children,
        witness::RATE,
    )?;
    write!(out, "| server | creates/s | bytes of memory per child | list ms | bytes of the list ")?;
    write!(
        out,
        "| of jute.maxbuffer | Stat ms | lock cycle alone p99, max ms | beside p99, max ms "
    )?;
    writeln!(out, "| deletes/s |\n|{}", "---|".repeat(10))?;
    for of in &figures.peers {
        let bytes = (of.rss_mib - of.rss_before_mib) * MIB / figures.children as f64;
        writeln!(
            out,
            "| {} | {:.0} | {bytes:.0} | {} | {} | {:.1} | {:.2} | {:.2}, {:.1} | {:.2}, {:.1} | {:.0} |",
            of.peer.description,
            of.created_per_second,
            Spread::of(&of.lists_ms).show(0),
            of.list_bytes,
            of.list_bytes as f64 / JUTE_MAXBUFFER as f64,
            of.stat_ms,
            of.alone.p99_ms,
            of.alone.max_ms,
            of.beside.p99_ms,
            of.beside.max_ms,
            of.deleted_per_second,
        )?;
    }
    Ok(())
}
