//! A look at everything that groups have on disks: each unit is compared with its checksums, each
//! copy of a record is read. What is damaged is mended from the rest.

use std::sync::Arc;
use std::time::Instant;

use hayloft_io::{IoClass, IoError, IoErrorKind, told_if_broken};
use hayloft_parity::{GroupFile, GroupId, GroupRecord, MemberState, TableGroup, UnitRef};
use hayloft_store::inside::Slot;
use hayloft_store::{StoreError, StoreErrorKind};
use hayloft_wire::ids::{Block, ExtendedBlock};
use tracing::{debug, info, warn};

use super::found_at_start::begins_with;
use super::read_units::SourcePlace;
use super::rewrite_damaged::mend_or_tell;
use super::unit_files::{kept_file, storage_of, unit_path};
use super::volumes::{UnitPlace, answer};
use super::{Parity, record_copies, status};

impl Parity {
    /// Compares all groups with their checksums, one after the other; whether it came to the end,
    /// before all stores ended.
    pub(super) async fn scrub(self: &Arc<Self>) -> bool {
        let groups: Vec<GroupId> = {
            let table = self.table();
            let groups = table.iter().filter(|g| !g.may_have_been_dissolved());
            groups.map(|group| group.record.id).collect()
        };
        info!(groups = groups.len(), "scrubbing parity groups");
        let mut damaged = 0;
        let mut turn = Instant::now();
        for group in groups {
            status::publish_progress(self).await;
            let scrub = self.scrub_group(group);
            damaged += told_if_broken("scrub of a parity group", scrub)
                .await
                .unwrap_or(1);
            if self.stores().is_empty() {
                return false;
            }
            // All groups take days: a disk that dies meanwhile does not wait for them, nor do new
            // replicas.
            if turn.elapsed() >= self.config.turn {
                self.mend_groups().await;
                self.protect().await;
                turn = Instant::now();
            }
        }
        if damaged > 0 {
            warn!(
                damaged,
                "damaged files of parity groups were found; they are mended now"
            );
        }
        true
    }

    /// Gives the number of damaged files.
    async fn scrub_group(self: &Arc<Self>, id: GroupId) -> usize {
        let Some(group) = self.table().get(id).cloned() else {
            return 0;
        };
        let record = &group.record;
        let mut damaged = self.scrub_copies(record).await;
        for unit in 0..record.shape.units() {
            damaged += usize::from(self.scrub_unit(UnitRef { group: id, unit }).await);
        }
        damaged
    }

    /// Reads each copy of a record; the number of those that are damaged.
    pub(super) async fn scrub_copies(self: &Arc<Self>, record: &GroupRecord) -> usize {
        let id = record.id;
        let mut damaged = 0;
        for copy in &record.copies {
            let Some(place) = self.place(copy) else {
                continue;
            };
            if !self.answers(&place.volume) {
                continue;
            }
            let path = GroupFile::Record(id).path(&place.volume.root);
            let meta = place.volume.meta(IoClass::Scan);
            let sections: Vec<usize> = (0..record.members.len() + record.parity.len()).collect();
            let read = meta.run(hayloft_io::IoOp::Read, &path, move |path| {
                record_copies::read_copy(path, id, &sections)
                    .map_err(|e| hayloft_io::IoError::from_std(hayloft_io::IoOp::Read, path, &e))
            });
            if let Err(error) = answer(&place, read).await {
                if error.kind() == IoErrorKind::Closed || error.lacks().is_some() {
                    continue;
                }
                warn!(%error, "a copy of a parity record is damaged: it is written anew");
                damaged += 1;
                self.note_torn(id);
            }
        }
        damaged
    }

    /// Compares a unit with its checksums, and does what can be done when it is damaged; whether
    /// it is.
    pub(super) async fn scrub_unit(self: &Arc<Self>, at: UnitRef) -> bool {
        let Some(group) = self.table().get(at.group).cloned() else {
            return false;
        };
        let storage = storage_of(&group.record, at.unit);
        let place = storage.and_then(|storage| self.source(storage, &group.record.pool));
        let Some(place) = place.filter(|_| group.available(at.unit)) else {
            return false;
        };
        let Some(path) = unit_path(&group, at.unit, &place) else {
            return false;
        };
        let Ok(sums) = self.sums(&group.record, at.unit).await else {
            // The record is damaged, not the unit.
            return false;
        };
        let attended = match &place {
            SourcePlace::Attended(place) => Some(place),
            SourcePlace::Unattended(_) => None,
        };
        let replica = attended.and_then(|place| finalized(&group, at.unit, place));
        match begins_with(sums, &path, &place, IoClass::Scan).await {
            Ok(true) => return false,
            Ok(false) => {}
            // What the process lacks is no damage; nor is a disk that gave no answer, or that is in
            // use no more.
            Err(error) if !is_damage(&error) => {
                debug!(%error, "a unit of a parity group is not compared");
                return false;
            }
            Err(error) => warn!(%error, "a unit of a parity group cannot be read"),
        }
        match attended {
            Some(place) => self.mend(at, &group, place, replica).await,
            None => self.leave_out(at),
        }
    }

    /// A unit in a directory that no store uses is not what it was: it counts no more.
    fn leave_out(&self, at: UnitRef) -> bool {
        let mut table = self.table();
        let Some(group) = table.get_mut(at.group) else {
            return false;
        };
        warn!(group = %at.group, unit = at.unit, "a unit of a parity group in the directory of a \
            node that does not run here is damaged");
        group.given_up = true;
        match at.unit.checked_sub(group.record.shape.data()) {
            Some(parity) => group.parity[parity] = false,
            None => table.set_member(at, MemberState::Absent),
        }
        true
    }

    /// Does what can be done about a unit that is not what it should be, when its group was
    /// `before` and its replica was `replica`. Whether it is damaged: one that a task changed
    /// meanwhile is not.
    async fn mend(
        self: &Arc<Self>,
        at: UnitRef,
        before: &TableGroup,
        place: &UnitPlace,
        replica: Option<ExtendedBlock>,
    ) -> bool {
        let was_kept = before.members.get(at.unit) == Some(&MemberState::Kept);
        {
            let mut table = self.table();
            let Some(group) = table.get_mut(at.group) else {
                return false;
            };
            if let Some(n) = at.unit.checked_sub(before.record.shape.data()) {
                warn!(group = %at.group, n, "a parity file is damaged");
                group.parity[n] = false;
                return true;
            }
            if group.members[at.unit] != before.members[at.unit] {
                return false;
            }
            if was_kept {
                table.set_member(at, MemberState::Absent);
            }
        }
        if was_kept {
            warn!(group = %at.group, unit = at.unit, "what was kept of a replica is damaged");
            let kept = kept_file(&before.record, at.unit);
            self.unlink(place, &kept.path(&place.volume.root)).await;
            return true;
        }
        let now = finalized(before, at.unit, place);
        let Some(block) = replica.filter(|block| now.as_ref() == Some(block)) else {
            debug!(group = %at.group, unit = at.unit, "a replica changed while it was scrubbed");
            return false;
        };
        match place.store.is_whole(&place.volume, &block).await {
            None => return false,
            Some(true) => {
                // Another process wrote it anew, and its group has what was before; unless it was
                // misread a moment ago.
                if self.differs(at, before, place).await {
                    self.has_changed(at, block.block.id);
                }
                return false;
            }
            Some(false) => {}
        }
        warn!(%block, "a replica in a parity group is damaged");
        // Its end is waited for: what cannot be mended is known when the scrub is done.
        mend_or_tell(self, &place.store, block, place.volume.info.clone()).await;
        true
    }

    /// Whether a unit can be read and is not what its group has.
    async fn differs(&self, at: UnitRef, group: &TableGroup, place: &UnitPlace) -> bool {
        let place = SourcePlace::from(place);
        let (Some(path), Ok(sums)) = (
            unit_path(group, at.unit, &place),
            self.sums(&group.record, at.unit).await,
        ) else {
            return false;
        };
        let same = begins_with(sums, &path, &place, IoClass::Scan).await;
        matches!(same, Ok(false))
    }
}

/// Whether an error of reading a unit says something of the unit.
fn is_damage(error: &StoreError) -> bool {
    let io = error.io_error().map(IoError::kind);
    let of_disk = io.is_none_or(|kind| !matches!(kind, IoErrorKind::Retry | IoErrorKind::Closed));
    of_disk && matches!(error.kind(), StoreErrorKind::Corrupt | StoreErrorKind::Io)
}

/// The finalized replica that has the bytes of a member; `None` when a task changes it, or changed
/// it, or it was kept.
fn finalized(group: &TableGroup, unit: usize, place: &UnitPlace) -> Option<ExtendedBlock> {
    let member = group.record.members.get(unit)?;
    let live = group.members.get(unit) == Some(&MemberState::Live);
    let pool = place.store.pool(&group.record.pool).ok().filter(|_| live)?;
    match pool.map.get(member.block_id)? {
        Slot::Finalized(replica) if replica.volume == place.volume.index => {
            let (stamp, len) = (replica.generation_stamp, replica.len);
            Some(pool.extended(Block::new(member.block_id, stamp, len)))
        }
        _ => None,
    }
}
