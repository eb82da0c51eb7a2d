//! The shell at a terminal: a prompt, a history that outlives the shell, and completion.
//!
//! *Owns* everything that rustyline sees. *Invariants*: completion never waits for a connection, and
//! changes nothing; a line that may hold a secret is not kept on disk.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use super::failure::Failure;
use super::given::Form;
use super::output::Watch;
use super::screen::Screen;
use super::state::Shell;
use super::verbs::{VERBS, execute_line, verb};
use crate::cli::client::Phase;
use crate::cli::exit::EXIT_REFUSED;
use crate::tree::path;

/// Lines kept on disk.
const HISTORY_LINES_MAX: usize = 1000;
/// Where they are kept, unless it is the file below in the home directory.
const HISTORY_VARIABLE: &str = "LOCKKEEPER_HISTORY";
const HISTORY_FILE: &str = ".lockkeeper_history";

/// Runs the shell until it is left.
pub(super) fn run(mut shell: Shell, screen: &Screen) -> i32 {
    shell.reads_stdin = true;
    let shell = Rc::new(RefCell::new(shell));
    let exit = match editor(&shell) {
        Ok(editor) => serve(&shell, screen, editor),
        Err(error) => {
            screen.failure(&Failure::refused(format!("the terminal: {error}")));
            EXIT_REFUSED
        }
    };
    shell.borrow_mut().close();
    exit
}

type Line = Editor<Completion, FileHistory>;

fn editor(shell: &Rc<RefCell<Shell>>) -> rustyline::Result<Line> {
    let config = Config::builder()
        .max_history_size(HISTORY_LINES_MAX)?
        .history_ignore_space(true)
        .completion_type(CompletionType::List)
        .auto_add_history(false)
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(Completion { shell: Rc::clone(shell) }));
    Ok(editor)
}

fn serve(shell: &Rc<RefCell<Shell>>, screen: &Screen, mut editor: Line) -> i32 {
    let file = history_file();
    if let Some(file) = &file {
        // There is none at first.
        let _ = editor.load_history(file);
    }
    if let Err(failure) = shell.borrow_mut().znodes() {
        screen.failure(&failure);
        return failure.exit;
    }
    screen.news("`help` lists the commands, TAB completes them and paths, `quit` ends");
    let mut watches = false;
    while !shell.borrow().is_done() {
        let prompt = shell.borrow().prompt();
        let line = match editor.readline(&prompt) {
            Ok(line) => line,
            // The line is given up, not the shell.
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => {
                screen.failure(&Failure::refused(format!("the terminal: {error}")));
                return EXIT_REFUSED;
            }
        };
        if !line.trim().is_empty() && !may_be_secret(&line) {
            // Only what is not kept at all fails here.
            let _ = editor.add_history_entry(&line);
        }
        let done = execute_line(&mut shell.borrow_mut(), &line);
        match done {
            Ok(answer) => {
                screen.answer(&answer);
                watches |= answer.watch != Watch::No;
            }
            Err(failure) => screen.failure(&failure),
        }
        // With this, rustyline 17 sees keys that were typed ahead only at the next key: not without
        // need, then.
        if watches && !screen.writes_above() {
            match editor.create_external_printer() {
                Ok(printer) => screen.write_above(printer),
                Err(error) => screen.news(&format!("events disturb the line: {error}")),
            }
        }
    }
    if let Some(file) = &file
        && let Err(error) = editor.save_history(file)
    {
        screen.news(&format!("{}: the history is not kept: {error}", file.display()));
    }
    0
}

fn history_file() -> Option<PathBuf> {
    let named = std::env::var_os(HISTORY_VARIABLE).map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(HISTORY_FILE));
    named.or_else(home).filter(|file| !file.as_os_str().is_empty())
}

fn may_be_secret(line: &str) -> bool {
    line.contains("addauth")
}

/// Completes verbs, flags and paths.
struct Completion {
    shell: Rc<RefCell<Shell>>,
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = &line[..position];
        let start = before.rfind(char::is_whitespace).map_or(0, |blank| blank + 1);
        let (earlier, word) = before.split_at(start);
        let found = match earlier.split_whitespace().next() {
            None | Some("help") => verbs(word),
            Some(name) if word.starts_with('-') => flags(name, word),
            Some(_) if word.starts_with('/') => self.paths(word),
            Some(_) => Vec::new(),
        };
        Ok((start, found))
    }
}

impl Completion {
    fn paths(&self, word: &str) -> Vec<Pair> {
        let (parent, begun) = word.rsplit_once('/').unwrap_or(("", word));
        let parent = if parent.is_empty() { "/" } else { parent };
        let shell = self.shell.borrow();
        let Some(znodes) = shell.session() else { return Vec::new() };
        let is_up = matches!(znodes.session.phase(), Phase::Connected | Phase::ConnectedReadOnly);
        let found = if is_up { znodes.children(parent, false).ok() } else { None };
        let names = found.map(|(names, _)| names).unwrap_or_default();
        let fitting = names.iter().filter(|name| name.starts_with(begun));
        fitting
            .map(|name| Pair { display: name.clone(), replacement: path::child(parent, name) })
            .collect()
    }
}

fn verbs(begun: &str) -> Vec<Pair> {
    let fitting = VERBS.iter().filter(|verb| verb.name.starts_with(begun));
    let pair = |name: &str| Pair { display: name.to_string(), replacement: format!("{name} ") };
    fitting.map(|verb| pair(verb.name)).collect()
}

fn flags(name: &str, begun: &str) -> Vec<Pair> {
    let Some(verb) = verb(name) else { return Vec::new() };
    let form = Form::of(verb.form);
    let short = form.flags.chars().map(|flag| format!("-{flag}"));
    let long = form.values.iter().map(|flag| format!("-{flag}"));
    let fitting = short.chain(long).filter(|flag| flag.starts_with(begun));
    fitting.map(|flag| Pair { display: flag.clone(), replacement: format!("{flag} ") }).collect()
}

impl Helper for Completion {}

impl Hinter for Completion {
    type Hint = String;
}

impl Highlighter for Completion {}

impl Validator for Completion {}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pairs: Vec<Pair>) -> Vec<String> {
        pairs.into_iter().map(|pair| pair.replacement).collect()
    }

    #[test]
    fn verbs_and_flags_are_completed_from_their_table() {
        assert_eq!(names(verbs("dele")), ["delete ", "deleteall "]);
        assert_eq!(names(flags("set", "-")), ["-s ", "-b ", "-v "]);
        assert_eq!(names(flags("reconfig", "-m")), ["-members "]);
        assert_eq!(names(flags("nonsense", "-")), [""; 0]);
    }
}
