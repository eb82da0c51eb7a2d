//! A server that shows fixed figures, for tests of what is made from them.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{
    BackupStream, Certificates, ClientAddress, Counters, Counts, DiskFigures, Facts, LastBackup,
    LastImage, LeaderChange, LinkCounters, Measured, NoBackup, Pending, Quantity, ResponseSizes,
    SnapshotStream, Source, Tally, ZooKeeperPort, ZooKeeperWords,
};
use crate::backup::Selection;
use crate::locks::{Local, Scope, Snapshot};
use crate::replica::MigrateOrder;
use crate::replica::inspect::{
    ConnectionReport, Inspect, Latency, MigrationFigures, MigrationLink, Mode, PeerStatus,
    ProposalSizes, Report, SessionReport, Standings, Status, WatchReport, ZnodeReport,
};

/// Everything can be changed before it is asked.
pub(super) struct Fake {
    pub facts: Facts,
    pub status: Status,
    pub counters: Counters,
    pub connections: Vec<ConnectionReport>,
    pub sessions: Vec<SessionReport>,
    pub ephemerals: Vec<(i64, Vec<String>)>,
    pub watches: WatchReport,
    pub digests: Vec<(i64, u64)>,
    pub membership: String,
    pub locks: Snapshot,
    pub znode: Option<ZnodeReport>,
    pub leaders: Vec<LeaderChange>,
    /// What the leader says of who keeps up.
    pub leader_says: Option<Standings>,
    /// What the other servers answer.
    pub others: Vec<(u64, Option<Local>)>,
    /// Words that only this machine may send.
    pub loopback_only: Vec<&'static str>,
    /// Answers no question any more.
    pub stopping: bool,
    /// Can be changed while it is served: overrides `status.serving`.
    pub paused: AtomicBool,
    /// How long its driver has been busy.
    pub stalled: Option<Duration>,
    /// Why it is about to end.
    pub failure: Option<String>,
    /// Why it is not ready; can be changed while it is served.
    pub conditions: Mutex<Vec<String>>,
    /// What was asked, and `counters` for a reset of those.
    pub asked: Mutex<Vec<String>>,
}

/// A session id as ZooKeeper makes them.
pub(super) const SESSION: i64 = 0x0100_0018_f535_0000;

/// Three participants and an observer.
pub(super) const MEMBERSHIP: &str = "\
server.1=zk1:2888:3888:participant;0.0.0.0:2181
server.2=[::2]:2888:3888:participant;0.0.0.0:2181
server.3=zk3:2888:3888:participant
server.4=zk4:2888:3888:observer
version=100000000";

impl Fake {
    /// A standalone server with two connections, three sessions and some watches.
    pub(super) fn standalone() -> Fake {
        Fake {
            znode: None,
            leaders: Vec::new(),
            facts: facts(),
            status: status(),
            counters: counters(),
            connections: connections(),
            sessions: sessions(),
            ephemerals: vec![
                (SESSION, vec!["/lock/a".to_string(), "/lock/b".to_string()]),
                (SESSION + 1, vec!["/pl1".to_string()]),
            ],
            watches: WatchReport {
                connections: 2,
                paths: 2,
                total: 3,
                by_session: vec![
                    (SESSION, vec!["/a".to_string(), "/b".to_string()]),
                    (SESSION + 1, vec!["/a".to_string()]),
                ],
            },
            digests: vec![(0x80, 1_371_985_504), (0x1_0000_0100, u64::MAX)],
            membership: String::new(),
            locks: Snapshot::default(),
            leader_says: None,
            others: Vec::new(),
            loopback_only: Vec::new(),
            stopping: false,
            paused: AtomicBool::new(false),
            stalled: None,
            failure: None,
            conditions: Mutex::default(),
            asked: Mutex::new(Vec::new()),
        }
    }

    /// Server 1 of three participants and an observer, leading.
    pub(super) fn leader() -> Fake {
        let mut fake = Fake::standalone();
        fake.facts.server_id = 1;
        fake.status.migration = Some(MigrationFigures {
            state: "following",
            foreign_zxid: 0x5_0000_0007,
            copy: None,
            compared: 400,
            of_leader: Some(MigrationLink { is_current: true, requests_waiting: 3, alarms: 1 }),
        });
        fake.facts.init_limit = Some(10);
        fake.facts.sync_limit = Some(5);
        fake.membership = MEMBERSHIP.to_string();
        fake.counters.links = Some(LinkCounters {
            bytes_sent: 900_000,
            bytes_received: 80_000,
            made: 5,
            failed: 3,
            frames_refused: 1,
            images_sent: 2,
            images_failed: 1,
            ..LinkCounters::default()
        });
        let peer = |server, votes, is_connected, is_synced| PeerStatus {
            server,
            votes,
            is_observer: server == 4,
            is_connected,
            is_synced,
            behind: Some(0),
            clock_skew_ms: is_synced.then_some(-40),
        };
        fake.status = Status {
            mode: Mode::Leader,
            leader: Some(1),
            election_count: 3,
            leader_changes: 2,
            peer_messages_dropped: 3,
            leading_ms: Some(9_000),
            forwarded: 12,
            local_sessions: 1,
            pending_syncs: 6,
            differing: vec![3],
            comparisons_agreed: 4000,
            scrubs: 9,
            proposal_sizes: Some(ProposalSizes { last: 48, min: 32, max: 1024 }),
            participants: 3,
            // Server 3 has come back empty, and does not vote yet.
            peers: vec![
                peer(2, true, true, true),
                peer(3, false, true, true),
                peer(4, false, true, true),
            ],
            ..fake.status
        };
        fake
    }

    /// A server without a leader.
    pub(super) fn looking() -> Fake {
        let mut fake = Fake::standalone();
        fake.status.serving = false;
        fake.status.mode = Mode::Looking;
        fake
    }
}

impl Fake {
    fn standings(&self) -> Standings {
        Standings {
            is_ensemble: self.status.mode != Mode::Standalone,
            leader: self.status.leader,
            leads: self.status.mode == Mode::Leader,
            peers: self.status.peers.clone(),
        }
    }
}

impl Source for Fake {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn status(&self) -> Status {
        let mut status = self.status.clone();
        status.serving &= !self.paused.load(Ordering::Relaxed);
        status
    }

    fn backup(&self, _: Selection) -> Pending<'_, Result<BackupStream, NoBackup>> {
        Box::pin(async { Err(NoBackup::Busy) })
    }

    fn zookeeper_snapshot(&self) -> Pending<'_, Result<SnapshotStream, NoBackup>> {
        Box::pin(async {
            let (send, pieces) = tokio::sync::mpsc::channel(1);
            send.send(Ok("ZKSN".into())).await.expect("there is room");
            Ok(SnapshotStream { zxid: 0x1_0000_0002, bytes: 4, pieces })
        })
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }

    fn stalled(&self) -> Option<Duration> {
        self.stalled
    }

    fn conditions(&self) -> Vec<String> {
        self.conditions.lock().unwrap().clone()
    }

    fn counters(&self) -> Counters {
        self.counters.clone()
    }

    fn elections(&self) -> Vec<LeaderChange> {
        self.leaders.clone()
    }

    fn inspect(&self, what: Inspect) -> Pending<'_, Option<Report>> {
        self.asked.lock().unwrap().push(format!("{what:?}"));
        Box::pin(async move {
            (!self.stopping).then(|| match what {
                Inspect::Connections => Report::Connections(self.connections.clone()),
                Inspect::Sessions => Report::Sessions(self.sessions.clone()),
                Inspect::Ephemerals => Report::Ephemerals(self.ephemerals.clone()),
                Inspect::Watches | Inspect::WatchSummary => Report::Watches(self.watches.clone()),
                Inspect::Digests => Report::Digests(self.digests.clone()),
                Inspect::Membership => Report::Membership(self.membership.clone()),
                Inspect::Locks(_) | Inspect::Departures(_) => {
                    Report::Locks(Box::new(self.locks.clone()))
                }
                Inspect::Znode(_) => Report::Znode(self.znode.clone().map(Box::new)),
                Inspect::Standings => Report::Standings(self.standings()),
                Inspect::Namespaces => Report::Namespaces(Vec::new()),
                Inspect::Migration => Report::Migration(Box::default()),
                Inspect::Synced => Report::Synced(self.status.zxid),
                Inspect::ResetConnections | Inspect::ResetServer => Report::Reset,
            })
        })
    }

    fn gather(&self, scope: Scope) -> Pending<'_, Vec<(u64, Option<Local>)>> {
        self.asked.lock().unwrap().push(format!("gather {scope:?}"));
        Box::pin(async move { self.others.clone() })
    }

    fn standings_of(&self, server: u8) -> Pending<'_, Option<Standings>> {
        self.asked.lock().unwrap().push(format!("standings of {server}"));
        Box::pin(async move { self.leader_says.clone() })
    }

    fn knows_version(&self, _server: u8, _version: u8) -> bool {
        true
    }

    fn finish_upgrade(&self, version: u8) -> Pending<'_, ()> {
        self.asked.lock().unwrap().push(format!("finish upgrade to {version}"));
        Box::pin(async {})
    }

    fn bootstrap(&self, without: Vec<u8>) -> Pending<'_, Option<Result<u128, String>>> {
        self.asked.lock().unwrap().push(format!("bootstrap without {without:?}"));
        Box::pin(async { Some(Err("it belongs to an ensemble".to_owned())) })
    }

    fn migrate(&self, order: MigrateOrder, _words: ZooKeeperWords) -> Pending<'_, Option<Report>> {
        self.asked.lock().unwrap().push(format!("migrate {order:?}"));
        Box::pin(async { Some(Report::Migrated(Ok(String::new()))) })
    }

    fn zookeeper_ports(&self, ports: Vec<String>) -> Pending<'_, Vec<ZooKeeperPort>> {
        let seen = |(place, at)| ZooKeeperPort {
            at,
            listens: match place {
                0 => Ok(true),
                1 => Ok(false),
                _ => Err("it does not answer".to_owned()),
            },
        };
        Box::pin(async move { ports.into_iter().enumerate().map(seen).collect() })
    }

    fn reset_counters(&self) {
        self.asked.lock().unwrap().push("counters".to_string());
    }

    fn word_allowed(&self, word: &str, from_loopback: bool) -> bool {
        from_loopback || !self.loopback_only.contains(&word)
    }
}

fn facts() -> Facts {
    Facts {
        server_id: 0,
        client_address: ClientAddress::at(SocketAddr::from(([127, 0, 0, 1], 2181))),
        secure_client_address: None,
        data_dir: Some("/var/lib/lockkeeper/data".into()),
        log_dir: Some("/var/lib/lockkeeper/log".into()),
        tick_time_ms: 2000,
        connections_per_ip_max: 60,
        session_timeout_ms_min: 4000,
        session_timeout_ms_max: 40_000,
        listen_backlog: -1,
        init_limit: None,
        sync_limit: None,
        initial_configuration: "tickTime=2000\n".to_string(),
        properties: vec![("clientPort".to_string(), "2181".to_string())],
    }
}

fn status() -> Status {
    Status {
        ensemble_version: 1,
        serving: true,
        mode: Mode::Standalone,
        zxid: 0x1_0000_0046,
        term: 1,
        applied: 71,
        persisted: 72,
        disk_waits_ms: 120,
        disk_handovers: 6,
        stamps_ahead_ms: 250,
        time_stands_still: false,
        time_returns: 1,
        time_returned_ms: 90_000,
        znode_count: 5,
        ephemerals_count: 3,
        approximate_data_size: 44,
        watch_count: 3,
        connections: 1,
        sessions: 3,
        outstanding: 2,
        reads_answered: 3,
        answers_postponed: 4,
        work_ms: 5,
        writes_answered: 1,
        queues_drained: 1,
        entries_received: 50,
        commits_received: 49,
        sessions_revalidated: 7,
        revalidations_led: 5,
        lock_stays_unmeasured: 8,
        txns_applied: 70,
        proposals: 71,
        sessions_expired: 4,
        connections_refused: 5,
        auth_failed: 6,
        events_fired: [1, 2, 3, 4],
        watch_bytes: 100,
        digest: 0,
        changes_waiting: 8,
        ..Status::default()
    }
}

fn counters() -> Counters {
    Counters {
        wall_ms: 1_795_228_636_500,
        uptime_ms: 1_644_167,
        counts: counts(),
        links: None,
        measured: measured(),
        response_sizes: Some(ResponseSizes { last: 16, min: 16, max: 600 }),
        connections_alive: 2,
        outgoing_bytes: 4096,
        incoming_bytes: 8192,
        handshakes_failed: 2,
        handshakes_open: 4,
        certificates: vec![
            Certificates { listener: "clients", expires_s: 1_800_000_000, is_outdated: true },
            Certificates { listener: "servers", expires_s: 1_900_000_000, is_outdated: false },
        ],
        sasl_users_outdated: Some(true),
        disk: DiskFigures {
            data_dir_bytes: 1_234,
            log_dir_bytes: 67_108_880,
            log_since_image_bytes: 4_321,
            last_image: Some(LastImage {
                index: 64,
                zxid: 0x1_0000_0040,
                wall_ms: 1_795_228_630_000,
            }),
            last_backup: Some(LastBackup {
                zxid: 0x1_0000_0030,
                bytes: 7_777,
                wall_ms: 1_795_228_600_000,
            }),
        },
        fatal_errors: 1,
    }
}

/// One of everything, where nothing else is wanted.
fn counts() -> Counts<u64> {
    Counts {
        packets_received: 86,
        packets_sent: 87,
        bytes_received: 4_000,
        bytes_sent: 5_000,
        connections_accepted: 9,
        connections_closed: 7,
        connect_requests: 6,
        connections_rejected_per_ip: 3,
        connections_cut_malformed: 2,
        connections_cut_sessionless: 3,
        connections_cut_yielded: 5,
        connections_cut_unfinished: 4,
        connections_non_mtls_local: 8,
        other_protocols_tls: 3,
        other_protocols_http: 2,
        image_errors: 0,
        backup_errors: 2,
        requests_taken: 80,
        appends_ordered: 60,
        leader_losses: 2,
        caught_up_by_log: 3,
        ..Counts::<()>::default().map(|()| 1)
    }
}

/// A value of everything, in microseconds where it is a time.
fn measured() -> Measured {
    let mut measured = Measured::default();
    for quantity in Quantity::ALL {
        measured.set(*quantity, &[5_000]);
    }
    measured.set(Quantity::StartLoad, &[42_000]);
    measured.set(Quantity::Read, &[1_200, 1_200, 1_500]);
    measured.set(Quantity::Write, &[2_500]);
    measured.set(Quantity::Fsync, &[1_000, 1_000, 2_000, 2_000]);
    measured.set(Quantity::LogBatch, &[1, 15, 15, 40]);
    measured.acks.insert(2, Tally { count: 2, sum: 3_000, min: 1_000, max: 2_000 });
    measured.peer_queues.insert(2, Tally { count: 5, sum: 1_000, min: 64, max: 512 });
    measured
}

/// Out of order, as the replica's table may be.
fn connections() -> Vec<ConnectionReport> {
    vec![
        ConnectionReport {
            conn: 7,
            remote: "127.0.0.1:34716".to_string(),
            received: 1,
            last_op: "NA",
            last_cxid: -1,
            ..ConnectionReport::default()
        },
        ConnectionReport {
            conn: 3,
            remote: "127.0.0.1:41684".to_string(),
            queued: 0,
            received: 86,
            sent: 87,
            session: Some(SESSION),
            last_op: "EXIS",
            established_ms: 1_795_228_624_662,
            timeout_ms: 40_000,
            last_cxid: 0x55,
            last_zxid: 0x46,
            last_response_ms: 1_644_167,
            last_latency_ms: 0,
            latency: Latency { count: 4, sum_us: 6_000, min_us: 100, max_us: 16_000 },
            work_us: 1_234,
        },
    ]
}

fn sessions() -> Vec<SessionReport> {
    let session = |id, expires_in_ms, connected| SessionReport {
        id,
        timeout_ms: 40_000,
        expires_in_ms: Some(expires_in_ms),
        connected,
    };
    vec![
        session(SESSION + 2, 4_000, false),
        session(SESSION, 4_500, true),
        session(SESSION + 1, 500, false),
    ]
}
