//! Replicas of a disk that is gone: they stay reported under its storage and are served by
//! decoding, until they are rebuilt on other disks.

use std::sync::Arc;

use hayloft_io::IoClass;
use hayloft_io::locks;
use hayloft_parity::{GroupId, GroupPhase, UnitRef};
use hayloft_store::inside::{DecodedAs, DecodedFiles, DegradedReplica, Pool, StoreState, Volume};
use hayloft_store::{StoreError, StoreEvent};
use hayloft_wire::ids::PoolId;
use tracing::{error, info};

use super::Parity;
use super::decode::UnitReader;
use super::decoded_file::ServedFile;

/// What the store knows a unit as.
pub(super) fn decoded_as(unit: UnitRef) -> DecodedAs {
    DecodedAs {
        group: unit.group.0,
        unit: unit.unit,
    }
}

/// The unit that the store knows so.
pub(super) fn unit_from(unit: DecodedAs) -> UnitRef {
    UnitRef {
        group: GroupId(unit.group),
        unit: unit.unit,
    }
}

/// The unit that a replica is decoded as.
pub(super) fn unit_of(replica: &DegradedReplica) -> UnitRef {
    unit_from(replica.unit)
}

/// Whether nothing would be lost with a volume: each finalized replica on it has a group that
/// decodes it still when all that the groups have there is gone.
pub fn can_do_without(parity: &Parity, store: &StoreState, volume: &Volume) -> bool {
    let storage = &volume.info.id;
    let mut left: Vec<(PoolId, i64, u64)> = Vec::new();
    for pool in store.pools() {
        pool.map.for_each(|id, slot| {
            if slot.volume() == volume.index {
                // Else it is being written, or waits for its recovery.
                let len = slot.complete().map_or(u64::MAX, |replica| replica.len);
                left.push((pool.id().clone(), id, len));
            }
        });
    }
    let table = parity.table();
    // What other disks have lost already must not be lost for good.
    let mut lacking = table.iter().filter(|group| !group.lost_units().is_empty());
    if lacking.any(|group| group.decodes() && !group.decodes_without(storage)) {
        return false;
    }
    left.iter().all(|(pool, id, len)| {
        let cover = table.cover(pool, *id, storage);
        let group = cover.filter(|(_, covered)| covered == len);
        let group = group.and_then(|(unit, _)| table.get(unit.group));
        group.is_some_and(|group| group.decodes_without(storage))
    })
}

/// Has a unit decode the replica of block `id` from now on; whether it does. Of two groups that
/// have the replica one decodes it, rather the one that stays; the other does without.
pub(super) fn keep_degraded(
    parity: &Parity,
    pool: &Pool,
    id: i64,
    replica: DegradedReplica,
) -> bool {
    let before = locks::lock(&pool.degraded).get(&id).cloned();
    let Some(before) = before.filter(|before| before.unit != replica.unit) else {
        return locks::lock(&pool.degraded).insert(id, replica).is_none();
    };
    let rank = |replica: &DegradedReplica| {
        let stays = parity
            .table()
            .get(unit_of(replica).group)
            .map(|g| !g.is_weak());
        (replica.generation_stamp, replica.len, stays)
    };
    let better = rank(&replica) > rank(&before);
    let other = unit_of(if better { &before } else { &replica });
    if better {
        locks::lock(&pool.degraded).insert(id, replica);
    }
    parity.drop_member(other);
    better
}

/// A volume has failed: its replicas that can be decoded stay. Before they leave the map.
pub fn keep_serving(parity: &Parity, store: &Arc<StoreState>, volume: &Volume) {
    let (mut kept, mut bytes) = (0, 0_u64);
    parity.disk_failed(parity.disk_of(volume));
    let lost = parity.table().lose_storage(&volume.info.id);
    for unit in lost {
        let member = {
            let table = parity.table();
            let group = table.get(unit.group).filter(|group| group.decodes());
            group.map(|g| {
                let committed = g.phase == GroupPhase::Committed;
                let member = g.record.members[unit.unit].clone();
                (committed, g.record.pool.clone(), member)
            })
        };
        let Some((committed, pool, member)) = member else {
            continue;
        };
        if !committed {
            // The group is given up with the volume: nothing decodes its members.
            parity.drop_member(unit);
            continue;
        }
        let Ok(pool) = store.pool(&pool) else {
            continue;
        };
        let id = member.block_id;
        if let Some(replica) = pool.map.get(id).and_then(|slot| slot.complete())
            && (replica.volume, replica.len) == (volume.index, member.covered)
        {
            let degraded = DegradedReplica {
                generation_stamp: replica.generation_stamp,
                len: replica.len,
                pinned: replica.pinned,
                storage: volume.info.clone(),
                unit: decoded_as(unit),
            };
            if keep_degraded(parity, &pool, id, degraded) {
                kept += 1;
                bytes = bytes.saturating_add(replica.len);
            }
        } else {
            // Its replica is on another volume, or a longer one: nothing is to be rebuilt of it.
            parity.drop_member(unit);
        }
    }
    if kept > 0 {
        info!(volume = %volume.root.display(), replicas = kept, bytes, "replicas of the failed \
            volume are served by decoding, and rebuilt on other disks");
    }
    drop_undecodable(parity);
    parity.wake.notify_one();
}

/// A volume was taken out on purpose: its units are gone, and its replicas with it.
pub fn volume_left(parity: &Parity, volume: &Volume) {
    {
        let mut table = parity.table();
        for unit in table.lose_storage(&volume.info.id) {
            if let Some(group) = table.get_mut(unit.group) {
                Arc::make_mut(&mut group.record).members[unit.unit].dropped = true;
                group.dirty = true;
            }
        }
    }
    drop_undecodable(parity);
    parity.wake.notify_one();
}

/// Tells of degraded replicas whose group lost one unit too many.
pub(super) fn drop_undecodable(parity: &Parity) {
    for store in parity.stores() {
        for pool in store.pools() {
            let gone: Vec<_> = {
                let table = parity.table();
                let lost = |unit: UnitRef| !table.get(unit.group).is_some_and(|g| g.decodes());
                let mut degraded = locks::lock(&pool.degraded);
                degraded.extract_if(|_, r| lost(unit_of(r))).collect()
            };
            if gone.is_empty() {
                continue;
            }
            error!(pool = %pool.id(), replicas = gone.len(), "replicas of failed disks cannot be \
                decoded any more: they are reported as lost");
            let (store, pool) = (Arc::clone(&store), Arc::clone(&pool));
            store.tasks.clone().spawn(async move {
                for (id, replica) in gone {
                    let block = pool.extended(replica.block(id));
                    let storage = replica.storage;
                    store.send_event(StoreEvent::Lost { block, storage }).await;
                }
            });
        }
    }
}

/// Volumes have joined: what was degraded and is here again is served from there. Replicas of a
/// volume that has just failed are still in the map, and are not.
pub fn back_again(pool: &Pool) {
    let ids: Vec<i64> = locks::lock(&pool.degraded).keys().copied().collect();
    for id in ids {
        if pool.has(id) {
            locks::lock(&pool.degraded).remove(&id);
        }
    }
}

/// A unit as files that are decoded when they are read.
pub(super) async fn decode(
    parity: &Arc<Parity>,
    unit: UnitRef,
) -> Result<DecodedFiles, StoreError> {
    let reader = UnitReader::open(parity, unit, IoClass::ClientRead).await?;
    let checksum = reader.sums().checksum();
    let name = format!("parity group {} unit {}", unit.group, unit.unit);
    let (data, meta) = ServedFile::pair(reader, name.into());
    Ok(DecodedFiles {
        data,
        meta,
        checksum,
    })
}

impl Parity {
    /// The replica of a member is wanted no more.
    pub(super) fn drop_member(&self, unit: UnitRef) {
        if let Some(group) = self.table().get_mut(unit.group) {
            Arc::make_mut(&mut group.record).members[unit.unit].dropped = true;
            group.dirty = true;
        }
        self.wake.notify_one();
    }
}
