//! The shape of striped block groups, and where their bytes lie.
//!
//! A group of an erasure-coded file has internal blocks: data units, then parity units. Cells of
//! the file go to the data units in turns. Parity units are as long as data unit 0.

use hayloft_coder::Codec;
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::proto::hdfs::ErasureCodingPolicy;

/// Internal blocks of a group, at most: their index takes four bits of the block id.
pub const WIDTH_MAX: usize = 16;

/// Bytes of a cell of the policies that Hadoop ships.
const CELL: u32 = 1 << 20;

/// Shape of a striped group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// Data units, at least one.
    pub data: usize,
    /// Parity units; with the data units at most [`WIDTH_MAX`].
    pub parity: usize,
    /// Bytes of a cell, at least one.
    pub cell: u64,
}

impl Stripe {
    /// What a policy says itself, else what Hadoop's own policies are by id: those travel as their
    /// id alone. `None` for a policy that is neither, and for an impossible one.
    #[must_use]
    pub fn of(policy: &ErasureCodingPolicy) -> Option<Self> {
        let shipped = shipped(policy.id).map(|(_, data, parity)| (data, parity));
        let schema = policy.schema.as_ref();
        let described = schema.map(|schema| (schema.data_units, schema.parity_units));
        let (data, parity) = described.or(shipped)?;
        let cell = policy.cell_size.or(shipped.map(|_| CELL))?;
        let (data, parity) = (usize::try_from(data).ok()?, usize::try_from(parity).ok()?);
        let fits = data
            .checked_add(parity)
            .is_some_and(|width| width <= WIDTH_MAX);
        (data > 0 && cell > 0 && fits).then_some(Self {
            data,
            parity,
            cell: u64::from(cell),
        })
    }

    /// Internal blocks of a group.
    #[must_use]
    pub fn width(self) -> usize {
        self.data + self.parity
    }

    /// Bytes of internal block `index` in a group of `group_len` data bytes.
    #[must_use]
    pub fn internal_len(self, group_len: u64, index: usize) -> u64 {
        let before = match index {
            parity if parity >= self.data => 0,
            data => data as u64 * self.cell,
        };
        // At most 16 cells of 4 GiB each.
        let stripe = self.cell * self.data as u64;
        let in_last = group_len % stripe;
        group_len / stripe * self.cell + in_last.saturating_sub(before).min(self.cell)
    }

    /// Internal block `index` of `group`, with its length.
    #[must_use]
    pub fn internal_block(self, group: &ExtendedBlock, index: usize) -> ExtendedBlock {
        let mut block = group.clone();
        block.block.id |= i64::try_from(index).unwrap_or(0);
        block.block.num_bytes = self.internal_len(group.block.num_bytes, index);
        block
    }
}

/// Finds the code of a policy: by the name that it gives, else by its id. `None` for a code that
/// is not known here.
#[must_use]
pub fn codec(policy: &ErasureCodingPolicy) -> Option<Codec> {
    match &policy.schema {
        Some(schema) => Codec::by_name(&schema.codec_name),
        None => shipped(policy.id).map(|(codec, _, _)| codec),
    }
}

/// Code, data units and parity units of the policies that Hadoop ships.
fn shipped(id: u32) -> Option<(Codec, u32, u32)> {
    Some(match id {
        1 => (Codec::ReedSolomon, 6, 3),
        2 => (Codec::ReedSolomon, 3, 2),
        3 => (Codec::ReedSolomonLegacy, 6, 3),
        4 => (Codec::Xor, 2, 1),
        5 => (Codec::ReedSolomon, 10, 4),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use hayloft_wire::ids::{Block, PoolId};
    use hayloft_wire::proto::hdfs::EcSchema;
    use proptest::prelude::*;

    use super::*;

    fn policy(id: u32, schema: Option<(&str, u32, u32)>, cell: Option<u32>) -> ErasureCodingPolicy {
        ErasureCodingPolicy {
            id,
            schema: schema.map(|(codec, data_units, parity_units)| EcSchema {
                codec_name: codec.to_owned(),
                data_units,
                parity_units,
                ..EcSchema::default()
            }),
            cell_size: cell,
            ..ErasureCodingPolicy::default()
        }
    }

    fn shape(data: usize, parity: usize, cell: u64) -> Stripe {
        Stripe { data, parity, cell }
    }

    #[test]
    fn shipped_policies_are_known_by_id() {
        let of = |id| {
            let policy = policy(id, None, None);
            Stripe::of(&policy).zip(codec(&policy))
        };
        let mib = 1 << 20;
        assert_eq!(of(1), Some((shape(6, 3, mib), Codec::ReedSolomon)));
        assert_eq!(of(2), Some((shape(3, 2, mib), Codec::ReedSolomon)));
        assert_eq!(of(3), Some((shape(6, 3, mib), Codec::ReedSolomonLegacy)));
        assert_eq!(of(4), Some((shape(2, 1, mib), Codec::Xor)));
        assert_eq!(of(5), Some((shape(10, 4, mib), Codec::ReedSolomon)));
        assert_eq!(of(0), None);
        assert_eq!(of(65), None);
    }

    #[test]
    fn own_policies_describe_themselves_within_limits() {
        let own = policy(65, Some(("RS", 4, 2)), Some(4096));
        assert_eq!(Stripe::of(&own), Some(shape(4, 2, 4096)));
        assert_eq!(codec(&own), Some(Codec::ReedSolomon));
        assert_eq!(codec(&policy(65, Some(("clay", 4, 2)), Some(4096))), None);
        for (data, parity, cell) in [
            (0, 2, Some(4096)),
            (4, 2, Some(0)),
            (4, 2, None),
            (12, 5, Some(4096)),
            (u32::MAX, u32::MAX, Some(4096)),
        ] {
            let refused = policy(65, Some(("rs", data, parity)), cell);
            assert_eq!(Stripe::of(&refused), None, "{data}-{parity} {cell:?}");
        }
    }

    #[test]
    fn lengths_of_internal_blocks() {
        let stripe = shape(6, 3, 1024);
        assert_eq!(stripe.internal_len(1, 0), 1);
        assert_eq!(stripe.internal_len(1, 1), 0);
        assert_eq!(stripe.internal_len(1, 6), 1);
        assert_eq!(stripe.internal_len(6 * 1024 + 1500, 0), 2048);
        assert_eq!(stripe.internal_len(6 * 1024 + 1500, 1), 1024 + 476);
        assert_eq!(stripe.internal_len(6 * 1024 + 1500, 2), 1024);
        assert_eq!(stripe.internal_len(6 * 1024 + 1500, 8), 2048);
        let largest = shape(16, 0, u64::from(u32::MAX));
        assert!(largest.internal_len(i64::MAX.cast_unsigned(), 0) > 0);
    }

    #[test]
    fn internal_blocks_have_the_groups_id_and_their_index() {
        let pool = PoolId::new("BP-1-127.0.0.1-1").expect("valid");
        let group = ExtendedBlock::new(pool, Block::new(-1600, 1001, 5000));
        let block = shape(3, 2, 1024).internal_block(&group, 4).block;
        assert_eq!(block, Block::new(-1596, 1001, 2048));
    }

    proptest! {
        #[test]
        fn data_units_add_up_to_the_group(
            len in 0u64..1_000_000,
            data in 1usize..11,
            cell in 1u64..5000,
        ) {
            let stripe = shape(data, 3, cell);
            let total: u64 = (0..data).map(|index| stripe.internal_len(len, index)).sum();
            prop_assert_eq!(total, len);
            let first = stripe.internal_len(len, 0);
            prop_assert!((1..data).all(|index| stripe.internal_len(len, index) <= first));
            prop_assert_eq!(stripe.internal_len(len, data), first);
        }
    }
}
