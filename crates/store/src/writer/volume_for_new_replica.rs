//! The files of a new replica, on one volume after the other until one takes them.

use std::sync::Arc;

use hayloft_io::{IoClass, IoError, IoErrorKind, OpenMode};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::{Block, StorageType};
use tracing::warn;

use super::ReplicaWriter;
use crate::error::{StoreError, StoreErrorKind};
use crate::replica::block_pool::Pool;
use crate::replica::{LiveReplica, Status};
use crate::state::StoreState;
use crate::transitions::delete::discard_uncounted;
use crate::volume::BlockPoolSlice;

/// Volumes that a new replica or copy was not put on, and what the first of them said.
#[derive(Debug, Default)]
pub struct Tried {
    volumes: Vec<u16>,
    first: Option<StoreError>,
}

impl Tried {
    /// None, but these volumes are not to be taken.
    pub fn except(volumes: Vec<u16>) -> Self {
        Self {
            volumes,
            first: None,
        }
    }

    /// Chooses another volume of a type, or the named storage, and reserves `bytes` on it. What is
    /// kept of deleted replicas goes where there is no room.
    ///
    /// # Errors
    /// What the first one said; `OutOfSpace` when there was none.
    pub async fn choose(
        &mut self,
        store: &StoreState,
        pool: &Pool,
        (storage_type, storage_id): (StorageType, Option<&str>),
        bytes: u64,
    ) -> Result<Arc<BlockPoolSlice>, StoreError> {
        let choose = || store.choose_slice(pool, storage_type, storage_id, bytes, &self.volumes);
        let is_full = |e: &StoreError| e.kind() == StoreErrorKind::OutOfSpace;
        let mut chosen = choose();
        if let Some(protection) = &store.protection
            && chosen.as_ref().is_err_and(is_full)
        {
            let mut enough = || {
                chosen = choose();
                !chosen.as_ref().is_err_and(is_full)
            };
            protection.make_room(store, storage_type, &mut enough).await;
        }
        chosen.map_err(|none| self.first.take().unwrap_or(none))
    }

    /// A volume did not take it.
    pub fn failed(&mut self, slice: &BlockPoolSlice, block: Block, error: StoreError) {
        let volume = slice.volume.root.display();
        warn!(%block, %volume, %error, "a new replica cannot be written there: taking another \
            volume");
        self.volumes.push(slice.volume.index);
        self.first.get_or_insert(error);
    }

    /// Whether another volume may do what this error kept one from.
    pub fn is_of_volume(error: &StoreError) -> bool {
        matches!(
            error.kind(),
            StoreErrorKind::VolumeFailed | StoreErrorKind::OutOfSpace | StoreErrorKind::Io
        )
    }

    /// The same of this volume, where others have a part in it.
    pub fn is_of(error: &StoreError, slice: &BlockPoolSlice) -> bool {
        let path = error.io_error().map(IoError::path);
        let here = path.is_none_or(|path| path.starts_with(&slice.volume.root));
        Self::is_of_volume(error) && here && (path.is_some() || slice.volume.is_failed())
    }
}

/// A replica that is to be created.
#[derive(Clone)]
pub(super) struct NewReplica {
    pub id: i64,
    /// What it begins as.
    pub status: Status,
    pub storage_type: StorageType,
    pub storage_id: Option<String>,
    /// Of the meta file, when it is known.
    pub checksum: Option<DataChecksum>,
    pub class: IoClass,
}

impl NewReplica {
    pub(super) fn block(&self) -> Block {
        Block::new(self.id, self.status.generation_stamp, 0)
    }

    /// Creates its files on one volume after the other that was not tried, until one takes them.
    /// The replica is in no map.
    ///
    /// # Errors
    /// What the first volume said, when none is left.
    pub(super) async fn open_somewhere(
        &self,
        store: &Arc<StoreState>,
        pool: &Arc<Pool>,
        tried: &mut Tried,
    ) -> Result<ReplicaWriter, StoreError> {
        loop {
            let wanted = (self.storage_type, self.storage_id.as_deref());
            let slice = tried
                .choose(store, pool, wanted, self.status.expected_len)
                .await?;
            let opened = tokio::select! {
                biased;
                opened = self.open_on(store, pool, &slice) => opened,
                // A disk that gives no answer.
                () = slice.volume.gone.cancelled() => Err(pool.volume_failed()),
            };
            match opened {
                Err(e) if Tried::is_of_volume(&e) => tried.failed(&slice, self.block(), e),
                other => return other,
            }
        }
    }

    /// Creates its files on a volume where room is reserved for it.
    async fn open_on(
        &self,
        store: &Arc<StoreState>,
        pool: &Arc<Pool>,
        slice: &Arc<BlockPoolSlice>,
    ) -> Result<ReplicaWriter, StoreError> {
        let mut status = self.status.clone();
        status.bytes_reserved = status.expected_len;
        let (place, block) = (status.place, self.block());
        let live = Arc::new(LiveReplica::new(self.id, Arc::clone(slice), status));
        let writer_lock = Arc::new(Arc::clone(&live.writer).lock_owned().await);
        let open = || {
            let (live, lock) = (Arc::clone(&live), Arc::clone(&writer_lock));
            ReplicaWriter::open(store, pool, live, lock, OpenMode::CreateNew, self.class)
        };
        let mut opened = open().await;
        if opened.as_ref().is_err_and(|e| {
            e.io_error()
                .is_some_and(|e| e.kind() == IoErrorKind::Exists)
        }) {
            // A data file without meta file, or half of a failed attempt.
            warn!(%block, volume = %slice.volume.root.display(), "files of an unknown replica are \
                in the way of a new one: removing them");
            if let Err(error) = discard_uncounted(store, pool, slice, place, block).await {
                warn!(%block, %error, "cannot remove the files in the way of a new replica");
            }
            opened = open().await;
        }
        let begun = match (opened, self.checksum) {
            (Ok(mut writer), Some(checksum)) => match writer.set_checksum(checksum).await {
                Ok(()) => Ok(writer),
                Err(e) => {
                    // It is in no map: nothing of it is left to clean up after this.
                    writer.done = true;
                    Err(e)
                }
            },
            (opened, _) => opened,
        };
        if begun.is_err() {
            live.release_reserved();
            // One of the two files may be there. A disk that refused one may refuse this too: the
            // next attempt, or the next start, meets it again.
            let _ = discard_uncounted(store, pool, slice, place, block).await;
        }
        begun
    }
}
