//! Stories of watches, on one connection and across two.

use lockkeeper_check::history::{EventKind, NoticeKind};
use lockkeeper_check::op::{Call, Mode, SetWatches};
use lockkeeper_check::verdict::Rule;

use super::Story;
use crate::common::{Service, children, create, delete, exists, set};

pub fn stories() -> Vec<Story> {
    vec![
        fired(),
        fired_after_the_reply(),
        never_fired(),
        fired_twice(),
        fired_wrongly(),
        stayed(),
        missed_by_one_that_stays(),
        missed_by_a_recursive_one(),
        told_in_another_order(),
        brought_along(),
        missed_on_the_way(),
        invented_on_the_way(),
    ]
}

fn watching(path: &str) -> Call {
    Call::Exists { path: path.to_owned(), watch: true }
}

fn tell(service: &mut Service, event: EventKind, path: &str) {
    let (zxid, path) = (service.zxid, path.to_owned());
    service.tell(1, NoticeKind::Watch { zxid, event, path });
}

/// One client waits for a znode, another makes it.
fn waiting() -> Service {
    let mut service = Service::default();
    service.run(1, watching("/a")).unwrap_err();
    let list = Call::GetChildren { path: "/".to_owned(), watch: true, stat: false };
    service.run(1, list).unwrap();
    service.run(2, create("/a", Mode::Persistent)).unwrap();
    service
}

fn fired() -> Story {
    let mut service = waiting();
    tell(&mut service, EventKind::Created, "/a");
    tell(&mut service, EventKind::ChildrenChanged, "/");
    service.run(1, exists("/a")).unwrap();
    service.run(2, set("/a", "1", -1)).unwrap();
    service.run(1, exists("/a")).unwrap();
    Story::of("watch_fired", service).about(&["watches", "monotonic"])
}

fn fired_after_the_reply() -> Story {
    let mut service = waiting();
    tell(&mut service, EventKind::Created, "/a");
    service.run(1, exists("/a")).unwrap();
    tell(&mut service, EventKind::ChildrenChanged, "/");
    Story::of("watch_fired_too_late", service).found(&[("watches", Rule::Watch)])
}

fn never_fired() -> Story {
    let mut service = waiting();
    tell(&mut service, EventKind::ChildrenChanged, "/");
    service.run(1, children("/")).unwrap();
    Story::of("watch_never_fired", service).found(&[("watches", Rule::Watch)])
}

fn fired_twice() -> Story {
    let mut service = waiting();
    tell(&mut service, EventKind::Created, "/a");
    tell(&mut service, EventKind::Created, "/a");
    tell(&mut service, EventKind::ChildrenChanged, "/");
    Story::of("watch_fired_twice", service).found(&[("watches", Rule::Watch)])
}

fn fired_wrongly() -> Story {
    let mut service = waiting();
    tell(&mut service, EventKind::DataChanged, "/a");
    Story::of("watch_fired_wrongly", service).found(&[("watches", Rule::Watch)])
}

fn staying(path: &str, recursive: bool) -> Call {
    Call::AddWatch { path: path.to_owned(), recursive }
}

/// One client has a recursive watch on `/a` and a persistent one on `/b`; another changes three
/// znodes in one transaction.
fn watched_for_good() -> Service {
    let mut service = Service::default();
    for path in ["/a", "/a/x", "/b"] {
        service.run(2, create(path, Mode::Persistent)).unwrap();
    }
    service.run(1, staying("/a", true)).unwrap();
    service.run(1, staying("/b", false)).unwrap();
    let parts = vec![set("/a/x", "1", -1), create("/b/y", Mode::Persistent), set("/a", "1", -1)];
    service.run(2, Call::Multi(parts)).unwrap();
    service
}

fn stayed() -> Story {
    let mut service = watched_for_good();
    tell(&mut service, EventKind::DataChanged, "/a/x");
    tell(&mut service, EventKind::ChildrenChanged, "/b");
    tell(&mut service, EventKind::DataChanged, "/a");
    service.run(2, set("/a/x", "2", -1)).unwrap();
    tell(&mut service, EventKind::DataChanged, "/a/x");
    service.run(2, create("/a/new", Mode::Persistent)).unwrap();
    tell(&mut service, EventKind::Created, "/a/new");
    service.run(1, exists("/a")).unwrap();
    Story::of("watches_that_stay", service).about(&["watches", "monotonic"])
}

fn missed_by_one_that_stays() -> Story {
    let mut service = watched_for_good();
    tell(&mut service, EventKind::DataChanged, "/a/x");
    tell(&mut service, EventKind::DataChanged, "/a");
    service.run(1, exists("/a")).unwrap();
    Story::of("watch_that_stays_missed", service).found(&[("watches", Rule::Watch)])
}

fn missed_by_a_recursive_one() -> Story {
    let mut service = watched_for_good();
    tell(&mut service, EventKind::ChildrenChanged, "/b");
    tell(&mut service, EventKind::DataChanged, "/a");
    service.run(1, exists("/a")).unwrap();
    Story::of("watch_that_is_recursive_missed", service).found(&[("watches", Rule::Watch)])
}

fn told_in_another_order() -> Story {
    let mut service = watched_for_good();
    tell(&mut service, EventKind::DataChanged, "/a");
    tell(&mut service, EventKind::ChildrenChanged, "/b");
    tell(&mut service, EventKind::DataChanged, "/a/x");
    service.run(1, exists("/a")).unwrap();
    Story::of("watches_told_in_another_order", service).found(&[("watches", Rule::Watch)])
}

/// A client with watches on four znodes goes to another server; meanwhile one of them has changed,
/// one is gone and one has come.
fn moving() -> Service {
    let mut service = Service::default();
    for path in ["/changed", "/gone", "/same"] {
        service.run(2, create(path, Mode::Persistent)).unwrap();
    }
    service.connect(1, "n1", 1, 0);
    for path in ["/changed", "/gone", "/same"] {
        service.run(1, watching(path)).unwrap();
    }
    service.run(1, watching("/come")).unwrap_err();
    let seen = service.zxid;
    service.run(2, set("/changed", "1", -1)).unwrap();
    service.run(2, delete("/gone")).unwrap();
    service.run(2, create("/come", Mode::Persistent)).unwrap();
    service.connect(1, "n2", 1, seen);
    service
}

/// Answers the `setWatches` of a client that has seen all up to the fourth read.
fn bring(service: &mut Service, seen: i64) {
    let data = ["/changed", "/gone", "/same"].map(str::to_owned).to_vec();
    let exist = vec!["/come".to_owned()];
    let watches = SetWatches { relative_zxid: seen, data, exist, ..SetWatches::default() };
    service.run(1, Call::SetWatches(watches)).unwrap();
}

fn tell_missed(service: &mut Service, event: EventKind, path: &str) {
    let path = path.to_owned();
    service.tell(1, NoticeKind::Watch { zxid: -1, event, path });
}

fn brought_along() -> Story {
    let mut service = moving();
    let seen = service.zxid - 3;
    tell_missed(&mut service, EventKind::DataChanged, "/changed");
    tell_missed(&mut service, EventKind::Deleted, "/gone");
    tell_missed(&mut service, EventKind::Created, "/come");
    bring(&mut service, seen);
    service.run(2, set("/same", "1", -1)).unwrap();
    tell(&mut service, EventKind::DataChanged, "/same");
    service.run(1, exists("/same")).unwrap();
    Story::of("watches_brought_along", service).about(&["watches-reconnect", "watches"])
}

fn missed_on_the_way() -> Story {
    let mut service = moving();
    let seen = service.zxid - 3;
    tell_missed(&mut service, EventKind::DataChanged, "/changed");
    tell_missed(&mut service, EventKind::Created, "/come");
    bring(&mut service, seen);
    service.run(1, exists("/gone")).unwrap_err();
    Story::of("watch_missed_on_the_way", service)
        .found(&[("watches-reconnect", Rule::WatchReconnect)])
}

fn invented_on_the_way() -> Story {
    let mut service = moving();
    let seen = service.zxid - 3;
    tell_missed(&mut service, EventKind::DataChanged, "/changed");
    tell_missed(&mut service, EventKind::Deleted, "/gone");
    tell_missed(&mut service, EventKind::Created, "/come");
    tell_missed(&mut service, EventKind::DataChanged, "/same");
    bring(&mut service, seen);
    Story::of("watch_invented_on_the_way", service)
        .found(&[("watches-reconnect", Rule::WatchReconnect)])
}
