//! The figures of servers that nobody asks anything, and their tables.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use crate::figures::{PeerName, Site, Spread};
use crate::table;

/// Bytes of a MiB, in MB.
const MB_PER_MIB: f64 = 1.048_576;

/// Everything that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Idleness {
    pub site: Site,
    /// Rest before the figures were taken.
    pub settle_ms: u64,
    /// How long CPU time was counted.
    pub window_ms: u64,
    pub peers: Vec<IdlePeer>,
}

/// Of one kind of server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IdlePeer {
    #[serde(flatten)]
    pub peer: PeerName,
    /// From exec to the first answered read of a standalone server without any data, each start.
    pub starts_ms: Vec<f64>,
    pub stands: Vec<Stand>,
}

/// What an ensemble takes with so many sessions that only live.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stand {
    pub sessions: u64,
    /// Each server of it.
    pub nodes: Vec<Node>,
}

/// What one server takes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Node {
    pub rss_mib: f64,
    /// CPU seconds per second.
    pub cpu: f64,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RSS {:.1} MiB, {:.2} % of a core", self.rss_mib, self.cpu * 100.0)
    }
}

impl IdlePeer {
    /// What the same servers took without a session.
    fn empty(&self, stand: &Stand) -> Option<&Stand> {
        let same = |other: &&Stand| other.sessions == 0 && other.nodes.len() == stand.nodes.len();
        self.stands.iter().find(same).filter(|_| stand.sessions > 0)
    }
}

pub fn to_markdown(figures: &Idleness) -> String {
    let mut out = table::site(&figures.site);
    write_all(figures, &mut out).expect("writing to a string cannot fail");
    out
}

fn write_all(figures: &Idleness, out: &mut String) -> fmt::Result {
    writeln!(
        out,
        "CPU time over {:.0} s, after {:.0} s of rest; MB of 1,000,000 bytes.\n",
        figures.window_ms as f64 / 1e3,
        figures.settle_ms as f64 / 1e3
    )?;
    write!(
        out,
        "| server | servers | idle sessions | RSS of each, MiB | CPU of each, % of a core "
    )?;
    writeln!(out, "| RSS of each above that without sessions, MB |\n|{}", "---|".repeat(6))?;
    for of in &figures.peers {
        for stand in &of.stands {
            let rss = stand.nodes.iter().map(|node| node.rss_mib);
            let cpu = stand.nodes.iter().map(|node| node.cpu * 100.0);
            let above = of.empty(stand).map_or_else(String::new, |empty| {
                let pairs = stand.nodes.iter().zip(&empty.nodes);
                table::list(
                    pairs.map(|(with, without)| (with.rss_mib - without.rss_mib) * MB_PER_MIB),
                    1,
                )
            });
            writeln!(
                out,
                "| {} | {} | {} | {} | {} | {above} |",
                of.peer.description,
                stand.nodes.len(),
                stand.sessions,
                table::list(rss, 1),
                table::list(cpu, 2),
            )?;
        }
    }
    if figures.peers.iter().all(|of| of.starts_ms.is_empty()) {
        return Ok(());
    }
    let starts = "starts of one server without data";
    writeln!(out, "\n| server | {starts} | exec to first answered read, ms |\n|---|---|---|")?;
    for of in &figures.peers {
        let spread = Spread::of(&of.starts_ms).show(0);
        writeln!(out, "| {} | {} | {spread} |", of.peer.description, of.starts_ms.len())?;
    }
    Ok(())
}
