//! Opening a replica for reading while others write, rename and remove its files.

use std::path::PathBuf;
use std::sync::Arc;

use hayloft_io::{EngineFile, IoClass, IoError, IoErrorKind, IoOp, OpenMode, together};
use hayloft_wire::ids::{Block, ExtendedBlock, ReplicaState};
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::decoded::{instead, open_degraded};
use super::rename_guard::{FileNames, RENAME_POLL, RENAME_WAIT, RenameGuard};
use super::replica_reader::{Own, ReplicaReader};
use super::stored_sums::{no_checksums, read_checksum, read_sum};
use crate::error::{StoreError, StoreErrorKind};
use crate::protection::Damage;
use crate::replica::block_pool::Pool;
use crate::replica::file_pair::Pair;
use crate::replica::kept_open::OpenFiles;
use crate::replica::{FinalReplica, LiveReplica, ReplicaDir, Slot};
use crate::state::StoreState;
use crate::transitions::check_volume::examine;
use crate::types::StoreEvent;
use crate::volume::{BlockPoolSlice, footprint};

/// How often opening is tried again at once when the replica moves between directories meanwhile.
/// After that a reader rests between attempts: on a busy machine the task that changes the replica
/// may be ahead of it each time.
const ATTEMPTS_AT_ONCE: usize = 10;

/// What to make of a finalized replica without meta file, or whose files do not fit each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingMeta {
    /// It is read as far as it goes: better for a client than nothing.
    Tolerated,
    /// It is `Corrupt`: a copy or a check would take damage for data.
    Refused,
}

/// See [`Store::open_reader`](crate::Store::open_reader) and
/// [`Store::open_verifiable`](crate::Store::open_verifiable).
///
/// A file that is not there is believed to be missing only after a second look while no task could
/// rename it. Recovery, finalize and append rename files before memory knows of it.
pub(crate) async fn open_reader(
    store: &Arc<StoreState>,
    wanted: &ExtendedBlock,
    missing_meta: MissingMeta,
) -> Result<ReplicaReader, StoreError> {
    let pool = store.pool(&wanted.pool)?;
    let id = wanted.block.id;
    let mut last_error = pool.not_found(id);
    let mut guard: Option<RenameGuard> = None;
    let deadline = Instant::now() + RENAME_WAIT;
    for attempts in 0_usize.. {
        if attempts >= ATTEMPTS_AT_ONCE {
            if Instant::now() >= deadline {
                break;
            }
            sleep(RENAME_POLL).await;
        }
        let Some(slot) = pool.map.get(id) else {
            let degraded = open_degraded(store, &pool, wanted).await;
            return degraded.unwrap_or_else(|| Err(pool.not_found(id)));
        };
        let names = FileNames::of(&slot);
        let here = slot.block(id);
        if here.generation_stamp < wanted.block.generation_stamp {
            return Err(StoreError::new(
                StoreErrorKind::UnexpectedGenerationStamp,
                format!("Replica gen stamp < block genstamp, block={wanted}, replica={here}"),
            ));
        }
        let attempt = open_slot(store, &pool, (id, &slot), missing_meta).await;
        let now = pool.map.get(id);
        let unchanged = now.as_ref().is_some_and(|now| slot.is_same(now));
        let incomplete = match &attempt {
            Ok(reader) => reader.meta.is_none(),
            Err(e) => is_missing(e),
        };
        if unchanged && !incomplete {
            let error = match attempt {
                // What the process lacks says nothing of the replica.
                Err(e) if e.kind() == StoreErrorKind::Retry => return Err(e),
                Err(e) if e.io_error().is_some() || e.kind() == StoreErrorKind::Corrupt => e,
                other => return other,
            };
            // A dying disk need not say EIO, nor say anything.
            let decoded = instead(store, &pool, id, &slot, Damage::Suspected).await;
            return decoded.ok_or(error);
        }
        let renamed = !now.is_some_and(|now| FileNames::of(&now) == names);
        if !renamed && guard.as_ref().is_some_and(|guard| guard.holds(&slot)) {
            // `missing` takes the latch.
            drop(guard);
            if let Some(reader) = instead(store, &pool, id, &slot, Damage::Certain).await {
                return Ok(reader);
            }
            return match attempt {
                Ok(reader) => without_meta(reader, &slot, missing_meta),
                Err(e) => {
                    missing(store, &pool, id, &slot).await;
                    Err(e)
                }
            };
        }
        if let Err(e) = attempt {
            last_error = e;
        }
        // Never two at a time: it may be the same latch.
        drop(guard.take());
        if !renamed {
            guard = RenameGuard::wait(&pool, id, &slot, &names).await?;
        }
    }
    Err(last_error)
}

/// Opens a replica as it was found. A disk that gives no answer is waited for until its volume is
/// given up.
async fn open_slot(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    (id, slot): (i64, &Slot),
    missing_meta: MissingMeta,
) -> Result<ReplicaReader, StoreError> {
    let opening = async {
        match slot {
            Slot::Finalized(replica) => {
                open_finalized(store, pool, (id, *replica), missing_meta).await
            }
            Slot::Live(live) => open_live(store, pool, live, missing_meta).await,
        }
    };
    pool.unless_gone(slot.volume(), opening).await
}

/// A replica whose meta file is known to be missing.
fn without_meta(
    reader: ReplicaReader,
    slot: &Slot,
    missing_meta: MissingMeta,
) -> Result<ReplicaReader, StoreError> {
    let block = &reader.block;
    if missing_meta == MissingMeta::Tolerated && matches!(slot, Slot::Finalized(_)) {
        warn!(%block, "no meta file: served without checksums");
        return Ok(reader);
    }
    let text = format!("{block}: the meta file is missing");
    Err(StoreError::corrupt(text))
}

fn is_missing(error: &StoreError) -> bool {
    error
        .io_error()
        .is_some_and(|e| e.kind() == IoErrorKind::NotFound)
}

/// The data file of a finalized replica is not there: it is no longer served, unless the whole
/// volume is gone.
async fn missing(store: &Arc<StoreState>, pool: &Arc<Pool>, id: i64, slot: &Slot) {
    let Slot::Finalized(replica) = slot else {
        return;
    };
    let Ok(slice) = pool.slice(replica.volume) else {
        return;
    };
    let healthy = slice
        .volume
        .meta(IoClass::ClientRead)
        .exists(&slice.paths.finalized())
        .await;
    if !matches!(healthy, Ok(true)) {
        // The directory of finalized replicas is gone.
        crate::transitions::check_volume::check_soon(store, &slice.volume);
        return;
    }
    let latch = pool.latches.acquire(id).await;
    if !pool.map.remove_if(id, slot) {
        return;
    }
    drop(latch);
    slice.used.sub(footprint(replica.len, None));
    let block = pool.extended(Block::new(id, replica.generation_stamp, replica.len));
    warn!(%block, volume = %slice.volume.root.display(), "the files of a replica are gone; it is \
        no longer served");
    store
        .send_event(StoreEvent::Lost {
            block,
            storage: slice.volume.info.clone(),
        })
        .await;
}

/// Data file and, if there is one, meta file.
async fn open_pair(
    slice: &BlockPoolSlice,
    pair: &Pair,
) -> Result<(Arc<dyn EngineFile>, Option<Arc<dyn EngineFile>>), IoError> {
    let engine = &slice.volume.engine;
    let open = |path: PathBuf| engine.open(&path, OpenMode::ReadOnly, IoClass::ClientRead);
    let (data, meta) = together(|| (open(pair.data()), open(pair.meta())));
    let (data, meta) = futures_util::future::join(data, meta).await;
    let meta = match meta {
        Ok(meta) => Some(meta),
        Err(e) if e.kind() == IoErrorKind::NotFound => None,
        Err(e) => return Err(e),
    };
    Ok((data?, meta))
}

async fn open_finalized(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    (id, replica): (i64, FinalReplica),
    missing_meta: MissingMeta,
) -> Result<ReplicaReader, StoreError> {
    let slice = pool.slice(replica.volume)?;
    let block = Block::new(id, replica.generation_stamp, replica.len);
    let protection = store.protection.as_ref();
    let mender =
        protection.and_then(|p| p.mender(store, &pool.extended(block), &slice.volume.info));
    let files = match pool.map.open_files(id, &replica) {
        Some(files) => files,
        None => {
            let pair = Pair::finalized(&slice.paths, id, replica.generation_stamp);
            let files = open_whole(store, &slice, pair, block).await?;
            // Every replica that is protected has checksums.
            if mender.is_some() && files.meta.is_some() {
                expect_sums(store, &slice, block, &files).await?;
            }
            pool.map.keep_open(id, replica, files.clone());
            files
        }
    };
    // A data file that was cut short where a chunk ends fits its checksums, and lacks bytes.
    let verified = missing_meta == MissingMeta::Refused && files.checksum.sum_size() > 0;
    if verified && mender.is_none() && files.meta.is_some() {
        expect_sums(store, &slice, block, &files).await?;
    }
    let reader = whole_reader(store, pool, &slice, block, files);
    Ok(ReplicaReader { mender, ..reader })
}

/// Refuses a meta file that has not one checksum for each chunk: a byte of its header was changed,
/// and a client would be told wrong sizes; or either file is shorter than it was.
async fn expect_sums(
    store: &Arc<StoreState>,
    slice: &Arc<BlockPoolSlice>,
    block: Block,
    files: &OpenFiles,
) -> Result<(), StoreError> {
    let OpenFiles { meta, checksum, .. } = files;
    let len = match meta {
        Some(meta) => meta.length().await,
        None => Ok(0),
    };
    let len = len.map_err(|e| not_opened(store, slice, block, e))?;
    if checksum.sum_size() > 0 && len == checksum.meta_len(block.num_bytes) {
        return Ok(());
    }
    let text = format!("{block}: the meta file has {len} bytes, and says {checksum:?}");
    Err(StoreError::corrupt(text))
}

/// Opens the files of a finalized replica anew, to be read as they are: nothing is decoded for it,
/// and an error makes no suspect of it. A file that is just being renamed is `NotFound`.
pub(crate) async fn open_alone(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    id: i64,
    replica: FinalReplica,
) -> Result<ReplicaReader, StoreError> {
    let slice = pool.slice(replica.volume)?;
    let block = Block::new(id, replica.generation_stamp, replica.len);
    let pair = Pair::finalized(&slice.paths, id, replica.generation_stamp);
    let files = open_whole(store, &slice, pair, block).await?;
    if files.meta.is_none() {
        let doing = format!("opening replica {block} for reading");
        let error = IoError::new(
            IoErrorKind::NotFound,
            IoOp::Open,
            &slice.paths.finalized_dir(id),
            "its meta file",
        );
        return Err(StoreError::io(doing, error));
    }
    Ok(whole_reader(store, pool, &slice, block, files).alone())
}

/// What it means that a replica's files cannot be opened or read.
fn not_opened(
    store: &Arc<StoreState>,
    slice: &BlockPoolSlice,
    block: Block,
    error: IoError,
) -> StoreError {
    let doing = format!("opening replica {block} for reading");
    if error.kind() == IoErrorKind::Invalid {
        // The file is of another kind, or its stub names no place: the disk is well.
        return StoreError::corrupt(format!("{doing}: {error}"));
    }
    examine(store, &slice.volume, StoreError::io(doing, error))
}

/// Opens a replica all of whose bytes are on the disk. The checksum of a partial last chunk is
/// read now: an append would change it under a reader.
async fn open_whole(
    store: &Arc<StoreState>,
    slice: &Arc<BlockPoolSlice>,
    pair: Pair,
    block: Block,
) -> Result<OpenFiles, StoreError> {
    let failed = |e| not_opened(store, slice, block, e);
    let (data, meta) = open_pair(slice, &pair).await.map_err(failed)?;
    let checksum = read_checksum(meta.as_ref(), block)
        .await
        .map_err(failed)??;
    let start = checksum.chunk_start(block.num_bytes);
    let last_crc = match &meta {
        Some(meta) if start < block.num_bytes && checksum.sum_size() > 0 => {
            read_sum(meta, checksum, start).await.map_err(failed)?
        }
        _ => None,
    };
    Ok(OpenFiles {
        data,
        meta,
        checksum,
        last_crc,
    })
}

/// A reader of a replica all of whose bytes are in these files.
fn whole_reader(
    store: &Arc<StoreState>,
    pool: &Pool,
    slice: &Arc<BlockPoolSlice>,
    block: Block,
    files: OpenFiles,
) -> ReplicaReader {
    ReplicaReader {
        store: Arc::clone(store),
        slice: Arc::clone(slice),
        storage: slice.volume.info.clone(),
        block: pool.extended(block),
        visible_len: block.num_bytes,
        readable_len: block.num_bytes,
        checksum: files.checksum,
        last_crc: files.last_crc,
        whole: true,
        mender: None,
        own: Own::Shared,
        data: files.data,
        meta: files.meta,
        class: IoClass::ClientRead,
    }
}

async fn open_live(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    live: &Arc<LiveReplica>,
    missing_meta: MissingMeta,
) -> Result<ReplicaReader, StoreError> {
    let slice = &live.slice;
    let status = live.snapshot();
    let block = Block::new(live.id, status.generation_stamp, status.bytes_on_disk);
    // What waits for recovery is not multiplied nor vouched for.
    let original = status.recovery.map_or(status.state, |(_, state)| state);
    let waits = original == ReplicaState::Rwr && missing_meta == MissingMeta::Refused;
    let Some(visible_len) = status.visible_len().filter(|_| !waits) else {
        let text = format!(
            "Replica is not readable, block={block}, replica is {}",
            status.state
        );
        return Err(StoreError::illegal(text));
    };
    let pair = live.pair();
    if status.place == ReplicaDir::Finalized {
        let files = open_whole(store, slice, pair, block).await?;
        return Ok(whole_reader(store, pool, slice, block, files));
    }
    let failed = |e| not_opened(store, slice, block, e);
    let (data, meta) = open_pair(slice, &pair).await.map_err(failed)?;
    // Taken after opening, in one piece: length and checksum of the last chunk belong together.
    let status = live.snapshot();
    let checksum = status.checksum.unwrap_or_else(no_checksums);
    let partial = checksum.chunk_start(status.bytes_on_disk) < status.bytes_on_disk;
    // Of what can be read now.
    let visible_len = status.visible_len().unwrap_or(visible_len);
    let visible_len = visible_len.min(status.bytes_on_disk);
    Ok(ReplicaReader {
        store: Arc::clone(store),
        slice: Arc::clone(slice),
        storage: slice.volume.info.clone(),
        block: pool.extended(Block::new(live.id, status.generation_stamp, visible_len)),
        visible_len,
        readable_len: status.bytes_on_disk,
        checksum,
        last_crc: (partial && checksum.sum_size() > 0).then_some(status.last_crc),
        whole: false,
        mender: None,
        own: Own::Shared,
        data,
        meta,
        class: IoClass::ClientRead,
    })
}
