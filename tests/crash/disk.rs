//! A disk of our own, whose power can be cut: a file with an ext4 on it, mounted as a loop device.
//!
//! *Invariants*: what the file system has not given to the device when the power goes is lost, what
//! the device has is kept; nothing stays mounted when this is dropped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::process::PATIENCE;

#[derive(Debug)]
pub struct Disk {
    image: PathBuf,
    mount: PathBuf,
    /// Copies so far.
    copies: u32,
}

impl Disk {
    /// A new disk in `directory`, or why there can be none.
    pub fn new(directory: &Path) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can mount".to_string());
        }
        run("perl", &["-e", "1"])?;
        let (image, mount) = (directory.join("disk-0"), directory.join("mount"));
        std::fs::create_dir(&mount).map_err(|error| error.to_string())?;
        let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(DISK_BYTES).map_err(|error| error.to_string())?;
        run("mkfs.ext4", &["-qF", text(&image)])?;
        let disk = Self { image, mount, copies: 0 };
        disk.mount()?;
        Ok(disk)
    }

    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// The journal is not committed now and then, as it usually is, but only when someone asks.
    fn mount(&self) -> Result<(), String> {
        run("mount", &["-o", "loop,commit=300", text(&self.image), text(&self.mount)])
    }

    /// Cuts the power at this moment: nothing reaches the device any more, and every call fails.
    pub fn cut_power(&self) {
        let name = self.mount.join("switch");
        std::fs::write(&name, b"").expect("the disk works");
        // EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH: not even the journal is written.
        let script = "open(my $f, '<', $ARGV[0]) or die $!; my $how = pack('L', 2); \
                      ioctl($f, 0x8004587d, $how) or die $!;";
        run("perl", &["-e", script, text(&name)]).expect("the power can be cut");
    }

    /// Switches the power on again. Whoever used the disk has ended.
    pub fn restart(&self) {
        run("umount", &[text(&self.mount)]).expect("nobody uses it");
        self.mount().expect("a file system that recovers");
    }

    /// Copies what the device has at this moment. Nobody writes to the disk meanwhile, but the
    /// system might: then the copy is of no one moment, and another one is made.
    pub fn copy(&mut self) -> PathBuf {
        self.copies += 1;
        let copy = self.image.with_file_name(format!("disk-{}", self.copies));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let before = self.writes();
            run("cp", &["--sparse=always", text(&self.image), text(&copy)]).expect("a copy");
            if before.1 == 0 && before == self.writes() {
                return copy;
            }
            assert!(Instant::now() < deadline, "the disk is never at rest");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Goes on with a copy in the place of the disk. Whoever used the disk has ended.
    pub fn replace(&mut self, copy: PathBuf) {
        run("umount", &[text(&self.mount)]).expect("nobody uses it");
        std::fs::remove_file(&self.image).expect("our own file");
        self.image = copy;
        self.mount().expect("a file system that recovers");
    }

    /// Writes that the device has completed, and those under way.
    fn writes(&self) -> (u64, u64) {
        let output =
            Command::new("losetup").args(["-n", "-O", "NAME", "-j"]).arg(&self.image).output();
        let name = String::from_utf8(output.expect("losetup runs").stdout).expect("a name");
        let device = name.trim().strip_prefix("/dev/").expect("a loop device");
        let stat = std::fs::read_to_string(format!("/sys/block/{device}/stat")).expect("figures");
        let field = |n: usize| stat.split_whitespace().nth(n).and_then(|text| text.parse().ok());
        (field(4).expect("writes"), field(8).expect("in flight"))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let path = text(&self.mount);
        // In a test that fails, someone may still hold it: then it goes when they do.
        let unmounted = run("umount", &[path]).or_else(|_| run("umount", &["-l", path]));
        if let Err(why) = unmounted {
            eprintln!("{path} stays mounted: {why}");
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of our own")
}

/// The file has holes where nothing was written.
const DISK_BYTES: u64 = 256 << 20;
