//! Groups that go: all copies of the record first, then the files of the group.

use std::path::Path;
use std::sync::Arc;

use hayloft_io::{IoError, IoErrorKind, IoOp};
use hayloft_parity::{GroupFile, GroupId, PARITY_DIR, TableGroup};
use hayloft_store::inside::StoreState;
use hayloft_wire::ids::PoolId;
use tracing::debug;

use super::unit_files::{kept_file, parity_file};
use super::volumes::{UnitPlace, answer};
use super::{ENCODING, Parity};

impl Parity {
    /// Removes a copy of a record: its head counts for nothing without it.
    pub(super) async fn unlink_copy(&self, place: &UnitPlace, group: GroupId) {
        for file in [GroupFile::Record(group), GroupFile::Head(group)] {
            self.unlink(place, &file.path(&place.volume.root)).await;
        }
    }

    /// Removes a group that no replica needs: its records, then its files.
    pub(super) async fn dissolve(&self, id: GroupId) {
        let _alone = self.recording.lock().await;
        let gone = self.table().remove(id);
        if let Some(group) = gone {
            self.remove_files(&group).await;
        }
    }

    /// Removes what lies on disks of a group that is no longer in the table.
    pub(super) async fn remove_files(&self, group: &TableGroup) {
        let record = &group.record;
        for storage in &record.copies {
            let Some(place) = self.place(storage) else {
                continue;
            };
            self.unlink_copy(&place, record.id).await;
            let dir = place.volume.root.join(PARITY_DIR);
            let sync = place.volume.meta(ENCODING).sync_dir(&dir);
            let synced = answer(&place, sync).await;
            if let Err(error) = synced {
                debug!(%error, "the removal of a parity record may come back after power loss");
            }
        }
        for (n, parity) in record.parity.iter().enumerate() {
            if let Some(place) = self.place(&parity.storage) {
                let path = parity_file(record, n).path(&place.volume.root);
                self.unlink(&place, &path).await;
            }
        }
        for (unit, member) in record.members.iter().enumerate() {
            if let Some(place) = self.place(&member.storage) {
                let path = kept_file(record, unit).path(&place.volume.root);
                self.unlink(&place, &path).await;
            }
        }
    }

    /// Removes a file, which may not be there. One that stays is looked for later.
    pub(super) async fn unlink(&self, place: &UnitPlace, path: &Path) {
        // One that gives no answer is not asked for each file.
        let gone = match self.answers(&place.volume) {
            true => answer(place, place.volume.meta(ENCODING).unlink(path)).await,
            false => Err(IoError::new(
                IoErrorKind::Closed,
                IoOp::Unlink,
                path,
                "its disk gave no answer",
            )),
        };
        match gone {
            Err(error) if error.kind() != IoErrorKind::NotFound => {
                let error = self.refused(place, "removing a file of a parity group", error);
                debug!(path = %path.display(), %error, "a file of a parity group stays for now");
                self.clean_later();
            }
            _ => {}
        }
    }
}

/// The directories of a pool are removed for good: so are its groups.
pub async fn pool_removed(parity: &Parity, store: &Arc<StoreState>, pool: &PoolId) {
    let of_pool: Vec<GroupId> = {
        let table = parity.table();
        let groups = table.iter().filter(|group| group.record.pool == *pool);
        groups.map(|group| group.record.id).collect()
    };
    // Other stores of the process may serve the pool.
    let here: Vec<Arc<str>> = store
        .volumes()
        .iter()
        .map(|v| Arc::clone(&v.info.id))
        .collect();
    for group in of_pool {
        let ours = {
            let mut table = parity.table();
            let Some(group) = table.get_mut(group) else {
                continue;
            };
            let record = Arc::make_mut(&mut group.record);
            for member in record
                .members
                .iter_mut()
                .filter(|m| here.contains(&m.storage))
            {
                member.dropped = true;
            }
            record.members.iter().all(|member| member.dropped)
        };
        if ours {
            parity.dissolve(group).await;
        }
    }
}
