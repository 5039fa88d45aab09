//! Which name service of a node has which block pool. Two that had one would mix its keys of block
//! tokens, and the end of one would take the pool from the other.

use std::collections::HashMap;
use std::sync::Arc;

use hayloft_wire::ids::PoolId;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The block pools that the name services of one node have; clones are the same.
#[derive(Clone, Default)]
pub(super) struct HeldPools(Arc<watch::Sender<HashMap<PoolId, Holder>>>);

#[derive(Clone)]
struct Holder {
    service: String,
    /// Its end has begun.
    stop: CancellationToken,
}

/// A block pool that a name service has until this is dropped.
pub(super) struct HeldPool {
    pool: PoolId,
    all: HeldPools,
}

impl Drop for HeldPool {
    fn drop(&mut self) {
        self.all.0.send_modify(|held| {
            held.remove(&self.pool);
        });
    }
}

impl HeldPools {
    /// Gives the pool to `service`, which ends with `stop`. A holder that is ending is waited for:
    /// the name service may have another name since `refreshNamenodes`. `Err`: which one has it.
    pub(super) async fn hold(
        &self,
        pool: &PoolId,
        service: &str,
        stop: &CancellationToken,
    ) -> Result<HeldPool, String> {
        let mut changes = self.0.subscribe();
        while let Some(other) = self.take(pool, service, stop) {
            if !other.stop.is_cancelled() {
                return Err(format!(
                    "the name service {} of this node serves the block pool {pool}: two name \
                     services in dfs.nameservices name NameNodes of one cluster; take one out, or \
                     list in dfs.internal.nameservices those that nodes serve",
                    other.service
                ));
            }
            tracing::info!(
                %pool,
                nameservice = service,
                "waits until the name service {} has left the block pool",
                other.service
            );
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
        }
        Ok(HeldPool {
            pool: pool.clone(),
            all: self.clone(),
        })
    }

    /// Puts the service down as the holder, unless there is one, which is given back.
    fn take(&self, pool: &PoolId, service: &str, stop: &CancellationToken) -> Option<Holder> {
        let mut known = None;
        self.0.send_if_modified(|held| {
            known = held.get(pool).cloned();
            if known.is_none() {
                let (service, stop) = (service.to_owned(), stop.clone());
                held.insert(pool.clone(), Holder { service, stop });
            }
            // Only pools that are free again are news.
            false
        });
        known
    }
}
