//! Chunk checksums: CRC-32 and CRC-32C per chunk of a block, as on the wire and in meta files.
//!
//! - `block`: checksums of whole blocks, made from the checksums of their chunks
//!
//! Chunks are usually only 512 bytes long, so what counts is the cost of a short one. The chunks of
//! CRC-32C, the default of HDFS, are computed some at a time by `hayloft-crc` where the processor
//! has instructions for it. The others come from crc-fast, which picks the widest carry-less
//! multiplication the processor has, for both polynomials. `cargo run --release -p hayloft-wire
//! --example crc_speed` shows what they cost.

use std::convert::Infallible;
use std::fmt;

use bytes::BufMut;
use crc_fast::CrcAlgorithm;

use crate::limits::MAX_BYTES_PER_CHECKSUM;
use crate::proto::datatransfer as pb;
use crate::proto::hdfs::ChecksumType;

mod block;

pub use block::{CompositeCrc, CrcShift, Md5OfCrcs, StripeError};

/// Length of the header of a meta file: version (2), type (1), bytes per checksum (4).
pub const META_HEADER_LEN: usize = 7;

/// Version in the header of a meta file.
pub const META_VERSION: u16 = 1;

/// A checksum algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumKind {
    /// No checksums: chunks have sums of zero bytes.
    Null,
    /// CRC-32 as in zlib (ISO-HDLC).
    Crc32,
    /// CRC-32C (Castagnoli, iSCSI); the default of HDFS.
    Crc32c,
}

impl ChecksumKind {
    /// Code in meta files and on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            ChecksumKind::Null => 0,
            ChecksumKind::Crc32 => 1,
            ChecksumKind::Crc32c => 2,
        }
    }

    /// Algorithm of a code.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(ChecksumKind::Null),
            1 => Some(ChecksumKind::Crc32),
            2 => Some(ChecksumKind::Crc32c),
            _ => None,
        }
    }

    /// Bytes of one checksum: 4, or 0 for [`ChecksumKind::Null`].
    #[must_use]
    pub const fn sum_size(self) -> usize {
        match self {
            ChecksumKind::Null => 0,
            ChecksumKind::Crc32 | ChecksumKind::Crc32c => 4,
        }
    }

    /// The CRC of `data`; 0 for [`ChecksumKind::Null`].
    #[must_use]
    pub fn crc(self, data: &[u8]) -> u32 {
        match self {
            ChecksumKind::Null => 0,
            ChecksumKind::Crc32 => crc_fast::crc32_iso_hdlc(data),
            ChecksumKind::Crc32c => crc_fast::crc32_iscsi(data),
        }
    }

    /// The CRC of what had the CRC `crc` with `data` appended. `crc` of nothing is 0.
    #[must_use]
    pub fn crc_append(self, crc: u32, data: &[u8]) -> u32 {
        let algorithm = match self {
            ChecksumKind::Null => return 0,
            ChecksumKind::Crc32 => CrcAlgorithm::Crc32IsoHdlc,
            ChecksumKind::Crc32c => CrcAlgorithm::Crc32Iscsi,
        };
        let mut digest = crc_fast::Digest::new_with_init_state(algorithm, u64::from(!crc));
        digest.update(data);
        u32::try_from(digest.finalize()).expect("a 32-bit CRC fits 32 bits")
    }

    /// Reflected polynomial.
    const fn polynomial(self) -> u32 {
        match self {
            ChecksumKind::Null | ChecksumKind::Crc32 => 0xEDB8_8320,
            ChecksumKind::Crc32c => 0x82F6_3B78,
        }
    }
}

impl fmt::Display for ChecksumKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChecksumKind::Null => "NULL",
            ChecksumKind::Crc32 => "CRC32",
            ChecksumKind::Crc32c => "CRC32C",
        })
    }
}

impl From<ChecksumKind> for ChecksumType {
    fn from(kind: ChecksumKind) -> Self {
        match kind {
            ChecksumKind::Null => ChecksumType::Null,
            ChecksumKind::Crc32 => ChecksumType::Crc32,
            ChecksumKind::Crc32c => ChecksumType::Crc32c,
        }
    }
}

impl From<ChecksumType> for ChecksumKind {
    fn from(kind: ChecksumType) -> Self {
        match kind {
            ChecksumType::Null => ChecksumKind::Null,
            ChecksumType::Crc32 => ChecksumKind::Crc32,
            ChecksumType::Crc32c => ChecksumKind::Crc32c,
        }
    }
}

/// A checksum definition that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChecksumError {
    /// Unknown algorithm.
    #[error("unknown checksum type {0}")]
    FieldKind(i32),
    /// Chunk size out of range.
    #[error("chunks of {0} bytes; 1 to {MAX_BYTES_PER_CHECKSUM} are possible")]
    BytesPerChecksum(i64),
    /// Unknown version of a meta file.
    #[error("meta file version {0}; only {META_VERSION} is known")]
    MetaVersion(u16),
    /// A meta file too short for its header.
    #[error("a meta file header takes {META_HEADER_LEN} bytes, {0} are there")]
    MetaTruncated(usize),
}

/// A chunk whose checksum does not match, or for which there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "checksum mismatch in the chunk at byte {offset}: stored {stored:08x}, computed {computed:08x}"
)]
pub struct ChecksumMismatch {
    /// Offset of the chunk in the data that was verified.
    pub offset: usize,
    /// The checksum given; 0 when there is none.
    pub stored: u32,
    /// The checksum of the data; 0 when there is no data for the checksum given.
    pub computed: u32,
}

/// Algorithm and chunk size of a replica or a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataChecksum {
    kind: ChecksumKind,
    bytes_per_checksum: u32,
}

impl DataChecksum {
    /// A checksum per `bytes_per_checksum` bytes, 1 to [`MAX_BYTES_PER_CHECKSUM`].
    pub const fn new(kind: ChecksumKind, bytes_per_checksum: u32) -> Result<Self, ChecksumError> {
        if bytes_per_checksum == 0 || bytes_per_checksum > MAX_BYTES_PER_CHECKSUM {
            return Err(ChecksumError::BytesPerChecksum(bytes_per_checksum as i64));
        }
        Ok(DataChecksum {
            kind,
            bytes_per_checksum,
        })
    }

    /// The algorithm.
    #[must_use]
    pub const fn kind(self) -> ChecksumKind {
        self.kind
    }

    /// Chunk size in bytes; never 0.
    #[must_use]
    pub const fn bytes_per_checksum(self) -> u32 {
        self.bytes_per_checksum
    }

    /// Chunk size in bytes, for slices.
    #[must_use]
    pub const fn chunk_size(self) -> usize {
        self.bytes_per_checksum as usize
    }

    /// Bytes of one checksum: 4, or 0 without checksums.
    #[must_use]
    pub const fn sum_size(self) -> usize {
        self.kind.sum_size()
    }

    /// Bytes of the checksums of `data_bytes` bytes that start at a chunk boundary.
    #[must_use]
    pub const fn sums_len(self, data_bytes: usize) -> usize {
        data_bytes.div_ceil(self.chunk_size()) * self.sum_size()
    }

    /// Length of the meta file of a replica of `data_bytes` bytes.
    #[must_use]
    pub const fn meta_len(self, data_bytes: u64) -> u64 {
        let chunks = data_bytes.div_ceil(self.bytes_per_checksum as u64);
        META_HEADER_LEN as u64 + chunks.saturating_mul(self.sum_size() as u64)
    }

    /// Largest chunk boundary at or below `offset`.
    #[must_use]
    pub const fn chunk_start(self, offset: u64) -> u64 {
        offset - offset % self.bytes_per_checksum as u64
    }

    /// The header of a meta file.
    #[must_use]
    pub fn encode_meta_header(self) -> [u8; META_HEADER_LEN] {
        let mut header = [0; META_HEADER_LEN];
        header[..2].copy_from_slice(&META_VERSION.to_be_bytes());
        header[2] = self.kind.code();
        header[3..].copy_from_slice(&self.bytes_per_checksum.to_be_bytes());
        header
    }

    /// Reads the header of a meta file from its first bytes.
    pub fn decode_meta_header(bytes: &[u8]) -> Result<Self, ChecksumError> {
        let Some(header) = bytes.first_chunk::<META_HEADER_LEN>() else {
            return Err(ChecksumError::MetaTruncated(bytes.len()));
        };
        let [v0, v1, code, b0, b1, b2, b3] = *header;
        let version = u16::from_be_bytes([v0, v1]);
        if version != META_VERSION {
            return Err(ChecksumError::MetaVersion(version));
        }
        let kind =
            ChecksumKind::from_code(code).ok_or(ChecksumError::FieldKind(i32::from(code)))?;
        DataChecksum::new(kind, u32::from_be_bytes([b0, b1, b2, b3]))
    }

    /// Appends the big-endian checksums of `data`, which starts at a chunk boundary; the last chunk
    /// may be short.
    pub fn compute(self, data: &[u8], out: &mut impl BufMut) {
        if self.sum_size() == 0 {
            return;
        }
        let all = self.each_crc(data, |_, crc| {
            out.put_u32(crc);
            Ok::<_, Infallible>(())
        });
        all.unwrap_or_else(|never| match never {});
    }

    /// Compares `data`, which starts at a chunk boundary, with its checksums. Checksums that are
    /// too few or too many are a mismatch at the first chunk without its counterpart.
    pub fn verify(self, data: &[u8], sums: &[u8]) -> Result<(), ChecksumMismatch> {
        if self.sum_size() == 0 {
            return Ok(());
        }
        let (sums, rest) = sums.as_chunks::<4>();
        let mut sums = sums.iter().map(|sum| u32::from_be_bytes(*sum));
        self.each_crc(data, |offset, computed| match sums.next() {
            Some(stored) if stored == computed => Ok(()),
            stored => Err(ChecksumMismatch {
                offset,
                stored: stored.unwrap_or(0),
                computed,
            }),
        })?;
        match sums.next() {
            None if rest.is_empty() => Ok(()),
            stored => Err(ChecksumMismatch {
                offset: data.len(),
                stored: stored.unwrap_or(0),
                computed: 0,
            }),
        }
    }

    /// Hands the CRC of each chunk of `data` on, with the chunk's offset, until one is refused.
    fn each_crc<E>(
        self,
        data: &[u8],
        mut take: impl FnMut(usize, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut offset = 0;
        if self.kind == ChecksumKind::Crc32c {
            let mut crcs = [0; hayloft_crc::MOST_CHUNKS];
            loop {
                let taken =
                    hayloft_crc::crc32c_chunks(&data[offset..], self.chunk_size(), &mut crcs);
                if taken == 0 {
                    break;
                }
                for crc in &crcs[..taken] {
                    take(offset, *crc)?;
                    offset += self.chunk_size();
                }
            }
        }
        for chunk in data[offset..].chunks(self.chunk_size()) {
            take(offset, self.kind.crc(chunk))?;
            offset += chunk.len();
        }
        Ok(())
    }
}

impl fmt::Display for DataChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.bytes_per_checksum)
    }
}

impl TryFrom<&pb::Checksum> for DataChecksum {
    type Error = ChecksumError;

    fn try_from(checksum: &pb::Checksum) -> Result<Self, ChecksumError> {
        let kind = ChecksumType::try_from(checksum.r#type)
            .map_err(|_| ChecksumError::FieldKind(checksum.r#type))?;
        DataChecksum::new(kind.into(), checksum.bytes_per_checksum)
    }
}

impl From<DataChecksum> for pb::Checksum {
    fn from(checksum: DataChecksum) -> Self {
        pb::Checksum {
            r#type: ChecksumType::from(checksum.kind).into(),
            bytes_per_checksum: checksum.bytes_per_checksum,
        }
    }
}

#[cfg(test)]
#[path = "checksum_tests.rs"]
mod tests;
