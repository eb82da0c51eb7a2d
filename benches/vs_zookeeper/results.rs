//! What is kept of each command in a file of its own, and what is made of such files: tables in a
//! document, charts beside the files.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::abuse_figures::{self, Abuses};
use crate::children_figures::{self, ManyChildren};
use crate::figures::Comparison;
use crate::filled::Fills;
use crate::grown::{self, Growth};
use crate::idle_figures::{self, Idleness};
use crate::overload_figures::{self, Overloads};
use crate::sessions_figures::{self, ManySessions};
use crate::steady_figures::{self, Steadiness};
use crate::{chart, document, filled, growth_chart, table};

/// Name of the chart of all comparisons, and what it shows.
const RATIOS: &str = "ratios";
const RATIOS_SHOW: &str = "Operations per second and server CPU beside Apache ZooKeeper's";

/// The figures of one command.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Results {
    /// Of `run`.
    Comparison(Comparison),
    /// Of `fill`.
    Fill(Fills),
    /// Of `growth`.
    Growth(Growth),
    /// Of `idle`.
    Idle(Idleness),
    /// Of `steady`.
    Steady(Steadiness),
    /// Of `sessions`.
    Sessions(ManySessions),
    /// Of `overload`.
    Overload(Overloads),
    /// Of `abuse`.
    Abuse(Abuses),
    /// Of `children`.
    Children(ManyChildren),
}

impl Results {
    /// As Markdown.
    pub fn to_markdown(&self) -> String {
        match self {
            Results::Comparison(figures) => table::comparison(figures),
            Results::Fill(fills) => filled::to_markdown(fills),
            Results::Growth(growth) => grown::to_markdown(growth),
            Results::Idle(figures) => idle_figures::to_markdown(figures),
            Results::Steady(figures) => steady_figures::to_markdown(figures),
            Results::Sessions(figures) => sessions_figures::to_markdown(figures),
            Results::Overload(figures) => overload_figures::to_markdown(figures),
            Results::Abuse(figures) => abuse_figures::to_markdown(figures),
            Results::Children(figures) => children_figures::to_markdown(figures),
        }
    }

    /// As a chart of its own, with the words that stand for it, if it has one.
    fn drawing(&self) -> Option<(&'static str, String)> {
        match self {
            Results::Comparison(_)
            | Results::Fill(_)
            | Results::Idle(_)
            | Results::Steady(_)
            | Results::Sessions(_)
            | Results::Overload(_)
            | Results::Abuse(_)
            | Results::Children(_) => None,
            Results::Growth(growth) => {
                Some(("Operations per second and p99 by what grows", growth_chart::draw(growth)))
            }
        }
    }

    /// Keeps them as the file `name` in a folder.
    pub fn keep(&self, folder: &Path, name: &str) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).expect("figures are plain data");
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        write(&folder.join(format!("{name}.json")), &format!("{text}\n"))
    }
}

/// A file that is to be made of the figures, and its content.
pub struct Made {
    pub path: PathBuf,
    pub text: String,
}

/// What the files of a folder make: the charts, and the document, if one is named, with its tables.
pub fn make(folder: &Path, document: Option<&Path>) -> Result<Vec<Made>, String> {
    let kept = read(folder)?;
    let mut made = Vec::new();
    let comparisons: Vec<&Comparison> = kept
        .iter()
        .filter_map(|(_, results)| match results {
            Results::Comparison(figures) => Some(figures),
            Results::Fill(_)
            | Results::Growth(_)
            | Results::Idle(_)
            | Results::Steady(_)
            | Results::Sessions(_)
            | Results::Overload(_)
            | Results::Abuse(_)
            | Results::Children(_) => None,
        })
        .collect();
    let own = |name: &str| format!("{name}.svg");
    let mut charts = Vec::new();
    if let Some(text) = chart::ratios_to_zookeeper(&comparisons) {
        charts.push((RATIOS.to_owned(), RATIOS_SHOW));
        made.push(Made { path: folder.join(own(RATIOS)), text });
    }
    for (name, results) in &kept {
        if let Some((_, text)) = results.drawing() {
            made.push(Made { path: folder.join(own(name)), text });
        }
    }
    if let Some(path) = document {
        let mut text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut fill = |name: &str, part: &str| {
            text = document::replace(&text, name, part)
                .map_err(|lacking| format!("{} {lacking}", path.display()))?;
            Ok::<_, String>(())
        };
        let from = path.parent().unwrap_or(Path::new(""));
        let beside = folder.strip_prefix(from).unwrap_or(folder).display();
        let image = |shows: &str, name: &str| format!("![{shows}]({beside}/{})", own(name));
        for (name, results) in &kept {
            let drawing = results.drawing().map(|(shows, _)| image(shows, name) + "\n\n");
            fill(name, &(drawing.unwrap_or_default() + &results.to_markdown()))?;
        }
        for (name, shows) in &charts {
            fill(name, &image(shows, name))?;
        }
        made.push(Made { path: path.to_owned(), text });
    }
    Ok(made)
}

/// The same, written to their places.
pub fn render(folder: &Path, document: Option<&Path>) -> Result<(), String> {
    make(folder, document)?.iter().try_for_each(|made| write(&made.path, &made.text))
}

/// All results in a folder with their names, in the order of these.
fn read(folder: &Path) -> Result<Vec<(String, Results)>, String> {
    let failed = |path: &Path, e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let entries = fs::read_dir(folder).map_err(|e| failed(folder, &e))?;
    let mut kept = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| failed(folder, &e))?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).map_err(|e| failed(&path, &e))?;
        kept.push((name, serde_json::from_str(&text).map_err(|e| failed(&path, &e))?));
    }
    kept.sort_by(|(a, _): &(String, Results), (b, _)| a.cmp(b));
    Ok(kept)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}
