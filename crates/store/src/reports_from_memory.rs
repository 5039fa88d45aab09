//! Reports from memory: no disk is touched.

use std::collections::{BinaryHeap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hayloft_io::{IoClass, IoOp};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId, ReplicaState};

use crate::replica::Slot;
use crate::replica::block_pool::Pool;
use crate::replica::reference::{reference_degraded, reference_of, reported};
use crate::state::StoreState;
use crate::types::{ReplicaRef, ReplicaReport, StorageInfo, StorageReport};
use crate::volume::error_places::DiskErrors;
use crate::volume::footprint;

/// Operations on names, as Apache's volume metrics count them.
const NAMES: [IoOp; 13] = [
    IoOp::Open,
    IoOp::Truncate,
    IoOp::CreateDir,
    IoOp::Rename,
    IoOp::Unlink,
    IoOp::RemoveDir,
    IoOp::Link,
    IoOp::List,
    IoOp::Stat,
    IoOp::ReadSmall,
    IoOp::Replace,
    IoOp::SyncDir,
    IoOp::Length,
];

/// How many operations were measured on a volume since it was opened, and how long they took
/// together, waiting in queues included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeTimes {
    /// The volume's directory.
    pub path: PathBuf,
    /// Operations on names.
    pub metadata: (u64, Duration),
    /// Reads that went through the engine: what came out of the page cache is not in it.
    pub read: (u64, Duration),
    /// Writes.
    pub write: (u64, Duration),
    /// Files that were made durable.
    pub sync: (u64, Duration),
    /// Errors of the disk under it.
    pub errors: u64,
}

/// One volume in `dfsadmin -getVolumeReport`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeReport {
    /// Directory.
    pub path: PathBuf,
    /// Id and type.
    pub storage: StorageInfo,
    /// Bytes used by HDFS.
    pub used: u64,
    /// Bytes free for HDFS.
    pub free: u64,
    /// Bytes reserved by configuration.
    pub reserved: u64,
    /// Bytes reserved for replicas being written.
    pub reserved_for_replicas: u64,
    /// Finalized and other replicas on it.
    pub blocks: u64,
    /// Errors of its disk.
    pub errors: DiskErrors,
    /// What is wrong with its device, if its bytes are on one, though it can be used: in words.
    pub damage: Option<String>,
}

/// Room on a healthy volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpace {
    /// Directory.
    pub path: PathBuf,
    /// Id and type.
    pub storage: StorageInfo,
    /// Bytes free for HDFS.
    pub free: u64,
}

/// See [`Store::storage_reports`](crate::Store::storage_reports).
#[must_use]
pub fn storage_reports(store: &StoreState, pool: &PoolId) -> Vec<StorageReport> {
    let volumes = store.volumes();
    let reports = volumes.iter().map(|v| {
        let n = v.numbers();
        // What protecting the replicas to come will take.
        let protection = store.protection.as_ref();
        let kept_free = protection.map_or(0, |p| p.share_of(n.remaining));
        // By the mount the NameNode counts others' files once. Parts of a file system that
        // virtual nodes share are told in part already.
        let beside = volumes.iter().filter(|o| o.mount == v.mount).count() > 1;
        let shared = beside && !v.file_system.is_shared();
        StorageReport {
            storage: v.info.clone(),
            failed: false,
            capacity: n.capacity.saturating_sub(kept_free),
            dfs_used: n.used,
            remaining: n.remaining.saturating_sub(kept_free),
            block_pool_used: v.slice(pool).map_or(0, |s| s.used.get()),
            non_dfs_used: n.non_dfs_used,
            mount: if shared {
                v.mount.display().to_string()
            } else {
                String::new()
            },
        }
    });
    let mut reports = reports.collect();
    append_storages(store, pool, &mut reports);
    reports
}

/// See [`Store::block_report`](crate::Store::block_report).
#[must_use]
pub fn block_report(pool: &Pool) -> Vec<(StorageInfo, Vec<ReplicaReport>)> {
    let (slices, left) = pool.storages();
    let mut lists: Vec<Vec<ReplicaReport>> = vec![Vec::new(); slices.len()];
    let index: HashMap<u16, usize> = slices
        .iter()
        .enumerate()
        .map(|(i, s)| (s.volume.index, i))
        .collect();
    pool.map.for_each(|id, slot| {
        if let (Some(replica), Some(&at)) = (reported(id, slot), index.get(&slot.volume())) {
            lists[at].push(replica);
        }
    });
    let mut lists = slices
        .iter()
        .map(|s| s.volume.info.clone())
        .zip(lists)
        // Last: the NameNode finds a replica that was taken to another storage there before it
        // misses it here.
        .chain(left.into_iter().map(|storage| (storage, Vec::new())))
        .collect();
    append_reports(pool, &mut lists);
    lists
}

/// See [`Store::volume_report`](crate::Store::volume_report).
#[must_use]
pub fn volume_report(store: &StoreState) -> Vec<VolumeReport> {
    let mut blocks: HashMap<u16, u64> = HashMap::new();
    for pool in store.pools() {
        pool.map
            .for_each(|_, slot| *blocks.entry(slot.volume()).or_default() += 1);
    }
    let report = |v: Arc<crate::volume::Volume>| {
        let n = v.numbers();
        VolumeReport {
            path: v.root.clone(),
            storage: v.info.clone(),
            used: n.used,
            free: n.remaining,
            reserved: n.reserved,
            reserved_for_replicas: n.reserved_for_replicas,
            blocks: blocks.get(&v.index).copied().unwrap_or(0),
            errors: DiskErrors {
                places: v.errors.places(store.config.errors.window),
                total: v.errors.total(),
                searching: v.errors.searching.load(Ordering::Relaxed),
            },
            damage: v.engine.meta(IoClass::Scan).data_files().damage_of_device(),
        }
    };
    store.volumes().into_iter().map(report).collect()
}

/// See [`Store::movable_on`](crate::Store::movable_on).
pub fn movable_on(
    pool: &Pool,
    storage: &str,
    (after, len_max): (i64, u64),
    max: usize,
) -> Vec<ExtendedBlock> {
    let mut slices = pool.slices().into_iter();
    let Some(slice) = slices.find(|s| *s.volume.info.id == *storage) else {
        return Vec::new();
    };
    let mut lowest: BinaryHeap<(i64, u64, u64)> = BinaryHeap::with_capacity(max + 1);
    pool.map.for_each(|id, slot| {
        let Slot::Finalized(r) = slot else { return };
        if r.volume == slice.volume.index && id > after && r.len <= len_max {
            lowest.push((id, r.generation_stamp, r.len));
            if lowest.len() > max {
                lowest.pop();
            }
        }
    });
    let blocks = lowest.into_sorted_vec().into_iter();
    blocks
        .map(|(id, stamp, len)| pool.extended(Block::new(id, stamp, len)))
        .collect()
}

/// See [`Store::volume_spaces`](crate::Store::volume_spaces).
pub fn volume_spaces(store: &StoreState) -> Vec<VolumeSpace> {
    let space = |v: Arc<crate::volume::Volume>| VolumeSpace {
        path: v.root.clone(),
        storage: v.info.clone(),
        free: v.numbers().remaining,
    };
    let healthy = |v: &Arc<crate::volume::Volume>| !v.is_failed();
    store
        .volumes()
        .into_iter()
        .filter(healthy)
        .map(space)
        .collect()
}

/// What is known of a block.
#[must_use]
pub fn replica(pool: &Pool, id: i64) -> Option<ReplicaRef> {
    let Some(slot) = pool.map.get(id) else {
        return reference_degraded(pool, id);
    };
    match slot {
        Slot::Live(live) => Some(crate::replica::reference::reference(pool, &live)),
        slot @ Slot::Finalized(_) => {
            let slice = pool.slice(slot.volume()).ok()?;
            Some(reference_of(pool, &slice, id, &slot))
        }
    }
}

/// See [`Store::volume_times`](crate::Store::volume_times).
#[must_use]
pub fn volume_times(store: &StoreState) -> Vec<VolumeTimes> {
    let volumes = store.volumes();
    let times = volumes.iter().map(|volume| VolumeTimes {
        path: volume.root.clone(),
        metadata: volume.metrics.total(&NAMES),
        read: volume.metrics.total(&[IoOp::Read]),
        write: volume.metrics.total(&[IoOp::Write]),
        sync: volume.metrics.total(&[IoOp::Sync]),
        errors: volume.errors.total(),
    });
    times.collect()
}

/// See [`Store::avoid_volumes`](crate::Store::avoid_volumes).
pub fn avoid(store: &StoreState, paths: &[&Path]) {
    for volume in store.volumes() {
        let avoid = paths.contains(&volume.root.as_path());
        volume.avoid.store(avoid, Ordering::Relaxed);
    }
}

/// Adds degraded replicas to a full report, each under the storage that it was on.
fn append_reports(pool: &Pool, lists: &mut Vec<(StorageInfo, Vec<ReplicaReport>)>) {
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
fn append_storages(store: &StoreState, pool: &PoolId, reports: &mut Vec<StorageReport>) {
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
