//! The shell at a terminal: prompt, completion, history, and events above the line.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Child;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::{Heard, command, server};
use testkit::{Client, wait_until};

/// A shell at a terminal of its own.
struct Terminal {
    child: Child,
    keys: File,
    screen: Heard,
}

impl Terminal {
    fn start(servers: &str, history: &std::path::Path) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&ours).expect("it is ours");
        unlockpt(&ours).expect("it is ours");
        let size = Winsize { ws_row: 50, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&ours, size).expect("a size");
        let name = ptsname(&ours, Vec::new()).expect("a name");
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let theirs = || -> OwnedFd {
            let mut options = OpenOptions::new();
            options.read(true).write(true).open(path).expect("the other side").into()
        };
        let mut command = command(servers);
        command.env("TERM", "xterm").env("LOCKKEEPER_HISTORY", history);
        command.stdin(theirs()).stdout(theirs()).stderr(theirs());
        let child = command.spawn().expect("the binary runs");
        // Only the child has the other side open now: its end is the end of what we read.
        drop(command);
        let keys = File::from(ours);
        let screen = Heard::listen(keys.try_clone().expect("a second handle"));
        Self { child, keys, screen }
    }

    fn keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    async fn shows(&self, text: &str) {
        self.screen.wait_for(text).await;
    }

    async fn end(&mut self) -> Option<i32> {
        wait_until("it ends", async || self.child.try_wait().expect("our child").is_some()).await;
        self.child.wait().expect("it has ended").code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the shell says to the terminal at the beginning of a line: that pasted text is to be marked.
const LINE_BEGINS: &str = "\u{1b}[?2004h";

#[tokio::test]
async fn verbs_and_paths_are_completed_and_events_appear_above_the_line() {
    let server = server().await;
    let directory = tempfile::tempdir().expect("a directory");
    let history = directory.path().join("history");
    let mut client = Client::connect(server.local_addr()).await;
    client.create("/locks", b"x", 0).await.expect("created");
    client.create("/locks/report", b"nightly", 0).await.expect("created");

    let mut terminal = Terminal::start(&server.connect_string(), &history);
    terminal.shows("(CONNECTED) 0] ").await;
    terminal.keys("getAllC\t/lo\t/re\t");
    terminal.shows("getAllChildrenNumber /locks/report").await;
    terminal.keys("\r");
    terminal.shows("\n0\r\n").await;
    terminal.keys("addauth digest bob:secret\r");
    terminal.shows("(CONNECTED) 2] ").await;
    // The history, from the end: what may be a secret is not in it.
    terminal.screen.forget();
    terminal.keys("\u{1b}[A\r");
    terminal.shows("\n0\r\n").await;
    // A line is given up, the shell is not. (Only at the prompt: elsewhere the key is a signal.)
    terminal.shows("(CONNECTED) 3] ").await;
    terminal.screen.forget();
    terminal.keys("nonsense\u{3}");
    // Keys that were typed ahead are given up as well: these wait for the next line to begin.
    terminal.shows(LINE_BEGINS).await;
    terminal.keys("whoami\r");
    terminal.shows("digest: bob\r\n").await;
    terminal.keys("get -w /locks/report\r");
    terminal.shows("nightly\r\n").await;
    terminal.shows("(CONNECTED) 5] ").await;
    client.set("/locks/report", b"weekly").await.expect("set");
    terminal.shows("type:NodeDataChanged path:/locks/report").await;
    terminal.keys("\u{4}");
    assert_eq!(terminal.end().await, Some(0));
    let kept = std::fs::read_to_string(&history).expect("the history is kept");
    assert!(kept.contains("get -w /locks/report\n"), "{kept}");
    assert!(!kept.contains("secret"), "{kept}");
    server.stop().await.expect("it stops");
}

#[tokio::test]
async fn control_characters_of_a_znode_do_not_reach_the_terminal() {
    let server = server().await;
    let directory = tempfile::tempdir().expect("a directory");
    let mut client = Client::connect(server.local_addr()).await;
    client.create("/a", b"\x1b]0;evil\x07", 0).await.expect("created");
    let mut terminal = Terminal::start(&server.connect_string(), &directory.path().join("history"));
    terminal.shows("(CONNECTED) 0] ").await;
    terminal.keys("get /a\r");
    terminal.shows("\\u{1b}]0;evil\\u{7}").await;
    terminal.keys("quit\r");
    assert_eq!(terminal.end().await, Some(0));
    assert!(!terminal.screen.so_far().contains("\u{1b}]0;"));
    server.stop().await.expect("it stops");
}
