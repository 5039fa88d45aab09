//! Bytes of the groups in a table, in all, by storage and by group.

use std::collections::HashMap;
use std::sync::Arc;

use crate::group::{MemberState, TableGroup, UnitRef};
use crate::record::{GroupId, GroupRecord, MemberRecord};
use crate::table::GroupTable;

/// Groups that lack units and are named in [`GroupTotals`], at most.
const LACKING_MAX: usize = 64;

/// Bytes of units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitTotals {
    /// Replicas in groups that have all of their units.
    pub protected: u64,
    /// Replicas in groups that lack a unit and can decode it.
    pub degraded: u64,
    /// Replicas that are nowhere and cannot be decoded.
    pub lost: u64,
    /// Units that are nowhere and can be decoded.
    pub to_rebuild: u64,
    /// Parity files.
    pub parity: u64,
}

impl UnitTotals {
    fn replicas(&self) -> u64 {
        self.protected + self.degraded + self.lost + self.to_rebuild
    }

    fn add(&mut self, more: Self) {
        self.protected += more.protected;
        self.degraded += more.degraded;
        self.lost += more.lost;
        self.to_rebuild += more.to_rebuild;
        self.parity += more.parity;
    }
}

/// A group that lacks units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LackingGroup {
    /// Its name.
    pub id: GroupId,
    /// Units that are nowhere.
    pub lacks: usize,
    /// Whether they can be decoded.
    pub decodes: bool,
    /// Bytes of its units.
    pub bytes: UnitTotals,
}

/// Bytes of groups, as `hayloft parity status` shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupTotals {
    /// Of all groups.
    pub all: UnitTotals,
    /// Of the units on each storage, or that were there; with the root of its volume.
    pub storages: HashMap<Arc<str>, (Arc<str>, UnitTotals)>,
    /// Data kept for groups whose replica is gone.
    pub kept: u64,
    /// Groups.
    pub groups: u64,
    /// Groups that lack a unit.
    pub lacking: u64,
    /// Some of those, in the order of their names.
    pub some_lacking: Vec<LackingGroup>,
}

impl GroupTable {
    /// The bytes of all groups, those that are not committed left out. Only replicas that are
    /// `ours` count. One that cannot be decoded is lost if it is `missing` besides.
    #[must_use]
    pub fn totals(
        &self,
        mut ours: impl FnMut(&GroupRecord, &MemberRecord) -> bool,
        mut missing: impl FnMut(&GroupRecord, &MemberRecord) -> bool,
    ) -> GroupTotals {
        let mut totals = GroupTotals {
            kept: self.kept_bytes(),
            ..GroupTotals::default()
        };
        let counts = |group: &&TableGroup| group.is_committed() && group.leftover.is_none();
        for group in self.iter().filter(counts) {
            let mut here = UnitTotals::default();
            for unit in 0..group.record.members.len() + group.record.parity.len() {
                let Some((storage, root)) = place(&group.record, unit) else {
                    continue;
                };
                let mut bytes = self.unit_bytes(group, unit);
                if let Some(member) = group.record.members.get(unit) {
                    if !ours(&group.record, member) {
                        bytes = UnitTotals::default();
                    } else if bytes.lost > 0 && !missing(&group.record, member) {
                        bytes.lost = 0;
                    }
                }
                here.add(bytes);
                let known = totals.storages.entry(Arc::clone(storage));
                let known = known.or_insert_with(|| (Arc::clone(root), UnitTotals::default()));
                known.1.add(bytes);
            }
            totals.all.add(here);
            totals.groups += 1;
            let lacks = group.lost_units().len();
            if lacks > 0 && here.replicas() > 0 {
                totals.lacking += 1;
                totals.some_lacking.push(LackingGroup {
                    id: group.record.id,
                    lacks,
                    decodes: group.decodes(),
                    bytes: here,
                });
            }
        }
        totals.some_lacking.sort_unstable_by_key(|group| group.id);
        totals.some_lacking.truncate(LACKING_MAX);
        totals
    }

    fn unit_bytes(&self, group: &TableGroup, unit: usize) -> UnitTotals {
        let mut bytes = UnitTotals::default();
        let (record, decodes) = (&group.record, group.decodes());
        let data = record.shape.data();
        let Some((member, state)) = record.members.get(unit).zip(group.members.get(unit)) else {
            match (group.available(data + unit - record.members.len()), decodes) {
                (true, _) => bytes.parity = record.parity_len(),
                // The members of a group that stays short go into others.
                (false, true) if !group.is_weak() => bytes.to_rebuild = record.parity_len(),
                (false, _) => {}
            }
            return bytes;
        };
        // Another group may cover more of the same replica.
        let best = self.cover(&record.pool, member.block_id, &member.storage);
        let ours = best.is_some_and(|(UnitRef { group, .. }, _)| group == record.id);
        if member.dropped || !ours {
            return bytes;
        }
        let absent = *state == MemberState::Absent;
        match (absent, decodes) {
            (true, true) => bytes.to_rebuild = member.covered,
            (true, false) => bytes.lost = member.covered,
            (false, _) => {}
        }
        if group.lost_units().is_empty() {
            bytes.protected = member.covered;
        } else if decodes {
            bytes.degraded = member.covered;
        }
        bytes
    }
}

/// Storage and root of a member, or of a parity file behind the members.
fn place(record: &GroupRecord, unit: usize) -> Option<(&Arc<str>, &Arc<str>)> {
    match record.members.get(unit) {
        Some(member) => Some((&member.storage, &member.root)),
        None => {
            let parity = record.parity.get(unit - record.members.len())?;
            Some((&parity.storage, &parity.root))
        }
    }
}
