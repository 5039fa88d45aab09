//! What the data transfer service tells and asks the NameNode side.

use std::time::Duration;

use futures_util::future::BoxFuture;
use hayloft_store::StorageInfo;
use hayloft_wire::ids::{ExtendedBlock, PoolId};
use hayloft_wire::proto::hdfs::{DatanodeId, DatanodeInfo};

use crate::namenode::NameNodes;
use crate::security::BlockTokens;

/// The NameNode side, as far as data transfer needs it. Nothing here waits for a NameNode, except
/// [`wait_ready`](NameNodeLink::wait_ready) and [`wait_told`](NameNodeLink::wait_told).
pub trait NameNodeLink: Send + Sync + 'static {
    /// A block is being received (incremental report RECEIVING).
    fn receiving(&self, block: &ExtendedBlock, storage: &StorageInfo);

    /// A block was received in full (RECEIVED). `delete_hint`: uuid of the node whose replica may
    /// go.
    fn received(&self, block: &ExtendedBlock, storage: &StorageInfo, delete_hint: Option<&str>);

    /// Waits until the active NameNode has taken the news of the block, at most `limit`.
    fn wait_told<'a>(&'a self, block: &'a ExtendedBlock, limit: Duration) -> BoxFuture<'a, ()>;

    /// A replica of this node is corrupt.
    fn bad_block(&self, block: &ExtendedBlock, storage: &StorageInfo);

    /// A replica of another node is corrupt.
    fn remote_bad_block(&self, source: &DatanodeInfo, block: &ExtendedBlock);

    /// Waits until the pool is registered, at most `limit`; false when it is not.
    fn wait_ready<'a>(&'a self, pool: &'a PoolId, limit: Duration) -> BoxFuture<'a, bool>;

    /// How this node is registered with the pool's NameNode.
    fn identity(&self, pool: &PoolId) -> Option<DatanodeId>;

    /// The block tokens of this node.
    fn block_tokens(&self) -> &BlockTokens;

    /// The NameNode calls this node slow.
    fn is_slow(&self, pool: &PoolId) -> bool;
}

impl NameNodeLink for NameNodes {
    fn receiving(&self, block: &ExtendedBlock, storage: &StorageInfo) {
        self.notify_receiving(block, storage);
    }

    fn received(&self, block: &ExtendedBlock, storage: &StorageInfo, delete_hint: Option<&str>) {
        self.notify_finalized(block, storage, delete_hint);
    }

    fn wait_told<'a>(&'a self, block: &'a ExtendedBlock, limit: Duration) -> BoxFuture<'a, ()> {
        Box::pin(self.wait_told(block, limit))
    }

    fn bad_block(&self, block: &ExtendedBlock, storage: &StorageInfo) {
        self.report_bad_block(block, storage);
    }

    fn remote_bad_block(&self, source: &DatanodeInfo, block: &ExtendedBlock) {
        self.report_remote_bad_block(source, block);
    }

    fn wait_ready<'a>(&'a self, pool: &'a PoolId, limit: Duration) -> BoxFuture<'a, bool> {
        Box::pin(self.wait_ready(pool, limit))
    }

    fn identity(&self, pool: &PoolId) -> Option<DatanodeId> {
        self.datanode_id(pool)
    }

    fn block_tokens(&self) -> &BlockTokens {
        self.block_tokens()
    }

    fn is_slow(&self, pool: &PoolId) -> bool {
        self.is_slow_node(pool)
    }
}
