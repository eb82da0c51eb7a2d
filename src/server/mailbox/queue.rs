//! What the driver is sent, and the time that passes meanwhile.
//!
//! *Owns* the receiving end. *Invariant*: two turns are at most [`crate::replica::TICK_MS`] apart, as long
//! as their receiver is not busy for longer. *Never* wakes anybody more often than that: an idle
//! server costs next to nothing.

use tokio::sync::mpsc;

use super::message::Message;
use super::ticks::Ticks;
use crate::server::limits::DRIVER_BATCH_MAX;

/// Messages that the driver may have taken and not looked at, in turns.
const BATCHES_MAX: usize = 4;

/// The driver's queue.
#[derive(Debug)]
pub(in crate::server) struct Queue {
    messages: mpsc::Receiver<Message>,
    ticks: Ticks,
}

impl Queue {
    /// The receiving end of these messages. In a runtime only.
    #[must_use]
    pub(in crate::server) fn new(messages: mpsc::Receiver<Message>) -> Self {
        Self { messages, ticks: Ticks::new() }
    }

    /// Adds what has arrived by now to `batch`, until that has a few turns' messages.
    pub(in crate::server) fn take_all(&mut self, batch: &mut Vec<Message>) {
        while batch.len() < BATCHES_MAX * DRIVER_BATCH_MAX
            && let Ok(message) = self.messages.try_recv()
        {
            batch.push(message);
        }
    }

    /// Waits for messages or for time to pass, and adds what has arrived to `batch`. False: no sender is
    /// left who could send anything.
    pub(in crate::server) async fn turn(&mut self, batch: &mut Vec<Message>) -> bool {
        tokio::select! {
            biased;
            taken = self.messages.recv_many(batch, DRIVER_BATCH_MAX) => taken > 0,
            () = self.ticks.next() => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::replica::TICK_MS;

    /// A queue whose time a test moves.
    fn queue(messages: mpsc::Receiver<Message>) -> Queue {
        Queue { messages, ticks: Ticks::of_runtime() }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_turn_takes_a_tick() {
        let (_sender, messages) = mpsc::channel(1);
        let mut queue = queue(messages);
        let mut batch = Vec::new();
        assert!(queue.turn(&mut batch).await, "the first one begins at once");
        let start = Instant::now();
        for _ in 0..4 {
            assert!(queue.turn(&mut batch).await);
        }
        assert!(batch.is_empty());
        assert_eq!(start.elapsed(), Duration::from_millis(4 * TICK_MS));
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_ends_a_turn_and_puts_no_tick_off() {
        let (sender, messages) = mpsc::channel(1);
        let mut queue = queue(messages);
        let mut batch = Vec::new();
        queue.turn(&mut batch).await;
        let start = Instant::now();
        tokio::time::advance(Duration::from_millis(TICK_MS / 2)).await;
        sender.try_send(Message::Wake).expect("room for one");
        assert!(queue.turn(&mut batch).await);
        assert_eq!(batch.len(), 1);
        assert!(queue.turn(&mut batch).await);
        assert_eq!((batch.len(), start.elapsed()), (1, Duration::from_millis(TICK_MS)));
        drop(sender);
        assert!(!queue.turn(&mut batch).await, "no sender is left");
    }
}
