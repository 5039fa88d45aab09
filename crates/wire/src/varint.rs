//! Protobuf's base-128 integers.

use bytes::BufMut;

/// Longest encoding of a 64-bit value, in bytes.
pub const MAX_LEN: usize = 10;

/// Takes an unsigned value from the front of `bytes`. `None` when the bytes end early or hold more
/// than 64 bits; `bytes` is then unchanged.
pub fn read_u64(bytes: &mut &[u8]) -> Option<u64> {
    match peek_u64(bytes) {
        Peek::Value(value, len) => {
            *bytes = &bytes[len..];
            Some(value)
        }
        Peek::Incomplete | Peek::Overlong => None,
    }
}

/// What stands at the front of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek {
    /// A value and the number of bytes it takes.
    Value(u64, usize),
    /// More bytes are needed.
    Incomplete,
    /// More than 64 bits; no further byte can mend it.
    Overlong,
}

/// Looks at the value at the front of `bytes`.
#[must_use]
pub fn peek_u64(bytes: &[u8]) -> Peek {
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().take(MAX_LEN).enumerate() {
        if index == MAX_LEN - 1 && byte > 1 {
            return Peek::Overlong;
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Peek::Value(value, index + 1);
        }
    }
    if bytes.len() >= MAX_LEN {
        Peek::Overlong
    } else {
        Peek::Incomplete
    }
}

/// Appends an unsigned value.
pub fn write_u64(out: &mut impl BufMut, value: u64) {
    let mut left = value;
    while left >= 0x80 {
        out.put_u8(u8::try_from(left & 0x7f).expect("seven bits fit") | 0x80);
        left >>= 7;
    }
    out.put_u8(u8::try_from(left).expect("seven bits fit"));
}

/// Number of bytes that [`write_u64`] appends.
#[must_use]
pub const fn len_u64(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Maps a signed value to an unsigned one so that small magnitudes stay short (protobuf's `sint`).
#[must_use]
pub const fn zigzag(value: i64) -> u64 {
    (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned()
}

/// Undoes [`zigzag`].
#[must_use]
pub const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}
