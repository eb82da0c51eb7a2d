//! A configuration in the making: texts and flags in, errors collected, resolved once.
//!
//! Owns the order of things: the file's last duplicate of a key wins, flags win over the file, then
//! what depends on other keys is derived and cross-checked (`draft/derive.rs`). Invariant: nothing stops at the first
//! error; [`Draft::resolve`] gives a whole [`Config`] or every fault that was found. Reproduces
//! `QuorumPeerConfig.parseProperties` and `parseDynamicConfig`.

mod derive;

use std::collections::BTreeMap;
use std::path::Path;

use super::Config;
use super::accepted::{ACCEPTED, REFUSED, WARNED, is_built_in};
use super::error::{ConfigError, Origin};
use super::groups::{self, Groups};
use super::key::{Effect, Key, OWN_PREFIX};
use super::likeness;
use super::properties::{self, LineFault, Property};
use super::sasl;
use super::servers::{ServerSpec, server_id};
use super::table::SECTIONS;

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
        let mut config = Config::blank();
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
        self.resolve_tls();
        self.resolve_peer_tls();
        self.resolve_zookeeper_tls();
        self.resolve_admin_tls();
        self.resolve_authentication();
        self.resolve_peer_security();
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
        let cure = match earlier.key.starts_with("server.") {
            true => "remove it, or give it the number of another server",
            false => "remove one of the two",
        };
        let reason = format!(
            "given again in line {}, which holds: this line has no effect: {cure}",
            held.line
        );
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
        if key.name == sasl::PROVIDERS && !sasl::is_provider(value) {
            if !is_built_in(name, value) {
                note(&mut self.config.warnings, name, sasl::OTHER_PROVIDER);
            }
            return;
        }
        sasl::give(&mut self.config, name, value);
        match key.effect {
            Effect::Effective => {
                self.config.raw.given.insert(key.name, origin);
            }
            Effect::Ignored => note(&mut self.config.ignored, name, key.doc),
            Effect::Warned | Effect::Refused if is_built_in(name, value) => {}
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
const JUDGED: [&str; 6] =
    ["forceSync", "skipACL", "peerType", "leaderServes", sasl::JAAS_FILE, sasl::PROVIDERS];
