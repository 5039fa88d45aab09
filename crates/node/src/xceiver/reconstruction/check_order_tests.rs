use bytes::Bytes;
use hayloft_coder::Codec;
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId};
use hayloft_wire::proto::hdfs::{
    BlockEcReconstructionInfo, DatanodeId, DatanodeInfo, DatanodeInfos, ErasureCodingPolicy,
    StorageTypes, StorageUuids,
};
use proptest::prelude::*;

use super::{MAX_LOCATIONS, Order, OrderError};

/// A group of RS-3-2 with cells of 1 MiB.
const MIB: u64 = 1 << 20;

fn nodes(count: usize) -> DatanodeInfos {
    let node = |number: usize| DatanodeInfo {
        id: DatanodeId {
            datanode_uuid: format!("node {number}"),
            ..DatanodeId::default()
        },
        ..DatanodeInfo::default()
    };
    DatanodeInfos {
        datanodes: (0..count).map(node).collect(),
    }
}

fn order(len: u64, live: &[u8], targets: usize, excluded: &[u8]) -> BlockEcReconstructionInfo {
    let pool = PoolId::new("BP-1-127.0.0.1-1").expect("valid");
    let block = ExtendedBlock::new(pool, Block::new(-1600, 1001, len));
    BlockEcReconstructionInfo {
        block: (&block).into(),
        source_dn_infos: nodes(live.len()),
        target_dn_infos: nodes(targets),
        target_storage_uuids: StorageUuids {
            storage_uuids: (0..targets).map(|number| format!("DS-{number}")).collect(),
        },
        target_storage_types: StorageTypes {
            storage_types: vec![2; targets],
        },
        live_block_indices: Bytes::copy_from_slice(live),
        ec_policy: ErasureCodingPolicy {
            id: 2,
            ..ErasureCodingPolicy::default()
        },
        exclude_reconstructed_indices: (!excluded.is_empty())
            .then(|| Bytes::copy_from_slice(excluded)),
    }
}

fn targets(order: BlockEcReconstructionInfo) -> Result<Vec<usize>, OrderError> {
    let order = Order::try_from(order)?;
    Ok(order.targets.iter().map(|target| target.index).collect())
}

#[test]
fn missing_blocks_go_to_the_targets_in_order() {
    let checked = Order::try_from(order(9 * MIB, &[4, 0, 2], 2, &[])).expect("possible");
    assert_eq!(checked.group.codec, Codec::ReedSolomon);
    let placed: Vec<_> = checked
        .targets
        .iter()
        .map(|t| (t.index, t.storage_type, t.storage_id.as_deref()))
        .collect();
    assert_eq!(placed, [(1, 2, Some("DS-0")), (3, 2, Some("DS-1"))]);
    assert_eq!(checked.connections(), 3);
}

#[test]
fn only_what_is_missing_and_wanted_gets_a_target() {
    assert_eq!(targets(order(9 * MIB, &[0, 1, 2], 2, &[3])), Ok(vec![4]));
    assert_eq!(targets(order(9 * MIB, &[0, 1, 2], 1, &[])), Ok(vec![3]));
    // Blocks 1 and 2 of a group of less than a cell have no data.
    assert_eq!(targets(order(100, &[3], 2, &[])), Ok(vec![0, 4]));
    // The same block at two nodes.
    assert_eq!(
        targets(order(9 * MIB, &[0, 0, 1, 2, 3], 1, &[])),
        Ok(vec![4])
    );
}

#[test]
fn impossible_orders_are_refused() {
    let refused = |order| targets(order).expect_err("impossible");
    let nothing = OrderError::NothingMissing;
    assert_eq!(refused(order(9 * MIB, &[0, 1, 2, 3, 4], 1, &[])), nothing);
    assert_eq!(refused(order(9 * MIB, &[0, 1, 2], 0, &[])), nothing);
    assert_eq!(refused(order(0, &[], 1, &[])), nothing);
    let few = OrderError::TooFew { left: 2, needed: 3 };
    assert_eq!(refused(order(9 * MIB, &[0, 1, 1], 2, &[])), few);
    let beyond = OrderError::Index { index: 5, width: 5 };
    assert_eq!(refused(order(9 * MIB, &[0, 1, 5], 2, &[])), beyond);
    assert_eq!(refused(order(9 * MIB, &[0, 1, 2], 2, &[5])), beyond);
    let mut uneven = order(9 * MIB, &[0, 1, 2], 2, &[]);
    uneven.source_dn_infos = nodes(4);
    assert!(matches!(
        refused(uneven),
        OrderError::Lists {
            what: "sources",
            ..
        }
    ));
    let mut uneven = order(9 * MIB, &[0, 1, 2], 2, &[]);
    uneven.target_storage_types.storage_types.pop();
    assert!(matches!(
        refused(uneven),
        OrderError::Lists {
            what: "targets",
            ..
        }
    ));
    let many = order(9 * MIB, &[0, 1, 2], MAX_LOCATIONS + 1, &[]);
    assert!(matches!(refused(many), OrderError::Lists { .. }));
    let mut unknown = order(9 * MIB, &[0, 1, 2], 2, &[]);
    unknown.ec_policy.id = 99;
    assert_eq!(refused(unknown), OrderError::Policy(99));
    let mut whole = order(9 * MIB, &[0, 1, 2], 2, &[]);
    whole.block.block_id = 1600;
    assert_eq!(refused(whole), OrderError::NoGroup(1600));
    let mut internal = order(9 * MIB, &[0, 1, 2], 2, &[]);
    internal.block.block_id = (-1599_i64).cast_unsigned();
    assert_eq!(refused(internal), OrderError::NoGroup(-1599));
}

proptest! {
    /// An order that is accepted can be carried out, whatever it says.
    #[test]
    fn accepted_orders_make_sense(
        len in 0..20 * MIB,
        live in prop::collection::vec(0_u8..6, 0..8),
        count in 0_usize..4,
        excluded in prop::collection::vec(0_u8..6, 0..3),
    ) {
        if let Ok(order) = Order::try_from(order(len, &live, count, &excluded)) {
            prop_assert!(order.group.left() >= order.group.sources_needed());
            prop_assert!(order.connections() >= 1);
            let mut before = None;
            for target in &order.targets {
                prop_assert!(before < Some(target.index));
                before = Some(target.index);
                let index = u8::try_from(target.index).expect("few");
                prop_assert!(!live.contains(&index) && !excluded.contains(&index));
                prop_assert!(order.group.internal_len(target.index) > 0);
            }
        }
    }
}
