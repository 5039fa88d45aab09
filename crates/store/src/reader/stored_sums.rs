//! Checksums that are read when a replica is opened.

use std::sync::Arc;

use hayloft_io::{AlignedBuf, EngineFile, IoError};
use hayloft_wire::checksum::{ChecksumKind, DataChecksum, META_HEADER_LEN};
use hayloft_wire::ids::Block;

use crate::error::StoreError;

/// Chunk size that stands for "no checksums".
const NULL_CHUNK_BYTES: u32 = 512;

/// Reads exactly `len` bytes; `None` when the file is shorter.
async fn read_exact(
    file: &Arc<dyn EngineFile>,
    offset: u64,
    len: usize,
) -> Result<Option<AlignedBuf>, IoError> {
    let (buf, n) = file
        .read_at(AlignedBuf::unpooled(len), offset, len)
        .await
        .into_result()?;
    Ok((n == len).then_some(buf))
}

/// What stands for "no checksums".
pub(super) fn no_checksums() -> DataChecksum {
    DataChecksum::new(ChecksumKind::Null, NULL_CHUNK_BYTES).expect("a possible chunk size")
}

/// The checksum in the header of a meta file; NULL when the file is not there.
pub(super) async fn read_checksum(
    meta: Option<&Arc<dyn EngineFile>>,
    block: Block,
) -> Result<Result<DataChecksum, StoreError>, IoError> {
    let Some(meta) = meta else {
        return Ok(Ok(no_checksums()));
    };
    let corrupt = |text: String| StoreError::corrupt(text);
    let Some(header) = read_exact(meta, 0, META_HEADER_LEN).await? else {
        // The header comes with the first packet.
        return Ok(if block.num_bytes == 0 {
            Ok(no_checksums())
        } else {
            Err(corrupt(format!(
                "{block}: the meta file is shorter than its header"
            )))
        });
    };
    Ok(DataChecksum::decode_meta_header(header.as_slice())
        .map_err(|e| corrupt(format!("{block}: the header of the meta file: {e}"))))
}

/// The stored checksum of one chunk.
pub(super) async fn read_sum(
    meta: &Arc<dyn EngineFile>,
    checksum: DataChecksum,
    chunk_start: u64,
) -> Result<Option<u32>, IoError> {
    let sum = read_exact(meta, checksum.meta_len(chunk_start), checksum.sum_size()).await?;
    Ok(sum
        .and_then(|b| b.as_slice().first_chunk().copied())
        .map(u32::from_be_bytes))
}
