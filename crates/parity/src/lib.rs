//! Parity groups over closed replicas, without any I/O.
//!
//! A group is up to K replicas on K disks, and M parity files on M other disks. Byte x of a parity
//! file follows from byte x of every member; a member that is shorter counts as followed by zeros.
//! So any range of a lost unit comes from the same range of K others.
//!
//! | module | what it is |
//! |---|---|
//! | `shape` | K+M, as the operator configures it |
//! | `record` | what is kept of a group on disks |
//! | `record_bytes`, `head_fields` | the bytes of that |
//! | `forming` | which replicas form groups, and which disks take the parity |
//! | `group` | a group in memory, and its units |
//! | `table` | the groups of a process, and what a change of a replica means for them |
//! | `totals` | bytes of the groups, by storage and by group |
//! | `code` | parity of members, and lost units from the others |
//! | `sums` | the checksums that everything read or decoded is compared with |
//! | `names` | names of the files of groups |
//!
//! The store does the I/O. A wrong byte never counts as decoded: what comes out is compared with
//! the checksums in the record.

#![forbid(unsafe_code)]

mod code;
mod forming;
mod group;
mod head_fields;
mod names;
mod record;
mod record_bytes;
mod shape;
mod sums;
mod table;
mod totals;

pub use code::{GroupCode, PARITY_PIECE, parity_checksum};
pub use forming::{DiskRoom, GroupPlan, ParityPlace, Unprotected, form};
pub use group::{
    ClaimSpoiled, GroupPhase, KeepData, MemberChange, MemberState, TableGroup, UnitRef,
};
pub use names::{GroupFile, PARITY_DIR};
pub use record::{
    FileStamp, GroupId, GroupRecord, MemberRecord, ParityRecord, RecordError, SECTION_BYTES_MAX,
    SECTIONS_BYTES_MAX, Section,
};
pub use record_bytes::{HEAD_BYTES_MAX, RECORD_START, encode, encode_head};
pub use shape::{ParityDisks, ParityShape, ShapeError};
pub use sums::{SumsCheck, UnitSums};
pub use table::GroupTable;
pub use totals::{GroupTotals, LackingGroup, UnitTotals};
