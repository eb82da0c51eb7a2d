//! The order of transactions: which zxid may come next.
//!
//! *Owns* the rule that no transaction is left out. *Invariant*: what was admitted rises by one within an epoch, and
//! begins with one in a later epoch. Only the first one behind a snapshot may be any that leaves nothing out.

use super::Ended;
use crate::proto::Malformed;

/// The epoch of a zxid.
pub(super) fn epoch_of(zxid: i64) -> i64 {
    zxid >> 32
}

/// The number of a zxid within its epoch; 0 is that of no transaction.
pub(super) fn counter_of(zxid: i64) -> i64 {
    zxid & 0xffff_ffff
}

/// Up to where transactions are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// This one was the last.
    Behind(i64),
    /// A snapshot has everything up to this one, and perhaps more. What comes behind it may repeat some of that.
    BehindSnapshot(i64),
}

impl Order {
    /// Whether a transaction comes next, when the leader's epoch is `epoch`.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn admit(&mut self, zxid: i64, epoch: i64) -> Result<(), Ended> {
        if epoch_of(zxid) > epoch {
            return Err(Malformed::new("zxid", "is of an epoch later than the leader's").into());
        }
        let (last, may_repeat) = match *self {
            Self::Behind(last) => (last, false),
            Self::BehindSnapshot(last) => (last, true),
        };
        let is_transaction = zxid > 0 && counter_of(zxid) > 0;
        if is_transaction && (follows(last, zxid) || may_repeat && zxid <= last) {
            *self = Self::Behind(zxid);
            return Ok(());
        }
        Err(Ended::Gap { expected: last.saturating_add(1), got: zxid })
    }

    /// The last one.
    pub(super) fn last(self) -> i64 {
        match self {
            Self::Behind(last) | Self::BehindSnapshot(last) => last,
        }
    }
}

fn follows(last: i64, zxid: i64) -> bool {
    if epoch_of(last) == epoch_of(zxid) {
        counter_of(zxid) == counter_of(last) + 1
    } else {
        epoch_of(zxid) > epoch_of(last) && counter_of(zxid) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: i64 = 1 << 32;

    fn is_next(mut order: Order, zxid: i64) -> bool {
        order.admit(zxid, 9).is_ok()
    }

    #[test]
    fn zxids_rise_by_one_and_a_later_epoch_begins_with_one() {
        let last = 2 * EPOCH + 7;
        for (zxid, expected) in [
            (last + 1, true),
            (last, false),
            (last + 2, false),
            (last - 1, false),
            (3 * EPOCH + 1, true),
            (5 * EPOCH + 1, true),
            (3 * EPOCH, false),
            (3 * EPOCH + 2, false),
            (EPOCH + 1, false),
            (10 * EPOCH + 1, false),
            (0, false),
            (-1, false),
            (i64::MIN, false),
            (i64::MAX, false),
        ] {
            assert_eq!(is_next(Order::Behind(last), zxid), expected, "{zxid:x}");
        }
        assert!(is_next(Order::Behind(2 * EPOCH), 2 * EPOCH + 1));
        assert!(!is_next(Order::Behind(2 * EPOCH + 0xffff_ffff), 3 * EPOCH));
    }

    #[test]
    fn what_comes_behind_a_snapshot_may_repeat_but_not_leave_out() {
        let snapshot = 2 * EPOCH + 7;
        for (zxid, expected) in [
            (snapshot - 3, true),
            (snapshot, true),
            (snapshot + 1, true),
            (snapshot + 2, false),
            (3 * EPOCH + 1, true),
            (3 * EPOCH + 2, false),
            (2 * EPOCH, false),
            (EPOCH + 9, true),
            (0, false),
            (-5, false),
        ] {
            assert_eq!(is_next(Order::BehindSnapshot(snapshot), zxid), expected, "{zxid:x}");
        }
        let mut order = Order::BehindSnapshot(snapshot);
        order.admit(snapshot - 3, 9).unwrap();
        assert!(order.admit(snapshot - 3, 9).is_err(), "among themselves they rise by one");
    }
}
