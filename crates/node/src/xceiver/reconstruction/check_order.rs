//! The NameNode's order to reconstruct blocks of a striped group, checked.

use hayloft_wire::block_token::AccessMode;
use hayloft_wire::ids::{ExtendedBlock, IdError, StorageType};
use hayloft_wire::proto::hdfs::{BlockEcReconstructionInfo, DatanodeInfo};

use super::what_is_left::{InternalReplica, StripedGroup};
use crate::security::Access;
use hayloft_client::stripe::{self, Stripe};

/// More locations than a group can have in any sane cluster (Hadoop's `dfs.replication.max` is
/// 512).
const MAX_LOCATIONS: usize = 512;

/// Where a reconstructed block goes.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Its index in the group.
    pub(super) index: usize,
    pub(super) node: DatanodeInfo,
    /// As on the wire.
    pub(super) storage_type: i32,
    pub(super) storage_id: Option<String>,
}

impl Target {
    /// What a token for the target has to permit.
    pub(super) fn access(&self) -> Access {
        Access {
            mode: AccessMode::Write,
            storage_types: vec![StorageType::from_wire(Some(self.storage_type))],
            storage_ids: self.storage_id.clone().into_iter().collect(),
        }
    }
}

/// A checked order.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) group: StripedGroup,
    /// At least one, each with an index of its own.
    pub(super) targets: Vec<Target>,
}

/// An order that cannot be carried out as it is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OrderError {
    /// The block is impossible.
    #[error(transparent)]
    Id(#[from] IdError),
    /// It is no group.
    #[error("block {0} is no striped group")]
    NoGroup(i64),
    /// The policy is unknown.
    #[error("erasure coding policy {0} is unknown here, or comes without its schema")]
    Policy(u32),
    /// Lists that do not belong together.
    #[error("the order names {nodes} {what} with {others} {of}")]
    Lists {
        what: &'static str,
        nodes: usize,
        of: &'static str,
        others: usize,
    },
    /// An index beyond the group.
    #[error("internal block {index} of a group of {width}")]
    Index { index: u8, width: usize },
    /// No target has a block to receive.
    #[error("nothing is missing that a target could receive")]
    NothingMissing,
    /// Fewer blocks are left than the code needs.
    #[error("{left} internal blocks are left, and the code needs {needed}")]
    TooFew { left: usize, needed: usize },
}

impl Order {
    /// Connections at a time, of sources or of targets: what Apache's node counts as load.
    pub(super) fn connections(&self) -> usize {
        self.group.sources_needed().max(self.targets.len())
    }
}

impl TryFrom<BlockEcReconstructionInfo> for Order {
    type Error = OrderError;

    fn try_from(order: BlockEcReconstructionInfo) -> Result<Self, OrderError> {
        let block = ExtendedBlock::try_from(&order.block)?;
        if !block.block.is_striped() || block.block.index_in_group() != 0 {
            return Err(OrderError::NoGroup(block.block.id));
        }
        let unknown = OrderError::Policy(order.ec_policy.id);
        let shape = Stripe::of(&order.ec_policy).zip(stripe::codec(&order.ec_policy));
        let (stripe, codec) = shape.ok_or(unknown)?;
        let sources = order.source_dn_infos.datanodes;
        let indices = &order.live_block_indices;
        same("sources", sources.len(), "block indices", indices.len())?;
        let excluded = order.exclude_reconstructed_indices.unwrap_or_default();
        for &index in indices.iter().chain(&excluded) {
            if usize::from(index) >= stripe.width() {
                let width = stripe.width();
                return Err(OrderError::Index { index, width });
            }
        }
        let numbered = sources.into_iter().zip(indices);
        let replicas = numbered.map(|(node, &index)| InternalReplica::new(index.into(), node));
        let group = StripedGroup {
            block,
            stripe,
            codec,
            replicas: replicas.collect(),
        };
        let (left, needed) = (group.left(), group.sources_needed());
        if left < needed {
            return Err(OrderError::TooFew { left, needed });
        }
        let places = Places {
            nodes: order.target_dn_infos.datanodes,
            types: order.target_storage_types.storage_types,
            ids: order.target_storage_uuids.storage_uuids,
        };
        let targets = targets(&group, places, &excluded)?;
        Ok(Self { group, targets })
    }
}

/// Targets as the NameNode lists them.
struct Places {
    nodes: Vec<DatanodeInfo>,
    types: Vec<i32>,
    ids: Vec<String>,
}

/// Gives the missing blocks to the targets, in the order of their indices, as Apache's node does.
/// A block that is `excluded` is on its way already. Targets beyond the missing blocks get none:
/// the NameNode may have counted before one of the blocks was reported.
fn targets(
    group: &StripedGroup,
    places: Places,
    excluded: &[u8],
) -> Result<Vec<Target>, OrderError> {
    let Places { nodes, types, ids } = places;
    let count = nodes.len();
    same("targets", count, "storage types", types.len())?;
    same("targets", count, "storage ids", ids.len())?;
    let missing = (0..group.stripe.width()).filter(|&index| {
        let live = group.has(index);
        let excluded = excluded.iter().any(|&other| usize::from(other) == index);
        !live && !excluded && !group.is_empty(index)
    });
    let places = nodes.into_iter().zip(types).zip(ids);
    let targets: Vec<Target> = missing
        .zip(places)
        .map(|(index, ((node, storage_type), id))| Target {
            index,
            node,
            storage_type: StorageType::from_wire(Some(storage_type)).into(),
            storage_id: (!id.is_empty()).then_some(id),
        })
        .collect();
    if targets.is_empty() {
        return Err(OrderError::NothingMissing);
    }
    Ok(targets)
}

/// Two lists belong together, and are not too long.
fn same(
    what: &'static str,
    nodes: usize,
    of: &'static str,
    others: usize,
) -> Result<(), OrderError> {
    if nodes == others && nodes <= MAX_LOCATIONS {
        return Ok(());
    }
    Err(OrderError::Lists {
        what,
        nodes,
        of,
        others,
    })
}

#[cfg(test)]
#[path = "check_order_tests.rs"]
mod tests;
