//! What the load client writes, and expects to read back.

use hayloft_wire::checksum::{ChecksumKind, DataChecksum};

/// Bytes per checksum of everything the client writes, HDFS's default.
pub const CHUNK: usize = 512;

/// Chunks after which the data repeats: prime, so that pieces which were swapped at any power of
/// two are seen.
const PERIOD_CHUNKS: usize = 2039;

/// Longest stretch of data that can be asked for, bytes: the largest packet.
pub const SPAN_MAX: usize = 1 << 20;

/// About 1 MiB of pattern with its checksums, computed once: small enough to stay in a processor's
/// cache, so that making data costs the client next to nothing.
///
/// The byte at `offset` of a block with the salt `salt` is byte `(salt + offset) % period` of the
/// pattern. The salt differs from block to block, so that blocks cannot be mistaken for each other.
#[derive(Debug)]
pub struct Data {
    bytes: Vec<u8>,
    sums: Vec<u8>,
    checksum: DataChecksum,
}

impl Data {
    /// The pattern and its CRC32C sums.
    #[must_use]
    pub fn new() -> Self {
        let period = PERIOD_CHUNKS * CHUNK;
        let mut bytes = vec![0; period + SPAN_MAX];
        crate::pattern::fill(0x4841_594C_4F46_5421, 0, &mut bytes[..period]);
        bytes.copy_within(..SPAN_MAX, period);
        let chunk = u32::try_from(CHUNK).expect("512");
        let checksum =
            DataChecksum::new(ChecksumKind::Crc32c, chunk).expect("a chunk size that is allowed");
        let mut sums = Vec::new();
        checksum.compute(&bytes, &mut sums);
        Self {
            bytes,
            sums,
            checksum,
        }
    }

    /// The checksum that packets carry.
    #[must_use]
    pub const fn checksum(&self) -> DataChecksum {
        self.checksum
    }

    /// The salt of block `id`: a whole number of chunks.
    #[must_use]
    pub fn salt(id: i64) -> u64 {
        // An odd multiplier spreads neighbouring ids over the period.
        let mixed = id.unsigned_abs().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        mixed % PERIOD_CHUNKS as u64 * CHUNK as u64
    }

    /// `len` bytes of the data at `offset` of a block.
    ///
    /// # Panics
    /// When `len` is more than [`SPAN_MAX`].
    #[must_use]
    pub fn bytes(&self, salt: u64, offset: u64, len: usize) -> &[u8] {
        let at = Self::at(salt, offset);
        &self.bytes[at..at + len]
    }

    /// The checksums of `len` bytes at `offset` of a block, `offset` at a chunk's start. When the
    /// last chunk is a part of one, they are put into `spare` and nothing is returned.
    #[must_use]
    pub fn sums(&self, salt: u64, offset: u64, len: usize, spare: &mut Vec<u8>) -> &[u8] {
        let first = Self::at(salt, offset) / CHUNK * 4;
        let whole = first + len / CHUNK * 4;
        if len.is_multiple_of(CHUNK) {
            return &self.sums[first..whole];
        }
        // Short files end in a part of a chunk; this is the only place that computes while
        // measuring.
        spare.clear();
        spare.extend_from_slice(&self.sums[first..whole]);
        let rest = len % CHUNK;
        let tail = self.bytes(salt, offset + (len - rest) as u64, rest);
        self.checksum.compute(tail, spare);
        // The caller reads them from `spare`.
        &[]
    }

    /// Whether `seen` is what was written at `offset` of a block.
    #[must_use]
    pub fn matches(&self, salt: u64, offset: u64, seen: &[u8]) -> bool {
        let mut at = offset;
        seen.chunks(SPAN_MAX).all(|piece| {
            let same = self.bytes(salt, at, piece.len()) == piece;
            at += piece.len() as u64;
            same
        })
    }

    fn at(salt: u64, offset: u64) -> usize {
        let period = (PERIOD_CHUNKS * CHUNK) as u64;
        usize::try_from((salt + offset) % period).expect("about a million")
    }
}

impl Default for Data {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_belong_to_the_bytes_wherever_they_are_cut() {
        let data = Data::new();
        let mut spare = Vec::new();
        for id in [1, 2, 1_073_741_825] {
            for (offset, len) in [
                (0, 64512),
                (64512 * 1000, 64512),
                (512 * 2038, 65536),
                (0, 700),
            ] {
                let salt = Data::salt(id);
                let bytes = data.bytes(salt, offset, len);
                let sums = data.sums(salt, offset, len, &mut spare);
                let sums = if sums.is_empty() { &spare[..] } else { sums };
                data.checksum().verify(bytes, sums).expect("they match");
            }
        }
    }

    #[test]
    fn blocks_and_places_differ() {
        let data = Data::new();
        let (a, b) = (Data::salt(1001), Data::salt(1002));
        assert_ne!(data.bytes(a, 0, 512), data.bytes(b, 0, 512));
        assert_ne!(data.bytes(a, 0, 512), data.bytes(a, 1 << 20, 512));
        assert_ne!(data.bytes(a, 0, 512), data.bytes(a, 1 << 26, 512));
    }
}
