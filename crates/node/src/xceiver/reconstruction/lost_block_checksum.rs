//! The checksum of an internal block that no node has, or answers for: of what is decoded.

use hayloft_wire::checksum::DataChecksum;

use super::decode::{Decoding, Sink};
use super::what_is_left::StripedGroup;
use crate::xceiver::context::Xceivers;
use crate::xceiver::error::XferError;
use crate::xceiver::ops::block_checksum::BlockDigest;
use hayloft_wire::proto::hdfs::BlockChecksumOptions;

/// What a node with the block would answer.
#[derive(Clone, Debug)]
pub struct LostChecksum {
    /// As asked for.
    pub block_checksum: Vec<u8>,
    /// How the block's chunks are checksummed.
    pub checksum: DataChecksum,
    /// Chunks of the whole block.
    pub chunks: u64,
}

/// Computes the checksum of the first `len` bytes of internal block `index` of `group`.
///
/// # Errors
/// Too few blocks are left.
pub async fn checksum_of_lost(
    x: &Xceivers,
    group: &StripedGroup,
    index: usize,
    len: u64,
    options: &BlockChecksumOptions,
) -> Result<LostChecksum, XferError> {
    let settings = x.settings();
    let decoding = Decoding::open(x, &settings, group, vec![index], len).await?;
    let checksum = decoding.checksum();
    let mut sink = DigestSink {
        checksum,
        digest: BlockDigest::new(checksum, len, options)?,
        sums: Vec::new(),
    };
    decoding.run(&mut sink).await?;
    let chunk = u64::from(checksum.bytes_per_checksum());
    Ok(LostChecksum {
        block_checksum: sink.digest.finish(),
        checksum,
        chunks: group.internal_len(index).div_ceil(chunk),
    })
}

/// Digests the checksums of what is decoded.
struct DigestSink {
    checksum: DataChecksum,
    digest: BlockDigest,
    sums: Vec<u8>,
}

impl Sink for DigestSink {
    async fn take(&mut self, blocks: &[&[u8]]) -> Result<(), XferError> {
        for bytes in blocks {
            self.sums.clear();
            self.checksum.compute(bytes, &mut self.sums);
            self.digest.add(&self.sums)?;
        }
        Ok(())
    }
}
