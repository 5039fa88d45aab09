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
    /// Reserved for replicas being written.
    pub reserved_for_replicas: u64,
}

/// Bytes reserved for replicas being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservedForReplicas {
    /// All of them.
    pub all: u64,
    /// Those that the file system has allocated to their files: it counts them as taken.
    pub allocated: u64,
}

/// What a volume that shares its mount with another has of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MountShare {
    /// Its share of the capacity, 0.0 to 1.0.
    pub ratio: f64,
    /// Bytes that the other has taken: used, or allocated ahead.
    pub taken_beside: u64,
    /// Bytes reserved for the other's replicas and not taken yet.
    pub not_taken_beside: u64,
}

impl Default for MountShare {
    /// All of it.
    fn default() -> Self {
        Self {
            ratio: 1.0,
            taken_beside: 0,
            not_taken_beside: 0,
        }
    }
}

/// Computes the numbers. `space` was read when HDFS had taken `taken_then`: used, or
/// allocated ahead, by both volumes of the mount. Now it uses `used`, and has more allocated ahead
/// for a part of `reserved_for_replicas`.
///
/// Others' files count against the reserved space first: only what is left of it is kept free. Of
/// two volumes on one mount neither counts the files of the other as others', and what is free is
/// promised by one of them.
#[must_use]
pub fn numbers(
    space: Space,
    reserved: ReservedSpace,
    taken_then: u64,
    used: u64,
    reserved_for_replicas: ReservedForReplicas,
    share: MountShare,
) -> Numbers {
    let reserved = reserved_bytes(space.capacity, reserved);
    let capacity = share_of(space.capacity.saturating_sub(reserved), share.ratio);
    let taken = space.capacity.saturating_sub(space.free);
    let by_others = taken.saturating_sub(taken_then);
    let taken_now = used
        .saturating_add(reserved_for_replicas.allocated)
        .saturating_add(share.taken_beside);
    let not_taken = reserved_for_replicas
        .all
        .saturating_sub(reserved_for_replicas.allocated)
        .saturating_add(share.not_taken_beside);
    let reserved_for_replicas = reserved_for_replicas.all;
    let still_reserved = reserved.saturating_sub(by_others);
    let available = space
        .available
        .saturating_sub(taken_now.saturating_sub(taken_then))
        .saturating_sub(still_reserved)
        .saturating_sub(not_taken);
    let remaining = capacity
        .saturating_sub(used)
        .saturating_sub(reserved_for_replicas)
        .min(available);
    Numbers {
        capacity,
        used,
        remaining,
        non_dfs_used: by_others.saturating_sub(reserved),
        reserved,
        reserved_for_replicas,
    }
}

/// Apache multiplies in floating point too: the same ratio gives the same bytes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a share of 0 to 1 of a capacity; as cuts off at both ends"
)]
fn share_of(bytes: u64, ratio: f64) -> u64 {
    if ratio >= 1.0 {
        return bytes;
    }
    (bytes as f64 * ratio.max(0.0)) as u64
}

/// What one of `sharers` volumes on a file system reports when `whole` are the numbers of all: what
/// it uses itself, and an equal part of what none of them uses. The parts add up to no more than
/// the whole.
#[must_use]
pub fn part(whole: Numbers, used: u64, reserved_for_replicas: u64, sharers: u64) -> Numbers {
    if sharers <= 1 {
        return whole;
    }
    let unused = whole.capacity.saturating_sub(whole.used);
    Numbers {
        capacity: used.saturating_add(unused / sharers),
        used,
        remaining: whole.remaining / sharers,
        non_dfs_used: whole.non_dfs_used / sharers,
        reserved: whole.reserved / sharers,
        reserved_for_replicas,
    }
}

/// Bytes that `reserved` keeps free of a file system of `capacity` bytes.
#[must_use]
pub fn reserved_bytes(capacity: u64, reserved: ReservedSpace) -> u64 {
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
            ReservedForReplicas::default(),
            MountShare::default(),
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
            ReservedForReplicas::default(),
            MountShare::default(),
        );
        assert_eq!((n.remaining, n.non_dfs_used), (35 * GIB, 15 * GIB));
    }

    #[test]
    fn reservations_and_fresh_bytes_are_not_offered_again() {
        let n = numbers(
            space(100 * GIB, 60 * GIB),
            ReservedSpace::default(),
            40 * GIB,
            45 * GIB,
            ReservedForReplicas {
                all: 5 * GIB,
                allocated: 0,
            },
            MountShare::default(),
        );
        assert_eq!(n.remaining, 50 * GIB);
    }

    #[test]
    fn what_is_reserved_ahead_is_not_taken_off_twice() {
        // 100 GiB, 40 used; 5 reserved for replicas, of which the file system allocated 4: before
        // space was read, or since.
        let reserved_for_replicas = ReservedForReplicas {
            all: 5 * GIB,
            allocated: 4 * GIB,
        };
        let none = ReservedSpace::default();
        let before = numbers(
            space(100 * GIB, 56 * GIB),
            none,
            44 * GIB,
            40 * GIB,
            reserved_for_replicas,
            MountShare::default(),
        );
        let since = numbers(
            space(100 * GIB, 60 * GIB),
            none,
            40 * GIB,
            40 * GIB,
            reserved_for_replicas,
            MountShare::default(),
        );
        assert_eq!((before.remaining, before.non_dfs_used), (55 * GIB, 0));
        assert_eq!(before, since);
        // What was given back since is free again when space is read next.
        let after = numbers(
            space(100 * GIB, 56 * GIB),
            none,
            44 * GIB,
            41 * GIB,
            ReservedForReplicas::default(),
            MountShare::default(),
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
            let none = ReservedForReplicas::default();
            let n = numbers(empty, reserved, 0, 0, none, MountShare::default());
            let left = 100 * GIB - kept;
            assert_eq!((n.capacity, n.remaining, n.reserved), (left, left, kept));
        }
    }

    #[test]
    fn two_volumes_on_a_mount_share_it() {
        // 100 GiB with 10 reserved, of which others use 4; DISK uses 30, ARCHIVE 20.
        let space = space(100 * GIB, 46 * GIB);
        let of = |ratio, used, beside| {
            let share = MountShare {
                ratio,
                taken_beside: beside,
                not_taken_beside: GIB,
            };
            let reserved = ReservedSpace::larger(10 * GIB, 0);
            let replicas = ReservedForReplicas::default();
            numbers(space, reserved, 50 * GIB, used, replicas, share)
        };
        let (disk, archive) = (of(0.7, 30 * GIB, 20 * GIB), of(0.3, 20 * GIB, 30 * GIB));
        // A byte less than 63 GiB: 0.7 is a little less than seven tenths.
        let capacities = (disk.capacity, archive.capacity);
        assert_eq!(capacities, (63 * GIB - 1, 27 * GIB));
        assert_eq!((disk.non_dfs_used, archive.non_dfs_used), (0, 0));
        // 46 free, 6 of them still reserved, 1 promised beside.
        assert_eq!((disk.remaining, archive.remaining), (33 * GIB - 1, 7 * GIB));
        // More than its share: nothing comes in any more.
        assert_eq!(of(0.1, 20 * GIB, 30 * GIB).remaining, 0);
        // What the other takes is gone for both.
        assert_eq!(of(0.7, 30 * GIB, 40 * GIB).remaining, 19 * GIB);
    }

    #[test]
    fn parts_stay_while_one_writes_and_add_up_to_the_whole() {
        let none = ReservedSpace::default();
        let parts = |used: [u64; 4]| {
            let all = used.iter().sum();
            let free = 100 * GIB - all - 20 * GIB;
            let now = space(100 * GIB, free);
            let whole = numbers(
                now,
                none,
                all,
                all,
                ReservedForReplicas::default(),
                MountShare::default(),
            );
            used.map(|used| part(whole, used, 0, 4))
        };
        let empty = parts([0; 4]);
        assert!(
            empty
                .iter()
                .all(|n| (n.capacity, n.remaining) == (25 * GIB, 20 * GIB))
        );
        assert!(empty.iter().all(|n| n.non_dfs_used == 5 * GIB));
        // One writes 8 GiB: it has them in addition, each has 2 less to go.
        let later = parts([8 * GIB, 0, 0, 0]);
        assert_eq!(
            (later[0].capacity, later[0].remaining),
            (31 * GIB, 18 * GIB)
        );
        assert_eq!(
            (later[1].capacity, later[1].remaining),
            (23 * GIB, 18 * GIB)
        );
        assert_eq!(later.iter().map(|n| n.capacity).sum::<u64>(), 100 * GIB);
    }

    proptest! {
        #[test]
        fn parts_never_add_up_to_more_than_the_whole(
            capacity in 0..u64::MAX / 2, free: u64, reserved: u64,
            used in proptest::collection::vec(0..1_u64 << 50, 1..9),
        ) {
            let free = free.min(capacity);
            let all: u64 = used.iter().sum();
            let now = Space { capacity, free, available: free };
            let reserved = ReservedSpace::larger(reserved, 0);
            let whole = numbers(
                now, reserved, all, all, ReservedForReplicas::default(), MountShare::default(),
            );
            let sharers = used.len() as u64;
            let parts: Vec<_> = used.iter().map(|used| part(whole, *used, 0, sharers)).collect();
            let sum = |of: fn(&Numbers) -> u64| parts.iter().map(of).sum::<u64>();
            prop_assert!(sum(|n| n.capacity) <= whole.capacity.max(all));
            prop_assert!(sum(|n| n.remaining) <= whole.remaining);
            prop_assert!(sum(|n| n.non_dfs_used) <= whole.non_dfs_used);
            prop_assert!(parts.iter().all(|n| sharers == 1 || n.remaining + n.used <= n.capacity));
        }

        #[test]
        fn nothing_goes_below_zero_or_beyond_the_disk(
            capacity: u64, free: u64, available: u64, bytes: u64, pct: u8, smaller: bool,
            then: u64, now: u64, all: u64, allocated: u64,
            ratio in 0.0..=1.0_f64, taken_beside: u64, not_taken_beside: u64,
        ) {
            let space = Space { capacity, free, available };
            let reserved = ReservedSpace { bytes, pct, smaller };
            let allocated = allocated.min(all);
            let share = MountShare { ratio, taken_beside, not_taken_beside };
            let replicas = ReservedForReplicas { all, allocated };
            let n = numbers(space, reserved, then, now, replicas, share);
            prop_assert!(n.remaining <= n.capacity && n.capacity <= capacity);
            prop_assert!(n.remaining <= available);
        }
    }
}
