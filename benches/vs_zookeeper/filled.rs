//! The figures of a tree that was filled and of the server's returns, and their table.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use crate::figures::{Cell, Site};
use crate::table;

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

/// Of every server that was filled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fills {
    pub site: Site,
    pub servers: Vec<Filled>,
}

/// Of one server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Filled {
    pub name: String,
    pub description: String,
    pub nodes: u64,
    /// From exec to the first answered read of servers without any data.
    pub empty_starts_ms: Vec<f64>,
    pub create: Cell,
    /// Of the server without data; earlier runs did not ask.
    pub rss_empty_mib: Option<f64>,
    pub rss_filled_mib: f64,
    pub restarts: Vec<Restart>,
    pub disk_mib: f64,
}

impl Filled {
    /// Memory above that of an empty server.
    fn bytes_per_znode(&self) -> Option<f64> {
        Some((self.rss_filled_mib - self.rss_empty_mib?) * MIB / self.nodes as f64)
    }
}

/// One return after a kill.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Restart {
    pub ms: f64,
    pub rss_first_read_mib: f64,
    pub rss_settled_mib: f64,
}

pub fn to_markdown(fills: &Fills) -> String {
    let mut out = table::site(&fills.site);
    write_table(fills, &mut out).expect("writing to a string cannot fail");
    out
}

fn write_table(fills: &Fills, out: &mut String) -> fmt::Result {
    write!(
        out,
        "\n| server | znodes | creates/s | server CPU us/op | RSS filled MiB | bytes per znode "
    )?;
    write!(out, "| exec to first read, empty, ms | filled, ms | RSS at first read MiB ")?;
    writeln!(out, "| RSS 5 s later MiB | disk MiB |\n|{}", "---|".repeat(11))?;
    for filled in &fills.servers {
        let list = |field: fn(&Restart) -> f64| whole(filled.restarts.iter().map(field));
        writeln!(
            out,
            "| {} | {} | {:.0} | {:.2} | {:.0} | {} | {} | {} | {} | {} | {:.0} |",
            filled.description,
            filled.nodes,
            filled.create.per_second,
            filled.create.server_cpu_us,
            filled.rss_filled_mib,
            filled.bytes_per_znode().map_or_else(|| "-".to_owned(), |bytes| format!("{bytes:.0}")),
            whole(filled.empty_starts_ms.iter().copied()),
            list(|r| r.ms),
            list(|r| r.rss_first_read_mib),
            list(|r| r.rss_settled_mib),
            filled.disk_mib
        )?;
    }
    Ok(())
}

/// Rounded, with commas between them.
fn whole(values: impl Iterator<Item = f64>) -> String {
    values.map(|value| format!("{value:.0}")).collect::<Vec<_>>().join(", ")
}
