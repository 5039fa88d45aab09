//! By carry-less multiplication in registers of 512 bits (AVX-512 and VPCLMULQDQ).
//!
//! A message is a polynomial over GF(2) and its CRC the remainder by [`POLYNOMIAL`]. A register
//! holds 64 bytes of it as four lanes of 128 bits. Each step moves the register by 64 bytes and
//! adds the next 64. It takes two multiplications a lane, with powers of x that are known when this
//! is compiled. At the end three lanes are moved onto the last one and added. What is left, 128
//! bits with the same remainder, goes through the processor's CRC instruction.
//!
//! One chunk is a chain of such steps, in which each waits for the one before. This code does not
//! put the chunks of a call in turns. The processor looks further ahead than a chunk of 512 bytes
//! is long, and does it itself.

use std::arch::x86_64::{
    __m512i, _mm_crc32_u64, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_xor_si128,
    _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_xor_si256, _mm512_castsi512_si256,
    _mm512_clmulepi64_epi128, _mm512_extracti64x4_epi64, _mm512_loadu_si512, _mm512_set_epi64,
    _mm512_setzero_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use crate::{MOST_CHUNKS, ask_for};

/// Bytes of a register.
pub const REGISTER: usize = 64;

/// Longest chunk that this is the quickest way for, in bytes. The processor does not look beyond
/// longer ones, so that their steps wait for each other. A library that has several chains within
/// one of them is quicker (crc-fast: 44 instead of 52 ns at 4 KiB).
pub const LONGEST_CHUNK: usize = 2048;

/// How far ahead of what is computed memory is asked for, in bytes. It is a page: a processor that
/// guesses what comes next stops at the end of one.
const AHEAD: usize = 4096;

/// CRC-32C's, reflected, without its highest power.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Moves each lane by a register.
const BY_REGISTER: [Powers; 4] = [Powers::of(512); 4];

/// Moves each lane onto the last one.
const ONTO_LAST: [Powers; 4] = [
    Powers::of(384),
    Powers::of(256),
    Powers::of(128),
    Powers::of(0),
];

/// What a lane is multiplied by to move it: its first half, which has the higher powers, and its
/// second.
#[derive(Clone, Copy)]
struct Powers {
    first: u64,
    second: u64,
}

impl Powers {
    /// To move a lane by `bits`. The first half is 64 ahead of the second.
    const fn of(bits: u32) -> Self {
        Powers {
            first: power(bits + 64),
            second: power(bits),
        }
    }
}

/// The remainder of x to the power `exponent` - 1, reflected, as a half of a lane. It is one power
/// less since a product of two reflected halves has its bits one place further on than a reflected
/// lane would.
const fn power(exponent: u32) -> u64 {
    // x to the power -1 is what gives 1 when it is multiplied by x. It is (polynomial + 1) / x,
    // with the highest power of 31.
    let mut remainder = ((POLYNOMIAL ^ (1 << 31)) << 1) | 1;
    let mut left = exponent;
    while left > 0 {
        let carry = remainder & 1;
        remainder >>= 1;
        if carry == 1 {
            remainder ^= POLYNOMIAL;
        }
        left -= 1;
    }
    (remainder as u64) << 32
}

/// Whether this processor has what it takes.
#[inline]
pub fn is_there() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("vpclmulqdq")
        && std::arch::is_x86_feature_detected!("sse4.2")
}

/// The CRCs of the first chunks, whose length is a multiple of [`REGISTER`]: see
/// [`crate::crc32c_chunks`]. 0 when this processor does not have what it takes.
#[inline]
pub fn crc32c(data: &[u8], chunk: usize, crcs: &mut [u32; MOST_CHUNKS]) -> usize {
    if !is_there() {
        return 0;
    }
    #[expect(unsafe_code, reason = "a call of a function for some processors only")]
    // SAFETY: `one_by_one` needs what `is_there` asks for and nothing else, and this processor has
    // just said that it has it.
    unsafe {
        one_by_one(data, chunk, crcs)
    }
}

#[target_feature(enable = "avx512f,vpclmulqdq,sse4.2")]
fn one_by_one(data: &[u8], chunk: usize, crcs: &mut [u32; MOST_CHUNKS]) -> usize {
    let by_register = powers(BY_REGISTER);
    let onto_last = powers(ONTO_LAST);
    // A CRC begins with all ones, which is to add them to the first four bytes.
    let ones = _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, 0xFFFF_FFFF);
    let mut taken = 0;
    for (crc, chunk) in crcs.iter_mut().zip(data.chunks_exact(chunk)) {
        let (registers, _) = chunk.as_chunks::<REGISTER>();
        let Some((first, rest)) = registers.split_first() else {
            break;
        };
        ask_for(first.as_ptr().wrapping_add(AHEAD));
        let mut sum = _mm512_xor_si512(ones, load(first));
        for register in rest {
            ask_for(register.as_ptr().wrapping_add(AHEAD));
            sum = moved(sum, by_register, load(register));
        }
        *crc = remainder(moved(sum, onto_last, _mm512_setzero_si512()));
        taken += 1;
    }
    taken
}

/// Each lane of `sum` multiplied by its powers, and `next` added.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn moved(sum: __m512i, powers: __m512i, next: __m512i) -> __m512i {
    /// Of three operands: all of them added.
    const XOR: i32 = 0x96;
    _mm512_ternarylogic_epi64::<XOR>(
        _mm512_clmulepi64_epi128::<0x00>(sum, powers),
        _mm512_clmulepi64_epi128::<0x11>(sum, powers),
        next,
    )
}

/// The CRC of what the lanes have together.
#[inline]
#[target_feature(enable = "avx512f,sse4.2")]
fn remainder(lanes: __m512i) -> u32 {
    let pair = _mm256_xor_si256(
        _mm512_castsi512_si256(lanes),
        _mm512_extracti64x4_epi64::<1>(lanes),
    );
    let lane = _mm_xor_si128(
        _mm256_castsi256_si128(pair),
        _mm256_extracti128_si256::<1>(pair),
    );
    let crc = _mm_crc32_u64(0, _mm_cvtsi128_si64(lane).cast_unsigned());
    let crc = _mm_crc32_u64(crc, _mm_extract_epi64::<1>(lane).cast_unsigned());
    let [b0, b1, b2, b3, ..] = crc.to_le_bytes();
    !u32::from_le_bytes([b0, b1, b2, b3])
}

#[inline]
#[target_feature(enable = "avx512f")]
fn powers(lanes: [Powers; 4]) -> __m512i {
    let [(a0, a1), (b0, b1), (c0, c1), (d0, d1)] =
        lanes.map(|lane| (lane.first.cast_signed(), lane.second.cast_signed()));
    _mm512_set_epi64(d1, d0, c1, c0, b1, b0, a1, a0)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; REGISTER]) -> __m512i {
    #[expect(
        unsafe_code,
        reason = "a load takes a pointer; what does not becomes eleven instructions"
    )]
    // SAFETY: it reads 64 bytes, which is what `bytes` refers to, and they may lie anywhere.
    unsafe {
        _mm512_loadu_si512(bytes.as_ptr().cast())
    }
}
