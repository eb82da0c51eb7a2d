//! Three servers in processes of their own, with addresses that they have alone.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::ports::Network;
use crate::process::{Running, lockkeeper, output, stderr};
use crate::{say, wait_until};

pub const PEER_PORT: u16 = 17490;
pub const CLIENT_PORT: u16 = 17491;
pub const ADMIN_PORT: u16 = 17492;

/// Three servers, in processes of their own, whose logs are read.
pub struct Three {
    directory: tempfile::TempDir,
    net: Network,
    servers: [Option<Running>; 3],
}

impl Three {
    /// With addresses that no other test has.
    #[allow(clippy::new_without_default, reason = "it makes files")]
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory, net: Network::new(), servers: [None, None, None] }
    }

    /// And with the same secret in the file of each.
    pub fn with_secret() -> Self {
        let three = Self::new();
        let directory = &three.directory;
        let made = output(directory.path(), &["peer-secret", "secret1"]);
        assert!(made.status.success(), "{}", stderr(&made));
        for id in [2, 3] {
            let copy = directory.path().join(format!("secret{id}"));
            fs::copy(directory.path().join("secret1"), copy).unwrap();
        }
        three
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn file(&self, name: &str, id: u8) -> PathBuf {
        self.directory.path().join(format!("{name}{id}"))
    }

    pub fn address(&self, id: u8, port: u16) -> SocketAddr {
        format!("{}:{port}", self.host(id)).parse().unwrap()
    }

    /// Writes a server's file, with these keys.
    pub fn write(&self, keys: &str, id: u8) {
        let lines: String = (1..=3)
            .map(|id| format!("server.{id}={}:{}\n", self.address(id, PEER_PORT), PEER_PORT + 3))
            .collect();
        let text = format!(
            "dataDir={}\nclientPort={CLIENT_PORT}\nclientPortAddress={host}\n\
             admin.serverAddress={host}\nadmin.serverPort={ADMIN_PORT}\ntickTime=500\n{lines}{}",
            self.file("data", id).display(),
            keys.replace("SECRET", self.file("secret", id).to_str().unwrap())
                .replace("DIRECTORY", self.path().to_str().unwrap())
                .replace("OWN", &id.to_string()),
            host = self.host(id),
        );
        fs::write(self.file("zoo.cfg", id), text).unwrap();
    }

    /// Starts a server, or starts it again, with these keys.
    pub async fn start(&mut self, id: u8, keys: &str) {
        self.stop(id);
        self.write(keys, id);
        let arguments = ["server", &format!("zoo.cfg{id}"), "--myid", &id.to_string()];
        let mut command = lockkeeper(self.directory.path(), &arguments);
        let log = File::options().append(true).create(true).open(self.file("log", id)).unwrap();
        command.stderr(log);
        self.servers[usize::from(id) - 1] = Some(Running::of(command));
    }

    pub fn stop(&mut self, id: u8) {
        if let Some(mut server) = self.servers[usize::from(id) - 1].take() {
            server.signal(rustix::process::Signal::TERM);
            assert_eq!(server.exit().0, Some(0));
        }
    }

    pub fn log(&self, id: u8) -> String {
        fs::read_to_string(self.file("log", id)).unwrap()
    }

    pub async fn mode(&self, id: u8) -> String {
        let answer = say(self.address(id, CLIENT_PORT), b"srvr").await;
        let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "));
        mode.unwrap_or_default().to_owned()
    }

    /// The address of a server's machine.
    pub fn host(&self, id: u8) -> String {
        self.net.host(id)
    }

    /// Waits until these words are in the log of a server.
    pub async fn says(&self, id: u8, words: &str) {
        wait_until(words, async || self.log(id).contains(words)).await;
    }

    /// An operator has a server that waits found the ensemble without another one, as its log says.
    pub async fn found_without(&self, id: u8, without: u8) {
        let request = format!(
            "POST /bootstrap?without={without} HTTP/1.0\r\nX-Lockkeeper-Change: yes\r\n\r\n"
        );
        self.says(id, &format!("`lockkeeper member bootstrap --without {without}`")).await;
        wait_until("it is founded", async || {
            let answer = say(self.address(id, ADMIN_PORT), request.as_bytes()).await;
            answer.starts_with("HTTP/1.0 200")
        })
        .await;
    }

    pub async fn serve(&self, ids: &[u8]) {
        for id in ids {
            wait_until("it serves", async || !self.mode(*id).await.is_empty()).await;
        }
    }

    /// Waits until all three vote, so that any one of them may be stopped: an ensemble begins with a majority.
    pub async fn all_vote(&self) {
        wait_until("all vote", async || {
            for id in 1..=3 {
                let answer = self.admin(id, "/metrics").await;
                if answer.lines().any(|line| line == "synced_followers 2") {
                    return true;
                }
            }
            false
        })
        .await;
    }

    /// What the HTTP port of a server says.
    pub async fn admin(&self, id: u8, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        say(self.address(id, ADMIN_PORT), request.as_bytes()).await
    }

    /// A metric of a server.
    pub async fn metric(&self, id: u8, name: &str) -> u64 {
        let answer = self.admin(id, "/metrics").await;
        let value = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{name}: {answer}")).parse().expect("a number")
    }
}
