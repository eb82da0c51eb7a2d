//! The HTTP port through TLS: who is answered, and our own commands there.

use std::net::SocketAddr;

use lockkeeper::{Builder, Server, StartError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::tls::tools::run;
use crate::tls::{ALL, Scene, encrypted, shown};
use testkit::authority::{Authority, Owner, put};
use testkit::process::stderr;
use testkit::{self, PATIENCE};

const REQUEST: &[u8] = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

impl Scene {
    /// A server without TLS for clients, whose HTTP port has it.
    fn operators(&self, key: &str) -> Builder {
        testkit::builder()
            .set("ssl.quorum.keyStore.location", &self.file("server.pem"))
            .set("ssl.quorum.trustStore.location", &self.file("trust.pem"))
            .set(key, "true")
            .admin_address("127.0.0.1", 0)
    }

    /// What is answered through TLS; `None`: there is none.
    async fn ask(&self, at: SocketAddr, shows: Option<&Owner>) -> Option<String> {
        let mut stream = encrypted(at, self.config(shows, ALL)).await.ok()?;
        stream.write_all(REQUEST).await.ok()?;
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("it ends").ok()?;
        Some(answer).filter(|answer| !answer.is_empty())
    }
}

fn http(server: &Server) -> SocketAddr {
    server.admin_addr().expect("it has an HTTP port")
}

/// What is answered in plain text. A port of TLS may answer by an alert, and no more.
async fn plain(at: SocketAddr) -> String {
    let answer = testkit::ask(at, REQUEST).await.unwrap_or_default();
    answer.chars().filter(|character| character.is_ascii_graphic() || *character == ' ').collect()
}

#[tokio::test]
async fn a_port_that_is_to_take_tls_alone_answers_nothing_in_plain_text() {
    let scene = Scene::new();
    let server = scene.operators("admin.forceHttps").start().await.unwrap();
    let at = http(&server);
    assert!(scene.ask(at, None).await.expect("an answer").starts_with("HTTP/1.1 200 OK"));
    assert!(!plain(at).await.contains("HTTP"));
    assert!(server.admin_url().unwrap().starts_with("https://"));
    // Clients are not concerned.
    testkit::Client::connect(server.local_addr()).await.ping().await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_unified_http_port_takes_both() {
    let scene = Scene::new();
    let server = scene.operators("admin.portUnification").start().await.unwrap();
    let at = http(&server);
    assert!(scene.ask(at, None).await.expect("an answer").starts_with("HTTP/1.1 200 OK"));
    assert!(plain(at).await.starts_with("HTTP/1.1 200 OK"));
    assert!(server.admin_url().unwrap().starts_with("http://"));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn who_must_show_a_certificate_and_has_no_good_one_is_not_answered() {
    let scene = Scene::new();
    let builder = scene.operators("admin.forceHttps").set("admin.needClientAuth", "true");
    let server = builder.start().await.unwrap();
    let at = http(&server);
    assert_eq!(scene.ask(at, None).await, None);
    assert_eq!(scene.ask(at, Some(&Authority::new("others").issue("a"))).await, None);
    let answer = scene.ask(at, Some(&scene.authority.issue("a"))).await;
    assert!(answer.expect("an answer").starts_with("HTTP/1.1 200 OK"));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_new_certificate_of_the_http_port_serves_new_connections() {
    let scene = Scene::new();
    let server = scene.operators("admin.forceHttps").start().await.unwrap();
    let next = scene.authority.issue("localhost");
    put(scene.path(), "server.pem", "half of one");
    server.reload_certificates().await.unwrap_err();
    let is_outdated = |server: &Server| {
        let known = server.counters().certificates;
        known.iter().any(|known| known.listener == "operators" && known.is_outdated)
    };
    assert!(is_outdated(&server) && scene.ask(http(&server), None).await.is_some());
    put(scene.path(), "server.pem", &next.pem());
    server.reload_certificates().await.unwrap();
    assert!(!is_outdated(&server));
    let stream = encrypted(http(&server), scene.config(None, ALL)).await.unwrap();
    assert_eq!(shown(&stream), *next.certificate.der());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_handshake_with_the_http_port_that_does_not_go_on_is_ended() {
    let scene = Scene::new();
    for key in ["admin.forceHttps", "admin.portUnification"] {
        let server = scene.operators(key).start().await.unwrap();
        let mut stream = tokio::net::TcpStream::connect(http(&server)).await.unwrap();
        stream.write_all(&[0x16, 3, 1, 2]).await.unwrap();
        let mut end = Vec::new();
        // A reset is an end, too.
        let _ = timeout(PATIENCE, stream.read_to_end(&mut end)).await.expect("it is closed");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn what_tls_of_the_http_port_needs_must_be_there() {
    let scene = Scene::new();
    for (keys, words) in [
        (&[("admin.forceHttps", "true")][..], "needs ssl.quorum.keyStore.location"),
        (&[("admin.portUnification", "true")], "needs ssl.quorum.keyStore.location"),
        (&[("admin.needClientAuth", "true")], "needs admin.forceHttps=true"),
    ] {
        let mut builder = testkit::builder().admin_address("127.0.0.1", 0);
        for (key, value) in keys {
            builder = builder.set(key, value);
        }
        let error = builder.start().await.expect_err(words);
        let StartError::Config(errors) = &error else { panic!("{error}") };
        assert!(errors[0].to_string().contains(words), "{}", errors[0]);
    }
    let missing = scene.operators("admin.forceHttps");
    let missing = missing.set("ssl.quorum.keyStore.location", &scene.file("missing.pem"));
    let error = missing.start().await.expect_err("there is no such file").to_string();
    assert!(error.contains("missing.pem"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_commands_ask_through_tls() {
    let scene = Scene::new();
    put(scene.path(), "client.pem", &scene.authority.issue("tool").pem());
    let trust = format!("zookeeper.ssl.trustStore.location={}\n", scene.file("trust.pem"));
    let key = format!("zookeeper.ssl.keyStore.location={}\n", scene.file("client.pem"));
    put(scene.path(), "client.cfg", &format!("{trust}{key}"));
    put(scene.path(), "unknown.cfg", &trust);
    let builder = scene.operators("admin.forceHttps").set("admin.needClientAuth", "true");
    let server = builder.start().await.unwrap();
    let at = format!("localhost:{}", http(&server).port());
    for command in ["locks", "sessions"] {
        let ask = async |more: &[&str]| {
            run(&scene, &[&[command, "--admin", &at, "-o", "json"], more].concat()).await
        };
        let answered = ask(&["--client-configuration", "client.cfg"]).await;
        assert!(answered.status.success(), "{}", stderr(&answered));
        for refused in [&["--client-configuration", "unknown.cfg"][..], &[]] {
            let refused = ask(refused).await;
            assert!(!refused.status.success() && refused.stdout.is_empty());
        }
    }
    server.stop().await.unwrap();
}

/// A server whose port for metrics takes TLS.
fn metrics(scene: &Scene, need: &str) -> Builder {
    testkit::builder()
        .set("metricsProvider.ssl.keyStore.location", &scene.file("server.pem"))
        .set("metricsProvider.ssl.trustStore.location", &scene.file("trust.pem"))
        .set("metricsProvider.ssl.need.client.auth", need)
        .set("metricsProvider.httpHost", "127.0.0.1")
        .set("metricsProvider.httpsPort", "0")
}

#[tokio::test]
async fn metrics_are_offered_through_tls_to_those_who_show_a_certificate() {
    let scene = Scene::new();
    let server = metrics(&scene, "true").start().await.unwrap();
    let at = server.secure_metrics_addr().expect("it has such a port");
    let owner = scene.authority.issue("prometheus");
    assert_eq!(scene.ask(at, None).await, None);
    // It has nothing but metrics.
    let answer = scene.ask(at, Some(&owner)).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    let mut stream = encrypted(at, scene.config(Some(&owner), ALL)).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let expiry = "lockkeeper_certificate_expiry_seconds{key=\"metrics\"}";
    assert!(answer.contains("200 OK") && answer.contains(expiry), "{answer}");
    assert!(!plain(at).await.contains("HTTP"));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_client_of_metrics_need_not_show_a_certificate_where_that_is_configured() {
    let scene = Scene::new();
    let server = metrics(&scene, "false").start().await.unwrap();
    let at = server.secure_metrics_addr().expect("it has such a port");
    assert!(scene.ask(at, None).await.is_some());
    assert_eq!(scene.ask(at, Some(&Authority::new("others").issue("a"))).await, None);
    server.stop().await.unwrap();
    let error = testkit::builder().set("metricsProvider.httpsPort", "0").start().await;
    let error = error.expect_err("there is no key").to_string();
    assert!(error.contains("needs metricsProvider.ssl.keyStore.location"), "{error}");
}

#[tokio::test]
async fn one_port_for_metrics_takes_both_if_it_is_named_twice() {
    let scene = Scene::new();
    let port = testkit::ports::port();
    let builder = metrics(&scene, "false").set("metricsProvider.httpsPort", &port.to_string());
    let server = builder.set("metricsProvider.httpPort", &port.to_string()).start().await.unwrap();
    let at = server.secure_metrics_addr().expect("it has such a port");
    assert_eq!(at.port(), port);
    assert!(scene.ask(at, None).await.is_some() && plain(at).await.starts_with("HTTP/1.1 404"));
    server.stop().await.unwrap();
}
