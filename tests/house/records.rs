//! Records of what the tests prove: every deliberate bug, every scenario, and that no release has a bug.

use std::fs;

use super::sources::{all_sources, root, sources};

/// Texts between `before` and the next quote.
fn quoted_after(text: &str, before: &str) -> Vec<String> {
    let behind = text.match_indices(before).map(|(at, _)| &text[at + before.len()..]);
    behind.map(|rest| rest.split('"').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn every_deliberate_bug_is_hunted_and_recorded() {
    let sites = sources("src").into_iter().filter(|(name, _)| name != "src/core/mutants.rs");
    let mut planted: Vec<String> =
        sites.flat_map(|(_, text)| quoted_after(&text, "mutant!(\"")).collect();
    planted.sort();
    planted.dedup();
    let catalogue = fs::read_to_string(root().join("tests/simulation/catalogue.rs"));
    let catalogue = catalogue.expect("the catalogue");
    let mut hunted = quoted_after(&catalogue, "    mutant(\"");
    let of_recipes = fs::read_to_string(root().join("tests/locks/recipes/mutants.rs"));
    hunted.extend(quoted_after(&of_recipes.expect("the recipes' catalogue"), "name: \""));
    let of_sasl = fs::read_to_string(root().join("tests/simulation/runs/authentication.rs"));
    hunted.extend(quoted_after(&of_sasl.expect("the catalogue of SASL"), "name: \""));
    // Those of models: the bugs stand in lists behind the models.
    let models = fs::read_to_string(root().join("tests/hand_over/models.rs")).expect("the models");
    let lists = models.split("&[\"").skip(1).filter_map(|rest| rest.split(']').next());
    hunted.extend(
        lists
            .flat_map(|list| list.split('"').step_by(2).map(str::to_owned))
            .filter(|n| !n.trim().is_empty()),
    );
    // The exploration hunts some alone.
    let explored = fs::read_to_string(root().join("tests/simulation/runs/exploration_raft.rs"));
    hunted.extend(quoted_after(&explored.expect("the scopes with Raft"), "        (\""));
    // What gets past the secret between servers.
    let attacks = fs::read_to_string(root().join("tests/simulation/attacks.rs"));
    let attacks = attacks.expect("the attacks on the secret");
    let names = quoted_after(&attacks, "    \"peer-auth-").into_iter();
    hunted.extend(names.map(|name| format!("peer-auth-{name}")));
    hunted.sort();
    // Two tests may catch one.
    hunted.dedup();
    assert_eq!(planted, hunted);
    let record = fs::read_to_string(root().join("jepsen/TRACK_RECORD.md")).expect("the record");
    let missing: Vec<_> =
        hunted.iter().filter(|name| !record.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not in jepsen/TRACK_RECORD.md: {missing:?}");
}

/// How many scenarios must have a test.
const SCENARIOS_WITH_TESTS_MIN: usize = 58;

#[test]
fn every_scenario_names_tests_and_bugs_that_exist() {
    let text = fs::read_to_string(root().join("jepsen/SCENARIOS.md")).expect("the scenarios");
    let record = fs::read_to_string(root().join("jepsen/TRACK_RECORD.md")).expect("the record");
    let code: String = all_sources().into_iter().map(|(_, text)| text).collect();
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| #"));
    let rows: Vec<Vec<&str>> = rows.map(|line| line.split('|').map(str::trim).collect()).collect();
    let mut with_tests = 0;
    for (number, row) in (1..).zip(&rows) {
        assert_eq!(row[1], format!("{number}"), "the table is in order and complete");
        let names: Vec<&str> = row[4].split('`').skip(1).step_by(2).collect();
        for name in &names {
            let is_there = match name.contains('-') {
                true => record.contains(&format!("| `{name}` |")),
                false => code.contains(&format!("fn {name}() {{")),
            };
            assert!(is_there, "scenario {number}: there is no {name}");
        }
        with_tests += usize::from(!names.is_empty());
    }
    assert!(with_tests >= SCENARIOS_WITH_TESTS_MIN, "only {with_tests} have a test");
}

#[test]
fn no_release_has_a_deliberate_bug() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let named = manifest.lines().filter(|line| code_of_toml(line).contains("mutants"));
    let only = ["mutants = [\"lockkeeper-core/mutants\"]"];
    assert_eq!(named.collect::<Vec<_>>(), only, "no other feature may bring it along");
    let core = fs::read_to_string(root().join("src/core/Cargo.toml")).expect("the core's");
    let named = core.lines().filter(|line| code_of_toml(line).contains("mutants"));
    assert_eq!(named.collect::<Vec<_>>(), ["mutants = []"], "no other feature may bring it along");
    for (name, text) in sources("src") {
        if name == "src/core/mutants.rs" {
            assert!(text.contains("not(debug_assertions)))]\ncompile_error!"), "{name}");
        } else {
            let asks = text.contains("feature = \"mutants\"");
            assert!(!asks || name == "src/cli/plant.rs", "{name} asks for the feature itself");
        }
    }
}

fn code_of_toml(line: &str) -> &str {
    line.split('#').next().unwrap_or_default()
}

/// Metrics of this project that string literals of a source name, without what a histogram adds to its name.
fn metrics_named(text: &str) -> Vec<&str> {
    let code =
        text.lines().filter(|line| !line.trim_start().starts_with("//") && line.contains('"'));
    let words =
        code.flat_map(|line| line.split(|c: char| !(c.is_alphanumeric() || "_.:".contains(c))));
    let of_ours = words.filter(|word| word.starts_with("lockkeeper_") && !word.contains("::"));
    let parts = ["_bucket", "_count", "_sum"];
    of_ours
        .map(|word| parts.iter().fold(word, |w, part| w.strip_suffix(part).unwrap_or(w)))
        .collect()
}

#[test]
fn a_metric_that_a_text_names_exists() {
    let known = fs::read_to_string(root().join("docs/METRICS.md")).expect("the document");
    let mut unknown = Vec::new();
    for (name, text) in sources("src") {
        let of_it = metrics_named(&text).into_iter().filter(|metric| !known.contains(metric));
        unknown.extend(of_it.map(|metric| format!("{name}: {metric}")));
    }
    assert_eq!(unknown, [""; 0]);
    assert_eq!(
        metrics_named("// \"lockkeeper_a\"\n\"see lockkeeper_b_sum, or lockkeeper_c\""),
        ["lockkeeper_b", "lockkeeper_c"]
    );
}
