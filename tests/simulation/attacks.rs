//! Two servers that share a secret, and one between them that has none: what it can try.
//!
//! *Owns* the attacks, and the list of deliberate bugs each of which lets one of them through.

use std::ops::Range;

use lockkeeper_peer_auth::{
    Accepting, Broken, CHALLENGE_BYTES, Connecting, NONCE_BYTES, Nonce, PROOF_BYTES, Seals,
    Secrets, new_line,
};

pub const HELLO: &[u8] = b"versions, server 1, kind, introduction, ensemble, offer";
pub const OWN: u8 = 2;

pub fn secrets(bytes: &[u8]) -> Secrets {
    let lines: String = bytes.iter().map(|byte| new_line(&[*byte; 32])).collect();
    Secrets::parse(&lines).unwrap()
}

pub fn nonce(byte: u8) -> Nonce {
    [byte; NONCE_BYTES]
}

/// A challenge to what `said` offers and `hello` says, with the number `drawn`.
pub fn challenge(
    own: &Secrets,
    drawn: u8,
    hello: &[u8],
    said: &Secrets,
) -> Option<(Accepting, [u8; CHALLENGE_BYTES])> {
    let ids = said.ids(&nonce(1));
    Accepting::challenge(own, (OWN, &nonce(drawn)), hello, (&nonce(1), &ids))
}

pub fn connecting<'a>(secrets: &'a Secrets, hello: &'a [u8]) -> Connecting<'a> {
    Connecting { secrets, server: OWN, nonce: nonce(1), hello }
}

/// Both ends of a connection: of the one that connects, and of the one that accepts.
pub fn link(connects: &Secrets, accepts: &Secrets) -> (Seals, Seals) {
    let (accepting, challenge) = challenge(accepts, 9, HELLO, connects).unwrap();
    let (proof, seals) = connecting(connects, HELLO).answer(&challenge).unwrap();
    (seals, accepting.check(&proof).unwrap())
}

pub fn sealed(seals: &mut Seals, frame: &[u8]) -> Vec<u8> {
    let mut out = b"before it".to_vec();
    let start = out.len();
    out.extend_from_slice(frame);
    seals.send.as_mut().unwrap().seal(&mut out, start);
    out.split_off(start)
}

pub fn open(seals: &mut Seals, sealed: &[u8]) -> Result<Vec<u8>, Broken> {
    let length = seals.receive.as_mut().unwrap().open(sealed)?;
    Ok(sealed[..length].to_vec())
}

/// What is tried, and whether it got through.
pub type Attack = (&'static str, fn() -> bool);

/// What one between two sides, or at one of their places, can try without a secret. Each says whether it got through.
pub const ATTACKS: [Attack; 8] = [
    ("any byte of a proof changed", || {
        let own = secrets(&[5]);
        (0..PROOF_BYTES).any(|at| {
            let (accepting, challenge) = challenge(&own, 9, HELLO, &own).unwrap();
            let (mut proof, _) = connecting(&own, HELLO).answer(&challenge).unwrap();
            proof[at] ^= 1;
            accepting.check(&proof).is_ok()
        })
    }),
    ("any byte of the hello changed on the way: id, kind, ensemble", || {
        let own = secrets(&[5]);
        (0..HELLO.len()).any(|at| {
            let mut changed = HELLO.to_vec();
            changed[at] ^= 1;
            let (accepting, challenge) = challenge(&own, 9, &changed, &own).unwrap();
            let (proof, _) = connecting(&own, HELLO).answer(&challenge).unwrap();
            accepting.check(&proof).is_ok()
        })
    }),
    ("any byte of the number in the challenge changed on the way", || {
        let own = secrets(&[5]);
        (1..=NONCE_BYTES).any(|at| {
            let (accepting, mut challenge) = challenge(&own, 9, HELLO, &own).unwrap();
            challenge[at] ^= 1;
            let (proof, _) = connecting(&own, HELLO).answer(&challenge).unwrap();
            accepting.check(&proof).is_ok()
        })
    }),
    ("the connection led to another server", || {
        let own = secrets(&[5]);
        let (_, challenge) = challenge(&own, 9, HELLO, &own).unwrap();
        let connecting = Connecting { server: OWN + 1, ..connecting(&own, HELLO) };
        connecting.answer(&challenge).is_ok()
    }),
    ("a proof of an earlier connection sent again", || {
        let own = secrets(&[5]);
        let (_, before) = challenge(&own, 8, HELLO, &own).unwrap();
        let (proof, _) = connecting(&own, HELLO).answer(&before).unwrap();
        let (accepting, _) = challenge(&own, 9, HELLO, &own).unwrap();
        accepting.check(&proof).is_ok()
    }),
    ("any byte of a frame or its tag changed, or the frame cut", || {
        let whole = sealed(&mut link(&secrets(&[5]), &secrets(&[5])).0, b"a frame");
        let changed = |at: usize| {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            changed
        };
        let all: Range<usize> = 0..whole.len();
        let attempts = all.clone().map(changed).chain(all.map(|at| whole[..at].to_vec()));
        attempts.into_iter().any(|frame| {
            let (_, mut other) = link(&secrets(&[5]), &secrets(&[5]));
            open(&mut other, &frame).is_ok()
        })
    }),
    ("a frame sent twice, left out, or in another place", || {
        let try_order = |order: &[usize]| {
            let (mut one, mut other) = link(&secrets(&[5]), &secrets(&[5]));
            let frames: Vec<_> = [b"a", b"b", b"c"].iter().map(|f| sealed(&mut one, *f)).collect();
            order.iter().all(|at| open(&mut other, &frames[*at]).is_ok())
        };
        [&[0, 0][..], &[1], &[0, 2], &[0, 1, 0]].into_iter().any(try_order)
    }),
    ("a frame sent back to its sender", || {
        let (mut one, _) = link(&secrets(&[5]), &secrets(&[5]));
        let frame = sealed(&mut one, b"a frame");
        open(&mut one, &frame).is_ok()
    }),
];

/// Each is a check that is left out.
pub const BUGS: [&str; 6] = [
    "peer-auth-any-proof",
    "peer-auth-any-tag",
    "peer-auth-any-order",
    "peer-auth-any-server",
    "peer-auth-hello-unbound",
    "peer-auth-challenge-unbound",
];

/// Whether one of the attacks gets through.
pub fn is_open() -> bool {
    ATTACKS.iter().any(|(_, gets_through)| gets_through())
}
