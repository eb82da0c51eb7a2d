//! More sessions than one process may have open files: crowds in processes of their own, which are this
//! program again.
//!
//! The parent asks by a line, and each child answers by one, an object. *Invariants*: a child lives no longer
//! than its standard input; one that fails says why when it is next asked, and that ends the run.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockkeeper::internals::bench::histogram;
use serde::{Deserialize, Serialize};

use crate::crowd::{Crowd, Gathering, Standing};

/// Sessions of one process: what it may have open files on common systems, less those that lose their
/// connections while others come.
const PROCESS_MAX: usize = 15_000;
/// How often a child sees to what its parent asks, and the parent to how it stands.
const TURN: Duration = Duration::from_millis(5);
const POLL: Duration = Duration::from_millis(20);

/// What the parent asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    /// Only how it stands.
    Stand,
    /// To measure anew.
    Mark,
    /// To drop all connections, and have the clients come back or not.
    DropAndReturn,
    DropForGood,
    /// What has been measured since the last mark.
    Measured,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Answer {
    held: usize,
    expired: usize,
    lost: u64,
    events: u64,
    /// Of dropped connections: in how many milliseconds the first session may end.
    ends_in_ms: u64,
    /// Values and their counts.
    returns: Vec<(u64, u64)>,
    pings: Vec<(u64, u64)>,
    fault: Option<String>,
}

/// What all of them have measured.
pub struct Measured {
    pub returns: Histogram<u64>,
    pub pings: Histogram<u64>,
}

/// The parent's side.
pub struct Crowds {
    children: Vec<Guest>,
    count: usize,
}

struct Guest {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Crowds {
    /// Starts as many processes as it takes; their sessions come at once.
    pub fn start(gathering: &Gathering) -> Result<Self, String> {
        let processes = gathering.count.div_ceil(PROCESS_MAX).max(1);
        let this = std::env::current_exe().map_err(|e| format!("own path: {e}"))?;
        let mut crowds = Crowds { children: Vec::new(), count: gathering.count };
        for number in 0..processes {
            let count = (gathering.count + number) / processes;
            let addrs: Vec<String> = gathering.addrs.iter().map(SocketAddr::to_string).collect();
            let mut child = Command::new(&this)
                .arg("crowd")
                .args(["--addrs", &addrs.join(",")])
                .args(["--count", &count.to_string(), "--number", &number.to_string()])
                .args(["--room", &gathering.room, "--watched", &gathering.watched])
                .args(["--timeout", &gathering.timeout.as_secs_f64().to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|e| format!("a crowd: {e}"))?;
            let output = child.stdout.take().ok_or("a crowd has no output")?;
            let input = child.stdin.take();
            crowds.children.push(Guest { child, input, output: BufReader::new(output) });
        }
        Ok(crowds)
    }

    /// How all of them stand.
    pub fn standing(&mut self) -> Result<Standing, String> {
        let answers = self.ask(Word::Stand)?;
        Ok(Standing {
            held: answers.iter().map(|answer| answer.held).sum(),
            expired: answers.iter().map(|answer| answer.expired).sum(),
            lost: answers.iter().map(|answer| answer.lost).sum(),
            events: answers.iter().map(|answer| answer.events).sum(),
        })
    }

    /// Begins to measure anew.
    pub fn mark(&mut self) -> Result<(), String> {
        self.ask(Word::Mark).map(drop)
    }

    /// What has been measured since.
    pub fn measured(&mut self) -> Result<Measured, String> {
        let mut all = Measured { returns: histogram(), pings: histogram() };
        for answer in self.ask(Word::Measured)? {
            for (into, values) in
                [(&mut all.returns, answer.returns), (&mut all.pings, answer.pings)]
            {
                values.iter().for_each(|(value, count)| into.saturating_record_n(*value, *count));
            }
        }
        Ok(all)
    }

    /// Drops all connections at one moment; says when the first session may end.
    pub fn drop_all(&mut self, come_back: bool) -> Result<Instant, String> {
        let word = if come_back { Word::DropAndReturn } else { Word::DropForGood };
        let answers = self.ask(word)?;
        let now = Instant::now();
        let ends = answers.iter().map(|answer| answer.ends_in_ms).min().unwrap_or(0);
        Ok(now + Duration::from_millis(ends))
    }

    /// Waits until each session has a connection again or has expired; returns how many have expired.
    pub fn wait_for_all(&mut self, most: Duration) -> Result<usize, String> {
        let count = self.count;
        let last = self.wait(most, |standing| standing.held + standing.expired == count)?;
        Ok(last.expired)
    }

    /// Waits until a connection has been lost.
    pub fn wait_for_loss(&mut self, most: Duration) -> Result<(), String> {
        self.wait(most, |standing| standing.lost > 0).map(drop)
    }

    /// Waits until each session that has not expired has had so many events.
    pub fn wait_for_events(&mut self, each: u64, most: Duration) -> Result<(), String> {
        let count = self.count;
        let due = |expired: usize| each * count.saturating_sub(expired) as u64;
        self.wait(most, |standing| standing.events >= due(standing.expired)).map(drop)
    }

    fn wait(
        &mut self,
        most: Duration,
        until: impl Fn(Standing) -> bool,
    ) -> Result<Standing, String> {
        let began = Instant::now();
        loop {
            let standing = self.standing()?;
            if until(standing) {
                return Ok(standing);
            }
            if began.elapsed() > most {
                let (count, seconds) = (self.count, most.as_secs());
                return Err(format!("of {count} sessions, after {seconds} s: {standing:?}"));
            }
            thread::sleep(POLL);
        }
    }

    /// Asks all at one time.
    fn ask(&mut self, word: Word) -> Result<Vec<Answer>, String> {
        let line = serde_json::to_string(&word).expect("a word is plain data") + "\n";
        for guest in &mut self.children {
            let input = guest.input.as_mut().ok_or("a crowd has ended")?;
            input.write_all(line.as_bytes()).map_err(|e| format!("a crowd: {e}"))?;
        }
        let mut answers = Vec::new();
        for guest in &mut self.children {
            let mut line = String::new();
            guest.output.read_line(&mut line).map_err(|e| format!("a crowd: {e}"))?;
            let answer: Answer =
                serde_json::from_str(&line).map_err(|e| format!("a crowd says {line:?}: {e}"))?;
            if let Some(fault) = answer.fault {
                return Err(format!("a crowd: {fault}"));
            }
            answers.push(answer);
        }
        Ok(answers)
    }
}

impl Drop for Crowds {
    fn drop(&mut self) {
        for guest in &mut self.children {
            guest.input = None;
        }
        for guest in &mut self.children {
            // It ends by itself, because its input has ended.
            let _ = guest.child.wait();
        }
    }
}

/// The child's side: it lives until its standard input ends.
pub fn serve(gathering: Gathering) -> Result<(), String> {
    let mut crowd = Crowd::new(gathering).map_err(|e| e.to_string());
    let words = words();
    loop {
        let fault = match &mut crowd {
            Ok(crowd) => crowd.step(TURN).err().map(|e| e.to_string()),
            Err(_) => {
                thread::sleep(TURN);
                None
            }
        };
        if let Some(fault) = fault {
            crowd = Err(fault);
        }
        let word = match words.try_recv() {
            Ok(word) => word?,
            Err(TryRecvError::Empty) => continue,
            Err(TryRecvError::Disconnected) => return Ok(()),
        };
        let answer = match &mut crowd {
            Ok(crowd) => answer(crowd, word),
            Err(fault) => Answer { fault: Some(fault.clone()), ..Answer::default() },
        };
        println!("{}", serde_json::to_string(&answer).expect("an answer is plain data"));
    }
}

/// The lines of standard input.
fn words() -> Receiver<Result<Word, String>> {
    let (told, words) = channel();
    thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let word = line
                .map_err(|e| e.to_string())
                .and_then(|line| serde_json::from_str(&line).map_err(|e| format!("{line:?}: {e}")));
            if told.send(word).is_err() {
                return;
            }
        }
    });
    words
}

fn answer(crowd: &mut Crowd, word: Word) -> Answer {
    let mut answer = Answer::default();
    match word {
        Word::Stand => {}
        Word::Mark => crowd.mark(),
        Word::DropAndReturn | Word::DropForGood => {
            let ends = crowd.drop_all(word == Word::DropAndReturn);
            let left = ends.saturating_duration_since(Instant::now());
            answer.ends_in_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        }
        Word::Measured => {
            let values = |histogram: &Histogram<u64>| {
                let each = histogram.iter_recorded();
                each.map(|v| (v.value_iterated_to(), v.count_at_value())).collect()
            };
            (answer.returns, answer.pings) = (values(crowd.returns()), values(crowd.pings()));
        }
    }
    let Standing { held, expired, lost, events } = crowd.standing();
    Answer { held, expired, lost, events, ..answer }
}
