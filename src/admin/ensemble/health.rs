//! Health checks: whether a server lives, and whether it is ready for clients.

use hyper::StatusCode;
use tokio::time::{Duration, sleep};

use crate::admin::Source;
use crate::admin::http::{Answer, plain};

/// A server lives unless a thread of it has panicked, or its driver does not come to an end of what it
/// is doing: a restart mends both. What it waits for (a disk, another server) is no reason to kill it.
pub(super) async fn liveness(source: &dyn Source) -> Answer {
    if let Some(why) = source.failure() {
        return plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"));
    }
    let is_dead = || source.stalled().filter(|stalled| *stalled >= STALLED_DEAD);
    if is_dead().is_some() {
        // A process that was stopped, and goes on, has not had its turn yet.
        sleep(SECOND_LOOK).await;
    }
    match is_dead() {
        None => plain(StatusCode::OK, "ok\n"),
        Some(stalled) => plain(StatusCode::SERVICE_UNAVAILABLE, stall(stalled) + "\n"),
    }
}

fn stall(stalled: Duration) -> String {
    format!("the driver has not come to the end of a turn for {} s", stalled.as_secs())
}

/// A driver that is busy for so long with one turn is dead. The longest that are known (a state of
/// gigabytes that is replaced, a disk that takes its time) take a few seconds.
pub(in crate::admin) const STALLED_DEAD: Duration = Duration::from_secs(30);

/// And a server that is busy for so long serves no client at the moment.
const STALLED_UNREADY: Duration = Duration::from_secs(5);

/// Time before a driver that seems dead is looked at again.
const SECOND_LOOK: Duration = Duration::from_millis(200);

pub(super) fn readiness(source: &dyn Source) -> Answer {
    let (status, mut conditions) = (source.status(), source.conditions());
    conditions.extend(source.failure());
    conditions.extend(source.stalled().filter(|time| *time >= STALLED_UNREADY).map(stall));
    if status.serving && conditions.is_empty() {
        return plain(StatusCode::OK, "ok\n");
    }
    let mut text = match status.serving {
        true => "not ready\n".to_string(),
        false => format!("not serving: this server is {}\n", status.mode.name()),
    };
    for condition in conditions {
        text += &format!("{condition}\n");
    }
    plain(StatusCode::SERVICE_UNAVAILABLE, text)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::admin::Options;
    use crate::admin::fake::Fake;
    use crate::admin::http::served::Served;

    #[tokio::test]
    async fn readiness_follows_serving_and_liveness_does_not() {
        let served = Served::new().await;
        assert_eq!(served.get("/readyz").await.status, 200);
        served.fake.paused.store(true, Ordering::Relaxed);
        let answer = served.get("/readyz").await;
        assert_eq!(answer.status, 503);
        assert!(answer.body.starts_with("not serving: "), "{}", answer.body);
        assert_eq!(served.get("/livez").await.status, 200);
        let command = served.get("/commands/srvr").await;
        assert_eq!(command.status, 200);
        assert_eq!(
            command.json()["error"],
            "This ZooKeeper instance is not currently serving requests"
        );
        served.fake.paused.store(false, Ordering::Relaxed);
        assert_eq!(served.get("/readyz").await.status, 200);
    }

    #[tokio::test]
    async fn a_server_with_a_panicked_thread_or_a_driver_that_is_stuck_is_not_alive() {
        let asked = async |fake| {
            let served = Served::with(fake, Options::default()).await;
            (served.get("/livez").await, served.get("/readyz").await)
        };
        let failure = Some("defect in driver".to_owned());
        let (live, ready) = asked(Fake { failure, ..Fake::standalone() }).await;
        assert_eq!((live.status, live.body.as_str()), (503, "defect in driver\n"));
        assert_eq!(ready.status, 503);
        for (seconds, statuses) in [(4, (200, 200)), (6, (200, 503)), (31, (503, 503))] {
            let stalled = Some(Duration::from_secs(seconds));
            let (live, ready) = asked(Fake { stalled, ..Fake::standalone() }).await;
            assert_eq!((live.status, ready.status), statuses, "{seconds}");
            let says_so = format!("the driver has not come to the end of a turn for {seconds} s");
            assert_eq!(ready.body.contains(&says_so), seconds > 5, "{}", ready.body);
        }
    }

    #[tokio::test]
    async fn a_server_with_something_wrong_says_what_and_is_not_ready() {
        let served = Served::new().await;
        served.fake.conditions.lock().unwrap().push("the disk hangs".to_string());
        let answer = served.get("/readyz").await;
        assert_eq!((answer.status, answer.body.as_str()), (503, "not ready\nthe disk hangs\n"));
        served.fake.paused.store(true, Ordering::Relaxed);
        let answer = served.get("/readyz").await;
        assert!(answer.body.starts_with("not serving: "), "{}", answer.body);
        assert!(answer.body.ends_with("\nthe disk hangs\n"), "{}", answer.body);
        served.fake.conditions.lock().unwrap().clear();
        served.fake.paused.store(false, Ordering::Relaxed);
        assert_eq!(served.get("/readyz").await.status, 200);
    }
}
