//! Replicas of a disk that is gone: they stay reported under its storage and are served by
//! decoding, until they are rebuilt on other disks.

use std::collections::HashMap;
use std::sync::Arc;

use hayloft_io::IoClass;
use hayloft_parity::{GroupPhase, UnitRef};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId, ReplicaState};
use tracing::{error, info};

use super::Parity;
use super::decode::UnitReader;
use super::served::ServedFile;
use crate::error::{StoreError, StoreErrorKind};
use crate::locks;
use crate::reader::ReplicaReader;
use crate::replica::block_pool::Pool;
use crate::replica::{FinalReplica, Slot};
use crate::state::StoreState;
use crate::types::{ReplicaRef, ReplicaReport, StorageInfo, StorageReport, StoreEvent};
use crate::volume::{Volume, footprint};

/// A finalized replica whose disk is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DegradedReplica {
    /// Generation stamp.
    pub generation_stamp: u64,
    /// Length in bytes.
    pub len: u64,
    /// Pinned to this node.
    pub pinned: bool,
    /// The storage that it was on.
    pub storage: StorageInfo,
    /// The unit that it is decoded as.
    pub unit: UnitRef,
}

impl DegradedReplica {
    /// The block.
    pub fn block(&self, id: i64) -> Block {
        Block::new(id, self.generation_stamp, self.len)
    }

    /// What it is once it is rebuilt on a volume.
    pub(super) fn on(&self, volume: &Volume) -> FinalReplica {
        FinalReplica {
            generation_stamp: self.generation_stamp,
            len: self.len,
            volume: volume.index,
            pinned: self.pinned,
        }
    }
}

impl Pool {
    /// The degraded replica of a block, unless another one is here.
    pub fn degraded_replica(&self, id: i64) -> Option<DegradedReplica> {
        let found = locks::lock(&self.degraded).get(&id).cloned();
        found.filter(|_| self.map.get(id).is_none())
    }

    /// Looks at each degraded replica that no other takes the place of. Heartbeats do, so none is
    /// copied.
    pub fn for_each_degraded(&self, mut look: impl FnMut(i64, &DegradedReplica)) {
        for (id, replica) in locks::lock(&self.degraded).iter() {
            if self.map.get(*id).is_none() {
                look(*id, replica);
            }
        }
    }

    /// All degraded replicas that no other takes the place of.
    pub fn all_degraded(&self) -> Vec<(i64, DegradedReplica)> {
        let mut all = Vec::new();
        self.for_each_degraded(|id, replica| all.push((id, replica.clone())));
        all
    }
}

/// Whether nothing would be lost with a volume: each finalized replica on it has a group that
/// decodes it still when all that the groups have there is gone.
pub fn can_do_without(store: &StoreState, volume: &Volume) -> bool {
    let Some(parity) = &store.parity else {
        return false;
    };
    let storage = &volume.info.id;
    let mut left: Vec<(PoolId, i64, u64)> = Vec::new();
    for pool in store.pools() {
        pool.map.for_each(|id, slot| {
            if slot.volume() == volume.index {
                let len = match slot {
                    Slot::Finalized(replica) => replica.len,
                    // It is being written, or waits for its recovery.
                    Slot::Live(_) => u64::MAX,
                };
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
        let stays = parity.table().get(replica.unit.group).map(|g| !g.is_weak());
        (replica.generation_stamp, replica.len, stays)
    };
    let better = rank(&replica) > rank(&before);
    let other = if better { before.unit } else { replica.unit };
    if better {
        locks::lock(&pool.degraded).insert(id, replica);
    }
    parity.drop_member(other);
    better
}

/// A volume has failed: its replicas that can be decoded stay. Before they leave the map.
pub fn keep_serving(store: &Arc<StoreState>, volume: &Volume) {
    let Some(parity) = &store.parity else {
        return;
    };
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
        if let Some(Slot::Finalized(replica)) = pool.map.get(id)
            && (replica.volume, replica.len) == (volume.index, member.covered)
        {
            let degraded = DegradedReplica {
                generation_stamp: replica.generation_stamp,
                len: replica.len,
                pinned: replica.pinned,
                storage: volume.info.clone(),
                unit,
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
pub fn volume_left(store: &Arc<StoreState>, volume: &Volume) {
    let Some(parity) = &store.parity else {
        return;
    };
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
fn drop_undecodable(parity: &Arc<Parity>) {
    for store in parity.stores() {
        for pool in store.pools() {
            let gone: Vec<_> = {
                let table = parity.table();
                let lost = |unit: &UnitRef| !table.get(unit.group).is_some_and(|g| g.decodes());
                let mut degraded = locks::lock(&pool.degraded);
                degraded.extract_if(|_, r| lost(&r.unit)).collect()
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

/// Volumes have joined: what was degraded and is here again is served from there.
pub fn back_again(pool: &Pool) {
    let ids: Vec<i64> = locks::lock(&pool.degraded).keys().copied().collect();
    for id in ids {
        if pool.map.get(id).is_some() {
            locks::lock(&pool.degraded).remove(&id);
        }
    }
}

/// Adds degraded replicas to a full report, each under the storage that it was on.
pub fn append_reports(pool: &Pool, lists: &mut Vec<(StorageInfo, Vec<ReplicaReport>)>) {
    for (id, replica) in pool.all_degraded() {
        let report = ReplicaReport {
            block: replica.block(id),
            state: ReplicaState::Finalized,
        };
        match lists.iter_mut().find(|(s, _)| s.id == replica.storage.id) {
            Some((_, list)) => list.push(report),
            None => lists.push((replica.storage, vec![report])),
        }
    }
}

/// Adds the storages of degraded replicas to a heartbeat: full, so that nothing is placed there.
pub fn append_storages(store: &StoreState, pool: &PoolId, reports: &mut Vec<StorageReport>) {
    let mut storages: HashMap<Arc<str>, StorageReport> = HashMap::new();
    for each in store.pools() {
        each.for_each_degraded(|_, replica| {
            let bytes = footprint(replica.len, None);
            let id = Arc::clone(&replica.storage.id);
            let report = storages.entry(id).or_insert_with(|| StorageReport {
                storage: replica.storage.clone(),
                failed: false,
                capacity: 0,
                dfs_used: 0,
                remaining: 0,
                block_pool_used: 0,
                non_dfs_used: 0,
                mount: String::new(),
            });
            report.capacity = report.capacity.saturating_add(bytes);
            report.dfs_used = report.capacity;
            if each.id() == pool {
                report.block_pool_used = report.block_pool_used.saturating_add(bytes);
            }
        });
    }
    let new = |r: &StorageReport| !reports.iter().any(|known| known.storage.id == r.storage.id);
    let more: Vec<_> = storages.into_values().filter(new).collect();
    reports.extend(more);
}

/// What is known of a degraded replica.
pub fn reference_degraded(pool: &Pool, id: i64) -> Option<ReplicaRef> {
    let replica = pool.degraded_replica(id)?;
    Some(ReplicaRef {
        block: pool.extended(replica.block(id)),
        state: ReplicaState::Finalized,
        visible_len: Some(replica.len),
        bytes_on_disk: replica.len,
        storage: replica.storage,
        pinned: replica.pinned,
    })
}

/// Opens a degraded replica; `None` when there is none.
pub async fn open_degraded(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    wanted: &ExtendedBlock,
) -> Option<Result<ReplicaReader, StoreError>> {
    let parity = store.parity.as_ref()?;
    let replica = pool.degraded_replica(wanted.block.id)?;
    let here = replica.block(wanted.block.id);
    if here.generation_stamp < wanted.block.generation_stamp {
        let text = format!("Replica gen stamp < block genstamp, block={wanted}, replica={here}");
        let kind = StoreErrorKind::UnexpectedGenerationStamp;
        return Some(Err(StoreError::new(kind, text)));
    }
    decoded(store, pool, here, replica.storage, (parity, replica.unit)).await
}

/// What is known of a replica that is to be mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Its files are not there, or differ: it is told when it cannot be mended.
    Certain,
    /// An error: the block scanner looks at it then, so that a good replica is not reported.
    Suspected,
}

/// Opens a finalized replica whose files cannot be opened, if its group has all of it.
pub async fn open_instead(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    (here, damage): (Block, Damage),
    storage: StorageInfo,
) -> Option<ReplicaReader> {
    let parity = store.parity.as_ref()?;
    let cover = parity.table().cover(pool.id(), here.id, &storage.id);
    let (unit, _) = cover.filter(|(_, covered)| *covered == here.num_bytes)?;
    let opened = decoded(store, pool, here, storage.clone(), (parity, unit)).await?;
    let reader = opened.ok()?;
    let block = pool.extended(here);
    super::heal(store, block, storage, damage);
    Some(reader)
}

async fn decoded(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    here: Block,
    storage: StorageInfo,
    (parity, unit): (&Arc<Parity>, UnitRef),
) -> Option<Result<ReplicaReader, StoreError>> {
    // Reads run on the disks of its sources; the reader only names one of the pool.
    let slice = pool.slices().into_iter().find(|s| !s.volume.is_failed())?;
    let opened = UnitReader::open(parity, unit, IoClass::ClientRead).await;
    let reader = opened.map(|reader| {
        let checksum = reader.sums().checksum();
        let name = format!("parity group {} unit {}", unit.group, unit.unit);
        let files = ServedFile::pair(reader, name.into());
        let block = pool.extended(here);
        ReplicaReader::decoded(store, &slice, storage, (block, checksum), files)
    });
    Some(reader)
}

/// The NameNode has ordered the deletion of a degraded replica; whether there was one.
pub async fn forget_degraded(store: &Arc<StoreState>, pool: &Pool, block: Block) -> bool {
    let Some(replica) = pool.degraded_replica(block.id) else {
        return false;
    };
    if replica.generation_stamp != block.generation_stamp {
        return false;
    }
    locks::lock(&pool.degraded).remove(&block.id);
    if let Some(parity) = &store.parity {
        parity.drop_member(replica.unit);
    }
    let (block, storage) = (pool.extended(replica.block(block.id)), replica.storage);
    store
        .send_event(StoreEvent::Deleted { block, storage })
        .await;
    true
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
