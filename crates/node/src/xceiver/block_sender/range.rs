//! Which bytes a reader gets: whole chunks, because only they have checksums.

use hayloft_wire::checksum::{ChecksumKind, DataChecksum};

/// Chunk size that a reply without checksums names.
const CHUNK_WITHOUT_CHECKSUMS: u32 = 512;

/// What is to be sent: whole chunks around what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte sent, at a chunk boundary at or before the first byte asked for.
    pub start: u64,
    /// End of the last chunk that was asked for, or of the data.
    pub end: u64,
    /// How the packets are checksummed.
    pub checksum: DataChecksum,
}

impl Range {
    /// Extends `offset..offset + len` to whole chunks of `stored`, within `readable` bytes. Without
    /// `with_sums` the packets carry no checksums.
    ///
    /// # Errors
    /// The range asked for is not within `readable`, as a sentence about `block`.
    pub fn new(
        offset: u64,
        len: u64,
        readable: u64,
        stored: DataChecksum,
        with_sums: bool,
        block: &dyn std::fmt::Display,
    ) -> Result<Self, String> {
        let asked_end = offset.checked_add(len).filter(|&end| end <= readable);
        let Some(asked_end) = asked_end else {
            return Err(format!(
                "offset {offset} and length {len} are not within {block}, which has {readable} \
                    bytes to read"
            ));
        };
        let checksum = if with_sums && stored.kind() != ChecksumKind::Null {
            stored
        } else {
            DataChecksum::new(ChecksumKind::Null, CHUNK_WITHOUT_CHECKSUMS)
                .expect("a constant within the limits")
        };
        let chunk = u64::from(checksum.bytes_per_checksum());
        let end = asked_end
            .checked_next_multiple_of(chunk)
            .map_or(readable, |end| end.min(readable));
        Ok(Self {
            start: checksum.chunk_start(offset),
            end,
            checksum,
        })
    }

    /// Bytes that will be sent.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end - self.start
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn crc(chunk: u32) -> DataChecksum {
        DataChecksum::new(ChecksumKind::Crc32c, chunk).expect("valid")
    }

    #[test]
    fn ranges_grow_to_whole_chunks() {
        let range = Range::new(700, 100, 10_000, crc(512), true, &"b").expect("within");
        assert_eq!((range.start, range.end), (512, 1024));
        let range = Range::new(9_999, 1, 10_000, crc(512), true, &"b").expect("within");
        assert_eq!((range.start, range.end), (9_728, 10_000));
        let range = Range::new(10_000, 0, 10_000, crc(512), true, &"b").expect("within");
        assert_eq!((range.start, range.end), (9_728, 10_000));
        let range = Range::new(0, 0, 0, crc(512), true, &"b").expect("within");
        assert_eq!(range.len(), 0);
    }

    #[test]
    fn without_checksums_the_grid_is_512() {
        let range = Range::new(700, 100, 10_000, crc(4096), false, &"b").expect("within");
        assert_eq!(
            (range.start, range.end, range.checksum.sum_size()),
            (512, 1024, 0)
        );
    }

    #[test]
    fn ranges_beyond_the_end_are_refused() {
        assert!(Range::new(0, 11, 10, crc(512), true, &"b").is_err());
        assert!(Range::new(11, 0, 10, crc(512), true, &"b").is_err());
        assert!(Range::new(u64::MAX, 2, 10, crc(512), true, &"b").is_err());
    }

    proptest! {
        #[test]
        fn a_range_holds_what_was_asked_for(
            offset in 0u64..100_000,
            len in 0u64..100_000,
            more in 0u64..10_000,
            chunk in 1u32..5000,
        ) {
            let readable = offset + len + more;
            let range = Range::new(offset, len, readable, crc(chunk), true, &"b").expect("within");
            prop_assert!(range.start <= offset && range.end >= offset + len);
            prop_assert!(range.end <= readable);
            prop_assert!(range.start.is_multiple_of(u64::from(chunk)));
            prop_assert!(range.end == readable || range.end.is_multiple_of(u64::from(chunk)));
            prop_assert!(offset - range.start < u64::from(chunk));
        }
    }
}
