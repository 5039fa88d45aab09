//! Names of things: blocks, block pools, storage types, replica states.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

pub use crate::proto::hdfs::StorageType;
pub use crate::proto::hdfs_server::ReplicaState;

use crate::limits::MAX_POOL_ID_BYTES;
use crate::proto::hdfs as pb;

/// A value from a peer that names nothing possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Block pool ids become directory names, so they are held to one plain path component.
    #[error(
        "{0:?} is no block pool id: it must be 1 to {MAX_POOL_ID_BYTES} bytes of printable text \
            without '/' and not start with '.'"
    )]
    Pool(String),
    /// A block length beyond what a file can have.
    #[error("block {block_id} claims a length of {num_bytes} bytes")]
    Length {
        /// Id of the block.
        block_id: i64,
        /// The length it claims.
        num_bytes: u64,
    },
    /// A generation stamp beyond Hadoop's signed 64 bits.
    #[error("block {block_id} claims the generation stamp {generation_stamp}")]
    GenerationStamp {
        /// Id of the block.
        block_id: i64,
        /// The stamp it claims.
        generation_stamp: u64,
    },
    /// Not the name of a storage type.
    #[error("{0:?} is no storage type (RAM_DISK, SSD, DISK, ARCHIVE, PROVIDED, NVDIMM)")]
    StorageType(String),
}

/// A block: the logical thing of which DataNodes hold replicas.
///
/// Ordered by id, then generation stamp, then length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// Block id; negative for the blocks of striped (erasure-coded) files.
    pub id: i64,
    /// Grows with every recovery and append; a replica with an older one is stale.
    pub generation_stamp: u64,
    /// Length in bytes.
    pub num_bytes: u64,
}

/// Low bits of a striped block's id that hold the index in its group.
const STRIPED_INDEX_MASK: i64 = 15;

impl Block {
    /// A block of the given id, generation stamp and length in bytes.
    #[must_use]
    pub const fn new(id: i64, generation_stamp: u64, num_bytes: u64) -> Self {
        Block {
            id,
            generation_stamp,
            num_bytes,
        }
    }

    /// Checks and converts what came over the wire.
    pub fn from_wire(
        block_id: u64,
        generation_stamp: u64,
        num_bytes: u64,
    ) -> Result<Self, IdError> {
        let block_id = block_id.cast_signed();
        if i64::try_from(num_bytes).is_err() {
            return Err(IdError::Length {
                block_id,
                num_bytes,
            });
        }
        if i64::try_from(generation_stamp).is_err() {
            return Err(IdError::GenerationStamp {
                block_id,
                generation_stamp,
            });
        }
        Ok(Block {
            id: block_id,
            generation_stamp,
            num_bytes,
        })
    }

    /// Whether the block belongs to a striped (erasure-coded) group.
    #[must_use]
    pub const fn is_striped(self) -> bool {
        is_striped(self.id)
    }

    /// Id of the group of a striped block; the id itself for others.
    #[must_use]
    pub const fn group_id(self) -> i64 {
        group_id(self.id)
    }

    /// Index of a striped block in its group, 0 to 15; 0 for others.
    #[must_use]
    pub const fn index_in_group(self) -> u8 {
        index_in_group(self.id)
    }
}

/// Whether an id belongs to a block of a striped group.
#[must_use]
pub const fn is_striped(block_id: i64) -> bool {
    block_id < 0
}

/// Id of the group of a striped block; the id itself for others.
#[must_use]
pub const fn group_id(block_id: i64) -> i64 {
    if is_striped(block_id) {
        block_id & !STRIPED_INDEX_MASK
    } else {
        block_id
    }
}

/// Index of a striped block in its group, 0 to 15; 0 for others.
#[must_use]
pub const fn index_in_group(block_id: i64) -> u8 {
    if !is_striped(block_id) {
        return 0;
    }
    #[expect(clippy::cast_sign_loss, reason = "four bits remain after the mask")]
    let index = (block_id & STRIPED_INDEX_MASK) as u8;
    index
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blk_{}_{}", self.id, self.generation_stamp)
    }
}

impl TryFrom<&pb::Block> for Block {
    type Error = IdError;

    fn try_from(block: &pb::Block) -> Result<Self, IdError> {
        Block::from_wire(block.block_id, block.gen_stamp, block.num_bytes())
    }
}

impl From<Block> for pb::Block {
    fn from(block: Block) -> Self {
        pb::Block {
            block_id: block.id.cast_unsigned(),
            gen_stamp: block.generation_stamp,
            num_bytes: Some(block.num_bytes),
        }
    }
}

/// Id of a block pool, such as `BP-1234-10.0.0.1-1700000000000`. Cheap to clone. Always one plain
/// path component, because directories are named after it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(Arc<str>);

impl PoolId {
    /// Checks `text` and keeps it.
    pub fn new(text: &str) -> Result<Self, IdError> {
        let plain = !text.is_empty()
            && text.len() <= MAX_POOL_ID_BYTES
            && !text.starts_with('.')
            && text.chars().all(|c| c != '/' && !c.is_control());
        if plain {
            Ok(PoolId(Arc::from(text)))
        } else {
            Err(IdError::Pool(shorten(text)))
        }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Keeps error messages short whatever a peer sends.
fn shorten(text: &str) -> String {
    const SHOWN_CHARS: usize = 64;
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl AsRef<str> for PoolId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for PoolId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        PoolId::new(text)
    }
}

/// A block with the pool it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtendedBlock {
    /// Block pool.
    pub pool: PoolId,
    /// The block.
    pub block: Block,
}

impl ExtendedBlock {
    /// A block in a pool.
    #[must_use]
    pub const fn new(pool: PoolId, block: Block) -> Self {
        ExtendedBlock { pool, block }
    }
}

impl fmt::Display for ExtendedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.pool, self.block)
    }
}

impl TryFrom<&pb::ExtendedBlock> for ExtendedBlock {
    type Error = IdError;

    fn try_from(block: &pb::ExtendedBlock) -> Result<Self, IdError> {
        Ok(ExtendedBlock {
            pool: PoolId::new(&block.pool_id)?,
            block: Block::from_wire(block.block_id, block.generation_stamp, block.num_bytes())?,
        })
    }
}

impl From<&ExtendedBlock> for pb::ExtendedBlock {
    fn from(block: &ExtendedBlock) -> Self {
        pb::ExtendedBlock {
            pool_id: block.pool.as_str().to_owned(),
            block_id: block.block.id.cast_unsigned(),
            generation_stamp: block.block.generation_stamp,
            num_bytes: Some(block.block.num_bytes),
        }
    }
}

impl StorageType {
    /// Every type, in the order of the wire.
    pub const ALL: [StorageType; 6] = [
        StorageType::Disk,
        StorageType::Ssd,
        StorageType::Archive,
        StorageType::RamDisk,
        StorageType::Provided,
        StorageType::Nvdimm,
    ];

    /// Hadoop's name, as in configuration and tokens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            StorageType::Disk => "DISK",
            StorageType::Ssd => "SSD",
            StorageType::Archive => "ARCHIVE",
            StorageType::RamDisk => "RAM_DISK",
            StorageType::Provided => "PROVIDED",
            StorageType::Nvdimm => "NVDIMM",
        }
    }

    /// Whether the medium loses its content with the power.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(self, StorageType::RamDisk)
    }

    /// Converts a wire value; absent and unknown values are DISK, as in Hadoop.
    #[must_use]
    pub fn from_wire(value: Option<i32>) -> Self {
        value
            .and_then(|v| StorageType::try_from(v).ok())
            .unwrap_or(StorageType::Disk)
    }
}

impl fmt::Display for StorageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for StorageType {
    type Err = IdError;

    /// Accepts Hadoop's names in any case.
    fn from_str(text: &str) -> Result<Self, IdError> {
        StorageType::ALL
            .into_iter()
            .find(|t| t.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| IdError::StorageType(shorten(text)))
    }
}

impl ReplicaState {
    /// Hadoop's name of the state.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ReplicaState::Finalized => "FINALIZED",
            ReplicaState::Rbw => "RBW",
            ReplicaState::Rwr => "RWR",
            ReplicaState::Rur => "RUR",
            ReplicaState::Temporary => "TEMPORARY",
        }
    }
}

impl fmt::Display for ReplicaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn striped_ids_name_their_group_and_index() {
        let id = -9_223_372_036_854_775_792_i64 + 5;
        assert!(is_striped(id));
        assert_eq!(group_id(id), -9_223_372_036_854_775_792);
        assert_eq!(index_in_group(id), 5);
        assert_eq!(group_id(1_073_741_825), 1_073_741_825);
        assert_eq!(index_in_group(1_073_741_825), 0);
    }

    #[test]
    fn pool_ids_are_plain_path_components() {
        assert!(PoolId::new("BP-1-127.0.0.1-1700000000000").is_ok());
        for bad in [
            "",
            "..",
            ".",
            "a/b",
            "a\0b",
            "a\nb",
            &"x".repeat(MAX_POOL_ID_BYTES + 1),
        ] {
            assert!(PoolId::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn blocks_survive_the_wire() {
        let pool = PoolId::new("BP-1").expect("valid");
        let block = ExtendedBlock::new(pool, Block::new(-16, 1001, 42));
        let wire = pb::ExtendedBlock::from(&block);
        assert_eq!(ExtendedBlock::try_from(&wire), Ok(block));
    }

    #[test]
    fn impossible_lengths_are_refused() {
        assert!(Block::from_wire(1, 1, u64::MAX).is_err());
        assert!(Block::from_wire(1, u64::MAX, 1).is_err());
        assert!(Block::from_wire(u64::MAX, 1, 1).is_ok_and(|b| b.id == -1));
    }

    #[test]
    fn storage_types_parse_in_any_case() {
        for t in StorageType::ALL {
            assert_eq!(t.name().to_lowercase().parse(), Ok(t));
        }
        assert!("FLOPPY".parse::<StorageType>().is_err());
    }
}
