//! One shape of load: a workload, connections, requests in flight on each.

use std::str::FromStr;

use lockkeeper::internals::bench::{CONNECTIONS_MAX, DEPTH_MAX, Work};
use serde::{Deserialize, Serialize};

/// Written like `get:16x16`: sixteen connections with sixteen reads in flight on each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mode {
    pub work: Work,
    pub connections: usize,
    pub depth: usize,
}

impl Mode {
    /// As tables show it.
    pub fn name(self) -> String {
        format!("{} {}x{}", self.work.name(), self.connections, self.depth)
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: a mode is written like get:16x16");
        let (work, shape) = text.split_once(':').ok_or_else(wrong)?;
        let (connections, depth) = shape.split_once('x').ok_or_else(wrong)?;
        let connections = connections.parse().map_err(|_| wrong())?;
        let depth = depth.parse().map_err(|_| wrong())?;
        if !(1..=CONNECTIONS_MAX).contains(&connections) || !(1..=DEPTH_MAX).contains(&depth) {
            return Err(wrong());
        }
        let work = work.parse()?;
        let mode = Mode { work, connections, depth };
        if mode.work.is_stepwise() && depth != 1 {
            return Err(format!("{text}: a connection does one such thing at a time"));
        }
        Ok(mode)
    }
}

impl TryFrom<String> for Mode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Mode> for String {
    fn from(mode: Mode) -> String {
        format!("{}:{}x{}", mode.work.name(), mode.connections, mode.depth)
    }
}
