//! The password that ZooKeeper computes for a session.
//!
//! *Owns* `java.util.Random`, as far as that takes. *Invariant*: the same id has the same password on every server, so
//! that a session of ZooKeeper can be taken up here. *Never* is a secret: a client that knows the id can compute it.

use crate::proto::connect::{PASSWORD_BYTES, Password};

/// `ZooKeeperServer.superSecret`.
const SUPER_SECRET: u64 = 0xB341_5C00;
const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const MASK: u64 = (1 << 48) - 1;

/// The password of a session.
#[must_use]
pub fn password(session: i64) -> Password {
    let mut state = (session.cast_unsigned() ^ SUPER_SECRET ^ MULTIPLIER) & MASK;
    let mut password = [0; PASSWORD_BYTES];
    for word in password.chunks_exact_mut(4) {
        state = (state.wrapping_mul(MULTIPLIER).wrapping_add(0xB)) & MASK;
        word.copy_from_slice(&state.to_le_bytes()[2..6]);
    }
    password
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_the_one_of_a_real_server() {
        let hex: String =
            password(0x0100_0018_f535_0000).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "01934a66faae54bd47e8bb74d3f8c7cf");
    }
}
