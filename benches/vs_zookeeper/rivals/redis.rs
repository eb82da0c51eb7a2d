//! A lock in Redis, by its documented recipes.
//!
//! One server: `SET key token NX PX ttl`, and for the release a script that deletes the key only if it
//! still has the token. Redlock, several servers: the same at all of them at once; whoever has a
//! majority before the time is up holds the lock, whoever cannot get one any more releases everywhere
//! and tries again after a random delay. A client goes on as soon as a majority has answered, also
//! when it releases. There is no queue: whoever tries at the right moment is next.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::driver::{Course, Step};
use super::resp::{self, Answer};
use super::rng::Rng;
use super::socket::Socket;

/// How long a lock lasts unless it is released.
const TTL: Duration = Duration::from_secs(30);
/// What clocks may differ by, beside a hundredth of the time to live.
const DRIFT: Duration = Duration::from_millis(2);
/// The delay before the next try: this, and up to so much more by chance.
const DELAY_US: u64 = 1000;
const DELAY_RANDOM_US: u64 = 4000;
/// Deletes the key if it has the token.
const RELEASE: &str = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) \
                       else return 0 end";

/// Asks a server whether it serves, and makes the script known to it.
pub fn prepare(addr: SocketAddr, patience: Duration) -> Result<String, String> {
    let failed = |e: std::io::Error| format!("{addr}: {e}");
    let mut stream = TcpStream::connect_timeout(&addr, patience).map_err(failed)?;
    stream.set_read_timeout(Some(patience)).map_err(failed)?;
    let mut request = Vec::new();
    resp::command(&[b"SCRIPT", b"LOAD", RELEASE.as_bytes()], &mut request);
    stream.write_all(&request).map_err(failed)?;
    let (mut received, mut piece) = (Vec::new(), [0; 1024]);
    loop {
        match stream.read(&mut piece).map_err(failed)? {
            0 => return Err(format!("{addr}: the connection is gone")),
            count => received.extend_from_slice(&piece[..count]),
        }
        match resp::answer(&received)? {
            Some((Answer::Text(hash), _)) => return Ok(String::from_utf8_lossy(&hash).into_owned()),
            Some((other, _)) => return Err(format!("{addr}: SCRIPT LOAD: {other:?}")),
            None => {}
        }
    }
}

/// What an answer is to, of which attempt.
#[derive(Clone, Copy, PartialEq)]
enum Asked {
    Take(u64),
    Release(u64),
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Taking,
    Held,
    Releasing,
    /// Until the next try, or the next cycle.
    Resting,
}

/// One client.
pub struct Client {
    sockets: Vec<Socket>,
    key: Vec<u8>,
    script: Vec<u8>,
    number: usize,
    attempt: u64,
    began: Instant,
    state: State,
    asked: Vec<VecDeque<Asked>>,
    /// Which servers have given the lock in this attempt.
    given: Vec<bool>,
    refused: usize,
    /// Answers to the release.
    released: usize,
    rng: Rng,
}

impl Client {
    /// Client `number`, of a lock at these servers, whose script is known by `script`.
    pub fn open(
        servers: &[SocketAddr],
        number: usize,
        key: &str,
        script: &str,
    ) -> Result<Self, String> {
        let sockets: Vec<Socket> =
            servers.iter().map(|&addr| Socket::open(addr)).collect::<Result<_, _>>()?;
        Ok(Client {
            asked: vec![VecDeque::new(); sockets.len()],
            given: vec![false; sockets.len()],
            sockets,
            key: key.as_bytes().to_vec(),
            script: script.as_bytes().to_vec(),
            number,
            attempt: 0,
            began: Instant::now(),
            state: State::Resting,
            refused: 0,
            released: 0,
            rng: Rng::new(0, number as u64),
        })
    }

    fn majority(&self) -> usize {
        self.sockets.len() / 2 + 1
    }

    fn token(&self) -> Vec<u8> {
        format!("{:08x}{:016x}", self.number, self.attempt).into_bytes()
    }

    /// Asks all servers to delete the key if it is this attempt's.
    fn send_release(&mut self) {
        let token = self.token();
        self.released = 0;
        for (socket, asked) in self.sockets.iter_mut().zip(&mut self.asked) {
            let words = [&b"EVALSHA"[..], &self.script, b"1", &self.key, &token];
            resp::command(&words, &mut socket.unsent);
            asked.push_back(Asked::Release(self.attempt));
        }
    }

    /// Gives up this attempt; returns when the next one is due.
    fn give_up(&mut self, now: Instant) -> Step {
        // Of one server nothing can have been given.
        if self.sockets.len() > 1 {
            self.send_release();
        }
        self.state = State::Resting;
        // The same delays in every run.
        let delay = DELAY_US + self.rng.below(DELAY_RANDOM_US);
        Step::Again(now + Duration::from_micros(delay))
    }

    fn taken(&mut self, at: usize, answer: &Answer, now: Instant) -> Result<Step, String> {
        match answer {
            Answer::Word(_) => self.given[at] = true,
            Answer::Nothing => self.refused += 1,
            other => return Err(format!("SET: {other:?}")),
        }
        if self.given.iter().filter(|given| **given).count() >= self.majority() {
            if now.duration_since(self.began) + TTL / 100 + DRIFT >= TTL {
                return Ok(self.give_up(now));
            }
            self.state = State::Held;
            return Ok(Step::Granted(None));
        }
        if self.sockets.len() - self.refused < self.majority() {
            return Ok(self.give_up(now));
        }
        Ok(Step::Within)
    }
}

impl Course for Client {
    fn sockets(&mut self) -> &mut [Socket] {
        &mut self.sockets
    }

    fn take(&mut self, now: Instant) {
        self.attempt += 1;
        self.began = now;
        self.state = State::Taking;
        self.refused = 0;
        self.given.fill(false);
        let token = self.token();
        let ttl = TTL.as_millis().to_string();
        for (socket, asked) in self.sockets.iter_mut().zip(&mut self.asked) {
            let words = [&b"SET"[..], &self.key, &token, b"NX", b"PX", ttl.as_bytes()];
            resp::command(&words, &mut socket.unsent);
            asked.push_back(Asked::Take(self.attempt));
        }
    }

    fn release(&mut self) {
        self.state = State::Releasing;
        self.send_release();
    }

    fn next(&mut self, at: usize, now: Instant) -> Result<Option<Step>, String> {
        let Some((answer, used)) = resp::answer(&self.sockets[at].received)? else {
            return Ok(None);
        };
        self.sockets[at].received.drain(..used);
        let asked = self.asked[at].pop_front().ok_or("an answer that nothing was asked for")?;
        if let Answer::Refusal(text) = answer {
            return Err(text);
        }
        if asked == Asked::Take(self.attempt) && self.state == State::Taking {
            return self.taken(at, &answer, now).map(Some);
        }
        if asked == Asked::Release(self.attempt) && self.state == State::Releasing {
            if self.given[at] && answer != Answer::Number(1) {
                return Err(format!("the lock was lost while it was held: {answer:?}"));
            }
            self.released += 1;
            if self.released >= self.majority() {
                self.state = State::Resting;
                return Ok(Some(Step::Released));
            }
        }
        // Or a server that was not needed any more.
        Ok(Some(Step::Within))
    }
}
