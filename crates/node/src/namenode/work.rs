//! What the NameNode services ask of the rest of the node.

use futures_util::future::BoxFuture;
use hayloft_wire::ids::{ExtendedBlock, PoolId};
use hayloft_wire::proto::hdfs::{DatanodeInfo, RecoveringBlock};

use crate::outliers::OutlierReports;

/// Copy a replica of this node to others.
#[derive(Clone, Debug)]
pub struct TransferOrder {
    /// The block to copy.
    pub block: ExtendedBlock,
    /// The nodes, in pipeline order; at least one.
    pub targets: Vec<DatanodeInfo>,
    /// Storage type at each target, as on the wire; as many as targets, or none.
    pub storage_types: Vec<i32>,
    /// Storage at each target; as many as targets, or none.
    pub storage_ids: Vec<String>,
}

/// What the node is busy with; the NameNode places blocks by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Blocks being sent to other nodes on the NameNode's order.
    pub xmits: u32,
    /// Open connections of the data transfer port.
    pub xceivers: u32,
}

/// The rest of the node, as far as NameNodes order it about. Futures run in tasks of their own;
/// dropping one abandons the work.
pub trait NodeWork: Send + Sync + 'static {
    /// Copies a replica. `Err`: why not, one line.
    fn transfer(&self, order: TransferOrder) -> BoxFuture<'static, Result<(), String>>;

    /// Recovers blocks as the primary node; errors are logged where they happen.
    fn recover(&self, pool: PoolId, blocks: Vec<RecoveringBlock>) -> BoxFuture<'static, ()>;

    /// Limits what balancing may use, bytes a second.
    fn set_balancer_bandwidth(&self, bytes_per_second: u64);

    /// The load now.
    fn load(&self) -> Load;

    /// Peers and disks that are far slower than the others; asked for once an interval.
    fn outliers(&self) -> OutlierReports;
}
