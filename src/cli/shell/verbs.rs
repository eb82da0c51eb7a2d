//! The table of the shell's verbs: names, flags, arguments and what each does.
//!
//! *Owns* [`VERBS`], which parsing, `help` and completion read, how a command is carried out, and the verbs that are
//! about the table: help, redo. Reproduces `CommandFactory`.

use serde_json::json;

use super::failure::Failure;
use super::given::{Given, words_of};
use super::output::Answer;
use super::state::{Outcome, Shell};
use super::{ensemble, export, import, quota, read, session, watch, write};

/// A verb.
pub(super) struct Verb {
    pub name: &'static str,
    /// Form of flags and arguments: `given.rs` reads it.
    pub form: &'static str,
    help: &'static str,
    run: Run,
}

type Run = fn(&mut Shell, &Given) -> Outcome;

impl Verb {
    /// Name and form.
    fn line(&self) -> String {
        format!("{} {}", self.name, self.form).trim_end().to_string()
    }
}

/// The verb of this name.
pub(super) fn verb(name: &str) -> Option<&'static Verb> {
    VERBS.iter().find(|verb| verb.name == name)
}

/// Carries out one command, already in words.
pub(super) fn execute(shell: &mut Shell, words: &[String]) -> Outcome {
    let Some((name, rest)) = words.split_first() else { return Ok(Answer::silent()) };
    let verb = verb(name).ok_or_else(|| {
        Failure::usage(format!("Command not found {name}\n`help` lists the commands"))
    })?;
    (verb.run)(shell, &Given::parse(verb.name, verb.form, rest)?)
}

/// Carries out one line, which goes into the history.
pub(super) fn execute_line(shell: &mut Shell, line: &str) -> Outcome {
    let line = line.trim();
    if line.is_empty() {
        return Ok(Answer::silent());
    }
    shell.history.push(line.to_string());
    execute(shell, &words_of(line)?)
}

fn redo(shell: &mut Shell, given: &Given) -> Outcome {
    let number: usize = given
        .path()
        .parse()
        .map_err(|_| Failure::usage(format!("`{}` is no number of a command", given.path())))?;
    // The last line is this one.
    let before = shell.history.len().saturating_sub(1);
    let line = match shell.history.get(number) {
        Some(line) if number < before => line.clone(),
        Some(_) | None => return Err(Failure::usage("Command index out of range")),
    };
    let words = words_of(&line)?;
    if words.first().is_some_and(|word| word == "redo") {
        return Err(Failure::usage("No redoing redos"));
    }
    shell.history[before] = line;
    execute(shell, &words)
}

fn help(_: &mut Shell, given: &Given) -> Outcome {
    let verbs: Vec<_> = match given.arguments.first() {
        None => VERBS.iter().collect(),
        Some(name) => {
            let unknown = || Failure::usage(format!("Command not found {name}"));
            vec![verb(name).ok_or_else(unknown)?]
        }
    };
    let width = verbs.iter().map(|verb| verb.line().len()).max().unwrap_or(0);
    let mut answer = Answer::default();
    let mut list = Vec::new();
    for verb in verbs {
        answer = answer.line(format!("{:width$}  {}", verb.line(), verb.help));
        list.push(json!({ "command": verb.name, "usage": verb.line(), "help": verb.help }));
    }
    Ok(answer.field("commands", list))
}

const fn row(name: &'static str, form: &'static str, help: &'static str, run: Run) -> Verb {
    Verb { name, form, help, run }
}

/// In the order of their names, as `help` shows them.
pub(super) static VERBS: [Verb; 32] = [
    row(
        "addauth",
        "scheme [auth]",
        "take on an identity: addauth digest user:password",
        session::add_auth,
    ),
    row(
        "addWatch",
        "[-m mode] path",
        "watch for every change; mode: PERSISTENT, PERSISTENT_RECURSIVE (default)",
        watch::add,
    ),
    row("close", "", "end the session", session::close),
    row(
        "config",
        "[-c] [-w] [-s]",
        "the members of the ensemble; -c: where clients connect",
        ensemble::config,
    ),
    row(
        "connect",
        "[host:port,.../path]",
        "begin a new session, here or elsewhere",
        session::connect,
    ),
    row(
        "create",
        "[-s] [-e] [-c] [-t ttl] path [data] [acl]",
        "create: -s sequential, -e ephemeral, -c container, -t time to live in ms",
        write::create,
    ),
    row("delete", "[-v version] path", "delete a znode without children", write::delete),
    row("deleteall", "[-b batch] path", "delete a znode and all below it", write::delete_all),
    row("delquota", "[-n|-b|-N|-B] path", "take limits away", quota::delete),
    row("exit", "", "as quit", session::quit),
    row(
        "export",
        "[-o file] path",
        "a znode and all below it as JSON, to standard output or to a file",
        export::export,
    ),
    row("get", "[-s] [-w] [-b] [-x] path", "the data; -b in base64, -x in hexadecimal", read::get),
    row("getAcl", "[-s] path", "who may do what", read::get_acl),
    row("getAllChildrenNumber", "path", "how many znodes are below", read::all_children_number),
    row("getEphemerals", "[path]", "the ephemeral znodes of this session", read::ephemerals),
    row("help", "[command]", "this list", help),
    row("history", "", "the last commands, numbered", session::history),
    row(
        "import",
        "[-on-conflict fail|skip|overwrite] file path",
        "what export has written, with path as its root; file: - is standard input",
        import::import,
    ),
    row("listquota", "path", "limits and usage", quota::list),
    row("ls", "[-s] [-w] [-R] path", "the children; -R everything below", read::ls),
    row("printwatches", "[on|off]", "whether watches that fire are shown", watch::print),
    row("quit", "", "end", session::quit),
    row(
        "reconfig",
        "[-s] [-v version] [-file path | -members server,... | -add server,... -remove id,...]",
        "change the members of the ensemble",
        ensemble::reconfig,
    ),
    row("redo", "number", "a command of the history, again", redo),
    row(
        "removewatches",
        "path [-c|-d|-p|-r|-a] [-l]",
        "remove child, data, persistent, recursive or all watches",
        watch::remove,
    ),
    row(
        "set",
        "[-s] [-v version] [-b] path data",
        "write the data; -b: it is given in base64",
        write::set,
    ),
    row(
        "setAcl",
        "[-s] [-v version] [-R] path acl",
        "say who may do what: scheme:id:cdrwa,...",
        write::set_acl,
    ),
    row(
        "setquota",
        "-n|-b|-N|-B limit path",
        "limit znodes (n) or bytes (b) below; N, B: strictly",
        quota::set,
    ),
    row("stat", "[-w] path", "all about a znode but its data", read::stat),
    row("sync", "path", "see everything that was acknowledged before", session::sync),
    row("version", "", "the version of this program", session::version),
    row("whoami", "", "who the server takes us for", session::who_am_i),
];
