//! Twins: Lockkeeper and Apache ZooKeeper are asked the same, thousands of times, and must answer the
//! same: error codes, stats, names, events, and how many zxids were taken.
//!
//! Runs where `LOCKKEEPER_WIRE_COMMAND` starts a ZooKeeper. What differs on purpose is not asked.

use std::fmt::Write as _;

use crate::bytes::{AclEntry, Body, Fields, Multi, MultiResult, Stat, acl, op, open_acl, perms};
use crate::fixture::{TestServer, server_with, start_embedded};
use crate::raw::{Client, Reply};
use testkit::rng::Rng;

/// Sessions that take part at any time.
const CLIENTS: usize = 3;
const STEPS: usize = 1500;

/// The last [`QUOTA_PATHS`] make up a quota.
const PATHS: [&str; 22] = [
    "/t",
    "/t/a",
    "/t/a/b",
    "/t/a/b/c",
    "/t/d",
    "/t/d/e",
    "/t/n-",
    "/t/c",
    "/t/c/x",
    "/t/",
    "/",
    "/t/..",
    "",
    "/zookeeper",
    "/zookeeper/quota",
    "/t/a/n-",
    "/t/.",
    "nope",
    "/zookeeper/quota/t",
    "/zookeeper/quota/t/a",
    "/zookeeper/quota/t/zookeeper_limits",
    "/zookeeper/quota/t/zookeeper_stats",
];

const QUOTA_PATHS: usize = 4;

/// One server and its clients.
struct Twin {
    server: TestServer,
    clients: Vec<Client>,
}

impl Twin {
    fn new(server: TestServer) -> Self {
        let clients = (0..CLIENTS).map(|_| server.connect()).collect();
        Self { server, clients }
    }

    /// The bits of a zxid that this server puts above its counter.
    fn epoch(&self) -> i64 {
        self.clients.iter().map(|client| client.last_zxid).max().unwrap_or(0) & !0xffff_ffff
    }

    /// Asks, and says in words what was answered and what every client heard of it.
    fn ask(&mut self, who: usize, question: &Question) -> String {
        let body = match &question.relative_zxid {
            Some(zxid) => Body::new().long(self.epoch() | zxid).raw(&question.body.0),
            None => question.body.clone(),
        };
        let reply = self.clients[who].call(question.opcode, &body);
        let mut words = self.words_of(question.opcode, &reply);
        self.hear(&mut words);
        words
    }

    /// Appends the events of all clients.
    fn hear(&mut self, words: &mut String) {
        for (index, client) in self.clients.iter_mut().enumerate() {
            for event in client.events_with_zxid() {
                let zxid = counter(event.zxid);
                write!(words, "\n  {index} hears {:?} {} {zxid}", event.kind, event.path).unwrap();
            }
        }
    }

    /// Ends a session and opens another in its place; the order of its ephemerals' ends is open.
    fn replace(&mut self, who: usize) -> String {
        let new = self.server.connect();
        let reply = std::mem::replace(&mut self.clients[who], new).close_session();
        let mut words = String::new();
        self.hear(&mut words);
        let mut lines: Vec<&str> = words.lines().collect();
        lines.sort_unstable();
        format!("closed {} {}", counter(reply.zxid), lines.join("\n"))
    }

    fn words_of(&self, opcode: i32, reply: &Reply) -> String {
        let mut words = format!("{} {}", reply.err, counter(reply.zxid));
        let Ok(mut fields) = reply.fields() else { return words };
        let fields = &mut fields;
        match opcode {
            op::CREATE => words += &fields.string(),
            op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
                words += &fields.string();
                words += &self.stat(&fields.stat());
            }
            op::EXISTS | op::SET_DATA | op::SET_ACL => words += &self.stat(&fields.stat()),
            op::DATA => {
                write!(words, "{:?}", fields.buffer()).unwrap();
                words += &self.stat(&fields.stat());
            }
            op::ACL => {
                write!(words, "{:?}", fields.acl()).unwrap();
                words += &self.stat(&fields.stat());
            }
            op::CHILDREN | op::EPHEMERALS => words += &sorted(fields),
            op::CHILDREN2 => {
                words += &sorted(fields);
                words += &self.stat(&fields.stat());
            }
            op::MULTI | op::MULTI_READ => {
                for result in fields.multi_results() {
                    words += &self.result(&result);
                }
            }
            op::SYNC => write!(words, "{:?}", fields.buffer()).unwrap(),
            op::ALL_CHILDREN_NUMBER | op::ADD_WATCH => words += &fields.int().to_string(),
            op::WHO_AM_I => {
                let count = fields.int();
                let mut ids: Vec<_> =
                    (0..count).map(|_| fields.string() + ":" + &fields.string()).collect();
                ids.sort();
                words += &ids.join(",");
            }
            _ => {}
        }
        fields.end();
        words
    }

    fn result(&self, result: &MultiResult) -> String {
        match result {
            MultiResult::Create2(path, stat) => format!("; {path}{}", self.stat(stat)),
            MultiResult::SetData(stat) => format!("; {}", self.stat(stat)),
            MultiResult::Data(data, stat) => format!("; {data:?}{}", self.stat(stat)),
            MultiResult::Children(names) => {
                let mut names = names.clone();
                names.sort();
                format!("; {names:?}")
            }
            other => format!("; {other:?}"),
        }
    }

    /// A stat without its clock, with counters for zxids and numbers for sessions.
    fn stat(&self, stat: &Stat) -> String {
        let owner = |client: &Client| client.session.session_id == stat.ephemeral_owner;
        let known = Stat {
            czxid: counter(stat.czxid),
            mzxid: counter(stat.mzxid),
            pzxid: counter(stat.pzxid),
            ctime: i64::from(stat.ctime != 0),
            mtime: i64::from(stat.mtime >= stat.ctime),
            ephemeral_owner: match stat.ephemeral_owner {
                0 => 0,
                _ => self.clients.iter().position(owner).map_or(-1, |index| index as i64 + 1),
            },
            ..*stat
        };
        format!(" {known:?}")
    }
}

/// A zxid without what the server puts above its counter.
fn counter(zxid: i64) -> i64 {
    if zxid < 0 { zxid } else { zxid & 0xffff_ffff }
}

fn sorted(fields: &mut Fields<'_>) -> String {
    let mut names = fields.strings();
    names.sort();
    format!("{names:?}")
}

/// What both are asked.
#[derive(Debug)]
struct Question {
    opcode: i32,
    /// setWatches: a zxid counter in front of the body.
    relative_zxid: Option<i64>,
    body: Body,
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

const OPCODES: [i32; 29] = [
    op::CREATE,
    op::CREATE,
    op::CREATE,
    op::CREATE2,
    op::CREATE2,
    op::CREATE_CONTAINER,
    op::CREATE_TTL,
    op::DELETE,
    op::DELETE,
    op::SET_DATA,
    op::SET_DATA,
    op::EXISTS,
    op::EXISTS,
    op::DATA,
    op::ACL,
    op::SET_ACL,
    op::CHILDREN,
    op::CHILDREN2,
    op::MULTI,
    op::MULTI,
    op::MULTI_READ,
    op::ADD_WATCH,
    op::CHECK_WATCHES,
    op::REMOVE_WATCHES,
    op::SET_WATCHES2,
    op::EPHEMERALS,
    op::ALL_CHILDREN_NUMBER,
    op::SYNC,
    op::WHO_AM_I,
];

fn question(noise: &mut Rng, zxid: i64) -> Question {
    let opcode = noise.of(&OPCODES);
    let path = noise.of(&PATHS);
    let named = Body::new().string(path);
    let version = noise.of(&[-1, -1, -1, 0, 1, 2, -2]);
    let mut relative_zxid = None;
    let body = match opcode {
        op::CREATE | op::CREATE2 | op::CREATE_CONTAINER => {
            let flags = noise.of(&[0, 0, 0, 1, 1, 2, 3, 4, 5, 7]);
            Body::new().create(path, data(noise, path), &entries(noise), flags)
        }
        op::CREATE_TTL => {
            // Other modes end a ZooKeeper.
            let record =
                Body::new().create(path, data(noise, path), &entries(noise), noise.of(&[5, 6]));
            record.long(noise.of(&[-1, 0, 100_000, 1 << 39]))
        }
        op::DELETE => named.int(version),
        op::SET_DATA => named.buffer_or_null(data(noise, path)).int(version),
        op::SET_ACL => named.acl(&entries(noise)).int(version),
        op::EXISTS | op::DATA | op::CHILDREN | op::CHILDREN2 => named.boolean(noise.index(2) == 0),
        op::MULTI => multi(noise),
        op::MULTI_READ => (0..noise.index(4))
            .fold(Multi::new(), |multi, _| {
                let path = noise.of(&PATHS);
                if noise.index(2) == 0 { multi.data(path) } else { multi.children(path) }
            })
            .done(),
        op::ADD_WATCH => named.int(noise.of(&[0, 1])),
        op::CHECK_WATCHES | op::REMOVE_WATCHES => named.int(noise.of(&[1, 2, 3, 4, 5])),
        op::SET_WATCHES2 => {
            relative_zxid = Some(zxid - i64::try_from(noise.index(40)).unwrap());
            (0..5).fold(Body::new(), |body, _| {
                let paths: Vec<&str> = (0..noise.index(2)).map(|_| noise.of(&PATHS)).collect();
                body.strings(&paths)
            })
        }
        // ZooKeeper counts the root as its own child when it is named by the empty path.
        op::ALL_CHILDREN_NUMBER if path.is_empty() => Body::new().string("/"),
        _ => named,
    };
    Question { opcode, relative_zxid, body: spoil(noise, opcode, body) }
}

/// Now and then a body that ends too early. A spoiled multi takes a zxid of ZooKeeper and none of
/// Lockkeeper.
fn spoil(noise: &mut Rng, opcode: i32, mut body: Body) -> Body {
    if noise.index(25) == 0 && opcode != op::MULTI {
        body.0.truncate(noise.index(body.0.len()));
    }
    body
}

fn data(noise: &mut Rng, path: &str) -> Option<&'static [u8]> {
    if path.contains("quota") {
        // Anything but such a text ends a ZooKeeper as soon as it counts.
        return noise.of(&[Some(b"count=5,bytes=9"), Some(b"count=1,bytes=0=;countHardLimit=2")]);
    }
    noise.of(&[None, Some(&b""[..]), Some(b"some"), Some(b"count=1,bytes=9"), Some(b"more")])
}

/// Mostly open.
fn entries(noise: &mut Rng) -> Vec<AclEntry> {
    match noise.index(12) {
        0 => acl(perms::ALL & !perms::READ, "world", "anyone"),
        1 => acl(perms::ALL & !perms::CREATE, "world", "anyone"),
        2 => acl(perms::READ | perms::ADMIN, "world", "anyone"),
        3 => acl(perms::ALL, "auth", ""),
        4 => [acl(perms::ALL, "digest", "u:hash"), acl(31, "ip", "127.0.0.1")].concat(),
        5 => acl(perms::ALL, "nope", "x"),
        _ => open_acl(),
    }
}

fn multi(noise: &mut Rng) -> Body {
    (0..noise.index(5))
        .fold(Multi::new(), |multi, _| {
            // What a multi writes here is no text of a quota.
            let path = noise.of(&PATHS[..PATHS.len() - QUOTA_PATHS]);
            let version = noise.of(&[-1, -1, -1, -1, 0, 1]);
            match noise.index(6) {
                0 => multi.create_as(op::CREATE, path, noise.of(&[0, 1, 2, 3])),
                1 => multi.create_as(op::CREATE2, path, noise.of(&[0, 1, 2, 3])),
                2 => multi.delete(path, version),
                3 => multi.set_data(path, b"of a multi", version),
                4 => multi.check(path, version),
                _ => multi.create_ttl(path, 100_000),
            }
        })
        .done()
}

#[test]
fn twins_answer_the_same() {
    if std::env::var_os("LOCKKEEPER_WIRE_COMMAND").is_none() {
        println!("skipped: needs LOCKKEEPER_WIRE_COMMAND to start a ZooKeeper beside");
        return;
    }
    for seed in 1..=6 {
        let mut noise = Rng::new(0x10CC_4EE9_E7B1_0000, seed);
        println!("seed {seed}");
        let mut ours = Twin::new(start_embedded(&[]));
        let mut theirs = Twin::new(server_with(&[]).expect("a server of its own"));
        let mut history = Vec::new();
        for step in 0..STEPS {
            let who = noise.index(CLIENTS);
            let (asked, one, other) = if noise.index(40) == 0 {
                ("close".to_owned(), ours.replace(who), theirs.replace(who))
            } else if noise.index(60) == 0 {
                let user = noise.of(&["u:p", "v:q"]);
                for twin in [&mut ours, &mut theirs] {
                    twin.clients[who].add_digest(user);
                }
                (format!("be {user}"), String::new(), String::new())
            } else {
                let question = question(&mut noise, counter(ours.clients[who].last_zxid));
                // Shown when the test fails.
                println!("step {step}, {who} asks {question:?}");
                let one = ours.ask(who, &question);
                println!("ours: {one}");
                let other = theirs.ask(who, &question);
                (format!("{question:?}"), one, other)
            };
            history.push(format!("{who}: {asked}\n   = {other}"));
            if one != other {
                let recent = &history[history.len().saturating_sub(12)..];
                panic!(
                    "seed {seed}, step {step}\n{}\nours:\n{one}\ntheirs:\n{other}",
                    recent.join("\n")
                );
            }
        }
    }
}
