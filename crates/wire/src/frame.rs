//! Messages preceded by their length as a varint: the framing of data transfer and of the parts of
//! an RPC frame. "Not enough bytes yet" is a value, not an error.

use bytes::{Buf, Bytes, BytesMut};

use crate::schema::{self, SchemaError, WireMessage};
use crate::varint::{self, Peek};

/// Why a frame cannot be taken from a buffer. All of them mean: close the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The announced length exceeds the limit of this place.
    #[error(
        "the peer announced a message of {announced_bytes} bytes; at most {limit_bytes} are \
            accepted"
    )]
    TooLong {
        /// Length the peer announced.
        announced_bytes: u64,
        /// Limit of this place.
        limit_bytes: usize,
    },
    /// The length is no valid varint.
    #[error("the peer sent a length that is no 64-bit number")]
    BadLength,
    /// The bytes end inside a message that should be complete.
    #[error("the bytes end inside a {message}")]
    Truncated {
        /// Hadoop's name of the message.
        message: &'static str,
    },
    /// The message is malformed, incomplete or too costly.
    #[error("the peer sent an unacceptable message: {0}")]
    Schema(#[from] SchemaError),
    /// prost found what the check did not, such as a string that is not UTF-8.
    #[error("the peer sent an undecodable message: {0}")]
    Decode(#[from] prost::DecodeError),
}

/// Decoded form of a message may take this many times its encoded limit, plus a constant, in
/// memory.
const MEMORY_FACTOR: usize = 16;
const MEMORY_BASE_BYTES: usize = 64 << 10;

fn memory_budget(limit_bytes: usize) -> usize {
    limit_bytes
        .saturating_mul(MEMORY_FACTOR)
        .saturating_add(MEMORY_BASE_BYTES)
}

/// Decodes a whole message from `bytes`, and rejects those that are malformed, lack required
/// fields, or would take many times `bytes.len()` of memory.
pub fn decode<M: WireMessage>(bytes: Bytes) -> Result<M, FrameError> {
    schema::check::<M>(&bytes, memory_budget(bytes.len()))?;
    Ok(M::decode(bytes)?)
}

/// Takes a length-delimited message from the front of `buf`. `Ok(None)`: incomplete, read more (the
/// buffer is unchanged, except that [`reserve_for`] makes room).
pub fn decode_delimited<M: WireMessage>(
    buf: &mut BytesMut,
    limit_bytes: usize,
) -> Result<Option<M>, FrameError> {
    let Some(bytes) = take_delimited(buf, limit_bytes)? else {
        return Ok(None);
    };
    decode(bytes).map(Some)
}

/// Takes the bytes of a length-delimited message from the front of `buf`, without its length.
pub fn take_delimited(buf: &mut BytesMut, limit_bytes: usize) -> Result<Option<Bytes>, FrameError> {
    let Some((len, prefix)) = peek_len(buf, limit_bytes)? else {
        return Ok(None);
    };
    if buf.len() < prefix + len {
        reserve_for(buf, prefix + len);
        return Ok(None);
    }
    buf.advance(prefix);
    Ok(Some(buf.split_to(len).freeze()))
}

/// Length of the delimited message at the front of `bytes`, its length prefix included. `Ok(None)`
/// when even the prefix is incomplete.
pub fn delimited_len(bytes: &[u8], limit_bytes: usize) -> Result<Option<usize>, FrameError> {
    Ok(peek_len(bytes, limit_bytes)?.map(|(len, prefix)| prefix + len))
}

/// Makes room in `buf` for the rest of something of `whole_bytes` bytes, but never more than it has
/// received so far or [`MIN_RESERVE_BYTES`]. A peer pays for memory with bytes, not with promises.
pub fn reserve_for(buf: &mut BytesMut, whole_bytes: usize) {
    let missing = whole_bytes.saturating_sub(buf.len());
    buf.reserve(missing.min(buf.len().max(MIN_RESERVE_BYTES)));
}

/// What [`reserve_for`] grants at once: enough for a packet of the usual 64 KiB.
pub const MIN_RESERVE_BYTES: usize = 128 << 10;

/// Takes a length-delimited message from complete bytes, such as the parts of an RPC frame.
pub fn decode_part<M: WireMessage>(bytes: &mut Bytes, limit_bytes: usize) -> Result<M, FrameError> {
    decode(take_part(bytes, limit_bytes, message_name::<M>())?)
}

/// Takes the bytes of a length-delimited message named `message` from complete bytes.
pub fn take_part(
    bytes: &mut Bytes,
    limit_bytes: usize,
    message: &'static str,
) -> Result<Bytes, FrameError> {
    let truncated = FrameError::Truncated { message };
    let Some((len, prefix)) = peek_len(bytes, limit_bytes)? else {
        return Err(truncated);
    };
    if bytes.len() < prefix + len {
        return Err(truncated);
    }
    bytes.advance(prefix);
    Ok(bytes.split_to(len))
}

fn message_name<M: WireMessage>() -> &'static str {
    M::DESC.map_or("message", |desc| desc.full_name)
}

fn peek_len(bytes: &[u8], limit_bytes: usize) -> Result<Option<(usize, usize)>, FrameError> {
    match varint::peek_u64(bytes) {
        Peek::Incomplete => Ok(None),
        Peek::Overlong => Err(FrameError::BadLength),
        Peek::Value(announced_bytes, prefix) => match usize::try_from(announced_bytes) {
            Ok(len) if len <= limit_bytes => Ok(Some((len, prefix))),
            _ => Err(FrameError::TooLong {
                announced_bytes,
                limit_bytes,
            }),
        },
    }
}

/// Appends a message preceded by its length.
pub fn encode_delimited<M: prost::Message>(message: &M, out: &mut BytesMut) {
    let len = message.encoded_len();
    out.reserve(len + varint::MAX_LEN);
    varint::write_u64(out, len as u64);
    message.encode_raw(out);
}

/// A message preceded by its length, in a buffer of its own.
pub fn delimited<M: prost::Message>(message: &M) -> Bytes {
    let mut out = BytesMut::new();
    encode_delimited(message, &mut out);
    out.freeze()
}
