//! The flag that plants a deliberate bug in a server of the harness: `lockkeeper server --plant NAME`.
//!
//! *Invariant*: without the feature `mutants` there is no such flag.

/// The flag of `lockkeeper server`, which is not there without the feature.
#[derive(Debug, clap::Args)]
pub(super) struct PlantFlag {
    /// Plant a deliberate bug in this process
    #[cfg(feature = "mutants")]
    #[arg(long = "plant", value_name = "NAME", hide = true)]
    name: Option<String>,
}

impl PlantFlag {
    /// Plants the bug that it names, if any.
    #[cfg_attr(
        not(feature = "mutants"),
        expect(clippy::unused_self, reason = "nothing can be planted")
    )]
    pub(super) fn obey(&self) {
        #[cfg(feature = "mutants")]
        if let Some(name) = &self.name {
            lockkeeper_core::mutants::plant_everywhere(name);
        }
    }
}
