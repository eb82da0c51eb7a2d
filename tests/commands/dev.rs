//! `lockkeeper dev` as somebody who tries it sees it.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::NamedTempFile;
use testkit::{Client, EPHEMERAL};

/// The command, with its standard input and output, and what it logs.
struct Dev {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    log: NamedTempFile,
}

impl Dev {
    /// Starts it; with it, the addresses for clients.
    fn start(flags: &[&str]) -> (Self, Vec<SocketAddr>) {
        let log = NamedTempFile::new().expect("a file");
        let mut child = Command::new(testkit::binary())
            .args([&["dev", "--port", "0"], flags].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.reopen().expect("the file"))
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut dev = Self { child, lines, log };
        let connect = dev.line(|line| line.starts_with("connect  "));
        let addresses = connect["connect  ".len()..].split(',');
        let addresses = addresses.map(|text| text.parse().expect("an address")).collect();
        dev.line(|line| line.starts_with("Say: "));
        (dev, addresses)
    }

    /// The next line of this kind.
    fn line(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let lines = self.lines.by_ref().map(|line| line.expect("text"));
        lines.into_iter().find(|line| wanted(line)).unwrap_or_else(|| {
            let log = std::fs::read_to_string(self.log.path()).expect("a log");
            panic!("it ended without such a line: {:?}\n{log}", self.child.wait())
        })
    }

    fn say(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("piped");
        writeln!(input, "{line}").expect("it listens");
    }

    /// Its exit code, once it has ended.
    fn exit(mut self) -> Option<i32> {
        self.child.wait().expect("our child").code()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // It may have ended, as it should.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_session_outlives_the_leader_that_is_killed_by_a_word() {
    let (mut dev, addresses) = Dev::start(&[]);
    assert_eq!(addresses.len(), 3);
    dev.say("status");
    let leads = |line: &str| line.starts_with("server ") && line.contains(" leader ");
    let leader = dev.line(leads)["server ".len()..].chars().next().expect("a number");
    let number = leader.to_digit(10).expect("a digit") as usize;
    let mut client = Client::connect(addresses[number - 1]).await;
    client.create("/held", b"", EPHEMERAL).await.unwrap();

    dev.say("kill leader");
    let killed = format!("server {leader} is killed; `start {leader}` brings it back");
    dev.line(|line| line == killed);
    dev.line(|line| line.contains(" leads"));
    client.closed().await;
    let other = addresses[number % 3];
    let mut again = Client::open(other, &client.again()).await.expect("an answer");
    assert_eq!(again.session.session_id, client.session.session_id);
    assert!(again.exists("/held").await);

    dev.say(&format!("start {leader}"));
    dev.line(|line| line == format!("server {leader} runs again"));
    dev.say("quit");
    assert_eq!(dev.exit(), Some(0));
}

#[tokio::test]
async fn a_directory_that_is_given_is_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let (mut dev, addresses) = Dev::start(&["--data-dir", path]);
    Client::connect(addresses[0]).await.create("/kept", b"", 0).await.unwrap();
    dev.say("quit");
    assert_eq!(dev.exit(), Some(0));

    let (mut dev, again) = Dev::start(&["--data-dir", path]);
    assert_eq!(again, addresses);
    assert!(Client::connect(again[2]).await.exists("/kept").await);
    dev.say("quit");
    assert_eq!(dev.exit(), Some(0));
}
