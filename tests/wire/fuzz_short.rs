//! A moment of fuzzing with every test run: the same bodies as the libFuzzer targets in `fuzz/`, fed
//! with recorded frames, mutations of them, and noise. Seeded: a failure names its input.

#[path = "../../fuzz/bodies.rs"]
mod bodies;
#[path = "../../fuzz/disk.rs"]
mod disk;
#[path = "../../fuzz/history.rs"]
mod history;

use crate::frames::{Conversation, From, Outstanding, conversations};
use testkit::rng::Rng;

/// Turns bits, cuts, repeats, and plants numbers that are at some edge.
fn mutate(noise: &mut Rng, seed: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=noise.index(4) {
        let at = noise.index(bytes.len());
        match noise.index(6) {
            0 | 1 if !bytes.is_empty() => bytes[at] ^= 1 << noise.index(8),
            2 => bytes.truncate(at),
            3 => {
                let extra_count = noise.index(9);
                let extra = noise.bytes(extra_count);
                bytes.splice(at..at, extra).for_each(drop);
            }
            4 if bytes.len() >= at + 4 => {
                let edge = noise.of(&[-1, i32::MIN, i32::MAX, 0, 1, -2, 0x00ff_ffff]);
                bytes[at..at + 4].copy_from_slice(&edge.to_be_bytes());
            }
            _ => {
                let end = at + noise.index(bytes.len() - at);
                bytes.extend_from_within(at..end);
            }
        }
    }
    bytes
}

/// Runs `body`; when it panics, says with what.
fn try_with(body: fn(&[u8]), input: &[u8]) {
    let outcome = std::panic::catch_unwind(|| body(input));
    assert!(outcome.is_ok(), "the input was {input:02x?}");
}

/// Every seed, `rounds` mutations of seeds, and as much noise.
fn run(body: fn(&[u8]), seeds: &[Vec<u8>], rounds: usize) {
    let mut noise = Rng::new(0x10CC_4EE9_E5F0_2201, 0);
    for seed in seeds {
        try_with(body, seed);
    }
    for _ in 0..rounds {
        if !seeds.is_empty() {
            let seed = &seeds[noise.index(seeds.len())];
            try_with(body, &mutate(&mut noise, seed));
        }
        let count = noise.index(200);
        try_with(body, &noise.bytes(count));
    }
}

/// Payloads that one side sent, handshakes apart.
fn payloads(from: From) -> Vec<Vec<u8>> {
    let all = conversations();
    let of_one = |conversation: &Conversation| {
        let frames = conversation.frames.iter().filter(|(sender, _, _)| *sender == from);
        frames.skip(1).map(|(_, payload, _)| payload.clone()).collect::<Vec<_>>()
    };
    all.iter().flat_map(of_one).collect()
}

/// Bodies of successful replies, with the opcode's number in [`bodies::reply`] in front.
fn reply_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for conversation in conversations() {
        let mut outstanding = Outstanding::default();
        let int = |bytes: &[u8], at: usize| {
            Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        for (from, payload, _) in conversation.frames.iter().skip(2) {
            let Some(xid) = int(payload, 0) else { continue };
            match from {
                From::Client => outstanding.sent(xid, int(payload, 4).unwrap_or(0)),
                From::Server => {
                    let Some(opcode) = outstanding.answered(xid) else { continue };
                    let all = lockkeeper::internals::proto::OpCode::ALL;
                    let Some(number) = all.iter().position(|op| *op as i32 == opcode) else {
                        continue;
                    };
                    let number = u8::try_from(number).expect("few opcodes");
                    seeds.push([&[number], &payload[16..]].concat());
                }
            }
        }
    }
    seeds
}

#[test]
fn connect_requests() {
    let seeds: Vec<Vec<u8>> = conversations()
        .into_iter()
        .flat_map(|conversation| conversation.frames.into_iter().take(2))
        .map(|(_, payload, _)| payload)
        .collect();
    run(bodies::connect, &seeds, 5000);
}

#[test]
fn requests() {
    run(bodies::request, &payloads(From::Client), 20_000);
}

#[test]
fn replies() {
    run(bodies::reply, &reply_seeds(), 20_000);
}

#[test]
fn streams_of_frames() {
    let requests = payloads(From::Client);
    let seeds: Vec<Vec<u8>> = requests
        .chunks(5)
        .enumerate()
        .map(|(number, chunk)| {
            let mut stream = vec![u8::try_from(number % 256).expect("below 256")];
            for payload in chunk {
                lockkeeper::internals::proto::frame::append(&mut stream, |out| out.extend(payload));
            }
            stream
        })
        .collect();
    run(bodies::frames, &seeds, 5000);
}

#[test]
fn files_of_zookeeper() {
    let below = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zookeeper/fixtures");
    let files = ["3.4.14/version-2/log.1", "3.9.4/version-2/log.1f", "3.9.4/version-2/snapshot.1e"];
    let mut seeds: Vec<Vec<u8>> =
        files.iter().map(|file| std::fs::read(below.join(file)).expect("it is there")).collect();
    // The first transaction of the log, without its frame.
    let length = i32::from_be_bytes(seeds[0][24..28].try_into().expect("4 bytes"));
    let end = 28 + usize::try_from(length).expect("it is short");
    seeds.push(seeds[0][28..end].to_vec());
    run(bodies::zookeeper, &seeds, 3000);
}

#[test]
fn streams_of_zookeepers_leader() {
    let below = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/core/learner/tests");
    let files = ["snap.bin", "fuzzy.bin", "diff.bin", "equal.bin", "trunc.bin"];
    let mut seeds = Vec::new();
    for (number, file) in (0..).zip(files) {
        let stream = std::fs::read(below.join(file)).expect("it is there");
        seeds.push([&[number * 7, u8::from(number > 1)][..], &stream].concat());
    }
    run(bodies::learner, &seeds, 3000);
}

#[test]
fn configuration_files() {
    let sample = lockkeeper::internals::config::Config::sample();
    let mut seeds: Vec<Vec<u8>> = sample.lines().map(|line| line.as_bytes().to_vec()).collect();
    seeds.push(sample.into_bytes());
    seeds.push(b"server.1=a:1:2:participant;[::1]:3\nserver.2=[fe80::1]:1:2;4".to_vec());
    run(bodies::config, &seeds, 2000);
}

#[test]
fn log_entries() {
    use lockkeeper::internals::replica::txn::{BatchBuilder, EntryTime, Origin, TxnOp, stamp};
    use lockkeeper::internals::replica::txn_version::SECOND;
    use lockkeeper::internals::tree::Rules;

    let seeds: Vec<Vec<u8>> = payloads(From::Client)
        .iter()
        .filter(|payload| payload.len() >= 8)
        .map(|payload| {
            let mut batch = BatchBuilder::default();
            let origin = Origin { server: 1, conn: 2, sequence: 3 };
            let open = TxnOp::OpenSession { timeout_ms: 4000, password: Some([7; 16]) };
            batch.push(origin, 5, 0, &[], &open);
            let op = i32::from_be_bytes(payload[4..8].try_into().expect("4 bytes"));
            let body = bytes::Bytes::copy_from_slice(&payload[8..]);
            batch.push(origin, 5, 1, &[], &TxnOp::Client { op, body });
            batch.push(origin, 5, 0, &[], &TxnOp::Reap { path: "/a".into() });
            batch.push(origin, 5, 2, &[], &TxnOp::CloseSession);
            let mut payload = batch.take();
            let time = EntryTime { wall_ms: 1000, is_agreed: true, steady_ms: Some(7) };
            stamp(&mut payload, &time, Rules::DEFAULT, SECOND);
            payload
        })
        .collect();
    run(bodies::entry, &seeds, 3000);
}

#[test]
fn messages_between_servers() {
    use lockkeeper::internals::replica::PeerMessage;
    use lockkeeper::internals::replica::peer::Stamp;
    use raft::eraftpb::{Entry, Message, MessageType};

    let mut messages = vec![
        PeerMessage::Forward { term: 3, batch: bytes::Bytes::from_static(b"a batch") },
        PeerMessage::Ping {
            term: 3,
            at_us: 1,
            steady_ms: 2,
            heard: Some(Stamp { process: 1, number: 2 }),
        },
        PeerMessage::Touch {
            term: 3,
            at_us: 1,
            wall_ms: -1,
            stamp: Stamp { process: u64::MAX, number: 2 },
            base: 1,
            sessions: vec![1, -1, i64::MAX],
        },
    ];
    for kind in [
        MessageType::MsgAppend,
        MessageType::MsgAppendResponse,
        MessageType::MsgRequestPreVote,
        MessageType::MsgSnapshot,
        MessageType::MsgHeartbeat,
        MessageType::MsgReadIndex,
    ] {
        let mut message = Message { from: 2, to: 1, term: 4, index: 7, ..Message::default() };
        message.set_msg_type(kind);
        if kind == MessageType::MsgAppend {
            let entry = |index| Entry { index, term: 4, data: "data".into(), ..Entry::default() };
            message.set_entries(vec![entry(8), entry(9)].into());
        }
        if kind == MessageType::MsgSnapshot {
            let metadata = message.mut_snapshot().mut_metadata();
            metadata.index = 7;
            metadata.mut_conf_state().voters = vec![1, 2, 3];
        }
        messages.push(PeerMessage::Raft(Box::new(message)));
    }
    let encode = |message: &PeerMessage| {
        let mut out = Vec::new();
        message.encode(&mut out);
        assert!(PeerMessage::decode(out.clone().into()).is_ok());
        out
    };
    run(bodies::peer, &messages.iter().map(encode).collect::<Vec<_>>(), 20_000);
}

#[test]
fn records_of_a_state() {
    let mut seeds = vec![[&[2][..], b"/a", &[0; 100]].concat()];
    seeds.push([&[9][..], b"s\0\0\0\0\0\0\0\x05", &[0; 20]].concat());
    seeds.push([&[1][..], b"c", &[0; 16]].concat());
    run(bodies::record, &seeds, 10_000);
}

/// Behind a byte that says which checksums are set right.
fn with_modes(file: &[u8], modes: u8) -> Vec<Vec<u8>> {
    (0..modes).map(|mode| [&[mode], file].concat()).collect()
}

#[test]
fn images() {
    run(disk::image, &with_modes(&disk::good_image(), 2), 20_000);
}

#[test]
fn backups() {
    run(disk::backup, &with_modes(&disk::good_backup(), 2), 20_000);
}

#[test]
fn logs() {
    run(disk::log, &with_modes(&disk::good_log(), 4), 20_000);
}

#[test]
fn identities() {
    let body = "lockkeeper data directory\nformat 2\nensemble 4c4b\nserver 1\nraft 1\n\
                voters 1 2 3\nlearners none\nfounders 1:07 2:ff\nstate ready\ncrc32c 0\n";
    run(disk::identity, &with_modes(body.as_bytes(), 2), 5000);
}

#[test]
fn histories() {
    let mut noise = Rng::new(0x10CC_4EE9_E5F0_2202, 0);
    for _ in 0..30 {
        let input = noise.bytes(4000);
        try_with(history::history, &input);
    }
    // One client alone, and long quiet times.
    for _ in 0..20 {
        let mut input = noise.bytes(4000);
        input.iter_mut().step_by(3).for_each(|byte| *byte = 0);
        try_with(history::history, &input);
    }
}
