//! Whether a lock is still held: the clock that runs against the server's.
//!
//! *Owns* [`Hold`] and the task that renews it. *Invariants*: the hold is confirmed only by an
//! answer of the *leader* (`sync`, then a look at the znode), and lasts from the moment the question
//! was *sent* for nine tenths of the session timeout, while the server counts the whole timeout from
//! the moment it heard the question, at the earliest: so it ends here first, even if no server ever
//! answers again. [`Hold::Lost`] is final. Time asleep counts (`boottime.rs`).
//!
//! Chubby's jeopardy; what `ConnectionState` SUSPENDED and LOST are to Curator's users, without their
//! wait for the server.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use zookeeper_client as zk;
use zookeeper_client::{Client, SessionState};

use super::boottime::BootTime;
use super::error::{LostReason, is_transient};

/// How sure it is that the lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The server confirmed it within the last half of the session timeout.
    Held,
    /// No other client holds it, but the server is silent or the connection is lost: time to wind up.
    Jeopardy,
    /// Others may hold it from now on, or do already. Final.
    Lost(LostReason),
}

/// What is known of the hold, and until when that is good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    hold: Hold,
    /// From then on [`Hold::Jeopardy`].
    doubt: BootTime,
    /// From then on [`Hold::Lost`].
    deadline: BootTime,
}

impl Standing {
    /// `led`: when a request was sent that the leader has answered. `seen`: when the question was
    /// sent whose answer, of whichever server, showed that the lock is ours.
    pub(super) fn at_first(led: BootTime, seen: BootTime, timeout: Duration) -> Self {
        let deadline = deadline(led, timeout).max(seen.after(timeout / 2));
        Self { hold: Hold::Held, doubt: led.max(seen).after(timeout / 2), deadline }
    }

    /// Lets time do its work. Tells whether it did.
    fn look(&mut self) -> bool {
        let before = self.hold;
        match self.hold {
            Hold::Lost(_) => {}
            Hold::Held | Hold::Jeopardy if self.deadline.has_passed() => {
                self.hold = Hold::Lost(LostReason::Silence);
            }
            Hold::Held if self.doubt.has_passed() => self.hold = Hold::Jeopardy,
            Hold::Held | Hold::Jeopardy => {}
        }
        self.hold != before
    }

    fn fall(&mut self, to: Hold) -> bool {
        let looked = self.look();
        let falls = !matches!(self.hold, Hold::Lost(_)) && self.hold != to;
        if falls {
            self.hold = to;
        }
        looked || falls
    }

    fn confirm(&mut self, sent: BootTime, timeout: Duration) -> bool {
        let looked = self.look();
        if matches!(self.hold, Hold::Lost(_)) {
            return looked;
        }
        self.deadline = self.deadline.max(deadline(sent, timeout));
        self.doubt = self.doubt.max(sent.after(timeout / 2));
        let rises = self.hold == Hold::Jeopardy && !self.doubt.has_passed();
        if rises {
            self.hold = Hold::Held;
        }
        looked || rises
    }
}

fn deadline(sent: BootTime, timeout: Duration) -> BootTime {
    sent.after(timeout - timeout / MARGIN)
}

/// Shared by a guard, its watchers and the task that keeps it.
#[derive(Clone, Debug)]
pub(super) struct Shared(Arc<watch::Sender<Standing>>);

impl Shared {
    pub(super) fn new(standing: Standing) -> Self {
        Self(Arc::new(watch::Sender::new(standing)))
    }

    /// As of this moment, whether the keeper's task gets to run or not.
    pub(super) fn hold(&self) -> Hold {
        self.0.send_if_modified(Standing::look);
        self.0.borrow().hold
    }

    pub(super) fn deadline(&self) -> BootTime {
        self.0.borrow().deadline
    }

    /// When the hold changes by itself, if nothing is heard.
    fn next_change(&self) -> BootTime {
        let standing = *self.0.borrow();
        match standing.hold {
            Hold::Held => standing.doubt,
            Hold::Jeopardy | Hold::Lost(_) => standing.deadline,
        }
    }

    fn fall(&self, to: Hold) {
        self.0.send_if_modified(|standing| standing.fall(to));
    }

    fn confirm(&self, sent: BootTime, timeout: Duration) {
        self.0.send_if_modified(|standing| standing.confirm(sent, timeout));
    }

    pub(super) fn watch(&self) -> HoldWatch {
        HoldWatch { receiver: self.0.subscribe(), last: self.hold() }
    }
}

/// Tells of changes of a [`Hold`].
#[derive(Debug)]
pub struct HoldWatch {
    receiver: watch::Receiver<Standing>,
    last: Hold,
}

impl HoldWatch {
    /// Waits until it is another than was seen last. Never returns after [`Hold::Lost`], nor after
    /// the lock was released.
    pub async fn changed(&mut self) -> Hold {
        let last = self.last;
        let other = self.receiver.wait_for(|standing| standing.hold != last).await;
        match other.map(|standing| standing.hold) {
            Ok(hold) => self.last = hold,
            Err(_) => pending().await,
        }
        self.last
    }

    /// Waits for the loss. Never returns if the lock is released before.
    pub async fn lost(&mut self) -> LostReason {
        loop {
            if let Hold::Lost(reason) = self.last {
                return reason;
            }
            self.changed().await;
        }
    }
}

/// Asks the server again and again whether the lock is held.
#[derive(Debug)]
pub(super) struct Keeper {
    client: Client,
    path: String,
    shared: Shared,
}

type Beat = Pin<Box<dyn Future<Output = Result<Option<zk::Stat>, zk::Error>> + Send>>;

impl Keeper {
    pub(super) fn new(client: Client, path: String, shared: Shared) -> Self {
        Self { client, path, shared }
    }

    /// Ends with the loss.
    pub(super) async fn keep(self) {
        let timeout = self.client.session_timeout();
        let mut states = self.client.state_watcher();
        let mut next = BootTime::now();
        let mut beat: Option<(BootTime, Beat)> = None;
        self.follow(self.client.state());
        while !matches!(self.shared.hold(), Hold::Lost(_)) {
            if beat.is_none() && next.has_passed() {
                beat = Some((BootTime::now(), self.beat()));
            }
            // At the moment itself, and often enough that a wake-up from sleep is noticed in time.
            let look = (timeout / LOOKS).min(self.shared.next_change().remaining());
            let rest = if beat.is_some() { look } else { look.min(next.remaining()) };
            tokio::select! {
                answer = arrival(&mut beat) => {
                    let sent = beat.take().map_or(next, |(sent, _)| sent);
                    let goes_on = self.judge(sent, answer);
                    let pause = timeout / if goes_on { BEATS } else { LOOKS };
                    next = sent.after(pause);
                }
                state = states.changed() => {
                    self.follow(state);
                    next = BootTime::now();
                }
                () = sleep(rest) => {}
            }
        }
    }

    /// Both questions go out at once; the second is answered after the first.
    fn beat(&self) -> Beat {
        let (client, path) = (self.client.clone(), self.path.clone());
        Box::pin(async move {
            if mutant!("any-server-confirms-the-hold") {
                return client.check_stat(&path).await;
            }
            let sync = client.sync(&path);
            let look = client.check_stat(&path);
            sync.await?;
            look.await
        })
    }

    /// Whether that was an answer.
    fn judge(&self, sent: BootTime, answer: Result<Option<zk::Stat>, zk::Error>) -> bool {
        let session = self.client.session_id().0;
        match answer {
            Ok(Some(stat))
                if stat.ephemeral_owner == session
                    || mutant!("anothers-znode-confirms-the-hold") =>
            {
                let sent = match mutant!("hold-counts-from-the-answer") {
                    true => BootTime::now(),
                    false => sent,
                };
                self.shared.confirm(sent, self.client.session_timeout());
                return true;
            }
            Ok(Some(_) | None) => self.shared.fall(Hold::Lost(LostReason::Removed)),
            Err(zk::Error::SessionExpired | zk::Error::ClientClosed | zk::Error::AuthFailed) => {
                self.shared.fall(Hold::Lost(LostReason::Session));
            }
            Err(error) => {
                if !is_transient(&error) {
                    tracing::warn!(path = self.path, %error, "cannot look after a lock");
                }
                self.shared.fall(Hold::Jeopardy);
            }
        }
        false
    }

    fn follow(&self, state: SessionState) {
        match state {
            SessionState::SyncConnected | SessionState::ConnectedReadOnly => {}
            SessionState::Disconnected => self.shared.fall(Hold::Jeopardy),
            SessionState::Expired | SessionState::AuthFailed | SessionState::Closed => {
                self.shared.fall(Hold::Lost(LostReason::Session));
            }
        }
    }
}

async fn arrival(beat: &mut Option<(BootTime, Beat)>) -> Result<Option<zk::Stat>, zk::Error> {
    match beat {
        Some((_, beat)) => beat.await,
        None => pending().await,
    }
}

/// The loss comes before the session's timeout by one part in so many.
const MARGIN: u32 = 10;
/// Questions in a session timeout.
const BEATS: u32 = 6;
/// Looks at the clock in a session timeout.
const LOOKS: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(3600);

    fn ago(duration: Duration) -> BootTime {
        // The machine may have been up for less than that.
        BootTime::now().before(duration)
    }

    fn shared(sent: BootTime, timeout: Duration) -> Shared {
        Shared::new(Standing::at_first(sent, sent, timeout))
    }

    #[test]
    fn silence_is_jeopardy_and_then_loss() {
        let long = BootTime::now().after(Duration::from_secs(7200));
        assert_eq!(shared(long, TIMEOUT).hold(), Hold::Held);
        let short = Duration::from_millis(100);
        let held = shared(ago(Duration::from_millis(60)), short);
        assert_ne!(held.hold(), Hold::Held);
        let lost = shared(ago(Duration::from_millis(90)), short);
        assert_eq!(lost.hold(), Hold::Lost(LostReason::Silence));
    }

    #[test]
    fn an_answer_counts_from_when_the_question_was_sent_and_cannot_undo_a_loss() {
        let held = shared(BootTime::now(), TIMEOUT);
        held.fall(Hold::Jeopardy);
        assert_eq!(held.hold(), Hold::Jeopardy);
        let sent = BootTime::now();
        held.confirm(sent, TIMEOUT);
        assert_eq!(held.hold(), Hold::Held);
        assert_eq!(held.deadline(), sent.after(TIMEOUT - TIMEOUT / 10));
        // An answer that comes late for an older question shortens nothing.
        held.confirm(ago(Duration::from_millis(1)), TIMEOUT);
        assert_eq!(held.deadline(), sent.after(TIMEOUT - TIMEOUT / 10));
        held.fall(Hold::Lost(LostReason::Removed));
        held.confirm(BootTime::now(), TIMEOUT);
        held.fall(Hold::Jeopardy);
        assert_eq!(held.hold(), Hold::Lost(LostReason::Removed));
    }

    #[test]
    fn what_the_leader_has_not_confirmed_is_good_for_half_the_time_only() {
        let long_ago = ago(Duration::from_millis(1));
        let seen = BootTime::now().after(TIMEOUT);
        let standing = Shared::new(Standing::at_first(long_ago, seen, TIMEOUT));
        assert_eq!(standing.deadline(), seen.after(TIMEOUT / 2));
    }
}
