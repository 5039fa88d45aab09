//! The operations of the data transfer port, one file each.
//!
//! - `block_checksum`: BLOCK_CHECKSUM: one checksum for a block, from the checksums of its chunks
//! - `block_group_checksum`: BLOCK_GROUP_CHECKSUM: one checksum for a striped block group
//! - `copy_and_replace`: COPY_BLOCK and REPLACE_BLOCK
//! - `read_block`: READ_BLOCK
//! - `short_circuit`: descriptors and shared memory for clients of this host
//! - `transfer_block`: sending a replica to other nodes

pub mod block_checksum;
pub mod block_group_checksum;
pub mod copy_and_replace;
pub mod read_block;
pub mod short_circuit;
pub mod transfer_block;
