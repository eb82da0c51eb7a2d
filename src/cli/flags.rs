//! The flags that mean the same in every command that asks servers something.
//!
//! *Owns* how a user says where the servers are, who asks, how long to wait, and what answers look like; and the
//! variables of the environment that stand for flags. *Invariant*: a flag of this file has one meaning, whichever
//! command takes it. *Never* asks a server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustls::ClientConfig;

use super::addresses;
use super::client_configuration::ClientConfiguration;
use super::credential::{Credential, credentials};
use super::duration::duration;
use crate::admin::read_token;
use crate::config::HostPort;
use crate::tree::ZnodePath;

/// How long an answer may take, unless `--timeout` says it.
const ANSWER_MAX_DEFAULT: Duration = Duration::from_secs(10);

/// How servers are reached, whichever of their ports is asked.
#[derive(Clone, Debug, Args)]
pub(super) struct ClientFlags {
    /// A file of properties, as ZooKeeper's clients take it: for TLS ssl.trustStore.location, and
    /// ssl.keyStore.location if the server asks for a certificate; for SASL java.security.auth.login.config,
    /// which names a JAAS file with a section Client
    #[arg(long, value_name = "FILE")]
    client_configuration: Option<PathBuf>,
    /// Give up after this time: seconds, or 500ms, 10s, 2m. Until then servers are tried again [default: each
    /// server is tried once, and has 10s for an answer]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) timeout: Option<Duration>,
}

impl ClientFlags {
    /// What the file says.
    ///
    /// # Errors
    /// What is wrong with it, or with one that it names.
    fn configuration(&self) -> Result<ClientConfiguration, String> {
        let read = self.client_configuration.as_deref().map(ClientConfiguration::of_file);
        read.unwrap_or_else(|| Ok(ClientConfiguration::default()))
            .map_err(|reason| format!("--client-configuration: {reason}"))
    }

    fn answer_max(&self) -> Duration {
        // No time at all is none that a socket takes.
        self.timeout.unwrap_or(ANSWER_MAX_DEFAULT).max(Duration::from_millis(1))
    }
}

/// Where the servers are, and who asks.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServersFlags {
    /// Servers, tried in turn; a path behind them (/app) is put in front of every path
    #[arg(
        long,
        alias = "hosts",
        env = "LOCKKEEPER_SERVERS",
        hide_env_values = true,
        value_name = "HOST:PORT,.../PATH",
        default_value = "127.0.0.1:2181"
    )]
    pub(super) server: String,
    /// Who asks, for example digest:user:password; may be given several times
    #[arg(long, value_name = "SCHEME:CREDENTIAL")]
    pub(super) auth: Vec<Credential>,
    /// A file with such credentials, one in a line: others may see those of a command line
    #[arg(long, env = "LOCKKEEPER_AUTH_FILE", hide_env_values = true, value_name = "FILE")]
    pub(super) auth_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) client: ClientFlags,
}

/// Whom a command asks, and as who.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// Tried in turn.
    pub(super) servers: Vec<HostPort>,
    /// What is put in front of every path: empty, or a path.
    pub(super) root: String,
    /// Who asks.
    pub(super) credentials: Vec<Credential>,
    /// TLS, and who asks by SASL.
    pub(super) configuration: ClientConfiguration,
    /// How long all servers are tried again.
    pub(super) patience: Duration,
    /// How long an answer may take.
    pub(super) answer_max: Duration,
}

impl Access {
    /// The servers, as a user writes them.
    #[cfg(feature = "recipes")]
    pub(super) fn server_list(&self) -> String {
        let servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        servers.join(",")
    }
}

impl ServersFlags {
    /// What the flags say.
    ///
    /// # Errors
    /// What is wrong with them, with the name of the flag.
    pub(super) fn access(&self) -> Result<Access, String> {
        let (servers, root) =
            connect_string(&self.server).map_err(|reason| format!("--server: {reason}"))?;
        let credentials = credentials(&self.auth, self.auth_file.as_deref())
            .map_err(|reason| format!("--auth-file: {reason}"))?;
        Ok(Access {
            servers,
            root,
            credentials,
            configuration: self.client.configuration()?,
            patience: self.client.timeout.unwrap_or_default(),
            answer_max: self.client.answer_max(),
        })
    }
}

/// `host:port,.../path`: the servers, and the path or nothing.
///
/// # Errors
/// What is wrong with it.
pub(super) fn connect_string(text: &str) -> Result<(Vec<HostPort>, String), String> {
    let (servers, root) = match text.find('/') {
        Some(slash) => text.split_at(slash),
        None => (text, ""),
    };
    let root = if root == "/" { "" } else { root };
    if !root.is_empty() {
        ZnodePath::parse(root).map_err(|reason| format!("the path {reason}"))?;
    }
    Ok((addresses::servers(servers)?, root.to_owned()))
}

/// Where the HTTP ports are, for commands that show what only those say.
#[derive(Clone, Debug, Args)]
pub(crate) struct AdminFlags {
    /// HTTP ports of servers, tried in turn; the one that answers asks the others
    #[arg(
        long,
        env = "LOCKKEEPER_ADMIN",
        hide_env_values = true,
        value_name = "HOST:PORT,...",
        default_value = "127.0.0.1:8080"
    )]
    admin: String,
    /// A file with the token of these servers (lockkeeper.adminTokenFile), if they are on other machines
    #[arg(long, env = "LOCKKEEPER_ADMIN_TOKEN_FILE", hide_env_values = true, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    #[command(flatten)]
    client: ClientFlags,
}

/// Whose HTTP port a command asks, and how it is let in.
#[derive(Clone, Debug)]
pub(super) struct AdminAccess {
    /// Tried in turn.
    pub(super) servers: Vec<HostPort>,
    /// That of `lockkeeper.adminTokenFile`, for servers on other machines.
    pub(super) token: Option<String>,
    /// What to speak TLS by; `None`: plain text.
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// How long all servers are tried again.
    pub(super) patience: Duration,
    /// How long an answer may take.
    pub(super) answer_max: Duration,
}

impl AdminAccess {
    /// Gives servers at least this time for an answer, unless the user has said how long they have.
    pub(super) fn waiting_for(mut self, least: Duration) -> Self {
        if self.patience.is_zero() {
            self.answer_max = self.answer_max.max(least);
        }
        self
    }
}

impl AdminFlags {
    /// What the flags say.
    ///
    /// # Errors
    /// What is wrong with them, with the name of the flag.
    pub(super) fn access(&self) -> Result<AdminAccess, String> {
        let tls = self.client.configuration()?.tls;
        let servers = addresses::http_addresses(&self.admin, tls.is_some())
            .map_err(|reason| format!("--admin: {reason}"))?;
        let token = self.admin_token_file.as_deref().map(read_token).transpose();
        Ok(AdminAccess {
            servers,
            token: token.map_err(|reason| format!("--admin-token-file: {reason}"))?,
            tls,
            patience: self.client.timeout.unwrap_or_default(),
            answer_max: self.client.answer_max(),
        })
    }
}

/// What answers look like.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct OutputFlag {
    /// What answers look like
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(super) output: Output,
}

/// What answers look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Text,
    /// For programs: one JSON object in a line
    Json,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn a_path_behind_the_servers_is_the_root_of_all_others() {
        let parsed = |text| {
            let (servers, root) = connect_string(text).unwrap();
            (servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "), root)
        };
        assert_eq!(parsed("a,b:1/app/x"), ("a:2181 b:1".to_owned(), "/app/x".to_owned()));
        assert_eq!(parsed("a/"), ("a:2181".to_owned(), String::new()));
        for text in ["a//x", "a/x/", "/x", "a:1/x,b:2/y/"] {
            assert!(connect_string(text).is_err(), "{text}");
        }
    }

    /// Variables of tests and of the build alone, which no user sets.
    const INSIDE: [&str; 4] =
        ["LOCKKEEPER_BUILT", "LOCKKEEPER_VERSION", "LOCKKEEPER_PANIC_IN", "LOCKKEEPER_WRITE_DOCS"];

    fn variables(text: &str) -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_uppercase() && c != '_');
        let is_one =
            |word: &&str| word.starts_with("LOCKKEEPER_") && word.len() > "LOCKKEEPER_".len();
        words.filter(is_one).map(str::to_owned).collect()
    }

    fn read_all(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read_all(&path, found);
            } else {
                // Some are no text: recorded streams of ZooKeeper.
                found.extend(variables(&String::from_utf8_lossy(&fs::read(path).unwrap())));
            }
        }
    }

    #[test]
    fn every_variable_is_in_the_one_list_of_them() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut used = variables(&fs::read_to_string(root.join("build.rs")).unwrap());
        read_all(&root.join("src"), &mut used);
        used.retain(|name| !INSIDE.contains(&name.as_str()));
        let text = fs::read_to_string(root.join("docs/CLI.md")).unwrap();
        let list = text.split("## Variables").nth(1).unwrap().split("\n## ").next().unwrap();
        assert_eq!(variables(list), used);
    }
}
