//! What the NameNode services need of the store.

use futures_util::future::BoxFuture;
use hayloft_store::{
    CacheUse, FailureSummary, PoolSpec, ReplicaRef, ReplicaReport, RollingUpgradeState,
    StartOption, StorageInfo, StorageReport, Store, StoreError,
};
use hayloft_wire::ids::{Block, PoolId};

/// The replicas of the node, as NameNodes hear of them and order them about. The store is the one
/// real implementation; what is not documented here is as [`Store`] documents it.
pub(super) trait Inventory: Send + Sync + 'static {
    fn storage_reports(&self, pool: &PoolId) -> Vec<StorageReport>;
    fn block_report(&self, pool: &PoolId) -> Vec<(StorageInfo, Vec<ReplicaReport>)>;
    fn failure_summary(&self) -> FailureSummary;
    fn replica(&self, pool: &PoolId, id: i64) -> Option<ReplicaRef>;
    fn add_pool(&self, spec: PoolSpec, start: StartOption) -> Done<'_>;
    fn forget_pool<'a>(&'a self, pool: &'a PoolId) -> BoxFuture<'a, ()>;
    fn invalidate<'a>(&'a self, pool: &'a PoolId, blocks: &'a [Block]) -> Done<'a>;
    fn cache(&self, pool: &PoolId, ids: &[i64]);
    fn uncache(&self, pool: &PoolId, ids: &[i64]);
    fn cached_blocks(&self, pool: &PoolId) -> Vec<i64>;
    fn cache_use(&self) -> CacheUse;
    fn rolling_upgrade_is(&self, pool: &PoolId, state: RollingUpgradeState) -> bool;
    fn set_rolling_upgrade<'a>(&'a self, pool: &'a PoolId, state: RollingUpgradeState) -> Done<'a>;
    fn finalize_upgrade<'a>(&'a self, pool: &'a PoolId) -> Done<'a>;
}

/// Work of the store that may fail.
pub(super) type Done<'a> = BoxFuture<'a, Result<(), StoreError>>;

impl Inventory for Store {
    fn storage_reports(&self, pool: &PoolId) -> Vec<StorageReport> {
        Store::storage_reports(self, pool)
    }

    fn block_report(&self, pool: &PoolId) -> Vec<(StorageInfo, Vec<ReplicaReport>)> {
        Store::block_report(self, pool)
    }

    fn failure_summary(&self) -> FailureSummary {
        Store::failure_summary(self)
    }

    fn replica(&self, pool: &PoolId, id: i64) -> Option<ReplicaRef> {
        Store::replica(self, pool, id)
    }

    fn add_pool(&self, spec: PoolSpec, start: StartOption) -> Done<'_> {
        Box::pin(Store::add_pool(self, spec, start))
    }

    fn forget_pool<'a>(&'a self, pool: &'a PoolId) -> BoxFuture<'a, ()> {
        Box::pin(Store::forget_pool(self, pool))
    }

    fn invalidate<'a>(&'a self, pool: &'a PoolId, blocks: &'a [Block]) -> Done<'a> {
        Box::pin(Store::invalidate(self, pool, blocks))
    }

    fn cache(&self, pool: &PoolId, ids: &[i64]) {
        Store::cache(self, pool, ids);
    }

    fn uncache(&self, pool: &PoolId, ids: &[i64]) {
        Store::uncache(self, pool, ids);
    }

    fn cached_blocks(&self, pool: &PoolId) -> Vec<i64> {
        Store::cached_blocks(self, pool)
    }

    fn cache_use(&self) -> CacheUse {
        Store::cache_use(self)
    }

    fn rolling_upgrade_is(&self, pool: &PoolId, state: RollingUpgradeState) -> bool {
        Store::rolling_upgrade_is(self, pool, state)
    }

    fn set_rolling_upgrade<'a>(&'a self, pool: &'a PoolId, state: RollingUpgradeState) -> Done<'a> {
        Box::pin(Store::set_rolling_upgrade(self, pool, state))
    }

    fn finalize_upgrade<'a>(&'a self, pool: &'a PoolId) -> Done<'a> {
        Box::pin(Store::finalize_upgrade(self, pool))
    }
}
