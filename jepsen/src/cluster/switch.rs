//! A switch in user space: packets between servers pass through this process, which holds them up,
//! loses some, gives some twice, and lets some overtake others.
//!
//! *Owns* a TUN device in the harness's own network namespace, the rules that lead packets to it, and
//! the thread that takes them from it and gives them back. What is done is done to whole IP packets,
//! below TCP, which has to make the best of it: a stream is never reordered or broken, but stalls, and
//! sends again. *Invariants*: only links with weather are led through it; without jitter or a packet
//! that is late, packets of a link keep their order. What it did is counted as it is done.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::namespaces::{self, run};
use super::process::has_program;
use crate::random::{Random, SWITCH};

/// From one server to another.
pub type Link = (usize, usize);

/// What becomes of the packets of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// How long each takes, and by how much more or less; they do not overtake each other for that.
    pub delay: Duration,
    pub jitter: Duration,
    /// Of a hundred, so many are lost.
    pub lost: u64,
    /// So many come later than others that were sent behind them.
    pub late: u64,
    /// So many come twice.
    pub twice: u64,
    /// Bytes a second, and those that do not fit into a second of it are lost.
    pub bytes_per_s: Option<u64>,
}

/// How many packets met with what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: u64,
    pub held_up: u64,
    pub lost: u64,
    pub overtaken: u64,
    pub doubled: u64,
}

impl Weather {
    /// As if there were no switch.
    pub const FAIR: Weather = Weather {
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        lost: 0,
        late: 0,
        twice: 0,
        bytes_per_s: None,
    };

    /// The count of packets in which it must show, or it was none.
    #[must_use]
    pub fn shows_in(&self) -> &'static str {
        match self {
            Weather { lost: 1.., .. } => LOST,
            Weather { late: 1.., .. } => OVERTAKEN,
            _ => HELD_UP,
        }
    }
}

impl Tally {
    /// Those that weather shows in, by their names in the journal.
    #[must_use]
    pub fn counts(&self) -> [(&'static str, u64); 3] {
        [(HELD_UP, self.held_up), (LOST, self.lost), (OVERTAKEN, self.overtaken)]
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, held_up, lost, overtaken, doubled } = self;
        write!(
            f,
            "{passed} packets: {held_up} held up, {lost} lost, {overtaken} overtaken, {doubled} twice"
        )
    }
}

/// The switch.
#[derive(Debug)]
pub struct Switch {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    is_over: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    weather: BTreeMap<Link, Weather>,
    tally: Tally,
}

/// The names of counts in the journal.
const HELD_UP: &str = "packets-held-up";
const LOST: &str = "packets-lost";
const OVERTAKEN: &str = "packets-overtaken";
/// The device.
const DEVICE: &str = "lkt";
/// The routing table that leads to it.
const TABLE: &str = "77";
/// Packets that wait for the thread to take them.
const QUEUE: &str = "10000";
/// Makes the device, and becomes another program that has it as its standard input: nothing else
/// could be given across without a call that Rust cannot check. TUNSETIFF, IFF_TUN and IFF_NO_PI.
const MAKE: &str = "open(my $t, '+<', '/dev/net/tun') or die \"/dev/net/tun: $!\\n\"; \
    my $r = pack('a16 S x22', 'lkt', 0x1001); \
    ioctl($t, 0x400454ca, $r) or die \"TUNSETIFF: $!\\n\"; \
    open(STDIN, '+<&', $t) or die \"dup: $!\\n\"; exec { $ARGV[0] } @ARGV or die \"exec: $!\\n\";";
/// The longest packet, bytes.
const PACKET_MAX: usize = 1 << 16;
/// How much longer a packet takes that comes late.
const LATE_MIN: Duration = Duration::from_millis(5);
const LATE_MAX: Duration = Duration::from_millis(40);
/// Packets wait no longer for a narrow link.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// The thread looks so often whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// An IPv4 header, and where the addresses stand in it.
const HEADER: usize = 20;
const SOURCE: usize = 12;
const DESTINATION: usize = 16;

/// Whether this machine offers it; if not, why.
///
/// # Errors
/// It does not.
pub fn probe() -> Result<(), String> {
    if !has_program("perl") {
        return Err("there is no perl".to_owned());
    }
    run("unshare", &["--net", "--", "perl", "-e", MAKE, "true"])
}

/// What stands before the command of a harness that is to have the device as its standard input.
#[must_use]
pub fn prefix() -> [&'static str; 3] {
    ["perl", "-e", MAKE]
}

impl Switch {
    /// Whether packets go their way unhindered.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.shared.open().weather.is_empty()
    }

    /// Takes the device and begins to pass packets.
    ///
    /// # Errors
    /// The device is not there.
    pub fn new(seed: u64) -> Result<Self, String> {
        let words: [&[&str]; 2] = [
            &["link", "set", DEVICE, "up", "txqueuelen", QUEUE],
            &["route", "add", "default", "dev", DEVICE, "table", TABLE],
        ];
        words.iter().try_for_each(|words| run("ip", words))?;
        // Packets come back from elsewhere than where their senders are.
        let filters = ["all", DEVICE].map(|device| {
            let file = format!("/proc/sys/net/ipv4/conf/{device}/rp_filter");
            std::fs::write(&file, "0\n").map_err(|error| format!("{file}: {error}"))
        });
        filters.into_iter().collect::<Result<(), String>>()?;
        let fault = |error: std::io::Error| format!("{DEVICE}: {error}");
        let device = File::from(std::io::stdin().as_fd().try_clone_to_owned().map_err(fault)?);
        let flags = fcntl_getfl(&device).map_err(|error| fault(error.into()))?;
        fcntl_setfl(&device, flags | OFlags::NONBLOCK).map_err(|error| fault(error.into()))?;
        let shared: Arc<Shared> = Arc::default();
        let mut desk = Desk {
            device,
            shared: shared.clone(),
            random: Random::new(seed, SWITCH),
            held: BinaryHeap::new(),
            lines: BTreeMap::new(),
            count: 0,
        };
        let worker = thread::Builder::new().name("switch".to_owned());
        let worker = worker.spawn(move || desk.run()).map_err(fault)?;
        Ok(Self { shared, worker: Some(worker) })
    }

    /// From now on a link has this weather.
    ///
    /// # Errors
    /// Its packets cannot be led here.
    pub fn set(&mut self, link: Link, weather: Weather) -> Result<(), String> {
        match self.shared.open().weather.insert(link, weather) {
            None => rule("add", link),
            Some(_) => Ok(()),
        }
    }

    /// From now on all links are fair; what is held up still comes. What happened, if they were not.
    ///
    /// # Errors
    /// A rule cannot be removed.
    pub fn clear(&mut self) -> Result<Option<Tally>, String> {
        let mut state = self.shared.open();
        let (weather, tally) =
            (std::mem::take(&mut state.weather), std::mem::take(&mut state.tally));
        drop(state);
        weather.keys().try_for_each(|link| rule("del", *link))?;
        Ok((!weather.is_empty()).then_some(tally))
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(worker) = self.worker.take() {
            // A thread that panicked has said so.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leads the packets of a link to the device; those that come back from it go on as they would have.
fn rule(what: &str, (from, to): Link) -> Result<(), String> {
    let (device, to) = (namespaces::device(from), namespaces::address(to).to_string());
    run("ip", &["rule", what, "iif", &device, "to", &to, "lookup", TABLE])
}

/// What the thread has.
struct Desk {
    device: File,
    shared: Arc<Shared>,
    random: Random,
    /// By the time when they are due.
    held: BinaryHeap<Reverse<Held>>,
    lines: BTreeMap<Link, Line>,
    /// Packets so far.
    count: u64,
}

/// A packet on its way.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    due: Instant,
    number: u64,
    link: Link,
    packet: Vec<u8>,
}

/// What is known of a link.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    /// Those in order are due no earlier than this.
    last_due: Option<Instant>,
    /// A narrow one is busy until then.
    busy_until: Option<Instant>,
    /// The highest number that has come.
    came: u64,
}

impl Desk {
    fn run(&mut self) {
        let mut buffer = vec![0; PACKET_MAX];
        while !self.shared.is_over.load(Ordering::Relaxed) {
            let due = self.held.peek().map(|Reverse(next)| next.due);
            let wait = due.map_or(LOOK_EVERY, |due| due.saturating_duration_since(Instant::now()));
            let wait = Timespec::try_from(wait.min(LOOK_EVERY)).expect("a tenth of a second");
            // An interrupted wait is a short one.
            let _ = poll(&mut [PollFd::new(&self.device, PollFlags::IN)], Some(&wait));
            if !self.take_all(&mut buffer) {
                return;
            }
            self.give_due(Instant::now());
        }
    }

    /// Takes what has come. Whether the device is still there.
    fn take_all(&mut self, buffer: &mut [u8]) -> bool {
        loop {
            match self.device.read(buffer) {
                Ok(length) => self.take(&buffer[..length], Instant::now()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    eprintln!("the switch ends: {error}");
                    return false;
                }
            }
        }
    }

    fn take(&mut self, packet: &[u8], now: Instant) {
        // The kernel's own words about IPv6 are nobody's.
        let Some(link) = link_of(packet) else { return };
        let shared = self.shared.clone();
        let mut state = shared.open();
        let weather = state.weather.get(&link).copied();
        // What comes after the weather was cleared does not overtake what it held up.
        let fair_or_not = weather.unwrap_or(Weather::FAIR);
        let Some(due) = self.due(link, fair_or_not, packet.len(), now) else {
            state.tally.lost += 1;
            return;
        };
        state.tally.held_up += u64::from(weather.is_some() && due > now);
        let twice = weather.is_some_and(|weather| self.random.chance(weather.twice));
        state.tally.doubled += u64::from(twice);
        for _ in 0..=usize::from(twice) {
            self.count += 1;
            let (number, packet) = (self.count, packet.to_vec());
            self.held.push(Reverse(Held { due, number, link, packet }));
        }
    }

    /// When a packet is due, if it is not lost.
    fn due(
        &mut self,
        link: Link,
        weather: Weather,
        length: usize,
        now: Instant,
    ) -> Option<Instant> {
        let Weather { delay, jitter, lost, late, bytes_per_s, .. } = weather;
        if self.random.chance(lost) {
            return None;
        }
        let least = delay.saturating_sub(jitter);
        let mut due = now + self.random.between(least, delay + jitter);
        let line = self.lines.entry(link).or_default();
        if let Some(rate) = bytes_per_s {
            let takes = Duration::from_secs(1).mul_f64(length as f64 / rate.max(1) as f64);
            let sent = line.busy_until.map_or(now, |busy| busy.max(now)) + takes;
            if sent > now + WAIT_MAX {
                return None;
            }
            line.busy_until = Some(sent);
            due = due.max(sent);
        }
        if self.random.chance(late) {
            return Some(due + self.random.between(LATE_MIN, LATE_MAX));
        }
        due = line.last_due.map_or(due, |last| due.max(last));
        line.last_due = Some(due);
        Some(due)
    }

    fn give_due(&mut self, now: Instant) {
        while self.held.peek().is_some_and(|Reverse(next)| next.due <= now) {
            let Some(Reverse(next)) = self.held.pop() else { return };
            let mut state = self.shared.open();
            // What is left of weather that was cleared is told of already.
            let mut after = Tally::default();
            let is_clear = state.weather.is_empty();
            let tally = if is_clear { &mut after } else { &mut state.tally };
            // A device that takes no more loses packets as any other does.
            match self.device.write_all(&next.packet) {
                Ok(()) => tally.passed += 1,
                Err(_) => tally.lost += 1,
            }
            let line = self.lines.entry(next.link).or_default();
            tally.overtaken += u64::from(next.number < line.came);
            line.came = line.came.max(next.number);
        }
    }
}

/// Between which servers a packet is.
fn link_of(packet: &[u8]) -> Option<Link> {
    if packet.len() < HEADER || packet[0] >> 4 != 4 {
        return None;
    }
    let server = |at: usize| {
        let address: [u8; 4] = packet[at..at + 4].try_into().expect("four bytes");
        namespaces::server_at(address.into())
    };
    Some((server(SOURCE)?, server(DESTINATION)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A switch whose device is a file: what it gives is appended there.
    fn desk(weather: Weather) -> (Desk, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let shared: Arc<Shared> = Arc::default();
        shared.open().weather.insert((0, 1), weather);
        let desk = Desk {
            device: std::fs::OpenOptions::new().append(true).open(file.path()).unwrap(),
            shared,
            random: Random::new(7, SWITCH),
            held: BinaryHeap::new(),
            lines: BTreeMap::new(),
            count: 0,
        };
        (desk, file)
    }

    /// From the first server to the second one, with a number in it.
    fn packet(number: u8) -> Vec<u8> {
        let mut packet = vec![0; HEADER + 1];
        packet[0] = 0x45;
        packet[SOURCE..SOURCE + 4].copy_from_slice(&namespaces::address(0).octets());
        packet[DESTINATION..DESTINATION + 4].copy_from_slice(&namespaces::address(1).octets());
        packet[HEADER] = number;
        packet
    }

    /// Sends a hundred packets, one each millisecond, and gives them up to some time. Their numbers.
    fn pass(desk: &mut Desk, file: &tempfile::NamedTempFile, until: Duration) -> Vec<u8> {
        let begin = Instant::now();
        for number in 0..100 {
            let now = begin + MS * u32::from(number);
            desk.give_due(now);
            desk.take(&packet(number), now);
        }
        desk.give_due(begin + until);
        let bytes = std::fs::read(file.path()).unwrap();
        bytes.chunks(HEADER + 1).map(|packet| packet[HEADER]).collect()
    }

    #[test]
    fn fair_weather_changes_nothing() {
        let (mut desk, file) = desk(Weather::FAIR);
        assert_eq!(pass(&mut desk, &file, MS * 100), (0..100).collect::<Vec<u8>>());
        let passed = Tally { passed: 100, ..Tally::default() };
        assert_eq!(desk.shared.open().tally, passed);
    }

    #[test]
    fn packets_that_are_held_up_come_in_order_and_no_earlier() {
        let (mut desk, file) = desk(Weather { delay: MS * 80, jitter: MS * 40, ..Weather::FAIR });
        let came = pass(&mut desk, &file, MS * 130);
        assert!(came.len() >= 10 && came.len() <= 90, "{}", came.len());
        assert_eq!(came, (0..came.len() as u8).collect::<Vec<u8>>());
        desk.give_due(Instant::now() + MS * 500);
        let tally = desk.shared.open().tally;
        assert_eq!((tally.passed, tally.held_up, tally.overtaken), (100, 100, 0));
    }

    #[test]
    fn some_are_lost_and_are_counted() {
        let (mut desk, file) = desk(Weather { lost: 30, ..Weather::FAIR });
        let came = pass(&mut desk, &file, MS * 100).len();
        let lost = usize::try_from(desk.shared.open().tally.lost).unwrap();
        assert!(came + lost == 100 && (15..45).contains(&lost), "{lost}");
    }

    #[test]
    fn some_are_overtaken_and_some_come_twice() {
        let (mut desk, file) = desk(Weather { late: 30, twice: 10, ..Weather::FAIR });
        let came = pass(&mut desk, &file, MS * 200);
        let tally = desk.shared.open().tally;
        assert!(tally.overtaken > 10 && tally.doubled > 2, "{tally:?}");
        assert_eq!(came.len() as u64, 100 + tally.doubled);
        assert!(!came.is_sorted());
    }

    #[test]
    fn a_narrow_link_holds_up_and_then_loses_what_it_has_no_room_for() {
        let (mut desk, file) = desk(Weather { bytes_per_s: Some(1000), ..Weather::FAIR });
        // A hundred packets of 21 bytes, within a tenth of a second, take two.
        let came = pass(&mut desk, &file, MS * 1000).len();
        let tally = desk.shared.open().tally;
        assert!((40..55).contains(&came) && tally.lost > 40, "{came} {tally:?}");
    }

    #[test]
    fn what_is_not_between_servers_is_not_passed() {
        assert_eq!(link_of(&packet(1)), Some((0, 1)));
        assert_eq!(link_of(&packet(1)[..HEADER - 1]), None);
        let mut ipv6 = packet(1);
        ipv6[0] = 0x60;
        assert_eq!(link_of(&ipv6), None);
        let mut stranger = packet(1);
        stranger[SOURCE] = 127;
        assert_eq!(link_of(&stranger), None);
    }
}
