//! ZOOKEEPER: the sockets of a live migration: the link with ZooKeeper's leader, and looks at ZooKeeper's ports.
//!
//! *Owns* the task of the link and those of the looks, and who ordered a cutover. *Invariants*: there is one link at a
//! time, and what an earlier one still says is not taken for what the present one says; a cutover reaches the replica
//! only behind a look that found every port closed, and the end only behind one that found a majority stopped.
//! *Never* knows what the bytes mean.

mod access;
mod link;
mod look;

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;

pub(in crate::server) use access::Access;
use link::{send, tell};
use look::{look, look_at_ports, look_for_stopped, look_while_held};

use crate::admin::{ZooKeeperPort, ZooKeeperWords};
use crate::replica::inspect::PeerStatus;
use crate::replica::{Input, LinkInput, MigrateOrder, Replica, Report, Status, ZooKeeperWork};
use crate::server::mailbox::{Looked, Message, ZooKeeperEvent};
use crate::supervision::{Task, TaskSet};

/// How often the link may read between two turns of the driver: half a megabyte, which a turn decodes in milliseconds.
const READS_PER_TURN: usize = 8;

/// See the module.
#[derive(Debug)]
pub(super) struct ZooKeeper {
    driver: mpsc::Sender<Message>,
    access: Arc<Access>,
    tasks: TaskSet<()>,
    link: Option<Link>,
    /// Number of the present link.
    number: u64,
    /// How often the link may read before the next turn of the driver.
    room: Arc<Semaphore>,
    /// Ports that are looked at again before the entry of the cutover.
    looked: Arc<Looked>,
    orders: HashMap<u64, oneshot::Sender<Report>>,
}

#[derive(Debug)]
struct Link {
    task: AbortHandle,
    bytes: mpsc::UnboundedSender<Vec<u8>>,
}

impl ZooKeeper {
    /// Without a link.
    pub(super) fn new(driver: mpsc::Sender<Message>, access: Access) -> Self {
        Self {
            driver,
            access: Arc::new(access),
            tasks: TaskSet::default(),
            link: None,
            number: 0,
            room: Arc::new(Semaphore::new(READS_PER_TURN)),
            looked: Arc::default(),
            orders: HashMap::new(),
        }
    }

    /// Does what the replica wants.
    pub(super) fn act(&mut self, work: ZooKeeperWork) {
        for words in &work.news {
            tracing::info!("migration: {words}");
        }
        for words in &work.alarms {
            tracing::error!("migration: {words}");
        }
        if work.close {
            self.close();
        }
        if let Some(wanted) = work.connect {
            self.close();
            self.number += 1;
            let (bytes, to_send) = mpsc::unbounded_channel();
            let (driver, number, room) = (self.driver.clone(), self.number, Arc::clone(&self.room));
            let access = Arc::clone(&self.access);
            let task = self.tasks.spawn(Task::ZooKeeper, async move {
                let why = link::run(&wanted, &access, to_send, room, (&driver, number)).await;
                tell(&driver, number, LinkInput::Down { why }).await;
            });
            self.link = Some(Link { task, bytes });
        }
        if !work.bytes.is_empty()
            && let Some(link) = &self.link
        {
            // A task that has ended has said so.
            let _ = link.bytes.send(work.bytes);
        }
        if let Some(attempt) = work.look {
            let (looked, driver) = (Arc::clone(&self.looked), self.driver.clone());
            self.tasks.spawn(Task::ZooKeeper, async move {
                let closed = look_while_held(&looked).await;
                send(&driver, ZooKeeperEvent::LookedAgain { attempt, closed }).await;
            });
        }
    }

    fn close(&mut self) {
        if let Some(link) = self.link.take() {
            link.task.abort();
        }
        self.number += 1;
    }

    /// Takes what a task says. `Some`: it is for the replica.
    pub(super) fn take(&mut self, event: ZooKeeperEvent) -> Option<Input> {
        while self.tasks.try_join_next().is_some() {}
        match event {
            ZooKeeperEvent::Link { number, input } if number == self.number => {
                if matches!(input, LinkInput::Down { .. }) {
                    self.link = None;
                }
                Some(Input::ZooKeeper(input))
            }
            ZooKeeperEvent::Link { .. } => None,
            ZooKeeperEvent::Looked { order, token, found: Ok(looked) } => {
                self.looked = Arc::new(looked);
                Some(Input::Migrate { token, order })
            }
            ZooKeeperEvent::Looked { token, found: Err(why), .. } => {
                let words = format!("nothing was changed: {why}");
                self.answered(token, Report::Migrated(Err(words)));
                None
            }
            ZooKeeperEvent::LookedAgain { attempt, closed } => {
                Some(Input::ZooKeeperClosed { attempt, closed })
            }
        }
    }

    /// An operator wants something, and says that of ZooKeeper's machines. `Some`: it is for the replica, with this
    /// number.
    pub(super) fn order(
        &mut self,
        order: MigrateOrder,
        words: ZooKeeperWords,
        (token, answer): (u64, oneshot::Sender<Report>),
        replica: &Replica,
    ) -> Option<Input> {
        self.orders.insert(token, answer);
        let driver = self.driver.clone();
        match order {
            MigrateOrder::CutOver => {
                if let Some(why) = missing(&replica.status(), &words) {
                    let words = format!("nothing was changed: {why}");
                    self.answered(token, Report::Migrated(Err(words)));
                    return None;
                }
                let hosts = replica.zookeeper_hosts();
                self.tasks.spawn(Task::ZooKeeper, async move {
                    let found = look(&hosts, &words).await;
                    send(&driver, ZooKeeperEvent::Looked { order, token, found }).await;
                });
            }
            MigrateOrder::Done => {
                let (voters, needed) = replica.zookeeper_voters();
                self.tasks.spawn(Task::ZooKeeper, async move {
                    let found = look_for_stopped((&voters, needed), &words).await;
                    let found = found.map(|()| Looked::default());
                    send(&driver, ZooKeeperEvent::Looked { order, token, found }).await;
                });
            }
            MigrateOrder::Follow { .. } | MigrateOrder::Abort => {
                return Some(Input::Migrate { token, order });
            }
        }
        None
    }

    /// Looks at ports of ZooKeeper's machines.
    pub(super) fn look_at_ports(
        &mut self,
        ports: Vec<String>,
        answer: oneshot::Sender<Vec<ZooKeeperPort>>,
    ) {
        self.tasks.spawn(Task::ZooKeeper, async move {
            // Who asked may have given up.
            let _ = answer.send(look_at_ports(ports).await);
        });
    }

    /// The replica has answered. `Some`: it was not asked by [`ZooKeeper::order`].
    pub(super) fn answered(&mut self, token: u64, report: Report) -> Option<Report> {
        let Some(answer) = self.orders.remove(&token) else { return Some(report) };
        // Who asked may have given up.
        let _ = answer.send(report);
        None
    }

    /// The end of a turn of the driver.
    pub(super) fn turned(&mut self, replica: &Replica) {
        if replica.takes_from_zookeeper() {
            let left = self.room.available_permits();
            self.room.add_permits(READS_PER_TURN.saturating_sub(left));
        }
    }
}

/// That servers of this ensemble are away, of which the operator says nothing; `None`, if there are none, or where
/// another one leads.
fn missing(status: &Status, words: &ZooKeeperWords) -> Option<String> {
    status.leading_ms?;
    let is_missing = |peer: &&PeerStatus| !peer.is_connected && !words.down.contains(&peer.server);
    let away: Vec<String> =
        status.peers.iter().filter(is_missing).map(|peer| peer.server.to_string()).collect();
    let away = away.join(",");
    (!away.is_empty()).then(|| {
        format!(
            "of this ensemble's own servers these are not connected: {away}. Start them, or cut over without them by \
             --with-down {away}"
        )
    })
}
