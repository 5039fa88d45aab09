//! CRC-32C of several short chunks at once.
//!
//! A replica has a checksum for every 512 bytes. A library computes one CRC at a time. Within 512
//! bytes it may wait for each step of the processor's CRC instruction before the next one. Or it
//! splits the chunk into parts, and spends more on putting them together than on the parts. The
//! chunks of a packet do not depend on each other, so here several of them take turns. Where the
//! processor has wide registers, carry-less multiplication does it (docs/decisions/0018), else the
//! CRC instruction.
//!
//! It stands alone because it has the only unsafe code outside `hayloft-io` and `hayloft-gss`. This
//! calls functions for processors that have what they use, loads registers, and gives a hint to the
//! caches.

#[cfg(target_arch = "x86_64")]
mod lanes;
#[cfg(target_arch = "x86_64")]
mod wide;

/// Most chunks that one call takes: a packet of the default size, 126 chunks of 512 bytes, is seven
/// calls.
pub const MOST_CHUNKS: usize = 18;

/// Puts the CRC-32C (Castagnoli, as in iSCSI) of the first chunks of `data`, of `chunk` bytes each,
/// into `crcs`, and returns of how many. It takes as many as this processor has a quick way for, at
/// most [`MOST_CHUNKS`] and the whole ones of `data`. It returns 0 when one chunk at a time by a
/// library is quicker or all there is. That is so for a processor without such instructions, and
/// for the last one or two chunks of some. It is so for chunks of more than 2 KiB on processors
/// with wide registers.
#[inline]
pub fn crc32c_chunks(data: &[u8], chunk: usize, crcs: &mut [u32; MOST_CHUNKS]) -> usize {
    if chunk == 0 {
        return 0;
    }
    by_processor(data, chunk, crcs)
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn by_processor(data: &[u8], chunk: usize, crcs: &mut [u32; MOST_CHUNKS]) -> usize {
    if chunk.is_multiple_of(wide::REGISTER) && wide::is_there() {
        if chunk > wide::LONGEST_CHUNK {
            return 0;
        }
        return wide::crc32c(data, chunk, crcs);
    }
    lanes::crc32c(data, chunk, crcs)
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn by_processor(_: &[u8], _: usize, _: &mut [u32; MOST_CHUNKS]) -> usize {
    0
}

/// Has the line of the caches at `place` brought into them, if it is memory of ours.
#[cfg(target_arch = "x86_64")]
#[inline]
fn ask_for(place: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    #[expect(unsafe_code, reason = "takes a pointer, which it does not follow")]
    // SAFETY: a prefetch is a hint: at any address whatever it reads nothing, changes nothing and
    // cannot fault.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Way = fn(&[u8], usize, &mut [u32; MOST_CHUNKS]) -> usize;

    /// Every way that this processor has, of which a call takes only the quickest.
    fn ways() -> Vec<(&'static str, Way)> {
        let mut ways: Vec<(&str, Way)> = vec![("the quickest", crc32c_chunks)];
        #[cfg(target_arch = "x86_64")]
        {
            ways.push(("instruction", lanes::crc32c));
            if wide::is_there() {
                ways.push(("wide", wide::crc32c));
            } else {
                println!("skipped: this processor has no wide carry-less multiplication");
            }
        }
        ways
    }

    /// The whole chunks of `data`, call after call until one takes none.
    fn all(way: Way, data: &[u8], chunk: usize) -> Vec<u32> {
        let mut sums = Vec::new();
        loop {
            let mut crcs = [0; MOST_CHUNKS];
            let taken = way(&data[sums.len() * chunk..], chunk, &mut crcs);
            if taken == 0 {
                return sums;
            }
            sums.extend_from_slice(&crcs[..taken]);
        }
    }

    fn by_library(data: &[u8], chunk: usize) -> Vec<u32> {
        data.chunks_exact(chunk)
            .map(crc_fast::crc32_iscsi)
            .collect()
    }

    #[test]
    fn published_check_value() {
        for (name, way) in ways() {
            let sums = all(way, &b"123456789".repeat(3), 9);
            assert!(
                sums.iter().all(|sum| *sum == 0xE306_9283),
                "{name}: {sums:08x?}"
            );
        }
    }

    #[test]
    fn a_packet_of_the_default_size_is_taken_whole() {
        let packet: Vec<u8> = (0..126 * 512u32)
            .map(|at| at.wrapping_mul(0x9E37_79B9).to_be_bytes()[0])
            .collect();
        for (name, way) in ways() {
            let sums = all(way, &packet, 512);
            if sums.is_empty() {
                println!("skipped: this processor has no instruction for CRC-32C");
                continue;
            }
            assert_eq!(sums, by_library(&packet, 512), "{name}");
        }
    }

    #[test]
    fn what_has_no_chunk_is_not_taken() {
        for (name, way) in ways() {
            assert_eq!(all(way, &[], 512), [], "{name}");
            assert_eq!(all(way, &[0; 511], 512), [], "{name}");
        }
        assert_eq!(crc32c_chunks(&[0; 512], 0, &mut [0; MOST_CHUNKS]), 0);
    }

    proptest! {
        /// Each chunk has what a library says of it, whatever its length and place in memory, and
        /// none is left out between.
        #[test]
        fn chunks_have_what_a_library_computes(
            data in prop::collection::vec(any::<u8>(), 0..8192),
            skip in 0usize..70,
            chunk in prop_oneof![1usize..700, (1usize..40).prop_map(|registers| registers * 64)],
        ) {
            let data = data.get(skip..).unwrap_or_default();
            let wanted = by_library(data, chunk);
            for (name, way) in ways() {
                if name == "wide" && chunk % 64 != 0 {
                    continue;
                }
                let sums = all(way, data, chunk);
                prop_assert!(sums.len() <= wanted.len(), "{}", name);
                prop_assert_eq!(&sums[..], &wanted[..sums.len()], "{}", name);
                if name == "wide" {
                    prop_assert_eq!(sums.len(), wanted.len());
                }
            }
        }
    }
}
