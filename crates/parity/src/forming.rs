//! Which replicas form groups, and which disks take the parity. Pure: lists in, plans out.
//!
//! Members of a group have similar lengths, because parity is as long as the longest. Every unit
//! lies on a disk of its own, so that a lost disk costs a group one unit.

use std::collections::BTreeMap;

use crate::shape::ParityShape;

/// A replica without parity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unprotected<T> {
    /// Number of the disk that it lies on.
    pub disk: usize,
    /// Length in bytes.
    pub len: u64,
    /// It has waited so long that it takes any partner.
    pub patient: bool,
    /// What it is to the caller.
    pub what: T,
}

/// A disk that may take parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRoom {
    /// Bytes that parity may still take on it.
    pub free: u64,
    /// Bytes of parity on it.
    pub parity: u64,
}

/// Where a parity file goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParityPlace {
    /// Number of the disk.
    pub disk: usize,
    /// Length of the file.
    pub len: u64,
}

/// A group to be encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPlan<T> {
    /// Members, each on another disk.
    pub members: Vec<Unprotected<T>>,
    /// Parity files, on other disks than the members and each other.
    pub parity: Vec<ParityPlace>,
}

/// Forms at most `groups_max` groups out of `candidates`, which come in the order in which they
/// should be protected: the first go first, while the page cache has them.
///
/// A full group has K members, fewer where disks are lost or full; none is shorter than half of the
/// longest. A replica that has waited long enough takes fewer and other partners, even none: its
/// parity is a copy then. Disks with the least parity take the next, if they have room.
#[must_use]
pub fn form<T>(
    shape: ParityShape,
    candidates: Vec<Unprotected<T>>,
    disks: &mut [DiskRoom],
    groups_max: usize,
) -> Vec<GroupPlan<T>> {
    let mut classes: BTreeMap<u32, Vec<Unprotected<T>>> = BTreeMap::new();
    let known = |c: &Unprotected<T>| c.disk < disks.len() && c.len > 0;
    for candidate in candidates.into_iter().filter(known) {
        classes
            .entry(candidate.len.ilog2())
            .or_default()
            .push(candidate);
    }
    let mut plans = Vec::new();
    let mut left = Vec::new();
    // Where disks are lost, members leave enough of them for the parity.
    let most = shape.data().min(disks.len().saturating_sub(shape.parity()));
    // The long ones first: they are most of the bytes.
    for (_, mut class) in classes.into_iter().rev() {
        while plans.len() < groups_max {
            let Some(members) = take_members(most, &mut class, most, disks) else {
                break;
            };
            let Some(plan) = place(shape, members, disks, &mut class) else {
                break;
            };
            plans.push(plan);
        }
        left.extend(class);
    }
    left.retain(|candidate| candidate.patient);
    while plans.len() < groups_max && !left.is_empty() {
        let Some(members) = take_members(most, &mut left, 1, disks) else {
            break;
        };
        let Some(plan) = place(shape, members, disks, &mut left) else {
            break;
        };
        plans.push(plan);
    }
    plans
}

/// Takes up to `most` candidates on different disks, the first of each disk; `None`, and takes
/// none, when there are fewer than `at_least`. Of more disks those with the most candidates give
/// one, then those with the most parity, whose turn it is not to take some: no disk is left over
/// with many.
fn take_members<T>(
    most: usize,
    from: &mut Vec<Unprotected<T>>,
    at_least: usize,
    disks: &[DiskRoom],
) -> Option<Vec<Unprotected<T>>> {
    let mut of_disk: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for (at, candidate) in from.iter().enumerate() {
        of_disk.entry(candidate.disk).or_insert((0, at)).0 += 1;
    }
    if most == 0 || of_disk.len() < at_least.max(1) {
        return None;
    }
    let mut firsts: Vec<(usize, (usize, usize))> = of_disk.into_iter().collect();
    firsts.sort_by_key(|(disk, (count, at))| {
        let parity = disks.get(*disk).map_or(0, |room| room.parity);
        (std::cmp::Reverse((*count, parity)), *at)
    });
    firsts.truncate(most);
    let mut places: Vec<usize> = firsts.into_iter().map(|(_, (_, at))| at).collect();
    // From behind, so that those before keep their places.
    places.sort_unstable_by_key(|at| std::cmp::Reverse(*at));
    let mut members: Vec<_> = places.into_iter().map(|at| from.remove(at)).collect();
    members.reverse();
    Some(members)
}

/// Finds disks for the parity of `members`; `None`, and drops them, when too few have room. Where
/// the disks without a member are full, members go `back`: their disks take the parity.
fn place<T>(
    shape: ParityShape,
    mut members: Vec<Unprotected<T>>,
    disks: &mut [DiskRoom],
    back: &mut Vec<Unprotected<T>>,
) -> Option<GroupPlan<T>> {
    let len = members.iter().map(|m| m.len).max().unwrap_or(0);
    let mut roomy: Vec<usize> = (0..disks.len()).filter(|d| disks[*d].free >= len).collect();
    roomy.sort_by_key(|disk| {
        let member = members.iter().any(|member| member.disk == *disk);
        (
            member,
            disks[*disk].parity,
            std::cmp::Reverse(disks[*disk].free),
        )
    });
    roomy.truncate(shape.parity());
    let (gives_way, stay) = members
        .into_iter()
        .partition(|member| roomy.contains(&member.disk));
    members = stay;
    if roomy.len() < shape.parity() || members.is_empty() {
        return None;
    }
    // They are still the first of their disks.
    back.splice(0..0, gives_way);
    let len = members.iter().map(|m| m.len).max().unwrap_or(0);
    for disk in &roomy {
        disks[*disk].free -= len;
        disks[*disk].parity += len;
    }
    let parity = roomy.into_iter().map(|disk| ParityPlace { disk, len });
    Some(GroupPlan {
        members,
        parity: parity.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn replica(disk: usize, len: u64, what: usize) -> Unprotected<usize> {
        Unprotected {
            disk,
            len,
            patient: false,
            what,
        }
    }

    fn empty(disks: usize) -> Vec<DiskRoom> {
        vec![
            DiskRoom {
                free: 1 << 40,
                parity: 0
            };
            disks
        ]
    }

    fn two_one() -> ParityShape {
        ParityShape::new(2, 1).expect("valid")
    }

    #[test]
    fn parity_is_spread_over_all_disks() {
        let mut disks = empty(3);
        let candidates = (0..300).map(|n| replica(n % 3, 100, n)).collect();
        let plans = form(two_one(), candidates, &mut disks, 1000);
        assert_eq!(plans.len(), 150);
        for disk in &disks {
            assert!((4000..=6000).contains(&disk.parity), "{disks:?}");
        }
    }

    #[test]
    fn however_replicas_arrive_none_is_left_without_partners() {
        let six_one = ParityShape::new(6, 1).expect("valid");
        for batch in 1..43 {
            let (mut disks, mut left, mut groups) = (empty(7), Vec::new(), 0);
            let all: Vec<_> = (0..42).map(|n| replica(n % 7, 100, n)).collect();
            for arrived in all.chunks(batch) {
                left.extend(arrived.iter().cloned());
                // The newest first.
                left.sort_by_key(|c: &Unprotected<usize>| std::cmp::Reverse(c.what));
                for plan in form(six_one, left.clone(), &mut disks, 1000) {
                    groups += 1;
                    left.retain(|c| plan.members.iter().all(|m| m.what != c.what));
                }
            }
            assert_eq!((groups, left.len()), (7, 0), "{batch} at a time: {left:?}");
        }
    }

    #[test]
    fn lengths_of_a_group_are_similar_until_one_has_waited_too_long() {
        let mut candidates = vec![replica(0, 128, 0), replica(1, 5, 1)];
        assert_eq!(form(two_one(), candidates.clone(), &mut empty(3), 9), []);
        candidates[0].patient = true;
        let plans = form(two_one(), candidates.clone(), &mut empty(3), 9);
        let found: Vec<usize> = plans[0].members.iter().map(|m| m.what).collect();
        // The other one may still find partners of its length.
        assert_eq!((plans.len(), found), (1, vec![0]));
        candidates[1].patient = true;
        let plans = form(two_one(), candidates, &mut empty(3), 9);
        assert_eq!((plans.len(), plans[0].members.len()), (1, 2));
        assert_eq!(plans[0].parity[0], ParityPlace { disk: 2, len: 128 });
    }

    #[test]
    fn groups_are_smaller_when_disks_are_lost() {
        let candidates: Vec<_> = (0..20).map(|n| replica(n % 2, 100, n)).collect();
        let plans = form(two_one(), candidates.clone(), &mut empty(2), 100);
        assert_eq!(plans.len(), 20);
        assert!(plans.iter().all(|plan| plan.members.len() == 1));
        assert_eq!(form(two_one(), candidates, &mut empty(1), 100), []);
    }

    #[test]
    fn without_room_for_parity_nothing_is_planned() {
        let mut disks = empty(3);
        for disk in &mut disks {
            disk.free = 99;
        }
        let candidates = vec![replica(0, 100, 0), replica(1, 100, 1)];
        assert_eq!(form(two_one(), candidates.clone(), &mut disks, 9), []);
        disks[2].free = 100;
        assert_eq!(form(two_one(), candidates.clone(), &mut disks, 9).len(), 1);
        assert_eq!(disks[2].free, 0);
        assert_eq!(form(two_one(), candidates, &mut empty(3), 0), []);
    }

    #[test]
    fn a_full_disk_does_not_leave_the_others_without_parity() {
        let six_one = ParityShape::new(6, 1).expect("valid");
        for patient in [false, true] {
            let mut disks = empty(7);
            disks[3].free = 99;
            // A full disk gets no replicas, so its few old ones are protected already.
            let arrived = (0..60).map(|n| {
                let candidate = replica([0, 1, 2, 4, 5, 6][n % 6], 100, n);
                Unprotected {
                    patient,
                    ..candidate
                }
            });
            let plans = form(six_one, arrived.collect(), &mut disks, 1000);
            let members: usize = plans.iter().map(|plan| plan.members.len()).sum();
            let at_least = if patient { 60 } else { 50 };
            assert!(members >= at_least, "{members} of 60: {disks:?}");
            assert!(disks.iter().all(|disk| disk.parity <= 400), "{disks:?}");
        }
    }

    proptest! {
        #[test]
        fn units_of_a_group_are_on_different_disks(
            data in 1..5_u8, parity in 1..3_u8,
            lens in proptest::collection::vec((0..9_usize, 0..100_u64, any::<bool>()), 0..60),
            rooms in proptest::collection::vec(0..500_u64, 1..8),
        ) {
            let shape = ParityShape::new(data, parity).expect("valid");
            let mut disks: Vec<DiskRoom> =
                rooms.iter().map(|free| DiskRoom { free: *free, parity: 0 }).collect();
            let candidates: Vec<_> = lens.iter().enumerate()
                .map(|(what, (disk, len, patient))| Unprotected {
                    disk: *disk, len: *len, patient: *patient, what,
                })
                .collect();
            let plans = form(shape, candidates, &mut disks, 1000);
            let mut seen = std::collections::BTreeSet::new();
            let mut taken = vec![0; disks.len()];
            for plan in &plans {
                let most = disks.len().saturating_sub(shape.parity());
                let full = plan.members.len() == shape.data().min(most);
                let long = plan.members.iter().map(|m| m.len).max().unwrap_or(0);
                // Fewer than a full group where no more disks have room. What gave way may have
                // been nearly twice as long.
                let roomy = (0..disks.len()).filter(|d| rooms[*d] - taken[*d] >= 2 * long);
                let spare = roomy.filter(|d| plan.members.iter().all(|m| m.disk != *d));
                let full = full || spare.count() <= shape.parity();
                let mut on: Vec<usize> = plan.members.iter().map(|m| m.disk).collect();
                on.extend(plan.parity.iter().map(|p| p.disk));
                let all = on.len();
                on.sort_unstable();
                on.dedup();
                prop_assert_eq!(on.len(), all);
                prop_assert_eq!(plan.parity.len(), shape.parity());
                prop_assert!(full || plan.members.iter().all(|m| m.patient));
                let longest = plan.members.iter().map(|m| m.len).max().unwrap_or(0);
                for p in &plan.parity {
                    prop_assert_eq!(p.len, longest);
                    taken[p.disk] += p.len;
                }
                for member in &plan.members {
                    prop_assert!(member.len > 0 && seen.insert(member.what));
                }
            }
            for (disk, room) in rooms.iter().enumerate() {
                prop_assert!(taken[disk] <= *room && disks[disk].parity == taken[disk]);
            }
        }
    }
}
