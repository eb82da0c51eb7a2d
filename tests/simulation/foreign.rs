//! A foreign program in the network of the servers: it has none of their secrets, hears all that they say to each
//! other, and says what it likes.
//!
//! *Owns* the seals of links in worlds that have one, what it has heard, and its attempts. *Invariants*: a frame that
//! it made, changed or sent again is refused, and ends the link; behind one that it swallowed nothing is taken;
//! none of its hellos gets further. What a server then does goes by the rules of all worlds.

use std::collections::BTreeMap;

use lockkeeper_peer_auth::{
    Accepting, Broken, CHALLENGE_BYTES, Connecting, Nonce, PROOF_BYTES, Seal, Secrets, new_line,
};

use super::conn::Violation;
use super::rng::Rng;
use super::server::LinkId;

/// Frames that it remembers.
const HEARD_MAX: usize = 32;
/// How often it does something to a frame, in 1000.
const MEDDLES: u64 = 2;

/// See the module.
#[derive(Debug)]
pub struct Foreign {
    rng: Rng,
    /// What the servers share.
    secrets: Secrets,
    /// What it made up itself.
    guessed: Secrets,
    links: BTreeMap<LinkId, Sealed>,
    /// Frames with their tags, of any link.
    heard: Vec<Vec<u8>>,
    /// The last link that it heard the making of.
    hellos: Option<Heard>,
}

/// A link of two servers that share the secret.
#[derive(Debug)]
struct Sealed {
    send: Seal,
    receive: Seal,
    /// Frames that were sent, and that were taken.
    sent: u64,
    taken: u64,
    /// So many were sent before one was swallowed: behind them none is the next one.
    swallowed: Option<u64>,
}

/// What it heard of the making of a link.
#[derive(Debug)]
struct Heard {
    to: u8,
    hello: Vec<u8>,
    proof: [u8; PROOF_BYTES],
}

/// What becomes of a frame on its way.
#[derive(Debug)]
pub enum Fate {
    /// It arrives as it is.
    Passes(Vec<u8>),
    /// So it does, behind something else.
    Preceded(Vec<u8>, Vec<u8>),
    /// So it does, before something else.
    Followed(Vec<u8>, Vec<u8>),
    /// Something else arrives in its place.
    Changed(Vec<u8>),
    /// Nothing does.
    Swallowed,
}

/// What a server does with a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// It reads it.
    Read(Vec<u8>),
    /// It ends the link.
    Refused,
    /// The link has ended before.
    Late,
}

impl Foreign {
    pub fn new(seed: u64) -> Self {
        let secrets = |byte| Secrets::parse(&new_line(&[byte; 32])).expect("a line");
        Self {
            rng: Rng::new(seed, 19),
            secrets: secrets(5),
            guessed: secrets(6),
            links: BTreeMap::new(),
            heard: Vec::new(),
            hellos: None,
        }
    }

    fn nonce(&mut self) -> Nonce {
        self.rng.bytes(32).try_into().expect("so many were asked for")
    }

    /// Two servers make a link, and it tries to be one of them.
    pub fn link(&mut self, id: LinkId) -> Result<u64, Violation> {
        let (from, to) = (id.from as u8 + 1, id.to as u8 + 1);
        let refused = self.poses(from, to)?;
        let (nonce, drawn) = (self.nonce(), self.nonce());
        let hello = hello(from, to, id.number);
        let ids = self.secrets.ids(&nonce);
        let made = Accepting::challenge(&self.secrets, (to, &drawn), &hello, (&nonce, &ids));
        let (accepting, challenge) = made.expect("they share a secret");
        let connecting = Connecting { secrets: &self.secrets, server: to, nonce, hello: &hello };
        let (proof, connects) =
            connecting.answer(&challenge).map_err(|broken| format!("{id:?}: {broken}"))?;
        let accepts = accepting.check(&proof).map_err(|broken| format!("{id:?}: {broken}"))?;
        let (Some(send), Some(receive)) = (connects.send, accepts.receive) else {
            return Err(format!("{id:?} is not sealed"));
        };
        self.links.insert(id, Sealed { send, receive, sent: 0, taken: 0, swallowed: None });
        self.hellos = Some(Heard { to, hello, proof });
        Ok(refused)
    }

    /// It says hello to `to` in the name of `from`, and stands in the place of `to` when `from` calls: how often it was
    /// refused.
    fn poses(&mut self, from: u8, to: u8) -> Result<u64, Violation> {
        let (nonce, drawn) = (self.nonce(), self.nonce());
        let mut attempts: Vec<(&str, bool)> = Vec::new();
        // With a secret that it made up.
        let own = hello(from, to, u64::MAX);
        let ids = self.guessed.ids(&nonce);
        let made = Accepting::challenge(&self.secrets, (to, &drawn), &own, (&nonce, &ids));
        attempts.push(("a secret of its own", made.is_some()));
        // With ids that it heard, and a proof that it makes up.
        let ids = self.secrets.ids(&nonce);
        let made = Accepting::challenge(&self.secrets, (to, &drawn), &own, (&nonce, &ids));
        let (accepting, _) = made.ok_or("the secret is not known by its id")?;
        let proof = self.rng.bytes(PROOF_BYTES);
        attempts.push(("a made-up proof", accepting.check(&proof).is_ok()));
        // With all that it heard of another link.
        if let Some(heard) = &self.hellos {
            let made = Accepting::challenge(
                &self.secrets,
                (heard.to, &drawn),
                &heard.hello,
                (&nonce, &ids),
            );
            let (accepting, _) = made.ok_or("the secret is not known by its id")?;
            attempts.push(("a proof sent again", accepting.check(&heard.proof).is_ok()));
        }
        // It changes a hello that it hands on.
        let mut changed = own.clone();
        let at = self.rng.index(changed.len());
        changed[at] ^= 1 << self.rng.below(8);
        let made = Accepting::challenge(&self.secrets, (to, &drawn), &changed, (&nonce, &ids));
        let (accepting, challenge) = made.ok_or("the secret is not known by its id")?;
        let connecting = || Connecting { secrets: &self.secrets, server: to, nonce, hello: &own };
        let answered = connecting().answer(&challenge);
        let is_taken = answered.is_ok_and(|(proof, _)| accepting.check(&proof).is_ok());
        attempts.push(("a changed hello", is_taken));
        // It hands on the hello to another server, and that one's challenge back.
        let other = (to % 5) + 1;
        let made = Accepting::challenge(&self.secrets, (other, &drawn), &own, (&nonce, &ids));
        let (_, challenge) = made.ok_or("the secret is not known by its id")?;
        attempts.push(("the challenge of another server", connecting().answer(&challenge).is_ok()));
        // It answers with a challenge that it made up, and then has to seal its answer.
        let mut challenge = [0; CHALLENGE_BYTES];
        challenge[0] = to;
        challenge[CHALLENGE_BYTES - ids[0].len()..].copy_from_slice(&ids[0]);
        if let Ok((_, seals)) = connecting().answer(&challenge) {
            let mut receive = seals.receive.ok_or("the link is not sealed")?;
            let said = self.rng.bytes(80);
            attempts.push(("an answer that it cannot seal", receive.open(&said).is_ok()));
        }
        match attempts.iter().find(|(_, is_through)| *is_through) {
            Some((how, _)) => Err(format!("a foreign program got past the hello by {how}")),
            None => Ok(attempts.len() as u64),
        }
    }

    /// A frame leaves a server.
    pub fn carry(&mut self, id: LinkId, frame: &[u8], meddles: bool) -> Fate {
        let Some(link) = self.links.get_mut(&id) else { return Fate::Swallowed };
        let mut sealed = frame.to_vec();
        link.send.seal(&mut sealed, 0);
        link.sent += 1;
        // It has not heard this one yet.
        let again = (!self.heard.is_empty()).then(|| self.rng.pick(&self.heard).clone());
        if self.heard.len() < HEARD_MAX {
            self.heard.push(sealed.clone());
        } else {
            let at = self.rng.index(HEARD_MAX);
            self.heard[at].clone_from(&sealed);
        }
        // What it swallowed it could hand on after all.
        if !meddles || link.swallowed.is_some() || !self.rng.chance(MEDDLES) {
            return Fate::Passes(sealed);
        }
        match self.rng.below(6) {
            0 => {
                link.swallowed = Some(link.sent - 1);
                Fate::Swallowed
            }
            1 => {
                let at = self.rng.index(sealed.len());
                sealed[at] ^= 1 << self.rng.below(8);
                Fate::Changed(sealed)
            }
            2 => {
                sealed.truncate(self.rng.index(sealed.len()));
                Fate::Changed(sealed)
            }
            3 => {
                let length = self.rng.index(200);
                let made_up = self.rng.bytes(length);
                Fate::Preceded(made_up, sealed)
            }
            4 => match again {
                Some(again) => Fate::Preceded(again, sealed),
                None => Fate::Passes(sealed),
            },
            _ => Fate::Followed(sealed.clone(), sealed),
        }
    }

    /// A frame arrives at a server, which the foreign one has sent or not.
    pub fn arrives(
        &mut self,
        id: LinkId,
        mut sealed: Vec<u8>,
        is_forged: bool,
    ) -> Result<Taken, Violation> {
        let Some(link) = self.links.get_mut(&id) else { return Ok(Taken::Late) };
        let is_right = !is_forged && link.swallowed != Some(link.taken);
        match link.receive.open(&sealed) {
            Ok(length) if is_right => {
                link.taken += 1;
                sealed.truncate(length);
                Ok(Taken::Read(sealed))
            }
            Ok(_) => Err(format!(
                "{id:?}: a frame of a foreign program was taken, or one out of its place"
            )),
            Err(Broken::Tag) if !is_right => {
                self.links.remove(&id);
                Ok(Taken::Refused)
            }
            Err(broken) => Err(format!("{id:?}: what a server has sent is refused: {broken}")),
        }
    }
}

fn hello(from: u8, to: u8, number: u64) -> Vec<u8> {
    format!("server {from} to server {to}, for messages, of ensemble 7, connection {number}")
        .into_bytes()
}
