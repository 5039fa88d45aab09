//! The checksums of a unit, as a section of a record has them.

use std::ops::Range;

use bytes::Bytes;
use hayloft_wire::checksum::{ChecksumMismatch, DataChecksum, META_HEADER_LEN};

use crate::record::RecordError;

/// Largest chunk that a member may be checksummed by: one is read and decoded at a time.
const CHUNK_MAX: usize = 1 << 20;

/// Checksums of the first `len` bytes of a unit: a meta file's header, then its sums.
#[derive(Clone, Debug)]
pub struct UnitSums {
    bytes: Bytes,
    checksum: DataChecksum,
    len: u64,
}

impl UnitSums {
    /// Of a unit of `len` bytes, from a meta file or section, which may be longer.
    ///
    /// # Errors
    /// `Field` when it has no header, too few checksums, or none at all: what is decoded could not
    /// be compared with anything. `TooLarge` when its chunks are.
    pub fn new(mut bytes: Bytes, len: u64) -> Result<Self, RecordError> {
        let checksum = DataChecksum::decode_meta_header(&bytes);
        let checksum = checksum.map_err(|_| RecordError::Field("header of checksums"))?;
        if checksum.sum_size() == 0 {
            return Err(RecordError::Field("checksum of nothing"));
        }
        if checksum.chunk_size() > CHUNK_MAX {
            return Err(RecordError::TooLarge("chunk"));
        }
        let needed = usize::try_from(checksum.meta_len(len)).ok();
        match needed.filter(|needed| *needed <= bytes.len()) {
            Some(needed) => bytes.truncate(needed),
            None => return Err(RecordError::Field("number of checksums")),
        }
        Ok(Self {
            bytes,
            checksum,
            len,
        })
    }

    /// Header and sums.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// How the unit is checksummed; never NULL.
    #[must_use]
    pub fn checksum(&self) -> DataChecksum {
        self.checksum
    }

    /// Bytes that have checksums.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no bytes have.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The chunks that a range touches, as far as the unit has them: what has to be read to compare
    /// it with its checksums.
    #[must_use]
    pub fn aligned(&self, range: Range<u64>) -> Range<u64> {
        let chunk = u64::from(self.checksum.bytes_per_checksum());
        let start = self.checksum.chunk_start(range.start.min(self.len));
        let end = range.end.div_ceil(chunk).saturating_mul(chunk);
        start..end.min(self.len).max(start)
    }

    /// The checksums of `count` chunks from chunk number `first` on; `None` when there are not so
    /// many.
    #[must_use]
    pub fn of_chunks(&self, first: u64, count: u64) -> Option<Bytes> {
        let chunk = u64::from(self.checksum.bytes_per_checksum());
        let at = usize::try_from(self.checksum.meta_len(first.checked_mul(chunk)?)).ok()?;
        let len = usize::try_from(count).ok()?;
        let len = len.checked_mul(self.checksum.sum_size())?;
        let end = at.checked_add(len).filter(|end| *end <= self.bytes.len())?;
        Some(self.bytes.slice(at..end))
    }

    /// Compares the bytes of a range from [`aligned`](Self::aligned) with their checksums.
    ///
    /// # Errors
    /// The first chunk that differs; also for a range that is not aligned.
    pub fn verify(&self, offset: u64, data: &[u8]) -> Result<(), ChecksumMismatch> {
        let none = ChecksumMismatch {
            offset: 0,
            stored: 0,
            computed: 0,
        };
        let end = offset.saturating_add(data.len() as u64);
        if data.is_empty() {
            return Ok(());
        }
        if self.aligned(offset..end) != (offset..end) {
            return Err(none);
        }
        let at = |offset| usize::try_from(self.checksum.meta_len(offset)).unwrap_or(usize::MAX);
        debug_assert!(
            at(0) == META_HEADER_LEN,
            "the first sum is behind the header"
        );
        let sums = self.bytes.get(at(offset)..at(end)).ok_or(none)?;
        self.checksum.verify(data, sums)
    }
}

/// Compares a unit with its checksums from its beginning on, in pieces of any length.
#[derive(Debug)]
pub struct SumsCheck {
    sums: UnitSums,
    /// Where `pending` begins.
    at: u64,
    /// The beginning of a chunk.
    pending: Vec<u8>,
}

impl SumsCheck {
    /// Of a unit with these checksums.
    #[must_use]
    pub fn new(sums: UnitSums) -> Self {
        Self {
            sums,
            at: 0,
            pending: Vec::new(),
        }
    }

    /// The next bytes. The last ones complete the last chunk.
    ///
    /// # Errors
    /// The first chunk that differs.
    pub fn push(&mut self, data: &[u8]) -> Result<(), ChecksumMismatch> {
        if data.is_empty() {
            return Ok(());
        }
        let (end, len) = (
            self.at + (self.pending.len() + data.len()) as u64,
            self.sums.len,
        );
        let whole = if end >= len {
            len
        } else {
            self.sums.checksum.chunk_start(end)
        };
        let whole = usize::try_from(whole.saturating_sub(self.at)).unwrap_or(usize::MAX);
        if self.pending.is_empty() {
            let (now, later) = data.split_at(whole.min(data.len()));
            self.sums.verify(self.at, now)?;
            self.at += now.len() as u64;
            self.pending.extend_from_slice(later);
            return Ok(());
        }
        self.pending.extend_from_slice(data);
        let now = whole.min(self.pending.len());
        self.sums.verify(self.at, &self.pending[..now])?;
        self.at += now as u64;
        self.pending.drain(..now);
        Ok(())
    }

    /// Whether all of the unit was compared.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.at == self.sums.len && self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hayloft_wire::checksum::ChecksumKind;
    use proptest::prelude::*;

    fn sums_of(checksum: DataChecksum, data: &[u8]) -> Bytes {
        let mut bytes = checksum.encode_meta_header().to_vec();
        checksum.compute(data, &mut bytes);
        bytes.into()
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let crc = DataChecksum::new(ChecksumKind::Crc32, 512).expect("valid");
        let good = sums_of(crc, &[1; 1000]);
        assert!(UnitSums::new(good.clone(), 1000).is_ok());
        assert!(UnitSums::new(good.clone(), 1024).is_ok(), "the same chunks");
        assert!(UnitSums::new(good.clone(), 1025).is_err());
        assert!(UnitSums::new(good.slice(..6), 0).is_err());
        let null = DataChecksum::new(ChecksumKind::Null, 512).expect("valid");
        assert!(UnitSums::new(sums_of(null, &[]), 0).is_err());
        let large = DataChecksum::new(ChecksumKind::Crc32, 2 << 20).expect("valid");
        assert!(UnitSums::new(sums_of(large, &[]), 0).is_err());
    }

    proptest! {
        #[test]
        fn ranges_are_compared_in_whole_chunks(
            chunk in 1..40_u32, len in 1..500_usize, from in 0..600_u64, more in 0..600_u64,
            flip in 0..500_usize,
        ) {
            let checksum = DataChecksum::new(ChecksumKind::Crc32c, chunk).expect("valid");
            let data: Vec<u8> = (0..len).map(|i| u8::try_from(i % 256).expect("a byte")).collect();
            let sums = UnitSums::new(sums_of(checksum, &data), len as u64).expect("fits");
            let range = sums.aligned(from..from + more);
            prop_assert!(range.end <= len as u64 && range.start <= from.min(len as u64));
            prop_assert!(range.end >= (from + more).min(len as u64));
            let (a, b) = (usize::try_from(range.start)?, usize::try_from(range.end)?);
            prop_assert!(sums.verify(range.start, &data[a..b]).is_ok());
            let mut broken = data.clone();
            let flip = flip % len;
            broken[flip] ^= 1;
            let hit = (a..b).contains(&flip);
            prop_assert_eq!(sums.verify(range.start, &broken[a..b]).is_err(), hit);
            if a + 1 < b && chunk > 1 {
                prop_assert!(sums.verify(range.start + 1, &data[a + 1..b]).is_err());
            }
        }

        #[test]
        fn pieces_of_any_length_are_compared(
            chunk in 1..40_u32, len in 1..500_usize, flip in proptest::option::of(0..500_usize),
            pieces in proptest::collection::vec(1..90_usize, 1..40),
        ) {
            let checksum = DataChecksum::new(ChecksumKind::Crc32, chunk).expect("valid");
            let mut data: Vec<u8> =
                (0..len).map(|i| u8::try_from(i % 256).expect("a byte")).collect();
            let sums = UnitSums::new(sums_of(checksum, &data), len as u64).expect("fits");
            if let Some(at) = flip {
                data[at % len] ^= 4;
            }
            let mut check = SumsCheck::new(sums);
            let (mut rest, mut bad) = (&data[..], false);
            for piece in pieces {
                let (now, later) = rest.split_at(piece.min(rest.len()));
                bad |= check.push(now).is_err();
                rest = later;
            }
            if !bad {
                bad = check.push(rest).is_err();
                prop_assert_eq!(bad, flip.is_some());
                prop_assert!(bad || check.is_complete());
            }
        }
    }
}
