//! The configuration for people: effective values, the reference page, the sample file.
//!
//! Owns the layout of docs/CONFIGURATION.md and conf/zoo.cfg, both generated from the table: a
//! test fails when the files lag behind it. Never shows the super user's digest.

use std::fmt::Write as _;

use super::Config;
use super::accepted::{ACCEPTED, REFUSED, WARNED};
use super::draft::effective_keys;
use super::key::{Counts, Key};
use super::protection::Protected;
use super::table::SECTIONS;

impl Config {
    /// The values in force, one a line with where each comes from, then what has no effect: the
    /// text of `lockkeeper config check`.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = String::new();
        let mut line = |text_line: String| {
            text.push_str(text_line.trim_end());
            text.push('\n');
        };
        for key in effective_keys() {
            let value = (key.show)(self);
            let value = if value.is_empty() { "-".to_string() } else { value };
            match self.origin(key.name) {
                Some(origin) => line(format!("{} = {value}  ({origin})", key.name)),
                None => line(format!("{} = {value}", key.name)),
            }
        }
        for server in &self.servers {
            line(format!("server.{} = {server}", server.id));
        }
        if let Some(id) = self.server_id {
            line(format!("myid = {id}"));
        }
        let ports = self.protection();
        let width = |of: fn(&Protected) -> usize| ports.iter().map(of).max().unwrap_or_default();
        let (first, second) = (width(|port| port.port.len()), width(|port| port.speaks.len()));
        for Protected { port, speaks, who } in &ports {
            line(format!("who gets in: {port:first$}  {speaks:second$}  {who}"));
        }
        if let Some(words) = self.leaders_words() {
            line(words);
        }
        for mistake in &self.mistakes {
            line(format!("probably a mistake: {mistake}"));
        }
        for (title, notes) in [("warning", &self.warnings), ("no effect", &self.ignored)] {
            for (key, reason) in notes {
                line(format!("{title}: {key}: {reason}"));
            }
        }
        text
    }

    /// Every key that takes effect, with its value in force.
    #[must_use]
    pub fn values(&self) -> Vec<(String, String)> {
        effective_keys().map(|key| (key.name.to_string(), (key.show)(self))).collect()
    }

    /// Keys of which, in an ensemble, the value of the server that leads counts, and that are set to something else
    /// than the default here. None for a single server.
    #[must_use]
    pub fn leaders_keys(&self) -> Vec<&'static Key> {
        let is_set =
            |key: &&Key| self.origin(key.name).is_some() && (key.show)(self) != key.default;
        let keys = effective_keys().filter(|key| key.leaders().is_some()).filter(is_set);
        keys.filter(|_| self.is_ensemble()).collect()
    }

    /// [`Config::leaders_keys`] in one line, and what to do.
    #[must_use]
    pub fn leaders_words(&self) -> Option<String> {
        let name = |key: &Key| match key.counts {
            Counts::Own | Counts::Leaders("") => key.name.to_string(),
            Counts::Leaders(part) => format!("{} (for {part})", key.name),
        };
        let names: Vec<String> = self.leaders_keys().into_iter().map(name).collect();
        (!names.is_empty()).then(|| {
            format!(
                "count only on the server that leads, so set them alike on all servers: {}",
                names.join(", ")
            )
        })
    }

    /// What a file, flags or a program gave, one `key=value` a line; defaults are left out.
    #[must_use]
    pub fn given(&self) -> String {
        let mut text = String::new();
        for key in effective_keys().filter(|key| self.origin(key.name).is_some()) {
            text.push_str(&format!("{}={}\n", key.name, (key.show)(self)));
        }
        text
    }

    /// The text of docs/CONFIGURATION.md.
    #[must_use]
    pub fn markdown() -> String {
        let mut text = INTRODUCTION.to_string();
        for section in &SECTIONS {
            let _ = write!(text, "\n## {}\n\n{EFFECTIVE_HEAD}", section.title);
            section.keys.iter().for_each(|key| effective_row(&mut text, key));
        }
        text.push_str(SASL);
        text.push_str(SERVER_LINES);
        for (title, keys) in [
            ("Refused by name", &REFUSED[..]),
            ("Accepted with a warning", &WARNED[..]),
            ("Accepted without effect", &ACCEPTED[..]),
        ] {
            let _ = write!(text, "\n## {title}\n\n| key | why |\n|---|---|\n");
            for key in keys {
                let _ = writeln!(text, "| `{}` | {} |", key.name, cell(key.doc));
            }
        }
        text
    }

    /// The text of conf/zoo.cfg: every key that takes effect, with its meaning, limits and default.
    #[must_use]
    pub fn sample() -> String {
        let mut text = SAMPLE_HEAD.to_string();
        for section in &SECTIONS {
            let _ = write!(text, "\n# --- {}\n", section.title);
            for key in section.keys {
                let limits = key.limits();
                let default = if key.default.is_empty() { "none" } else { key.default };
                let _ = write!(text, "\n{}", wrapped(key.doc));
                let whose = key.leaders().map(|whose| format!(" In an ensemble: the {whose}."));
                let whose = whose.unwrap_or_default();
                let _ = writeln!(text, "# Value: {limits}. Default: {default}.{whose}");
                match key.sample {
                    Some(value) => {
                        let _ = writeln!(text, "{}={value}", key.name);
                    }
                    None => {
                        let _ = writeln!(text, "#{}={}", key.name, key.default);
                    }
                }
            }
        }
        text.push_str(SAMPLE_SERVERS);
        text
    }
}

fn effective_row(text: &mut String, key: &Key) {
    let code = |value: &str| match value {
        "" => "-".to_string(),
        value => format!("`{value}`"),
    };
    let lenient = if key.stand_in.is_some() { "; lenient" } else { "" };
    let whose = key.leaders().map(|whose| format!("; {whose}")).unwrap_or_default();
    let without_file = key.default_without_file.unwrap_or(key.default);
    let _ = writeln!(
        text,
        "| `{}` | {} | {} | {} | {} |",
        key.name,
        code(key.default),
        code(without_file),
        cell(&format!("{}{lenient}{whose}", key.limits())),
        cell(key.doc)
    );
}

/// Text that may stand in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// A comment of lines no longer than the sources'.
fn wrapped(doc: &str) -> String {
    let mut text = String::new();
    let mut line = String::from("#");
    for word in doc.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    text + &line + "\n"
}

const WIDTH: usize = 100;

const EFFECTIVE_HEAD: &str = "| key | default in a file | without a file | value | meaning |\n\
                              |---|---|---|---|---|\n";

const INTRODUCTION: &str = "\
# Configuration

`lockkeeper server` runs without a file. `lockkeeper server zoo.cfg` takes ZooKeeper's configuration
file as it is, with ZooKeeper's defaults; our own keys begin with `lockkeeper.` and stand in the same
file. Flags of the command line win over the file. `lockkeeper config check zoo.cfg` shows the values
in force or everything that is wrong, as `file:line: key: reason`, and exits with 0 or 2.

The file is a Java properties file in UTF-8: `key=value`, comments begin with `#` or `!`, a backslash
escapes (`\\uXXXX` too) and continues a line, the last of two equal keys wins. A file that is not UTF-8
is read as Latin-1, as Java does. Keys may carry the prefix `zookeeper.` of system properties. Numbers
may be hexadecimal (`0x...`).

The server starts on every file that ZooKeeper 3.9 starts on, or refuses it by name for a reason that
stands below or in [COMPATIBILITY.md](COMPATIBILITY.md#configuration). So:

* A key that is in none of these tables is none of ZooKeeper's either: it is accepted and has no effect,
  and a warning of its own names the key that was probably meant. So is a key that is given twice with
  different values, and a `server.N` that is given twice at all. `lockkeeper config check --strict`
  fails on both. An unknown `lockkeeper.` key is always an error.
* A value that ZooKeeper would not read, of a key that it takes for a system property (marked *lenient*),
  is warned of: the nearest value, or the default, or `false` is in force, as the warning says. The keys
  of ZooKeeper's own parser are checked as strictly as it does, and so are flags.
* Of a key that is marked *leader's*, the value of the server that leads counts in an ensemble, for the clients
  of all servers: each log entry carries the rules of the leader that proposed it. Where the mark says for what,
  each server goes by its own value for the rest. Any server may lead next, so set these keys alike on all of
  them: `lockkeeper config check` and the start name those that are set, and a server whose values are not the
  leader's logs both. (An ensemble of 0.1.0-rc.1 whose upgrade is not finished still decides writes by the file
  of each server: [UPGRADING.md](UPGRADING.md).)
* Some keys are read from zoo.cfg here that ZooKeeper reads from its JVM's flags only:
  `jute.maxbuffer`, `readonlymode.enabled`, `znode.container.*`.

This page is generated from the table in src/config.
";

const SASL: &str = "
### Clients that authenticate by SASL

The mechanism is DIGEST-MD5. A file that every server has, readable by the server alone:

    Server {
        org.apache.zookeeper.server.auth.DigestLoginModule required
            user_bob=\"the password of bob\"
            user_carl=\"the password of carl\";
    };

and three lines in every zoo.cfg, of which the last one turns away clients that do not authenticate:

    lockkeeper.jaasFile=/etc/lockkeeper/jaas.conf
    authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
    sessionRequireClientSASLAuth=true

The file is read when the server starts, and again within 5 s of a change, or at once after SIGHUP: passwords change
without a restart. A new file that cannot be used leaves the users that there were, is named in the log, and
`lockkeeper_sasl_users_outdated` is 1 until one can. A connection keeps what it has proved.
Each server decides by its own configuration who may authenticate on its
connections; what they may do then is decided by the access control lists, which name them as `sasl:bob`, on all
servers alike. A user has no more than an ACL gives: `superUser=bob` makes one that may do everything.
`config check` reads the file, too. No log, word or page shows a password.
";

const SERVER_LINES: &str = "
### Server lines

`server.N=host:peerPort:electionPort[:participant|:observer][;[clientHost:]clientPort]`, N from 0 to
254, several addresses of one server separated by `|`, IPv6 in brackets. The first port carries
everything between the servers; the second, ZooKeeper's election port, is read, shown and never bound.
Hosts are written as the *other* servers reach them; a name that does not resolve yet is tried again.

Two participants and more are an ensemble (so is one, with `standaloneEnabled=false`); an even number
of participants, or fewer than three, is warned of. One participant alone is a single server, and one
with observers is refused, both as ZooKeeper does. In an ensemble the file `myid` in dataDir must hold
the N of this server, and this server must have a line; `lockkeeper server --myid N` writes the file
where it is missing. A single server needs none, and ignores one that it cannot read, with a warning.

A server whose own host is a name that its machine resolves to a loopback address (`127.0.1.1` in
Debian's /etc/hosts), while the other servers are on other machines, could be reached by none of them: it
listens on all addresses instead, and warns. (ZooKeeper listens at that address, and no ensemble forms unless
`quorumListenOnAllIPs` is true.)

The lines found an ensemble that has no data yet, and tell a new server where the members are. After
that the membership is part of the replicated data (`/zookeeper/config`): lines that differ from it
are warned of, with the `lockkeeper member` command that would make them true.
";

const SAMPLE_HEAD: &str = "\
# Configuration of a Lockkeeper server: every key that takes effect, with its default.
# Run it with: lockkeeper server conf/zoo.cfg    Check it with: lockkeeper config check conf/zoo.cfg
#
# A line that begins with # and has no blank after it shows a default: take the # away to change it.
# ZooKeeper's other keys are accepted too; docs/CONFIGURATION.md says what becomes of each.
";

const SAMPLE_SERVERS: &str = "
# The servers of the ensemble, one line each. One participant is a single server; conf/ensemble has
# the files of three. The file myid in dataDir holds the N of this server.
# Value: host:peerPort:electionPort[:participant|:observer][;[clientHost:]clientPort].
# server.1=127.0.0.1:2888:3888:participant;2181
";
