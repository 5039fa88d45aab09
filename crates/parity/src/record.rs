//! What is kept of a group on disks: its members, its parity files, and where copies of it lie.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use hayloft_wire::checksum::ChecksumKind;
use hayloft_wire::ids::PoolId;

use crate::shape::ParityShape;

/// The version of the bytes of a record.
pub(crate) const VERSION: u16 = 1;
/// Bytes of one section, at most: the checksums of 8 GiB in the usual chunks.
pub const SECTION_BYTES_MAX: u32 = 64 << 20;
/// Bytes of all sections of a record, at most.
pub const SECTIONS_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a member, at most: more have no section even with the largest chunks.
pub(crate) const COVERED_MAX: u64 = 1 << 44;
/// Highest revision: every other is one more than one before.
pub(crate) const REVISION_MAX: u64 = 1 << 62;
/// Copies of a record, at most.
const COPIES_MAX: usize = 64;

/// The name of a group: 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u128);

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupId({self})")
    }
}

impl FromStr for GroupId {
    type Err = RecordError;

    /// Takes only what [`Display`](fmt::Display) gives.
    fn from_str(text: &str) -> Result<Self, RecordError> {
        let plain = text.len() == 32
            && text
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let number = u128::from_str_radix(text, 16).ok().filter(|_| plain);
        number
            .map(Self)
            .ok_or(RecordError::Field("name of a group"))
    }
}

/// What a data file looked like when its group was encoded. The same stamp means: the same bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileStamp {
    /// Inode.
    pub inode: u64,
    /// Time of the last change of its contents, in nanoseconds since 1970.
    pub changed_ns: i64,
    /// Length in bytes.
    pub len: u64,
}

/// Where a section is and what it must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Bytes; at most [`SECTION_BYTES_MAX`].
    pub len: u32,
    /// CRC32C.
    pub crc: u32,
}

impl Section {
    /// Of these bytes.
    ///
    /// # Errors
    /// `TooLarge`.
    pub fn of(bytes: &[u8]) -> Result<Self, RecordError> {
        let len = u32::try_from(bytes.len()).ok();
        let len = len.filter(|len| *len <= SECTION_BYTES_MAX);
        Ok(Self {
            len: len.ok_or(RecordError::TooLarge("section"))?,
            crc: ChecksumKind::Crc32c.crc(bytes),
        })
    }

    /// Whether these are its bytes.
    #[must_use]
    pub fn matches(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == u64::from(self.len) && ChecksumKind::Crc32c.crc(bytes) == self.crc
    }
}

/// A replica in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// Block id.
    pub block_id: i64,
    /// Generation stamp.
    pub generation_stamp: u64,
    /// Bytes of it that the group covers, at least 1: its length when it was encoded.
    pub covered: u64,
    /// `DS-<uuid>` of its volume.
    pub storage: Arc<str>,
    /// The directory of its volume.
    pub root: Arc<str>,
    /// Its data file then.
    pub stamp: FileStamp,
    /// The replica was deleted, or is elsewhere by now: it is never brought back from the group.
    pub dropped: bool,
    /// Its meta file then: header and checksums.
    pub sums: Section,
}

/// A parity file of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParityRecord {
    /// `DS-<uuid>` of its volume.
    pub storage: Arc<str>,
    /// The directory of its volume.
    pub root: Arc<str>,
    /// The checksums of its pieces.
    pub sums: Section,
}

/// The head of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRecord {
    /// Name of the group.
    pub id: GroupId,
    /// Grows by one with every change; the highest counts.
    pub revision: u64,
    /// Shape of the code; a group may have fewer members, the missing ones being zeros.
    pub shape: ParityShape,
    /// The pool of all members.
    pub pool: PoolId,
    /// Members, in the order of their units.
    pub members: Vec<MemberRecord>,
    /// Parity files, in the order of their units.
    pub parity: Vec<ParityRecord>,
    /// Storages with a copy of the record.
    pub copies: Vec<Arc<str>>,
}

/// Why bytes are no record, or a record cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Another file.
    #[error("not a parity record of version {VERSION}")]
    Foreign,
    /// One of this later version.
    #[error("a parity record of version {0}, and {VERSION} is the last that can be read")]
    Later(u16),
    /// It ends too early.
    #[error("the record ends within its head")]
    Short,
    /// The head is damaged.
    #[error("the head of the record does not fit its checksum")]
    Damaged,
    /// More than a limit allows.
    #[error("too many or too long: {0}")]
    TooLarge(&'static str),
    /// A field makes no sense.
    #[error("impossible {0}")]
    Field(&'static str),
}

impl GroupRecord {
    /// Bytes that the group covers: the length of its longest member, and of each parity file.
    #[must_use]
    pub fn parity_len(&self) -> u64 {
        self.members.iter().map(|m| m.covered).max().unwrap_or(0)
    }

    /// Where the section of a unit begins in the file (members, then parity files), and what it
    /// must be. `head_len` is what [`GroupRecord::decode`] gave.
    #[must_use]
    pub fn section(&self, unit_section: usize, head_len: usize) -> Option<(u64, Section)> {
        let mut at = head_len as u64;
        for (n, section) in self.sections().enumerate() {
            if n == unit_section {
                return Some((at, section));
            }
            at += u64::from(section.len);
        }
        None
    }

    /// Whether `other` has the same sections at the same places: one that came of this one.
    #[must_use]
    pub fn same_sections(&self, other: &Self) -> bool {
        self.id == other.id && self.sections().eq(other.sections())
    }

    /// What the head says of each section, in their order.
    pub(crate) fn sections(&self) -> impl Iterator<Item = Section> + Clone {
        let members = self.members.iter().map(|m| m.sums);
        members.chain(self.parity.iter().map(|p| p.sums))
    }

    /// Bytes of all sections.
    #[must_use]
    pub fn sections_len(&self) -> u64 {
        self.sections().map(|s| u64::from(s.len)).sum()
    }

    /// What holds of every record beyond its fields.
    pub(crate) fn check(&self) -> Result<(), RecordError> {
        let members = self.members.len();
        if members == 0 || members > self.shape.data() {
            return Err(RecordError::Field("number of members"));
        }
        if self.parity.len() != self.shape.parity() {
            return Err(RecordError::Field("number of parity files"));
        }
        if self.copies.is_empty() || self.copies.len() > COPIES_MAX {
            return Err(RecordError::Field("number of copies"));
        }
        if self.revision > REVISION_MAX {
            return Err(RecordError::Field("revision"));
        }
        let possible = |len: u64| (1..=COVERED_MAX).contains(&len);
        if !self.members.iter().all(|m| possible(m.covered)) {
            return Err(RecordError::Field("covered length"));
        }
        if self.sections().any(|s| s.len > SECTION_BYTES_MAX)
            || self.sections_len() > SECTIONS_BYTES_MAX
        {
            return Err(RecordError::TooLarge("sections"));
        }
        Ok(())
    }
}
