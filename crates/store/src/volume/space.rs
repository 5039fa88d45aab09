//! Space of a volume as the NameNode is told: pure arithmetic.

use hayloft_io::Space;

use crate::config::ReservedSpace;

/// Numbers of one volume, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Size of the file system less what is reserved.
    pub capacity: u64,
    /// Used by HDFS.
    pub used: u64,
    /// Free for blocks.
    pub remaining: u64,
    /// Used by others, beyond the reserved space.
    pub non_dfs_used: u64,
    /// Reserved by configuration.
    pub reserved: u64,
    /// Promised to replicas being written.
    pub promised: u64,
}

/// Bytes promised to replicas being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promised {
    /// All of them.
    pub all: u64,
    /// Those that the file system has reserved for their files: it counts them as taken.
    pub allocated: u64,
}

/// Computes the numbers. `space` was read when HDFS had taken `taken_then`: used, or reserved
/// ahead. Now it uses `used`, and has more reserved ahead for a part of what is `promised`.
///
/// Others' files count against the reserved space first: only what is left of it is kept free.
#[must_use]
pub fn numbers(
    space: Space,
    reserved: ReservedSpace,
    taken_then: u64,
    used: u64,
    promised: Promised,
) -> Numbers {
    let reserved = reserved_bytes(space.capacity, reserved);
    let capacity = space.capacity.saturating_sub(reserved);
    let taken = space.capacity.saturating_sub(space.free);
    let by_others = taken.saturating_sub(taken_then);
    let taken_now = used.saturating_add(promised.allocated);
    let not_taken = promised.all.saturating_sub(promised.allocated);
    let promised = promised.all;
    let still_reserved = reserved.saturating_sub(by_others);
    let available = space
        .available
        .saturating_sub(taken_now.saturating_sub(taken_then))
        .saturating_sub(still_reserved)
        .saturating_sub(not_taken);
    let remaining = capacity
        .saturating_sub(used)
        .saturating_sub(promised)
        .min(available);
    Numbers {
        capacity,
        used,
        remaining,
        non_dfs_used: by_others.saturating_sub(reserved),
        reserved,
        promised,
    }
}

fn reserved_bytes(capacity: u64, reserved: ReservedSpace) -> u64 {
    let pct = u128::from(reserved.pct.min(100));
    let share = u64::try_from(u128::from(capacity) * pct / 100).expect("a share of a u64 fits");
    if reserved.smaller {
        reserved.bytes.min(share)
    } else {
        reserved.bytes.max(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    fn space(capacity: u64, free: u64) -> Space {
        Space {
            capacity,
            free,
            available: free,
        }
    }

    #[test]
    fn others_use_up_the_reserved_space_first() {
        let reserved = ReservedSpace::larger(10 * GIB, 0);
        // 100 GiB, 40 of HDFS, 4 of others: 6 of the 10 reserved are still to be kept free.
        let n = numbers(
            space(100 * GIB, 56 * GIB),
            reserved,
            40 * GIB,
            40 * GIB,
            Promised::default(),
        );
        assert_eq!(
            (n.capacity, n.remaining, n.non_dfs_used),
            (90 * GIB, 50 * GIB, 0)
        );
        // 25 of others: 15 more than reserved.
        let n = numbers(
            space(100 * GIB, 35 * GIB),
            reserved,
            40 * GIB,
            40 * GIB,
            Promised::default(),
        );
        assert_eq!((n.remaining, n.non_dfs_used), (35 * GIB, 15 * GIB));
    }

    #[test]
    fn promises_and_fresh_bytes_are_not_offered_again() {
        let n = numbers(
            space(100 * GIB, 60 * GIB),
            ReservedSpace::default(),
            40 * GIB,
            45 * GIB,
            Promised {
                all: 5 * GIB,
                allocated: 0,
            },
        );
        assert_eq!(n.remaining, 50 * GIB);
    }

    #[test]
    fn what_is_reserved_ahead_is_not_taken_off_twice() {
        // 100 GiB, 40 used; 5 promised, of which the file system reserved 4: before space was read,
        // or since.
        let promised = Promised {
            all: 5 * GIB,
            allocated: 4 * GIB,
        };
        let none = ReservedSpace::default();
        let before = numbers(
            space(100 * GIB, 56 * GIB),
            none,
            44 * GIB,
            40 * GIB,
            promised,
        );
        let since = numbers(
            space(100 * GIB, 60 * GIB),
            none,
            40 * GIB,
            40 * GIB,
            promised,
        );
        assert_eq!((before.remaining, before.non_dfs_used), (55 * GIB, 0));
        assert_eq!(before, since);
        // What was given back since is free again when space is read next.
        let after = numbers(
            space(100 * GIB, 56 * GIB),
            none,
            44 * GIB,
            41 * GIB,
            Promised::default(),
        );
        assert_eq!((after.remaining, after.non_dfs_used), (56 * GIB, 0));
    }

    #[test]
    fn the_larger_or_the_smaller_reservation_counts() {
        for (reserved, kept) in [
            (ReservedSpace::larger(GIB, 20), 20 * GIB),
            (ReservedSpace::smaller(GIB, 20), GIB),
            (ReservedSpace::smaller(GIB, 0), 0),
        ] {
            let empty = space(100 * GIB, 100 * GIB);
            let n = numbers(empty, reserved, 0, 0, Promised::default());
            let left = 100 * GIB - kept;
            assert_eq!((n.capacity, n.remaining, n.reserved), (left, left, kept));
        }
    }

    proptest! {
        #[test]
        fn nothing_goes_below_zero_or_beyond_the_disk(
            capacity: u64, free: u64, available: u64, bytes: u64, pct: u8, smaller: bool, then: u64, now: u64, all: u64, allocated: u64,
        ) {
            let n = numbers(Space { capacity, free, available }, ReservedSpace { bytes, pct, smaller }, then, now, Promised { all, allocated: allocated.min(all) });
            prop_assert!(n.remaining <= n.capacity && n.capacity <= capacity && n.remaining <= available);
        }
    }
}
