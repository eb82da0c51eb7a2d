//! The table of the shell's verbs: names, flags, arguments and what each does.
//!
//! *Owns* [`VERBS`]; parsing, `help` and completion read it. Reproduces `CommandFactory`.

use std::ops::RangeInclusive;

use super::given::Given;
use super::state::{Outcome, Shell};
use super::{ensemble, export, import, quota, read, session, watch, write};

/// A verb.
pub(super) struct Verb {
    pub name: &'static str,
    /// How flags and arguments are written.
    pub form: &'static str,
    pub help: &'static str,
    /// Flags without a value.
    pub flags: &'static str,
    /// Flags with one.
    pub values: &'static [&'static str],
    /// How many arguments.
    pub arguments: RangeInclusive<usize>,
    pub run: fn(&mut Shell, &Given) -> Outcome,
}

impl Verb {
    /// Name and form.
    pub(super) fn line(&self) -> String {
        format!("{} {}", self.name, self.form).trim_end().to_string()
    }

    pub(super) fn usage(&self) -> String {
        format!("usage: {}", self.line())
    }
}

/// The verb of this name.
pub(super) fn verb(name: &str) -> Option<&'static Verb> {
    VERBS.iter().find(|verb| verb.name == name)
}

const NONE: &[&str] = &[];

/// In the order of their names, as `help` shows them.
pub(super) static VERBS: [Verb; 32] = [
    Verb {
        name: "addauth",
        form: "scheme [auth]",
        help: "take on an identity: addauth digest user:password",
        flags: "",
        values: NONE,
        arguments: 1..=2,
        run: session::add_auth,
    },
    Verb {
        name: "addWatch",
        form: "[-m mode] path",
        help: "watch for every change; mode: PERSISTENT, PERSISTENT_RECURSIVE (default)",
        flags: "",
        values: &["m"],
        arguments: 1..=1,
        run: watch::add,
    },
    Verb {
        name: "close",
        form: "",
        help: "end the session",
        flags: "",
        values: NONE,
        arguments: 0..=0,
        run: session::close,
    },
    Verb {
        name: "config",
        form: "[-c] [-w] [-s]",
        help: "the members of the ensemble; -c: where clients connect",
        flags: "cws",
        values: NONE,
        arguments: 0..=0,
        run: ensemble::config,
    },
    Verb {
        name: "connect",
        form: "[host:port,.../path]",
        help: "begin a new session, here or elsewhere",
        flags: "",
        values: NONE,
        arguments: 0..=1,
        run: session::connect,
    },
    Verb {
        name: "create",
        form: "[-s] [-e] [-c] [-t ttl] path [data] [acl]",
        help: "create: -s sequential, -e ephemeral, -c container, -t time to live in ms",
        flags: "sec",
        values: &["t"],
        arguments: 1..=3,
        run: write::create,
    },
    Verb {
        name: "delete",
        form: "[-v version] path",
        help: "delete a znode without children",
        flags: "",
        values: &["v"],
        arguments: 1..=1,
        run: write::delete,
    },
    Verb {
        name: "deleteall",
        form: "[-b batch] path",
        help: "delete a znode and all below it",
        flags: "",
        values: &["b"],
        arguments: 1..=1,
        run: write::delete_all,
    },
    Verb {
        name: "delquota",
        form: "[-n|-b|-N|-B] path",
        help: "take limits away",
        flags: "nbNB",
        values: NONE,
        arguments: 1..=1,
        run: quota::delete,
    },
    Verb {
        name: "exit",
        form: "",
        help: "as quit",
        flags: "",
        values: NONE,
        arguments: 0..=0,
        run: session::quit,
    },
    Verb {
        name: "export",
        form: "[-o file] path",
        help: "a znode and all below it as JSON, to standard output or to a file",
        flags: "",
        values: &["o"],
        arguments: 1..=1,
        run: export::export,
    },
    Verb {
        name: "get",
        form: "[-s] [-w] [-b] [-x] path",
        help: "the data; -b in base64, -x in hexadecimal",
        flags: "swbx",
        values: NONE,
        arguments: 1..=1,
        run: read::get,
    },
    Verb {
        name: "getAcl",
        form: "[-s] path",
        help: "who may do what",
        flags: "s",
        values: NONE,
        arguments: 1..=1,
        run: read::get_acl,
    },
    Verb {
        name: "getAllChildrenNumber",
        form: "path",
        help: "how many znodes are below",
        flags: "",
        values: NONE,
        arguments: 1..=1,
        run: read::all_children_number,
    },
    Verb {
        name: "getEphemerals",
        form: "[path]",
        help: "the ephemeral znodes of this session",
        flags: "",
        values: NONE,
        arguments: 0..=1,
        run: read::ephemerals,
    },
    Verb {
        name: "help",
        form: "[command]",
        help: "this list",
        flags: "",
        values: NONE,
        arguments: 0..=1,
        run: session::help,
    },
    Verb {
        name: "history",
        form: "",
        help: "the last commands, numbered",
        flags: "",
        values: NONE,
        arguments: 0..=0,
        run: session::history,
    },
    Verb {
        name: "import",
        form: "[-on-conflict fail|skip|overwrite] file path",
        help: "what export has written, with path as its root; file: - is standard input",
        flags: "",
        values: &["on-conflict"],
        arguments: 2..=2,
        run: import::import,
    },
    Verb {
        name: "listquota",
        form: "path",
        help: "limits and usage",
        flags: "",
        values: NONE,
        arguments: 1..=1,
        run: quota::list,
    },
    Verb {
        name: "ls",
        form: "[-s] [-w] [-R] path",
        help: "the children; -R everything below",
        flags: "swR",
        values: NONE,
        arguments: 1..=1,
        run: read::ls,
    },
    Verb {
        name: "printwatches",
        form: "[on|off]",
        help: "whether watches that fire are shown",
        flags: "",
        values: NONE,
        arguments: 0..=1,
        run: watch::print,
    },
    Verb {
        name: "quit",
        form: "",
        help: "end",
        flags: "",
        values: NONE,
        arguments: 0..=0,
        run: session::quit,
    },
    Verb {
        name: "reconfig",
        form: "[-s] [-v version] [-file path | -members server,... | -add server,... -remove id,...]",
        help: "change the members of the ensemble",
        flags: "s",
        values: &["v", "file", "members", "add", "remove"],
        arguments: 0..=0,
        run: ensemble::reconfig,
    },
    Verb {
        name: "redo",
        form: "number",
        help: "a command of the history, again",
        flags: "",
        values: NONE,
        arguments: 1..=1,
        run: session::redo,
    },
    Verb {
        name: "removewatches",
        form: "path [-c|-d|-p|-r|-a] [-l]",
        help: "remove child, data, persistent, recursive or all watches",
        flags: "cdpral",
        values: NONE,
        arguments: 1..=1,
        run: watch::remove,
    },
    Verb {
        name: "set",
        form: "[-s] [-v version] [-b] path data",
        help: "write the data; -b: it is given in base64",
        flags: "sb",
        values: &["v"],
        arguments: 2..=2,
        run: write::set,
    },
    Verb {
        name: "setAcl",
        form: "[-s] [-v version] [-R] path acl",
        help: "say who may do what: scheme:id:cdrwa,...",
        flags: "sR",
        values: &["v"],
        arguments: 2..=2,
        run: write::set_acl,
    },
    Verb {
        name: "setquota",
        form: "-n|-b|-N|-B limit path",
        help: "limit znodes (n) or bytes (b) below; N, B: strictly",
        flags: "",
        values: &["n", "b", "N", "B"],
        arguments: 1..=1,
        run: quota::set,
    },
    Verb {
        name: "stat",
        form: "[-w] path",
        help: "all about a znode but its data",
        flags: "w",
        values: NONE,
        arguments: 1..=1,
        run: read::stat,
    },
    Verb {
        name: "sync",
        form: "path",
        help: "see everything that was acknowledged before",
        flags: "",
        values: NONE,
        arguments: 1..=1,
        run: session::sync,
    },
    Verb {
        name: "version",
        form: "",
        help: "the version of this program",
        flags: "",
        values: NONE,
        arguments: 0..=0,
        run: session::version,
    },
    Verb {
        name: "whoami",
        form: "",
        help: "who the server takes us for",
        flags: "",
        values: NONE,
        arguments: 0..=0,
        run: session::who_am_i,
    },
];
