//! A look at everything that groups have on disks: each unit is compared with its checksums, each
//! copy of a record is read. What is damaged is mended from the rest.

use std::sync::Arc;

use hayloft_io::IoClass;
use hayloft_parity::{GroupFile, GroupId, MemberState, UnitRef};
use hayloft_wire::ids::Block;
use tracing::{info, warn};

use super::heal::heal_or_tell;
use super::volumes::{answer, storage_of, unit_path};
use super::{Parity, ParityEnded, records};

impl Parity {
    /// Compares all groups with their checksums, one after the other.
    pub(super) async fn scrub(self: &Arc<Self>) -> Result<(), ParityEnded> {
        let groups: Vec<GroupId> = self.table().iter().map(|group| group.record.id).collect();
        info!(groups = groups.len(), "scrubbing parity groups");
        let mut damaged = 0;
        for group in groups {
            damaged += self.scrub_group(group).await;
            if self.stores().is_empty() {
                return Err(ParityEnded);
            }
        }
        if damaged > 0 {
            warn!(
                damaged,
                "damaged files of parity groups were found; they are mended now"
            );
        }
        self.write_dirty().await?;
        self.rebuild_all().await
    }

    /// Gives the number of damaged files.
    async fn scrub_group(self: &Arc<Self>, id: GroupId) -> usize {
        let Some(group) = self.table().get(id).cloned() else {
            return 0;
        };
        let record = &group.record;
        let mut damaged = 0;
        for copy in &record.copies {
            let Some(place) = self.place(copy) else {
                continue;
            };
            let path = GroupFile::Record(id).path(&place.volume.root);
            let meta = place.volume.meta(IoClass::Scan);
            let sections: Vec<usize> = (0..record.members.len() + record.parity.len()).collect();
            let read = meta.run(hayloft_io::IoOp::Read, &path, move |path| {
                records::read_sections(path, id, &sections)
                    .map_err(|e| hayloft_io::IoError::from_std(hayloft_io::IoOp::Read, path, &e))
            });
            if let Err(error) = answer(&place.volume, read).await {
                warn!(%error, "a copy of a parity record is damaged: it is written anew");
                damaged += 1;
                self.note_dirty(id);
            }
        }
        for unit in 0..record.shape.units() {
            let at = UnitRef { group: id, unit };
            let place = storage_of(record, unit).and_then(|storage| self.place(storage));
            let Some(place) = place.filter(|_| group.available(unit)) else {
                continue;
            };
            let Some(path) = unit_path(&group, unit, &place) else {
                continue;
            };
            match self
                .begins_with(record, unit, &path, &place, IoClass::Scan)
                .await
            {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => warn!(%error, "a unit of a parity group cannot be read"),
            }
            damaged += 1;
            self.mend(at, &group, &place.volume.info).await;
        }
        damaged
    }

    /// Does what can be done about a damaged unit.
    async fn mend(
        self: &Arc<Self>,
        at: UnitRef,
        group: &hayloft_parity::TableGroup,
        storage: &crate::types::StorageInfo,
    ) {
        let record = &group.record;
        warn!(group = %at.group, unit = at.unit, "a unit of a parity group is damaged");
        if let Some(n) = at.unit.checked_sub(record.shape.data()) {
            if let Some(group) = self.table().get_mut(at.group) {
                group.parity[n] = false;
            }
            return;
        }
        if group.members[at.unit] == MemberState::Kept {
            self.table().set_member(at, MemberState::Absent);
            return;
        }
        let member = &record.members[at.unit];
        let Some(place) = self.place(&storage.id) else {
            return;
        };
        let block = Block::new(member.block_id, member.generation_stamp, member.covered);
        let Ok(pool) = place.store.pool(&record.pool) else {
            return;
        };
        heal_or_tell(&place.store, pool.extended(block), storage.clone());
    }
}
