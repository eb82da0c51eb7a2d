//! Says at the end of `cargo test` what the run left out because this machine lacks something, and what only the gate
//! runs. It asserts nothing and takes no time.

use testkit::left_out;

/// Checks that the gate alone runs. CONTRIBUTING.md has the commands and how long they take.
const ELSEWHERE: &str = "\
The gate (.ci/run) also runs: longer simulations, deliberate bugs, other projects' clients, three servers under \
faults, a live migration, the console, the packages. CONTRIBUTING.md has the commands.";

fn main() {
    // Programs that list tests read what is printed.
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    let file = left_out::file();
    let lines = match std::fs::read_to_string(&file) {
        Ok(lines) => lines,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => panic!("{}: {error}", file.display()),
    };
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    match lines.len() {
        0 => println!("\nThis run left nothing out."),
        count => println!("\nThis run left out {count}:\n{}", lines.join("\n")),
    }
    println!("{ELSEWHERE}\n");
    if std::env::var_os("LOCKKEEPER_LEFT_OUT").is_none() {
        left_out::remove_files_of_ended_runs(&file);
    }
}
