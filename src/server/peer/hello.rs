//! What two servers say to each other first.
//!
//! *Owns* the hello, the answer to it, and the judgement on both. *Invariants*: nothing else is read
//! from a connection before its hello was accepted; every refusal comes with words for people, which
//! name both sides; what cannot be decoded is refused without an answer. *Never* trusts a name: a
//! server is who its directory says it is.
//!
//! Takes the place of the handshakes of `QuorumCnxManager` and of `LearnerHandler`.
//!
//! ```text
//! hello    "LKPEER01" | frame: versions u16 to u16 | server u8 | kind u8 | first | software: string
//!            | second | term u64 | count u32, each host: string, port u32
//!            | security u8: 0 none, 1 offered, 2 demanded; then nonce [u8; 32] | count u32, each [u8; 8]
//! answer   "LKPEER01" | frame: version u16, 0 if refused | server u8 | first | words: string | second | term u64
//! term     the one in which the server is, 0 if it has none; a server that says none is of an earlier version
//! count    of the addresses at which the server listens for others; an earlier version says none
//! security  whether it can prove a secret: `peer/admission.rs`. An earlier version says nothing
//! ```
//!
//! First and second are the parts of an introduction (`peer/introduction.rs`).

use std::time::Duration;

use bytes::Bytes;

use super::introduction::{decode_first, decode_second, encode_first, encode_second};
use crate::config::{HostPort, PeerAddress, SERVER_LINES_BYTES_MAX};
use crate::peer_auth::{ID_BYTES, Id, Nonce, SECRETS_MAX};
use crate::proto::{Malformed, Reader, Writer};
use crate::replica::bounds::TERM_MAX;
use crate::replica::founding::Introduction;
use crate::replica::peer::server_of;
use crate::replica::txn_version::{FIRST, RELEASE};

/// Lowest and highest version of the protocol between servers that this program speaks. A change of what
/// they say to each other after a release is a higher one; the lowest rises when what only older servers
/// say is not understood any more, which lets those be refused by name.
const HIGHEST: u16 = 3;
const LOWEST: u16 = 1;
/// The first version of the protocol whose programs know the second version of ensembles.
const SECOND_KNOWN_SINCE: u16 = 3;

/// Lowest and highest version that is spoken at this version of the ensemble: what does not know that has no business
/// with its servers.
pub(super) const fn spoken_at(ensemble_version: u8) -> (u16, u16) {
    (protocol_of(ensemble_version), HIGHEST)
}

/// The first version of the protocol whose programs know this version of ensembles.
pub(super) const fn protocol_of(ensemble_version: u8) -> u16 {
    if ensemble_version > FIRST { SECOND_KNOWN_SINCE } else { LOWEST }
}
/// From this version on, a server takes messages about digests, and about who votes.
pub(super) const LATER_SINCE: u16 = 3;
/// From this version on, a server answers [`Kind::Locks`].
pub(super) const LOCKS_SINCE: u16 = 2;
/// How long a hello or its answer may take.
pub(super) const HELLO_MAX: Duration = Duration::from_secs(2);

/// Begins a hello and its answer.
pub(super) const MAGIC: &[u8; 8] = b"LKPEER01";
/// Longest hello or answer: 254 founders, their server lines and some words fit in it.
pub(super) const HELLO_BYTES_MAX: usize = SERVER_LINES_BYTES_MAX + (16 << 10);
/// Most addresses in a hello: each is tried in turn, for up to 2 s, when all others were tried.
pub(super) const HINTS_MAX: usize = 8;
/// Longest text that is shown of what another server says, bytes.
const WORDS_BYTES_MAX: usize = 1000;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing behind the hello: two servers introduce themselves.
    Introduction = 0,
    /// Messages from the one that connected.
    Messages = 1,
    /// One image from the one that connected.
    Image = 2,
    /// The one that connected asks for an image.
    Fetch = 3,
    /// The one that connected asks what the other one knows of locks. Since [`LOCKS_SINCE`].
    Locks = 4,
    /// The one that connected asks who leads and who keeps up.
    Standings = 5,
}

/// What the server that connects says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// Lowest and highest version that it speaks.
    pub versions: (u16, u16),
    /// Its server id.
    pub server: u8,
    /// What it wants.
    pub kind: Kind,
    /// Who it is.
    pub introduction: Introduction,
    /// Version of its software, for people.
    pub software: String,
    /// The term in which it is; 0 if it has none, or does not say.
    pub term: u64,
    /// Where it listens for other servers: hints. Empty if it does not say.
    pub listens: Vec<PeerAddress>,
    /// The secrets that it can prove to have.
    pub offer: Option<Offer>,
}

/// What a server says of the secrets that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// It has nothing to do with a server that has none of them.
    pub is_demanded: bool,
    /// Its random number for this connection.
    pub nonce: Nonce,
    /// What names each of them.
    pub ids: Vec<Id>,
}

/// What the other one answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The version to be spoken, or why there is none.
    pub verdict: Result<u16, String>,
    /// Its server id.
    pub server: u8,
    /// Who it is.
    pub introduction: Introduction,
    /// The term in which it is; 0 if it has none, or does not say.
    pub term: u64,
}

/// Whether a connection of `kind` between this server and another one makes sense.
///
/// # Errors
/// Why not, in words.
pub(super) fn judge(
    (own, introduction): (u8, &Introduction),
    (other, of_other): (u8, &Introduction),
    kind: Kind,
) -> Result<(), String> {
    if other == own {
        return Err(format!(
            "both servers have the id {own}: one has the wrong number in its file myid"
        ));
    }
    if let Introduction::Founded(identity) = of_other
        && server_of(identity.raft_id) != other
    {
        return Err(format!(
            "server {other} has the data of server {}: its file myid or its data directory is wrong",
            server_of(identity.raft_id)
        ));
    }
    match (introduction, of_other) {
        (Introduction::Founded(known), Introduction::Founded(identity))
            if known.ensemble != identity.ensemble =>
        {
            Err(format!(
                "server {other} belongs to ensemble {:032x}, server {own} to {:032x}: one of them \
                 has the wrong data directory",
                identity.ensemble, known.ensemble
            ))
        }
        (Introduction::Founded(_), Introduction::Founded(_)) => Ok(()),
        (_, _) if kind == Kind::Introduction => Ok(()),
        (Introduction::Founding(_), _) => Err(format!("server {own} {UNDECIDED}")),
        (_, Introduction::Founding(_)) => Err(format!("server {other} {UNDECIDED}")),
    }
}

/// The highest version that both speak.
///
/// # Errors
/// There is none, in words.
pub(super) fn negotiate(
    (own_lowest, own_highest): (u16, u16),
    other: u8,
    (lowest, highest): (u16, u16),
) -> Result<u16, String> {
    let version = highest.min(own_highest);
    if version >= lowest.max(own_lowest) {
        return Ok(version);
    }
    let remedy = if highest < own_lowest {
        "start it with this release or a later one"
    } else {
        "upgrade by one release at a time"
    };
    Err(format!(
        "server {other} speaks versions {lowest} to {highest} of the protocol between servers, this \
         one, lockkeeper {RELEASE}, {own_lowest} to {own_highest}: {remedy}"
    ))
}

impl Hello {
    /// What this server says.
    #[must_use]
    pub(super) fn new(server: u8, kind: Kind, introduction: Introduction, term: u64) -> Self {
        let (software, listens) = (RELEASE.to_string(), Vec::new());
        Self {
            versions: spoken_at(FIRST),
            server,
            kind,
            introduction,
            software,
            term,
            listens,
            offer: None,
        }
    }

    /// Speaks these versions.
    #[must_use]
    pub(super) fn speaking(self, versions: (u16, u16)) -> Self {
        Self { versions, ..self }
    }

    /// Says where this server listens; the first [`HINTS_MAX`] addresses count.
    #[must_use]
    pub(super) fn listening(mut self, listens: Vec<PeerAddress>) -> Self {
        self.listens = listens;
        self.listens.truncate(HINTS_MAX);
        self
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.versions.0.to_be_bytes());
        out.extend_from_slice(&self.versions.1.to_be_bytes());
        out.push(self.server);
        out.push(self.kind as u8);
        encode_first(&self.introduction, out);
        out.put_string(&self.software);
        encode_second(&self.introduction, out);
        out.extend_from_slice(&self.term.to_be_bytes());
        out.put_int(i32::try_from(self.listens.len()).expect("a few"));
        for PeerAddress { host, peer_port, .. } in &self.listens {
            out.put_string(host);
            out.put_int(i32::from(*peer_port));
        }
        let Some(Offer { is_demanded, nonce, ids }) = &self.offer else { return };
        out.push(if *is_demanded { DEMANDED } else { OFFERED });
        out.extend_from_slice(nonce);
        out.put_int(i32::try_from(ids.len()).expect("a few"));
        for id in ids {
            out.extend_from_slice(id);
        }
    }

    /// Its bytes.
    pub(super) fn payload(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    pub(super) fn decode(payload: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let versions = (short(&mut reader)?, short(&mut reader)?);
        let server = reader.byte("server")?;
        let kind = match reader.byte("kind")? {
            0 => Kind::Introduction,
            1 => Kind::Messages,
            2 => Kind::Image,
            3 => Kind::Fetch,
            4 => Kind::Locks,
            5 => Kind::Standings,
            _ => return Err(Malformed::new("kind", "is not known")),
        };
        let mut introduction = decode_first(&mut reader)?;
        let software = words(&mut reader)?;
        decode_second(&mut reader, &mut introduction)?;
        let term = term(&mut reader)?;
        let listens = listens(&mut reader)?;
        let offer = offer(&mut reader)?;
        // What a later version may say behind it is passed over.
        Ok(Self { versions, server, kind, introduction, software, term, listens, offer })
    }
}

impl Answer {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (version, words) = match &self.verdict {
            Ok(version) => (*version, ""),
            Err(words) => (REFUSED, words.as_str()),
        };
        out.extend_from_slice(&version.to_be_bytes());
        out.push(self.server);
        encode_first(&self.introduction, out);
        out.put_string(words);
        encode_second(&self.introduction, out);
        out.extend_from_slice(&self.term.to_be_bytes());
    }

    pub(super) fn decode(payload: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let version = short(&mut reader)?;
        let server = reader.byte("server")?;
        let mut introduction = decode_first(&mut reader)?;
        let words = words(&mut reader)?;
        decode_second(&mut reader, &mut introduction)?;
        let verdict = if version == REFUSED { Err(words) } else { Ok(version) };
        Ok(Self { verdict, server, introduction, term: term(&mut reader)? })
    }
}

/// What servers say since there is a bound on terms. Those before say nothing.
fn term(reader: &mut Reader) -> Result<u64, Malformed> {
    if reader.remaining() == 0 {
        return Ok(0);
    }
    match reader.long("term")?.cast_unsigned() {
        term if term <= TERM_MAX => Ok(term),
        _ => Err(Malformed::new("term", "is out of range")),
    }
}

/// Where a server listens. What can be no host is no hint.
fn listens(reader: &mut Reader) -> Result<Vec<PeerAddress>, Malformed> {
    if reader.remaining() == 0 {
        return Ok(Vec::new());
    }
    let count = reader.count_of("addresses", 8, HINTS_MAX)?;
    let mut listens = Vec::with_capacity(count);
    for _ in 0..count {
        let host = reader.string("host")?;
        let port = u16::try_from(reader.int("port")?);
        let port = port.map_err(|_| Malformed::new("port", "is out of range"))?;
        if let Ok(HostPort { host, port }) = HostPort::new(host.as_str(), port) {
            listens.push(PeerAddress { host, peer_port: port, election_port: 0 });
        }
    }
    Ok(listens)
}

/// What a server offers to prove.
fn offer(reader: &mut Reader) -> Result<Option<Offer>, Malformed> {
    if reader.remaining() == 0 {
        return Ok(None);
    }
    let is_demanded = match reader.byte("security")? {
        NOT_OFFERED => return Ok(None),
        OFFERED => false,
        DEMANDED => true,
        _ => return Err(Malformed::new("security", "is not known")),
    };
    let mut nonce = Nonce::default();
    fill(&mut nonce, reader)?;
    let mut ids = Vec::new();
    for _ in 0..reader.count_of("secrets", ID_BYTES, SECRETS_MAX)? {
        let mut id = Id::default();
        fill(&mut id, reader)?;
        ids.push(id);
    }
    Ok(Some(Offer { is_demanded, nonce, ids }))
}

fn fill(bytes: &mut [u8], reader: &mut Reader) -> Result<(), Malformed> {
    for byte in bytes {
        *byte = reader.byte("security")?;
    }
    Ok(())
}

fn short(reader: &mut Reader) -> Result<u16, Malformed> {
    Ok(u16::from(reader.byte("version")?) << 8 | u16::from(reader.byte("version")?))
}

/// A text to be shown: without what a terminal might take for a command.
fn words(reader: &mut Reader) -> Result<String, Malformed> {
    let text = reader.string("words")?;
    let mut shown = String::new();
    for character in text.as_str().chars() {
        if shown.len() + character.len_utf8() > WORDS_BYTES_MAX {
            break;
        }
        shown.push(if character.is_control() { ' ' } else { character });
    }
    Ok(shown)
}

const REFUSED: u16 = 0;
const NOT_OFFERED: u8 = 0;
const OFFERED: u8 = 1;
const DEMANDED: u8 = 2;
const UNDECIDED: &str = "has no data yet and does not know which ensemble it belongs to";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerSpec;
    use crate::replica::Membership;
    use crate::replica::founding::{Brings, Identified, Undecided};

    fn founded(ensemble: u128, raft_id: u64) -> Introduction {
        let founders = vec![(1, 77), (2, u64::MAX)];
        let initial = Membership { voters: vec![1, 2, 3], learners: vec![4] };
        let members = vec![ServerSpec::parse(1, "a:1:2").unwrap()];
        Introduction::Founded(Identified { ensemble, raft_id, founders, initial, members })
    }

    fn address(host: &str) -> PeerAddress {
        PeerAddress { host: host.into(), peer_port: 2888, election_port: 0 }
    }

    fn founding() -> Introduction {
        let brings = Brings::State { ensemble: 7, znodes: 5 };
        let (nonce, candidate) = (u64::MAX - 1, Some(3));
        Introduction::Founding(Undecided { nonce, candidate, brings, ..Undecided::default() })
    }

    #[test]
    fn hellos_and_answers_come_back_as_they_were_and_cut_ones_are_malformed() {
        for introduction in [founded(u128::MAX - 5, 0x00ff_ffff_ff02), founding()] {
            let hello = Hello::new(2, Kind::Image, introduction.clone(), 70_000);
            let hello = hello.listening(vec![address("a"); HINTS_MAX + 1]);
            let mut bytes = Vec::new();
            hello.encode(&mut bytes);
            let mut second = Vec::new();
            encode_second(&introduction, &mut second);
            let without_listens = bytes.len() - 4 - HINTS_MAX * 9;
            let without_term = without_listens - 8;
            // Without these, it is the hello of an earlier version.
            let ends = [without_term - second.len(), without_term, without_listens];
            for at in (0..bytes.len()).filter(|at| !ends.contains(at)) {
                assert!(Hello::decode(Bytes::copy_from_slice(&bytes[..at])).is_err(), "{at}");
            }
            let earlier = Hello::decode(Bytes::copy_from_slice(&bytes[..without_term])).unwrap();
            assert_eq!(earlier, Hello { term: 0, listens: Vec::new(), ..hello.clone() });
            let earlier = Hello::decode(Bytes::copy_from_slice(&bytes[..without_listens])).unwrap();
            assert_eq!(earlier, Hello { listens: Vec::new(), ..hello.clone() });
            let mut later = bytes.clone();
            later.extend_from_slice(&[NOT_OFFERED, 7]);
            assert_eq!(Hello::decode(later.into()).as_ref(), Ok(&hello));
            let mut wrong = bytes.clone();
            wrong[without_term..without_listens].copy_from_slice(&(TERM_MAX + 1).to_be_bytes());
            assert!(Hello::decode(wrong.into()).is_err());
            let mut many = bytes[..without_listens].to_vec();
            many.put_int(i32::try_from(HINTS_MAX + 1).unwrap());
            many.extend_from_slice(&[0; 9 * (HINTS_MAX + 1)]);
            assert!(Hello::decode(many.into()).is_err());
            assert_eq!(Hello::decode(bytes.into()), Ok(hello));
            for verdict in [Ok(1), Err("no".to_string())] {
                let introduction = introduction.clone();
                let answer = Answer { verdict, server: 9, introduction, term: TERM_MAX };
                let mut bytes = Vec::new();
                answer.encode(&mut bytes);
                assert_eq!(Answer::decode(bytes.into()), Ok(answer));
            }
        }
    }

    /// Servers of all versions must understand it, to find out which of them they have in common.
    #[test]
    fn an_offer_comes_back_as_it_was_and_a_cut_one_is_malformed() {
        for is_demanded in [false, true] {
            let mut hello = Hello::new(2, Kind::Messages, founding(), 3);
            let without = hello.payload().len();
            hello.offer = Some(Offer { is_demanded, nonce: [7; 32], ids: vec![[1; 8], [2; 8]] });
            let bytes = hello.payload();
            assert_eq!(Hello::decode(bytes.clone().into()), Ok(hello));
            for at in without + 1..bytes.len() {
                assert!(Hello::decode(Bytes::copy_from_slice(&bytes[..at])).is_err(), "{at}");
            }
            let mut wrong = bytes.clone();
            wrong[without] = 3;
            assert!(Hello::decode(wrong.into()).is_err());
        }
    }

    #[test]
    fn a_hello_and_its_answer_are_written_alike_for_ever() {
        let data = "01 00000000000000000000000000000007 0000000000000302 \
                    00000002 01 000000000000004d 02 ffffffffffffffff \
                    00000003 0000000000000001 0000000000000002 0000000000000003 \
                    00000001 0000000000000004";
        let lines = "00 0000001b 7365727665722e313d613a313a323a7061727469636970616e740a";
        let brings = "02 00000000000000000000000000000007 0000000000000005 00000000";
        let term = "0000000000000005";
        let listens = "00000001 00000003 3a3a31 00000b48";
        for (introduction, state, second) in
            [(founded(7, 0x302), data, lines), (founding(), "00 fffffffffffffffe 03", brings)]
        {
            let (versions, software) = ((1, 2), "1.2".to_owned());
            let (server, kind) = (2, Kind::Image);
            let hello = Hello {
                versions,
                server,
                kind,
                introduction,
                software,
                term: 5,
                listens: vec![address("::1")],
                offer: None,
            };
            let mut bytes = Vec::new();
            hello.encode(&mut bytes);
            assert_written(
                &bytes,
                &format!("0001 0002 02 02 {state} 00000003 312e32 {second} {term} {listens}"),
            );
            for (verdict, version, words) in
                [(Ok(2), "0002", "00000000"), (Err("no".to_owned()), "0000", "00000002 6e6f")]
            {
                let introduction = hello.introduction.clone();
                let mut bytes = Vec::new();
                Answer { verdict, server: 9, introduction, term: 5 }.encode(&mut bytes);
                assert_written(&bytes, &format!("{version} 09 {state} {words} {second} {term}"));
            }
        }
    }

    fn assert_written(bytes: &[u8], expected: &str) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected.replace(' ', ""));
    }

    #[test]
    fn words_of_others_cannot_command_a_terminal() {
        let verdict = Err(format!("\u{1b}[2J{}", "x".repeat(2 * WORDS_BYTES_MAX)));
        let mut bytes = Vec::new();
        Answer { verdict, server: 9, introduction: founding(), term: 0 }.encode(&mut bytes);
        let shown = Answer::decode(bytes.into()).unwrap().verdict.unwrap_err();
        assert!(shown.starts_with(" [2Jxx") && shown.len() == WORDS_BYTES_MAX);
    }

    #[test]
    fn each_refusal_names_what_is_wrong() {
        let own = founded(7, 1);
        let ask = |other, introduction: &Introduction, kind| {
            judge((1, &own), (other, introduction), kind)
        };
        assert_eq!(ask(2, &founded(7, 0x302), Kind::Messages), Ok(()));
        assert_eq!(ask(2, &founding(), Kind::Introduction), Ok(()));
        let refused = ask(2, &founding(), Kind::Messages).unwrap_err();
        assert!(refused.starts_with("server 2 has no data yet"), "{refused}");
        let refused = ask(1, &founded(7, 1), Kind::Messages).unwrap_err();
        assert!(refused.contains("both servers have the id 1"), "{refused}");
        let refused = ask(2, &founded(7, 3), Kind::Messages).unwrap_err();
        assert!(refused.contains("server 2 has the data of server 3"), "{refused}");
        let refused = ask(2, &founded(8, 2), Kind::Introduction).unwrap_err();
        let expected = format!("server 2 belongs to ensemble {:032x}, server 1 to {:032x}", 8, 7);
        assert!(refused.starts_with(&expected), "{refused}");
        let own = founding();
        let refused = judge((1, &own), (2, &founded(8, 2)), Kind::Messages).unwrap_err();
        assert!(refused.starts_with("server 1 has no data yet"), "{refused}");
    }

    #[test]
    fn the_highest_common_version_is_spoken() {
        let own = (1, 2);
        assert_eq!(negotiate(own, 2, (1, 7)), Ok(2));
        assert_eq!(negotiate(own, 2, (1, 1)), Ok(1), "it is not asked for locks");
        assert!(negotiate(own, 2, (0, 0)).is_err());
        let refused = negotiate(own, 2, (3, 4)).unwrap_err();
        assert!(refused.contains("speaks versions 3 to 4"), "{refused}");
        assert!(refused.contains("upgrade by one release at a time"), "{refused}");
    }

    #[test]
    fn what_does_not_know_the_version_of_the_ensemble_is_refused_with_the_release_that_does() {
        assert_eq!(spoken_at(1).0, 1);
        let refused = negotiate((protocol_of(2), 3), 2, (1, 2)).unwrap_err();
        assert!(refused.contains(&format!("this one, lockkeeper {RELEASE}, 3 to 3")), "{refused}");
        assert!(refused.contains("start it with this release"), "{refused}");
    }
}
