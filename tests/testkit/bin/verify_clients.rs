//! The examples in other languages, verified as those of the recipes are (`tests/locks/examples`). The argument is a
//! file with a line of JSON for each program, which `tests/clients/examples` writes:
//! `{"name": "go", "command": ["/x/lock"], "environment": {"K": "V"}, "watches": 0}`.
//!
//! Each of them plays alone, four at a time; then one of each, with the example `mutex`, on one path.

use std::path::PathBuf;
use std::process::ExitCode;

use testkit::stage::{Exit, Program, Promise, Stage};

fn main() -> ExitCode {
    let file = std::env::args().nth(1).expect("usage: verify_clients FILE");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let programs: Vec<(String, Program)> = text.lines().map(program).collect();
    let this = std::env::current_exe().expect("this program runs");
    let mutex = Program {
        command: vec![this.with_file_name("examples").join("mutex")],
        ..Program::default()
    };
    let mut failed = 0;
    for (name, program) in &programs {
        failed += u32::from(!is_true(name, vec![program.clone(); 4]));
    }
    let names: Vec<&str> = programs.iter().map(|(name, _)| name.as_str()).collect();
    let mixed = format!("{} and rust in one queue", names.join(", "));
    // Twice, because who is behind whom matters.
    let all: Vec<Program> = programs.iter().map(|(_, program)| program.clone()).collect();
    let reverse: Vec<Program> = all.iter().rev().cloned().collect();
    failed += u32::from(!is_true(&mixed, [vec![mutex], all, reverse].concat()));
    println!("examples: {} passed, {failed} failed", programs.len() as u32 + 1 - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn program(line: &str) -> (String, Program) {
    let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_string();
    let command = line["command"].as_array().expect("a command").iter();
    let command = command.map(|word| PathBuf::from(text(word))).collect();
    let environment = line["environment"].as_object().expect("an environment").iter();
    let environment = environment.map(|(key, value)| (key.clone(), text(value))).collect();
    let watches = line["watches"].as_u64().expect("a number");
    (text(&line["name"]), Program { command, environment, watches, ..Program::default() })
}

/// Has them play, the second killed while it holds the lock, and says whether all was true.
fn is_true(name: &str, cast: Vec<Program>) -> bool {
    let play = async move || {
        let mut stage = Stage::new("/locks/demo").await;
        stage.play(&cast, &[Exit::Release, Exit::Kill], &Promise::FAIR).await;
        stage.close(Promise::FAIR.permits).await;
    };
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let play = std::thread::spawn(move || runtime().expect("a runtime").block_on(play()));
    // What was wrong, a panic has said.
    let passed = play.join().is_ok();
    println!("{} {name}", if passed { "PASS" } else { "FAIL" });
    passed
}
