//! Windows in which the host of a virtual machine gave its processors to others: a server that waits for one
//! has some milliseconds more at p99, whichever server it is.

use serde::{Deserialize, Serialize};

use crate::figures::{Cell, median};

/// Windows measured in the place of one that was spoilt.
const REPEATS_MAX: usize = 5;

/// Whether spoilt windows are measured again, and how often they were.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repeats {
    /// A window is spoilt if more was taken, in CPU seconds per second, of all processors together.
    pub stolen_max: f64,
    /// So many windows were measured in the place of others.
    pub count: usize,
    /// So many are among the figures and spoilt: it was no better later.
    pub spoilt: usize,
}

impl Repeats {
    /// None yet.
    pub fn above(stolen_max: f64) -> Self {
        Repeats { stolen_max, count: 0, spoilt: 0 }
    }

    /// The first window that is not spoilt, or of a few the one of which the least was taken.
    pub fn least_stolen(
        &mut self,
        mut measure: impl FnMut() -> Result<Cell, String>,
    ) -> Result<Cell, String> {
        let stolen = |cell: &Cell| cell.stolen_cpu.unwrap_or(0.0);
        let mut best = measure()?;
        for _ in 0..REPEATS_MAX {
            if stolen(&best) <= self.stolen_max {
                return Ok(best);
            }
            self.count += 1;
            let another = measure()?;
            if stolen(&another) < stolen(&best) {
                best = another;
            }
        }
        self.spoilt += usize::from(stolen(&best) > self.stolen_max);
        Ok(best)
    }
}

/// The middle one of what was taken, if everybody knows.
pub fn show(stolen: impl IntoIterator<Item = Option<f64>>) -> String {
    let known: Option<Vec<f64>> = stolen.into_iter().collect();
    known.map_or_else(|| "-".to_owned(), |values| format!("{:.2}", median(&values)))
}
