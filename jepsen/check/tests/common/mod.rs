//! A service in a few lines: it makes histories, honest ones or with one lie.
#![allow(dead_code, reason = "each test uses a part of it")]

use lockkeeper_check::audit::AuditLine;
use lockkeeper_check::history::{
    History, Moment, Notice, NoticeKind, Operation, OperationId, Recorder,
};
use lockkeeper_check::json::call_name;
use lockkeeper_check::op::{Acl, Answer, Call, Code, Create, CreateOp, Mode};
use lockkeeper_check::tree::{Caller, Tree};

/// splitmix64: enough chance for tests, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[usize::try_from(self.below(list.len() as u64)).unwrap()]
    }
}

pub fn create(path: &str, mode: Mode) -> Call {
    create_as(CreateOp::Create2, path, mode)
}

pub fn create_as(op: CreateOp, path: &str, mode: Mode) -> Call {
    let data = Some(b"x".to_vec());
    let ttl_ms = if mode.has_ttl() { 1000 } else { 0 };
    Call::Create(Create { op, path: path.to_owned(), data, acl: Acl::open(), mode, ttl_ms })
}

pub fn set(path: &str, data: &str, version: i32) -> Call {
    Call::SetData { path: path.to_owned(), data: Some(data.as_bytes().to_vec()), version }
}

pub fn delete(path: &str) -> Call {
    Call::Delete { path: path.to_owned(), version: -1 }
}

pub fn get(path: &str) -> Call {
    Call::GetData { path: path.to_owned(), watch: false }
}

pub fn exists(path: &str) -> Call {
    Call::Exists { path: path.to_owned(), watch: false }
}

pub fn children(path: &str) -> Call {
    Call::GetChildren { path: path.to_owned(), watch: false, stat: true }
}

/// The servers' clock when the run's is 0.
pub const STARTED_AT_MS: i64 = 1_700_000_000_000;

/// The service. Operations take effect when they are answered, or when they are told to.
pub struct Service {
    pub tree: Tree,
    pub recorder: Recorder,
    pub audit: Vec<AuditLine>,
    pub now_ns: u64,
    pub zxid: i64,
    /// Of who leads.
    pub term: u64,
    next_xid: i32,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            tree: Tree::new(true),
            recorder: Recorder::default(),
            audit: Vec::new(),
            now_ns: 0,
            zxid: 0x1_0000_0000,
            term: 1,
            next_xid: 1,
        }
    }
}

impl Service {
    /// Time passes.
    pub fn tick(&mut self) -> u64 {
        self.now_ns += 1000;
        self.now_ns
    }

    pub fn invoke(&mut self, process: u64, session: i64, call: Call) -> OperationId {
        let mut operation = Operation::new(process, call);
        operation.session = session;
        operation.xid = Some(self.next_xid);
        self.next_xid += 1;
        let now = self.tick();
        self.recorder.invoke(now, operation)
    }

    /// An operation takes effect. What is to be answered.
    pub fn take_effect(&mut self, id: OperationId) -> (i64, Result<Answer, Code>) {
        let operation = self.recorder.operation_mut(id).clone();
        let who = Caller { session: operation.session, ids: &[] };
        if operation.call.is_read() {
            return (self.zxid, self.tree.read(who, &operation.call));
        }
        if !operation.call.is_write() {
            return (self.zxid, Ok(Answer::Done));
        }
        let time_ms = self.begin();
        let result = match &operation.call {
            Call::Close => {
                self.tree.close_session(self.zxid, operation.session);
                Ok(Answer::Done)
            }
            call => self.tree.apply(self.zxid, who, call),
        };
        let path = match &result {
            Ok(Answer::Path(path) | Answer::PathStat(path, _)) => Some(path.clone()),
            _ => operation.call.path().map(str::to_owned),
        };
        let audited = match &result {
            Ok(Answer::Parts(parts)) => {
                let mut codes = parts.iter().filter_map(|part| part.as_ref().err().copied());
                codes.find(|code| *code != Code::OK).map_or(Ok(()), Err)
            }
            Ok(_) => Ok(()),
            Err(code) => Err(*code),
        };
        let op = call_name(&operation.call).to_owned();
        let cxid = operation.xid.unwrap();
        self.note(time_ms, operation.session, cxid, op, path, audited);
        (self.zxid, result)
    }

    fn begin(&mut self) -> i64 {
        self.zxid += 1;
        let time_ms = STARTED_AT_MS + i64::try_from(self.now_ns / 1_000_000).unwrap();
        self.tree.learn_time(self.zxid, time_ms);
        time_ms
    }

    fn note(
        &mut self,
        time_ms: i64,
        session: i64,
        cxid: i32,
        op: String,
        path: Option<String>,
        result: Result<(), Code>,
    ) {
        self.audit.push(AuditLine {
            index: self.audit.len() as u64,
            term: self.term,
            zxid: self.zxid,
            time_ms,
            session,
            cxid,
            op,
            path,
            result,
            digest: String::new(),
        });
    }

    /// The service ends a session.
    pub fn expire(&mut self, session: i64) {
        let time_ms = self.begin();
        self.tree.close_session(self.zxid, session);
        self.note(time_ms, session, 0, "expireSession".to_owned(), None, Ok(()));
    }

    /// The service removes a znode by itself.
    pub fn reap(&mut self, path: &str) {
        let time_ms = self.begin();
        self.tree.reap(self.zxid, path).unwrap();
        let op = "deleteContainer".to_owned();
        self.note(time_ms, 0, 0, op, Some(path.to_owned()), Ok(()));
    }

    /// A client gets a session of 4 s, or comes back to it.
    pub fn connect(&mut self, process: u64, node: &str, session: i64, last_zxid: i64) {
        let call =
            Call::Connect { session: last_zxid.signum() * session, timeout_ms: 4000, last_zxid };
        let mut operation = Operation::new(process, call);
        operation.node = Some(node.to_owned());
        let now = self.tick();
        let id = self.recorder.invoke(now, operation);
        if last_zxid == 0 {
            let time_ms = self.begin();
            self.note(time_ms, session, 0, "createSession".to_owned(), None, Ok(()));
        }
        self.answer(id, (self.zxid, Ok(Answer::Session { session, timeout_ms: 4000 })));
    }

    /// Something is done to a server; or all is well again.
    pub fn fault(&mut self, name: &str) {
        let now = self.tick();
        self.recorder.fault(now, name, "n2");
    }

    /// Nothing happens for a while.
    pub fn wait_ms(&mut self, ms: u64) {
        self.now_ns += ms * 1_000_000;
    }

    /// A client is told something.
    pub fn tell(&mut self, process: u64, kind: NoticeKind) {
        let (at, session) = (Moment::default(), i64::try_from(process).unwrap());
        let now = self.tick();
        self.recorder.notice(now, Notice { at, process, node: None, session, kind });
    }

    pub fn answer(&mut self, id: OperationId, answer: (i64, Result<Answer, Code>)) {
        let now = self.tick();
        self.recorder.replied(now, id, answer.0, answer.1);
    }

    /// The connection breaks before an answer is there.
    pub fn lose(&mut self, id: OperationId) {
        let now = self.tick();
        self.recorder.gave_up(now, id, "ConnectionLoss");
    }

    /// A whole operation, start to end.
    pub fn run(&mut self, process: u64, call: Call) -> Result<Answer, Code> {
        let session = i64::try_from(process).unwrap();
        let id = self.invoke(process, session, call);
        let answer = self.take_effect(id);
        self.answer(id, answer.clone());
        answer.1
    }

    pub fn finish(self) -> (History, Vec<AuditLine>) {
        (self.recorder.finish(), self.audit)
    }
}

/// Something that clients do, on few paths so that they meet.
pub fn random_call(rng: &mut Rng) -> Call {
    let paths = ["/a", "/b", "/a/x", "/a/y", "/b/z", "/a/x/q"];
    let path = (*rng.pick(&paths)).to_owned();
    let version = if rng.one_in(2) { -1 } else { rng.below(3) as i32 };
    match rng.below(12) {
        0..3 => {
            let modes = [
                Mode::Persistent,
                Mode::Persistent,
                Mode::Ephemeral,
                Mode::PersistentSequential,
                Mode::EphemeralSequential,
                Mode::Container,
            ];
            let mode = *rng.pick(&modes);
            let ops = [CreateOp::Create, CreateOp::Create2, CreateOp::Container];
            let op = if mode == Mode::Container { ops[2] } else { *rng.pick(&ops[..2]) };
            create_as(op, &path, mode)
        }
        3 => Call::Delete { path, version },
        4..6 => set(&path, ["", "1", "22"][rng.below(3) as usize], version),
        6 => exists(&path),
        7..9 => get(&path),
        9 => Call::GetChildren { path, watch: false, stat: rng.one_in(2) },
        10 => Call::Sync { path },
        _ => Call::Multi((0..rng.below(4)).map(|_| random_part(rng)).collect()),
    }
}

fn random_part(rng: &mut Rng) -> Call {
    loop {
        let call = random_call(rng);
        if matches!(call, Call::Multi(_)) {
            return Call::Check { path: "/a".to_owned(), version: -1 };
        }
        if call.is_write() {
            return call;
        }
    }
}

/// An honest history: several clients at once, some outcomes unknown, some sessions ended.
pub fn honest(seed: u64, steps: u64) -> (History, Vec<AuditLine>) {
    let mut rng = Rng(seed);
    let mut service = Service::default();
    let mut sessions: Vec<i64> = (1..=4).collect();
    let mut open: Vec<Open> = Vec::new();
    for _ in 0..steps {
        let client = rng.below(4) as usize;
        match open.iter().position(|open| open.client == client) {
            None => {
                let call = if rng.one_in(50) { Call::Close } else { random_call(&mut rng) };
                let process = sessions[client] as u64;
                let id = service.invoke(process, sessions[client], call);
                open.push(Open { client, id, answer: None });
            }
            Some(at) if open[at].answer.is_none() => {
                if rng.one_in(15) {
                    let lost = open.remove(at);
                    service.lose(lost.id);
                    let happened = rng.one_in(2);
                    if happened {
                        let _ = service.take_effect(lost.id);
                    }
                    let is_end = service.recorder.operation_mut(lost.id).call == Call::Close;
                    if !(happened && is_end) {
                        service.expire(sessions[client]);
                    }
                    sessions[client] += 4;
                } else {
                    let id = open[at].id;
                    open[at].answer = Some(service.take_effect(id));
                }
            }
            Some(at) => {
                let done = open.remove(at);
                let is_end = service.recorder.operation_mut(done.id).call == Call::Close;
                service.answer(done.id, done.answer.unwrap());
                if is_end {
                    sessions[client] += 4;
                }
            }
        }
    }
    service.finish()
}

struct Open {
    client: usize,
    id: OperationId,
    answer: Option<(i64, Result<Answer, Code>)>,
}
