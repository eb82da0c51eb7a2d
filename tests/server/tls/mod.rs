//! Clients that connect through TLS: who gets in, who they are then, and what changes while a server runs.

#[allow(dead_code, reason = "the tests of servers use what is not used here")]
mod operators;
mod stores;
mod tools;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::internals::proto::request::{Create, CreateKind};
use lockkeeper::internals::proto::{Acl, Request, Response};
use lockkeeper::{Builder, Server, StartError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};

use testkit::authority::{Authority, Owner, Validity, put};
use testkit::{Client, PATIENCE, fresh, text, wait_until};

const ALL: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];
const NO_AUTH: i32 = -102;
const INVALID_ACL: i32 = -114;
const AUTH_FAILED: i32 = -115;

/// An authority, a server's certificate of it, and where their files are.
struct Scene {
    authority: Authority,
    directory: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let (authority, directory) = (Authority::new("ours"), tempfile::tempdir().unwrap());
        put(directory.path(), "server.pem", &authority.issue("localhost").pem());
        put(directory.path(), "trust.pem", &authority.pem());
        Self { authority, directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn file(&self, name: &str) -> String {
        self.path().join(name).display().to_string()
    }

    /// A server with a port of TLS that asks clients for certificates of the authority.
    fn builder(&self) -> Builder {
        testkit::builder()
            .set("ssl.keyStore.location", &self.file("server.pem"))
            .set("ssl.trustStore.location", &self.file("trust.pem"))
            .secure_address("127.0.0.1", 0)
    }

    async fn server(&self) -> Server {
        self.builder().start().await.expect("it starts")
    }

    /// A client that trusts the authority, and shows what it has.
    fn config(
        &self,
        shows: Option<&Owner>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ClientConfig> {
        let mut trusted = RootCertStore::empty();
        trusted
            .add(CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let config = config.with_root_certificates(trusted);
        Arc::new(match shows {
            None => config.with_no_client_auth(),
            Some(owner) => {
                let key =
                    PrivateKeyDer::from_pem_slice(owner.key.serialize_pem().as_bytes()).unwrap();
                config.with_client_auth_cert(vec![owner.certificate.der().clone()], key).unwrap()
            }
        })
    }

    async fn encrypted(
        &self,
        at: SocketAddr,
        shows: Option<&Owner>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        encrypted(at, self.config(shows, ALL)).await
    }

    /// A session through TLS; `None`: it is refused.
    async fn client(&self, at: SocketAddr, shows: Option<&Owner>) -> Option<Client> {
        let stream = self.encrypted(at, shows).await.ok()?;
        Client::open_over(Box::new(stream), &fresh(20_000)).await
    }
}

async fn encrypted(
    at: SocketAddr,
    config: Arc<ClientConfig>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(at).await.expect("the server listens");
    stream.set_nodelay(true).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    timeout(PATIENCE, TlsConnector::from(config).connect(name, stream)).await.expect("an answer")
}

fn secure(server: &Server) -> SocketAddr {
    server.secure_addr().expect("it has a port of TLS")
}

/// What the server shows on this connection.
fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone()
}

fn acl(scheme: &str, id: &str) -> Acl {
    Acl { perms: 31, scheme: text(scheme), id: text(id) }
}

fn create(path: &str, acl: Acl) -> Request {
    Request::Create(Create {
        kind: CreateKind::Create,
        path: text(path),
        data: None,
        acl: Some(vec![acl]),
        flags: 0,
        ttl_ms: 0,
    })
}

#[tokio::test]
async fn who_shows_a_certificate_of_the_authority_is_served_with_either_version() {
    let scene = Scene::new();
    let server = scene.server().await;
    let owner = scene.authority.issue("a");
    for version in ALL {
        let stream =
            encrypted(secure(&server), scene.config(Some(&owner), &[version])).await.unwrap();
        let mut client =
            Client::open_over(Box::new(stream), &fresh(20_000)).await.expect("a session");
        client.ping().await;
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn who_is_asked_for_a_certificate_and_has_no_good_one_is_refused() {
    let scene = Scene::new();
    let server = scene.server().await;
    let others = Authority::new("others");
    let refused = [
        ("none", None),
        ("foreign", Some(others.issue("a"))),
        ("expired", Some(scene.authority.issue_valid("a", Validity::Past))),
        ("not yet valid", Some(scene.authority.issue_valid("a", Validity::Future))),
    ];
    for (name, owner) in &refused {
        assert!(scene.client(secure(&server), owner.as_ref()).await.is_none(), "{name}");
    }
    wait_until("they are counted", async || server.counters().handshakes_failed == 4).await;
    assert_eq!(server.status().sessions, 0);
    // It goes on for others.
    assert!(scene.client(secure(&server), Some(&scene.authority.issue("a"))).await.is_some());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_certificate_that_is_wanted_may_be_missing_and_may_not_be_foreign() {
    let scene = Scene::new();
    let server = scene.builder().set("ssl.clientAuth", "want").start().await.unwrap();
    assert!(scene.client(secure(&server), None).await.is_some());
    assert!(scene.client(secure(&server), Some(&scene.authority.issue("a"))).await.is_some());
    assert!(
        scene.client(secure(&server), Some(&Authority::new("others").issue("a"))).await.is_none()
    );
    server.stop().await.unwrap();
}

#[tokio::test]
async fn without_client_authentication_no_certificate_is_asked_for_and_none_proves_anything() {
    let scene = Scene::new();
    let server = scene.builder().set("ssl.clientAuth", "none").start().await.unwrap();
    assert!(scene.client(secure(&server), None).await.is_some());
    let mut client =
        scene.client(secure(&server), Some(&scene.authority.issue("a"))).await.unwrap();
    let refused = client.call(&create("/a", acl("auth", ""))).await;
    assert_eq!(refused, Err(INVALID_ACL));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_certificate_that_was_revoked_is_refused_and_one_of_the_same_authority_is_not() {
    let scene = Scene::new();
    let (good, bad) = (scene.authority.issue("a"), scene.authority.issue("a"));
    let list = put(scene.path(), "revoked.pem", &scene.authority.revokes(&[&bad]));
    let builder = scene.builder().set("lockkeeper.ssl.crlFile", &list.display().to_string());
    let server = builder.start().await.unwrap();
    assert!(scene.client(secure(&server), Some(&bad)).await.is_none());
    assert!(scene.client(secure(&server), Some(&good)).await.is_some());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_certificate_in_the_trust_store_that_is_no_authoritys_vouches_for_none_but_itself() {
    let scene = Scene::new();
    let none = Authority::that_is_none("trusted");
    put(scene.path(), "trust.pem", &none.pem());
    let alone = scene.server().await;
    put(scene.path(), "trust.pem", &format!("{}{}", scene.authority.pem(), none.pem()));
    let beside = scene.server().await;
    for server in [&alone, &beside] {
        assert!(scene.client(secure(server), Some(&none.issue("root"))).await.is_none());
    }
    assert!(scene.client(secure(&beside), Some(&scene.authority.issue("a"))).await.is_some());
    alone.stop().await.unwrap();
    beside.stop().await.unwrap();
}

#[tokio::test]
async fn a_port_of_tls_takes_no_plain_text_and_a_plain_port_takes_no_tls() {
    let scene = Scene::new();
    let server = scene.builder().set("ssl.clientAuth", "none").start().await.unwrap();
    assert!(Client::open(secure(&server), &fresh(20_000)).await.is_none());
    assert_eq!(testkit::say(secure(&server), b"ruok").await, "");
    assert!(scene.client(server.local_addr(), None).await.is_none());
    assert!(Client::open(server.local_addr(), &fresh(20_000)).await.is_some());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_unified_port_takes_both() {
    let scene = Scene::new();
    let builder = testkit::builder()
        .set("ssl.keyStore.location", &scene.file("server.pem"))
        .set("ssl.trustStore.location", &scene.file("trust.pem"))
        .set("client.portUnification", "true");
    let server = builder.start().await.unwrap();
    assert_eq!(server.secure_addr(), None);
    let at = server.local_addr();
    let mut plain = Client::open(at, &fresh(20_000)).await.expect("a session");
    let mut encrypted =
        scene.client(at, Some(&scene.authority.issue("a"))).await.expect("a session");
    plain.create("/a", b"of plain text", 0).await.unwrap();
    assert_eq!(encrypted.data("/a").await.unwrap(), b"of plain text");
    assert!(testkit::say(at, b"srvr").await.starts_with("Zookeeper version"));
    assert!(scene.client(at, None).await.is_none(), "and TLS is as strict as elsewhere");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_subject_of_a_certificate_is_an_id_of_access_lists() {
    let scene = Scene::new();
    let server = scene.server().await;
    let mut first = scene.client(secure(&server), Some(&scene.authority.issue("a"))).await.unwrap();
    let mut second =
        scene.client(secure(&server), Some(&scene.authority.issue("b"))).await.unwrap();
    let subject = |name: &str| format!("O=Example\\, Inc.,CN={name}");
    first.call(&create("/auth", acl("auth", ""))).await.unwrap();
    first.call(&create("/x509", acl("x509", &subject("b")))).await.unwrap();
    assert_eq!(first.call(&create("/bad", acl("x509", "no subject"))).await, Err(INVALID_ACL));
    assert_eq!(second.data("/auth").await, Err(NO_AUTH));
    assert_eq!(first.data("/auth").await, Ok(Vec::new()));
    assert_eq!(first.data("/x509").await, Err(NO_AUTH));
    assert_eq!(second.data("/x509").await, Ok(Vec::new()));
    let list = first.call(&Request::GetAcl { path: text("/auth") }).await.unwrap();
    let Response::Acl(entries, _) = list else { panic!("{list:?}") };
    assert_eq!(entries, vec![acl("x509", &subject("a"))]);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_subject_that_would_fill_the_log_is_refused() {
    let scene = Scene::new();
    let server = scene.server().await;
    let (short, long) = ("a".repeat(4000), "a".repeat(4090));
    assert!(scene.client(secure(&server), Some(&scene.authority.called(&short))).await.is_some());
    assert!(scene.client(secure(&server), Some(&scene.authority.called(&long))).await.is_none());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_owner_of_the_super_users_certificate_may_do_everything() {
    let scene = Scene::new();
    let builder =
        scene.builder().set("X509AuthenticationProvider.superUser", "O=Example\\, Inc.,CN=root");
    let server = builder.start().await.unwrap();
    let mut first = scene.client(secure(&server), Some(&scene.authority.issue("a"))).await.unwrap();
    let mut root =
        scene.client(secure(&server), Some(&scene.authority.issue("root"))).await.unwrap();
    first.call(&create("/a", acl("auth", ""))).await.unwrap();
    assert_eq!(root.data("/a").await, Ok(Vec::new()));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn to_prove_a_certificate_again_is_granted_to_those_who_have_shown_one() {
    let scene = Scene::new();
    let server = scene.builder().set("ssl.clientAuth", "want").start().await.unwrap();
    let again = || Request::Auth { scheme: Some(text("x509")), auth: None };
    let mut owner = scene.client(secure(&server), Some(&scene.authority.issue("a"))).await.unwrap();
    let mut other = scene.client(secure(&server), None).await.unwrap();
    assert!(owner.call(&again()).await.is_ok());
    assert_eq!(other.call(&again()).await, Err(AUTH_FAILED));
    other.closed().await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn long_answers_and_many_requests_at_once_come_through_whole_and_in_order() {
    let scene = Scene::new();
    let server = scene.builder().set("ssl.clientAuth", "none").start().await.unwrap();
    let mut client = scene.client(secure(&server), None).await.unwrap();
    let data: Vec<u8> = (0..900_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    client.create("/long", &data, 0).await.unwrap();
    let mut bytes = Vec::new();
    let xids: Vec<i32> = (0..50).map(|_| client.put(&testkit::get("/long"), &mut bytes)).collect();
    client.send_bytes(&bytes).await;
    for xid in xids {
        let reply = client.receive().await.expect("an answer");
        assert_eq!((reply.xid, reply.err), (xid, 0));
        assert_eq!(reply.body[4..4 + data.len()], data);
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_four_letter_word_through_tls_is_answered_and_closed_by_the_rules_of_tls() {
    let scene = Scene::new();
    let server = scene.builder().set("ssl.clientAuth", "none").start().await.unwrap();
    let mut stream = scene.encrypted(secure(&server), None).await.unwrap();
    stream.write_all(b"srvr").await.unwrap();
    let mut answer = String::new();
    // A close without a word would be an error of TLS.
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("Zookeeper version"), "{answer}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_handshake_that_does_not_go_on_is_ended() {
    let scene = Scene::new();
    let server =
        scene.builder().set("ssl.handshakeDetectionTimeoutMillis", "50").start().await.unwrap();
    let mut stream = TcpStream::connect(secure(&server)).await.unwrap();
    // The first bytes of a record that never comes whole.
    stream.write_all(&[0x16, 3, 1, 2]).await.unwrap();
    let mut end = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut end)).await.expect("it is closed").unwrap();
    wait_until("they are counted", async || server.counters().handshakes_failed == 1).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn new_files_serve_new_connections_and_bad_ones_change_nothing() {
    let scene = Scene::new();
    let server = scene.server().await;
    let owner = scene.authority.issue("a");
    let mut client = scene.client(secure(&server), Some(&owner)).await.unwrap();
    let before = shown(&scene.encrypted(secure(&server), Some(&owner)).await.unwrap());

    put(scene.path(), "server.pem", "-----BEGIN CERTIFICATE-----\nhalf of one");
    let error = server.reload_certificates().await.unwrap_err();
    assert!(error.to_string().starts_with(&scene.file("server.pem")), "{error}");
    assert_eq!(shown(&scene.encrypted(secure(&server), Some(&owner)).await.unwrap()), before);
    assert!(server.counters().certificates[0].is_outdated);

    let next = scene.authority.issue("localhost");
    put(scene.path(), "server.pem", &next.pem());
    server.reload_certificates().await.unwrap();
    assert_eq!(
        shown(&scene.encrypted(secure(&server), Some(&owner)).await.unwrap()),
        *next.certificate.der()
    );
    assert!(!server.counters().certificates[0].is_outdated);

    // The authority is not trusted any more: that is for new connections.
    put(scene.path(), "trust.pem", &Authority::new("others").pem());
    server.reload_certificates().await.unwrap();
    assert!(scene.client(secure(&server), Some(&owner)).await.is_none());
    client.ping().await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_changed_file_is_found_without_being_asked_for() {
    let scene = Scene::new();
    let server = scene.builder().set("ssl.clientAuth", "none").start().await.unwrap();
    let next = scene.authority.issue("localhost");
    put(scene.path(), "server.pem", &next.pem());
    let found = async {
        while shown(&scene.encrypted(secure(&server), None).await.unwrap())
            != *next.certificate.der()
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, found).await.expect("it is in use");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_connections_stay_when_the_certificate_changes() {
    let scene = Scene::new();
    // A thousand handshakes take their time on a busy machine: the sessions are not to end meanwhile.
    let builder = scene.builder().set("ssl.clientAuth", "none");
    let builder = builder.set("maxSessionTimeout", "600000").set("minSessionTimeout", "600000");
    let server = builder.start().await.unwrap();
    let mut clients = Vec::new();
    for _ in 0..1000 {
        clients.push(scene.client(secure(&server), None).await.expect("it is served"));
    }
    let next = scene.authority.issue("localhost");
    put(scene.path(), "server.pem", &next.pem());
    server.reload_certificates().await.unwrap();
    let stream = scene.encrypted(secure(&server), None).await.unwrap();
    assert_eq!(shown(&stream), *next.certificate.der());
    for client in &mut clients {
        client.ping().await;
    }
    assert_eq!(server.status().sessions, 1000);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn only_the_versions_that_are_asked_for_are_spoken() {
    let scene = Scene::new();
    let builder =
        scene.builder().set("ssl.clientAuth", "none").set("ssl.enabledProtocols", "TLSv1.2");
    let server = builder.start().await.unwrap();
    let connect = |version| encrypted(secure(&server), scene.config(None, &[version]));
    assert!(connect(&version::TLS13).await.is_err());
    assert!(connect(&version::TLS12).await.is_ok());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_honoured_is_why_a_server_does_not_start() {
    let scene = Scene::new();
    put(scene.path(), "empty.pem", "nothing");
    let other_key = format!(
        "{}{}",
        scene.authority.issue("a").key.serialize_pem(),
        scene.authority.issue("b").certificate.pem()
    );
    put(scene.path(), "other.pem", &other_key);
    for (key, value, words) in [
        ("ssl.keyStore.location", scene.file("missing.pem"), "missing.pem: No such file"),
        ("ssl.keyStore.location", scene.file("empty.pem"), "empty.pem: "),
        (
            "ssl.keyStore.location",
            scene.file("other.pem"),
            "other.pem: its key is not that of its certificate",
        ),
        ("ssl.keyStore.type", "JKS".to_owned(), "server.pem: "),
        (
            "ssl.trustStore.location",
            scene.file("empty.pem"),
            "empty.pem: holds no trusted certificate",
        ),
        (
            "ssl.ciphersuites",
            "TLS_RSA_WITH_AES_128_CBC_SHA".to_owned(),
            "none of the cipher suites",
        ),
        ("lockkeeper.ssl.crlFile", scene.file("empty.pem"), "empty.pem: "),
    ] {
        let error = scene.builder().set(key, &value).start().await.expect_err(key);
        assert!(matches!(error, StartError::Tls(_)), "{key}: {error}");
        assert!(error.to_string().contains(words), "{key}={value}: {error}");
    }
}
