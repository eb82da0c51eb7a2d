//! A configuration in the making: texts and flags in, errors collected, resolved once.
//!
//! Owns the order of things: the file's last duplicate of a key wins, flags win over the file, then
//! what depends on other keys is derived and cross-checked. Invariant: nothing stops at the first
//! error; [`Draft::resolve`] gives a whole [`Config`] or every fault that was found. Reproduces
//! `QuorumPeerConfig.parseProperties` and `parseDynamicConfig`.

use std::collections::BTreeMap;
use std::path::Path;

use super::Config;
use super::accepted::{ACCEPTED, REFUSED, WARNED};
use super::address::HostPort;
use super::ensemble::{self, Blame, Fault};
use super::error::{ConfigError, Origin};
use super::groups::{self, Groups};
use super::key::{Effect, Key};
use super::likeness;
use super::properties::{self, LineFault, Property};
use super::servers::{SERVER_ID_MAX, ServerSpec, server_id};
use super::table::{DISK_STALL_MS_DEFAULT_MAX, DISK_STALL_MS_MIN, INT_MAX, SECTIONS, blank};

/// Longest text of a configuration file, bytes.
pub const CONFIG_TEXT_BYTES_MAX: usize = 1 << 20;

/// Most errors that are collected; further ones are counted.
pub const CONFIG_ERRORS_MAX: usize = 100;

/// Port of the Prometheus provider unless given, as in ZooKeeper 3.9.
const PROMETHEUS_PORT_DEFAULT: i64 = 7000;

/// A configuration that is being put together.
#[derive(Clone, Debug)]
pub struct Draft {
    config: Config,
    /// Name of the file, if there is one: then some keys are required.
    file: Option<String>,
    errors: Vec<ConfigError>,
    errors_beyond: usize,
    mistakes_beyond: usize,
    /// Values that were wrong, and what is in force instead.
    odd_values: Vec<(String, String)>,
    has_dynamic: bool,
    server_lines: BTreeMap<u8, Origin>,
    groups: Groups,
    /// Where this server's id came from.
    myid: Option<Origin>,
    /// What is wrong with the file `myid`, which only a server of an ensemble needs.
    myid_fault: Option<ConfigError>,
}

impl Draft {
    /// Starts from the defaults that hold without a file.
    #[must_use]
    pub fn without_file() -> Draft {
        Draft::with_defaults(None)
    }

    /// Starts from ZooKeeper's defaults and a file's text. `file_name` is used in errors only.
    /// Never fails: errors wait for [`Draft::resolve`].
    #[must_use]
    pub fn from_text(file_name: &str, text: &str) -> Draft {
        let mut draft = Draft::with_defaults(Some(file_name.to_string()));
        let mut properties = draft.last_of_each(file_name, text);
        // Whether server lines are allowed here depends on it, wherever it stands.
        properties.sort_by_key(|property| property.key != "dynamicConfigFile");
        for property in properties {
            let origin = Origin { file: file_name.to_string(), line: property.line };
            draft.give(&property.key, property.value.trim(), origin);
        }
        draft
    }

    /// Starts from a whole configuration, to change some of it.
    pub(super) fn from_config(config: Config) -> Draft {
        let mut draft = Draft::with_defaults(None);
        draft.has_dynamic = config.dynamic_config_file.is_some();
        draft.config = config;
        draft
    }

    fn with_defaults(file: Option<String>) -> Draft {
        let mut config = blank();
        for key in effective_keys() {
            let without = key.default_without_file.filter(|_| file.is_none());
            let default = without.unwrap_or(key.default);
            // Keys without a default are required, and checked for when all is known.
            if !default.is_empty() {
                key.apply(&mut config, default).expect("a default passes its own check");
            }
        }
        let (errors, server_lines) = (Vec::new(), BTreeMap::new());
        Draft {
            config,
            file,
            errors,
            errors_beyond: 0,
            mistakes_beyond: 0,
            odd_values: Vec::new(),
            has_dynamic: false,
            server_lines,
            groups: Groups::default(),
            myid: None,
            myid_fault: None,
        }
    }

    /// Sets one key, as a line of the file would; it wins over the file. `origin` names the flag in
    /// errors, for example `--data-dir`.
    pub fn set(&mut self, key: &str, value: &str, origin: &str) {
        self.give(key, value.trim(), Origin { file: origin.to_string(), line: 0 });
    }

    /// The `dynamicConfigFile` that the file names: its text is wanted by [`Draft::load_dynamic`].
    #[must_use]
    pub fn dynamic_config_file(&self) -> Option<&str> {
        self.config.dynamic_config_file.as_deref()
    }

    /// The data directory so far: the file `myid` is looked for in it.
    #[must_use]
    pub fn data_dir(&self) -> Option<&Path> {
        let path = self.config.data_dir.as_path();
        (!path.as_os_str().is_empty()).then_some(path)
    }

    /// Takes the text of the `dynamicConfigFile`: server lines only.
    pub fn load_dynamic(&mut self, file_name: &str, text: &str) {
        self.has_dynamic = true;
        for property in self.last_of_each(file_name, text) {
            let origin = Origin { file: file_name.to_string(), line: property.line };
            let key = property.key.as_str();
            if let Some(id) = key.strip_prefix("server.") {
                self.give_server(key, id, property.value.trim(), origin);
            } else if groups::is_line(key) {
                self.give(key, property.value.trim(), origin);
            } else if key == "version" {
                self.fail(origin.error(key, "the version is the suffix of the file's name"));
            } else {
                self.fail(origin.error(key, "only server lines may be in a dynamic file"));
            }
        }
    }

    /// Takes the text of the file `myid`: the first line is this server's id.
    pub fn set_myid(&mut self, file_name: &str, text: &str) {
        let origin = Origin { file: file_name.to_string(), line: 1 };
        if let Err(error) = self.take_server_id(text, origin) {
            self.fail_myid(error);
        }
    }

    /// Says that the file `myid` cannot be read: an error of a server of an ensemble, and a warning on one of
    /// its own, which needs none.
    pub fn fail_myid(&mut self, error: ConfigError) {
        self.myid_fault = Some(error);
    }

    /// Takes this server's id from a flag, which must agree with the file `myid` if there is one.
    /// `origin` names the flag in errors.
    pub fn set_server_id(&mut self, text: &str, origin: &str) {
        let origin = Origin { file: origin.to_string(), line: 0 };
        match (self.config.server_id, &self.myid) {
            (Some(known), Some(file)) if server_id(text.trim()) != Ok(known) => {
                let reason = format!("`{text}` is not the number in {}, {known}", file.file);
                self.fail(origin.error("", reason));
            }
            (_, _) => match self.take_server_id(text, origin) {
                Ok(()) => self.myid_fault = None,
                Err(error) => self.fail(error),
            },
        }
    }

    fn take_server_id(&mut self, text: &str, origin: Origin) -> Result<(), ConfigError> {
        match server_id(text.lines().next().unwrap_or_default().trim()) {
            Ok(id) => {
                self.config.server_id = Some(id);
                self.myid = Some(origin);
                Ok(())
            }
            Err(reason) => Err(origin.error("", reason)),
        }
    }

    /// Says that the configuration was read from this file, which may be rewritten when the
    /// membership changes (see [`Config::path`]).
    pub fn set_path(&mut self, path: &Path) {
        self.config.path = Some(path.to_path_buf());
    }

    /// Adds an error that the caller met, such as a file that cannot be read.
    pub fn fail(&mut self, error: ConfigError) {
        if self.errors.len() < CONFIG_ERRORS_MAX {
            self.errors.push(error);
        } else {
            self.errors_beyond += 1;
        }
    }

    /// Derives what depends on other keys and checks the whole.
    ///
    /// # Errors
    /// Everything that was found, in the order of the lines; at most `CONFIG_ERRORS_MAX` and one
    /// that counts the rest.
    pub fn resolve(mut self) -> Result<Config, Vec<ConfigError>> {
        self.require();
        self.resolve_servers();
        self.resolve_groups();
        self.resolve_session_timeouts();
        self.resolve_disk_stall();
        self.resolve_metrics();
        if self.config.read_only_mode_enabled {
            self.config.four_letter_words.allow_isro();
        }
        let config = &mut self.config;
        config.data_log_dir = config.raw.data_log_dir.clone().unwrap_or(config.data_dir.clone());
        self.warn_of_weakness();
        if self.errors.is_empty() {
            self.config.warnings.append(&mut self.odd_values);
            self.count_mistakes();
            return Ok(self.config);
        }
        self.errors.sort_by_key(|error| error.line);
        if self.errors_beyond > 0 {
            let (file, key) = (self.file.unwrap_or_default(), String::new());
            let reason = format!("and {} more errors", self.errors_beyond);
            self.errors.push(ConfigError { file, line: 0, key, reason });
        }
        Err(self.errors)
    }

    fn count_mistakes(&mut self) {
        self.config.mistakes.sort_by_key(|mistake| mistake.line);
        if self.mistakes_beyond > 0 {
            let (file, key) = (self.file.clone().unwrap_or_default(), String::new());
            let reason =
                format!("and {} more lines that are probably mistakes", self.mistakes_beyond);
            self.config.mistakes.push(ConfigError { file, line: 0, key, reason });
        }
    }

    /// A line that is probably a mistake, and no reason not to start.
    fn doubt(&mut self, mistake: ConfigError) {
        if self.config.mistakes.len() < CONFIG_ERRORS_MAX {
            self.config.mistakes.push(mistake);
        } else {
            self.mistakes_beyond += 1;
        }
    }

    /// The last of each key's duplicates, in file order. `zookeeper.x` is `x`.
    fn last_of_each(&mut self, file_name: &str, text: &str) -> Vec<Property> {
        let whole = Origin { file: file_name.to_string(), line: 0 };
        if text.len() > CONFIG_TEXT_BYTES_MAX {
            let reason = format!("the file is longer than {CONFIG_TEXT_BYTES_MAX} bytes");
            self.fail(whole.error("", reason));
            return Vec::new();
        }
        let (properties, errors) = properties::parse(text);
        for error in errors {
            let origin = Origin { file: file_name.to_string(), line: error.line };
            let starts = error.fault == LineFault::NoKey;
            let error = origin.error("", error.fault.to_string());
            if starts { self.doubt(error) } else { self.fail(error) }
        }
        let mut last: Vec<Property> = Vec::new();
        let mut lines: BTreeMap<String, usize> = BTreeMap::new();
        for mut property in properties.into_iter().rev() {
            property.key = plain_name(property.key.trim()).to_string();
            match lines.get(&property.key).map(|index| &last[*index]) {
                Some(held) => self.doubt_earlier(file_name, &property, held),
                None => {
                    lines.insert(property.key.clone(), last.len());
                    last.push(property);
                }
            }
        }
        last.reverse();
        last
    }

    /// The last of several lines of one key holds. To say the same twice is harmless, save where a copied line
    /// was to become that of another server.
    fn doubt_earlier(&mut self, file_name: &str, earlier: &Property, held: &Property) {
        if earlier.value.trim() == held.value.trim() && !earlier.key.starts_with("server.") {
            return;
        }
        let origin = Origin { file: file_name.to_string(), line: earlier.line };
        let reason =
            format!("given again in line {}, which holds: this line has no effect", held.line);
        self.doubt(origin.error(&earlier.key, reason));
    }

    fn give(&mut self, written: &str, value: &str, origin: Origin) {
        let name = plain_name(written);
        let server = name.strip_prefix("server.");
        if server.is_some() || groups::is_line(name) {
            if self.config.dynamic_config_file.is_some() && !self.has_dynamic {
                self.fail(
                    origin.error(name, "must be in the dynamicConfigFile, since there is one"),
                );
            } else if let Some(id) = server {
                self.give_server(name, id, value, origin);
            } else {
                self.groups.give(name, value, origin);
            }
            return;
        }
        let Some(key) = lookup(name) else {
            self.give_unknown(name, origin);
            return;
        };
        // Flags and callers are told what is wrong with a value; with a file ZooKeeper starts.
        let applied = match origin.line {
            0 => key.apply(&mut self.config, value).map(|()| None),
            _ => key.apply_or_else(&mut self.config, value),
        };
        match applied {
            Err(reason) => return self.fail(origin.error(name, reason)),
            Ok(Some(reason)) => {
                note(&mut self.odd_values, name, &format!("line {}: {reason}", origin.line));
            }
            Ok(None) => {}
        }
        match key.effect {
            Effect::Effective => {
                self.config.raw.given.insert(key.name, origin);
            }
            Effect::Ignored => note(&mut self.config.ignored, name, key.doc),
            Effect::Warned if key.asks(value) => note(&mut self.config.warnings, name, key.doc),
            Effect::Refused if key.asks(value) => {
                let reason = format!("refused: {}; remove the key to run without", key.doc);
                self.fail(origin.error(name, reason));
            }
            Effect::Warned | Effect::Refused => {}
        }
    }

    fn give_unknown(&mut self, name: &str, origin: Origin) {
        let own = name.starts_with(OWN_PREFIX);
        let said = if own { self.errors.len() } else { self.config.mistakes.len() };
        if said >= CONFIG_ERRORS_MAX {
            // It is only counted: what it is like takes time.
            let counted = origin.error(name, String::new());
            return if own { self.fail(counted) } else { self.doubt(counted) };
        }
        let near = likeness::nearest(name, all_keys().map(|key| key.name));
        let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        if own {
            self.fail(origin.error(name, format!("there is no such key{near}")));
        } else {
            let reason = format!("neither this server nor ZooKeeper 3.9 has such a key{near}");
            self.doubt(origin.error(name, reason));
        }
    }

    fn give_server(&mut self, name: &str, id: &str, value: &str, origin: Origin) {
        let spec = server_id(id).and_then(|id| ServerSpec::parse(id, value));
        match spec {
            Err(reason) => self.fail(origin.error(name, reason)),
            Ok(spec) if self.server_lines.contains_key(&spec.id) => {
                let reason = format!("there are two lines for server {}", spec.id);
                self.fail(origin.error(name, reason));
            }
            Ok(spec) => {
                self.server_lines.insert(spec.id, origin);
                self.config.servers.push(spec);
                self.config.servers.sort_by_key(|spec| spec.id);
            }
        }
    }

    /// A file must say where the data is and where clients connect.
    fn require(&mut self) {
        let Some(file) = self.file.clone() else { return };
        let whole = Origin { file, line: 0 };
        if self.config.data_dir.as_os_str().is_empty() && !self.has_error("dataDir") {
            self.fail(whole.error("dataDir", "missing: the directory of the server's data"));
        }
        // Whoever could not read that file has said so, and nobody knows what it would have given.
        if self.has_error("dynamicConfigFile") {
            return;
        }
        if let Some(name) = self.config.dynamic_config_file.clone().filter(|_| !self.has_dynamic) {
            let reason = format!("the text of {name} was not given");
            self.fail(self.origin_of("dynamicConfigFile").error("dynamicConfigFile", reason));
        }
        let own_client = self.config.own_server().and_then(|spec| spec.client.clone());
        match (self.config.origin("clientPort").cloned(), own_client) {
            (None, Some(client)) => self.config.client_addr = client,
            (None, None) => {
                if !self.has_error("clientPort") {
                    let reason = match self.config.raw.secure_port {
                        0 => "missing: the TCP port for clients".to_string(),
                        port => format!(
                            "missing: there is no TLS yet, so secureClientPort={port} is not opened, and clients \
                             need a port without TLS"
                        ),
                    };
                    self.fail(whole.error("clientPort", reason));
                }
            }
            (Some(origin), Some(client)) => self.check_client_address(&origin, client),
            (Some(_), None) => {}
        }
    }

    /// The client address of the own server line and that of `clientPort` must agree.
    fn check_client_address(&mut self, origin: &Origin, client: HostPort) {
        let configured = &self.config.client_addr;
        // Names are not resolved here: only two addresses can be seen to differ.
        let same_host = match (configured.ip(), client.ip()) {
            (Some(ip), Some(other)) => ip.is_unspecified() || ip == other,
            (None, _) | (_, None) => true,
        };
        let agree = configured.port == client.port && same_host;
        if agree {
            self.config.client_addr = client;
        } else if self.config.server_id.is_none() && !self.config.is_ensemble() {
            // Without myid ZooKeeper does not look at the line.
            let reason = format!(
                "{configured} holds and not {client}, which the server line says: there is no myid"
            );
            note(&mut self.config.warnings, "clientPort", &reason);
        } else {
            let reason = format!("{configured} differs from {client} of the own server line");
            self.fail(origin.error("clientPort", reason));
        }
    }

    fn resolve_servers(&mut self) {
        debug_assert!(self.config.servers.len() <= usize::from(SERVER_ID_MAX));
        for Fault { blame, reason } in ensemble::faults(&self.config) {
            let error = match blame {
                Blame::Line(id) => {
                    let origin = self.server_lines.get(&id).cloned();
                    let origin = origin.unwrap_or(Origin { file: String::new(), line: 0 });
                    origin.error(&format!("server.{id}"), reason)
                }
                Blame::StandaloneEnabled => {
                    self.origin_of("standaloneEnabled").error("standaloneEnabled", reason)
                }
                Blame::Myid => self.myid_origin(1).error("", reason),
            };
            self.fail(error);
        }
        match (self.config.is_ensemble(), self.myid_fault.take()) {
            (true, Some(fault)) => self.fail(fault),
            (true, None) => self.require_myid(),
            (false, Some(fault)) => {
                let reason = format!("{fault}. A server on its own needs none: it is ignored");
                note(&mut self.config.warnings, "myid", &reason);
            }
            (false, None) => {}
        }
    }

    /// Whether groups agree with the server lines is to be seen where those can be read.
    fn resolve_groups(&mut self) {
        if self.errors.iter().any(|error| error.key.starts_with("server.")) {
            return;
        }
        if let Some(fault) = self.groups.fault(&self.config.servers) {
            return self.fail(fault);
        }
        for key in self.groups.keys() {
            note(&mut self.config.ignored, key, groups::TAKEN);
        }
    }

    /// A server of an ensemble must know which one it is.
    fn require_myid(&mut self) {
        let origin = self.myid_origin(0);
        // Whoever could not read the file has said so.
        let is_known = self.errors.iter().any(|error| error.file == origin.file);
        if self.config.server_id.is_none() && !is_known && self.data_dir().is_some() {
            let reason = format!(
                "missing: write the number of this server ({}: the N of its own line server.N) \
                 into this file, or give it once with --myid N",
                ensemble::ids(&self.config.servers)
            );
            self.fail(origin.error("", reason));
        }
    }

    /// Where the number of this server came from, or should have.
    fn myid_origin(&self, line: u32) -> Origin {
        match &self.myid {
            Some(origin) => origin.clone(),
            None => {
                let file = self.config.data_dir.join("myid").display().to_string();
                Origin { file, line }
            }
        }
    }

    fn resolve_session_timeouts(&mut self) {
        let config = &mut self.config;
        let tick = i64::from(config.tick_time_ms);
        let (min, max) = (config.raw.min_session_timeout_ms, config.raw.max_session_timeout_ms);
        if max == 0 {
            let origin = self.origin_of("maxSessionTimeout");
            self.fail(
                origin.error("maxSessionTimeout", "0 is too small: the least value is 1, or -1"),
            );
            return;
        }
        // Without a shortest one a session lasts a millisecond at least: one of 0 would be over at once.
        let min = if min == -1 { tick * 2 } else { min.max(1) };
        let max = if max < 0 { tick * 20 } else { max };
        if min > max {
            let name = match self.config.origin("minSessionTimeout") {
                Some(_) => "minSessionTimeout",
                None => "maxSessionTimeout",
            };
            let reason = format!("the shortest timeout, {min} ms, is above the longest, {max} ms");
            self.fail(self.origin_of(name).error(name, reason));
            return;
        }
        let ms = |value: i64| u32::try_from(value.min(INT_MAX)).expect("ticks are bounded");
        self.config.min_session_timeout_ms = ms(min);
        self.config.max_session_timeout_ms = ms(max);
    }

    fn resolve_disk_stall(&mut self) {
        const KEY: &str = "lockkeeper.diskStallMillis";
        let config = &self.config;
        let given = config.raw.disk_stall_ms;
        if (0..DISK_STALL_MS_MIN).contains(&given) {
            let reason =
                format!("{given} is too small: the least value is {DISK_STALL_MS_MIN}, or -1");
            return self.fail(self.origin_of(KEY).error(KEY, reason));
        }
        let ticks = config.sync_limit().map(|ticks| ticks.max(1));
        let limit = ticks.map(|ticks| ticks.saturating_mul(config.tick_time_ms.into()));
        let default = limit.unwrap_or(i64::MAX).clamp(DISK_STALL_MS_MIN, DISK_STALL_MS_DEFAULT_MAX);
        let ms = if given < 0 { default } else { given };
        self.config.disk_stall_ms = u32::try_from(ms).expect("the table bounds it");
    }

    fn resolve_metrics(&mut self) {
        let raw = &self.config.raw;
        let is_given = self.config.origin("metricsProvider.httpPort").is_some();
        let port = match raw.prometheus && !is_given {
            true => PROMETHEUS_PORT_DEFAULT,
            false => raw.metrics_port,
        };
        // -1 is "none": it is no port.
        let addr = u16::try_from(port).ok().map(|port| HostPort::new(&raw.metrics_host, port));
        self.config.metrics_addr = addr.map(|addr| addr.expect("the host was checked"));
    }

    fn warn_of_weakness(&mut self) {
        let config = &mut self.config;
        // A configuration that is changed later is judged again.
        config.warnings.retain(|(key, _)| !JUDGED.contains(&key.as_str()));
        config.warnings.retain(|(key, _)| !key.starts_with("server."));
        if config.raw.force_sync_off {
            let reason = "ignored: every write is on disk before it is acknowledged";
            note(&mut config.warnings, "forceSync", reason);
        }
        if config.raw.leader_serves_not {
            let reason = "ignored: the leader serves clients as every other server does";
            note(&mut config.warnings, "leaderServes", reason);
        }
        if config.skip_acl {
            note(&mut config.warnings, "skipACL", "no ACL is checked: everybody may do everything");
        }
        for (key, reason) in ensemble::warnings(config) {
            note(&mut config.warnings, &key, &reason);
        }
    }

    fn origin_of(&self, key: &'static str) -> Origin {
        let file = self.file.clone().unwrap_or_default();
        self.config.origin(key).cloned().unwrap_or(Origin { file, line: 0 })
    }

    fn has_error(&self, key: &str) -> bool {
        self.errors.iter().any(|error| error.key == key)
    }
}

/// Every key that takes effect, in the order of the documents.
pub(super) fn effective_keys() -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().flat_map(|section| section.keys.iter())
}

/// The entry of a key: its own, or that of the longest family that it belongs to.
fn lookup(name: &str) -> Option<&'static Key> {
    let exact = all_keys().find(|key| key.name == name);
    exact.or_else(|| {
        let family = |key: &&Key| key.family().is_some_and(|stem| name.starts_with(stem));
        all_keys().filter(family).max_by_key(|key| key.name.len())
    })
}

fn all_keys() -> impl Iterator<Item = &'static Key> {
    effective_keys().chain(&REFUSED).chain(&WARNED).chain(&ACCEPTED)
}

/// The name without the prefix of system properties, which both ways of writing may have.
pub(super) fn plain_name(written: &str) -> &str {
    written.strip_prefix("zookeeper.").unwrap_or(written)
}

/// Adds a remark, once for each key.
fn note(notes: &mut Vec<(String, String)>, name: &str, reason: &str) {
    if !notes.iter().any(|(known, _)| known == name) {
        notes.push((name.to_string(), reason.to_string()));
    }
}

/// Keys whose warnings depend on others.
const JUDGED: [&str; 4] = ["forceSync", "skipACL", "peerType", "leaderServes"];
/// Keys that ZooKeeper does not have begin with this.
pub(super) const OWN_PREFIX: &str = "lockkeeper.";
