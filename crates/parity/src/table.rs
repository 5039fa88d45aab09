//! The groups of a process in memory, and what a change of a replica means for them. Pure.
//!
//! A member is claimed before it is read, so that no change of it is missed. From the moment that a
//! group is committing, the data of a member outlives the replica: the caller keeps it aside when
//! [`GroupTable::change`] says so.

use std::collections::HashMap;
use std::sync::Arc;

use hayloft_wire::ids::PoolId;

use crate::group::{
    ClaimSpoiled, GroupPhase, KeepData, MemberChange, MemberState, TableGroup, UnitRef,
};
use crate::record::{GroupId, GroupRecord};

/// All groups of a process.
#[derive(Debug, Default)]
pub struct GroupTable {
    groups: HashMap<GroupId, TableGroup>,
    /// Groups of each block.
    members: HashMap<PoolId, HashMap<i64, Vec<UnitRef>>>,
    kept: u64,
}

impl GroupTable {
    /// A group is about to be encoded. Its members count as taken from now on.
    pub fn claim(&mut self, record: GroupRecord) {
        self.insert(record, GroupPhase::Encoding, Vec::new(), Vec::new());
    }

    /// Takes in a group that was found on disks; what it was before is replaced. Members without a
    /// state are live, parity files are there.
    pub fn adopt(&mut self, record: GroupRecord, members: Vec<MemberState>, parity: Vec<bool>) {
        self.insert(record, GroupPhase::Committed, members, parity);
    }

    fn insert(
        &mut self,
        record: GroupRecord,
        phase: GroupPhase,
        mut members: Vec<MemberState>,
        mut parity: Vec<bool>,
    ) {
        let group = record.id;
        self.remove(group);
        let ids = self.members.entry(record.pool.clone()).or_default();
        for (unit, member) in record.members.iter().enumerate() {
            let refs = ids.entry(member.block_id).or_default();
            refs.push(UnitRef { group, unit });
        }
        members.resize(record.members.len(), MemberState::Live);
        parity.resize(record.shape.parity(), true);
        let kept = record.members.iter().zip(&members);
        let kept = kept.filter(|(_, state)| **state == MemberState::Kept);
        self.kept += kept.map(|(member, _)| member.covered).sum::<u64>();
        let found = TableGroup {
            record: Arc::new(record),
            phase,
            members,
            parity,
            dirty: false,
            torn: false,
            lacks_copy: false,
            leftover: None,
            given_up: false,
            spoiled: false,
        };
        self.groups.insert(group, found);
    }

    /// All of its parity is durable: the group takes the place of its claim, unless a member has
    /// changed since. From now on the data of its members is kept.
    ///
    /// # Errors
    /// [`ClaimSpoiled`]; the group is forgotten then.
    pub fn begin_commit(&mut self, record: GroupRecord) -> Result<(), ClaimSpoiled> {
        let id = record.id;
        let group = self.groups.get_mut(&id).ok_or(ClaimSpoiled)?;
        if group.spoiled || group.phase != GroupPhase::Encoding {
            self.remove(id);
            return Err(ClaimSpoiled);
        }
        group.record = Arc::new(record);
        group.phase = GroupPhase::Committing;
        Ok(())
    }

    /// All copies of its record are durable.
    pub fn committed(&mut self, id: GroupId) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.phase = GroupPhase::Committed;
        }
    }

    /// Forgets a group; gives what it was.
    pub fn remove(&mut self, id: GroupId) -> Option<TableGroup> {
        let gone = self.groups.remove(&id)?;
        for (unit, member) in gone.record.members.iter().enumerate() {
            if gone.members[unit] == MemberState::Kept {
                self.kept = self.kept.saturating_sub(member.covered);
            }
            let Some(ids) = self.members.get_mut(&gone.record.pool) else {
                continue;
            };
            if let Some(refs) = ids.get_mut(&member.block_id) {
                refs.retain(|r| r.group != id);
                if refs.is_empty() {
                    ids.remove(&member.block_id);
                }
            }
        }
        Some(gone)
    }

    /// A group as of now.
    #[must_use]
    pub fn get(&self, id: GroupId) -> Option<&TableGroup> {
        self.groups.get(&id)
    }

    /// A group, to change its states.
    pub fn get_mut(&mut self, id: GroupId) -> Option<&mut TableGroup> {
        self.groups.get_mut(&id)
    }

    /// All groups.
    pub fn iter(&self) -> impl Iterator<Item = &TableGroup> {
        self.groups.values()
    }

    fn refs(&self, pool: &PoolId, id: i64) -> impl Iterator<Item = (UnitRef, &TableGroup)> {
        let ids = self.members.get(pool).and_then(|ids| ids.get(&id));
        let refs = ids.map_or(&[][..], Vec::as_slice);
        refs.iter()
            .filter_map(|r| Some((*r, self.groups.get(&r.group)?)))
    }

    /// The unit that protects a replica on `storage`: of several groups the one that covers most of
    /// it, and the newest.
    #[must_use]
    pub fn cover(&self, pool: &PoolId, id: i64, storage: &str) -> Option<(UnitRef, u64)> {
        self.refs(pool, id)
            .filter(|(_, group)| group.is_committed())
            .filter_map(|(r, group)| {
                let member = &group.record.members[r.unit];
                let here = *member.storage == *storage && !member.dropped;
                here.then_some((r, member.covered))
            })
            .max_by_key(|(r, covered)| (*covered, !self.groups[&r.group].is_weak(), r.group))
    }

    /// Whether no new group has to take in a replica of `len` bytes on `storage`: it is claimed, or
    /// all of it is covered by a group that stays.
    #[must_use]
    pub fn is_taken(&self, pool: &PoolId, id: i64, storage: &str, len: u64) -> bool {
        self.refs(pool, id).any(|(r, group)| {
            let member = &group.record.members[r.unit];
            let state = group.members[r.unit];
            *member.storage == *storage
                && (!group.protects()
                    || member.covered == len
                        && !member.dropped
                        && state == MemberState::Live
                        && !group.is_weak())
        })
    }

    /// Whether a group can decode all `len` bytes of a replica on `storage`, if only for now.
    #[must_use]
    pub fn is_covered(&self, pool: &PoolId, id: i64, storage: &str, len: u64) -> bool {
        self.refs(pool, id).any(|(r, group)| {
            let member = &group.record.members[r.unit];
            let ours = *member.storage == *storage && member.covered == len && !member.dropped;
            ours && group.is_committed() && group.decodes()
        })
    }

    /// Whether a replica on `storage` was protected by a group that lacks units for good: it is to
    /// be protected again at once.
    #[must_use]
    pub fn lost_protection(&self, pool: &PoolId, id: i64, storage: &str) -> bool {
        self.refs(pool, id).any(|(r, group)| {
            let member = &group.record.members[r.unit];
            *member.storage == *storage && !member.dropped && group.stays_short()
        })
    }

    /// A replica on `storage` is about to change. Says which of its bytes are to be kept aside
    /// first; at most `kept_max` bytes are kept for all groups together, and beyond that the unit
    /// is lost. The caller has the right to the block.
    pub fn change(
        &mut self,
        pool: &PoolId,
        id: i64,
        storage: &str,
        change: MemberChange,
        kept_max: u64,
    ) -> Vec<KeepData> {
        let refs: Vec<UnitRef> = self.refs(pool, id).map(|(r, _)| r).collect();
        let mut keep = Vec::new();
        for unit in refs {
            let Some(group) = self.groups.get_mut(&unit.group) else {
                continue;
            };
            let member = &group.record.members[unit.unit];
            let covered = member.covered;
            let stays = matches!(change, MemberChange::Cut { len } if len >= covered);
            if *member.storage != *storage || stays {
                continue;
            }
            if group.members[unit.unit] != MemberState::Live {
                // Kept or lost already: the replica is not wanted any more either.
                if !member.dropped {
                    Arc::make_mut(&mut group.record).members[unit.unit].dropped = true;
                    group.dirty = true;
                }
                continue;
            }
            if group.phase == GroupPhase::Encoding {
                group.spoiled = true;
                continue;
            }
            Arc::make_mut(&mut group.record).members[unit.unit].dropped = true;
            group.dirty = true;
            if self.kept.saturating_add(covered) > kept_max {
                group.members[unit.unit] = MemberState::Absent;
                continue;
            }
            self.kept += covered;
            group.members[unit.unit] = MemberState::Kept;
            keep.push(KeepData {
                unit,
                covered,
                copy: change != MemberChange::Gone,
            });
        }
        keep
    }

    /// Takes note of where the data of a member is.
    pub fn set_member(&mut self, unit: UnitRef, state: MemberState) {
        let Some(group) = self.groups.get_mut(&unit.group) else {
            return;
        };
        let Some(member) = group.record.members.get(unit.unit) else {
            return;
        };
        let before = std::mem::replace(&mut group.members[unit.unit], state);
        let bytes = |state| {
            if state == MemberState::Kept {
                member.covered
            } else {
                0
            }
        };
        self.kept = self
            .kept
            .saturating_sub(bytes(before))
            .saturating_add(bytes(state));
    }

    /// All units on a storage are lost, or being encoded in vain. Gives the members among them
    /// whose replica was there.
    pub fn lose_storage(&mut self, storage: &str) -> Vec<UnitRef> {
        let mut lost = Vec::new();
        let mut vanished = Vec::new();
        for (id, group) in &mut self.groups {
            for (unit, member) in group.record.members.iter().enumerate() {
                if *member.storage != *storage {
                    continue;
                }
                group.spoiled = true;
                if group.members[unit] == MemberState::Live && !member.dropped {
                    lost.push(UnitRef { group: *id, unit });
                }
                vanished.push(UnitRef { group: *id, unit });
            }
            for (at, parity) in group.record.parity.iter().enumerate() {
                if *parity.storage == *storage {
                    group.spoiled = true;
                    group.parity[at] = false;
                }
            }
            group.dirty |= group.record.copies.iter().any(|copy| **copy == *storage);
        }
        for unit in vanished {
            self.set_member(unit, MemberState::Absent);
        }
        lost
    }

    /// Groups that no replica needs: each of their members is dropped, or another group covers it
    /// as well.
    #[must_use]
    pub fn useless(&self) -> Vec<GroupId> {
        let committed = |group: &&TableGroup| group.phase == GroupPhase::Committed;
        let groups = self.groups.values().filter(committed);
        let useless = groups.filter(|group| {
            let mut members = group.record.members.iter();
            members.all(|member| {
                if member.dropped {
                    return true;
                }
                let (pool, storage) = (&group.record.pool, &member.storage);
                let best = self.cover(pool, member.block_id, storage);
                best.is_some_and(|(r, _)| {
                    let other = &self.groups[&r.group];
                    r.group != group.record.id && other.members[r.unit] == MemberState::Live
                })
            })
        });
        useless.map(|group| group.record.id).collect()
    }

    /// Bytes of data that is kept for groups whose replica is gone.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        self.kept
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
