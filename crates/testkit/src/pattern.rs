//! Test data as a pure function of a seed and a file offset, the same here and in the driver.

/// Byte at `offset` of the pattern: byte `offset % 8` (little endian) of a mixed 64-bit word.
#[must_use]
pub fn byte_at(seed: u64, offset: u64) -> u8 {
    word(seed, offset / 8).to_le_bytes()[usize::try_from(offset % 8).expect("below 8")]
}

/// Fills `out` with the pattern from `offset` on.
pub fn fill(seed: u64, offset: u64, out: &mut [u8]) {
    for (at, byte) in (offset..).zip(out.iter_mut()) {
        *byte = byte_at(seed, at);
    }
}

/// SplitMix64's output function over the word's number: cheap, and no two words are alike by habit.
fn word(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add((index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_on_offset_not_on_how_it_is_cut() {
        let mut whole = [0u8; 100];
        fill(7, 3, &mut whole);
        let mut parts = [0u8; 100];
        fill(7, 3, &mut parts[..41]);
        fill(7, 44, &mut parts[41..]);
        assert_eq!(whole, parts);
        assert_ne!(byte_at(7, 0), byte_at(8, 0), "the seed matters");
    }

    #[test]
    fn known_words_of_splitmix64() {
        // Reference outputs of SplitMix64 for seed 0: the driver's self test has the same.
        assert_eq!(word(0, 0), 0xE220_A839_7B1D_CDAF);
        assert_eq!(word(0, 1), 0x6E78_9E6A_A1B9_65F4);
    }
}
