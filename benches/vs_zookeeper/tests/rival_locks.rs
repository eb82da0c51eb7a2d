//! The clients of other systems' locks: their codecs, and that a second holder is found.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use lockkeeper_vs_zookeeper::rivals::grpc::{self, Channel, Field};
use lockkeeper_vs_zookeeper::rivals::resp::{self, Answer};
use lockkeeper_vs_zookeeper::rivals::{Drive, Rival, run};

#[test]
fn answers_of_redis_are_read_whole_and_one_by_one() {
    let all = b"+OK\r\n$-1\r\n:1\r\n$3\r\na\r\n\r\n-NOSCRIPT no\r\n";
    let expected = [
        Answer::Word("OK".to_owned()),
        Answer::Nothing,
        Answer::Number(1),
        Answer::Text(b"a\r\n".to_vec()),
        Answer::Refusal("NOSCRIPT no".to_owned()),
    ];
    let mut at = 0;
    for expected in expected {
        let (answer, used) = resp::answer(&all[at..]).expect("valid").expect("whole");
        assert_eq!(answer, expected);
        for cut in at..at + used {
            assert_eq!(resp::answer(&all[at..cut]), Ok(None), "{cut}");
        }
        at += used;
    }
    assert_eq!(at, all.len());
    assert!(resp::answer(b"?\r\n").is_err() && resp::answer(b":x\r\n").is_err());
}

#[test]
fn a_command_for_redis_is_a_list_of_texts() {
    let mut out = Vec::new();
    resp::command(&[b"SET", b"k", b""], &mut out);
    assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n");
}

#[test]
fn fields_of_a_message_are_found_by_their_numbers() {
    let mut message = Vec::new();
    grpc::bytes(1, b"name", &mut message);
    grpc::number(2, 300, &mut message);
    grpc::number(3, -1, &mut message);
    assert_eq!(grpc::field(&message, 1), Some(Field::Bytes(b"name")));
    assert_eq!(grpc::field(&message, 2), Some(Field::Number(300)));
    assert_eq!(grpc::field(&message, 3), Some(Field::Number(-1)));
    assert_eq!(grpc::field(&message, 4), None);
    assert_eq!(grpc::field(&message[..message.len() - 1], 1), None, "cut short");
}

/// A frame as a server sends it.
fn frame(kind: u8, flags: u8, stream: u8, content: &[u8]) -> Vec<u8> {
    let head = [0, 0, content.len() as u8, kind, flags, 0, 0, 0, stream];
    [&head[..], content].concat()
}

#[test]
fn a_call_is_answered_by_its_message_between_two_headers() {
    let mut out = Vec::new();
    let mut channel = Channel::new("localhost".to_owned(), &mut out);
    channel.call("/a/b", b"request", &mut out).expect("sent");
    assert!(out.ends_with(b"\0\0\0\0\x07request"), "{}", out.escape_ascii());
    out.clear();
    let message = [&[0, 0, 0, 0, 6][..], b"answer"].concat();
    let pong = frame(6, 1, 0, b"12345678");
    let all = [
        frame(4, 0, 0, &[]),
        frame(6, 0, 0, b"12345678"),
        frame(1, 4, 1, &[0x88]),
        frame(0, 0, 1, &message),
        frame(1, 5, 1, &[0x88]),
    ]
    .concat();
    // Byte by byte, as it may come.
    let mut received = Vec::new();
    for (at, byte) in all.iter().enumerate() {
        received.push(*byte);
        let answer = channel.answer(&mut received, &mut out).expect("valid");
        assert_eq!(answer.is_some(), at + 1 == all.len());
        assert!(answer.is_none_or(|answer| answer == b"answer"));
    }
    assert_eq!(out, [frame(4, 1, 0, &[]), pong].concat(), "settings and pings are acknowledged");

    channel.call("/a/b", b"", &mut out).expect("sent");
    let mut failed = frame(1, 5, 3, &[0x88]);
    let error = channel.answer(&mut failed, &mut out).expect_err("no message");
    assert!(error.contains("failed"), "{error}");
}

/// A server that speaks Redis and gives every lock to everybody.
fn generous_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            std::thread::spawn(move || give_all(stream));
        }
    });
    addr
}

/// Answers until the client goes away.
fn give_all(mut stream: TcpStream) {
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        let text = String::from_utf8_lossy(&piece[..count]);
        let answers: String = text
            .split("\r\n")
            .filter_map(|word| match word {
                "SCRIPT" => Some("$2\r\nab\r\n"),
                "SET" => Some("+OK\r\n"),
                "EVALSHA" => Some(":1\r\n"),
                _ => None,
            })
            .collect();
        if stream.write_all(answers.as_bytes()).is_err() {
            return;
        }
    }
}

fn drive(shares: bool) -> Drive<'static> {
    let (hold, window) = (Duration::from_millis(1), Duration::from_millis(100));
    Drive { shares, hold, pids: &[], warm_up: Duration::ZERO, window }
}

#[test]
fn a_lock_that_two_have_at_a_time_is_found() {
    let servers = [generous_server()];
    let error = run(Rival::Redis, &servers, 2, &drive(true)).err().expect("two have it");
    assert!(error.contains("hold the lock at a time"), "{error}");
}

#[test]
fn locks_of_their_own_are_counted_over_one_server_and_over_three() {
    for servers in [1, 3] {
        let servers: Vec<SocketAddr> = (0..servers).map(|_| generous_server()).collect();
        let driven = run(Rival::Redis, &servers, 2, &drive(false)).expect("driven");
        assert!(driven.outcome.ops > 10, "{}", driven.outcome.ops);
        assert_eq!(driven.tries_per_lock, None, "nobody was refused");
    }
}
