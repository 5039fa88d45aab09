//! A group in memory: how far it is, and which of its units are there.

use std::sync::Arc;
use std::time::Instant;

use crate::record::{GroupId, GroupRecord};

/// How far a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupPhase {
    /// Its members are read. A member that changes spoils it.
    Encoding,
    /// Parity is durable, records are being written.
    Committing,
    /// It protects its members.
    Committed,
}

/// Where the data of a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// In the data file of the replica, which begins with the covered bytes.
    Live,
    /// In a file that was kept when the replica went or was cut.
    Kept,
    /// Nowhere: it can only be decoded.
    Absent,
}

/// A unit of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitRef {
    /// The group.
    pub group: GroupId,
    /// Its unit: members first, parity files from K on.
    pub unit: usize,
}

/// What happens to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// Its files leave their place.
    Gone,
    /// Its data file is cut to `len` bytes.
    Cut {
        /// Bytes that stay.
        len: u64,
    },
}

/// Data that a group still needs: the caller keeps it aside before it changes the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepData {
    /// Whose unit it is.
    pub unit: UnitRef,
    /// Bytes from the beginning of the data file.
    pub covered: u64,
    /// A second name does not do: the file is changed in place.
    pub copy: bool,
}

/// A member changed while its group was encoded: the group is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a replica changed while its group was encoded")]
pub struct ClaimSpoiled;

/// A group in the table.
#[derive(Clone, Debug)]
pub struct TableGroup {
    /// Its record; `dropped` flags are as of now.
    pub record: Arc<GroupRecord>,
    /// How far it is.
    pub phase: GroupPhase,
    /// Where the data of each member is.
    pub members: Vec<MemberState>,
    /// Which parity files are there.
    pub parity: Vec<bool>,
    /// The record on disks is older than this one, or a copy is missing.
    pub dirty: bool,
    /// A copy of the record is missing or damaged: a new head is not enough.
    pub torn: bool,
    /// A volume that was listed lacks its copy of the record: the group may have been dissolved.
    pub lacks_copy: bool,
    /// Since when it has counted for nothing: the record outlived the group.
    pub leftover: Option<Instant>,
    /// Its members belong in other groups. Its record is lost, or a parity file is, and every disk
    /// that is left has a unit of the group; or groups have another shape now.
    pub given_up: bool,
    /// A member changed while it was encoded.
    pub(crate) spoiled: bool,
}

impl TableGroup {
    /// Whether the bytes of a unit are somewhere; units without a member are zeros.
    #[must_use]
    pub fn available(&self, unit: usize) -> bool {
        let data = self.record.shape.data();
        match unit.checked_sub(data) {
            None => self
                .members
                .get(unit)
                .is_none_or(|m| *m != MemberState::Absent),
            Some(parity) => self.parity.get(parity).copied().unwrap_or(false),
        }
    }

    /// Units whose bytes are nowhere.
    #[must_use]
    pub fn lost_units(&self) -> Vec<usize> {
        let units = 0..self.record.shape.units();
        units.filter(|unit| !self.available(*unit)).collect()
    }

    /// Whether its lost units can be decoded.
    #[must_use]
    pub fn decodes(&self) -> bool {
        self.lost_units().len() <= self.record.shape.parity()
    }

    /// Whether its record may have outlived it: a copy is missing, and it decodes nothing. No round
    /// writes such a record again, since the missing copy is what tells.
    #[must_use]
    pub fn may_have_been_dissolved(&self) -> bool {
        self.leftover.is_some() || (self.lacks_copy && !self.decodes())
    }

    /// Whether it decodes all of its units still when what it has on a storage is gone.
    #[must_use]
    pub fn decodes_without(&self, storage: &str) -> bool {
        let record = &self.record;
        let on = |unit: usize| match unit.checked_sub(record.shape.data()) {
            None => record.members.get(unit).map(|member| &*member.storage),
            Some(parity) => record.parity.get(parity).map(|parity| &*parity.storage),
        };
        let units = 0..record.shape.units();
        let lost = units.filter(|unit| !self.available(*unit) || on(*unit) == Some(storage));
        self.is_committed() && lost.count() <= record.shape.parity()
    }

    /// Whether what it has can be counted on: a disk that fails while records are written takes the
    /// group with it.
    pub(crate) fn is_committed(&self) -> bool {
        self.phase == GroupPhase::Committed
    }

    pub(crate) fn protects(&self) -> bool {
        self.phase != GroupPhase::Encoding
    }

    /// Whether its live members belong in new groups: it stays short of units, or most of the
    /// members are there for the others only.
    #[must_use]
    pub fn is_weak(&self) -> bool {
        let dropped = self.record.members.iter().filter(|member| member.dropped);
        self.stays_short() || dropped.count() * 2 > self.members.len()
    }

    /// Whether it lacks units for good: too many are lost, or one stays lost. Its members were
    /// protected and are not, or less.
    #[must_use]
    pub fn stays_short(&self) -> bool {
        let mut members = self.record.members.iter().zip(&self.members);
        self.given_up
            || !self.decodes()
            || members.any(|(record, state)| record.dropped && *state == MemberState::Absent)
    }
}
