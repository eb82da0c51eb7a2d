//! The proof that comes before everything else.

use super::*;
use crate::sasl::{
    CNONCE_BYTES, ClientLogin, Disbelief, NONCE_BYTES, Negotiation, SaslUsers, Step,
};

const MAGIC: i64 = 0x5f24_3501_3501_edcc;

fn with_login(password: &str) -> Learner {
    let login = ClientLogin { user: "learner".to_owned(), password: password.to_owned() };
    Learner::new(Joining { login: Some((login, [3; CNONCE_BYTES])), ..joining(BASE + 7) }, 0)
}

fn said(status: i32, token: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_long(MAGIC);
    bytes.put_int(status);
    bytes.put_buffer(token);
    bytes
}

/// The one token that it sends.
fn token(learner: &mut Learner) -> Vec<u8> {
    let mut reader = Reader::new(learner.take_output().into());
    assert_eq!((reader.long("magic"), reader.int("status")), (Ok(MAGIC), Ok(0)));
    let token = reader.buffer("token").unwrap().unwrap();
    assert_eq!(reader.remaining(), 0);
    token.to_vec()
}

fn users() -> SaslUsers {
    let mut users = SaslUsers::default();
    users.add("learner", "secret").unwrap();
    users
}

fn challenged(learner: &mut Learner) -> Negotiation {
    let mut server = Negotiation::default();
    let first = token(learner);
    assert!(first.is_empty());
    let step = server.step_for_servers(&first, &users(), || [7; NONCE_BYTES]);
    let Ok(Step::Challenge(challenge)) = step else { panic!("{step:?}") };
    let (events, ended) = fed(learner, &said(0, Some(&challenge)), 1);
    assert_eq!((events, ended), (vec![], None));
    server
}

#[test]
fn both_sides_prove_themselves_before_anything_else_is_said() {
    let mut learner = with_login("secret");
    let mut server = challenged(&mut learner);
    let step = server.step_for_servers(&token(&mut learner), &users(), || panic!("no other"));
    let Ok(Step::Proven { user, token }) = step else { panic!("{step:?}") };
    assert_eq!(user, "learner");
    let mut bytes = said(1, Some(&token));
    bytes.extend_from_slice(&Said::led().0);
    assert_eq!(fed(&mut learner, &bytes, 1), (vec![LED], None));
    let kinds: Vec<i32> = sent(&mut learner).iter().map(|sent| sent.kind).collect();
    assert_eq!(kinds, [kind::OBSERVER_INFO, kind::ACK_EPOCH]);
}

#[test]
fn a_wrong_password_convinces_no_leader() {
    let mut learner = with_login("wrong");
    let mut server = challenged(&mut learner);
    let step = server.step_for_servers(&token(&mut learner), &users(), || panic!("no other"));
    assert!(step.is_err());
    let (_, ended) = fed(&mut learner, &said(-1, None), usize::MAX);
    assert_eq!(ended, Some(Ended::Refused));
}

#[test]
fn a_leader_that_proves_nothing_is_not_followed() {
    let rspauth = b"rspauth=00000000000000000000000000000000";
    for (status, token) in [(1, Some(&rspauth[..])), (1, None), (1, Some(b"")), (0, Some(rspauth))]
    {
        let mut learner = with_login("secret");
        challenged(&mut learner);
        let (_, ended) = fed(&mut learner, &said(status, token), usize::MAX);
        assert!(matches!(ended, Some(Ended::WrongLogin(_))), "{ended:?}");
    }
    let (_, ended) = fed(&mut with_login("secret"), &said(1, Some(b"")), usize::MAX);
    assert_eq!(ended, Some(Ended::WrongLogin(Disbelief::NoChallenge)));
    let challenge = b"realm=\"x\",nonce=\"bm9uY2U\",charset=utf-8,algorithm=md5-sess";
    let (_, ended) = fed(&mut with_login("secret"), &said(1, Some(challenge)), usize::MAX);
    assert_eq!(ended, Some(Ended::WrongLogin(Disbelief::NoProof)), "success before any proof");
}

#[test]
fn what_is_no_packet_of_a_login_ends_it() {
    let mut long = said(0, None);
    long.truncate(12);
    long.put_int(i32::MAX);
    for bytes in [Said::led().0, said(2, Some(b"")), long] {
        let (_, ended) = fed(&mut with_login("secret"), &bytes, 1);
        assert!(matches!(ended, Some(Ended::Malformed(_))), "{ended:?}");
    }
}

#[test]
fn a_password_is_never_shown() {
    let shown = format!("{:?}", with_login("hidden"));
    assert!(shown.contains("learner") && !shown.contains("hidden"), "{shown}");
}
