//! Which units of a device are free. Pure arithmetic.

use std::collections::BTreeMap;

/// Bytes of a unit: what a replica takes is a multiple of it.
pub(super) const UNIT: u64 = 64 << 10;

/// Units of a device that lie together, of one stub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub first: u64,
    pub units: u32,
}

impl Extent {
    fn end(self) -> u64 {
        self.first + u64::from(self.units)
    }
}

/// Units for `bytes`.
pub(super) fn units_for(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT)
}

/// The free units of a device.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// First unit and number of units that lie together; never adjacent to the next.
    free: BTreeMap<u64, u64>,
    free_units: u64,
    /// Given up, but a stub that power loss brings back may still name them.
    leaving: Vec<Extent>,
    leaving_units: u64,
}

impl Room {
    /// All of `from..to` is free.
    pub(super) fn new(from: u64, to: u64) -> Self {
        let mut room = Self::default();
        room.insert(from, to.saturating_sub(from));
        room
    }

    /// Units that are free, or will be.
    pub(super) fn free_units(&self) -> u64 {
        self.free_units + self.leaving_units
    }

    /// Units that may be given out at once.
    pub(super) fn ready_units(&self) -> u64 {
        self.free_units
    }

    /// How many stretches of free units there are, and the units of the longest.
    pub(super) fn runs(&self) -> (u64, u64) {
        let longest = self.free.values().max().copied().unwrap_or(0);
        (self.free.len() as u64, longest)
    }

    /// Takes an extent that a stub names. False, and nothing is taken, when a part of it is not
    /// free: another stub has it.
    pub(super) fn claim(&mut self, extent: Extent) -> bool {
        let Some((&first, &units)) = self.free.range(..=extent.first).next_back() else {
            return false;
        };
        if extent.end() > first + units {
            return false;
        }
        self.remove(first, units);
        self.insert(first, extent.first - first);
        self.insert(extent.end(), first + units - extent.end());
        true
    }

    /// Takes up to `wanted` units that lie together: behind `after` if those are free, else the
    /// first place with room for all, else the largest. `None` when nothing is free.
    pub(super) fn take(&mut self, wanted: u64, after: Option<u64>) -> Option<Extent> {
        let behind = after.and_then(|at| self.free.get_key_value(&at));
        let place = behind
            .or_else(|| self.free.iter().find(|(_, units)| **units >= wanted))
            .or_else(|| self.free.iter().max_by_key(|(_, units)| **units));
        let (&first, &there) = place?;
        let units = wanted.min(there).min(u64::from(u32::MAX));
        self.remove(first, there);
        self.insert(first + units, there - units);
        let units = u32::try_from(units).expect("at most that");
        Some(Extent { first, units })
    }

    /// Notes that no stub names the extent any more. It is free after
    /// [`let_go`](Self::let_go).
    pub(super) fn give_up(&mut self, extent: Extent) {
        self.leaving_units += u64::from(extent.units);
        self.leaving.push(extent);
    }

    /// Puts back what could not be made durable.
    pub(super) fn keep_leaving(&mut self, extents: Vec<Extent>) {
        self.leaving.extend(extents);
    }

    /// What was given up, extents that lie together as one. The caller makes the file system
    /// durable, then [lets it go](Self::let_go).
    pub(super) fn leaving(&mut self) -> Vec<Extent> {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.sort_unstable_by_key(|extent| extent.first);
        leaving.dedup_by(|next, before| {
            let units = before.units.checked_add(next.units);
            let joined = units.filter(|_| before.end() == next.first);
            before.units = joined.unwrap_or(before.units);
            joined.is_some()
        });
        leaving
    }

    /// These units may be given out again.
    pub(super) fn let_go(&mut self, extents: &[Extent]) {
        for extent in extents {
            self.lose(*extent);
            self.insert(extent.first, u64::from(extent.units));
        }
    }

    /// These were given up, and are for no stub until the next start.
    pub(super) fn lose(&mut self, extent: Extent) {
        self.leaving_units -= u64::from(extent.units);
    }

    fn remove(&mut self, first: u64, units: u64) {
        self.free.remove(&first);
        self.free_units -= units;
    }

    fn insert(&mut self, mut first: u64, mut units: u64) {
        if units == 0 {
            return;
        }
        self.free_units += units;
        if let Some((&before, &there)) = self.free.range(..first).next_back()
            && before + there == first
        {
            self.free.remove(&before);
            (first, units) = (before, units + there);
        }
        if let Some(there) = self.free.remove(&(first + units)) {
            units += there;
        }
        self.free.insert(first, units);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_given_up_piece_by_piece_leaves_in_long_runs() {
        let mut room = Room::new(0, 100);
        let extent = |first, units| Extent { first, units };
        assert!(room.claim(extent(0, 100)));
        for (first, units) in [(30, 10), (0, 10), (20, 10), (60, 5), (10, 10)] {
            room.give_up(extent(first, units));
        }
        let leaving = room.leaving();
        assert_eq!(leaving, [extent(0, 40), extent(60, 5)]);
        room.let_go(&leaving);
        assert_eq!((room.ready_units(), room.free_units()), (45, 45));
        assert_eq!(room.runs(), (2, 40));
    }

    #[test]
    fn an_extent_grows_in_place_and_fragments_are_used_last() {
        let mut room = Room::new(16, 116);
        let a = room.take(10, None).expect("room");
        assert_eq!(
            a,
            Extent {
                first: 16,
                units: 10
            }
        );
        let b = room.take(5, Some(a.end())).expect("room");
        assert_eq!(b.first, 26);
        let rest = room.take(1000, None).expect("room");
        assert_eq!((rest.units, room.free_units()), (85, 0));
        assert_eq!(room.take(1, None), None);
        room.give_up(a);
        assert_eq!((room.free_units(), room.ready_units()), (10, 0));
        assert_eq!(room.take(1, None), None, "a stub may come back");
        let leaving = room.leaving();
        room.let_go(&leaving);
        assert_eq!(room.take(20, None), Some(a));
    }

    proptest! {
        /// No unit is given out twice, none is lost.
        #[test]
        fn units_are_given_out_once(
            steps in prop::collection::vec((1_u64..40, any::<u16>()), 1..200),
        ) {
            let mut room = Room::new(16, 516);
            let mut taken: Vec<Extent> = Vec::new();
            for (wanted, choice) in steps {
                if choice % 3 == 0 && !taken.is_empty() {
                    let gone = taken.swap_remove(usize::from(choice) % taken.len());
                    room.give_up(gone);
                    let leaving = room.leaving();
                    room.let_go(&leaving);
                } else if let Some(extent) = room.take(wanted, taken.last().map(|e| e.end())) {
                    taken.push(extent);
                }
                let mut sorted = taken.clone();
                sorted.sort_unstable_by_key(|e| e.first);
                prop_assert!(sorted.windows(2).all(|w| w[0].end() <= w[1].first));
                let held: u64 = taken.iter().map(|e| u64::from(e.units)).sum();
                prop_assert_eq!(held + room.free_units(), 500);
            }
            let mut again = Room::new(16, 516);
            for extent in &taken {
                prop_assert!(again.claim(*extent));
                prop_assert!(!again.claim(*extent), "it is taken");
            }
            prop_assert_eq!(again.free_units(), room.free_units());
        }
    }
}
