//! Rules of a leader <-> flags: in the header of an entry, and in the entry that finishes an upgrade.
//!
//! *Owns* the bit of each rule. *Invariants*: a bit keeps its meaning for ever; a bit that means nothing is malformed.

use crate::tree::Rules;

/// Flag of a header: a majority agrees with the wall clock.
pub(super) const FLAG_AGREED: u8 = 1;

/// The flag of each rule in a header.
pub(super) fn flags_of(rules: Rules) -> u8 {
    let Rules { extended_types, enforce_quota, skip_acl, digest_auth } = rules;
    let flags = [(extended_types, 2), (enforce_quota, 4), (skip_acl, 8), (digest_auth, 16)];
    flags.into_iter().filter(|(holds, _)| *holds).fold(0, |flags, (_, flag)| flags | flag)
}

/// The rules of a leader as an upgrade names them: in the place of a client's xid, which earlier releases do not read
/// there.
pub(in crate::replica) fn xid_of(rules: Rules) -> i32 {
    i32::from(flags_of(rules) | FLAG_AGREED)
}

/// Rules that [`xid_of`] was made of.
pub(super) fn named_rules(cxid: i32) -> Option<Rules> {
    let flags = u8::try_from(cxid).ok().filter(|flags| flags & FLAG_AGREED != 0)?;
    rules_of(flags & !FLAG_AGREED)
}

/// Rules that [`flags_of`] was made of. `None`: there is a flag that means nothing.
pub(super) fn rules_of(flags: u8) -> Option<Rules> {
    let holds = |flag| flags & flag != 0;
    let rules = Rules {
        extended_types: holds(2),
        enforce_quota: holds(4),
        skip_acl: holds(8),
        digest_auth: holds(16),
    };
    (flags_of(rules) == flags).then_some(rules)
}
