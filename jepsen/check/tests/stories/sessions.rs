//! Stories of sessions and what belongs to them.

use lockkeeper_check::op::{Answer, Call, Mode, Stat};
use lockkeeper_check::verdict::Rule;

use super::Story;
use crate::common::{Service, create, exists, set};

pub fn stories() -> Vec<Story> {
    vec![
        kept_and_ended(),
        ended_too_early(),
        never_ended(),
        outlives_followers(),
        outlives_leaders(),
        outlives_what_is_told(),
        another_session(),
        write_after_the_end(),
        ephemeral_that_stays(),
        ephemeral_that_goes(),
    ]
}

/// Two clients; the second is heard of no more and loses its session in time, the first moves.
fn kept_and_ended() -> Story {
    let mut service = Service::default();
    service.connect(1, "n1", 1, 0);
    service.connect(2, "n1", 2, 0);
    service.run(2, create("/e", Mode::Ephemeral)).unwrap();
    for _ in 0..4 {
        service.wait_ms(1000);
        service.run(1, Call::Ping).unwrap();
    }
    service.wait_ms(100);
    service.expire(2);
    let zxid = service.zxid;
    service.connect(1, "n2", 1, zxid);
    service.run(1, exists("/e")).unwrap_err();
    service.run(1, Call::Close).unwrap();
    Story::of("session_kept_and_ended", service).about(&["session-timing", "ephemerals"])
}

/// Reads answered by a follower keep a session.
fn ended_too_early() -> Story {
    let mut service = Service::default();
    service.connect(1, "n1", 1, 0);
    for _ in 0..4 {
        service.wait_ms(1000);
        service.run(1, exists("/")).unwrap();
    }
    service.wait_ms(100);
    service.expire(1);
    Story::of("session_ended_too_early", service).found(&[("session-timing", Rule::SessionKept)])
}

/// That its client sleeps is nothing that was done to a server.
fn never_ended() -> Story {
    let mut service = Service::default();
    service.connect(1, "n1", 1, 0);
    service.connect(2, "n1", 2, 0);
    service.fault("client-sleep");
    service.wait_ms(9000);
    service.run(2, set("/", "1", -1)).unwrap();
    Story::of("session_never_ended", service).found(&[("session-timing", Rule::SessionEnded)])
}

/// Six times a server is killed under a client that is not heard of, every 6 s, and the other client
/// goes on writing. Each kill is that of the leader, or none.
fn six_strikes(elects: bool) -> Service {
    let mut service = Service::default();
    service.connect(1, "n1", 1, 0);
    service.connect(2, "n1", 2, 0);
    for _ in 0..6 {
        service.fault("kill");
        service.term += u64::from(elects);
        for _ in 0..4 {
            service.wait_ms(1000);
            service.run(2, set("/", "1", -1)).unwrap();
        }
        service.fault("heal");
        service.wait_ms(1000);
        service.run(2, set("/", "2", -1)).unwrap();
        service.wait_ms(1000);
    }
    service
}

/// No election gives it another timeout, and of the servers under it only the first is its own.
fn outlives_followers() -> Story {
    Story::of("session_outlives_followers", six_strikes(false))
        .found(&[("session-timing", Rule::SessionEnded)])
}

/// Each new leader gives it its full timeout again, the last one too.
fn outlives_leaders() -> Story {
    let mut service = six_strikes(true);
    service.expire(1);
    Story::of("session_outlives_leaders", service).about(&["session-timing"])
}

/// What is told of faults when they are over prolongs nothing.
fn outlives_what_is_told() -> Story {
    let mut service = Service::default();
    service.connect(1, "n1", 1, 0);
    service.connect(2, "n1", 2, 0);
    service.fault("loss");
    service.wait_ms(1000);
    service.fault("heal");
    service.fault("packets-lost");
    for _ in 0..12 {
        service.wait_ms(1000);
        service.run(2, set("/", "1", -1)).unwrap();
    }
    Story::of("session_outlives_what_is_told", service)
        .found(&[("session-timing", Rule::SessionEnded)])
}

/// Who comes back in time is silently given a new session.
fn another_session() -> Story {
    let mut service = Service::default();
    service.connect(1, "n1", 1, 0);
    service.wait_ms(500);
    let zxid = service.zxid;
    service.connect(1, "n2", 1, zxid);
    let mut story =
        Story::of("another_session", service).found(&[("session-timing", Rule::SessionIdentity)]);
    *story.result_mut(1) = Ok(Answer::Session { session: 77, timeout_ms: 4000 });
    story
}

fn write_after_the_end() -> Story {
    let mut service = Service::default();
    service.run(1, set("/", "1", -1)).unwrap();
    service.expire(1);
    service.run(1, set("/", "2", -1)).unwrap();
    Story::of("write_after_the_end", service).found(&[("ephemerals", Rule::SessionOnce)])
}

fn ephemeral_that_stays() -> Story {
    let mut service = Service::default();
    let made = service.run(1, create("/e", Mode::Ephemeral));
    let Ok(Answer::PathStat(_, stat)) = made else { unreachable!() };
    service.expire(1);
    let read = service.invoke(2, 2, exists("/e"));
    let zxid = service.zxid;
    service.answer(read, (zxid, Ok(Answer::Stat(Stat { ..stat }))));
    Story::of("ephemeral_that_stays", service)
        .found(&[("witness", Rule::Replay), ("ephemerals", Rule::Ephemeral)])
}

fn ephemeral_that_goes() -> Story {
    let mut service = Service::default();
    let none = service.run(3, exists("/e"));
    service.run(1, create("/e", Mode::Ephemeral)).unwrap();
    let read = service.invoke(2, 2, exists("/e"));
    let zxid = service.zxid;
    service.answer(read, (zxid, none));
    Story::of("ephemeral_that_goes", service)
        .found(&[("witness", Rule::Replay), ("ephemerals", Rule::Ephemeral)])
}
