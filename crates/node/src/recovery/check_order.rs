//! The NameNode's order to recover a block, checked.

use hayloft_wire::ids::{Block, ExtendedBlock, IdError};
use hayloft_wire::proto::hdfs::{DatanodeId, ErasureCodingPolicy};
use hayloft_wire::proto::hdfs_server::RecoveringBlock;

use hayloft_client::stripe::Stripe;

/// More locations than a block can have in any sane cluster (Hadoop's `dfs.replication.max` is
/// 512).
const MAX_LOCATIONS: usize = 512;

/// A checked order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Order {
    /// A contiguous block.
    Whole(Whole),
    /// A striped group.
    Group(Group),
}

/// Recovery of a contiguous block.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Whole {
    pub(super) block: ExtendedBlock,
    pub(super) recovery_id: u64,
    pub(super) locations: Vec<DatanodeId>,
    /// The block that a truncate makes of it: same or another id, and the length asked for.
    pub(super) truncate: Option<Block>,
}

/// Recovery of a striped group.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    pub(super) block: ExtendedBlock,
    pub(super) recovery_id: u64,
    /// Nodes with the index in the group of the block that each should hold.
    pub(super) locations: Vec<(DatanodeId, u8)>,
    pub(super) stripe: Stripe,
}

/// An order that cannot be carried out as it is.
#[derive(Debug, thiserror::Error)]
pub(super) enum OrderError {
    /// A block in it is impossible.
    #[error(transparent)]
    Id(#[from] IdError),
    /// Too many locations.
    #[error("it names {0} locations; at most {MAX_LOCATIONS} are accepted")]
    Locations(usize),
    /// Indices and locations of a group do not fit together.
    #[error("it names {locations} locations and {indices} block indices of a group of {width}")]
    Indices {
        locations: usize,
        indices: usize,
        width: usize,
    },
    /// The erasure coding policy is not known and not described.
    #[error("its erasure coding policy {0} is unknown and comes without a schema")]
    Policy(u32),
}

impl Order {
    pub(super) fn block(&self) -> &ExtendedBlock {
        match self {
            Self::Whole(order) => &order.block,
            Self::Group(order) => &order.block,
        }
    }

    pub(super) fn recovery_id(&self) -> u64 {
        match self {
            Self::Whole(order) => order.recovery_id,
            Self::Group(order) => order.recovery_id,
        }
    }
}

impl TryFrom<RecoveringBlock> for Order {
    type Error = OrderError;

    fn try_from(order: RecoveringBlock) -> Result<Self, OrderError> {
        let block = ExtendedBlock::try_from(&order.block.b)?;
        let recovery_id = order.new_gen_stamp;
        let locations: Vec<_> = order.block.locs.into_iter().map(|info| info.id).collect();
        if locations.len() > MAX_LOCATIONS {
            return Err(OrderError::Locations(locations.len()));
        }
        if let Some(policy) = &order.ec_policy {
            let indices = order.block_indices.unwrap_or_default();
            return group(block, recovery_id, locations, &indices, policy).map(Self::Group);
        }
        let truncate = order
            .truncate_block
            .as_ref()
            .map(Block::try_from)
            .transpose()?;
        Ok(Self::Whole(Whole {
            block,
            recovery_id,
            locations,
            truncate,
        }))
    }
}

fn group(
    block: ExtendedBlock,
    recovery_id: u64,
    locations: Vec<DatanodeId>,
    indices: &[u8],
    policy: &ErasureCodingPolicy,
) -> Result<Group, OrderError> {
    let stripe = Stripe::of(policy).ok_or(OrderError::Policy(policy.id))?;
    let width = stripe.width();
    if indices.len() != locations.len() || indices.iter().any(|index| usize::from(*index) >= width)
    {
        return Err(OrderError::Indices {
            locations: locations.len(),
            indices: indices.len(),
            width,
        });
    }
    Ok(Group {
        block,
        recovery_id,
        locations: locations.into_iter().zip(indices.iter().copied()).collect(),
        stripe,
    })
}
