//! The bytes of a record: a head, then sections with the checksums of its units.
//!
//! ```text
//! magic 8 | version 2 | length of the head 4 | head | CRC32C of all before 4 | sections
//! ```
//!
//! Numbers are big-endian, texts have a length of two bytes before them. Every section has its
//! length and CRC32C in the head: one a member (its meta file, as it was when the group was
//! encoded), then one a parity file (the CRC32C of each piece). The head alone says where
//! everything is; a reader fetches the sections that it needs.
//!
//! A record is never changed in place. One with a higher revision replaces it under its name, or
//! its head alone lies beside it: the sections stay what they are. The highest revision counts.

use bytes::{Buf, BufMut};
use hayloft_wire::checksum::ChecksumKind;

use crate::head_fields::{self, Fields};
use crate::record::{GroupRecord, RecordError, VERSION};

const MAGIC: &[u8; 8] = b"HLPARITY";
/// Bytes before the head.
pub const RECORD_START: usize = 8 + 2 + 4;
/// Bytes of a head, at most.
pub const HEAD_BYTES_MAX: usize = 256 << 10;

impl GroupRecord {
    /// Bytes that the head of the record at `start` takes, all included; `start` are the first
    /// [`RECORD_START`] bytes of the file.
    ///
    /// # Errors
    /// `Foreign`, `Later`, `Short`, `TooLarge`.
    pub fn head_len(start: &[u8]) -> Result<usize, RecordError> {
        let mut start = start.get(..RECORD_START).ok_or(RecordError::Short)?;
        let mut magic = [0; 8];
        start.copy_to_slice(&mut magic);
        match start.get_u16() {
            later if magic == *MAGIC && later > VERSION => return Err(RecordError::Later(later)),
            VERSION if magic == *MAGIC => {}
            _ => return Err(RecordError::Foreign),
        }
        let len = start.get_u32() as usize;
        if len > HEAD_BYTES_MAX {
            return Err(RecordError::TooLarge("head"));
        }
        Ok(RECORD_START + len + 4)
    }

    /// Reads the head from the first bytes of a file, of which there may be more. Gives it with the
    /// bytes that it takes.
    ///
    /// # Errors
    /// All of [`RecordError`]; whatever the bytes are, nothing larger than them is allocated.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), RecordError> {
        let len = Self::head_len(bytes)?;
        let head = bytes.get(..len).ok_or(RecordError::Short)?;
        let (checked, mut crc) = head.split_at(len - 4);
        if crc.get_u32() != ChecksumKind::Crc32c.crc(checked) {
            return Err(RecordError::Damaged);
        }
        let mut fields = Fields::new(&checked[RECORD_START..]);
        let record = fields.record()?;
        if !fields.is_empty() {
            return Err(RecordError::Field("bytes behind the last field"));
        }
        record.check()?;
        Ok((record, len))
    }
}

/// A whole record: its head, then `sections`, those of the members first.
///
/// # Errors
/// `TooLarge` and `Field` for what [`GroupRecord::decode`] would refuse, and when `sections` are
/// not those that the head names.
pub fn encode(record: &GroupRecord, sections: &[impl AsRef<[u8]>]) -> Result<Vec<u8>, RecordError> {
    record.check()?;
    let named = record.sections().zip(sections);
    if sections.len() != record.members.len() + record.parity.len()
        || !named.clone().all(|(s, bytes)| s.matches(bytes.as_ref()))
    {
        return Err(RecordError::Field("sections"));
    }
    let mut out = encode_head(record)?;
    for (_, bytes) in named {
        out.put_slice(bytes.as_ref());
    }
    Ok(out)
}

/// The head of a record alone.
///
/// # Errors
/// `TooLarge` and `Field` for what [`GroupRecord::decode`] would refuse.
pub fn encode_head(record: &GroupRecord) -> Result<Vec<u8>, RecordError> {
    record.check()?;
    let mut head = Vec::new();
    head_fields::put_head(record, &mut head)?;
    if head.len() > HEAD_BYTES_MAX {
        return Err(RecordError::TooLarge("head"));
    }
    let mut out = Vec::new();
    out.put_slice(MAGIC);
    out.put_u16(VERSION);
    out.put_u32(u32::try_from(head.len()).expect("below the limit"));
    out.put_slice(&head);
    out.put_u32(ChecksumKind::Crc32c.crc(&out));
    Ok(out)
}

#[cfg(test)]
#[path = "record_bytes_tests.rs"]
mod tests;
