//! Images on their way from one server to another.
//!
//! *Owns* what the two ends of an image's own connection do: read a file, and write and verify another
//! one. *Invariants*: an image is given to the replica only when it is complete, verified and
//! durable under its temporary name; the sender is told of its fate, or finds out by itself.

use lockkeeper_core::replica::{Input, Machine, Mark, Restore, SendImage};
use lockkeeper_storage::{ImageError, Images};

use super::conn::Violation;
use super::server::Arrival;
use super::world::{Event, World};

/// How long an image takes at most.
const TAKES_US_MAX: u64 = 400_000;
/// How long its sender waits for an answer.
const PATIENCE_US: u64 = 2_000_000;

/// How often a process may send the same image to the same other one, when all arrive: a message may
/// get lost behind it.
const AGAIN_MAX: usize = 5;

/// One image.
#[derive(Debug)]
pub struct Transfer {
    from: usize,
    to: usize,
    /// The processes at both ends.
    incarnations: (u64, u64),
    image: SendImage,
    mark: Mark,
    records: Vec<(Vec<u8>, Vec<u8>)>,
    /// Another one took its place.
    is_void: bool,
    /// It arrived whole.
    is_received: bool,
}

impl World {
    /// A server wants another one to have an image.
    pub(super) fn send_image(&mut self, from: usize, image: SendImage) {
        let to = usize::from(lockkeeper_core::replica::peer::server_of(image.to)) - 1;
        let name = from + 1;
        self.trace
            .note(self.now_us, format_args!("{name} sends image {} to {}", image.index, to + 1));
        for older in &mut self.transfers {
            older.is_void |= (older.from, older.to) == (from, to);
        }
        let Some(server) = &self.hosts[from].server else { return };
        let read = read(&server.images, image.index);
        let incarnations = (self.hosts[from].incarnation, self.hosts[to].incarnation);
        let Ok((mark, records)) = read else {
            // It was removed, because there is a newer one.
            return self.image_sent(from, image.to, false, 1);
        };
        let receiver = self.hosts[to].server.as_ref();
        if receiver.is_some_and(|server| server.identity.raft_id != image.to) {
            // It is not the server that it was.
            return self.image_sent(from, image.to, false, PATIENCE_US);
        }
        let (is_void, is_received) = (false, false);
        self.transfers.push(Transfer {
            from,
            to,
            incarnations,
            image,
            mark,
            records,
            is_void,
            is_received,
        });
        let in_us = 1 + self.hosts[from].rng.below(TAKES_US_MAX);
        self.at(in_us, Event::Image(self.transfers.len() - 1));
    }

    fn image_sent(&mut self, from: usize, to: u64, ok: bool, in_us: u64) {
        let arrival = Arrival::Input(Input::ImageSent { to, ok });
        self.at_host(from, in_us, super::host::HostEvent::Link(arrival));
    }

    /// Whoever has an image needs what comes after it, not the same one again.
    fn is_of_use(&self, number: usize) -> Result<(), Violation> {
        let key = |image: &Transfer| (image.from, image.to, image.incarnations, image.image.index);
        let this = key(&self.transfers[number]);
        let all = self.transfers.iter().filter(|image| image.is_received);
        let times = all.filter(|image| key(image) == this).count();
        if times > AGAIN_MAX {
            let (from, to, _, index) = this;
            let (from, to) = (from + 1, to + 1);
            return Err(format!("{from} has sent image {index} to {to} {times} times"));
        }
        Ok(())
    }

    /// The last byte of an image arrives.
    pub(super) fn image_arrives(&mut self, number: usize) -> Result<(), Violation> {
        let transfer = &mut self.transfers[number];
        let (from, to) = (transfer.from, transfer.to);
        let records = std::mem::take(&mut transfer.records);
        let (of_sender, of_receiver) = transfer.incarnations;
        if transfer.is_void || self.hosts[from].incarnation != of_sender {
            return Ok(());
        }
        let raft_id = transfer.image.to;
        if self.hosts[to].incarnation != of_receiver || self.is_blocked(from, to) {
            self.image_sent(from, raft_id, false, PATIENCE_US);
            return Ok(());
        }
        if self.hosts[to].paused_until_us > 0 {
            self.transfers[number].records = records;
            let in_us = self.hosts[to].paused_until_us.saturating_sub(self.now_us) + 1;
            self.at(in_us, Event::Image(number));
            return Ok(());
        }
        let transfer = &self.transfers[number];
        let Some(server) = &mut self.hosts[to].server else {
            self.image_sent(from, raft_id, false, PATIENCE_US);
            return Ok(());
        };
        let running = server.replica.machine();
        let fresh = Machine::fresh(running.tree().options().clone());
        let mut machine = fresh.knowing(running.known_version());
        let received = receive(&server.images, &transfer.mark, &records, &mut machine);
        let is_received = received.is_ok();
        let (mark, message) = (transfer.mark.clone(), transfer.image.message.clone());
        self.trace.note(self.now_us, format_args!("{} has image {mark:?}: {received:?}", to + 1));
        if is_received {
            let machine = Box::new(machine);
            server.arrive(Arrival::Input(Input::ImageReceived { message, mark, machine }));
            self.coverage.images_sent += 1;
            self.drive_soon(to);
            self.transfers[number].is_received = true;
            self.is_of_use(number)?;
        }
        let in_us = 1 + self.config.peer_latency_us_max;
        self.image_sent(from, raft_id, is_received, in_us);
        self.died_at_an_operation(to)
    }
}

type Records = Vec<(Vec<u8>, Vec<u8>)>;

fn read(images: &Images, index: u64) -> Result<(Mark, Records), ImageError> {
    let reader = images.open(index)?;
    let mark = reader.mark().clone();
    let mut records = Vec::new();
    reader.read(&mut |key, value| {
        records.push((key.to_vec(), value.to_vec()));
        Ok(())
    })?;
    Ok((mark, records))
}

fn receive(
    images: &Images,
    mark: &Mark,
    records: &Records,
    machine: &mut Machine,
) -> Result<(), String> {
    let failed = |error: ImageError| error.to_string();
    let mut writer = images.receive(mark).map_err(failed)?;
    machine.restart();
    for (key, value) in records {
        writer.record(key, value).map_err(failed)?;
        machine.record(key, value)?;
    }
    machine.finish(mark)?;
    writer.finish().map(|_| ()).map_err(failed)
}
