//! The fields of the head of a record, in their order.

use bytes::{Buf, BufMut};
use hayloft_wire::ids::PoolId;

use crate::record::{
    FileStamp, GroupId, GroupRecord, MemberRecord, ParityRecord, RecordError, Section,
};
use crate::shape::ParityShape;

/// Bytes of the id of a storage, at most.
const STORAGE_BYTES_MAX: usize = 255;
/// Bytes of the path of a volume, at most: what Linux allows.
const PATH_BYTES_MAX: usize = 4096;

/// Appends the head of a record.
pub fn put_head(record: &GroupRecord, out: &mut Vec<u8>) -> Result<(), RecordError> {
    out.put_u128(record.id.0);
    out.put_u64(record.revision);
    out.put_u8(byte(record.shape.data())?);
    out.put_u8(byte(record.shape.parity())?);
    put_text(out, record.pool.as_str(), STORAGE_BYTES_MAX)?;
    out.put_u8(byte(record.members.len())?);
    for member in &record.members {
        out.put_i64(member.block_id);
        out.put_u64(member.generation_stamp);
        out.put_u64(member.covered);
        put_text(out, &member.storage, STORAGE_BYTES_MAX)?;
        put_text(out, &member.root, PATH_BYTES_MAX)?;
        out.put_u64(member.stamp.inode);
        out.put_i64(member.stamp.changed_ns);
        out.put_u64(member.stamp.len);
        out.put_u8(u8::from(member.dropped));
        put_section(out, member.sums);
    }
    for parity in &record.parity {
        put_text(out, &parity.storage, STORAGE_BYTES_MAX)?;
        put_text(out, &parity.root, PATH_BYTES_MAX)?;
        put_section(out, parity.sums);
    }
    out.put_u8(byte(record.copies.len())?);
    for copy in &record.copies {
        put_text(out, copy, STORAGE_BYTES_MAX)?;
    }
    Ok(())
}

fn byte(n: usize) -> Result<u8, RecordError> {
    u8::try_from(n).map_err(|_| RecordError::TooLarge("count"))
}

fn put_text(out: &mut Vec<u8>, text: &str, bytes_max: usize) -> Result<(), RecordError> {
    let len = u16::try_from(text.len()).ok();
    let len = len.filter(|_| text.len() <= bytes_max);
    out.put_u16(len.ok_or(RecordError::TooLarge("text"))?);
    out.put_slice(text.as_bytes());
    Ok(())
}

fn put_section(out: &mut Vec<u8>, section: Section) {
    out.put_u32(section.len);
    out.put_u32(section.crc);
}

/// What is left of a head.
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Of a head.
    pub fn new(head: &'a [u8]) -> Self {
        Self(head)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], RecordError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(RecordError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, RecordError> {
        Ok(self.take(1)?.get_u8())
    }

    fn u32(&mut self) -> Result<u32, RecordError> {
        Ok(self.take(4)?.get_u32())
    }

    fn u64(&mut self) -> Result<u64, RecordError> {
        Ok(self.take(8)?.get_u64())
    }

    fn i64(&mut self) -> Result<i64, RecordError> {
        Ok(self.take(8)?.get_i64())
    }

    fn text(&mut self, bytes_max: usize) -> Result<&'a str, RecordError> {
        let len = usize::from(self.take(2)?.get_u16());
        if len > bytes_max {
            return Err(RecordError::TooLarge("text"));
        }
        std::str::from_utf8(self.take(len)?).map_err(|_| RecordError::Field("text"))
    }

    fn section(&mut self) -> Result<Section, RecordError> {
        Ok(Section {
            len: self.u32()?,
            crc: self.u32()?,
        })
    }

    /// All fields of a head.
    pub fn record(&mut self) -> Result<GroupRecord, RecordError> {
        let id = GroupId(self.take(16)?.get_u128());
        let revision = self.u64()?;
        let shape = ParityShape::new(self.u8()?, self.u8()?);
        let shape = shape.map_err(|_| RecordError::Field("shape"))?;
        let pool = PoolId::new(self.text(STORAGE_BYTES_MAX)?);
        let pool = pool.map_err(|_| RecordError::Field("pool"))?;
        // Each takes bytes of the head, so the counts cannot make more than it has.
        let members = self.u8()?;
        let members = (0..members)
            .map(|_| self.member())
            .collect::<Result<_, _>>()?;
        let parity = (0..shape.parity()).map(|_| self.parity());
        let parity = parity.collect::<Result<_, _>>()?;
        let copies = self.u8()?;
        let copies = (0..copies).map(|_| self.text(STORAGE_BYTES_MAX).map(std::sync::Arc::from));
        let copies = copies.collect::<Result<_, _>>()?;
        Ok(GroupRecord {
            id,
            revision,
            shape,
            pool,
            members,
            parity,
            copies,
        })
    }

    fn member(&mut self) -> Result<MemberRecord, RecordError> {
        Ok(MemberRecord {
            block_id: self.i64()?,
            generation_stamp: self.u64()?,
            covered: self.u64()?,
            storage: self.text(STORAGE_BYTES_MAX)?.into(),
            root: self.text(PATH_BYTES_MAX)?.into(),
            stamp: FileStamp {
                inode: self.u64()?,
                changed_ns: self.i64()?,
                len: self.u64()?,
            },
            dropped: match self.u8()? {
                0 => false,
                1 => true,
                _ => return Err(RecordError::Field("flag")),
            },
            sums: self.section()?,
        })
    }

    fn parity(&mut self) -> Result<ParityRecord, RecordError> {
        Ok(ParityRecord {
            storage: self.text(STORAGE_BYTES_MAX)?.into(),
            root: self.text(PATH_BYTES_MAX)?.into(),
            sums: self.section()?,
        })
    }
}
