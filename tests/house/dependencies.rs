//! Every dependency says what it is for, and is named by what depends on it.

use std::fs;
use std::path::PathBuf;

use super::sources::{code, names_crate, root, sources};

/// Folders of the packages of the workspace, and that of the fuzz targets.
fn packages() -> Vec<PathBuf> {
    let text = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let list = text.split("members = [").nth(1).expect("the members").split(']').next();
    let members = list.expect("their list").split('"').skip(1).step_by(2);
    ["", "fuzz"].into_iter().chain(members).map(|member| root().join(member)).collect()
}

/// Dependencies of one kind in a manifest, with their lines.
fn dependencies<'a>(manifest: &'a str, kind: &str) -> Vec<(&'a str, &'a str)> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_inside = line == format!("[{kind}]");
        } else if is_inside && line.contains('=') && !line.starts_with('#') {
            found.push((line.split(['.', ' ', '=']).next().unwrap_or_default(), line));
        }
    }
    found
}

#[test]
fn every_dependency_says_what_for() {
    for package in packages() {
        let manifest = fs::read_to_string(package.join("Cargo.toml")).expect("a manifest");
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (_, line) in dependencies(&manifest, kind) {
                assert!(line.contains("# "), "{}, without a reason: {line}", package.display());
            }
        }
    }
}

/// Crates that `[dependencies]` of a package names and its own sources do not. A crate that only tests use is a
/// dev-dependency: a program that embeds a server compiles every other one.
fn unused_dependencies(manifest: &str, sources: &[String]) -> Vec<String> {
    let names = dependencies(manifest, "dependencies").into_iter().map(|(name, _)| name);
    let is_used = |name: &str| {
        let name = if name == "md-5" { "md5".to_owned() } else { name.replace('-', "_") };
        sources.iter().any(|text| text.lines().map(code).any(|line| names_crate(line, &name)))
    };
    names.filter(|name| !is_used(name)).map(str::to_owned).collect()
}

#[test]
fn every_dependency_is_named_by_the_sources_of_its_package() {
    let packages = packages();
    for package in &packages {
        let manifest = fs::read_to_string(package.join("Cargo.toml")).expect("a manifest");
        let folder = package.strip_prefix(root()).expect("below the root").to_str().expect("UTF-8");
        let is_root = folder.is_empty();
        let inner: Vec<String> = packages
            .iter()
            .filter(|other| other.starts_with(package) && *other != package)
            .map(|other| format!("{}/", other.strip_prefix(root()).expect("below").display()))
            .collect();
        let own = sources(if is_root { "src" } else { folder }).into_iter();
        let own: Vec<String> = own
            .filter(|(name, _)| !inner.iter().any(|inner| name.starts_with(inner.as_str())))
            .map(|(_, text)| text)
            .collect();
        assert_eq!(unused_dependencies(&manifest, &own), [""; 0], "{}", package.display());
    }
    let planted = "[dependencies]\nloom = \"0.7\" # x\nmd-5 = \"0.10\" # y\ntime = \"0.3\" # z\n";
    let own = ["use md5::Md5; // loom::x\nuse std::time::Duration;\nuse timeouts;".to_owned()];
    assert_eq!(unused_dependencies(planted, &own), ["loom", "time"]);
    assert!(names_crate("let x = time::now();", "time") && names_crate("use time;", "time"));
}
