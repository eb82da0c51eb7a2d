//! Turns of a driver in a runtime, whose connections are sockets.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;
use crate::config::Config;
use crate::proto::request::{Create, CreateKind, Request};
use crate::proto::{Acl, ConnectRequest, RequestHeader};
use crate::replica::{ClientRequest, ConnId, Machine, Restored, Setup};
use crate::server::limits::Limits;
use crate::server::mailbox::{Line, Outbox};
use crate::server::zookeeper::Access;
use crate::tree::Options;

const CLIENTS: u64 = 40;
const DATA_BYTES: usize = 700 << 10;
/// Messages that take the driver more than one turn.
const FULL_BATCHES: usize = 4 * DRIVER_BATCH_MAX;

fn driver(messages: mpsc::Receiver<Message>) -> Driver {
    let machine = Machine::fresh(Options::default());
    Driver {
        state: State::default(),
        replica: Replica::new(Setup::default(), machine, Restored::default()).unwrap(),
        messages: Queue::new(messages),
        disk: None,
        audit: None,
        published: Arc::default(),
        stop: Arc::default(),
        connections: Connections::new(&Limits::of(&Config::without_file()), Arc::default()),
        sharing: Arc::default(),
        members: watch::Sender::default(),
        links: None,
        gssapi: Gssapi::default(),
        zookeeper: ZooKeeper::new(mpsc::channel(1).0, Access::default()),
        role_log: RoleLog::new(1, Instant::now()),
    }
}

/// Connections, and the other ends of their sockets, which are not read from.
async fn lines() -> Vec<(Arc<Line>, TcpStream)> {
    let limits = Limits::of(&Config::without_file());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let mut lines = Vec::new();
    for _ in 0..CLIENTS {
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (_, writer) = listener.accept().await.unwrap().0.into_split();
        lines.push((
            Arc::new(Line {
                outbox: Outbox::new(&limits, Arc::default()),
                writer,
                is_plain: true,
                thread: None,
                place: None,
            }),
            client,
        ));
    }
    lines
}

fn open(conn: ConnId, line: &Arc<Line>) -> Message {
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: 40_000,
        session_id: 0,
        password: Bytes::new(),
        read_only: None,
    };
    let remote = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let input = Input::Connected { conn, remote, remote_port: 1, proven: Vec::new(), request };
    Message::Open { conn, line: Arc::clone(line), input }
}

fn ask(conn: ConnId, requests: &[Request]) -> Message {
    let requests = requests.iter().map(|request| {
        let mut payload = Vec::new();
        RequestHeader { xid: 1, op: request.op() as i32 }.encode(&mut payload);
        request.encode(&mut payload);
        ClientRequest::decode(payload.into()).unwrap()
    });
    Message::Input(Input::Requests { conn, requests: requests.collect() })
}

fn big() -> Request {
    Request::Create(Create {
        path: "/big".into(),
        data: Some(vec![7; DATA_BYTES].into()),
        acl: Some(vec![Acl::open()]),
        flags: 0,
        ttl_ms: 0,
        kind: CreateKind::Create,
    })
}

/// Takes what the connections are given, whenever the driver lets them, until it is that many bytes
/// or more. The most that there was at once.
async fn take_all(lines: &[(Arc<Line>, TcpStream)], bytes: usize) -> usize {
    let (mut all, mut most) = (0, 0);
    while all < bytes {
        let mut at_once = 0;
        for (line, _) in lines {
            let context = Context::from_waker(Waker::noop());
            let Poll::Ready(taken) = line.outbox.poll_take(&context, false) else { continue };
            let bytes = taken.chunks.iter().map(Vec::len).sum();
            line.outbox.written(bytes);
            at_once += bytes;
        }
        (all, most) = (all + at_once, most.max(at_once));
        yield_now().await;
    }
    most
}

#[tokio::test]
async fn no_more_answers_are_made_than_the_connections_may_write_meanwhile() {
    let (sender, messages) = mpsc::channel(2 * FULL_BATCHES);
    let send = |message| sender.try_send(message).expect("room");
    let (lines, mut driver) = (lines().await, driver(messages));
    let (serves, _) = oneshot::channel();
    let tested = async {
        send(Message::Wake);
        yield_now().await;
        (1..).zip(&lines).for_each(|(conn, (line, _))| send(open(conn, line)));
        take_all(&lines, CLIENTS as usize * 40).await;
        send(ask(1, &[big()]));
        take_all(&lines, 1).await;
        let get = Request::GetData { path: "/big".into(), watch: false };
        let sync = Request::Sync { path: Some("/".into()) };
        for asked in [&[get.clone()][..], &[sync, get]] {
            (1..=CLIENTS).for_each(|conn| send(ask(conn, asked)));
            // There is always something to do: as a tick, if the process is held for a while.
            (0..FULL_BATCHES).for_each(|_| send(Message::Wake));
            let most = take_all(&lines, CLIENTS as usize * DATA_BYTES).await;
            let at_most = OUTPUT_BYTES_PER_TURN_MAX + 2 * DATA_BYTES;
            assert!(most <= at_most, "{most} bytes at once for {asked:?}");
        }
    };
    let mut runs = pin!(driver.run(serves));
    tokio::select! {
        biased;
        ended = &mut runs => panic!("{ended:?}"),
        () = tested => {}
    }
}
