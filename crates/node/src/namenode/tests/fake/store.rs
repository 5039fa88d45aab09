//! A store that remembers what it was told.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hayloft_store::{
    CacheUse, FailureSummary, PoolSpec, ReplicaRef, ReplicaReport, RollingUpgradeState,
    StartOption, StorageInfo, StorageReport, StoreError, StoreErrorKind,
};
use hayloft_wire::ids::{Block, PoolId, ReplicaState, StorageType};

use crate::namenode::inventory::{Done, Inventory};

/// One storage with one finalized replica (block 1), or a second one with block 2.
#[derive(Default)]
pub struct FakeStore {
    pub second_storage: AtomicBool,
    pub finalized: Mutex<Vec<PoolId>>,
    pub invalidated: Mutex<Vec<i64>>,
    pub forgotten: Mutex<Vec<PoolId>>,
    /// Pools that were added and not forgotten since.
    pub open: Mutex<Vec<PoolId>>,
    /// Deletes from here on are of a disk that gives no answer.
    pub hangs: AtomicBool,
    /// What it was told.
    pub rolling_upgrades: Mutex<Vec<RollingUpgradeState>>,
    pub rolling_upgrade: Mutex<RollingUpgradeState>,
    /// How it stood at each order to delete.
    pub deleted_in: Mutex<Vec<RollingUpgradeState>>,
    /// Blocks that are cached: at once when that is ordered.
    pub cached: Mutex<Vec<i64>>,
}

pub fn storage() -> StorageInfo {
    storage_named("DS-1")
}

fn storage_named(id: &str) -> StorageInfo {
    StorageInfo {
        id: id.into(),
        storage_type: StorageType::Ssd,
    }
}

impl FakeStore {
    fn storages(&self) -> Vec<StorageInfo> {
        let mut storages = vec![storage()];
        if self.second_storage.load(Ordering::Relaxed) {
            storages.push(storage_named("DS-2"));
        }
        storages
    }
}

impl Inventory for FakeStore {
    fn storage_reports(&self, _: &PoolId) -> Vec<StorageReport> {
        let report = |storage| StorageReport {
            storage,
            failed: false,
            capacity: 100,
            dfs_used: 10,
            remaining: 90,
            block_pool_used: 10,
            non_dfs_used: 0,
            mount: String::new(),
        };
        self.storages().into_iter().map(report).collect()
    }

    fn block_report(&self, _: &PoolId) -> Vec<(StorageInfo, Vec<ReplicaReport>)> {
        let replica = |id| ReplicaReport {
            block: Block::new(id, 1001, 5),
            state: ReplicaState::Finalized,
        };
        let storages = self.storages().into_iter();
        storages
            .zip(1..)
            .map(|(storage, id)| (storage, vec![replica(id)]))
            .collect()
    }

    fn failure_summary(&self) -> FailureSummary {
        FailureSummary::default()
    }

    fn replica(&self, pool: &PoolId, id: i64) -> Option<ReplicaRef> {
        (id == 1).then(|| ReplicaRef {
            block: hayloft_wire::ids::ExtendedBlock::new(pool.clone(), Block::new(1, 1001, 5)),
            state: ReplicaState::Finalized,
            visible_len: Some(5),
            bytes_on_disk: 5,
            storage: storage(),
            pinned: false,
        })
    }

    fn add_pool(&self, spec: PoolSpec, _: StartOption) -> Done<'_> {
        Box::pin(async move {
            if spec.cluster_id == "CID-1" {
                self.open.lock().expect("no panic").push(spec.pool);
                return Ok(());
            }
            Err(StoreError::new(
                StoreErrorKind::Incompatible,
                "another cluster",
            ))
        })
    }

    fn forget_pool<'a>(&'a self, pool: &'a PoolId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // As long as writers may take to stop.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let mut open = self.open.lock().expect("no panic");
            open.retain(|other| other != pool);
            self.forgotten.lock().expect("no panic").push(pool.clone());
        })
    }

    fn invalidate<'a>(&'a self, _: &'a PoolId, blocks: &'a [Block]) -> Done<'a> {
        let ids = blocks.iter().map(|block| block.id);
        let state = *self.rolling_upgrade.lock().expect("no panic");
        self.deleted_in.lock().expect("no panic").push(state);
        self.invalidated.lock().expect("no panic").extend(ids);
        if self.hangs.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        Box::pin(async { Ok(()) })
    }

    fn cache(&self, _: &PoolId, ids: &[i64]) {
        self.cached.lock().expect("no panic").extend(ids);
    }

    fn uncache(&self, _: &PoolId, ids: &[i64]) {
        let mut cached = self.cached.lock().expect("no panic");
        cached.retain(|id| !ids.contains(id));
    }

    fn cached_blocks(&self, _: &PoolId) -> Vec<i64> {
        self.cached.lock().expect("no panic").clone()
    }

    fn cache_use(&self) -> CacheUse {
        let blocks = self.cached.lock().expect("no panic").len() as u64;
        CacheUse {
            capacity: 1 << 20,
            used: blocks << 12,
            blocks,
            ..CacheUse::default()
        }
    }

    fn rolling_upgrade_is(&self, _: &PoolId, state: RollingUpgradeState) -> bool {
        *self.rolling_upgrade.lock().expect("no panic") == state
    }

    fn set_rolling_upgrade<'a>(&'a self, _: &'a PoolId, state: RollingUpgradeState) -> Done<'a> {
        self.rolling_upgrades.lock().expect("no panic").push(state);
        *self.rolling_upgrade.lock().expect("no panic") = state;
        Box::pin(async { Ok(()) })
    }

    fn finalize_upgrade<'a>(&'a self, pool: &'a PoolId) -> Done<'a> {
        self.finalized.lock().expect("no panic").push(pool.clone());
        Box::pin(async { Ok(()) })
    }
}
