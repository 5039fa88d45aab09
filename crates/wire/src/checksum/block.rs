//! Checksums of whole blocks, made from the checksums of their chunks.

use std::fmt;

use md5::{Digest as _, Md5};

use super::ChecksumKind;

/// MD5 over the chunk checksums of a block (the `MD5CRC` block checksum).
#[derive(Clone, Default)]
pub struct Md5OfCrcs(Md5);

impl Md5OfCrcs {
    /// Adds stored checksums, in any split.
    pub fn update(&mut self, sums: &[u8]) {
        self.0.update(sums);
    }

    /// The 16 bytes of the digest.
    #[must_use]
    pub fn finish(self) -> [u8; 16] {
        self.0.finalize().into()
    }
}

impl fmt::Debug for Md5OfCrcs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Md5OfCrcs")
    }
}

/// Appends pieces of one length to a CRC: `crc(A + B)` from `crc(A)`, `crc(B)` and the length of B.
/// Making one costs about 30 multiplications, using it one.
#[derive(Clone, Copy, Debug)]
pub struct CrcShift {
    polynomial: u32,
    /// x to the power of eight times the length, modulo the polynomial.
    factor: u32,
}

impl CrcShift {
    /// For appending pieces of `len_bytes` bytes.
    #[must_use]
    pub fn new(kind: ChecksumKind, len_bytes: u64) -> Self {
        const X_TO_0: u32 = 1 << 31;
        const X_TO_8: u32 = 1 << 23;
        let polynomial = kind.polynomial();
        let (mut factor, mut power, mut left) = (X_TO_0, X_TO_8, len_bytes);
        while left != 0 {
            if left & 1 == 1 {
                factor = multiply(factor, power, polynomial);
            }
            power = multiply(power, power, polynomial);
            left >>= 1;
        }
        CrcShift { polynomial, factor }
    }

    /// CRC of A followed by B.
    #[must_use]
    pub fn append(self, crc_a: u32, crc_b: u32) -> u32 {
        multiply(self.factor, crc_a, self.polynomial) ^ crc_b
    }
}

/// Product of two polynomials over GF(2) modulo a third, bits reflected (bit 31 is x^0).
fn multiply(a: u32, b: u32, polynomial: u32) -> u32 {
    let (mut product, mut b) = (0, b);
    for bit in (0..32).rev() {
        if a >> bit & 1 == 1 {
            product ^= b;
        }
        b = if b & 1 == 1 {
            b >> 1 ^ polynomial
        } else {
            b >> 1
        };
    }
    product
}

/// Joins chunk CRCs into the CRC of all their data (the `COMPOSITE_CRC` block checksum), one result
/// for every stripe when a stripe length is given.
#[derive(Clone, Debug)]
pub struct CompositeCrc {
    kind: ChecksumKind,
    stripe_bytes: u64,
    in_stripe_bytes: u64,
    crc: u32,
    shift: CrcShift,
    shift_bytes: u64,
    done: Vec<u8>,
}

/// A piece that runs over the end of a stripe: chunk boundaries and stripes do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a piece of {piece_bytes} bytes crosses the end of a stripe of {stripe_bytes} bytes")]
pub struct StripeError {
    piece_bytes: u64,
    stripe_bytes: u64,
}

impl CompositeCrc {
    /// A result for every `stripe_bytes` bytes, or one for all with `None` (or `Some(0)`).
    #[must_use]
    pub fn new(kind: ChecksumKind, bytes_per_checksum: u32, stripe_bytes: Option<u64>) -> Self {
        let shift_bytes = u64::from(bytes_per_checksum);
        CompositeCrc {
            kind,
            stripe_bytes: stripe_bytes.filter(|&bytes| bytes > 0).unwrap_or(u64::MAX),
            in_stripe_bytes: 0,
            crc: 0,
            shift: CrcShift::new(kind, shift_bytes),
            shift_bytes,
            done: Vec::new(),
        }
    }

    /// Adds a piece of `piece_bytes` bytes with the CRC `crc`.
    pub fn update(&mut self, crc: u32, piece_bytes: u64) -> Result<(), StripeError> {
        let error = StripeError {
            piece_bytes,
            stripe_bytes: self.stripe_bytes,
        };
        let in_stripe_bytes = self.in_stripe_bytes.checked_add(piece_bytes).ok_or(error)?;
        if in_stripe_bytes > self.stripe_bytes {
            return Err(error);
        }
        let shift = if piece_bytes == self.shift_bytes {
            self.shift
        } else {
            CrcShift::new(self.kind, piece_bytes)
        };
        self.crc = if self.in_stripe_bytes == 0 {
            crc
        } else {
            shift.append(self.crc, crc)
        };
        self.in_stripe_bytes = in_stripe_bytes;
        if in_stripe_bytes == self.stripe_bytes {
            self.end_stripe();
        }
        Ok(())
    }

    fn end_stripe(&mut self) {
        self.done.extend_from_slice(&self.crc.to_be_bytes());
        self.crc = 0;
        self.in_stripe_bytes = 0;
    }

    /// The results, big-endian, one after the other. Nothing when nothing was added.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        if self.in_stripe_bytes > 0 {
            self.end_stripe();
        }
        self.done
    }
}
