//! What the RPC server and block recovery need of the node around them.

use std::net::IpAddr;
use std::time::Duration;

use futures_util::future::BoxFuture;
use hayloft_store::{StorageInfo, Store};
use hayloft_wire::block_token::BlockTokenIdentifier;
use hayloft_wire::ids::{ExtendedBlock, PoolId};
use hayloft_wire::proto::datanode::CommitBlockSynchronizationRequest;
use hayloft_wire::proto::hdfs::DatanodeId;

use crate::disk_balancer::DiskBalancer;
use crate::security::{BlockTokens, TokenRefused};
use hayloft_conf::{HostPort, SharedConfig};
use hayloft_rpc::RpcError;

/// The node, as seen from an administrator's or another node's call. Nothing here waits, except
/// where a future is given back.
pub trait Host: Send + Sync + 'static {
    /// The running configuration.
    fn config(&self) -> &SharedConfig;

    /// The address that connections to other nodes come from; `None` leaves it to the system.
    fn local_address(&self) -> Option<IpAddr>;

    /// The replicas of this node.
    fn store(&self) -> &Store;

    /// Version that this node registers with.
    fn software_version(&self) -> String;

    /// Time since the node started.
    fn uptime(&self) -> Duration;

    /// Whether a service towards the pool's NameNodes runs (registered or not).
    fn serves(&self, pool: &PoolId) -> bool;

    /// How this node is registered for the pool; `None` while it is not.
    fn registration(&self, pool: &PoolId) -> Option<DatanodeId>;

    /// The block tokens of this node; `None`: callers cannot prove that they hold one.
    fn block_tokens(&self) -> Option<BlockTokens> {
        None
    }

    /// Whether a caller may read the block, where block tokens are on. `proved`: the token that its
    /// connection was opened with.
    ///
    /// # Errors
    /// Why it may not.
    fn check_reader(
        &self,
        block: &ExtendedBlock,
        proved: Option<&BlockTokenIdentifier>,
    ) -> Result<(), TokenRefused>;

    /// A replica has reached this generation stamp and length (incremental report RECEIVED).
    fn received(&self, block: &ExtendedBlock, storage: &StorageInfo);

    /// Tells the pool's active NameNode how a block recovery ended.
    fn commit_block_synchronization<'a>(
        &'a self,
        pool: &'a PoolId,
        request: CommitBlockSynchronizationRequest,
    ) -> BoxFuture<'a, Result<(), RpcError>>;

    /// Starts and stops services so that they fit the NameNodes in the running configuration. An
    /// error says what is wrong with them.
    fn refresh_namenodes(&self) -> BoxFuture<'_, Result<(), String>>;

    /// The NameNodes that are served now, as configured.
    fn namenodes(&self) -> Vec<HostPort>;

    /// Makes all services, or the one towards one of [`namenodes`](Host::namenodes), report blocks
    /// now: what is pending of the incremental report, or a full one.
    fn trigger_block_report(&self, incremental: bool, namenode: Option<&HostPort>);

    /// Ends all writes by clients.
    fn evict_writers(&self);

    /// Bytes a second that the balancer may use now.
    fn balancer_bandwidth(&self) -> u64;

    /// What `hdfs diskbalancer` talks to.
    fn disk_balancer(&self) -> &DiskBalancer;

    /// Begins to stop the node; false when it is stopping already.
    fn shutdown(&self, for_upgrade: bool) -> bool;

    /// The running configuration has new values: services take over what they keep.
    fn config_changed(&self);
}
