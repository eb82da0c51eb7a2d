//! Three servers in processes of their own, as operators start them: what is killed here is killed by
//! SIGKILL.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::{ask, ports, wait_until};

/// Three servers. End with it.
pub struct Trio {
    directory: TempDir,
    lines: String,
    seats: Vec<Seat>,
}

/// A server's place, whether it runs or not.
struct Seat {
    client: SocketAddr,
    process: Option<Child>,
}

impl Trio {
    /// Returns when all of them serve. `lines` are for their zoo.cfg.
    pub async fn start(lines: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (peers, clients) = (ports::ports::<3>(), ports::ports::<3>());
        let mut lines = lines.join("\n");
        for (id, port) in (1..).zip(peers) {
            // The election port is never bound.
            lines += &format!("\nserver.{id}=127.0.0.1:{port}:{}", port ^ 1);
        }
        let seat = |port| Seat { client: SocketAddr::from(([127, 0, 0, 1], port)), process: None };
        let mut trio = Self { directory, lines, seats: clients.into_iter().map(seat).collect() };
        for server in 0..trio.seats.len() {
            trio.run(server);
        }
        trio.leader().await;
        trio
    }

    /// Where clients connect.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.seats.iter().map(|seat| seat.client).collect()
    }

    pub fn connect_string(&self) -> String {
        let addresses: Vec<String> = self.addresses().iter().map(ToString::to_string).collect();
        addresses.join(",")
    }

    /// The audit log of all of them: what they do not agree on stands there twice.
    pub fn audit_log(&self) -> PathBuf {
        self.directory.path().join("audit.log")
    }

    /// Starts one, with what it has on disk, and does not wait for it.
    pub fn run(&mut self, server: usize) {
        let home = self.directory.path().join((server + 1).to_string());
        let (data, config) = (home.join("data"), home.join("zoo.cfg"));
        std::fs::create_dir_all(&data).expect("a directory");
        std::fs::write(data.join("myid"), format!("{}\n", server + 1)).expect("written");
        let (address, lines) = (self.seats[server].client, &self.lines);
        let io_threads = super::io_threads();
        let io_threads =
            io_threads.map_or_else(String::new, |n| format!("lockkeeper.ioThreads={n}\n"));
        let text = format!(
            "dataDir={}\nclientPort={}\nclientPortAddress={}\nadmin.enableServer=false\n\
             lockkeeper.auditLog={}\n{io_threads}{lines}\n",
            data.display(),
            address.port(),
            address.ip(),
            self.audit_log().display()
        );
        std::fs::write(&config, text).expect("written");
        let said = File::options().append(true).create(true).open(home.join("said"));
        let mut command = Command::new(super::binary());
        command.arg("server").arg(config).current_dir(&home).env_remove("RUST_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.expect("a file"));
        self.seats[server].process = Some(command.spawn().expect("the binary runs"));
    }

    /// SIGKILL.
    pub fn kill(&mut self, server: usize) {
        let mut process = self.seats[server].process.take().expect("it runs");
        process.kill().expect("our child");
        process.wait().expect("our child");
    }

    /// Waits until all that run serve; which one leads.
    pub async fn leader(&mut self) -> usize {
        let mut leader = None;
        wait_until("one leads, and the others follow", async || {
            leader = self.settled().await;
            leader.is_some()
        })
        .await;
        leader.expect("waited for")
    }

    async fn settled(&mut self) -> Option<usize> {
        let mut leader = None;
        for server in 0..self.seats.len() {
            let Some(process) = &mut self.seats[server].process else { continue };
            if let Some(status) = process.try_wait().expect("our child") {
                let said = self.directory.path().join((server + 1).to_string()).join("said");
                let said = std::fs::read_to_string(said).unwrap_or_default();
                panic!("server {}: {status}: {said}", server + 1);
            }
            let said = ask(self.seats[server].client, b"srvr").await.ok()?;
            if said.lines().find_map(|line| line.strip_prefix("Mode: "))? == "leader" {
                leader = Some(server);
            }
        }
        leader
    }
}

impl Drop for Trio {
    fn drop(&mut self) {
        for process in self.seats.iter_mut().filter_map(|seat| seat.process.as_mut()) {
            // It has ended, if the test has failed for that.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
