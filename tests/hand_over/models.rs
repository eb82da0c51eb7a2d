//! The models: what the driver and a connection do, and what must come of it.

use std::future::poll_fn;
use std::sync::{Arc, Mutex as StdMutex};
use std::task::{Context, Poll, Wake, Waker};

use loom::future::block_on;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use crate::config::Config;
use crate::outbox::{End, Outbox};
use crate::replica::Outgoing;
use crate::server::limits::Limits;
use crate::wakeups::Wakeups;

/// A name, the model, and the bugs that it finds.
pub(crate) type Model = (&'static str, fn(), &'static [&'static str]);

pub(crate) const MODELS: &[Model] = &[
    (
        "answers_leave_in_the_order_in_which_the_driver_gives_them",
        answers_in_order,
        &["wakeups-lost", "outbox-wakeup-lost", "answers-overtake"],
    ),
    (
        "what_was_handed_over_is_written_when_the_driver_has_waited_for_it",
        written_when_passed,
        &["wakeups-lost", "passed-is-not-told"],
    ),
    ("a_thread_that_ends_leaves_no_driver_waiting", ends, &["closed-is-not-told"]),
    (
        "the_driver_writes_by_itself_only_what_nothing_is_in_front_of",
        direct_writes,
        &["writes-past-the-queue"],
    ),
];

/// A task's waker as the runtime's: it is polled again by its own thread.
#[derive(Debug, Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

fn outbox() -> Outbox {
    Outbox::new(&Limits::of(&Config::without_file()), Arc::default())
}

/// So long that no two of them become one buffer, and told apart by their first byte.
fn answer(number: u8) -> Outgoing {
    let mut frames = vec![0; 9 << 10];
    frames[0] = number;
    Outgoing { frames, replies: 1, ..Outgoing::default() }
}

/// The first bytes of everything that was written.
type Written = Arc<StdMutex<Vec<u8>>>;

/// One poll of a connection's task: takes and writes all there is. True: it has ended.
fn poll_connection(outbox: &Outbox, context: &Context<'_>, is_local: bool, to: &Written) -> bool {
    while let Poll::Ready(taken) = outbox.poll_take(context, is_local) {
        let mut bytes = 0;
        for (position, chunk) in taken.chunks.iter().enumerate() {
            let is_begun = position == 0 && taken.head_written > 0;
            if !is_begun {
                to.lock().unwrap().push(chunk[0]);
            }
            bytes += chunk.len();
        }
        outbox.written(bytes - taken.head_written);
        if taken.end == Some(End::AfterBytes) {
            return true;
        }
    }
    false
}

/// An I/O thread with one connection, to the end of that.
fn io_thread(outbox: &Outbox, wakeups: &Wakeups, to: &Written) {
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(Arc::clone(&flag));
    let context = Context::from_waker(&waker);
    let mut has_ended = poll_connection(outbox, &context, false, to);
    block_on(async {
        let mut tasks = Vec::new();
        while !has_ended {
            let taken = poll_fn(|context| wakeups.poll_take(context, &mut tasks)).await;
            let Some(number) = taken else { return };
            tasks.drain(..).for_each(Waker::wake);
            if flag.0.swap(false, Ordering::Acquire) {
                has_ended = poll_connection(outbox, &context, false, to);
            }
            wakeups.pass(number);
        }
    });
}

/// The driver's part: pushes and hands over. The number of the batch, if it was one.
fn give(outbox: &Outbox, wakeups: &Wakeups, outgoing: Outgoing) -> Option<u64> {
    let mut tasks = Vec::new();
    outbox.push(outgoing, 0, |_| 0, |task| tasks.push(task));
    (!tasks.is_empty()).then(|| wakeups.put(&mut tasks))
}

fn answers_in_order() {
    let (line, wakeups) = (Arc::new(outbox()), Arc::new(Wakeups::default()));
    let written = Written::default();
    let (theirs, their_wakeups, to) =
        (Arc::clone(&line), Arc::clone(&wakeups), Arc::clone(&written));
    let thread = thread::spawn(move || io_thread(&theirs, &their_wakeups, &to));
    // An event, and the reply that shows its change.
    give(&line, &wakeups, answer(1));
    give(&line, &wakeups, Outgoing { close: true, ..answer(2) });
    thread.join().unwrap();
    assert_eq!(*written.lock().unwrap(), [1, 2]);
}

fn written_when_passed() {
    let (line, wakeups) = (Arc::new(outbox()), Arc::new(Wakeups::default()));
    let written = Written::default();
    let (theirs, their_wakeups, to) =
        (Arc::clone(&line), Arc::clone(&wakeups), Arc::clone(&written));
    let thread = thread::spawn(move || io_thread(&theirs, &their_wakeups, &to));
    if let Some(batch) = give(&line, &wakeups, answer(1)) {
        block_on(poll_fn(|context| wakeups.poll_passed(context, batch)));
        assert_eq!(*written.lock().unwrap(), [1], "it goes on before");
    }
    give(&line, &wakeups, Outgoing { close: true, ..answer(2) });
    thread.join().unwrap();
    assert_eq!(*written.lock().unwrap(), [1, 2]);
}

fn ends() {
    let (line, wakeups) = (Arc::new(outbox()), Arc::new(Wakeups::default()));
    let waker = Waker::from(Arc::new(Flag::default()));
    poll_connection(&line, &Context::from_waker(&waker), false, &Written::default());
    let theirs = Arc::clone(&wakeups);
    let thread = thread::spawn(move || theirs.close());
    if let Some(batch) = give(&line, &wakeups, answer(1)) {
        block_on(poll_fn(|context| wakeups.poll_passed(context, batch)));
    }
    thread.join().unwrap();
    let mut tasks = Vec::new();
    block_on(async {
        assert_eq!(poll_fn(|context| wakeups.poll_take(context, &mut tasks)).await, None);
    });
    assert!(tasks.is_empty(), "nothing is left of what was put");
}

/// The server's own thread writes short answers by itself; the lock is all that it and a task share.
fn direct_writes() {
    let line = Arc::new(outbox());
    let written = Written::default();
    let (theirs, to) = (Arc::clone(&line), Arc::clone(&written));
    let thread = thread::spawn(move || {
        block_on(poll_fn(|context| match poll_connection(&theirs, context, true, &to) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }));
    });
    for outgoing in [answer(1), answer(2), answer(3), Outgoing { close: true, ..answer(4) }] {
        let write = |bytes: &[u8]| {
            // The socket is full for one of them.
            if bytes[0] == 2 {
                return 0;
            }
            written.lock().unwrap().push(bytes[0]);
            bytes.len()
        };
        line.push(outgoing, 0, write, Waker::wake);
    }
    thread.join().unwrap();
    assert_eq!(*written.lock().unwrap(), [1, 2, 3, 4]);
}
