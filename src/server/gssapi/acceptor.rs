//! The thread that judges tokens.
//!
//! *Owns* the exchanges that are in the middle, by connection. *Invariants*: an exchange is gone once it has succeeded
//! or failed, or its connection is closed; the queue holds at most one token and one closing of a connection, because
//! the replica has no more outside. *Never* waits for anything but the driver's queue and what an exchange reads.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;

use tokio::sync::mpsc;

use crate::replica::{ConnId, Input};
use crate::sasl::Verdict;
use crate::server::mailbox::Message;
use crate::supervision::{self, Task};

/// How far one connection is.
pub(super) trait Exchange {
    /// Takes a token of its client.
    fn step(&mut self, token: &[u8]) -> Verdict;
}

/// The driver's side.
#[derive(Debug)]
pub(super) struct Acceptor {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Order {
    Judge(ConnId, Vec<u8>),
    Forget(ConnId),
}

impl Acceptor {
    /// Starts the thread. `begin` makes the exchange of a connection.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start<E: Exchange + Send + 'static>(
        begin: impl Fn() -> E + Send + 'static,
        messages: mpsc::Sender<Message>,
    ) -> std::io::Result<Self> {
        let (orders, taken) = std::sync::mpsc::channel();
        let thread = supervision::thread(Task::Gssapi, move || run(&begin, &taken, &messages))?;
        Ok(Self { orders: Some(orders), thread: Some(thread) })
    }

    /// Has a token judged: the verdict comes as a message.
    pub(super) fn judge(&self, conn: ConnId, token: Vec<u8>) {
        self.order(Order::Judge(conn, token));
    }

    /// Forgets a connection.
    pub(super) fn closed(&self, conn: ConnId) {
        self.order(Order::Forget(conn));
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // A thread that has panicked takes none: its supervisor ends the server.
            let _ = orders.send(order);
        }
    }
}

/// Ends the thread.
impl Drop for Acceptor {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // Of a panic its supervisor knows.
            let _ = thread.join();
        }
    }
}

fn run<E: Exchange>(
    begin: &impl Fn() -> E,
    orders: &Receiver<Order>,
    messages: &mpsc::Sender<Message>,
) {
    let mut exchanges: HashMap<ConnId, E> = HashMap::new();
    while let Ok(order) = orders.recv() {
        let (conn, token) = match order {
            Order::Judge(conn, token) => (conn, token),
            Order::Forget(conn) => {
                exchanges.remove(&conn);
                continue;
            }
        };
        let verdict = exchanges.entry(conn).or_insert_with(begin).step(&token);
        if !matches!(verdict, Verdict::Challenge(_)) {
            exchanges.remove(&conn);
        }
        let judged = Message::Input(Input::SaslJudged { conn, verdict });
        if messages.blocking_send(judged).is_err() {
            // The driver has ended.
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wants two tokens, and says with the second one whose it is.
    #[derive(Default)]
    struct TwoTokens(usize);

    impl Exchange for TwoTokens {
        fn step(&mut self, token: &[u8]) -> Verdict {
            self.0 += 1;
            match (self.0, token) {
                (_, b"bad") => Verdict::Refused,
                (1, _) => Verdict::Challenge(b"go on".to_vec()),
                (_, name) => {
                    let principal = String::from_utf8(name.to_vec()).unwrap();
                    Verdict::Proven { principal }
                }
            }
        }
    }

    fn verdict(messages: &mut mpsc::Receiver<Message>) -> (ConnId, Verdict) {
        match messages.blocking_recv() {
            Some(Message::Input(Input::SaslJudged { conn, verdict })) => (conn, verdict),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn exchanges_of_connections_are_apart_and_end_with_them() {
        let (sender, mut messages) = mpsc::channel(4);
        let acceptor = Acceptor::start(TwoTokens::default, sender).unwrap();
        let go_on = Verdict::Challenge(b"go on".to_vec());
        for (conn, token, expected) in [
            (1, "a", go_on.clone()),
            (2, "b", go_on.clone()),
            (1, "alice", Verdict::Proven { principal: "alice".to_owned() }),
            (2, "bad", Verdict::Refused),
            // Both are over: what comes now begins anew.
            (1, "a", go_on.clone()),
            (2, "b", go_on.clone()),
        ] {
            acceptor.judge(conn, token.as_bytes().to_vec());
            assert_eq!(verdict(&mut messages), (conn, expected), "{conn} {token}");
        }
        acceptor.closed(1);
        acceptor.judge(1, b"a".to_vec());
        assert_eq!(verdict(&mut messages), (1, go_on), "it was forgotten");
        drop(acceptor);
        assert!(messages.blocking_recv().is_none(), "the thread has ended");
    }

    #[test]
    fn a_panic_of_the_thread_is_told() {
        use crate::supervision::{End, Failure, Supervisor};

        struct Told(Sender<Task>);

        impl End for Told {
            fn ask(&self, failure: &Failure) {
                self.0.send(failure.task).ok();
            }

            fn is_late(&self, _: &Failure) {}
        }

        struct Fails;

        impl Exchange for Fails {
            fn step(&mut self, _: &[u8]) -> Verdict {
                panic!("a defect of it")
            }
        }

        let (sender, told) = std::sync::mpsc::channel();
        let (messages, _driver) = mpsc::channel(1);
        let supervisor = Supervisor::new(Told(sender));
        let server = supervisor.thread(Task::Server, move || {
            let acceptor = Acceptor::start(|| Fails, messages).unwrap();
            acceptor.judge(1, Vec::new());
            // It has no thread any more when it is told of this one.
            drop(acceptor);
        });
        server.unwrap().join().unwrap();
        let patience = std::time::Duration::from_secs(20);
        assert_eq!(told.recv_timeout(patience), Ok(Task::Gssapi));
    }

    #[test]
    fn an_ended_driver_is_not_waited_for() {
        let (sender, messages) = mpsc::channel(1);
        let acceptor = Acceptor::start(TwoTokens::default, sender).unwrap();
        for conn in 0..10 {
            acceptor.judge(conn, Vec::new());
        }
        drop(messages);
        drop(acceptor);
    }
}
