//! The few names of `testcontainers` that zookeeper-client-rust's tests use, with a process of the server under test
//! (`$SUT [-D..] zoo.cfg`) in place of a docker container of the image `zookeeper`.
use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::marker::PhantomData;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

pub mod clients {
    #[derive(Default, Debug)]
    pub struct Cli;
    impl Cli {
        pub fn run(
            &self,
            image: crate::core::RunnableImage<crate::images::generic::GenericImage>,
        ) -> crate::core::Container<'_, crate::images::generic::GenericImage> {
            crate::start(image)
        }
    }
}
pub mod images {
    pub mod generic {
        #[derive(Debug, Clone, Default)]
        pub struct GenericImage {
            pub tag: String,
            pub env: std::collections::HashMap<String, String>,
        }
        impl GenericImage {
            pub fn new(_name: impl Into<String>, tag: impl Into<String>) -> Self {
                Self { tag: tag.into(), ..Default::default() }
            }
            pub fn with_env_var(mut self, k: impl Into<String>, v: impl Into<String>) -> Self {
                self.env.insert(k.into(), v.into());
                self
            }
            pub fn with_healthcheck(self, _h: crate::core::Healthcheck) -> Self {
                self
            }
            pub fn with_wait_for(self, _w: crate::core::WaitFor) -> Self {
                self
            }
        }
    }
}
pub mod core {
    pub use crate::Container;
    use std::time::Duration;
    #[derive(Default, Debug)]
    pub struct Healthcheck;
    impl Healthcheck {
        pub fn with_cmd<S: AsRef<str>>(self, _c: impl Iterator<Item = S>) -> Self {
            self
        }
        pub fn with_interval(self, _d: Duration) -> Self {
            self
        }
        pub fn with_retries(self, _n: u32) -> Self {
            self
        }
    }
    pub enum WaitFor {
        Healthcheck,
    }
    pub struct RunnableImage<I> {
        pub image: I,
        pub volumes: Vec<(String, String)>,
        pub network: Option<String>,
    }
    impl<I> From<I> for RunnableImage<I> {
        fn from(image: I) -> Self {
            Self { image, volumes: vec![], network: None }
        }
    }
    impl<I> RunnableImage<I> {
        pub fn with_volume(mut self, v: (impl Into<String>, impl Into<String>)) -> Self {
            self.volumes.push((v.0.into(), v.1.into()));
            self
        }
        pub fn with_network(mut self, n: impl Into<String>) -> Self {
            self.network = Some(n.into());
            self
        }
    }
    pub struct LogStream {
        pub(crate) log: std::path::PathBuf,
        pub(crate) port: u16,
    }
    impl LogStream {
        /// ZooKeeper logs the message; another server may say the same by `isro` (for "Read-only server started").
        pub fn wait_for_message(self, m: &str) -> Result<(), String> {
            let end = std::time::Instant::now() + Duration::from_secs(90);
            while std::time::Instant::now() < end {
                if std::fs::read_to_string(&self.log).unwrap_or_default().contains(m) {
                    return Ok(());
                }
                if m.contains("Read-only")
                    && crate::flw(self.port, "isro").map_or(false, |r| r.trim() == "ro")
                {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(format!("no {m:?} within 90 s"))
        }
    }
}

pub struct Container<'d, I> {
    child: Mutex<Option<Child>>,
    cfg: PathBuf,
    log: PathBuf,
    port: u16,
    props: Vec<String>,
    secure: bool,
    _dir: tempfile::TempDir,
    _p: PhantomData<(&'d (), I)>,
}

fn flw(port: u16, cmd: &str) -> Option<String> {
    let mut s = TcpStream::connect(("127.0.0.1", port)).ok()?;
    s.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    s.write_all(cmd.as_bytes()).ok()?;
    let mut r = String::new();
    let _ = s.read_to_string(&mut r);
    Some(r)
}

fn start(
    image: core::RunnableImage<images::generic::GenericImage>,
) -> Container<'static, images::generic::GenericImage> {
    let want = std::env::var("SUT_TAGS").unwrap_or_else(|_| "3.9".into());
    if !image.image.tag.starts_with(&want) {
        panic!("SKIP: this test needs the docker image zookeeper:{}", image.image.tag);
    }
    let dir = tempfile::tempdir().unwrap();
    let map: HashMap<String, String> =
        image.volumes.iter().map(|(s, d)| (d.clone(), s.clone())).collect();
    let host = image.network.as_deref() == Some("host");
    let port = {
        let l = TcpListener::bind("127.0.0.1:0").unwrap();
        l.local_addr().unwrap().port()
    };
    let data = map.get("/data").cloned().unwrap_or_else(|| {
        let d = dir.path().join("data");
        fs::create_dir_all(&d).unwrap();
        d.to_str().unwrap().to_string()
    });
    let given = map.get("/conf/zoo.cfg").map(|p| fs::read_to_string(p).unwrap());
    let mut text = given.unwrap_or_else(|| {
        format!("dataDir={data}\nclientPort=2181\ninitLimit=5\nsyncLimit=2\nmaxClientCnxns=60\n")
    });
    if !text.contains("tickTime") {
        text += "tickTime=2000\n";
    }
    text += "admin.enableServer=false\n4lw.commands.whitelist=*\n";
    text = text.replace("dataDir=/data\n", &format!("dataDir={data}\n"));
    let mut props: Vec<String> = image
        .image
        .env
        .get("SERVER_JVMFLAGS")
        .map(|s| s.split_whitespace().map(String::from).collect())
        .unwrap_or_default();
    for (d, s) in &map {
        if d == "/data" || d == "/conf/zoo.cfg" {
            continue;
        }
        text = text.replace(d.as_str(), s);
        for p in &mut props {
            *p = p.replace(d.as_str(), s);
        }
    }
    let mut real_port = port;
    if host {
        // the client address is in this server's own server.N line
        let id = fs::read_to_string(format!("{data}/myid")).unwrap_or_default().trim().to_string();
        for l in text.lines() {
            if l.starts_with(&format!("server.{id}=")) {
                real_port = l.rsplit(':').next().unwrap().trim().parse().unwrap();
            }
        }
    } else {
        text = text.replace("lientPort=2181", &format!("lientPort={port}"));
    }
    let secure = text.contains("secureClientPort") || (text.contains("ssl.clientAuth"));
    let cfg = dir.path().join("zoo.cfg");
    fs::write(&cfg, text).unwrap();
    let c = Container {
        child: Mutex::new(None),
        cfg,
        log: dir.path().join("server.log"),
        port: real_port,
        props,
        secure,
        _dir: dir,
        _p: PhantomData,
    };
    c.start();
    c
}

impl<'d, I> Container<'d, I> {
    pub fn start(&self) {
        let mut g = self.child.lock().unwrap();
        if g.is_some() {
            return;
        }
        let log = fs::OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
        let sut = std::env::var("SUT").expect("SUT: path of server-under-test");
        *g = Some(
            Command::new(sut)
                .args(&self.props)
                .arg(&self.cfg)
                .stdin(Stdio::null())
                .stdout(log.try_clone().unwrap())
                .stderr(log)
                .spawn()
                .unwrap(),
        );
        drop(g);
        let t0 = Instant::now();
        loop {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                if self.secure {
                    std::thread::sleep(Duration::from_millis(500));
                    return;
                }
                match flw(self.port, "srvr") {
                    Some(r) if r.contains("Mode:") => return,
                    _ => {}
                }
                if t0.elapsed() > Duration::from_secs(60) {
                    return;
                } // up, but says nothing
            }
            if let Some(c) = self.child.lock().unwrap().as_mut() {
                if let Ok(Some(st)) = c.try_wait() {
                    panic!(
                        "server under test exited at start: {st}: {}",
                        fs::read_to_string(&self.log).unwrap_or_default()
                    );
                }
            }
            if t0.elapsed() > Duration::from_secs(90) {
                panic!("server under test did not come up");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    pub fn stop(&self) {
        if let Some(mut c) = self.child.lock().unwrap().take() {
            let _ = Command::new("kill").arg(c.id().to_string()).status();
            let t0 = Instant::now();
            while t0.elapsed() < Duration::from_secs(10) {
                if let Ok(Some(_)) = c.try_wait() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = c.kill();
            let _ = c.wait();
        }
    }
    pub fn stdout(&self) -> core::LogStream {
        core::LogStream { log: self.log.clone(), port: self.port }
    }
    pub fn get_host_port(&self, _p: u16) -> u16 {
        self.port
    }
}
impl<'d, I> Drop for Container<'d, I> {
    fn drop(&mut self) {
        if let Some(mut c) = self.child.lock().unwrap().take() {
            let _ = c.kill();
            let _ = c.wait();
        }
    }
}
