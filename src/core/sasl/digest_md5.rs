//! DIGEST-MD5, the server's side: a challenge, a response, and the proof that the server knows the password, too.
//!
//! *Owns* [`Negotiation`], how far one connection is, and the arithmetic of RFC 2831. *Invariants*: after a challenge
//! there is one response, right or wrong; an unknown user costs and answers what a wrong password does; the
//! comparison takes the same time wherever the first difference is. *Never* chooses a nonce: it is given one.
//!
//! Reproduces the mechanism of Java's `com.sun.security.sasl.digest.DigestMD5Server` as ZooKeeper configures it: one
//! realm, the quality of protection `auth`, and a client that speaks first, with an empty token.

use md5::{Digest as _, Md5};
use subtle::{Choice, ConstantTimeEq as _};

use super::SaslUsers;
use super::directives::{Directives, Malformed};

/// Random bytes of a nonce.
pub const NONCE_BYTES: usize = 24;
/// Longest digest-response, as in Java.
const RESPONSE_BYTES_MAX: usize = 4096;
/// What a client proves itself to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Service {
    /// The one realm, which is the name that ZooKeeper gives to every server.
    pub(super) realm: &'static str,
    /// The service and the server that a client must have meant.
    pub(super) digest_uri: &'static [u8],
}

/// A server, to its clients.
pub(super) const FOR_CLIENTS: Service =
    Service { realm: "zk-sasl-md5", digest_uri: b"zookeeper/zk-sasl-md5" };
/// A server, to the other servers of its ensemble.
pub(super) const FOR_SERVERS: Service =
    Service { realm: "zk-quorum-sasl-md5", digest_uri: b"zookeeper-quorum/zk-quorum-sasl-md5" };

/// No response but the first is taken for a nonce.
const NONCE_COUNT: &[u8] = b"00000001";
/// The quality of protection: authentication alone.
pub(super) const QOP: &[u8] = b"auth";
/// What a user who is not there is judged by; whatever it gives counts as wrong.
const NO_PASSWORD: &str = "there is no such user";

/// How far a connection is with proving who its client is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Negotiation {
    /// Its client has said nothing.
    #[default]
    Unbegun,
    /// It was challenged.
    Challenged {
        /// By this.
        nonce: String,
    },
    /// It has succeeded or failed: there is no second one on a connection, as in ZooKeeper.
    Over,
}

/// What is answered to a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The client must answer this.
    Challenge(Vec<u8>),
    /// It has proved to be this user.
    Proven {
        /// The user.
        user: String,
        /// The proof that the server knows the password.
        token: Vec<u8>,
    },
}

/// The client has proved nothing. Not told why: that would help to guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

impl Negotiation {
    /// Takes a client's token. `nonce` gives random bytes, which were never given before.
    ///
    /// # Errors
    /// [`Refused`], and so is everything that comes after.
    pub fn step(
        &mut self,
        token: &[u8],
        users: &SaslUsers,
        nonce: impl FnOnce() -> [u8; NONCE_BYTES],
    ) -> Result<Step, Refused> {
        self.step_as(FOR_CLIENTS, token, users, nonce)
    }

    /// The same, as one server does it for another.
    #[cfg(test)]
    pub fn step_for_servers(
        &mut self,
        token: &[u8],
        users: &SaslUsers,
        nonce: impl FnOnce() -> [u8; NONCE_BYTES],
    ) -> Result<Step, Refused> {
        self.step_as(FOR_SERVERS, token, users, nonce)
    }

    fn step_as(
        &mut self,
        service: Service,
        token: &[u8],
        users: &SaslUsers,
        nonce: impl FnOnce() -> [u8; NONCE_BYTES],
    ) -> Result<Step, Refused> {
        match std::mem::replace(self, Self::Over) {
            Self::Unbegun if token.is_empty() => {
                let nonce = text_of(&nonce());
                let challenge = challenge(service, &nonce);
                *self = Self::Challenged { nonce };
                Ok(Step::Challenge(challenge))
            }
            Self::Challenged { nonce } => judge(service, token, &nonce, users),
            Self::Unbegun | Self::Over => Err(Refused),
        }
    }
}

/// As nonces are written.
pub(super) fn text_of(nonce: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(nonce)
}

/// As ZooKeeper writes it: no quality of protection is `auth` alone.
fn challenge(service: Service, nonce: &str) -> Vec<u8> {
    let realm = service.realm;
    let text = format!("realm=\"{realm}\",nonce=\"{nonce}\",charset=utf-8,algorithm=md5-sess");
    text.into_bytes()
}

/// Judges the answer to a challenge.
fn judge(service: Service, token: &[u8], nonce: &str, users: &SaslUsers) -> Result<Step, Refused> {
    if token.len() > RESPONSE_BYTES_MAX {
        return Err(Refused);
    }
    let said = Directives::parse(token)?;
    let is_utf_8 = match said.get("charset") {
        Some(charset) if charset.eq_ignore_ascii_case(b"utf-8") => true,
        Some(_) => return Err(Refused),
        None => false,
    };
    let need = |name: &str| said.get(name).ok_or(Refused);
    let fits = need("realm")? == service.realm.as_bytes()
        && need("nonce")? == nonce.as_bytes()
        && need("nc")? == NONCE_COUNT
        && said.get("qop").is_none_or(|qop| qop == QOP)
        && need("digest-uri")?.eq_ignore_ascii_case(service.digest_uri);
    if !fits {
        return Err(Refused);
    }
    let (username, response) = (need("username")?, need("response")?);
    let user = match is_utf_8 {
        true => String::from_utf8(username.to_vec()).map_err(|_| Refused)?,
        false => username.iter().copied().map(char::from).collect(),
    };
    // Who guesses must not learn which names there are: nothing differs but the last word.
    let known = users.password_of(&user).and_then(|password| in_charset(password, is_utf_8));
    let is_known = Choice::from(u8::from(known.is_some()));
    let password = known.unwrap_or_else(|| NO_PASSWORD.as_bytes().to_vec());
    let user_bytes = in_charset(&user, is_utf_8).ok_or(Refused)?;
    let session = Session {
        secret: secret(&user_bytes, service.realm.as_bytes(), &password),
        nonce: nonce.as_bytes(),
        cnonce: need("cnonce")?,
        authzid: said.get("authzid"),
        digest_uri: need("digest-uri")?,
    };
    let is_right = session.response().as_bytes().ct_eq(response) & is_known;
    if bool::from(is_right) || mutant!("sasl-any-response") {
        let token = format!("rspauth={}", session.response_auth()).into_bytes();
        return Ok(Step::Proven { user, token });
    }
    Err(Refused)
}

/// What a response is made of.
pub(super) struct Session<'a> {
    /// Of user, realm and password.
    pub(super) secret: [u8; 16],
    pub(super) nonce: &'a [u8],
    pub(super) cnonce: &'a [u8],
    pub(super) authzid: Option<&'a [u8]>,
    pub(super) digest_uri: &'a [u8],
}

impl Session<'_> {
    /// What the client says.
    pub(super) fn response(&self) -> String {
        self.value(b"AUTHENTICATE:")
    }

    /// What the server says.
    pub(super) fn response_auth(&self) -> String {
        self.value(b":")
    }

    fn value(&self, method: &[u8]) -> String {
        let first = Md5::new().chain_update(self.secret);
        let first = first
            .chain_update(b":")
            .chain_update(self.nonce)
            .chain_update(b":")
            .chain_update(self.cnonce);
        let first = match self.authzid {
            Some(authzid) => first.chain_update(b":").chain_update(authzid),
            None => first,
        };
        let second = Md5::new().chain_update(method).chain_update(self.digest_uri);
        let (first, second) = (hex(&first.finalize()), hex(&second.finalize()));
        let parts =
            [first.as_bytes(), self.nonce, NONCE_COUNT, self.cnonce, QOP, second.as_bytes()];
        hex(&Md5::digest(parts.join(&b':')))
    }
}

/// Of which every response is made.
pub(super) fn secret(user: &[u8], realm: &[u8], password: &[u8]) -> [u8; 16] {
    Md5::digest([user, realm, password].join(&b':')).into()
}

/// As it is hashed: in ISO 8859-1 if that has all its characters, else in UTF-8 if the client knows of it. `None`:
/// there are no such bytes. (Java hashes `?` in place of each character then, which would be a password, too.)
pub(super) fn in_charset(text: &str, is_utf_8: bool) -> Option<Vec<u8>> {
    let latin_1: Option<Vec<u8>> =
        text.chars().map(|character| u8::try_from(u32::from(character)).ok()).collect();
    latin_1.or_else(|| is_utf_8.then(|| text.as_bytes().to_vec()))
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|half| char::from(HEX[usize::from(half)]))
        .collect()
}

const HEX: &[u8; 16] = b"0123456789abcdef";

impl From<Malformed> for Refused {
    fn from(_: Malformed) -> Self {
        Self
    }
}

/// The nonce of a challenge.
#[cfg(test)]
pub fn nonce_of(challenge: &[u8]) -> String {
    let said = Directives::parse(challenge).expect("a challenge");
    String::from_utf8(said.get("nonce").expect("a nonce").to_vec()).expect("base64")
}

/// What a client with this password says, all of it in UTF-8.
#[cfg(test)]
pub fn client_response(user: &str, password: &str, nonce: &str, more: &str) -> String {
    let bytes = |text: &str| in_charset(text, true).unwrap();
    let session = Session {
        secret: secret(&bytes(user), FOR_CLIENTS.realm.as_bytes(), &bytes(password)),
        nonce: nonce.as_bytes(),
        cnonce: b"Y25vbmNl",
        authzid: None,
        digest_uri: FOR_CLIENTS.digest_uri,
    };
    let (realm, response) = (FOR_CLIENTS.realm, session.response());
    format!(
        "charset=utf-8,username=\"{user}\",realm=\"{realm}\",nonce=\"{nonce}\",nc=00000001,cnonce=\"Y25vbmNl\",\
         digest-uri=\"zookeeper/zk-sasl-md5\",maxbuf=65536,response={response},qop=auth{more}"
    )
}

#[cfg(test)]
mod tests {
    use super::{client_response as response, *};
    use crate::rng::Rng;

    fn users() -> SaslUsers {
        let mut users = SaslUsers::default();
        for (name, password) in
            [("bob", "bobsecret"), ("J\u{fc}rgen", "gr\u{fc}n"), ("\u{3a9}", "\u{3c9}")]
        {
            users.add(name, password).unwrap();
        }
        users
    }

    /// A connection that was challenged, and its nonce.
    fn challenged() -> (Negotiation, String) {
        let mut negotiation = Negotiation::default();
        let step = negotiation.step(b"", &users(), || [7; NONCE_BYTES]).unwrap();
        let Step::Challenge(challenge) = step else { panic!("{step:?}") };
        (negotiation, nonce_of(&challenge))
    }

    fn answer(negotiation: &mut Negotiation, token: &str) -> Result<Step, Refused> {
        negotiation.step(token.as_bytes(), &users(), || panic!("no second challenge"))
    }

    #[test]
    fn the_values_are_those_of_rfc_2831() {
        let session = Session {
            secret: secret(b"chris", b"elwood.innosoft.com", b"secret"),
            nonce: b"OA6MG9tEQGm2hh",
            cnonce: b"OA6MHXh6VqTrRk",
            authzid: None,
            digest_uri: b"imap/elwood.innosoft.com",
        };
        assert_eq!(session.response(), "d388dad90d4bbd760a152321f2143af7");
        assert_eq!(session.response_auth(), "ea40f60335c427b5527b84dbabcdfffd");
    }

    #[test]
    fn the_values_with_zookeepers_names_are_those_of_another_implementation() {
        let session = Session {
            secret: secret(b"bob", FOR_CLIENTS.realm.as_bytes(), b"bobsecret"),
            nonce: b"bm9uY2U",
            cnonce: b"Y25vbmNl",
            authzid: None,
            digest_uri: FOR_CLIENTS.digest_uri,
        };
        assert_eq!(session.response(), "0a1cb0249261e91c692f8895653044a7");
        assert_eq!(session.response_auth(), "02a4bffe5306cb4c6af0dd2ec2a3b5e5");
    }

    #[test]
    fn the_right_password_proves_the_user_once() {
        for (user, password) in
            [("bob", "bobsecret"), ("J\u{fc}rgen", "gr\u{fc}n"), ("\u{3a9}", "\u{3c9}")]
        {
            let (mut negotiation, nonce) = challenged();
            let said = response(user, password, &nonce, "");
            let step = answer(&mut negotiation, &said).unwrap();
            let Step::Proven { user: proven, token } = step else { panic!("{step:?}") };
            assert_eq!(proven, user);
            assert!(token.starts_with(b"rspauth=") && token.len() == 40);
            assert_eq!(answer(&mut negotiation, &said), Err(Refused), "a second time");
            assert_eq!(answer(&mut negotiation, ""), Err(Refused), "no other challenge");
        }
    }

    #[test]
    fn a_wrong_password_and_an_unknown_user_are_refused_alike_and_for_good() {
        for (user, password) in
            [("bob", "wrong"), ("bob", ""), ("eve", "bobsecret"), ("eve", NO_PASSWORD), ("", "")]
        {
            let (mut negotiation, nonce) = challenged();
            assert_eq!(
                answer(&mut negotiation, &response(user, password, &nonce, "")),
                Err(Refused)
            );
            let right = response("bob", "bobsecret", &nonce, "");
            assert_eq!(answer(&mut negotiation, &right), Err(Refused), "the challenge is used up");
        }
    }

    #[test]
    fn a_response_fits_its_challenge_and_this_service_alone() {
        let (_, nonce) = challenged();
        let right = response("bob", "bobsecret", &nonce, "");
        let other_nonce = response("bob", "bobsecret", "b3RoZXI", "");
        let changes = [
            ("nc=00000001", "nc=00000002"),
            ("nc=00000001,", ""),
            ("qop=auth", "qop=auth-int"),
            ("charset=utf-8", "charset=utf-16"),
            ("realm=\"zk-sasl-md5\"", "realm=\"other\""),
            ("realm=\"zk-sasl-md5\",", ""),
            ("zookeeper/zk-sasl-md5", "zookeeper-quorum/zk-sasl-md5"),
            ("cnonce=\"Y25vbmNl\",", ""),
            ("username=\"bob\",", ""),
            ("response=", "answer="),
            ("response=", "response=0"),
            (",qop=auth", ",qop=auth,qop=auth"),
            (",qop=auth", ",qop=auth,authzid=\"super\""),
        ];
        let wrong = changes.iter().map(|(from, to)| right.replacen(from, to, 1));
        for said in wrong.chain([
            other_nonce,
            String::new(),
            "a".repeat(5000),
            format!("{right}{}", ",".repeat(5000)),
        ]) {
            let (mut negotiation, _) = challenged();
            assert_eq!(answer(&mut negotiation, &said), Err(Refused), "{said}");
        }
        let (mut negotiation, _) = challenged();
        answer(&mut negotiation, &right.replacen(",qop=auth", "", 1)).expect("auth is the default");
    }

    #[test]
    fn an_authorization_id_is_hashed_and_gives_nothing() {
        let (mut negotiation, nonce) = challenged();
        let session = Session {
            secret: secret(b"bob", FOR_CLIENTS.realm.as_bytes(), b"bobsecret"),
            nonce: nonce.as_bytes(),
            cnonce: b"Y25vbmNl",
            authzid: Some(b"super"),
            digest_uri: FOR_CLIENTS.digest_uri,
        };
        let plain = response("bob", "x", &nonce, ",authzid=\"super\"");
        let at = plain.find("response=").unwrap() + "response=".len();
        let said = format!("{}{}{}", &plain[..at], session.response(), &plain[at + 32..]);
        let step = answer(&mut negotiation, &said).unwrap();
        assert!(matches!(&step, Step::Proven { user, .. } if user == "bob"), "{step:?}");
    }

    #[test]
    fn a_password_that_the_clients_charset_cannot_write_is_not_question_marks() {
        let (mut negotiation, nonce) = challenged();
        // Without `charset` the name is ISO 8859-1, which has no omega.
        let said = response("?", "?", &nonce, "").replacen("charset=utf-8,", "", 1);
        assert_eq!(answer(&mut negotiation, &said), Err(Refused));
        assert_eq!(in_charset("\u{3c9}", false), None);
        assert_eq!(in_charset("gr\u{fc}n", true), Some(b"gr\xfcn".to_vec()));
    }

    #[test]
    fn a_first_token_that_is_not_empty_is_refused() {
        let mut negotiation = Negotiation::default();
        assert_eq!(negotiation.step(b"x", &users(), || [0; NONCE_BYTES]), Err(Refused));
        assert_eq!(negotiation, Negotiation::Over);
    }

    #[test]
    fn random_and_mangled_tokens_are_refused_without_a_panic() {
        let mut random = Rng::new(31, 0);
        let (_, nonce) = challenged();
        let right = response("bob", "bobsecret", &nonce, "").into_bytes();
        for _ in 0..20_000 {
            let mut token = right.clone();
            for _ in 0..=random.below(3) {
                let at = usize::try_from(random.below(token.len() as u64)).unwrap();
                match random.below(3) {
                    0 => token.truncate(at.max(1)),
                    1 => {
                        token[at] =
                            token[at].wrapping_add(1 + u8::try_from(random.below(255)).unwrap())
                    }
                    _ => token.insert(at, *b"\",=\\\0 \xff".get(at % 7).unwrap()),
                }
            }
            let (mut negotiation, _) = challenged();
            let given = negotiation.step(&token, &users(), || [0; NONCE_BYTES]);
            // What was changed may be a blank or `maxbuf`; then it is still bob.
            if let Ok(step) = given {
                assert!(matches!(&step, Step::Proven { user, .. } if user == "bob"), "{step:?}");
            }
        }
    }
}
