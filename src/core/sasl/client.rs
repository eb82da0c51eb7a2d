//! DIGEST-MD5, the client's side: what is said to a server, and the proof that is asked of it.
//!
//! *Owns* [`ClientLogin`], who a client proves to be, and [`Dialogue`], how far that is on one connection.
//! *Invariants*: it is done only when the server has proved that it knows the password, too; neither `Debug` nor an
//! error shows a password. *Never* chooses a nonce of its own: it is given one.
//!
//! Reproduces the mechanism of Java's `com.sun.security.sasl.digest.DigestMD5Client` as `ZooKeeperSaslClient` uses it.

use std::borrow::Cow;
use std::fmt;

use subtle::ConstantTimeEq as _;

use super::digest_md5::{
    FOR_CLIENTS, FOR_SERVERS, QOP, Service, Session, in_charset, secret, text_of,
};
use super::directives::Directives;

/// Random bytes of a client's nonce.
pub const CNONCE_BYTES: usize = 24;

/// Who a client proves to be.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientLogin {
    /// The user.
    pub user: String,
    /// The password.
    pub password: String,
}

/// The name alone.
impl fmt::Debug for ClientLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:***", self.user)
    }
}

/// How far a connection is with it.
#[derive(Debug)]
pub struct Dialogue<'a> {
    login: Cow<'a, ClientLogin>,
    service: Service,
    cnonce: String,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The server is asked for a challenge.
    Begun,
    /// It was answered, and must show this.
    Answered { proof: String },
}

/// What is to be done about a server's token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This is to be sent.
    Send(Vec<u8>),
    /// Both sides have proved that they know the password.
    Done,
}

/// Why a server is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disbelief {
    /// It has no users, or serves the client although it is none of them.
    NoToken,
    /// What it asks for is not this mechanism as ZooKeeper has it.
    NoChallenge,
    /// The name or the password has characters that the server cannot be told.
    Unwritable,
    /// It does not know the password.
    NoProof,
}

impl fmt::Display for Disbelief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoToken => "the server does not authenticate clients by SASL, or not this one",
            Self::NoChallenge => {
                "the server's challenge of SASL is not one of DIGEST-MD5 as ZooKeeper has it"
            }
            Self::Unwritable => "the server knows no charset that has the user's name and password",
            Self::NoProof => "the server has not proved that it knows the password",
        })
    }
}

impl<'a> Dialogue<'a> {
    /// Before anything is said; the first token is empty. `cnonce`: random bytes, which were never given before.
    #[must_use]
    pub fn new(login: &'a ClientLogin, cnonce: [u8; CNONCE_BYTES]) -> Self {
        Self::begun(Cow::Borrowed(login), FOR_CLIENTS, cnonce)
    }

    fn begun(login: Cow<'a, ClientLogin>, service: Service, cnonce: [u8; CNONCE_BYTES]) -> Self {
        Self { login, service, cnonce: text_of(&cnonce), stage: Stage::Begun }
    }

    /// Takes a server's token; `None` is a null one.
    ///
    /// # Errors
    /// The server is not to be believed.
    pub fn step(&mut self, token: Option<&[u8]>) -> Result<Next, Disbelief> {
        let token = token.ok_or(Disbelief::NoToken)?;
        match &self.stage {
            Stage::Begun => {
                let (response, proof) = self.answer(token)?;
                self.stage = Stage::Answered { proof };
                Ok(Next::Send(response))
            }
            Stage::Answered { proof } => {
                let said = Directives::parse(token).map_err(|_| Disbelief::NoProof)?;
                let shown = said.get("rspauth").ok_or(Disbelief::NoProof)?;
                let is_right = bool::from(proof.as_bytes().ct_eq(shown));
                if is_right { Ok(Next::Done) } else { Err(Disbelief::NoProof) }
            }
        }
    }

    /// The answer to a challenge, and what the server must show then.
    fn answer(&self, challenge: &[u8]) -> Result<(Vec<u8>, String), Disbelief> {
        let said = Directives::parse(challenge).map_err(|_| Disbelief::NoChallenge)?;
        let nonce = said.get("nonce").ok_or(Disbelief::NoChallenge)?;
        let realm = said.get("realm").unwrap_or(self.service.realm.as_bytes());
        let is_offered =
            |qops: &[u8]| qops.split(|byte| *byte == b',').any(|qop| qop.trim_ascii() == QOP);
        let is_usual =
            said.get("algorithm").is_some_and(|name| name.eq_ignore_ascii_case(b"md5-sess"))
                && said.get("qop").is_none_or(is_offered);
        if !is_usual {
            return Err(Disbelief::NoChallenge);
        }
        let is_utf_8 = said.get("charset").is_some_and(|name| name.eq_ignore_ascii_case(b"utf-8"));
        let ClientLogin { user, password } = &*self.login;
        let hashed = |text: &str| in_charset(text, is_utf_8).ok_or(Disbelief::Unwritable);
        let session = Session {
            secret: secret(&hashed(user)?, realm, &hashed(password)?),
            nonce,
            cnonce: self.cnonce.as_bytes(),
            authzid: None,
            digest_uri: self.service.digest_uri,
        };
        let mut out = Vec::new();
        match is_utf_8 {
            true => {
                out.extend_from_slice(b"charset=utf-8,");
                put_quoted("username", user.as_bytes(), &mut out);
            }
            false => put_quoted("username", &hashed(user)?, &mut out),
        }
        put_quoted("realm", realm, &mut out);
        put_quoted("nonce", nonce, &mut out);
        out.extend_from_slice(b"nc=00000001,");
        put_quoted("cnonce", self.cnonce.as_bytes(), &mut out);
        put_quoted("digest-uri", self.service.digest_uri, &mut out);
        out.extend_from_slice(
            format!("maxbuf=65536,response={},qop=auth", session.response()).as_bytes(),
        );
        Ok((out, session.response_auth()))
    }
}

impl Dialogue<'static> {
    /// The same with another server of an ensemble of ZooKeeper, on the ports that those use among themselves.
    #[must_use]
    pub fn with_server(login: ClientLogin, cnonce: [u8; CNONCE_BYTES]) -> Self {
        Self::begun(Cow::Owned(login), FOR_SERVERS, cnonce)
    }
}

/// Appends a directive whose value may have any characters.
fn put_quoted(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"=\"");
    for byte in value {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.extend_from_slice(b"\",");
}

#[cfg(test)]
mod tests {
    use super::super::{NONCE_BYTES, Negotiation, SaslUsers, Step};
    use super::*;

    fn login(user: &str, password: &str) -> ClientLogin {
        ClientLogin { user: user.to_owned(), password: password.to_owned() }
    }

    fn said(next: Next) -> String {
        let Next::Send(bytes) = next else { panic!("{next:?}") };
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn it_says_and_asks_for_what_another_implementation_has_worked_out() {
        let bob = login("bob", "bobsecret");
        let mut dialogue = Dialogue::new(&bob, [0; CNONCE_BYTES]);
        dialogue.cnonce = "Y25vbmNl".to_owned();
        let challenge = b"realm=\"zk-sasl-md5\",nonce=\"bm9uY2U\",charset=utf-8,algorithm=md5-sess";
        let answer = said(dialogue.step(Some(challenge)).unwrap());
        assert_eq!(
            answer,
            "charset=utf-8,username=\"bob\",realm=\"zk-sasl-md5\",nonce=\"bm9uY2U\",nc=00000001,\
             cnonce=\"Y25vbmNl\",digest-uri=\"zookeeper/zk-sasl-md5\",maxbuf=65536,\
             response=0a1cb0249261e91c692f8895653044a7,qop=auth"
        );
        let proof = b"rspauth=02a4bffe5306cb4c6af0dd2ec2a3b5e5";
        assert_eq!(dialogue.step(Some(proof)), Ok(Next::Done));
    }

    #[test]
    fn our_own_server_is_convinced_and_convinces_whatever_the_characters() {
        for (user, password) in [
            ("bob", "bobsecret"),
            ("a\"b\\c", "d\\\"e,f="),
            ("J\u{fc}rgen", "gr\u{fc}n"),
            ("\u{3a9}", "\u{3c9}"),
        ] {
            let mut users = SaslUsers::default();
            users.add(user, password).unwrap();
            let who = login(user, password);
            let (mut client, mut server) =
                (Dialogue::new(&who, [3; CNONCE_BYTES]), Negotiation::default());
            let challenge = server.step(b"", &users, || [7; NONCE_BYTES]).unwrap();
            let Step::Challenge(challenge) = challenge else { panic!("{challenge:?}") };
            let answer = said(client.step(Some(&challenge)).unwrap());
            let step = server.step(answer.as_bytes(), &users, || panic!("no other challenge"));
            let Ok(Step::Proven { user: proven, token }) = step else { panic!("{user}: {step:?}") };
            assert_eq!(proven, user);
            assert_eq!(client.step(Some(&token)), Ok(Next::Done));
        }
    }

    #[test]
    fn a_server_that_proves_nothing_is_not_believed() {
        let bob = login("bob", "bobsecret");
        let challenge = b"realm=\"zk-sasl-md5\",nonce=\"bm9uY2U\",charset=utf-8,algorithm=md5-sess";
        for (token, expected) in [
            (None, Disbelief::NoToken),
            (Some(&b""[..]), Disbelief::NoProof),
            (Some(b"rspauth="), Disbelief::NoProof),
            (Some(b"rspauth=00000000000000000000000000000000"), Disbelief::NoProof),
            (Some(b"proof=1"), Disbelief::NoProof),
        ] {
            let mut dialogue = Dialogue::new(&bob, [0; CNONCE_BYTES]);
            dialogue.step(Some(challenge)).unwrap();
            assert_eq!(dialogue.step(token), Err(expected), "{token:?}");
        }
        assert_eq!(Dialogue::new(&bob, [0; CNONCE_BYTES]).step(None), Err(Disbelief::NoToken));
    }

    #[test]
    fn a_challenge_of_something_else_is_not_answered() {
        let bob = login("bob", "bobsecret");
        for challenge in [
            "",
            "realm=\"zk-sasl-md5\",charset=utf-8,algorithm=md5-sess",
            "nonce=\"x\",charset=utf-8",
            "nonce=\"x\",algorithm=md5",
            "nonce=\"x\",algorithm=md5-sess,qop=\"auth-int,auth-conf\"",
            "nonce=\"x",
        ] {
            let mut dialogue = Dialogue::new(&bob, [0; CNONCE_BYTES]);
            let step = dialogue.step(Some(challenge.as_bytes()));
            assert_eq!(step, Err(Disbelief::NoChallenge), "{challenge}");
        }
        let mut dialogue = Dialogue::new(&bob, [0; CNONCE_BYTES]);
        let several = b"nonce=\"x\",algorithm=MD5-sess,qop=\"auth-int, auth\"";
        said(dialogue.step(Some(several)).unwrap());
        let greek = login("\u{3a9}", "x");
        let mut dialogue = Dialogue::new(&greek, [0; CNONCE_BYTES]);
        assert_eq!(dialogue.step(Some(several)), Err(Disbelief::Unwritable));
    }

    #[test]
    fn a_login_is_never_shown() {
        let text = format!("{:?}", Dialogue::new(&login("bob", "hidden"), [0; CNONCE_BYTES]));
        assert!(text.contains("bob") && !text.contains("hidden"), "{text}");
    }
}
