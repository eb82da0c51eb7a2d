//! Clients that authenticate by SASL: users that change while a server runs, and our own commands.

mod tools;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper::internals::proto::{Request, Response};
use lockkeeper::{Builder, Server};
use tokio::time::timeout;

use testkit::digest_md5::{nonce_of, proof, response};
use testkit::{Client, PATIENCE};

const AUTH_FAILED: i32 = -115;

/// A directory with the users of a server.
struct Scene {
    directory: tempfile::TempDir,
}

impl Scene {
    fn new(users: &[(&str, &str)]) -> Self {
        let scene = Self { directory: tempfile::tempdir().unwrap() };
        scene.put(users);
        scene
    }

    fn users(&self) -> PathBuf {
        self.directory.path().join("jaas.conf")
    }

    /// Other users, put in place as orchestrators do.
    fn put(&self, users: &[(&str, &str)]) {
        let options = users.iter().map(|(name, password)| format!(" user_{name}=\"{password}\""));
        let options: String = options.collect();
        let module = "org.apache.zookeeper.server.auth.DigestLoginModule required";
        self.put_text(&format!("Server {{ {module}{options}; }};\n"));
    }

    fn put_text(&self, text: &str) {
        let new = self.directory.path().join("jaas.conf.new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.users()).unwrap();
    }

    fn builder(&self) -> Builder {
        let users = self.users().display().to_string();
        let provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
        testkit::builder().set("lockkeeper.jaasFile", &users).set("authProvider.1", provider)
    }

    async fn server(&self) -> Server {
        self.builder().start().await.expect("it starts")
    }
}

async fn token(client: &mut Client, token: &[u8]) -> Result<String, i32> {
    let request = Request::Sasl { token: Some(Bytes::copy_from_slice(token)) };
    let Response::Token(token) = client.call(&request).await? else { panic!("an odd answer") };
    Ok(String::from_utf8(token.expect("a token").to_vec()).expect("text"))
}

async fn prove(client: &mut Client, user: &str, password: &str) -> Result<(), i32> {
    let challenge = token(client, b"").await?;
    let nonce = nonce_of(&challenge);
    let word = token(client, response(user, password, nonce).as_bytes()).await?;
    assert_eq!(word, format!("rspauth={}", proof(user, password, nonce, "")));
    Ok(())
}

/// What becomes of a client that proves to be bob by this password.
async fn log_in(server: &Server, password: &str) -> Result<Client, i32> {
    let mut client = Client::connect(server.local_addr()).await;
    prove(&mut client, "bob", password).await.map(|()| client)
}

#[tokio::test]
async fn a_password_may_be_changed_while_a_server_runs() {
    let scene = Scene::new(&[("bob", "old")]);
    let server = scene.server().await;
    let mut before = log_in(&server, "old").await.expect("the password is right");
    assert_eq!(log_in(&server, "new").await.err(), Some(AUTH_FAILED));

    scene.put(&[("bob", "new")]);
    server.reload_users().await.unwrap();
    log_in(&server, "new").await.expect("the password is right now");
    assert_eq!(log_in(&server, "old").await.err(), Some(AUTH_FAILED));
    before.create("/still", b"here", 0).await.expect("it stays what it has proved to be");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_changed_file_of_users_is_found_without_being_asked_for() {
    let scene = Scene::new(&[("bob", "old")]);
    let server = scene.server().await;
    scene.put(&[("bob", "new")]);
    let found = async {
        while log_in(&server, "new").await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, found).await.expect("it is in use");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_file_of_users_that_cannot_be_used_leaves_those_before() {
    let scene = Scene::new(&[("bob", "old")]);
    let server = scene.server().await;
    for (text, words) in
        [("Server { half of", "jaas.conf:1: "), ("Client { };", "there is no section Server")]
    {
        scene.put_text(text);
        let error = server.reload_users().await.expect_err(text).to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(server.counters().sasl_users_outdated, Some(true));
        log_in(&server, "old").await.expect("it is as before");
    }
    scene.put(&[("bob", "new")]);
    server.reload_users().await.unwrap();
    assert_eq!(server.counters().sasl_users_outdated, Some(false));
    log_in(&server, "new").await.expect("the password is right now");
    server.stop().await.unwrap();
}
