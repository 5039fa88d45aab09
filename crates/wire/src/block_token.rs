//! Identifiers of block tokens: what a token permits, in the two forms that Hadoop writes.
//!
//! The password of a token is an HMAC over exactly these bytes, so the bytes received must be kept
//! for its check. An identifier that was decoded and encoded again need not be the same.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message as _;

use crate::frame::{self, FrameError};
use crate::ids::{PoolId, StorageType};
use crate::limits::{MAX_TOKEN_BYTES, MAX_TOKEN_LIST};
use crate::proto::hdfs::BlockTokenSecret;

pub use crate::proto::hdfs::AccessMode;

/// `kind` of block tokens.
pub const BLOCK_TOKEN_KIND: &str = "HDFS_BLOCK_TOKEN";

/// Why bytes are no block token identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// No bytes: the client sent no token.
    #[error("the block token is empty")]
    Empty,
    /// More bytes than any token has.
    #[error("a block token of {0} bytes; at most {MAX_TOKEN_BYTES} are accepted")]
    TooLong(usize),
    /// The bytes end early.
    #[error("a block token breaks off in its {0}")]
    Truncated(&'static str),
    /// A value of no meaning.
    #[error("a block token with a bad {0}")]
    Value(&'static str),
    /// The protobuf form is malformed.
    #[error("bad block token: {0}")]
    Frame(#[from] FrameError),
}

/// Identifier of a block token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockTokenIdentifier {
    /// When the token expires, in milliseconds since the epoch.
    pub expiry_millis: i64,
    /// Key of the password.
    pub key_id: i32,
    /// Who asked for the token.
    pub user: Option<String>,
    /// Block pool, compared as text with that of the request ([`BlockTokenIdentifier::is_for`]).
    pub pool: String,
    /// Block.
    pub block_id: i64,
    /// What the token permits.
    pub modes: Vec<AccessMode>,
    /// Storage types that may be written; empty: any.
    pub storage_types: Vec<StorageType>,
    /// Storages that may be written; empty: any.
    pub storage_ids: Vec<String>,
    /// Secret for the handshake of encrypted connections.
    pub handshake_secret: Bytes,
}

impl BlockTokenIdentifier {
    /// Decodes either form: the first byte of a protobuf is positive, that of the older form is
    /// not.
    pub fn decode(bytes: &Bytes) -> Result<Self, TokenError> {
        if bytes.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLong(bytes.len()));
        }
        match bytes.first() {
            None => Err(TokenError::Empty),
            Some(1..=127) => Self::decode_protobuf(bytes.clone()),
            Some(_) => Self::decode_legacy(bytes),
        }
    }

    /// Whether the token is for this block of this pool.
    #[must_use]
    pub fn is_for(&self, pool: &PoolId, block_id: i64) -> bool {
        self.pool == pool.as_str() && self.block_id == block_id
    }

    /// Whether the token permits `mode`.
    #[must_use]
    pub fn allows(&self, mode: AccessMode) -> bool {
        self.modes.contains(&mode)
    }

    fn decode_protobuf(bytes: Bytes) -> Result<Self, TokenError> {
        let secret: BlockTokenSecret = frame::decode(bytes)?;
        let lists = [
            secret.modes.len(),
            secret.storage_types.len(),
            secret.storage_ids.len(),
        ];
        if lists.iter().any(|&len| len > MAX_TOKEN_LIST) {
            return Err(TokenError::Value("list length"));
        }
        let mode = |&number: &i32| {
            AccessMode::try_from(number).map_err(|_| TokenError::Value("access mode"))
        };
        let storage_type = |&number: &i32| {
            StorageType::try_from(number).map_err(|_| TokenError::Value("storage type"))
        };
        Ok(BlockTokenIdentifier {
            expiry_millis: secret.expiry_date().cast_signed(),
            key_id: secret.key_id().cast_signed(),
            pool: secret.block_pool_id().to_owned(),
            block_id: secret.block_id().cast_signed(),
            modes: secret.modes.iter().map(mode).collect::<Result<_, _>>()?,
            storage_types: secret
                .storage_types
                .iter()
                .map(storage_type)
                .collect::<Result<_, _>>()?,
            user: secret.user_id,
            storage_ids: secret.storage_ids,
            handshake_secret: secret.handshake_secret.unwrap_or_default(),
        })
    }

    /// The protobuf form (`dfs.block.access.token.protobuf.enable`).
    #[must_use]
    pub fn encode_protobuf(&self) -> Bytes {
        let secret = BlockTokenSecret {
            expiry_date: Some(self.expiry_millis.cast_unsigned()),
            key_id: Some(self.key_id.cast_unsigned()),
            user_id: self.user.clone(),
            block_pool_id: Some(self.pool.clone()),
            block_id: Some(self.block_id.cast_unsigned()),
            modes: self.modes.iter().map(|&mode| mode.into()).collect(),
            storage_types: self.storage_types.iter().map(|&kind| kind.into()).collect(),
            storage_ids: self.storage_ids.clone(),
            handshake_secret: Some(self.handshake_secret.clone()).filter(|s| !s.is_empty()),
        };
        secret.encode_to_vec().into()
    }

    fn decode_legacy(bytes: &[u8]) -> Result<Self, TokenError> {
        let mut reader = WritableReader { rest: bytes };
        let mut token = BlockTokenIdentifier {
            expiry_millis: reader.vlong("expiry date")?,
            key_id: reader.vint("key id")?,
            user: reader.string("user")?,
            pool: reader
                .string("block pool")?
                .ok_or(TokenError::Value("block pool"))?,
            block_id: reader.vlong("block id")?,
            modes: reader.list("access modes", |r| r.access_mode())?,
            ..BlockTokenIdentifier::default()
        };
        // Older versions end here or after either list.
        if !reader.rest.is_empty() {
            token.storage_types = reader.list("storage types", |r| r.storage_type())?;
        }
        if !reader.rest.is_empty() {
            token.storage_ids = reader.list("storage ids", |r| {
                r.string("storage ids")?
                    .ok_or(TokenError::Value("storage id"))
            })?;
        }
        if !reader.rest.is_empty() {
            let len = reader.count("handshake secret", MAX_TOKEN_BYTES)?;
            token.handshake_secret = Bytes::copy_from_slice(reader.take("handshake secret", len)?);
        }
        Ok(token)
    }

    /// The older form, Hadoop's default.
    #[must_use]
    pub fn encode_legacy(&self) -> Bytes {
        let mut out = BytesMut::new();
        write_vlong(&mut out, self.expiry_millis);
        write_vlong(&mut out, i64::from(self.key_id));
        write_string(&mut out, self.user.as_deref());
        write_string(&mut out, Some(&self.pool));
        write_vlong(&mut out, self.block_id);
        write_count(&mut out, self.modes.len());
        for mode in &self.modes {
            write_name(&mut out, mode.name());
        }
        write_count(&mut out, self.storage_types.len());
        for storage_type in &self.storage_types {
            write_name(&mut out, storage_type.name());
        }
        write_count(&mut out, self.storage_ids.len());
        for id in &self.storage_ids {
            write_string(&mut out, Some(id));
        }
        if !self.handshake_secret.is_empty() {
            write_count(&mut out, self.handshake_secret.len());
            out.extend_from_slice(&self.handshake_secret);
        }
        out.freeze()
    }
}

const MODES: [AccessMode; 4] = [
    AccessMode::Read,
    AccessMode::Write,
    AccessMode::Copy,
    AccessMode::Replace,
];

impl AccessMode {
    /// Hadoop's name, as in the older form of identifiers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            AccessMode::Read => "READ",
            AccessMode::Write => "WRITE",
            AccessMode::Copy => "COPY",
            AccessMode::Replace => "REPLACE",
        }
    }
}

/// Reads Hadoop's `Writable` encoding. Integers are one byte from -112 to 127, else a byte that
/// tells sign and length, then the big-endian magnitude. Strings are preceded by four bytes of
/// length (-1: none), names of enum values by an integer.
pub(crate) struct WritableReader<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> WritableReader<'a> {
    pub(crate) fn take(&mut self, what: &'static str, len: usize) -> Result<&'a [u8], TokenError> {
        let (head, tail) = self
            .rest
            .split_at_checked(len)
            .ok_or(TokenError::Truncated(what))?;
        self.rest = tail;
        Ok(head)
    }

    fn vlong(&mut self, what: &'static str) -> Result<i64, TokenError> {
        let first = self.take(what, 1)?[0].cast_signed();
        if first >= -112 {
            return Ok(i64::from(first));
        }
        let (is_negative, len) = if first < -120 {
            (true, -120 - i16::from(first))
        } else {
            (false, -112 - i16::from(first))
        };
        let len = usize::try_from(len).map_err(|_| TokenError::Value(what))?;
        let magnitude = self
            .take(what, len)?
            .iter()
            .fold(0u64, |value, &byte| value << 8 | u64::from(byte));
        let magnitude = magnitude.cast_signed();
        Ok(if is_negative { !magnitude } else { magnitude })
    }

    fn vint(&mut self, what: &'static str) -> Result<i32, TokenError> {
        i32::try_from(self.vlong(what)?).map_err(|_| TokenError::Value(what))
    }

    pub(crate) fn count(&mut self, what: &'static str, limit: usize) -> Result<usize, TokenError> {
        usize::try_from(self.vlong(what)?)
            .ok()
            .filter(|&count| count <= limit)
            .ok_or(TokenError::Value(what))
    }

    fn text(&mut self, what: &'static str, len: usize) -> Result<&'a str, TokenError> {
        std::str::from_utf8(self.take(what, len)?).map_err(|_| TokenError::Value(what))
    }

    fn string(&mut self, what: &'static str) -> Result<Option<String>, TokenError> {
        let len = self.take(what, 4)?.get_i32();
        if len == -1 {
            return Ok(None);
        }
        let len = usize::try_from(len).map_err(|_| TokenError::Value(what))?;
        self.text(what, len).map(|text| Some(text.to_owned()))
    }

    fn name(&mut self, what: &'static str) -> Result<&'a str, TokenError> {
        let len = self.count(what, MAX_TOKEN_BYTES)?;
        self.text(what, len)
    }

    fn access_mode(&mut self) -> Result<AccessMode, TokenError> {
        let name = self.name("access modes")?;
        MODES
            .into_iter()
            .find(|mode| mode.name() == name)
            .ok_or(TokenError::Value("access mode"))
    }

    fn storage_type(&mut self) -> Result<StorageType, TokenError> {
        self.name("storage types")?
            .parse()
            .map_err(|_| TokenError::Value("storage type"))
    }

    fn list<T>(
        &mut self,
        what: &'static str,
        mut element: impl FnMut(&mut Self) -> Result<T, TokenError>,
    ) -> Result<Vec<T>, TokenError> {
        let count = self.count(what, MAX_TOKEN_LIST)?;
        (0..count).map(|_| element(self)).collect()
    }
}

fn write_vlong(out: &mut BytesMut, value: i64) {
    if (-112..=127).contains(&value) {
        out.put_i8(i8::try_from(value).expect("within one byte"));
        return;
    }
    let (magnitude, base) = if value < 0 {
        (!value, -120i16)
    } else {
        (value, -112i16)
    };
    let bytes = magnitude.to_be_bytes();
    let skipped = bytes.iter().take_while(|&&byte| byte == 0).count().min(7);
    let len = i16::try_from(bytes.len() - skipped).expect("at most eight");
    out.put_i8(i8::try_from(base - len).expect("-128 to -113"));
    out.extend_from_slice(&bytes[skipped..]);
}

pub(crate) fn write_count(out: &mut BytesMut, count: usize) {
    write_vlong(out, i64::try_from(count).unwrap_or(i64::MAX));
}

pub(crate) fn write_name(out: &mut BytesMut, name: &str) {
    write_count(out, name.len());
    out.extend_from_slice(name.as_bytes());
}

fn write_string(out: &mut BytesMut, text: Option<&str>) {
    match text {
        None => out.put_i32(-1),
        Some(text) => {
            out.put_i32(i32::try_from(text.len()).unwrap_or(i32::MAX));
            out.extend_from_slice(text.as_bytes());
        }
    }
}

#[cfg(test)]
#[path = "block_token_tests.rs"]
mod tests;
