//! The operations of the data transfer port, one file each.

pub mod block_checksum;
pub mod block_group_checksum;
pub mod copy_and_replace;
pub mod read_block;
pub mod transfer_block;
