//! BLOCK_CHECKSUM: one checksum for a block, from the checksums of its chunks.

use bytes::Bytes;
use hayloft_io::AlignedBuf;
use hayloft_store::ReplicaReader;
use hayloft_wire::checksum::{CompositeCrc, DataChecksum, Md5OfCrcs};
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::hdfs::{BlockChecksumOptions, BlockChecksumType, ChecksumType};
use hayloft_wire::transfer::{BlockOpResponse, BlockRequest};

use crate::xceiver::context::{AfterOperation, Xceivers};
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::ops::read_block::after_read_error;
use crate::xceiver::stats::Activity;

/// Checksums read at a time.
const SUMS_AT_ONCE: u64 = 64 << 10;

/// Serves one checksum.
///
/// # Errors
/// The connection is closed; the client asks another node.
pub async fn block_checksum(
    x: &Xceivers,
    conn: &mut Conn,
    request: BlockRequest<pb::OpBlockChecksum>,
) -> Result<AfterOperation, XferError> {
    let BlockRequest { block, message } = request;
    x.wait_ready(&block.pool).await?;
    let _reader = x.stats().enter(Activity::Reader);
    let options = message.block_checksum_options.unwrap_or_default();
    let reader = x.store().open_verifiable(&block).await?;
    let outcome = compute(&reader, block.block.num_bytes, &options).await;
    if let Err(error) = &outcome {
        after_read_error(x, &block, error).await;
    }
    let response = BlockOpResponse {
        checksum_response: Some(outcome?),
        ..BlockOpResponse::success()
    };
    conn.write_message(&response).await?;
    Ok(AfterOperation::Close)
}

/// The checksum of the first `requested` bytes; of all that is visible when there is no more.
async fn compute(
    reader: &ReplicaReader,
    requested: u64,
    options: &BlockChecksumOptions,
) -> Result<pb::OpBlockChecksumResponse, XferError> {
    let checksum = reader.checksum();
    let len = requested.min(reader.visible_len());
    let mut digest = BlockDigest::new(checksum, len, options)?;
    if checksum.sum_size() > 0 {
        for_each_run(reader, checksum, len, |sums| digest.add(sums)).await?;
    }
    let whole_chunks = reader
        .readable_len()
        .div_ceil(u64::from(checksum.bytes_per_checksum()));
    Ok(pb::OpBlockChecksumResponse {
        bytes_per_crc: checksum.bytes_per_checksum(),
        crc_per_block: if checksum.sum_size() == 0 {
            0
        } else {
            whole_chunks
        },
        block_checksum: Bytes::from(digest.finish()),
        crc_type: Some(ChecksumType::from(checksum.kind()).into()),
        block_checksum_options: Some(options.clone()),
    })
}

/// Calls `take` with the checksums of the chunks in the first `len` bytes, in order. A chunk cut
/// short by `len` is checksummed anew from its data.
async fn for_each_run(
    reader: &ReplicaReader,
    checksum: DataChecksum,
    len: u64,
    mut take: impl FnMut(&[u8]) -> Result<(), XferError>,
) -> Result<(), XferError> {
    let chunk = u64::from(checksum.bytes_per_checksum());
    // The last chunk of the replica may be short and still be whole: its stored checksum covers
    // just it.
    let whole = if len == reader.readable_len() {
        len.div_ceil(chunk)
    } else {
        len / chunk
    };
    let mut at = 0;
    while at < whole {
        let count = SUMS_AT_ONCE.min(whole - at);
        take(&reader.read_sums(at, count).await?)?;
        at += count;
    }
    let rest = len.saturating_sub(whole * chunk);
    if rest > 0 && whole * chunk < len {
        let rest = usize::try_from(rest)
            .map_err(|_| XferError::Refused("a chunk larger than memory".to_owned()))?;
        let data = reader
            .read_data(AlignedBuf::unpooled(rest), whole * chunk, rest)
            .await?;
        let mut sums = Vec::new();
        checksum.compute(data.as_slice(), &mut sums);
        take(&sums)?;
    }
    Ok(())
}

/// The checksum of a block, from those of its chunks.
#[derive(Clone, Debug)]
pub enum BlockDigest {
    /// MD5 of them.
    Md5(Md5OfCrcs),
    /// Joined, with the length of a chunk and the bytes that are left.
    Composite {
        crc: CompositeCrc,
        chunk: u64,
        left: u64,
    },
}

impl BlockDigest {
    /// Of a block's first `len` bytes, as `options` ask for.
    ///
    /// # Errors
    /// `Refused`: a composite CRC of no CRCs.
    pub fn new(
        checksum: DataChecksum,
        len: u64,
        options: &BlockChecksumOptions,
    ) -> Result<Self, XferError> {
        match options.block_checksum_type() {
            BlockChecksumType::Md5crc => Ok(Self::Md5(Md5OfCrcs::default())),
            BlockChecksumType::CompositeCrc if checksum.sum_size() == 0 => Err(XferError::Refused(
                "a composite CRC of a replica without checksums".to_owned(),
            )),
            BlockChecksumType::CompositeCrc => {
                let chunk = checksum.bytes_per_checksum();
                let stripe = Some(options.stripe_length());
                Ok(Self::Composite {
                    crc: CompositeCrc::new(checksum.kind(), chunk, stripe),
                    chunk: chunk.into(),
                    left: len,
                })
            }
        }
    }

    /// Adds the checksums of the chunks that come next, whole ones.
    ///
    /// # Errors
    /// `Refused`: chunks and stripes do not fit together.
    pub fn add(&mut self, sums: &[u8]) -> Result<(), XferError> {
        match self {
            Self::Md5(md5) => md5.update(sums),
            Self::Composite { crc, chunk, left } => {
                for sum in sums.as_chunks::<4>().0 {
                    let piece = (*chunk).min(*left);
                    *left -= piece;
                    crc.update(u32::from_be_bytes(*sum), piece)
                        .map_err(|e| XferError::Refused(e.to_string()))?;
                }
            }
        }
        Ok(())
    }

    /// The checksum.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        match self {
            Self::Md5(md5) => md5.finish().to_vec(),
            Self::Composite { crc, .. } => crc.finish(),
        }
    }
}
