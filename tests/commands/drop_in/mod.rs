//! A first start with what people have: their folders, their files, their hosts.

mod files;
mod folders;
mod hosts;
mod values;

use std::path::Path;

use rustix::process::Signal;
use testkit::process::Running;

/// Starts a server on this file, written to `zoo.cfg` in the directory.
fn start(directory: &Path, file: &str) -> Running {
    std::fs::write(directory.join("zoo.cfg"), file).unwrap();
    Running::start(directory, &["zoo.cfg"])
}

/// Ends it, and returns what it has logged.
fn stop(mut server: Running) -> String {
    use std::io::Read as _;
    server.signal(Signal::TERM);
    assert_eq!(server.exit().0, Some(0));
    let mut said = String::new();
    server.child.stderr.take().expect("piped").read_to_string(&mut said).expect("UTF-8");
    said
}

/// A lone server on loopback with any free port.
const ALONE: &str =
    "dataDir=data\nclientPort=0\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n";
