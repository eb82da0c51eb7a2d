//! `lockkeeper dev`: three servers in one process, to see how an ensemble takes the loss of one.
//!
//! *Owns* the command's flags, its first screen, the words that it takes from standard input and the
//! lines that say who leads. *Never* touches a server but through [`Ensemble`]: what can be done
//! here can be done in a test.

use std::fmt::Write as _;
use std::io::{self, BufRead as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};

use super::exit::EXIT_REFUSED;
use super::output::{failed, print};
use super::{LogFormat, log_output, open_files};
use crate::Ensemble;

/// Flags of `lockkeeper dev`.
#[derive(Debug, Args)]
pub(crate) struct DevFlags {
    /// How many servers
    #[arg(long, value_name = "N", default_value = "3",
          value_parser = clap::value_parser!(u8).range(2..=9))]
    servers: u8,
    /// Where clients connect to server 1; the others have the ports that follow. 0 takes any that
    /// are free
    #[arg(long, value_name = "PORT", default_value = "2181")]
    port: u16,
    /// Keep the data in this directory, and go on from what is there; without it, nothing is kept
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Set any key of every server's configuration
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
    /// How log lines look; RUST_LOG says which there are, by default errors only
    #[arg(long = "log", value_name = "FORMAT", default_value = "pretty")]
    log: LogFormat,
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("this is not KEY=VALUE")?;
    Ok((key.trim().to_string(), value.trim().to_string()))
}

/// Runs the command.
pub(super) fn run(flags: &DevFlags) -> ExitCode {
    log_output::start_with(flags.log, "error");
    open_files::raise();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(EXIT_REFUSED, &format!("no threads for sockets: {error}")),
    };
    match runtime.block_on(serve(flags)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(EXIT_REFUSED, &error),
    }
}

async fn serve(flags: &DevFlags) -> Result<(), String> {
    let no_signals = |error: io::Error| format!("cannot wait for signals: {error}");
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let starting = start(flags);
    let mut ensemble = tokio::select! {
        started = starting => started?,
        // Nothing was acknowledged yet.
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    print(&first_screen(&ensemble, flags));
    let mut words = spawn_reader();
    let mut watched = Watched::new(&ensemble);
    let mut ticks = interval(LOOK_INTERVAL);
    let ended = loop {
        tokio::select! {
            _ = terminate.recv() => break Ok(()),
            _ = interrupt.recv() => break Ok(()),
            Some(line) = words.recv() => match line.parse() {
                Ok(Word::Nothing) => {}
                Ok(Word::Quit) => break Ok(()),
                Ok(word) => obey(&mut ensemble, word).await,
                Err(reason) => print(&format!("{reason}\n")),
            },
            _ = ticks.tick() => {
                watched.look(&ensemble);
                if let Some(error) = dead(&ensemble).await {
                    break Err(error);
                }
            }
        }
    };
    // The one that has ended says why; the others are stopped all the same.
    let stopped = ensemble.shutdown().await.map_err(|error| error.to_string());
    ended.and(stopped)
}

async fn start(flags: &DevFlags) -> Result<Ensemble, String> {
    let mut builder = Ensemble::builder(flags.servers)
        .set("admin.enableServer", "true")
        .set("admin.serverPort", "0");
    if flags.port != 0 {
        builder = builder.client_port(flags.port);
    }
    if let Some(directory) = &flags.data_dir {
        builder = builder.data_dir(directory);
    }
    for (key, value) in &flags.set {
        builder = builder.set(key, value);
    }
    builder.start().await.map_err(|error| match error {
        error @ crate::StartError::Address { .. } => {
            format!("{error}; `--port 0` takes any that are free")
        }
        error => error.to_string(),
    })
}

/// A server that could not go on, by its own account.
async fn dead(ensemble: &Ensemble) -> Option<String> {
    for (id, server) in ensemble.servers() {
        if let Ok(ended) = timeout(Duration::ZERO, server.wait()).await {
            let why = ended.map_or_else(|error| error.to_string(), |()| "stopped".to_string());
            return Some(format!("server {id} has ended: {why}"));
        }
    }
    None
}

/// What can be said on standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Nothing,
    Help,
    Status,
    Kill(Which),
    Stop(Which),
    Start(u8),
    Cut(Which),
    Heal,
    Quit,
}

/// A server, by its number or by what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Leader,
    Server(u8),
}

impl FromStr for Word {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is not a number"));
        let which = |text: &str| match text {
            "leader" => Ok(Which::Leader),
            text => number(text).map(Which::Server),
        };
        Ok(match *words.as_slice() {
            [] => Self::Nothing,
            ["help"] => Self::Help,
            ["status"] => Self::Status,
            ["kill", server] => Self::Kill(which(server)?),
            ["stop", server] => Self::Stop(which(server)?),
            ["start", server] => Self::Start(number(server)?),
            ["cut", server] => Self::Cut(which(server)?),
            ["heal"] => Self::Heal,
            ["quit" | "exit"] => Self::Quit,
            _ => return Err(format!("`{}` is not understood. {HELP}", line.trim())),
        })
    }
}

async fn obey(ensemble: &mut Ensemble, word: Word) {
    let said = match word {
        Word::Nothing | Word::Quit => Ok(String::new()),
        Word::Help => Ok(format!("{HELP}\n")),
        Word::Status => Ok(table(ensemble)),
        Word::Kill(which) => end(ensemble, which, true).await,
        Word::Stop(which) => end(ensemble, which, false).await,
        Word::Start(id) => restart(ensemble, id).await,
        Word::Cut(which) => found(ensemble, which).map(|id| {
            ensemble.partition(&[id]);
            format!("server {id} is cut off from the others; `heal` joins them again\n")
        }),
        Word::Heal => {
            ensemble.heal();
            Ok("all servers reach each other\n".to_string())
        }
    };
    print(&said.unwrap_or_else(|reason| format!("{reason}\n")));
}

async fn end(ensemble: &mut Ensemble, which: Which, at_once: bool) -> Result<String, String> {
    let id = found(ensemble, which)?;
    if ensemble.server(id).is_none() {
        return Err(format!("server {id} does not run"));
    }
    let (ended, how) = match at_once {
        true => (ensemble.kill(id).await, "killed"),
        false => (ensemble.stop(id).await, "stopped"),
    };
    ended.map_err(|error| format!("server {id} had ended: {error}"))?;
    Ok(format!("server {id} is {how}; `start {id}` brings it back\n"))
}

async fn restart(ensemble: &mut Ensemble, id: u8) -> Result<String, String> {
    found(ensemble, Which::Server(id))?;
    if ensemble.server(id).is_some() {
        return Err(format!("server {id} runs"));
    }
    ensemble.restart(id).await.map_err(|error| format!("server {id}: {error}"))?;
    Ok(format!("server {id} runs again\n"))
}

fn found(ensemble: &Ensemble, which: Which) -> Result<u8, String> {
    match which {
        Which::Leader => ensemble.leader().ok_or_else(|| "no server leads".to_string()),
        Which::Server(id) if ensemble.data_dir(id).is_some() => Ok(id),
        Which::Server(id) => Err(format!("there is no server {id}")),
    }
}

/// Says who leads, whenever that changes.
struct Watched {
    leader: Option<u8>,
    lost: Instant,
}

impl Watched {
    fn new(ensemble: &Ensemble) -> Self {
        Self { leader: ensemble.leader(), lost: Instant::now() }
    }

    fn look(&mut self, ensemble: &Ensemble) {
        let leader = ensemble.leader();
        match (self.leader, leader) {
            (Some(_), None) => self.lost = Instant::now(),
            (None, Some(new)) => {
                let gap = self.lost.elapsed().as_millis();
                print(&format!("server {new} leads, after {gap} ms without a leader\n"));
            }
            (Some(old), Some(new)) if old != new => print(&format!("server {new} leads\n")),
            (Some(_), Some(_)) | (None, None) => {}
        }
        self.leader = leader;
    }
}

fn first_screen(ensemble: &Ensemble, flags: &DevFlags) -> String {
    let data = match &flags.data_dir {
        Some(directory) => directory.display().to_string(),
        None => "in a temporary directory: nothing is kept".to_string(),
    };
    format!(
        "Lockkeeper {}: {} servers in one process, for trying\n\
         data     {data}\n\
         connect  {}\n\
         {}\
         {HELP}\n",
        env!("CARGO_PKG_VERSION"),
        flags.servers,
        ensemble.connect_string(),
        table(ensemble),
    )
}

/// A line for each server.
fn table(ensemble: &Ensemble) -> String {
    let mut table = String::new();
    let addresses = ensemble.connect_string();
    for (id, address) in (1..).zip(addresses.split(',')) {
        let state = match ensemble.server(id) {
            None => "down".to_string(),
            Some(server) => {
                let status = server.status();
                let admin = server.admin_url().unwrap_or_default();
                let (mode, zxid) = (status.mode.name(), status.zxid);
                format!("{mode:9} zxid {zxid:#x}, {} clients  {admin}", status.connections)
            }
        };
        writeln!(table, "server {id} {address}  {state}").expect("a String takes everything");
    }
    table
}

/// Lines of standard input; nothing more when it is closed.
fn spawn_reader() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    // Not waited for at the end: it may be in the middle of a read.
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

const HELP: &str = "Say: status, kill N, stop N, start N, cut N, heal, quit; N may be `leader`";

/// Time between two looks at who leads.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_or_refused_with_the_list_of_them() {
        assert_eq!("kill leader".parse(), Ok(Word::Kill(Which::Leader)));
        assert_eq!(" cut  2 ".parse(), Ok(Word::Cut(Which::Server(2))));
        assert_eq!("".parse(), Ok(Word::Nothing));
        assert_eq!("start leader".parse::<Word>(), Err("`leader` is not a number".to_string()));
        assert_eq!("kill 300".parse::<Word>(), Err("`300` is not a number".to_string()));
        assert!("pause 2".parse::<Word>().unwrap_err().contains(HELP));
    }
}
