//! CRC-32C of several short chunks at once.
//!
//! A replica has a checksum for every 512 bytes. A library computes one CRC at a time: within 512 bytes it either waits for
//! each step of the processor's CRC instruction before the next one, or splits the chunk into parts and spends more on putting
//! them together than on the parts. The chunks of a packet do not depend on each other, so here [`LANES`] of them take
//! turns, and nothing has to be put together (docs/decisions/0018).
//!
//! It stands alone because it has the only unsafe code outside `hayloft-io`: the call of a function for processors that
//! have the instruction, and a hint to the caches.

/// Chunks that are computed at once. The instruction gives its result after three cycles and can begin one in each, on the
/// x86-64 processors of the last decade.
pub const LANES: usize = 3;

/// The CRC-32C (Castagnoli, as in iSCSI) of each third of `data`; `None` when this processor has no instruction for it, or when
/// the length of `data` is no multiple of [`LANES`].
#[must_use]
#[inline]
pub fn crc32c_lanes(data: &[u8]) -> Option<[u32; LANES]> {
    let chunk = data.len() / LANES;
    if !data.len().is_multiple_of(LANES) {
        return None;
    }
    let (first, rest) = data.split_at(chunk);
    let (second, third) = rest.split_at(chunk);
    by_instruction([first, second, third])
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn by_instruction(chunks: [&[u8]; LANES]) -> Option<[u32; LANES]> {
    if !std::arch::is_x86_feature_detected!("sse4.2") {
        return None;
    }
    #[expect(unsafe_code, reason = "a call of a function for some processors only")]
    // SAFETY: `x86::crc32c` needs SSE 4.2 and nothing else, and this processor has just said that it has it.
    Some(unsafe { x86::crc32c(chunks) })
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn by_instruction(_: [&[u8]; LANES]) -> Option<[u32; LANES]> {
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_crc32_u8, _mm_crc32_u64, _mm_prefetch};

    use super::LANES;

    /// Bytes of a line of the caches.
    const LINE: usize = 64;

    /// The chunks have one length.
    #[target_feature(enable = "sse4.2")]
    pub fn crc32c(chunks: [&[u8]; LANES]) -> [u32; LANES] {
        // What comes next is usually the next chunks: three short stretches, of which the processor does not guess the next.
        let ahead = chunks[0].len() * LANES;
        let [(a, a_rest), (b, b_rest), (c, c_rest)] = chunks.map(<[u8]>::as_chunks::<8>);
        let mut crcs = [u64::from(!0u32); LANES];
        for (word, ((a, b), c)) in a.iter().zip(b).zip(c).enumerate() {
            if word.is_multiple_of(LINE / 8) {
                for lane in [a, b, c] {
                    ask_for(lane.as_ptr().wrapping_add(ahead));
                }
            }
            crcs[0] = _mm_crc32_u64(crcs[0], u64::from_le_bytes(*a));
            crcs[1] = _mm_crc32_u64(crcs[1], u64::from_le_bytes(*b));
            crcs[2] = _mm_crc32_u64(crcs[2], u64::from_le_bytes(*c));
        }
        let rests = [a_rest, b_rest, c_rest];
        let mut ends = [0; LANES];
        for ((end, crc), rest) in ends.iter_mut().zip(crcs).zip(rests) {
            let [b0, b1, b2, b3, ..] = crc.to_le_bytes();
            let mut crc = u32::from_le_bytes([b0, b1, b2, b3]);
            for byte in rest {
                crc = _mm_crc32_u8(crc, *byte);
            }
            *end = !crc;
        }
        ends
    }

    /// Has the line at `place` brought into the caches, if it is memory of ours.
    #[inline]
    fn ask_for(place: *const u8) {
        #[expect(unsafe_code, reason = "takes a pointer, which it does not follow")]
        // SAFETY: a prefetch is a hint: at any address whatever it reads nothing, changes nothing and cannot fault.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(place.cast());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn published_check_value() {
        let sums = crc32c_lanes(b"123456789123456789123456789");
        if sums.is_none() {
            println!("skipped: this processor has no instruction for CRC-32C");
            return;
        }
        assert_eq!(sums, Some([0xE306_9283; LANES]));
    }

    #[test]
    fn chunks_of_different_lengths_are_refused() {
        assert_eq!(crc32c_lanes(&[0; 3 * 512 + 1]), None);
        assert_eq!(crc32c_lanes(&[0; 3 * 512 + 2]), None);
    }

    proptest! {
        /// Each lane is what a library says of its chunk, whatever its length and place in memory.
        #[test]
        fn lanes_are_what_a_library_computes(data in prop::collection::vec(any::<u8>(), 0..4096), skip in 0usize..16) {
            let data = data.get(skip..).unwrap_or_default();
            let chunk = data.len() / LANES;
            let data = &data[..chunk * LANES];
            if let Some(sums) = crc32c_lanes(data) {
                for (lane, sum) in sums.into_iter().enumerate() {
                    prop_assert_eq!(sum, crc_fast::crc32_iscsi(&data[lane * chunk..][..chunk]));
                }
            }
        }
    }
}
