//! Mistakes of operators: what is done, what is said, and what the process ends with.
//!
//! One row is one mistake (`server.rs`, `client.rs`). *Invariant*: what is said names the cause, and what to do about
//! it. A mistake with which a server can go on is said all the same. What a machine cannot make (another user, a full
//! disk) is left out by name.

#[allow(dead_code, reason = "made for the tests of TLS, which use all of it")]
mod client;
mod place;
mod server;

use place::{End, Place, Row};

/// As many mistakes as this list is to have at least.
const ROWS_MIN: usize = 40;

#[test]
fn every_mistake_is_answered_with_its_cause_and_its_cure() {
    let rows: Vec<&Row> = server::ROWS.iter().chain(&client::ROWS).collect();
    assert!(rows.len() >= ROWS_MIN, "{} rows", rows.len());
    let place = Place::new();
    let mut faults = Vec::new();
    for Row { mistake, make, cause, cure, end } in rows {
        let Some(command) = make(&place) else {
            testkit::left_out::left_out(mistake, "this machine cannot make it");
            continue;
        };
        let (said, code) = place.run(command, &[cause, cure], *end);
        let is_said = said.contains(cause) && said.contains(cure);
        let is_end = match end {
            End::With(expected) => code == Some(*expected),
            End::GoesOn => code.is_none(),
        };
        if !is_said || !is_end {
            faults.push(format!(
                "{mistake}: exit code {code:?}, expected {end:?}\n  {cause} / {cure}\n{said}"
            ));
        }
    }
    assert!(faults.is_empty(), "{} mistakes:\n{}", faults.len(), faults.join("\n"));
}
