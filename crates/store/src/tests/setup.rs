//! What tests of the store and of its protection begin with. The protection is in a crate of its
//! own, whose tests name this file.

use super::*;

pub const EIO: i32 = 5;
pub const ENOSPC: i32 = 28;
pub const EOPNOTSUPP: i32 = 95;

pub fn pool() -> PoolId {
    PoolId::new("BP-1-127.0.0.1-1700000000000").expect("valid")
}

pub fn spec() -> PoolSpec {
    PoolSpec {
        pool: pool(),
        cluster_id: "CID-1".to_owned(),
        namespace_id: 77,
        ctime: 0,
    }
}

pub fn crc32c() -> DataChecksum {
    DataChecksum::new(ChecksumKind::Crc32c, 512).expect("valid")
}

/// Bytes that differ from place to place.
pub fn bytes(from: usize, to: usize) -> Vec<u8> {
    (from..to)
        .map(|i| u8::try_from((i * 31 + i / 509) % 256).expect("below 256"))
        .collect()
}

pub fn packet(from: usize, to: usize) -> PacketData {
    packet_with(crc32c(), from, to)
}

pub fn packet_with(checksum: DataChecksum, from: usize, to: usize) -> PacketData {
    let mut sums = Vec::new();
    let mut at = from;
    while at < to {
        let end = to.min((at / checksum.chunk_size() + 1) * checksum.chunk_size());
        checksum.compute(&bytes(at, end), &mut sums);
        at = end;
    }
    let (data, sums) = (bytes(from, to), Bytes::from(sums));
    PacketData::new(checksum, from as u64, data.into(), sums).expect("agrees")
}

pub fn block(id: i64, gs: u64, len: u64) -> ExtendedBlock {
    ExtendedBlock::new(pool(), Block::new(id, gs, len))
}

pub fn config(dir: &Path, volumes: usize) -> StoreConfig {
    StoreConfig {
        volumes: (0..volumes)
            .map(|n| VolumeConfig::new(dir.join(format!("data{n}"))))
            .collect(),
        writer_stop_timeout: Duration::from_millis(500),
        volume_choosing: VolumeChoosing::RoundRobin { additional: 0 },
        // Tests call the rounds themselves, where they want some.
        commit_interval: Duration::from_secs(3600),
        scan: ScanConfig {
            period: Duration::ZERO,
            bytes_per_second: 0,
        },
        ..StoreConfig::default()
    }
}

/// A writer of a new replica.
pub async fn writer(store: &Store, id: i64, gs: u64) -> ReplicaWriter {
    let block = block(id, gs, 0);
    let created = store.create_rbw(&block, WriteOptions::default()).await;
    let mut writer = created.expect("creates");
    writer.set_checksum(crc32c()).await.expect("header");
    writer
}
