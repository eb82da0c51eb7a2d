//! `lockkeeper bench` as its users see it: the real binary against a server in this process.

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::Server;
use lockkeeper::internals::bench::{PATIENCE, Session, wire};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::runtime::Runtime;

/// Where the tool works.
const ROOT: &str = "/lockkeeper-bench";

/// A server that lives as long as this.
struct Site {
    _runtime: Runtime,
    server: Server,
}

impl Site {
    fn new() -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let builder = Server::builder()
            .in_memory()
            .tick_time(Duration::from_millis(100))
            .session_timeouts(Duration::from_millis(400), Duration::from_secs(60));
        let server = runtime.block_on(builder.start()).expect("a server");
        Self { _runtime: runtime, server }
    }

    fn bench(&self, arguments: &[&str]) -> Child {
        start(&[&["--hosts", &self.server.connect_string()], arguments].concat())
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.bench(arguments).wait_with_output().expect("it ends")
    }

    /// The figures of a run that went well.
    fn figures(&self, arguments: &[&str]) -> Value {
        let output = self.output(&[&["-o", "json"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", said(&output));
        serde_json::from_slice(&output.stdout).expect("an object")
    }

    fn session(&self) -> Session {
        let address = self.server.connect_string().parse().expect("an address");
        Session::open(address, PATIENCE).expect("a session")
    }

    /// Waits until the tool has made the znode of its first connection.
    fn first_znode(&self, session: &mut Session) -> String {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < PATIENCE, "it makes no znode");
            std::thread::sleep(Duration::from_millis(5));
            let Some(room) = child(session, ROOT) else { continue };
            let path = format!("{ROOT}/{room}/c00000");
            if session.read(&path).is_ok_and(|(_, version)| version > 0) {
                return path;
            }
        }
    }
}

/// The name of a znode's only child.
fn child(session: &mut Session, path: &str) -> Option<String> {
    let answer = session.call(wire::children(path, false)).expect("an answer");
    let name = wire::buffer_at(&answer.body, 4)?;
    Some(String::from_utf8(name.to_vec()).expect("UTF-8"))
}

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(testkit::binary());
    command.arg("bench").args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary starts")
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

#[test]
fn every_workload_is_measured_and_leaves_nothing_behind() {
    let site = Site::new();
    // A contended lock takes half a second there where twenty others want the processor.
    let duration = testkit::at_this_load(Duration::from_millis(200)).as_millis();
    let duration = format!("{duration}ms");
    for (workload, more) in [
        ("get", ["--pipeline", "4"]),
        ("set", ["--size", "0"]),
        ("create", ["--pipeline", "4"]),
        ("delete", ["--nodes", "300"]),
        ("mixed", ["--pipeline", "4"]),
        ("multi", ["--pipeline", "4"]),
        ("lock", ["--hold", "1ms"]),
        ("lock-contended", ["--hold", "1ms"]),
        ("herd", ["--hold", "1ms"]),
        ("watches", ["--size", "10"]),
        ("fill", ["--nodes", "3000"]),
        ("sessions", ["--session-timeout", "500ms"]),
    ] {
        let shape = ["--workload", workload, "--clients", "3", "--duration", &duration];
        let figures = site.figures(&[&shape[..], &["--warm-up", "50ms"], more.as_slice()].concat());
        assert_eq!(figures["workload"], workload);
        assert!(figures["operations"].as_u64() > Some(0), "{figures}");
        assert!(figures["latency_ms"]["p99.9"].as_f64() > Some(0.0), "{figures}");
        let answer = site.session().call(wire::children(ROOT, false)).expect("an answer");
        assert_eq!(answer.err, wire::NO_NODE, "{workload} leaves something behind");
    }
}

#[test]
fn several_threads_put_the_load_on_together() {
    let site = Site::new();
    let own = std::process::id().to_string();
    for (workload, more) in [
        ("get", ["--pipeline", "4"]),
        ("create", ["--pipeline", "4"]),
        ("delete", ["--nodes", "300"]),
        ("fill", ["--nodes", "3000"]),
        ("lock", ["--rate", "300"]),
        ("lock-contended", ["--hold", "1ms"]),
    ] {
        let shape = ["--workload", workload, "--clients", "7", "--threads", "3", "--pids", &own];
        let length = ["--duration", "1s", "--warm-up", "50ms"];
        let figures = site.figures(&[&shape[..], &length[..], more.as_slice()].concat());
        assert_eq!(
            (&figures["workload"], figures["threads"].as_u64()),
            (&workload.into(), Some(3))
        );
        let operations = figures["operations"].as_u64().expect("a number");
        // As many in that second as on a machine with free processors.
        let slower = testkit::at_this_load(Duration::from_secs(1)).as_secs_f64();
        let at_least = |count: f64| operations as f64 * slower >= count;
        match workload {
            "delete" => assert_eq!(operations, 300),
            "fill" => assert_eq!(operations, 3000),
            "lock" => assert!(at_least(200.0) && operations <= 330, "{figures}"),
            _ => assert!(at_least(100.0), "{figures}"),
        }
        if workload == "lock-contended" {
            let events = figures["events_per_release"].as_f64().expect("a number");
            let counted = figures["server_events_per_release"].as_f64().expect("a number");
            assert!((0.9..1.1).contains(&events) && (0.9..1.1).contains(&counted), "{figures}");
        }
        assert!(figures["server_thread_cpu_us"].is_object(), "{figures}");
        let answer = site.session().call(wire::children(ROOT, false)).expect("an answer");
        assert_eq!(answer.err, wire::NO_NODE, "{workload} leaves something behind");
    }
}

#[test]
fn a_release_wakes_one_contender_by_the_predecessor_recipe_and_all_by_the_naive_one() {
    let site = Site::new();
    let shape = ["--clients", "10", "--duration", "1s", "--warm-up", "200ms"];
    for (workload, least, most) in [("lock-contended", 0.9, 1.1), ("herd", 5.0, 25.0)] {
        let figures = site.figures(&[&["--workload", workload], &shape[..]].concat());
        for key in ["events_per_release", "server_events_per_release"] {
            let events = figures[key].as_f64().expect(key);
            assert!((least..most).contains(&events), "{key}: {figures}");
        }
        assert!(figures["handoff_ms"]["p50"].as_f64() > Some(0.0), "{figures}");
    }
}

#[test]
fn a_rate_is_kept_and_what_was_not_sent_in_time_is_counted() {
    let site = Site::new();
    let window = ["--duration", "1s", "--warm-up", "100ms"];
    let figures = site.figures(&[&["--workload", "get", "--rate", "400"], &window[..]].concat());
    let count = |figures: &Value, key: &str| figures[key].as_u64().expect("a number");
    let done = (count(&figures, "operations") + count(&figures, "unsent")) as f64;
    let seconds = figures["seconds"].as_f64().expect("a number");
    // What was due in the warm-up and not sent is done in the window.
    assert!((seconds * 400.0 - 40.0..(seconds + 0.5) * 400.0).contains(&done), "{figures}");

    // A lock held for 50 ms allows 20 cycles a second: the others wait, and that is not left out.
    let held = ["--workload", "lock", "--clients", "1", "--hold", "50ms", "--rate", "400"];
    let figures = site.figures(&[&held[..], &window[..]].concat());
    assert!(count(&figures, "operations") < 25, "{figures}");
    assert!(count(&figures, "unsent") > 300, "{figures}");
    assert!(figures["latency_ms"]["p50"].as_f64() > Some(300.0), "{figures}");
}

#[test]
fn a_wrong_answer_ends_the_run() {
    let site = Site::new();
    let mut session = site.session();
    let bench = site.bench(&["--workload", "mixed", "--duration", "1h"]);
    let path = site.first_znode(&mut session);
    assert_eq!(session.call(wire::set(&path, b"not theirs")).expect("an answer").err, 0);
    let output = bench.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("was due") || said(&output).contains("other data"));
    assert_eq!(child(&mut session, ROOT), None, "nothing is left");
}

#[test]
fn an_interrupt_ends_it_with_the_figures_so_far() {
    let site = Site::new();
    let mut session = site.session();
    let bench = site.bench(&["--workload", "set", "--duration", "1h", "--warm-up", "0"]);
    site.first_znode(&mut session);
    kill_process(Pid::from_child(&bench), Signal::INT).expect("it runs");
    let output = bench.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("operations") && text.contains("p99.9"), "{text}");
    assert_eq!(child(&mut session, ROOT), None, "nothing is left");
}

#[test]
fn what_cannot_be_measured_is_refused_with_a_reason_and_its_exit_code() {
    let site = Site::new();
    let mut session = site.session();
    session.ensure("/closed", b"").expect("a znode");
    close(&mut session, "/closed");
    for (arguments, code, words) in [
        (&["--hosts", "127.0.0.1:1"][..], 69, "127.0.0.1:1"),
        (&["--hosts", "127.0.0.1:x"], 2, "--server: the port `x`"),
        (&["--workload", "lock", "--pipeline", "2"], 2, "--pipeline"),
        (&["--workload", "get", "--hold", "1s"], 2, "--hold"),
        (&["--workload", "get", "--nodes", "5"], 2, "--nodes"),
        (&["--workload", "fill", "--rate", "5"], 2, "--rate"),
        (&["--workload", "herd", "--clients", "1"], 2, "--clients"),
        (&["--workload", "watches", "--threads", "2"], 2, "--threads"),
        (&["--workload", "sessions", "--threads", "2"], 2, "--threads"),
        (&["--clients", "2", "--threads", "3"], 2, "--threads"),
        (&["--workload", "fly"], 2, "lock-contended"),
        (&["--clients", "0"], 2, "--clients"),
        (&["--duration", "0"], 2, "--duration"),
        (&["--rate", "nan"], 2, "--rate"),
        (&["--path", "bench"], 2, "--path"),
        (&["--path", "/zookeeper/x"], 2, "--path"),
        (&["--pids", "4194305"], 71, "/proc/4194305"),
        (&["--path", "/closed/x"], 77, "no permission"),
    ] {
        let hosts = site.server.connect_string();
        let given = arguments.contains(&"--hosts");
        let default: &[&str] = if given { &[] } else { &["--hosts", &hosts] };
        let output = start(&[default, arguments].concat()).wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(words), "{arguments:?}: {}", said(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

/// Lets nobody do anything to a znode but read it.
fn close(session: &mut Session, path: &str) {
    let mut request = Vec::new();
    wire::frame(&mut request, |f| {
        wire::int(f, 0);
        wire::int(f, 7);
        wire::buffer(f, path.as_bytes());
        wire::int(f, 1);
        wire::int(f, 1);
        wire::buffer(f, b"world");
        wire::buffer(f, b"anyone");
        wire::int(f, -1);
    });
    assert_eq!(session.call(request).expect("an answer").err, 0);
}
