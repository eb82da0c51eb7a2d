//! ZOOKEEPER: the sockets of a live migration: the link with ZooKeeper's leader, and looks at ZooKeeper's ports.
//!
//! *Owns* the task of the link and those of the looks, and who ordered a cutover. *Invariants*: there is one link at a
//! time, and what an earlier one still says is not taken for what the present one says; a cutover reaches the replica
//! only behind a look that found every port closed. *Never* knows what the bytes mean.

mod access;
mod link;
mod look;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

pub(in crate::server) use access::Access;
use link::{send, tell};
use look::{CONNECT_HELD_MAX, CONNECT_MAX, is_refused, look};

use crate::replica::{Input, LinkInput, MigrateOrder, Replica, Report, ZooKeeperWork};
use crate::server::clock::Periodic;
use crate::server::mailbox::{Message, ZooKeeperEvent};
use crate::supervision::{Task, TaskSet};

/// Time between two looks whether ZooKeeper is stopped.
const STOPPED_INTERVAL: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub(super) struct ZooKeeper {
    driver: mpsc::Sender<Message>,
    access: Arc<Access>,
    tasks: TaskSet<()>,
    link: Option<Link>,
    /// Number of the present link.
    number: u64,
    room: watch::Sender<bool>,
    /// AdminServers that the operator has named for the cutover.
    admins: Vec<String>,
    orders: HashMap<u64, oneshot::Sender<Report>>,
    looked: Periodic,
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
            room: watch::Sender::new(true),
            admins: Vec::new(),
            orders: HashMap::new(),
            looked: Periodic::default(),
        }
    }

    /// Does what the replica wants.
    pub(super) fn act(&mut self, work: ZooKeeperWork, replica: &Replica) {
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
            let (driver, number, room) = (self.driver.clone(), self.number, self.room.subscribe());
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
            let (ports, admins) = (replica.zookeeper_clients(), self.admins.clone());
            let driver = self.driver.clone();
            self.tasks.spawn(Task::ZooKeeper, async move {
                let closed = look(&ports, &admins, CONNECT_HELD_MAX).await;
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
            ZooKeeperEvent::Looked { token, closed: Ok(()) } => {
                Some(Input::Migrate { token, order: MigrateOrder::CutOver })
            }
            ZooKeeperEvent::Looked { token, closed: Err(why) } => {
                let words = format!("nothing was changed: {why}");
                self.answered(token, Report::Migrated(Err(words)));
                None
            }
            ZooKeeperEvent::LookedAgain { attempt, closed } => {
                Some(Input::ZooKeeperClosed { attempt, closed })
            }
            ZooKeeperEvent::Stopped => Some(Input::Migrate { token: 0, order: MigrateOrder::Done }),
        }
    }

    /// An operator wants something. `Some`: it is for the replica, with this number.
    pub(super) fn order(
        &mut self,
        order: MigrateOrder,
        admins: Vec<String>,
        (token, answer): (u64, oneshot::Sender<Report>),
        replica: &Replica,
    ) -> Option<Input> {
        self.orders.insert(token, answer);
        if order != MigrateOrder::CutOver {
            return Some(Input::Migrate { token, order });
        }
        let ports = replica.zookeeper_clients();
        self.admins = admins;
        let (driver, admins) = (self.driver.clone(), self.admins.clone());
        self.tasks.spawn(Task::ZooKeeper, async move {
            let closed = look(&ports, &admins, CONNECT_MAX).await;
            send(&driver, ZooKeeperEvent::Looked { token, closed }).await;
        });
        None
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
        let has_room = replica.takes_from_zookeeper();
        self.room.send_if_modified(|known| std::mem::replace(known, has_room) != has_room);
        if replica.watches_zookeeper() && self.looked.is_due(STOPPED_INTERVAL, Instant::now()) {
            let (voters, driver) = (replica.zookeeper_voters(), self.driver.clone());
            self.tasks.spawn(Task::ZooKeeper, async move {
                let mut stopped = 0;
                for ports in &voters {
                    let mut is_open = false;
                    // One that does not answer may be behind a firewall.
                    for port in ports {
                        is_open |= !is_refused(port).await;
                    }
                    stopped += usize::from(!is_open);
                }
                if stopped > voters.len() / 2 {
                    send(&driver, ZooKeeperEvent::Stopped).await;
                }
            });
        }
    }
}
