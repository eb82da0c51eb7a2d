//! The structure of the sources: which file names which, which children of a room import each other, and the sizes.
//!
//! A *room* is a module that has others inside; its *children* are those, and its own file (its *door*) if that names
//! any. An *arrow* is an import from one child to another, by `use` or by a path in the code; what a door hands on is
//! resolved to the file that defines it. A *circle* is a set of children, or of files, that import each other directly
//! or around a corner.

use std::collections::{BTreeMap, BTreeSet};

use super::lexer::{functions, paths, plain, without_tests};

/// Roots of the crates whose modules form the tree, with the module that the root is.
const ROOTS: [(&str, &[&str]); 6] = [
    ("src/core/lib.rs", &[]),
    ("src/lib.rs", &[]),
    ("src/main.rs", &["main"]),
    ("src/storage/lib.rs", &["storage"]),
    ("src/peer_auth/lib.rs", &["peer_auth"]),
    ("src/supervision/lib.rs", &["supervision"]),
];
/// Names of those crates, with the module that each is.
const CRATES: [(&str, &[&str]); 4] = [
    ("lockkeeper_core", &[]),
    ("lockkeeper_storage", &["storage"]),
    ("lockkeeper_peer_auth", &["peer_auth"]),
    ("lockkeeper_supervision", &["supervision"]),
];

/// A module's path from the root of the tree: `["server", "peer"]`.
pub(super) type Module = Vec<String>;

/// A source file of the product, without its tests.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) module: Module,
    /// Its code with comments and the contents of literals blanked, line by line as in the file.
    pub(super) code: String,
    /// Lines of the whole file.
    pub(super) lines: usize,
}

/// All sources of the product, and who imports whom.
#[derive(Debug, Default)]
pub(super) struct Structure {
    pub(super) sources: Vec<Source>,
    /// For each pair of files: a line of the first that names the second.
    pub(super) imports: BTreeMap<(usize, usize), usize>,
    /// Files that no `mod` declares.
    pub(super) undeclared: Vec<String>,
}

/// A room: its children, and the arrows between them with an example (`file:line`) each.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) module: Module,
    pub(super) children: BTreeSet<String>,
    pub(super) arrows: BTreeMap<(String, String), String>,
}

fn owned(parts: &[&str]) -> Module {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

/// The module of a source file.
fn module_of(name: &str) -> Module {
    if let Some((_, module)) = ROOTS.iter().find(|(root, _)| *root == name) {
        return owned(module);
    }
    let below = name.strip_prefix("src/core/").or(name.strip_prefix("src/")).unwrap_or(name);
    let below = below.trim_end_matches(".rs").trim_end_matches("/mod");
    below.split('/').map(str::to_owned).collect()
}

impl Structure {
    /// Of sources with their names, as [`super::sources::sources`] has them.
    pub(super) fn of(files: &[(String, String)]) -> Self {
        let files: Vec<_> = files.iter().map(|(name, text)| (name, text, plain(text))).collect();
        let mut declared = BTreeSet::new();
        let mut tests = BTreeSet::new();
        for (name, _, code) in &files {
            let module = module_of(name);
            let (_, of_tests) = without_tests(code);
            for (child, is_test) in declarations(code, &of_tests) {
                let child: Module = module.iter().cloned().chain([child]).collect();
                if is_test {
                    tests.insert(child.clone());
                }
                declared.insert(child);
            }
        }
        let is_root = |name: &str| ROOTS.iter().any(|(root, _)| *root == name);
        let mut structure = Self::default();
        for (name, text, code) in files {
            let module = module_of(name);
            if !is_root(name) && !declared.contains(&module) {
                structure.undeclared.push(name.clone());
            }
            if (1..=module.len()).any(|end| tests.contains(&module[..end])) {
                continue;
            }
            let (code, _) = without_tests(&code);
            let lines = text.lines().count();
            structure.sources.push(Source { name: name.clone(), module, code, lines });
        }
        structure.find_imports();
        structure
    }

    fn find_imports(&mut self) {
        let mut files: BTreeMap<&[String], usize> = BTreeMap::new();
        for (at, source) in self.sources.iter().enumerate() {
            // Two crates have their roots at the top: nothing is defined in either.
            files.insert(&source.module, at);
        }
        let named: Vec<Vec<Named>> =
            self.sources.iter().map(|source| names_in(source, &files)).collect();
        // What a file hands on or imports: a name, and the path that it stands for.
        let mut handed: BTreeMap<(usize, &str), &[String]> = BTreeMap::new();
        for (at, names) in named.iter().enumerate() {
            for name in names.iter().filter(|name| name.is_use) {
                handed.insert((at, &name.as_what), &name.path);
            }
        }
        let mut imports = BTreeMap::new();
        for (at, names) in named.iter().enumerate() {
            for name in names.iter().filter(|name| !name.is_handed_on) {
                if let Some(to) = resolve(&name.path, &files, &handed)
                    && to != at
                {
                    imports.entry((at, to)).or_insert(name.line);
                }
            }
        }
        self.imports = imports;
    }

    /// Every module that has others inside, the root included.
    pub(super) fn rooms(&self) -> Vec<Room> {
        let mut rooms: BTreeMap<Module, Room> = BTreeMap::new();
        for source in &self.sources {
            for end in 0..source.module.len() {
                let module = source.module[..end].to_vec();
                let room = rooms.entry(module.clone()).or_insert_with(|| Room {
                    module,
                    children: BTreeSet::new(),
                    arrows: BTreeMap::new(),
                });
                room.children.insert(source.module[end].clone());
            }
        }
        for ((from, to), line) in &self.imports {
            let (from, to) = (&self.sources[*from], &self.sources[*to]);
            let common = from.module.iter().zip(&to.module).take_while(|(a, b)| a == b).count();
            let child = |module: &Module| {
                module.get(common).cloned().unwrap_or_else(|| "mod.rs".to_owned())
            };
            let room = rooms.get_mut(&from.module[..common]).expect("a room of both");
            let (first, second) = (child(&from.module), child(&to.module));
            room.children.extend([first.clone(), second.clone()]);
            room.arrows.entry((first, second)).or_insert_with(|| format!("{}:{line}", from.name));
        }
        rooms.into_values().collect()
    }

    /// Circles of files.
    pub(super) fn circles_of_files(&self) -> Vec<Vec<String>> {
        let arrows: Vec<(&str, &str)> = self
            .imports
            .keys()
            .map(|(from, to)| (&*self.sources[*from].name, &*self.sources[*to].name))
            .collect();
        circles(&arrows)
    }
}

impl Room {
    pub(super) fn circles(&self) -> Vec<Vec<String>> {
        let arrows: Vec<(&str, &str)> =
            self.arrows.keys().map(|(from, to)| (&**from, &**to)).collect();
        circles(&arrows)
    }

    pub(super) fn name(&self) -> String {
        match self.module.is_empty() {
            true => "src".to_owned(),
            false => self.module.join("/"),
        }
    }
}

impl Source {
    /// Lines of code: neither blank nor of comments or tests.
    pub(super) fn code_lines(&self) -> usize {
        self.code.lines().filter(|line| !line.trim().is_empty()).count()
    }

    /// Each function with its lines, from its name to its last brace.
    pub(super) fn functions(&self) -> Vec<(String, usize)> {
        functions(&self.code)
    }
}

/// A path that a file names.
#[derive(Debug)]
struct Named {
    line: usize,
    path: Module,
    /// The name that it has in the file, if it is of a `use`.
    as_what: String,
    is_use: bool,
    /// By a `pub use`, whatever the `pub` is restricted to: the file itself need not use it.
    is_handed_on: bool,
}

/// The modules that a file declares, and whether they are tests. `of_tests` is the code of tests alone.
fn declarations(code: &str, of_tests: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut offset = 0;
    for line in code.split_inclusive('\n') {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [.., "mod", name] = words[..]
            && let Some(name) = name.strip_suffix(';')
        {
            let at = offset + line.find("mod ").expect("the word");
            found.push((name.to_owned(), of_tests[at..].starts_with("mod")));
        }
        offset += line.len();
    }
    found
}

/// All paths of this project's own modules that a file names, from the root.
fn names_in(source: &Source, files: &BTreeMap<&[String], usize>) -> Vec<Named> {
    let mut found = Vec::new();
    for path in paths(&source.code) {
        let first = path.parts[0].as_str();
        let base: Module = match first {
            // The crate's root is a module for crates that stand for one.
            "crate" => {
                let root = source.module.first().map(String::as_str);
                match CRATES.iter().find(|(_, module)| module.first().copied() == root) {
                    Some((_, module)) if root.is_some() => owned(module),
                    _ => Vec::new(),
                }
            }
            "self" => source.module.clone(),
            "super" => source.module[..source.module.len().saturating_sub(1)].to_vec(),
            _ => match CRATES.iter().find(|(name, _)| *name == first) {
                Some((_, module)) => owned(module),
                None => {
                    let child: Module =
                        source.module.iter().cloned().chain([first.to_owned()]).collect();
                    if !files.contains_key(&child[..]) {
                        continue;
                    }
                    child
                }
            },
        };
        let mut full = base;
        for part in &path.parts[1..] {
            match part.as_str() {
                "super" => drop(full.pop()),
                "self" | "*" => {}
                _ => full.push(part.clone()),
            }
        }
        found.push(Named {
            line: path.line,
            path: full,
            as_what: path.as_what,
            is_use: path.is_use,
            is_handed_on: path.is_public_use,
        });
    }
    found
}

/// The file that defines what a path names.
fn resolve(
    path: &[String],
    files: &BTreeMap<&[String], usize>,
    handed: &BTreeMap<(usize, &str), &[String]>,
) -> Option<usize> {
    let mut path = path.to_vec();
    // A name may be handed on several times.
    for _ in 0..8 {
        let depth = (0..=path.len()).rev().find(|end| files.contains_key(&path[..*end]))?;
        let file = files[&path[..depth]];
        let Some(next) = path.get(depth) else { return Some(file) };
        let Some(target) = handed.get(&(file, next.as_str())) else {
            // Nothing is defined in the roots of crates.
            return (depth > 0).then_some(file);
        };
        path = target.iter().chain(&path[depth + 1..]).cloned().collect();
    }
    None
}

/// Sets of more than one that reach each other.
fn circles(arrows: &[(&str, &str)]) -> Vec<Vec<String>> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in arrows {
        next.entry(from).or_default().push(to);
    }
    let reach = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            for to in next.get(at).into_iter().flatten() {
                if seen.insert(*to) {
                    open.push(to);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|from| (*from, reach(from))).collect();
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    for (at, seen) in &reached {
        let mutual = |to: &&&str| reached.get(**to).is_some_and(|back| back.contains(at));
        let circle: Vec<String> = seen.iter().filter(mutual).map(|to| (*to).to_owned()).collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}
