//! Walls within the product: no circles of imports, no file that is not compiled, no long function, no long file.
//!
//! `tests/house/figures [FOLDER]` prints what is measured here, of this checkout or of one that is elsewhere.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::sources::{root, sources_below};
use super::structure::{Room, Structure};

/// Lines of a function. One that is longer has steps that want names.
const FUNCTION_LINES_MAX: usize = 80;
/// Lines of a source file, comments and inline tests included. A larger file has a second noun.
const FILE_LINES_MAX: usize = 600;

/// This checkout's structure, or that of the folder that is named in the environment.
fn measured() -> Structure {
    let root = std::env::var_os("LOCKKEEPER_HOUSE").map_or_else(root, PathBuf::from);
    Structure::of(&sources_below(&root, "src"))
}

fn in_circles(rooms: &[Room]) -> Vec<(String, usize)> {
    let count = |room: &Room| room.circles().iter().map(Vec::len).sum();
    rooms.iter().map(|room| (room.name(), count(room))).filter(|(_, count)| *count > 0).collect()
}

fn files_in_circles(structure: &Structure) -> Vec<(String, usize)> {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for name in structure.circles_of_files().into_iter().flatten() {
        *found.entry(super::imports::module_of(&name).to_owned()).or_default() += 1;
    }
    found.into_iter().collect()
}

fn long(structure: &Structure) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for source in &structure.sources {
        if source.lines > FILE_LINES_MAX {
            found.push((source.name.clone(), source.lines));
        }
        let long = source.functions().into_iter().filter(|(_, lines)| *lines > FUNCTION_LINES_MAX);
        found.extend(long.map(|(name, lines)| (format!("{} {name}", source.name), lines)));
    }
    found
}

#[test]
fn children_of_a_room_import_each_other_in_no_circle() {
    let rooms = measured().rooms();
    for room in rooms.iter().filter(|room| !room.circles().is_empty()) {
        println!("{}: {:?}", room.name(), room.circles());
        for ((from, to), example) in &room.arrows {
            println!("    {from} -> {to}    {example}");
        }
    }
    assert_eq!(in_circles(&rooms), [], "children in circles");
}

#[test]
fn files_name_each_other_in_no_circle() {
    let structure = measured();
    println!("{:#?}", structure.circles_of_files());
    assert_eq!(files_in_circles(&structure), [], "files in circles");
}

#[test]
fn every_file_is_compiled() {
    assert_eq!(measured().undeclared, [""; 0], "no `mod` names them");
}

#[test]
fn functions_and_files_are_short() {
    assert_eq!(long(&measured()), [], "too long");
}

/// Places where the deciding code may name what one server is configured with. The machine is given a state anew with
/// the options of the old one; a read is judged by this server's rules; identities are proved at the server of the
/// connection; a seed and ZooKeeper's digest change no outcome. `rules` of the machine is `LegacyRules`.
const SETTINGS_READ: [(&str, &str); 14] = [
    ("src/core/replica/machine/migration/mod.rs", "let options = self.tree.options().clone();"),
    (
        "src/core/replica/machine/migration/mod.rs",
        "self.replace(Tree::fresh(self.tree.options().clone()), Sessions::default());",
    ),
    ("src/core/replica/machine/state.rs", "let file = self.tree.options().rules;"),
    ("src/core/replica/machine/state.rs", "let legacy = LegacyRules::new(tree.options().rules);"),
    (
        "src/core/replica/machine/state/records.rs",
        "let fresh = Self::fresh(self.tree.options().clone());",
    ),
    (
        "src/core/replica/machine/state/records.rs",
        "self.tree = Tree::empty(self.tree.options().clone());",
    ),
    ("src/core/tree/acl.rs", "if !options.rules.digest_auth {"),
    ("src/core/tree/acl.rs", "if options.super_digest.as_deref() == Some(identity.id.as_str()) {"),
    ("src/core/tree/foreign.rs", "let fresh = Self::fresh(self.options.clone());"),
    ("src/core/tree/mod.rs", "&self.options"),
    ("src/core/tree/mod.rs", "legacy_digest: options.legacy_digest.then_some(0),"),
    ("src/core/tree/mod.rs", "self.node_count() == Self::fresh(self.options.clone()).node_count()"),
    ("src/core/tree/mod.rs", "table: PathTable::new(options.hash_seed),"),
    ("src/core/tree/read.rs", "Asker { ids, rules: self.options.rules }"),
];

/// What else of the configuration it may name: the form of the lines that are the members' text.
const CONFIGURATION_NAMED: [(&str, &str); 2] = [
    (
        "src/core/replica/machine/members.rs",
        "let is_possible = |id: &u8| *id <= crate::config::SERVER_ID_MAX;",
    ),
    ("src/core/replica/machine/members.rs", "use crate::config::{Role, ServerSpec};"),
];

/// Lines of the deciding code that have one of these words.
fn deciding_lines<'a>(structure: &'a Structure, words: &[&str]) -> Vec<(&'a str, &'a str)> {
    let decides = ["src/core/replica/machine/", "src/core/tree/"];
    let sources = structure.sources.iter();
    let sources = sources.filter(|source| decides.iter().any(|part| source.name.starts_with(part)));
    let lines = sources
        .flat_map(|source| source.code.lines().map(|line| (source.name.as_str(), line.trim())));
    let mut found: Vec<_> =
        lines.filter(|(_, line)| words.iter().any(|word| line.contains(word))).collect();
    found.sort_unstable();
    found
}

#[test]
fn no_setting_of_one_server_decides_what_is_replicated() {
    let structure = measured();
    assert_eq!(deciding_lines(&structure, &["options.", ".options"]), SETTINGS_READ);
    assert_eq!(deciding_lines(&structure, &["config::", "Setup", "Config "]), CONFIGURATION_NAMED);
}

#[test]
fn a_planted_setting_is_found() {
    let files = [
        ("src/core/tree/mod.rs".to_owned(), "fn f(o: &Setup) {}\n// Setup, options.x\n".to_owned()),
        ("src/core/replica/setup.rs".to_owned(), "pub struct Setup;".to_owned()),
    ];
    let structure = Structure::of(&files);
    assert_eq!(
        deciding_lines(&structure, &["Setup", "options."]),
        [("src/core/tree/mod.rs", "fn f(o: &Setup) {}")]
    );
}

/// For closing notes and reviews: it asserts nothing that is not asserted above.
#[test]
fn figures() {
    let structure = measured();
    let mut modules: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    for source in &structure.sources {
        let module = super::imports::module_of(&source.name).to_owned();
        let longest = source.functions().into_iter().map(|(_, lines)| lines).max().unwrap_or(0);
        let [files, lines, function] = modules.entry(module).or_default();
        (*files, *lines, *function) =
            (*files + 1, *lines + source.code_lines(), longest.max(*function));
    }
    let rooms: BTreeMap<String, Room> =
        structure.rooms().into_iter().map(|room| (room.name(), room)).collect();
    println!(
        "{:12} {:>5} {:>6} {:>8} {:>8} {:>6} {:>9}",
        "module", "files", "lines", "longest", "children", "arrows", "in circles"
    );
    let mut all = [0, 0];
    for (module, [files, lines, function]) in &modules {
        let room = rooms.get(module);
        let children = room.map_or(0, |room| room.children.len());
        let arrows = room.map_or(0, |room| room.arrows.len());
        let circles: usize = room.map_or(0, |room| room.circles().iter().map(Vec::len).sum());
        println!(
            "{module:12} {files:5} {lines:6} {function:8} {children:8} {arrows:6} {circles:9}"
        );
        all = [all[0] + files, all[1] + lines];
    }
    println!("{:12} {:5} {:6}   lines of code without comments and tests", "all", all[0], all[1]);
    println!("rooms with circles {:?}", in_circles(&rooms.into_values().collect::<Vec<_>>()));
    println!("files in circles {:?}", files_in_circles(&structure));
    println!("too long {:?}", long(&structure));
    assert!(all[0] > 100, "these are sources of this project");
}

#[test]
fn planted_circles_strays_and_long_functions_are_found() {
    let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let files = [
        file("src/lib.rs", "mod a;"),
        file(
            "src/a/mod.rs",
            "mod b;\nmod c;\nmod d;\npub(crate) use b::Thing;\n#[cfg(test)]\nmod tests;",
        ),
        file("src/a/b.rs", "use super::{c::{self, X}, d};\npub(crate) struct Thing;"),
        file(
            "src/a/c.rs",
            "// use super::d::Y;\nfn f() { super::Thing; \"use super::d\" }\n\
             #[cfg(test)]\nmod tests {\n use super::super::d;\n}",
        ),
        file("src/a/d.rs", &format!("fn long() {{{}}}", "\n".repeat(FUNCTION_LINES_MAX))),
        file("src/a/e.rs", ""),
        file("src/a/tests.rs", "use super::d;"),
    ];
    let structure = Structure::of(&files);
    let rooms = structure.rooms();
    let room = rooms.iter().find(|room| room.name() == "a").expect("the room");
    let arrows: Vec<(&str, &str)> = room.arrows.keys().map(|(from, to)| (&**from, &**to)).collect();
    assert_eq!(arrows, [("b", "c"), ("b", "d"), ("c", "b")]);
    assert_eq!(room.circles(), [["b", "c"]]);
    assert_eq!(structure.circles_of_files(), [["src/a/b.rs", "src/a/c.rs"]]);
    assert_eq!(structure.undeclared, ["src/a/e.rs"]);
    assert_eq!(long(&structure), [("src/a/d.rs long".to_owned(), FUNCTION_LINES_MAX + 1)]);
}
