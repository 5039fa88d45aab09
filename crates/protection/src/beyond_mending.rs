//! Replicas that are damaged or lost beyond what their groups can mend.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hayloft_io::locks;
use hayloft_parity::{GroupRecord, MemberRecord, MemberState, UnitRef};
use hayloft_store::StorageInfo;
use hayloft_store::inside::{FinalReplica, Slot};
use hayloft_wire::ids::{ExtendedBlock, PoolId};

use super::Parity;
use super::rewrite_damaged::Damaged;

/// Replicas that are damaged and cannot be mended: storage, generation stamp and length.
#[derive(Clone, Debug, Default)]
pub struct DamagedReplicas(HashMap<(PoolId, i64), (Arc<str>, u64, u64)>);

impl DamagedReplicas {
    /// Whether a replica of this block on this storage is one of them.
    pub fn has(&self, pool: &PoolId, id: i64, storage: &str) -> bool {
        let known = match self.0.is_empty() {
            true => None,
            false => self.0.get(&(pool.clone(), id)),
        };
        known.is_some_and(|(on, ..)| **on == *storage)
    }

    /// Whether a replica is one of them.
    pub fn is_same(&self, pool: &PoolId, id: i64, storage: &str, now: &FinalReplica) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let known = self.0.get(&(pool.clone(), id));
        known.is_some_and(|(on, stamp, len)| {
            **on == *storage && (*stamp, *len) == (now.generation_stamp, now.len)
        })
    }
}

impl Parity {
    /// A replica is damaged, and no group can mend it. The others of its group go into new ones.
    pub(super) fn note_damaged(&self, block: &ExtendedBlock, storage: &StorageInfo) {
        let id = block.block.id;
        let Some(Slot::Finalized(replica)) = self.replica_on(&block.pool, id, &storage.id) else {
            return;
        };
        let of = (
            Arc::clone(&storage.id),
            replica.generation_stamp,
            replica.len,
        );
        locks::lock(&self.damaged)
            .0
            .insert((block.pool.clone(), id), of);
        let mut table = self.table();
        if let Some((unit, _)) = table.cover(&block.pool, id, &storage.id)
            && let Some(group) = table.get_mut(unit.group)
        {
            group.given_up = true;
        }
    }

    /// A replica was mended after all.
    pub(super) fn note_mended(&self, block: &ExtendedBlock) {
        let key = (block.pool.clone(), block.block.id);
        locks::lock(&self.damaged).0.remove(&key);
    }

    /// What a store has of a block on a storage.
    fn replica_on(&self, pool: &PoolId, id: i64, storage: &str) -> Option<Slot> {
        let place = self.place(storage)?;
        let slot = place.store.pool(pool).ok()?.map.get(id)?;
        (slot.volume() == place.volume.index).then_some(slot)
    }

    /// Damaged replicas that are still there as they were, and those that wait to be mended, bytes
    /// by storage.
    pub(super) fn damaged_bytes(&self, mending: &HashSet<Damaged>) -> HashMap<Arc<str>, u64> {
        let mut bytes: HashMap<Arc<str>, u64> = HashMap::new();
        let mut damaged = locks::lock(&self.damaged);
        for (storage, pool, id) in mending {
            let now = self.replica_on(pool, *id, storage);
            if let Some(Slot::Finalized(now)) = now
                && !damaged.has(pool, *id, storage)
            {
                *bytes.entry(Arc::clone(storage)).or_default() += now.len;
            }
        }
        damaged.0.retain(|(pool, id), (storage, stamp, len)| {
            let now = self.replica_on(pool, *id, storage);
            let same = matches!(now, Some(Slot::Finalized(replica))
                if (replica.generation_stamp, replica.len) == (*stamp, *len));
            if same {
                *bytes.entry(Arc::clone(storage)).or_default() += *len;
            }
            same
        });
        bytes
    }

    /// Whether a store of the process should have a replica, and has it nowhere.
    pub(super) fn is_missing(&self, record: &GroupRecord, member: &MemberRecord) -> bool {
        self.is_ours(&member.storage, &member.root) && !self.has_replica(record, member)
    }

    /// Whether a store has the replica of a member, wherever.
    fn has_replica(&self, record: &GroupRecord, member: &MemberRecord) -> bool {
        self.stores().iter().any(|store| {
            let pool = store.pool(&record.pool).ok();
            let pool = pool.filter(|pool| pool.has(member.block_id));
            let slot = pool.and_then(|pool| pool.map.get(member.block_id));
            slot.is_some_and(|slot| slot.block(member.block_id).num_bytes >= member.covered)
        })
    }

    /// Replicas that were lost and came from other nodes since: no group misses them any more.
    pub(super) fn found_again(&self) {
        let found: Vec<UnitRef> = {
            let table = self.table();
            let lost = table.iter().filter(|group| !group.decodes());
            let units = lost.flat_map(|group| {
                let record = &group.record;
                let members = record.members.iter().zip(&group.members).enumerate();
                let found = members.filter(|(_, (member, state))| {
                    let absent = !member.dropped && **state == MemberState::Absent;
                    absent && self.has_replica(record, member)
                });
                found.map(|(unit, _)| UnitRef {
                    group: record.id,
                    unit,
                })
            });
            units.collect()
        };
        for unit in found {
            self.drop_member(unit);
        }
    }
}
