//! The keys of what operators see: the HTTP port, four-letter words, metrics, the audit log.
//!
//! *Owns* [`AdminConfig`] and the entries of the table for operators. *Never* opens a port: the server does.

use std::path::PathBuf;

use super::address::{HOST, HostPort, host_of};
use super::key::{INT_MAX, Key};
use super::values::{command_url, optional_path, path_text, u16_of, u32_of};
use super::words::FourLetterWords;

/// `admin.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// Is there an HTTP port at all?
    pub enabled: bool,
    /// Where. Port 0: any free port.
    pub addr: HostPort,
    /// Path under which the commands are; begins with `/`, does not end in one.
    pub command_url: String,
    /// `lockkeeper.adminTokenFile`: the file with the token of those who are not on this machine.
    pub token_file: Option<PathBuf>,
    /// `lockkeeper.adminHosts`: names by which the HTTP port may be asked, beside those of the servers.
    pub hosts: Vec<String>,
    /// `lockkeeper.adminBrowser`: the console may browse the tree of znodes.
    pub browser: bool,
    /// `admin.snapshot.enabled`: the HTTP port has the command `snapshot`.
    pub snapshot_enabled: bool,
    /// `admin.forceHttps`: the HTTP port takes TLS alone.
    pub force_https: bool,
    /// `admin.portUnification`: it takes TLS and plain text.
    pub port_unification: bool,
    /// `admin.needClientAuth`: clients that come through TLS must show a certificate.
    pub need_client_auth: bool,
}

impl AdminConfig {
    /// Whether the HTTP port takes TLS.
    #[must_use]
    pub fn speaks_tls(&self) -> bool {
        self.enabled && (self.force_https || self.port_unification)
    }
}

/// The section's keys.
pub(super) static KEYS: [Key; 18] = [
    Key::effective(
        "lockkeeper.coreDumps",
        "false",
        |c| c.core_dumps.to_string(),
        "Whether `lockkeeper server` may leave a core dump, and be looked at by a debugger of its own user, although \
         the configuration names keys, passwords or tokens, which its memory holds.",
    )
    .switch(|c, on| c.core_dumps = on),
    Key::effective(
        "4lw.commands.whitelist",
        "default",
        |c| c.four_letter_words.to_text(),
        "Four-letter words that are answered: a comma list, `*` for all, or `default`: ruok, srvr, \
         stat, mntr, conf, isro, envi, wchs and dirs from anywhere, all from this machine \
         (ZooKeeper: srvr). srvr is always answered.",
    )
    .text("`default`, `*`, or a comma list of words", |c, text| {
        let (words, unknown) = FourLetterWords::parse(text);
        c.four_letter_words = words;
        unknown.map_or(Ok(()), Err)
    })
    .or_else(""),
    Key::effective(
        "admin.enableServer",
        "true",
        |c| c.admin.enabled.to_string(),
        "Offer the HTTP port with /commands, /metrics, /livez and /readyz.",
    )
    .switch(|c, on| c.admin.enabled = on)
    .or_else("true"),
    Key::effective(
        "admin.serverAddress",
        "127.0.0.1",
        |c| c.admin.addr.host.clone(),
        "Address or host name of the HTTP port; ZooKeeper's default is 0.0.0.0. Elsewhere than on this machine names \
         and data of znodes are shown to those with the token of lockkeeper.adminTokenFile alone.",
    )
    .text(HOST, |c, text| {
        c.admin.addr.host = host_of(text)?;
        Ok(())
    }),
    Key::effective(
        "admin.serverPort",
        "8080",
        |c| c.admin.addr.port.to_string(),
        "The HTTP port. 0 takes any free port. A port that is taken is a warning, not an error.",
    )
    .number(0, u16::MAX as i64, |c, n| c.admin.addr.port = u16_of(n))
    .or_else("8080"),
    Key::effective(
        "admin.commandURL",
        "/commands",
        |c| c.admin.command_url.clone(),
        "Path under which the commands are.",
    )
    .text("a path that begins with / and does not end in one", |c, text| {
        c.admin.command_url = command_url(text)?;
        Ok(())
    })
    .or_else("/commands"),
    Key::effective(
        "lockkeeper.adminTokenFile",
        "",
        |c| c.admin.token_file.as_deref().map_or_else(String::new, path_text),
        "File with the token that the HTTP port asks of clients on other machines before it shows names and data of \
         znodes: one word of at least 16 characters. It is read at each request.",
    )
    .text("a path, or nothing", |c, text| {
        c.admin.token_file = optional_path(text)?;
        Ok(())
    }),
    Key::effective(
        "lockkeeper.adminHosts",
        "",
        |c| c.admin.hosts.join(","),
        "Names by which the HTTP port may be asked, with commas between them, beside addresses, localhost, this \
         machine's name and those of the server lines; * is any. Others are refused, because any name can be made to \
         stand for this machine by its owner. Figures and health checks are answered to all.",
    )
    .text("host names with commas between them, or nothing", |c, text| {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        c.admin.hosts = names.map(str::to_owned).collect();
        Ok(())
    }),
    Key::effective(
        "lockkeeper.adminBrowser",
        "true",
        |c| c.admin.browser.to_string(),
        "The console of the HTTP port may browse the tree: names, data and access control lists of all znodes. It does \
         so for clients of this machine, and for those with the token of lockkeeper.adminTokenFile. Data that an \
         access control list does not let everyone read are shown to the latter alone.",
    )
    .switch(|c, on| c.admin.browser = on),
    Key::effective(
        "admin.snapshot.enabled",
        "true",
        |c| c.admin.snapshot_enabled.to_string(),
        "The HTTP port gives the state in ZooKeeper's own format at /commands/snapshot: to the super user \
         (Authorization: digest super:PASSWORD), and to those with the token of lockkeeper.adminTokenFile or a \
         certificate.",
    )
    .switch(|c, on| c.admin.snapshot_enabled = on),
    Key::effective(
        "admin.forceHttps",
        "false",
        |c| c.admin.force_https.to_string(),
        "The HTTP port takes TLS alone, by ssl.quorum.keyStore.*, and by ssl.quorum.enabledProtocols and \
         ssl.quorum.ciphersuites where they are given. Plain text is closed.",
    )
    .switch(|c, on| c.admin.force_https = on),
    Key::effective(
        "admin.portUnification",
        "false",
        |c| c.admin.port_unification.to_string(),
        "The HTTP port takes TLS and plain text, unless admin.forceHttps is true.",
    )
    .switch(|c, on| c.admin.port_unification = on)
    .or_else("false"),
    Key::effective(
        "admin.needClientAuth",
        "false",
        |c| c.admin.need_client_auth.to_string(),
        "Clients that come to the HTTP port through TLS must show a certificate that ssl.quorum.trustStore.* vouches \
         for. It counts as much as the token of lockkeeper.adminTokenFile.",
    )
    .switch(|c, on| c.admin.need_client_auth = on),
    Key::effective(
        "metricsProvider.className",
        "",
        |c| if c.raw.prometheus { PROMETHEUS.to_string() } else { String::new() },
        "Metrics are always on the HTTP port; the Prometheus provider's class adds \
         metricsProvider.httpPort, 7000 unless given.",
    )
    .text("any text", |c, text| {
        c.raw.prometheus = text.ends_with(PROMETHEUS);
        Ok(())
    }),
    Key::effective(
        "metricsProvider.httpHost",
        "0.0.0.0",
        |c| c.raw.metrics_host.clone(),
        "Address or host name of the second port for metrics.",
    )
    .text(HOST, |c, text| {
        c.raw.metrics_host = host_of(text)?;
        Ok(())
    })
    .without_file("127.0.0.1"),
    Key::effective(
        "metricsProvider.httpPort",
        "-1",
        |c| c.metrics_addr.as_ref().map_or(-1, |addr| i32::from(addr.port)).to_string(),
        "A second HTTP port that offers /metrics only. -1: none.",
    )
    .number(-1, u16::MAX as i64, |c, n| c.raw.metrics_port = n)
    .or_else("-1"),
    Key::effective(
        "fsync.warningthresholdms",
        "1000",
        |c| c.fsync_warning_threshold_ms.to_string(),
        "An fsync of the log that takes longer than this, ms, is logged and counted.",
    )
    .number(0, INT_MAX, |c, n| c.fsync_warning_threshold_ms = u32_of(n))
    .or_else("1000"),
    Key::effective(
        "lockkeeper.auditLog",
        "",
        |c| c.audit_log.as_deref().map_or(String::new(), path_text),
        "File to which every applied transaction is written as a line of JSON. Empty: none.",
    )
    .text("a path, or nothing", |c, text| {
        c.audit_log = optional_path(text)?;
        Ok(())
    }),
];

const PROMETHEUS: &str = "PrometheusMetricsProvider";
