//! Histories as lines of JSON: the same after a round, and broken lines named.

use lockkeeper_check::history::{
    EventKind, History, IN_FLIGHT, Notice, NoticeKind, Operation, Outcome, Recorder, StoreWrite,
};
use lockkeeper_check::json::{read_history, write_history};
use lockkeeper_check::op::{Acl, Answer, Call, Code, Create, CreateOp, Mode, SetWatches, Stat};

fn create(path: &str, mode: Mode) -> Call {
    let acl = vec![Acl { perms: 1, scheme: "digest".to_owned(), id: "u:x".to_owned() }];
    let data = Some(vec![0xff, 0]);
    Call::Create(Create {
        op: CreateOp::Create2,
        path: path.to_owned(),
        data,
        acl,
        mode,
        ttl_ms: 0,
    })
}

/// One of every call, with an answer of its form.
fn calls() -> Vec<(Call, Result<Answer, Code>)> {
    let p = || "/a b\"\n\u{fc}".to_owned();
    let stat = Stat { czxid: 1 << 40, ephemeral_owner: -1, cversion: -2, ..Stat::default() };
    let part = |mode| (create("/m", mode), Ok(Answer::PathStat("/m".to_owned(), stat)));
    let (first, second) = (part(Mode::Ephemeral), part(Mode::Persistent));
    let check = Call::Check { path: p(), version: 3 };
    let multi = Call::Multi(vec![first.0, check.clone(), second.0]);
    let read = Call::GetData { path: p(), watch: false };
    let read_answer = Ok(Answer::Data(None, stat));
    let many = Call::MultiRead(vec![read.clone(), Call::Exists { path: p(), watch: false }]);
    let watches = SetWatches { relative_zxid: 5, exist: vec![p()], ..SetWatches::default() };
    let session = Answer::Session { session: i64::MIN, timeout_ms: 4000 };
    let acl = Acl::open();
    let names = vec!["b".to_owned(), "a".to_owned()];
    let done = || Ok(Answer::Done);
    vec![
        (Call::Connect { session: -9, timeout_ms: 1, last_zxid: 7 }, Ok(session)),
        (Call::Ping, done()),
        (create("/x-", Mode::EphemeralSequential), Err(Code::NO_NODE)),
        (Call::Delete { path: p(), version: -1 }, done()),
        (Call::SetData { path: p(), data: None, version: 2 }, Ok(Answer::Stat(stat))),
        (Call::SetAcl { path: p(), acl: acl.clone(), version: 2 }, Err(Code(-77))),
        (
            multi.clone(),
            Ok(Answer::Parts(vec![first.1, Err(Code::OK), Err(Code::RUNTIME_INCONSISTENCY)])),
        ),
        (multi, Ok(Answer::Parts(vec![second.1.clone(), done(), second.1]))),
        (Call::Exists { path: p(), watch: true }, Ok(Answer::Stat(stat))),
        (read, read_answer.clone()),
        (Call::GetAcl { path: p() }, Ok(Answer::Acl(acl, stat))),
        (
            Call::GetChildren { path: p(), watch: true, stat: false },
            Ok(Answer::Children(names.clone(), None)),
        ),
        (
            Call::GetChildren { path: p(), watch: false, stat: true },
            Ok(Answer::Children(names.clone(), Some(stat))),
        ),
        (Call::AllChildrenNumber { path: p() }, Ok(Answer::Number(3))),
        (Call::Ephemerals { prefix: p() }, Ok(Answer::Paths(names))),
        (many, Ok(Answer::Parts(vec![read_answer, Err(Code::NO_AUTH)]))),
        (Call::Sync { path: p() }, done()),
        (Call::SetWatches(watches), done()),
        (Call::AddWatch { path: p(), recursive: true }, done()),
        (Call::RemoveWatches { path: p(), kind: 3 }, Err(Code::NO_WATCHER)),
        (Call::Other("reconfig".to_owned()), done()),
        (Call::Close, done()),
    ]
}

fn of_everything() -> History {
    let mut recorder = Recorder::default();
    for (at, (call, result)) in calls().into_iter().enumerate() {
        let time = at as u64 * 10;
        let mut operation = Operation::new(3, call);
        operation.session = -1;
        operation.xid = i32::try_from(at).ok();
        operation.node = Some("n1".to_owned());
        operation.ids = vec![("digest".to_owned(), "u:x".to_owned())];
        let id = recorder.invoke(time, operation);
        recorder.replied(time + 1, id, 100 + at as i64, result);
    }
    recorder.fault(1000, "kill", "n1");
    for kind in [
        NoticeKind::Watch { zxid: 9, event: EventKind::Deleted, path: "/a".to_owned() },
        NoticeKind::Disconnected,
        NoticeKind::Expired,
        NoticeKind::Holds { lock: "/l".to_owned(), znode: "/l/x-1".to_owned(), token: 1 << 60 },
        NoticeKind::HoldsNoMore { lock: "/l".to_owned() },
        NoticeKind::Stored(StoreWrite {
            store: "s".to_owned(),
            token: 7,
            read: -1,
            wrote: 2,
            accepted: true,
        }),
    ] {
        let at = lockkeeper_check::history::Moment::default();
        recorder.notice(1001, Notice { at, process: 3, node: None, session: 1 << 60, kind });
    }
    let pipelined: Vec<_> = (1..=3)
        .map(|xid| {
            let mut operation = Operation::new(4, Call::Ping);
            operation.xid = Some(xid);
            recorder.invoke(1002, operation)
        })
        .collect();
    recorder.gave_up(1003, pipelined[1], "ConnectionLoss");
    recorder.not_sent(1004, pipelined[0], "refused");
    recorder.finish()
}

#[test]
fn a_history_is_the_same_after_it_was_written_and_read() {
    let history = of_everything();
    let text = write_history(&history);
    assert_eq!(read_history("h", &text).unwrap(), history);
    assert_eq!(text, write_history(&read_history("h", &text).unwrap()));
}

#[test]
fn an_operation_without_an_end_is_read_as_unknown() {
    let text = r#"{"time":1,"type":"invoke","process":1,"f":"delete","value":{"path":"/a"}}"#;
    let history = read_history("h", text).unwrap();
    let unknown = Outcome::Unknown { at: None, reason: IN_FLIGHT.to_owned() };
    assert_eq!(history.operations[0].outcome, unknown);
}

#[test]
fn a_broken_line_is_named_by_file_and_line() {
    let invoke = r#"{"time":1,"type":"invoke","process":1,"f":"ping","xid":1}"#;
    for (line, message) in [
        ("{", "run.jsonl:3: no JSON: "),
        ("[]", "run.jsonl:3: the line is no object"),
        (r#"{"time":2,"type":"ok","process":2,"f":"ping"}"#, "run.jsonl:3: it is not clear"),
        (r#"{"time":2,"type":"ok","process":1,"f":"ping","xid":9}"#, "run.jsonl:3: no open"),
        (r#"{"time":2,"type":"ok","process":1,"f":"sync"}"#, "run.jsonl:3: sync ends ping"),
        (r#"{"time":2,"type":"maybe","process":1,"f":"ping"}"#, "run.jsonl:3: type is none"),
        (r#"{"time":-2,"type":"ok","process":1,"f":"ping"}"#, "run.jsonl:3: time is no"),
        (r#"{"index":0,"time":2,"type":"ok","process":1,"f":"ping"}"#, "run.jsonl:3: index does"),
        (r#"{"time":2,"type":"invoke","process":1,"f":"steal"}"#, "run.jsonl:3: f is no operation"),
        (
            r#"{"time":2,"type":"fail","process":1,"f":"ping","zxid":1,"error":"Oops"}"#,
            "run.jsonl:3: error is no code",
        ),
    ] {
        let text = format!("{invoke}\n\n{line}\n");
        let error = read_history("run.jsonl", &text).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn no_prefix_of_a_history_makes_the_reader_panic() {
    let text = write_history(&of_everything());
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)).step_by(7) {
        let _ = read_history("h", &text[..end]);
    }
}
