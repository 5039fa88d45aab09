//! By the processor's CRC instruction (SSE 4.2), three chunks in turn.

use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};

use crate::{MOST_CHUNKS, ask_for};

/// Chunks that are computed at once. The instruction gives its result after three cycles and can
/// begin one in each, on the x86-64 processors of the last decade.
const LANES: usize = 3;

/// Bytes of a line of the caches.
const LINE: usize = 64;

/// The CRCs of the first [`LANES`] chunks: see [`crate::crc32c_chunks`]. 0 when there are fewer or
/// this processor has no instruction for it.
#[inline]
pub fn crc32c(data: &[u8], chunk: usize, crcs: &mut [u32; MOST_CHUNKS]) -> usize {
    let mut chunks = data.chunks_exact(chunk);
    let (Some(a), Some(b), Some(c)) = (chunks.next(), chunks.next(), chunks.next()) else {
        return 0;
    };
    if !std::arch::is_x86_feature_detected!("sse4.2") {
        return 0;
    }
    #[expect(unsafe_code, reason = "a call of a function for some processors only")]
    // SAFETY: `in_turn` needs SSE 4.2 and nothing else, and this processor has just said that it
    // has it.
    crcs[..LANES].copy_from_slice(&unsafe { in_turn([a, b, c]) });
    LANES
}

/// The chunks have one length.
#[target_feature(enable = "sse4.2")]
fn in_turn(chunks: [&[u8]; LANES]) -> [u32; LANES] {
    // What comes next is usually the next chunks: three short stretches, of which the processor
    // does not guess the next.
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
