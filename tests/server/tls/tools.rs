//! Our own commands as clients that speak TLS.

use std::process::Output;

use tokio::task::spawn_blocking;

use crate::tls::{Scene, secure};
use testkit::authority::{Authority, put};
use testkit::process::{output, stderr};

/// A scene whose clients have a certificate, and a file that says so.
fn scene() -> Scene {
    let scene = Scene::new();
    put(scene.path(), "client.pem", &scene.authority.issue("tool").pem());
    put(scene.path(), "others.pem", &Authority::new("others").pem());
    let file = |trust: &str, more: &str| {
        let trust = scene.file(trust);
        format!("zookeeper.client.secure=true\nzookeeper.ssl.trustStore.location={trust}\n{more}")
    };
    let key = format!("zookeeper.ssl.keyStore.location={}\n", scene.file("client.pem"));
    put(scene.path(), "client.cfg", &file("trust.pem", &key));
    put(scene.path(), "unknown.cfg", &file("trust.pem", ""));
    put(scene.path(), "foreign.cfg", &file("others.pem", &key));
    put(scene.path(), "bad.cfg", &file("trust.pem", "ssl.ocsp=true\n"));
    scene
}

/// What the command does; servers of this process go on meanwhile.
pub async fn run(scene: &Scene, arguments: &[&str]) -> Output {
    let directory = scene.path().to_owned();
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let run = move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        output(&directory, &arguments)
    };
    spawn_blocking(run).await.expect("it ends")
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shell_is_known_by_its_certificate() {
    let scene = scene();
    let server = scene.server().await;
    let at = format!("localhost:{}", secure(&server).port());
    let cli = async |configuration: &str, command: &[&str]| {
        let flags = ["cli", "-server", &at, "-client-configuration", configuration];
        run(&scene, &[&flags[..], command].concat()).await
    };
    succeeded(&cli("client.cfg", &["create", "/a", "data", "auth::cdrwa"]).await);
    assert_eq!(succeeded(&cli("client.cfg", &["get", "/a"]).await), "data\n");
    let list = succeeded(&cli("client.cfg", &["getAcl", "/a"]).await);
    assert!(list.contains("'x509,'"), "{list}");
    // No certificate of its own, or one of the server that is not trusted.
    for configuration in ["unknown.cfg", "foreign.cfg"] {
        let refused = cli(configuration, &["get", "/a"]).await;
        assert_eq!(refused.status.code(), Some(69), "{configuration}: {}", stderr(&refused));
    }
    let foreign = cli("foreign.cfg", &["get", "/a"]).await;
    assert!(stderr(&foreign).contains("invalid peer certificate"), "{}", stderr(&foreign));
    let bad = cli("bad.cfg", &["get", "/a"]).await;
    assert_eq!(bad.status.code(), Some(2));
    assert!(
        stderr(&bad).contains("bad.cfg: ssl.ocsp: this key of TLS is not offered"),
        "{}",
        stderr(&bad)
    );
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_must_name_the_host_unless_that_is_switched_off() {
    let scene = scene();
    put(scene.path(), "server.pem", &scene.authority.issue("elsewhere.example.org").pem());
    let server = scene.server().await;
    let at = format!("localhost:{}", secure(&server).port());
    let strict =
        run(&scene, &["cli", "-server", &at, "-client-configuration", "client.cfg", "ls", "/"])
            .await;
    assert_eq!(strict.status.code(), Some(69));
    assert!(stderr(&strict).contains("not valid for name"), "{}", stderr(&strict));
    let text = std::fs::read_to_string(scene.file("client.cfg")).unwrap();
    put(scene.path(), "lenient.cfg", &format!("{text}zookeeper.ssl.hostnameVerification=false\n"));
    let lenient =
        run(&scene, &["cli", "-server", &at, "-client-configuration", "lenient.cfg", "ls", "/"])
            .await;
    assert_eq!(succeeded(&lenient), "[zookeeper]\n");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_load_generator_checks_every_answer_through_tls() {
    let scene = scene();
    let server = scene.server().await;
    let at = format!("localhost:{}", secure(&server).port());
    for (workload, depth) in [("mixed", "16"), ("lock", "1")] {
        let arguments = [
            "bench",
            "--hosts",
            &at,
            "--client-configuration",
            "client.cfg",
            "--workload",
            workload,
            "--clients",
            "4",
            "--pipeline",
            depth,
            "--duration",
            "200ms",
            "--warm-up",
            "0",
        ];
        let done = run(&scene, &arguments).await;
        assert!(succeeded(&done).contains("/s"), "{workload}");
    }
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_under_a_lock_that_is_taken_through_tls() {
    let scene = scene();
    let server = scene.server().await;
    let at = format!("localhost:{}", secure(&server).port());
    let lock = async |configuration: &str, command: &[&str]| {
        let flags = ["lock", "--server", &at, "-w", "2s", "--client-configuration", configuration];
        run(&scene, &[&flags[..], &["/locks/b"], command].concat()).await
    };
    assert_eq!(succeeded(&lock("client.cfg", &["echo", "done"]).await), "done\n");
    assert_eq!(lock("client.cfg", &["sh", "-c", "exit 7"]).await.status.code(), Some(7));
    for configuration in ["unknown.cfg", "foreign.cfg"] {
        let refused = lock(configuration, &["echo", "done"]).await;
        assert_eq!(refused.status.code(), Some(69), "{configuration}: {}", stderr(&refused));
        assert!(refused.stdout.is_empty());
        let is_told = stderr(&refused).contains("invalid peer certificate");
        assert_eq!(is_told, configuration == "foreign.cfg", "{}", stderr(&refused));
    }
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_asked_through_tls() {
    let scene = scene();
    let server = scene.server().await;
    let at = format!("localhost:{}", secure(&server).port());
    let listed =
        run(&scene, &["member", "list", "--server", &at, "--client-configuration", "client.cfg"])
            .await;
    // A server alone has no members to show, and says so: it was asked.
    assert_ne!(listed.status.code(), Some(69), "{}", stderr(&listed));
    server.stop().await.unwrap();
}
