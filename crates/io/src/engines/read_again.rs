//! Which parts of an open file were read around the page cache before.
//!
//! What is read once, by a scan or a copy, is better kept out of the page cache. What is read again
//! while the file is still open is likely to be read a third time: that goes through the cache and
//! stays there.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that one bit stands for; direct reads are at least as long.
const UNIT: u64 = 256 * 1024;
/// 2048 bits: 512 MiB. In a longer file parts share bits, and some of it gets into the cache at
/// once.
const WORDS: usize = 32;

#[derive(Debug, Default)]
pub(super) struct ReadBefore([AtomicU64; WORDS]);

impl ReadBefore {
    /// Whether what is at `offset` was read before.
    pub(super) fn has(&self, offset: u64) -> bool {
        let (word, bit) = place(offset / UNIT);
        self.0[word].load(Ordering::Relaxed) & bit != 0
    }

    /// Whether the beginning of the range was read before; if not, all of it counts as read from
    /// now on.
    pub(super) fn again(&self, offset: u64, len: usize) -> bool {
        let first = offset / UNIT;
        let (word, bit) = place(first);
        if self.0[word].fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return true;
        }
        let len = u64::try_from(len).expect("usize fits in u64 on Linux");
        // Units that are read to their end: another read begins in the last one.
        for unit in first + 1..(offset.saturating_add(len) / UNIT).max(first + 1) {
            let (word, bit) = place(unit);
            self.0[word].fetch_or(bit, Ordering::Relaxed);
        }
        false
    }
}

fn place(unit: u64) -> (usize, u64) {
    let word = usize::try_from(unit / u64::from(u64::BITS) % WORDS as u64);
    (
        word.expect("below WORDS"),
        1 << (unit % u64::from(u64::BITS)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_second_pass_is_noticed_whatever_its_pieces() {
        let before = ReadBefore::default();
        for (offset, len) in [(0, 1 << 20), (MIB, 2 << 20), (3 * MIB, 4 << 20)] {
            assert!(!before.again(offset, len), "first read at {offset}");
        }
        for offset in [0, MIB / 2, 2 * MIB, 4 * MIB, 6 * MIB] {
            assert!(before.has(offset), "asked at {offset}");
            assert!(before.again(offset, 1 << 20), "read again at {offset}");
        }
        assert!(
            !before.has(7 * MIB) && !before.has(7 * MIB),
            "asking is not reading"
        );
        assert!(!before.again(7 * MIB, 1 << 20), "beyond what was read");
    }

    #[test]
    fn pieces_that_end_within_a_unit_do_not_count_for_the_next_one() {
        let before = ReadBefore::default();
        assert!(!before.again(0, (1 << 20) + 5000));
        assert!(
            !before.again(MIB, 1 << 20),
            "only its first bytes were read"
        );
        assert!(!before.again(u64::MAX - 5000, 5000), "no overflow");
    }
}
