//! `lockkeeper member` as an operator sees it: output, exit codes, and words that say what to do.
//!
//! The servers here are played: they say what a real one says in moments that are hard to bring about.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use lockkeeper::internals::proto::response::encode_reply;
use lockkeeper::internals::proto::{
    Acl, ConnectRequest, ConnectResponse, ErrorCode, OpCode, Reader, Request, RequestHeader,
    Response, Stat, Text, frame,
};

const THREE: &str = "server.1=127.0.0.1:11:21:participant\nserver.2=127.0.0.1:12:22:participant\n\
                     server.3=127.0.0.1:13:23:observer\nversion=100000001";

/// What a played server does.
#[derive(Default)]
struct Part {
    members: String,
    /// For one reconfig each; none left: it is carried out.
    refusals: Vec<ErrorCode>,
    /// Connections that are closed at once.
    closes: u32,
    /// For one reconfig each: the connection ends instead of an answer, and it is carried out or not.
    loses: Vec<bool>,
    writers: Vec<Acl>,
    /// What was asked for: joining and leaving.
    asked: Vec<(String, String)>,
    identities: Vec<String>,
    ended: u32,
}

#[derive(Clone)]
struct Played {
    address: SocketAddr,
    part: Arc<Mutex<Part>>,
}

impl Played {
    fn start(part: Part) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let played = Self { address, part: Arc::new(Mutex::new(part)) };
        let server = played.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, server) = (stream.expect("a connection"), server.clone());
                std::thread::spawn(move || server.serve(stream));
            }
        });
        played
    }

    /// Until the client goes, or is sent away.
    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let mut word = [0; 4];
        if stream.peek(&mut word).is_ok_and(|bytes| word[..bytes] == *b"srvr") {
            stream.read_exact(&mut word).ok()?;
            return stream.write_all(b"Mode: leader\n").ok();
        }
        let is_sent_away = self.with(|part| {
            let is_sent_away = part.closes > 0;
            part.closes = part.closes.saturating_sub(1);
            is_sent_away
        });
        if is_sent_away {
            return None;
        }
        ConnectRequest::decode(receive(&mut stream)?).expect("a connect request");
        let session = ConnectResponse {
            timeout_ms: 10_000,
            session_id: 7,
            password: [1; 16],
            read_only: Some(false),
        };
        send(&mut stream, |out| session.encode(out));
        loop {
            let mut reader = Reader::new(receive(&mut stream)?);
            let header = RequestHeader::decode(&mut reader).expect("a header");
            let request = Request::decode(header.op, reader.rest()).expect("a request");
            let is_reconfig = request.op() == OpCode::Reconfig;
            let loses = self.with(|part| if is_reconfig { part.loses.pop() } else { None });
            if loses == Some(false) {
                return None;
            }
            let result = self.with(|part| part.answer(request));
            if loses == Some(true) {
                return None;
            }
            send(&mut stream, |out| encode_reply(header.xid, 1, &result, out));
        }
    }

    fn with<T>(&self, look: impl FnOnce(&mut Part) -> T) -> T {
        look(&mut self.part.lock().expect("no part panics"))
    }
}

impl Part {
    fn answer(&mut self, request: Request) -> Result<Response, ErrorCode> {
        Ok(match request {
            Request::Auth { scheme, auth } => {
                let auth = String::from_utf8(auth.expect("there").to_vec()).expect("UTF-8");
                self.identities.push(format!("{}:{auth}", scheme.expect("there")));
                if auth == "wrong" {
                    return Err(ErrorCode::AuthFailed);
                }
                Response::Empty
            }
            Request::Sync { path } => Response::Echo(path),
            Request::GetData { .. } => self.data(),
            Request::GetAcl { .. } => Response::Acl(self.writers.clone(), stat()),
            Request::Reconfig { joining, leaving, members: None, version: -1 } => {
                let said = |text: Option<Text>| text.map_or(String::new(), |text| text.to_string());
                let (joining, leaving) = (said(joining), said(leaving));
                self.asked.push((joining.clone(), leaving.clone()));
                if !self.refusals.is_empty() {
                    return Err(self.refusals.remove(0));
                }
                let kept = self.members.lines().filter(|line| {
                    !line.starts_with("version")
                        && leaving
                            .split(',')
                            .all(|id| id.is_empty() || !line.starts_with(&format!("server.{id}=")))
                });
                let mut lines: Vec<String> = kept.map(str::to_string).collect();
                lines
                    .extend(joining.split(',').filter(|line| !line.is_empty()).map(str::to_string));
                self.members = format!("{}\nversion=200000009", lines.join("\n"));
                self.data()
            }
            Request::CloseSession => {
                self.ended += 1;
                Response::Empty
            }
            other => panic!("nobody asks for {other:?}"),
        })
    }

    fn data(&self) -> Response {
        Response::Data(Some(Bytes::from(self.members.clone())), stat())
    }
}

fn stat() -> Stat {
    Stat::decode(&mut Reader::new(Bytes::from_static(&[0; 68]))).expect("zeros are a Stat")
}

fn receive(stream: &mut TcpStream) -> Option<Bytes> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut payload = vec![0; usize::try_from(u32::from_be_bytes(length)).expect("64 bits")];
    stream.read_exact(&mut payload).ok()?;
    Some(payload.into())
}

fn send(stream: &mut TcpStream, write: impl FnOnce(&mut Vec<u8>)) {
    let mut out = Vec::new();
    frame::append(&mut out, write);
    // Whoever has gone does not want it.
    let _ = stream.write_all(&out);
}

fn ensemble() -> Part {
    Part { members: THREE.to_string(), ..Part::default() }
}

fn refusing(code: ErrorCode) -> Part {
    Part { refusals: vec![code], ..ensemble() }
}

fn member(server: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(testkit::binary());
    command.arg("member").args(arguments).args(["--server", server]);
    command.stdin(Stdio::null()).output().expect("the binary runs")
}

fn on(played: &Played, arguments: &[&str]) -> Output {
    member(&played.address.to_string(), arguments)
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// What it said when it failed with this exit code.
fn failure(output: &Output, exit: i32) -> String {
    let said = String::from_utf8(output.stderr.clone()).expect("UTF-8");
    assert_eq!(output.status.code(), Some(exit), "{said}{}", stdout(output));
    assert!(said.starts_with("lockkeeper: "), "{said}");
    said
}

fn success(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    stdout(output)
}

const FOURTH: &str = "server.4=127.0.0.1:14:24;127.0.0.1:1";

#[test]
fn members_are_listed_with_what_they_are_right_now() {
    let played = Played::start(ensemble());
    let closed = testkit::ports::closed();
    played.with(|part| {
        part.members =
            format!("server.1=127.0.0.1:1:2:participant\nserver.9=h:3:4:observer;{closed}\n")
                + "version=100000001";
    });
    let said = success(&on(&played, &["list"]));
    let lines: Vec<&str> = said.lines().collect();
    // Its line says no client port: it is asked at the one that the command was told of.
    assert!(lines[0].starts_with("server.1=127.0.0.1:1:2:participant "), "{said}");
    assert!(lines[0].ends_with("  leader"), "{said}");
    assert!(lines[1].contains(&format!("  does not answer at {closed}: ")), "{said}");
    assert_eq!(lines[2], "version=100000001");
    assert_eq!(played.with(|part| part.ended), 1, "the session is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_on_its_own_has_no_members() {
    let server = lockkeeper::Server::builder().in_memory().start().await.unwrap();
    for arguments in [&["list"][..], &["add", FOURTH], &["remove", "1"]] {
        let said = failure(&member(&server.connect_string(), arguments), 1);
        assert!(said.contains("runs on its own"), "{said}");
    }
    server.stop().await.unwrap();
}

#[test]
fn a_member_is_added_in_zookeepers_form_and_the_new_members_are_shown() {
    let played = Played::start(ensemble());
    let said = success(&on(&played, &["add", FOURTH, "--auth", "digest:super:secret"]));
    assert!(said.contains("server 4 is a member"), "{said}");
    assert!(said.contains("server.4=127.0.0.1:14:24:participant;127.0.0.1:1"), "{said}");
    assert!(said.contains("version=200000009"), "{said}");
    let asked = "server.4=127.0.0.1:14:24:participant;127.0.0.1:1".to_string();
    assert_eq!(played.with(|part| part.asked.clone()), [(asked, String::new())]);
    assert_eq!(played.with(|part| part.identities.clone()), ["digest:super:secret"]);
    // Once more: it is so already.
    let said = success(&on(&played, &["add", FOURTH]));
    assert!(said.starts_with("nothing to change\n"), "{said}");
    assert_eq!(played.with(|part| part.asked.len()), 1);
}

#[test]
fn members_are_removed_and_nothing_else_is_said_of_the_others() {
    let played = Played::start(ensemble());
    let said = success(&on(&played, &["remove", "3", "0"]));
    assert!(said.contains("server 3 is no member any more"), "{said}");
    assert_eq!(played.with(|part| part.asked.clone()), [(String::new(), "3,0".to_string())]);
    assert!(!played.with(|part| part.members.contains("server.3")));
}

#[test]
fn credentials_may_come_from_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("auth");
    std::fs::write(&file, "digest:super:secret\n\ndigest:a:b:c\n").unwrap();
    let played = Played::start(ensemble());
    success(&on(&played, &["list", "--auth-file", file.to_str().unwrap()]));
    let identities = played.with(|part| part.identities.clone());
    assert_eq!(identities, ["digest:super:secret", "digest:a:b:c"]);
}

#[test]
fn what_is_wrong_with_a_line_is_told_before_anybody_is_asked() {
    for (line, part) in [
        ("4=h:1:2;3", "neither server.N="),
        ("server.255=h:1:2;3", "server id `255`"),
        ("server.4=h:1;3", "expected host:peerPort"),
        ("server.4=h:1:2", "append ;<clientPort>"),
        ("version=5", "expected one server.N="),
    ] {
        let said = failure(&member("127.0.0.1:1", &["add", line]), 2);
        assert!(said.contains(part), "{line}: {said}");
    }
    let said = failure(&member("127.0.0.1:x", &["list"]), 2);
    assert!(said.contains("--server: the port `x`"), "{said}");
    let wrong = member("127.0.0.1:1", &["list", "--auth", "topsecret"]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn each_refusal_says_what_to_do() {
    for (code, exit, part) in [
        (ErrorCode::ReconfigDisabled, 1, "set reconfigEnabled=true"),
        (ErrorCode::NewConfigNoQuorum, 75, "of the 3 servers that would vote"),
        (ErrorCode::BadArguments, 1, "claim the same host and port"),
        (ErrorCode::SystemError, 1, "SYSTEMERROR (-1)"),
    ] {
        let said = failure(&on(&Played::start(refusing(code)), &["add", FOURTH]), exit);
        assert!(said.contains(part), "{code}: {said}");
    }
    let fifth = FOURTH.replace("server.4", "server.5");
    let played = Played::start(refusing(ErrorCode::NewConfigNoQuorum));
    let said = failure(&on(&played, &["add", FOURTH, &fifth]), 75);
    assert!(said.contains("only 2 of them vote today. Add fewer at once"), "{said}");
    let played = Played::start(refusing(ErrorCode::NewConfigNoQuorum));
    let said = failure(&on(&played, &["remove", "2"]), 75);
    assert!(said.contains("Or remove one that is down instead"), "{said}");
    let played = Played::start(refusing(ErrorCode::BadArguments));
    let said = failure(&on(&played, &["remove", "2"]), 1);
    assert!(said.contains("a single server would vote"), "{said}");
    assert!(said.contains("Add another one first"), "{said}");
}

#[test]
fn who_lacks_permission_learns_who_has_it() {
    let played = Played::start(refusing(ErrorCode::NoAuth));
    let said = failure(&on(&played, &["remove", "3"]), 77);
    assert!(said.contains("only the super user has it"), "{said}");
    assert!(said.contains("--auth digest:super:PASSWORD"), "{said}");

    let entry = |perms, id: &str| Acl { perms, scheme: Text::from("digest"), id: Text::from(id) };
    let writers = vec![entry(3, "ann:hash"), entry(1, "bob:hash")];
    let played = Played::start(Part { writers, ..refusing(ErrorCode::NoAuth) });
    let said = failure(&on(&played, &["remove", "3"]), 77);
    assert!(said.contains("the super user: digest:ann."), "{said}");

    let played = Played::start(ensemble());
    let said = failure(&on(&played, &["remove", "3", "--auth", "ip:wrong"]), 77);
    assert!(said.contains("AUTHFAILED (-115)"), "{said}");
}

#[test]
fn a_change_waits_for_an_earlier_one() {
    let refusals = vec![ErrorCode::ReconfigInProgress; 2];
    let played = Played::start(Part { refusals, ..ensemble() });
    success(&on(&played, &["remove", "3"]));
    assert_eq!(played.with(|part| part.asked.len()), 3);
}

#[test]
fn a_lost_answer_is_looked_up_in_the_members() {
    let played = Played::start(Part { loses: vec![true], ..ensemble() });
    let said = success(&on(&played, &["add", FOURTH]));
    assert!(said.contains("server 4 is a member"), "{said}");
    assert_eq!(played.with(|part| part.asked.len()), 1);

    let played = Played::start(Part { loses: vec![false], ..ensemble() });
    let said = failure(&on(&played, &["remove", "3"]), 75);
    assert!(said.contains("the members are as before so far: repeat the command"), "{said}");
}

/// The members do not say whether a server that was removed has a vote still.
#[test]
fn a_lost_answer_to_a_removal_is_asked_for_again() {
    let played = Played::start(Part { loses: vec![true], ..ensemble() });
    let said = success(&on(&played, &["remove", "3"]));
    assert!(said.contains("server 3 is no member any more: stop it"), "{said}");
    assert_eq!(played.with(|part| part.asked.len()), 2);

    let played = Played::start(Part { loses: vec![true; 2], ..ensemble() });
    let said = failure(&on(&played, &["remove", "3"]), 75);
    assert!(said.contains("no member any more is: 3. No server has said that its vote"), "{said}");
    assert!(said.contains("repeat the command before it is stopped"), "{said}");
    success(&on(&played, &["remove", "3"]));
}

#[test]
fn servers_are_tried_in_turn_and_again_during_an_election() {
    let closed = testkit::ports::closed();
    let played = Played::start(Part { closes: 2, ..ensemble() });
    let servers = format!("{closed},{}", played.address);
    success(&member(&servers, &["list"]));

    let said = failure(&member(&closed.to_string(), &["list"]), 69);
    assert!(said.contains(&format!("no server answers: {closed}: ")), "{said}");

    let played = Played::start(Part { closes: u32::MAX, ..ensemble() });
    let said = failure(&on(&played, &["list"]), 69);
    assert!(said.contains("it has no leader at the moment (see its log)"), "{said}");
}
