//! The service end to end: real sockets, and real stores in temporary directories. The client
//! speaks the protocol byte by byte, and the NameNode side only takes notes.

mod ahead;
mod bench;
mod by_hand;
mod client;
mod failures;
mod garbage;
mod group_checksums;
mod inplace;
mod lazy_persist;
mod local_client;
mod log_limits;
mod logs;
mod mirrors;
mod moves;
mod node;
mod pipelines;
mod protected;
mod reads;
mod reconstruction;
mod residency;
mod short_circuit;
mod striped;
mod tokens;

use hayloft_wire::checksum::{ChecksumKind, DataChecksum};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId};

/// CRC32C per 512 bytes, as stock clients ask for.
fn crc32c() -> DataChecksum {
    DataChecksum::new(ChecksumKind::Crc32c, 512).expect("valid")
}

/// Bytes that differ at every offset that matters.
fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| u8::try_from((i * 31 + i / 251) % 256).expect("below 256"))
        .collect()
}

fn pool() -> PoolId {
    PoolId::new("BP-7-127.0.0.1-1700000000000").expect("valid")
}

fn block(id: i64, generation_stamp: u64) -> ExtendedBlock {
    ExtendedBlock::new(pool(), Block::new(id, generation_stamp, 0))
}
