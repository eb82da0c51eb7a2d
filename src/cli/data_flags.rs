//! The flags of commands that work on the data directory of a server that does not run.
//!
//! *Owns* how a user says which directory that is: as for `lockkeeper server`. *Never* opens it.

use std::path::{Path, PathBuf};

use clap::Args;

use super::config_file;
use crate::config::Config;

/// Which server's data it is.
#[derive(Clone, Debug, Args)]
pub(crate) struct DataFlags {
    /// The server's configuration file, as for `lockkeeper server`; without one: ./lockkeeper-data
    #[arg(value_name = "ZOO.CFG")]
    config: Option<PathBuf>,
    /// Directory of all data (dataDir)
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Which server of the ensemble this is, if the file myid does not say it
    #[arg(long, value_name = "N")]
    myid: Option<String>,
}

impl DataFlags {
    /// Of a command whose own flags say the same.
    pub(super) fn of(
        config: Option<PathBuf>,
        data_dir: Option<PathBuf>,
        myid: Option<String>,
    ) -> Self {
        Self { config, data_dir, myid }
    }

    /// The configuration of that server.
    ///
    /// # Errors
    /// Everything that is wrong with it, a line for each.
    pub(super) fn config(&self) -> Result<Config, String> {
        let (file, data_dir) = (self.config.as_deref(), self.data_dir.as_deref());
        let draft = config_file::draft_of(file, data_dir, self.myid.as_deref());
        draft.resolve().map_err(|errors| config_file::lines(&errors))
    }

    /// How the server is started, for people.
    pub(super) fn start_command(&self) -> String {
        let shown = |path: &Path| path.display().to_string();
        let mut command = "lockkeeper server".to_owned();
        if let Some(myid) = &self.myid {
            command += &format!(" --myid {myid}");
        }
        if let Some(data_dir) = &self.data_dir {
            command += &format!(" --data-dir {}", shown(data_dir));
        }
        if let Some(file) = &self.config {
            command += &format!(" {}", shown(file));
        }
        command
    }
}
