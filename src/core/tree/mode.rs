//! What kind of znode a create asks for.
//!
//! *Owns* the meaning of opcode, flags and time to live together. The opcode decides what is
//! stored; flags only decide whether it is ephemeral or sequential, and must make sense.
//! Reproduces `CreateMode`, `EphemeralType.validateTTL` and the first checks of
//! `PrepRequestProcessor.pRequest2TxnCreate`. Where ZooKeeper's server dies (createTTL with flags 0
//! and a time to live of -1), the request is refused.

use crate::proto::ErrorCode;
use crate::proto::request::{Create, CreateKind};

use super::owner::{Owner, TTL_MS_MAX};

/// A create mode that makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CreateMode {
    /// Of the new znode.
    pub(super) owner: Owner,
    /// Whether the name gets a number.
    pub(super) is_sequential: bool,
}

impl CreateMode {
    /// The mode that `request` asks for on behalf of `session`.
    pub(super) fn of(
        request: &Create,
        session: i64,
        extended_types: bool,
    ) -> Result<Self, ErrorCode> {
        let (ephemeral, is_sequential, ttl) = match request.flags {
            0 | 4 => (false, false, false),
            1 => (true, false, false),
            2 => (false, true, false),
            3 => (true, true, false),
            5 => (false, false, true),
            6 => (false, true, true),
            _ => return Err(ErrorCode::BadArguments),
        };
        if ttl && !extended_types {
            return Err(ErrorCode::Unimplemented);
        }
        if ttl != (request.kind == CreateKind::Ttl) {
            return Err(ErrorCode::BadArguments);
        }
        if ttl && !(1..=TTL_MS_MAX).contains(&request.ttl_ms) {
            return Err(ErrorCode::BadArguments);
        }
        let owner = match request.kind {
            CreateKind::Container => Owner::Container,
            CreateKind::Ttl => Owner::Ttl(request.ttl_ms),
            CreateKind::Create | CreateKind::Create2 if ephemeral => Owner::from_encoded(session),
            CreateKind::Create | CreateKind::Create2 => Owner::Persistent,
        };
        if ephemeral && !matches!(Owner::from_encoded(session), Owner::Session(_)) {
            // Not a number that any session has: no session's end would ever remove the znode.
            return Err(ErrorCode::SessionExpired);
        }
        Ok(Self { owner, is_sequential })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{Acl, Text};

    fn mode(kind: CreateKind, flags: i32, ttl_ms: i64) -> Result<(Owner, bool), ErrorCode> {
        let request = Create {
            kind,
            path: Text::from_static("/a"),
            data: None,
            acl: Some(vec![Acl::open()]),
            flags,
            ttl_ms,
        };
        CreateMode::of(&request, 7, true).map(|mode| (mode.owner, mode.is_sequential))
    }

    #[test]
    fn flags_decide_ephemeral_and_sequential() {
        for kind in [CreateKind::Create, CreateKind::Create2] {
            assert_eq!(mode(kind, 0, 0), Ok((Owner::Persistent, false)));
            assert_eq!(mode(kind, 1, 0), Ok((Owner::Session(7), false)));
            assert_eq!(mode(kind, 2, 0), Ok((Owner::Persistent, true)));
            assert_eq!(mode(kind, 3, 0), Ok((Owner::Session(7), true)));
        }
    }

    #[test]
    fn op_create_with_container_flag_stores_a_persistent_znode() {
        assert_eq!(mode(CreateKind::Create, 4, 0), Ok((Owner::Persistent, false)));
        assert_eq!(mode(CreateKind::Create2, 4, 0), Ok((Owner::Persistent, false)));
    }

    #[test]
    fn op_create_container_always_makes_a_container() {
        for flags in [0, 1, 4] {
            assert_eq!(mode(CreateKind::Container, flags, 0), Ok((Owner::Container, false)));
        }
        for flags in [2, 3] {
            assert_eq!(mode(CreateKind::Container, flags, 0), Ok((Owner::Container, true)));
        }
    }

    #[test]
    fn ttl_flags_need_op_create_ttl() {
        for kind in [CreateKind::Create, CreateKind::Create2, CreateKind::Container] {
            for flags in [5, 6] {
                assert_eq!(mode(kind, flags, 0), Err(ErrorCode::BadArguments));
            }
        }
    }

    #[test]
    fn op_create_ttl_needs_ttl_flags_and_a_ttl_of_40_bits() {
        assert_eq!(mode(CreateKind::Ttl, 5, 1), Ok((Owner::Ttl(1), false)));
        assert_eq!(mode(CreateKind::Ttl, 6, TTL_MS_MAX), Ok((Owner::Ttl(TTL_MS_MAX), true)));
        for ttl_ms in [0, -1, 1 << 40, i64::MAX, i64::MIN] {
            assert_eq!(mode(CreateKind::Ttl, 5, ttl_ms), Err(ErrorCode::BadArguments));
        }
        for flags in [0, 1, 2, 3, 4] {
            assert_eq!(mode(CreateKind::Ttl, flags, -1), Err(ErrorCode::BadArguments));
            assert_eq!(mode(CreateKind::Ttl, flags, 5), Err(ErrorCode::BadArguments));
        }
    }

    #[test]
    fn flags_that_are_no_mode_are_bad_arguments() {
        for flags in [-1, 7, i32::MAX, i32::MIN] {
            assert_eq!(mode(CreateKind::Create, flags, 0), Err(ErrorCode::BadArguments));
        }
    }
}
