//! Damaged replicas are decoded anew before any NameNode hears of them.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hayloft_io::{
    AlignedBuf, EngineFile, IoClass, IoError, IoOp, OpenMode, SyncKind, locks, told_if_broken,
};
use hayloft_parity::{FileStamp, UnitRef};
use hayloft_store::inside::{
    BlockPoolSlice, Damage, FinalReplica, LACKING, Pair, Pool, Slot, StoreState, make_dir,
    on_disk_with_sync, pin, sync_dir, sync_file,
};
use hayloft_store::{StorageInfo, StoreError, StoreErrorKind, StoreEvent};
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::decode::UnitReader;
use super::read_units::stamp;
use super::volumes::{UnitPlace, answer};
use super::{ENCODING, Parity, STRIDE};

/// Replicas that may wait to be mended; a further one is told like one that cannot be.
const WAITING_MAX: usize = 100_000;
/// Replicas that are mended at once, each decoded as a whole.
const AT_ONCE: usize = 2;
/// A replica that was decoded and could not be written is mended again after so long.
const AGAIN: Duration = Duration::from_secs(60);
/// Damage that is found before the groups are known waits for them so much longer than rounds do.
const GROUPS_WAIT: Duration = Duration::from_secs(60);
const GROUPS_POLL: Duration = Duration::from_millis(100);

/// What tells damaged replicas apart: storage, pool, block.
pub type Damaged = (Arc<str>, PoolId, i64);

/// Damaged replicas that are being mended: each once, however many readers find it.
#[derive(Debug)]
pub struct Healing {
    waiting: Mutex<HashSet<Damaged>>,
    turns: Semaphore,
}

impl Default for Healing {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            turns: Semaphore::new(AT_ONCE),
        }
    }
}

/// Mends a damaged replica if its group can, and tells the node of its new files: a client may have
/// told the NameNode of the old ones. One that cannot be decoded is told as corrupt, or looked at
/// first where damage is only suspected. In the background: the caller may have the right to the
/// block.
pub fn heal(
    parity: &Arc<Parity>,
    store: &Arc<StoreState>,
    block: ExtendedBlock,
    storage: StorageInfo,
    damage: Damage,
) {
    let Some(claim) = claim(parity, &block, &storage) else {
        return;
    };
    let (parity, store) = (Arc::clone(parity), Arc::clone(store));
    let found = finalized(&store, &block, &storage).map(|found| found.2);
    store.tasks.clone().spawn(async move {
        let healed = async {
            if matches!(claim, Claim::Full) {
                return Err(StoreError::not_found("too many wait to be mended"));
            }
            let heal = heal_in_turn(&parity, &store, &block, &storage);
            let healed = told_if_broken("mending of a replica", heal).await;
            healed.unwrap_or_else(|| Err(StoreError::closed("mending it met a defect")))
        };
        let healed = while_there(&store, &storage, healed).await;
        drop(claim);
        if let Some(healed) = healed {
            tell(&parity, &store, (block, storage), (damage, found, healed)).await;
        }
    });
}

/// The same for a scrub, to its end, where a replica is certainly damaged. One that was decoded and
/// cannot be written anew, for lack of room, is left to the background.
pub async fn mend_or_tell(
    parity: &Arc<Parity>,
    store: &Arc<StoreState>,
    block: ExtendedBlock,
    storage: StorageInfo,
) {
    let Some(claim) = claim(parity, &block, &storage) else {
        return;
    };
    let found = finalized(store, &block, &storage).map(|found| found.2);
    let once = heal_once(parity, store, &block, &storage);
    let healed = while_there(store, &storage, once).await;
    drop(claim);
    match healed {
        None => {}
        Some(Err(error)) if error.io_error().is_some() => {
            debug!(%block, %error, "a damaged replica is mended later");
            heal(parity, store, block, storage, Damage::Certain);
        }
        Some(healed) => {
            let outcome = (Damage::Certain, found, healed);
            tell(parity, store, (block, storage), outcome).await;
        }
    }
}

/// The right to mend a replica.
enum Claim {
    Mine(Arc<Parity>, Damaged),
    /// Too many wait.
    Full,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Self::Mine(parity, damaged) = self {
            locks::lock(&parity.healing.waiting).remove(damaged);
        }
    }
}

/// Claims a replica; `None` when another task mends it already.
fn claim(parity: &Arc<Parity>, block: &ExtendedBlock, storage: &StorageInfo) -> Option<Claim> {
    let damaged = (Arc::clone(&storage.id), block.pool.clone(), block.block.id);
    let mut waiting = locks::lock(&parity.healing.waiting);
    if waiting.len() >= WAITING_MAX {
        return Some(Claim::Full);
    }
    waiting
        .insert(damaged.clone())
        .then(|| Claim::Mine(Arc::clone(parity), damaged))
}

/// What `work` gives, unless the store stops or the storage goes before: what was on that is
/// decoded or reported with all the rest.
async fn while_there<T>(
    store: &StoreState,
    storage: &StorageInfo,
    work: impl Future<Output = T>,
) -> Option<T> {
    let volumes = store.volumes().into_iter();
    let mut gone = volumes.filter(|v| v.info.id == storage.id);
    let gone = gone.next().map(|volume| volume.gone.clone());
    tokio::select! {
        done = work => Some(done),
        () = store.stop.cancelled() => None,
        () = async { gone.unwrap_or_default().cancelled().await } => None,
    }
}

/// Tells what became of a damaged replica, which was `found`. Another one that took its place is
/// looked at anew.
async fn tell(
    parity: &Parity,
    store: &Arc<StoreState>,
    (block, storage): (ExtendedBlock, StorageInfo),
    (damage, found, healed): (Damage, Option<FinalReplica>, Result<(), StoreError>),
) {
    let event = match healed {
        Ok(()) => {
            info!(%block, "a damaged replica was decoded anew from its parity group");
            parity.note_mended(&block);
            let Some((pool, _, now)) = finalized(store, &block, &storage) else {
                return;
            };
            let now = Block::new(block.block.id, now.generation_stamp, now.len);
            let block = pool.extended(now);
            StoreEvent::Mended { block, storage }
        }
        Err(error) if finalized(store, &block, &storage).is_none() => {
            debug!(%block, %error, "a damaged replica is gone, or is written to");
            return;
        }
        Err(error) => {
            debug!(%block, %error, "a damaged replica cannot be mended");
            let now = finalized(store, &block, &storage).map(|now| now.2);
            if damage == Damage::Suspected || now != found {
                store.mark_suspect(&block);
                return;
            }
            parity.note_damaged(&block, &storage);
            StoreEvent::Corrupt { block, storage }
        }
    };
    // Not through the gate that led here.
    store.tell(event).await;
}

/// Mends a damaged replica as soon as its groups are known, again and again while its volume has
/// no room for it: until then readers get what is decoded.
async fn heal_in_turn(
    parity: &Arc<Parity>,
    store: &Arc<StoreState>,
    block: &ExtendedBlock,
    storage: &StorageInfo,
) -> Result<(), StoreError> {
    let deadline = Instant::now() + parity.config.others_within + GROUPS_WAIT;
    while !parity.is_ready() && Instant::now() < deadline {
        tokio::time::sleep(GROUPS_POLL).await;
    }
    loop {
        let turn = parity.healing.turns.acquire().await;
        let healed = heal_once(parity, store, block, storage).await;
        drop(turn);
        match healed {
            // What the process lacks says nothing of the replica: it may be mended yet.
            Err(error) if error.kind() == StoreErrorKind::Retry => {
                tokio::time::sleep(LACKING).await;
            }
            Err(error) if error.io_error().is_some() => {
                warn!(%block, storage = %storage.id, %error, "a damaged replica is decoded for \
                    its readers, but cannot be written anew: it is tried again");
                tokio::time::sleep(AGAIN).await;
            }
            // A group that is not known yet may have it.
            Err(error) if !parity.is_ready() && finalized(store, block, storage).is_some() => {
                debug!(%block, %error, "a damaged replica is not decoded yet");
                tokio::time::sleep(AGAIN).await;
            }
            other => return other,
        }
    }
}

/// Mends a damaged replica for a caller who waits for it; whether it did.
pub async fn heal_now(
    parity: &Arc<Parity>,
    store: &Arc<StoreState>,
    block: &ExtendedBlock,
) -> bool {
    let pool = store.pool(&block.pool).ok();
    let slot = pool.as_ref().and_then(|pool| pool.map.get(block.block.id));
    let (Some(pool), Some(Slot::Finalized(replica))) = (pool, slot) else {
        return false;
    };
    let Ok(slice) = pool.slice(replica.volume) else {
        return false;
    };
    let storage = slice.volume.info.clone();
    let here = pool.extended(Block::new(
        block.block.id,
        replica.generation_stamp,
        replica.len,
    ));
    let healed = heal_once(parity, store, &here, &storage).await;
    let done = healed.is_ok();
    if done {
        let outcome = (Damage::Certain, Some(replica), healed);
        tell(parity, store, (here, storage), outcome).await;
    }
    done
}

fn not_covered(block: &ExtendedBlock) -> StoreError {
    StoreError::not_found(format!("{block} is in no parity group as it is"))
}

/// The finalized replica of a block on a storage.
fn finalized(
    store: &StoreState,
    block: &ExtendedBlock,
    storage: &StorageInfo,
) -> Option<(Arc<Pool>, Arc<BlockPoolSlice>, FinalReplica)> {
    let pool = store.pool(&block.pool).ok()?;
    let Some(Slot::Finalized(replica)) = pool.map.get(block.block.id) else {
        return None;
    };
    let slice = pool.slice(replica.volume).ok()?;
    let here = *slice.volume.info.id == *storage.id;
    here.then_some((pool, slice, replica))
}

async fn heal_once(
    parity: &Arc<Parity>,
    store: &Arc<StoreState>,
    block: &ExtendedBlock,
    storage: &StorageInfo,
) -> Result<(), StoreError> {
    let id = block.block.id;
    let found = finalized(store, block, storage);
    let (pool, slice, replica) = found.ok_or_else(|| not_covered(block))?;
    let cover = parity.table().cover(pool.id(), id, &storage.id);
    let unit = cover
        .filter(|(_, covered)| *covered == replica.len)
        .map(|(unit, _)| unit);
    let unit = unit.ok_or_else(|| not_covered(block))?;
    let old = Pair::finalized(&slice.paths, id, replica.generation_stamp);
    let copy = decode_pair(parity, unit, (store, &slice), &old, ENCODING)
        .await
        .map_err(|e| store.examine(&slice.volume, e))?;
    let _latch = pool.latches.acquire(id).await;
    let changed = || StoreError::illegal(format!("{block} changed while it was mended"));
    if !pool.map.is_finalized(id, &replica) {
        remove_scratch(&slice, copy.dir.clone()).await;
        return Err(changed());
    }
    let (from, to, pinned) = (copy.clone(), old.clone(), replica.pinned);
    let replace = move || {
        if pinned {
            pin(&from.data())?;
        }
        // The meta file first: with the old data it tells of damage, as before.
        fs::rename(from.meta(), to.meta())?;
        fs::rename(from.data(), to.data())?;
        sync_dir(&to.dir)?;
        fs::remove_dir_all(&from.dir)
    };
    let (class, path) = (IoClass::ClientWrite, copy.data());
    on_disk_with_sync(&slice, class, IoOp::Rename, &path, true, replace)
        .await
        .map_err(|e| StoreError::io(format!("mending {block}"), e))
        .map_err(|e| store.examine(&slice.volume, e))?;
    // Readers that kept the damaged files open let go of them.
    let _ = pool.put(id, Slot::Finalized(replica));
    let place = parity.place_on(store, &slice.volume);
    if let Ok(Some(stamp)) = stamp(&(&place).into(), &old.data(), ENCODING).await {
        parity.note_stamp(unit, replica.generation_stamp, stamp);
    }
    Ok(())
}

/// Decodes a unit into a pair in `tmp` of a volume, durably.
pub async fn decode_pair(
    parity: &Arc<Parity>,
    unit: UnitRef,
    (store, slice): (&Arc<StoreState>, &BlockPoolSlice),
    like: &Pair,
    class: IoClass,
) -> Result<Pair, StoreError> {
    let reader = UnitReader::open(parity, unit, class).await?;
    let copy = like.at(slice.scratch("parity"));
    let place = parity.place_on(store, &slice.volume);
    let outcome = write_pair(&reader, (&place, slice), &copy, class).await;
    if let Err(error) = outcome {
        remove_scratch(slice, copy.dir.clone()).await;
        return Err(error);
    }
    Ok(copy)
}

async fn write_pair(
    reader: &UnitReader,
    (place, slice): (&UnitPlace, &BlockPoolSlice),
    copy: &Pair,
    class: IoClass,
) -> Result<(), StoreError> {
    let failed = |e| StoreError::io("writing a decoded replica", e);
    let (pair, sums) = (copy.clone(), reader.sums().bytes().clone());
    let begin = move || {
        make_dir(&pair.dir)?;
        fs::write(pair.meta(), &sums)?;
        sync_file(&pair.meta())
    };
    let path = copy.meta();
    let begun = on_disk_with_sync(slice, class, IoOp::Write, &path, true, begin);
    answer(place, begun).await.map_err(failed)?;
    let engine = &slice.volume.engine;
    let file = engine.open(&copy.data(), OpenMode::CreateNew, class);
    let file = answer(place, file).await.map_err(failed)?;
    write_unit(reader, place, &*file).await
}

/// Writes all of a unit to a new file, and syncs it.
pub async fn write_unit(
    reader: &UnitReader,
    place: &UnitPlace,
    file: &dyn EngineFile,
) -> Result<(), StoreError> {
    let failed = |e: IoError| StoreError::io("writing a decoded unit", e);
    let len = reader.sums().len();
    let mut offset = 0;
    while offset < len {
        let mut buf = AlignedBuf::unpooled(STRIDE);
        let range = offset..len.min(offset + STRIDE as u64);
        let n = reader.read(range, buf.as_mut_capacity()).await?;
        buf.set_len(n);
        let write = file.write_at(vec![buf.freeze()], offset);
        let written = answer(place, async { write.await.result });
        written.await.map_err(failed)?;
        offset += n as u64;
    }
    answer(place, file.sync(SyncKind::All))
        .await
        .map_err(failed)
}

async fn remove_scratch(slice: &BlockPoolSlice, dir: PathBuf) {
    // What stays goes at the next start.
    let _ = slice.volume.meta(ENCODING).remove_dir_all(&dir).await;
}

impl Parity {
    /// Whether a damaged replica waits to be mended.
    pub(super) fn is_mending(&self, pool: &PoolId, id: i64, storage: &Arc<str>) -> bool {
        let waiting = locks::lock(&self.healing.waiting);
        !waiting.is_empty() && waiting.contains(&(Arc::clone(storage), pool.clone(), id))
    }

    /// Damaged replicas that wait to be mended, by storage, pool and block.
    pub(super) fn mending(&self) -> HashSet<Damaged> {
        locks::lock(&self.healing.waiting).clone()
    }

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
