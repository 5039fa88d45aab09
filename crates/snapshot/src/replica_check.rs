//! A replica's bytes compared with its meta file as they pass.

use bytes::Bytes;
use hayloft_wire::checksum::{ChecksumKind, CompositeCrc, DataChecksum, META_HEADER_LEN};

/// Largest meta file that is taken into memory, in bytes: of a block of 8 GiB in chunks of 512.
pub const META_BYTES_MAX: u64 = 64 << 20;

/// Why a replica is not taken, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DamagedReplica(pub String);

/// The meta file of a replica of a certain length, header included.
#[derive(Clone, Debug)]
pub struct MetaFile {
    bytes: Bytes,
    checksum: DataChecksum,
    len: u64,
}

/// How long the meta file of a replica with this header and length is.
///
/// # Errors
/// The header is none, or more checksums follow than fit into memory.
pub fn meta_len(header: &[u8], len: u64) -> Result<usize, DamagedReplica> {
    let checksum = DataChecksum::decode_meta_header(header);
    let checksum = checksum.map_err(|e| DamagedReplica(format!("its meta file: {e}")))?;
    let bytes = checksum.meta_len(len);
    let fits = usize::try_from(bytes)
        .ok()
        .filter(|_| bytes <= META_BYTES_MAX);
    fits.ok_or_else(|| {
        DamagedReplica(format!(
            "its checksums are {bytes} bytes, more than is taken"
        ))
    })
}

impl MetaFile {
    /// Takes the bytes of a meta file; those behind the last checksum are left out.
    ///
    /// # Errors
    /// They are too few, or no meta file.
    pub fn new(bytes: &Bytes, len: u64) -> Result<Self, DamagedReplica> {
        let whole = meta_len(bytes, len)?;
        if bytes.len() < whole {
            let text = format!("its meta file has {} bytes of {whole}", bytes.len());
            return Err(DamagedReplica(text));
        }
        let checksum = DataChecksum::decode_meta_header(bytes);
        Ok(Self {
            checksum: checksum.map_err(|e| DamagedReplica(e.to_string()))?,
            bytes: bytes.slice(..whole),
            len,
        })
    }

    /// How the data is checksummed.
    #[must_use]
    pub fn checksum(&self) -> DataChecksum {
        self.checksum
    }

    /// The checksums of so many bytes at an offset that is a chunk's; none where there are none.
    #[must_use]
    pub fn sums(&self, offset: u64, len: usize) -> Bytes {
        let before = offset / u64::from(self.checksum.bytes_per_checksum());
        let before = usize::try_from(before).unwrap_or(usize::MAX);
        let from = before.saturating_mul(self.checksum.sum_size());
        let from = from.saturating_add(META_HEADER_LEN);
        let to = from.saturating_add(self.checksum.sums_len(len));
        match to <= self.bytes.len() {
            true => self.bytes.slice(from..to),
            false => Bytes::new(),
        }
    }

    /// All of it.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// CRC-32C of the meta file itself.
    pub fn own_crc(&self) -> u32 {
        ChecksumKind::Crc32c.crc(&self.bytes)
    }

    /// CRC-32C of the data, put together from the checksums; `None` where they are of another kind.
    pub fn composed_crc(&self) -> Option<u32> {
        if self.checksum.kind() != ChecksumKind::Crc32c {
            return None;
        }
        let chunk = self.checksum.bytes_per_checksum();
        let mut all = CompositeCrc::new(ChecksumKind::Crc32c, chunk, None);
        let mut left = self.len;
        for sum in self.bytes[META_HEADER_LEN..].as_chunks::<4>().0 {
            let piece = left.min(u64::from(chunk));
            all.update(u32::from_be_bytes(*sum), piece).ok()?;
            left -= piece;
        }
        let joined = all.finish();
        Some(
            joined
                .first_chunk()
                .map_or(0, |crc| u32::from_be_bytes(*crc)),
        )
    }

    /// The smallest number of bytes, at least `wanted`, that is a whole number of chunks.
    #[must_use]
    pub fn piece(&self, wanted: usize) -> usize {
        wanted.next_multiple_of(self.checksum.chunk_size())
    }
}

/// A comparison on its way through a replica.
#[derive(Debug)]
pub struct ReplicaCheck {
    meta: MetaFile,
    /// Bytes of the meta file before the checksums of what is left.
    at: usize,
    left: u64,
    crc: u32,
}

impl ReplicaCheck {
    /// Begins at the first byte of the data.
    pub fn new(meta: MetaFile) -> Self {
        Self {
            at: META_HEADER_LEN,
            left: meta.len,
            crc: 0,
            meta,
        }
    }

    /// Bytes of data that are still to come.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Compares what follows: whole chunks, or all that is left.
    ///
    /// # Errors
    /// It differs from its checksums, or is more than the replica has.
    pub fn take(&mut self, data: &[u8]) -> Result<(), DamagedReplica> {
        let len = data.len() as u64;
        let chunk = self.meta.checksum.bytes_per_checksum();
        if len > self.left || (len < self.left && !len.is_multiple_of(u64::from(chunk))) {
            return Err(DamagedReplica(format!(
                "{len} bytes came of {} left",
                self.left
            )));
        }
        let end = self.at + self.meta.checksum.sums_len(data.len());
        let sums = self.meta.bytes.get(self.at..end).unwrap_or_default();
        let offset = self.meta.len - self.left;
        self.meta.checksum.verify(data, sums).map_err(|e| {
            let at = offset + e.offset as u64;
            DamagedReplica(format!("its data differs from its checksum at byte {at}"))
        })?;
        self.crc = ChecksumKind::Crc32c.crc_append(self.crc, data);
        (self.at, self.left) = (end, self.left - len);
        Ok(())
    }

    /// CRC-32C of all of the data.
    ///
    /// # Errors
    /// Some of it did not come.
    pub fn finish(self) -> Result<u32, DamagedReplica> {
        match self.left {
            0 => Ok(self.crc),
            left => Err(DamagedReplica(format!(
                "{left} bytes at its end are missing"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn meta_of(kind: ChecksumKind, chunk: u32, data: &[u8]) -> Bytes {
        let checksum = DataChecksum::new(kind, chunk).expect("valid");
        let mut bytes = checksum.encode_meta_header().to_vec();
        checksum.compute(data, &mut bytes);
        bytes.into()
    }

    proptest! {
        /// Whole replicas pass in pieces, and their CRC is that of the checksums put together.
        #[test]
        fn whole_replicas_pass(
            data in prop::collection::vec(any::<u8>(), 0..5000),
            chunk in 1u32..700,
            pieces in 1usize..4,
        ) {
            let whole = ChecksumKind::Crc32c.crc(&data);
            for kind in [ChecksumKind::Crc32c, ChecksumKind::Crc32, ChecksumKind::Null] {
                let meta = MetaFile::new(&meta_of(kind, chunk, &data), data.len() as u64)?;
                let composed = (kind == ChecksumKind::Crc32c).then_some(whole);
                prop_assert_eq!(meta.composed_crc(), composed);
                let piece = meta.piece(pieces * 100);
                let mut check = ReplicaCheck::new(meta);
                for piece in data.chunks(piece) {
                    check.take(piece)?;
                }
                prop_assert_eq!(check.finish()?, whole);
            }
        }

        /// One bit that differs does not pass.
        #[test]
        fn one_bit_is_found(
            mut data in prop::collection::vec(any::<u8>(), 1..3000),
            at: prop::sample::Index,
            bit in 0u8..8,
        ) {
            let meta = meta_of(ChecksumKind::Crc32c, 512, &data);
            let at = at.index(data.len());
            data[at] ^= 1 << bit;
            let mut check = ReplicaCheck::new(MetaFile::new(&meta, data.len() as u64)?);
            prop_assert!(check.take(&data).is_err());
        }

        #[test]
        fn any_meta_file_is_taken(bytes in prop::collection::vec(any::<u8>(), 0..40), len: u64) {
            let _ = MetaFile::new(&bytes.into(), len);
        }
    }

    #[test]
    fn what_is_short_or_long_does_not_pass() {
        let meta = MetaFile::new(&meta_of(ChecksumKind::Crc32c, 512, &[7; 600]), 600);
        let meta = meta.expect("whole");
        let mut check = ReplicaCheck::new(meta.clone());
        assert!(check.take(&[7; 601]).is_err(), "more than there is");
        assert!(check.take(&[7; 511]).is_err(), "no whole chunk");
        check.take(&[7; 512]).expect("the first chunk");
        assert!(check.finish().is_err(), "the rest is missing");
        let short = meta.bytes().slice(..meta.bytes().len() - 1);
        assert!(MetaFile::new(&short, 600).is_err());
        assert!(meta_len(&meta.bytes()[..7], u64::MAX).is_err());
    }
}
