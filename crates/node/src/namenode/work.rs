//! What the NameNode services ask of the rest of the node.

use futures_util::future::BoxFuture;
use hayloft_wire::block_token::AccessMode;
use hayloft_wire::ids::{ExtendedBlock, PoolId, StorageType};
use hayloft_wire::proto::hdfs::{BlockEcReconstructionInfo, DatanodeInfo};
use hayloft_wire::proto::hdfs_server::RecoveringBlock;

use crate::outliers::OutlierReports;
use crate::security::Access;

/// Where a copy goes: a chain of nodes with their storages, in order.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    /// The nodes; the first one passes the data on to the others.
    pub nodes: Vec<DatanodeInfo>,
    /// Storage type for each node, as on the wire; DISK where missing.
    pub types: Vec<i32>,
    /// Storage id for each node; any where missing.
    pub storage_ids: Vec<String>,
}

impl Targets {
    /// What a token for the copy has to permit: to write to each of these storages.
    #[must_use]
    pub fn access(&self) -> Access {
        let type_of = |at: usize| StorageType::from_wire(self.types.get(at).copied());
        let types = (0..self.nodes.len()).map(type_of);
        Access {
            mode: AccessMode::Write,
            storage_types: types.collect(),
            storage_ids: self.storage_ids.clone(),
        }
    }
}

/// What the node is busy with; the NameNode places blocks by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeLoad {
    /// Blocks being sent to other nodes on the NameNode's order, and what reconstruction counts as.
    pub xmits: u32,
    /// Open connections of the data transfer port.
    pub xceivers: u32,
}

/// The rest of the node, as far as NameNodes order it about. Futures run in tasks of their own;
/// dropping one abandons the work.
pub trait NodeWork: Send + Sync + 'static {
    /// Copies a replica of this node to others, at least one. `Err`: why not, one line.
    fn transfer(
        &self,
        block: ExtendedBlock,
        targets: Targets,
    ) -> BoxFuture<'static, Result<(), String>>;

    /// Recovers blocks as the primary node; errors are logged where they happen.
    fn recover(&self, pool: PoolId, blocks: Vec<RecoveringBlock>) -> BoxFuture<'static, ()>;

    /// Makes up lost blocks of a striped group from those that are left. The load counts it from
    /// this call on. `Err`: why not, one line.
    fn reconstruct(
        &self,
        pool: PoolId,
        order: BlockEcReconstructionInfo,
    ) -> BoxFuture<'static, Result<(), String>>;

    /// Limits what balancing may use, bytes a second.
    fn set_balancer_bandwidth(&self, bytes_per_second: u64);

    /// The load now.
    fn load(&self) -> NodeLoad;

    /// Peers and disks that are far slower than the others; asked for once an interval.
    fn outliers(&self) -> OutlierReports;
}
