//! Damaged replicas are decoded anew before any NameNode hears of them.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hayloft_io::{AlignedBuf, EngineFile, IoClass, IoError, IoOp, OpenMode, SyncKind};
use hayloft_parity::{FileStamp, UnitRef};
use hayloft_wire::ids::ExtendedBlock;
use tracing::{debug, info};

use super::decode::UnitReader;
use super::encode::STRIDE;
use super::volumes::{UnitPlace, stamp};
use super::{ENCODING, Parity};
use crate::background::suspects;
use crate::error::StoreError;
use crate::layout::dirs::make_dir;
use crate::replica::Slot;
use crate::replica::files::{self, Pair};
use crate::state::StoreState;
use crate::types::{StorageInfo, StoreEvent};
use crate::volume::BlockPoolSlice;

/// Mends a damaged replica if its group can; tells the node of it otherwise. In the background: the
/// caller may have the right to the block.
pub fn heal_or_tell(store: &Arc<StoreState>, block: ExtendedBlock, storage: StorageInfo) {
    let store = Arc::clone(store);
    let volumes = store.volumes().into_iter();
    let mut gone = volumes.filter(|v| v.info.id == storage.id);
    let gone = gone.next().map(|volume| volume.gone.clone());
    store.tasks.clone().spawn(async move {
        let healed = tokio::select! {
            healed = heal(&store, &block, &storage) => healed,
            () = store.stop.cancelled() => return,
            // What was on it is decoded or reported with all the rest.
            () = async { gone.unwrap_or_default().cancelled().await } => return,
        };
        match healed {
            Ok(()) => info!(%block, "a damaged replica was decoded anew from its parity group"),
            Err(error) => {
                debug!(%block, %error, "a damaged replica cannot be mended");
                let event = StoreEvent::Corrupt { block, storage };
                // Not through the gate that led here.
                let _ = store.events.send(event).await;
            }
        }
    });
}

async fn heal(
    store: &Arc<StoreState>,
    block: &ExtendedBlock,
    storage: &StorageInfo,
) -> Result<(), StoreError> {
    let pool = store.pool(&block.pool)?;
    let id = block.block.id;
    let none = || StoreError::not_found(format!("{block} is in no parity group as it is"));
    let parity = store.parity.as_ref().ok_or_else(none)?;
    let Some(Slot::Finalized(replica)) = pool.map.get(id) else {
        return Err(none());
    };
    let slice = pool.slice(replica.volume)?;
    let cover = parity.table().cover(pool.id(), id, &storage.id);
    let unit = cover
        .filter(|(_, covered)| *covered == replica.len)
        .map(|(unit, _)| unit);
    let unit = unit
        .filter(|_| *slice.volume.info.id == *storage.id)
        .ok_or_else(none)?;
    let old = Pair::finalized(&slice.paths, id, replica.generation_stamp);
    let copy = decode_pair(parity, unit, &slice, &old, ENCODING).await?;
    let _latch = pool.latches.acquire(id).await;
    let changed = || StoreError::illegal(format!("{block} changed while it was mended"));
    if !pool.map.is_finalized(id, &replica) {
        remove_scratch(&slice, copy.dir.clone()).await;
        return Err(changed());
    }
    let (from, to, pinned) = (copy.clone(), old.clone(), replica.pinned);
    let replace = move || {
        if pinned {
            files::pin(&from.data())?;
        }
        // The meta file first: with the old data it tells of damage, as before.
        fs::rename(from.meta(), to.meta())?;
        fs::rename(from.data(), to.data())?;
        files::sync_dir(&to.dir)?;
        fs::remove_dir_all(&from.dir)
    };
    let (class, path) = (IoClass::ClientWrite, copy.data());
    files::on_disk_with_sync(&slice, class, IoOp::Rename, &path, true, replace)
        .await
        .map_err(|e| StoreError::io(format!("mending {block}"), e))?;
    // Readers that kept the damaged files open let go of them.
    let _ = pool.put(id, Slot::Finalized(replica));
    let place = UnitPlace {
        store: Arc::clone(store),
        volume: Arc::clone(&slice.volume),
    };
    if let Ok(Some(stamp)) = stamp(&place, &old.data(), ENCODING).await {
        parity.note_stamp(unit, replica.generation_stamp, stamp);
    }
    Ok(())
}

/// A range of a replica whose own file cannot be read, decoded into `buf`; `None` when no group has
/// it. The replica is looked at soon.
pub async fn read_around(
    store: &Arc<StoreState>,
    (block, storage): (&ExtendedBlock, &str),
    mut buf: AlignedBuf,
    offset: u64,
    len: usize,
) -> Option<AlignedBuf> {
    let parity = store.parity.as_ref()?;
    let end = offset.checked_add(len as u64)?;
    let cover = parity.table().cover(&block.pool, block.block.id, storage);
    let (unit, _) = cover.filter(|(_, covered)| *covered >= end)?;
    suspects::mark_suspect(store, block);
    let reader = UnitReader::open(parity, unit, IoClass::ClientRead)
        .await
        .ok()?;
    let into = buf.as_mut_capacity().get_mut(..len)?;
    let read = reader.read(offset..end, into).await;
    match read {
        Ok(n) if n == len => {
            buf.set_len(len);
            Some(buf)
        }
        Ok(_) => None,
        Err(error) => {
            debug!(%block, %error, "a range that cannot be read cannot be decoded either");
            None
        }
    }
}

/// Decodes a unit into a pair in `tmp` of a volume, durably.
pub async fn decode_pair(
    parity: &Arc<Parity>,
    unit: UnitRef,
    slice: &BlockPoolSlice,
    like: &Pair,
    class: IoClass,
) -> Result<Pair, StoreError> {
    let reader = UnitReader::open(parity, unit, class).await?;
    let unique = slice.delete_sequence.fetch_add(1, Ordering::Relaxed);
    let copy = like.at(slice.paths.tmp().join(format!("parity-{unique}")));
    let outcome = write_pair(&reader, slice, &copy, class).await;
    if let Err(error) = outcome {
        remove_scratch(slice, copy.dir.clone()).await;
        return Err(error);
    }
    Ok(copy)
}

async fn write_pair(
    reader: &UnitReader,
    slice: &BlockPoolSlice,
    copy: &Pair,
    class: IoClass,
) -> Result<(), StoreError> {
    let failed = |e| StoreError::io("writing a decoded replica", e);
    let (pair, sums) = (copy.clone(), reader.sums().bytes().clone());
    let begin = move || {
        make_dir(&pair.dir)?;
        fs::write(pair.meta(), &sums)?;
        files::sync_file(&pair.meta())
    };
    let path = copy.meta();
    let begun = files::on_disk_with_sync(slice, class, IoOp::Write, &path, true, begin);
    begun.await.map_err(failed)?;
    let engine = &slice.volume.engine;
    let file = engine.open(&copy.data(), OpenMode::CreateNew, class);
    write_unit(reader, &*file.await.map_err(failed)?).await
}

/// Writes all of a unit to a new file, and syncs it.
pub async fn write_unit(reader: &UnitReader, file: &dyn EngineFile) -> Result<(), StoreError> {
    let failed = |e: IoError| StoreError::io("writing a decoded unit", e);
    let len = reader.sums().len();
    let mut offset = 0;
    while offset < len {
        let mut buf = AlignedBuf::unpooled(STRIDE);
        let range = offset..len.min(offset + STRIDE as u64);
        let n = reader.read(range, buf.as_mut_capacity()).await?;
        buf.set_len(n);
        let written = file.write_at(vec![buf.freeze()], offset).await;
        written.result.map_err(failed)?;
        offset += n as u64;
    }
    file.sync(SyncKind::All).await.map_err(failed)
}

async fn remove_scratch(slice: &BlockPoolSlice, dir: PathBuf) {
    // What stays goes at the next start.
    let _ = slice.volume.meta(ENCODING).remove_dir_all(&dir).await;
}

impl Parity {
    /// A member's data file is another one with the same bytes.
    fn note_stamp(&self, unit: UnitRef, generation_stamp: u64, stamp: FileStamp) {
        if let Some(group) = self.table().get_mut(unit.group) {
            let member = &mut Arc::make_mut(&mut group.record).members[unit.unit];
            member.stamp = stamp;
            member.generation_stamp = generation_stamp;
            group.dirty = true;
        }
        self.wake.notify_one();
    }
}
