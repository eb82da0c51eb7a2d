//! The challenge-response between servers that share a secret: what it takes, and what gets through to nothing.

use lockkeeper_peer_auth::{Broken, NONCE_BYTES, Secrets, new_line};
use lockkeeper_simulation::attacks::{
    ATTACKS, HELLO, challenge, connecting, link, nonce, open, sealed, secrets,
};

#[test]
fn both_sides_with_the_secret_take_each_others_frames_in_order() {
    let (mut one, mut other) = link(&secrets(&[5]), &secrets(&[5]));
    for frame in [&b"one"[..], b"", b"three"] {
        let there = sealed(&mut one, frame);
        assert_eq!(open(&mut other, &there).unwrap(), frame);
        let back = sealed(&mut other, frame);
        assert_eq!(open(&mut one, &back).unwrap(), frame);
        assert_ne!(there, back, "a frame is of no use in the other direction");
    }
}

#[test]
fn any_common_secret_will_do_and_without_one_there_is_no_challenge() {
    for (one, other) in
        [(&[1, 2][..], &[2][..]), (&[2], &[1, 2]), (&[1, 2], &[2, 1]), (&[1, 2], &[2, 3])]
    {
        let (mut one, mut other) = link(&secrets(one), &secrets(other));
        let frame = sealed(&mut one, b"frame");
        assert_eq!(open(&mut other, &frame).unwrap(), b"frame");
    }
    assert!(challenge(&secrets(&[1]), 9, HELLO, &secrets(&[2, 3])).is_none());
}

#[test]
fn the_first_secret_of_the_accepting_side_is_used() {
    let (_, challenge) = challenge(&secrets(&[2, 1]), 9, HELLO, &secrets(&[1, 2])).unwrap();
    assert_eq!(challenge[1 + NONCE_BYTES..], secrets(&[2]).ids(&nonce(1))[0]);
}

#[test]
fn no_attack_without_the_secret_gets_through() {
    for (name, gets_through) in ATTACKS {
        assert!(!gets_through(), "{name}");
    }
}

#[test]
fn ten_thousand_changed_challenges_proofs_and_frames_are_refused() {
    let own = secrets(&[5]);
    let mut state = 7_u64;
    let mut random = move |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for round in 0..10_000 {
        let mut bend = |bytes: &[u8]| {
            let mut bent = bytes.to_vec();
            match random(3) {
                0 => bent.truncate(random(bytes.len())),
                1 => bent.push(random(256) as u8),
                _ => bent[random(bytes.len())] ^= 1 << random(8),
            }
            bent
        };
        let (accepting, challenge) = challenge(&own, 9, HELLO, &own).unwrap();
        let (proof, mut seals) = connecting(&own, HELLO).answer(&challenge).unwrap();
        match round % 3 {
            0 => {
                // One that is answered is answered by what the other side does not take.
                let bent = connecting(&own, HELLO).answer(&bend(&challenge));
                let taken = bent.and_then(|(proof, _)| accepting.check(&proof));
                assert!(taken.is_err(), "{round}");
            }
            1 => assert!(accepting.check(&bend(&proof)).is_err(), "{round}"),
            _ => {
                let frame = sealed(&mut seals, b"what a server says");
                let mut other = accepting.check(&proof).unwrap();
                assert_eq!(open(&mut other, &bend(&frame)), Err(Broken::Tag), "{round}");
            }
        }
    }
}

#[test]
fn a_file_has_one_to_eight_secrets_of_32_bytes_or_more() {
    let hex = "ab".repeat(32);
    let text = format!("# of the ensemble\n\n{hex}  # old\n{}", new_line(&[7; 32]));
    let expected = format!("{}{}", new_line(&[0xab; 32]), new_line(&[7; 32]));
    assert_eq!(Secrets::parse(&text), Secrets::parse(&expected));
    let many: String = (0..=8).map(|byte| new_line(&[byte; 32])).collect();
    for (text, words) in [
        ("", "there is no secret in it"),
        ("# nothing\n", "there is no secret in it"),
        ("c2hvcnQ=\n", "line 1 has 5 bytes"),
        ("\nnot base64!\n", "line 2 is neither"),
        (&format!("{hex}\n{hex}\n"), "line 2 is there twice"),
        (&many, "there are 9 secrets"),
    ] {
        let error = Secrets::parse(text).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn neither_a_secret_nor_a_key_is_shown() {
    let own = secrets(&[0x41]);
    let (mut one, _) = link(&own, &own);
    assert_eq!(format!("{own:?}"), "1 secrets");
    sealed(&mut one, b"");
    let shown = format!("{one:?}");
    assert!(!shown.contains("65, 65") && !shown.contains("QUFB"), "{shown}");
}
