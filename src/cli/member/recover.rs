//! `lockkeeper member recover`: a survivor of an ensemble that lost its majority for ever goes on alone.
//!
//! *Owns* the command's flags, its words and the question to the operator. The judgement is `replica::lost_majority`'s.
//! *Invariants*: nothing is changed before the operator has written the numbers of the servers that are lost for ever;
//! what may be lost is said before. *Never* starts a server.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::cli::data_flags::DataFlags;
use crate::cli::flags::OutputFlag;
use crate::cli::output::{Failure, Said, say};
use crate::cli::srvr;
use crate::config::Config;
use crate::server::StartError;
use crate::server::offline::{
    self, Holder, Recovery, Refusal, SILENT_AFTER_US, finish_recovery, term_of_zxid,
};

/// Longest wait for the ports of the others, and the pause between two looks.
const LISTENS_MAX: Duration = Duration::from_secs(20);
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// Flags of `lockkeeper member recover`.
#[derive(Debug, Args)]
pub(crate) struct RecoverFlags {
    #[command(flatten)]
    data: DataFlags,
    /// The servers that are lost for ever, in place of the question: 2,3
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    dead: Vec<u8>,
    /// A zxid that the ensemble has had: those of the new one will be higher
    #[arg(long, value_name = "ZXID", value_parser = srvr::zxid)]
    above_zxid: Option<i64>,
    #[command(flatten)]
    pub(super) output: OutputFlag,
}

/// Asks, and goes on.
pub(super) fn run(flags: &RecoverFlags) -> Result<Said, Failure> {
    let config = flags.data.config().map_err(Failure::usage)?;
    if let Some(aside) = finish_recovery(&config).map_err(refused)? {
        let text = format!(
            "a recovery that was cut off is complete now\n{}start it: {}\n",
            kept(&aside),
            flags.data.start_command()
        );
        return Ok(Said { text, json: json!({ "done": "finished", "set_aside": aside }) });
    }
    let recovery = Recovery::begin(&config).map_err(refused)?;
    say("asks the other servers");
    listen(&recovery)?;
    let dead = match flags.dead[..] {
        [] => ask(&recovery)?,
        _ => flags.dead.iter().copied().collect(),
    };
    let (known, now_us) = recovery.known().map_err(refused)?;
    known.judge(&dead, now_us).map_err(|refusal| Failure::refused(why(&refusal, flags)))?;
    let answered = srvr::ask(&config);
    let terms = answered.iter().map(|server| server.zxid).chain(flags.above_zxid);
    let terms: Vec<u64> = terms.map(term_of_zxid).collect();
    let done = recovery.carry_out(&config, &dead, terms.into_iter()).map_err(refused)?;
    Ok(said(flags, &config, &dead, &done))
}

/// Waits until the others have had their time, and their ports have answered.
fn listen(recovery: &Recovery) -> Result<(), Failure> {
    let begun = Instant::now();
    std::thread::sleep(Duration::from_micros(SILENT_AFTER_US));
    loop {
        let (known, now_us) = recovery.known().map_err(refused)?;
        let is_asked = known.holders(now_us).values().all(|holder| *holder != Holder::Unasked);
        if is_asked || begun.elapsed() > LISTENS_MAX {
            return Ok(());
        }
        std::thread::sleep(LOOK_PAUSE);
    }
}

fn said(
    flags: &RecoverFlags,
    config: &Config,
    dead: &BTreeSet<u8>,
    done: &offline::Recovered,
) -> Said {
    let offline::Recovered { aside, above_zxid, before, sessions, znodes, not_audited } = done;
    if let Some(why) = not_audited {
        say(&format!("lockkeeper: the audit log has no line of this: {why}"));
    }
    let text = format!(
        "server {} goes on alone, with {znodes} znodes and {sessions} sessions; its zxids are above {above_zxid:#x}\n{}\
         start it before any other: {}\nthen start new servers for {}, with empty data directories: they join. What \
         is left of \
         the data of a server that was declared dead belongs to the ensemble that is no more; a server that still \
         has it is \
         refused, and joins with --rejoin\n",
        config.server_id.unwrap_or(0),
        kept(aside),
        flags.data.start_command(),
        list(dead),
    );
    let json = json!({
        "done": "recovered",
        "znodes": znodes,
        "sessions": sessions,
        "above_zxid": format!("{above_zxid:#x}"),
        "before": format!("{before:032x}"),
        "declared_dead": dead,
        "set_aside": aside,
    });
    Said { text, json }
}

fn kept(aside: &[PathBuf]) -> String {
    aside.iter().map(|dir| format!("what was there is in {}\n", dir.display())).collect()
}

fn refused(error: StartError) -> Failure {
    Failure::refused(error.to_string())
}

/// Tells what is known, and has the operator write which servers are lost for ever.
fn ask(recovery: &Recovery) -> Result<BTreeSet<u8>, Failure> {
    let (known, now_us) = recovery.known().map_err(refused)?;
    let state = recovery.state();
    let mut text = String::new();
    let (index, term) = state.last;
    writeln!(
        text,
        "this server's log ends at entry {index} of term {term}, zxid {:#x}; {} of its entries may or may not have \
         been \
         acknowledged, and are kept\nwhat the others acknowledged without this server is lost: every write that only \
         they \
         had, locks and sessions that were opened or ended since",
        state.machine.last_zxid(),
        state.uncertain,
    )
    .expect("a String takes it");
    for (id, holder) in known.holders(now_us) {
        let holder = match holder {
            Holder::Silent => "not to be reached".to_owned(),
            Holder::Unasked => "its ports have not answered yet".to_owned(),
            Holder::Mute => "a port of it is open and says nothing: it may run".to_owned(),
            Holder::Tells(position) => {
                format!("its log ends at entry {} of term {}", position.index, position.term)
            }
            Holder::Runs => "runs".to_owned(),
            Holder::Refuses(words) => format!("runs and refuses this server: {words}"),
            Holder::Serves(mode) => format!("serves clients (Mode: {mode})"),
            Holder::Elsewhere(elsewhere) => format!("has {elsewhere}"),
            Holder::HasNothing => "has nothing of this ensemble".to_owned(),
        };
        writeln!(text, "server {id}: {holder}").expect("a String takes it");
    }
    text += "A server that is declared dead and still has its data must never run again with it: with a majority of \
             such servers the old ensemble would serve beside the new one.\n";
    let mut out = io::stderr();
    // With standard error closed the question is not read, and there will be no answer.
    let _ = out.write_all(text.as_bytes());
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "no terminal to ask at: --dead N,... names the servers that are lost for ever",
        ));
    }
    let _ = out.write_all(
        b"Write the numbers of the servers that are lost for ever (such as 2,3), or nothing to \
     give up: ",
    );
    let _ = out.flush();
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    let words = line.split([',', ' ']).map(str::trim).filter(|word| !word.is_empty());
    let dead: Result<BTreeSet<u8>, _> = words.map(str::parse).collect();
    match (read, dead) {
        (Ok(_), Ok(dead)) if !dead.is_empty() => Ok(dead),
        (Ok(_), Ok(_)) => Err(Failure::refused("given up: nothing was changed")),
        _ => Err(Failure::usage("expected numbers such as 2,3: nothing was changed")),
    }
}

fn why(refusal: &Refusal, flags: &RecoverFlags) -> String {
    match refusal {
        Refusal::Serves(id, mode) => format!(
            "server {id} serves clients (Mode: {mode}): the ensemble has its majority, and this server joins it with \
             {} \
             --rejoin, or as it is",
            flags.data.start_command()
        ),
        Refusal::Runs(id) => format!(
            "server {id} runs and has the log, too: stop it, and run this command there as well, so that both tell \
             how far \
             their logs go. If it is a new server, which came empty, empty its data directory again"
        ),
        Refusal::Refuses(id, words) => format!(
            "server {id} is not dead: it runs and refuses this server ({words}). Stop it, or mend what it refuses, so \
             that it says what it has"
        ),
        Refusal::Elsewhere(id, elsewhere) => format!(
            "server {id} has {elsewhere}, which it serves or is to serve: this server joins it: {} --rejoin. If that \
             is the wrong one, stop server {id} and empty its data directory",
            flags.data.start_command()
        ),
        Refusal::HasMore(id, position) => format!(
            "server {id} goes on: its log ends at entry {} of term {}. When it serves, this one joins it: {} --rejoin",
            position.index,
            position.term,
            flags.data.start_command()
        ),
        Refusal::Unasked(id) => {
            format!("the ports of server {id} have not answered yet: run this command again")
        }
        Refusal::Mute(id) => format!(
            "server {id} may run: a port of it takes connections and says nothing. Stop it, and have it say what it \
             has, or run this command again once no port of it is open. If something else answers at its address, \
             change its line in this server's file"
        ),
        Refusal::Silent(ids) => format!(
            "not heard and not declared dead: {}. Run this command on each that is left, at the same time, or \
             declare those \
             dead that are lost for ever",
            list(&ids.iter().copied().collect())
        ),
        Refusal::Alive(ids) => {
            format!("declared dead, but there: {}", list(&ids.iter().copied().collect()))
        }
        Refusal::Unknown(ids) => format!(
            "declared dead, but no servers of this ensemble: {}",
            list(&ids.iter().copied().collect())
        ),
    }
}

fn list(ids: &BTreeSet<u8>) -> String {
    ids.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
}
