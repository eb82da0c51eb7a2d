//! A disk of our own, whose power can be cut: a file with an ext4 on it, mounted as a loop device.
//!
//! *Invariants*: what the file system has not given to the device when the power goes is lost, what
//! the device has is kept; nothing stays mounted when this is dropped. Needs nothing else of this
//! crate: tests/server/crash has it, too.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The file has holes where nothing was written.
const DISK_BYTES: u64 = 320 << 20;
/// A disk to which nobody writes is at rest within this time.
const REST_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Disk {
    image: PathBuf,
    mount: PathBuf,
    /// Copies so far.
    copies: u32,
}

impl Disk {
    /// A new disk, its file `disk-0` in `directory`, mounted below it at `mount`.
    ///
    /// # Errors
    /// Why there can be none.
    pub fn new(directory: &Path, mount: &str) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can mount".to_string());
        }
        run("perl", &["-e", "1"])?;
        let (image, mount) = (directory.join("disk-0"), directory.join(mount));
        std::fs::create_dir(&mount).map_err(|error| error.to_string())?;
        let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(DISK_BYTES).map_err(|error| error.to_string())?;
        run("mkfs.ext4", &["-qF", "-m", "0", text(&image)])?;
        let disk = Self { image, mount, copies: 0 };
        disk.mount()?;
        Ok(disk)
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// The journal is not committed now and then, as it usually is, but only when someone asks.
    fn mount(&self) -> Result<(), String> {
        run("mount", &["-o", "loop,commit=300", text(&self.image), text(&self.mount)])
    }

    /// Cuts the power at this moment: nothing reaches the device any more, and every call fails.
    ///
    /// # Errors
    /// It cannot be cut.
    pub fn cut_power(&self) -> Result<(), String> {
        let name = self.mount.join("switch");
        std::fs::write(&name, b"").map_err(|error| format!("{}: {error}", name.display()))?;
        // EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH: not even the journal is written.
        let script = "open(my $f, '<', $ARGV[0]) or die $!; my $how = pack('L', 2); \
                      ioctl($f, 0x8004587d, $how) or die $!;";
        run("perl", &["-e", script, text(&name)])
    }

    /// Lets the file system find an error and become read-only, though files are open for writing.
    ///
    /// # Errors
    /// It cannot be made so.
    pub fn become_read_only(&self) -> Result<(), String> {
        run("mount", &["-o", "remount,abort", text(&self.mount)])
    }

    /// Mounts it read-only. The process that used the disk has ended.
    ///
    /// # Errors
    /// Somebody uses it, or its file system does not recover.
    pub fn restart_read_only(&self) -> Result<(), String> {
        run("umount", &[text(&self.mount)])?;
        // What its journal holds is written first, as at every start of a machine.
        self.mount()?;
        run("mount", &["-o", "remount,ro", text(&self.mount)])
    }

    /// Switches the power on again. Whoever used the disk has ended.
    ///
    /// # Errors
    /// Somebody uses it, or its file system does not recover.
    pub fn restart(&self) -> Result<(), String> {
        run("umount", &[text(&self.mount)])?;
        self.mount()
    }

    /// Copies what the device has at this moment. Nobody writes to the disk meanwhile, but the
    /// system might: then the copy is of no one moment, and another one is made.
    ///
    /// # Errors
    /// It cannot be copied, or is never at rest.
    pub fn copy(&mut self) -> Result<PathBuf, String> {
        self.copies += 1;
        let copy = self.image.with_file_name(format!("disk-{}", self.copies));
        let deadline = Instant::now() + REST_MAX;
        while Instant::now() < deadline {
            let before = self.writes()?;
            run("cp", &["--sparse=always", text(&self.image), text(&copy)])?;
            if before.1 == 0 && before == self.writes()? {
                return Ok(copy);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err("the disk is never at rest".to_owned())
    }

    /// Goes on with a copy in the place of the disk. Whoever used the disk has ended.
    ///
    /// # Errors
    /// Somebody uses it, or the copy's file system does not recover.
    pub fn replace(&mut self, copy: PathBuf) -> Result<(), String> {
        run("umount", &[text(&self.mount)])?;
        self.remove_image()?;
        self.image = copy;
        self.mount()
    }

    /// Removes the file with the disk's contents, which goes when the disk is unmounted.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_image(&self) -> Result<(), String> {
        let shown = self.image.display();
        std::fs::remove_file(&self.image).map_err(|error| format!("{shown}: {error}"))
    }

    /// Writes that the device has completed, and those under way.
    fn writes(&self) -> Result<(u64, u64), String> {
        let output =
            Command::new("losetup").args(["-n", "-O", "NAME", "-j"]).arg(&self.image).output();
        let output = output.map_err(|error| format!("losetup: {error}"))?;
        let name = String::from_utf8_lossy(&output.stdout);
        let device = name.trim().strip_prefix("/dev/").ok_or("no loop device has the file")?;
        let file = format!("/sys/block/{device}/stat");
        let stat = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
        let field = |n: usize| {
            let text = stat.split_whitespace().nth(n).and_then(|text| text.parse().ok());
            text.ok_or_else(|| format!("{file} has no field {n}"))
        };
        Ok((field(4)?, field(8)?))
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
