//! The bytes of a connection behind its handshake, as Hadoop's data transfer sends them.
//!
//! With the ciphers of DIGEST-MD5 each message is preceded by its length in four bytes; with AES
//! there are no messages, and each byte is encrypted in its place.

use bytes::{Buf as _, BufMut as _, BytesMut};

use super::counter::CounterCipher;
use super::error::SaslError;
use super::layer::{Opener, Sealer};

/// Bytes of a message's length.
const LENGTH: usize = 4;

/// Bytes of this side become protected.
#[derive(Debug)]
pub enum ProtectedOut {
    /// As messages.
    Messages(Sealer),
    /// Byte by byte.
    Bytes(CounterCipher),
}

impl ProtectedOut {
    /// Adds `parts`, one behind the other, to `out` as they go over the wire, as one message.
    pub fn seal(&mut self, parts: &[&[u8]], out: &mut BytesMut) {
        let start = out.len();
        match self {
            Self::Messages(sealer) => {
                out.put_u32(0);
                sealer.seal_parts(parts, out);
                let len = out.len() - start - LENGTH;
                if len == 0 {
                    out.truncate(start);
                } else if let Some(length) = out.get_mut(start..start + LENGTH) {
                    let len = u32::try_from(len).unwrap_or(u32::MAX);
                    length.copy_from_slice(&len.to_be_bytes());
                }
            }
            Self::Bytes(cipher) => {
                for part in parts {
                    out.extend_from_slice(part);
                }
                cipher.apply(&mut out[start..]);
            }
        }
    }
}

/// Bytes of the other side are opened.
#[derive(Debug)]
pub enum ProtectedIn {
    /// Messages.
    Messages {
        /// Opens them.
        opener: Opener,
        /// Longest message that is taken, in bytes on the wire.
        limit: usize,
    },
    /// Byte by byte.
    Bytes(CounterCipher),
}

impl ProtectedIn {
    /// The length on the wire of the message at the front of `raw`, as far as that is known; 0
    /// where there are no messages.
    #[must_use]
    pub fn announced(&self, raw: &[u8]) -> usize {
        match self {
            Self::Messages { .. } => raw.first_chunk::<LENGTH>().map_or(0, |length| {
                usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX)
            }),
            Self::Bytes(_) => 0,
        }
    }

    /// Moves what is complete in `raw` to the end of `opened`.
    ///
    /// # Errors
    /// `Message`: it was changed, or is longer than the limit. Close the connection.
    pub fn open(&mut self, raw: &mut BytesMut, opened: &mut BytesMut) -> Result<(), SaslError> {
        match self {
            Self::Messages { opener, limit } => {
                while let Some(sealed) = next_message(raw, *limit)? {
                    append(opened, opener.open(sealed)?);
                }
            }
            Self::Bytes(cipher) => {
                let mut all = raw.split();
                cipher.apply(&mut all);
                append(opened, all);
            }
        }
        Ok(())
    }
}

fn append(opened: &mut BytesMut, more: BytesMut) {
    if opened.is_empty() {
        *opened = more;
    } else {
        opened.extend_from_slice(&more);
    }
}

/// The first message of `raw`, when it is there in full.
fn next_message(raw: &mut BytesMut, limit: usize) -> Result<Option<BytesMut>, SaslError> {
    let Some(length) = raw.first_chunk::<LENGTH>() else {
        return Ok(None);
    };
    let len = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| SaslError::Message)?;
    if len > limit {
        return Err(SaslError::Message);
    }
    if raw.len() - LENGTH < len {
        return Ok(None);
    }
    raw.advance(LENGTH);
    Ok(Some(raw.split_to(len)))
}
