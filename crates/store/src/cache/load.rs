//! One replica into locked memory, by the threads of its disk: each piece is read, locked, then
//! read again and compared with its checksums. What is compared lies in the locked pages by then.
//!
//! A piece that the disk does not give is never locked: Linux asks for such a page for ever.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use hayloft_io::{IoClass, IoError, IoOp, LockedFile};
use hayloft_wire::checksum::{DataChecksum, META_HEADER_LEN};
use hayloft_wire::ids::{Block, ExtendedBlock};
use tracing::debug;

use super::uncached::drop_apart;
use crate::error::{StoreError, StoreErrorKind};
use crate::reader::{PlainFiles, open_own_files};
use crate::replica::block_pool::Pool;
use crate::replica::cached::ToCache;
use crate::replica::locked_memory::{LockedReplica, LockedRoom};
use crate::state::StoreState;
use crate::transitions::check_volume::examine;
use crate::volume::BlockPoolSlice;

/// Bytes that are locked and verified at a time, at least: a disk turns to others in between.
const PIECE_BYTES: usize = 1 << 20;
/// On whose behalf it is read.
const CLASS: IoClass = IoClass::Balancer;

/// Takes the entry of a replica away that did not get into memory, however its loading ended.
struct GiveUp<'a> {
    pool: &'a Pool,
    of: &'a ToCache,
    cached: bool,
}

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        if !self.cached {
            self.pool.map.give_up_caching(self.of);
        }
    }
}

/// Caches a replica, unless it is not to be any more.
///
/// # Errors
/// Why it is not cached, for the log. A damaged replica is a suspect from here on.
pub(super) async fn load(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    of: &ToCache,
) -> Result<(), String> {
    let mut give_up = GiveUp {
        pool,
        of,
        cached: false,
    };
    let Ok(slice) = pool.slice(of.replica.volume) else {
        return Ok(());
    };
    let replica = &of.replica;
    let block = Block::new(of.id, replica.generation_stamp, replica.len);
    let block = pool.extended(block);
    let loaded = tokio::select! {
        biased;
        // A disk that gives no answer ends what it has begun, and no task waits for it.
        () = slice.volume.gone.cancelled() => return Ok(()),
        () = store.ending.cancelled() => return Ok(()),
        loaded = pieces(store, pool, &slice, of, &block) => loaded,
    };
    match loaded {
        Ok(Some(locked)) => {
            let refused = pool.map.cached(of, locked);
            give_up.cached = refused.is_none();
            let _given_back = refused.map(drop_apart);
            debug!(%block, cached = give_up.cached, "locked in memory");
            Ok(())
        }
        // What changed meanwhile says nothing of the replica that is here now.
        Ok(None) | Err(_) if !pool.map.is_to_be_cached(of) => Ok(()),
        Ok(None) => {
            Err("it has no plain files that are complete, or parity mends what it lacks".to_owned())
        }
        Err(error) => {
            match error.kind() {
                StoreErrorKind::Corrupt => store.mark_suspect(&block),
                StoreErrorKind::Io => store.mark_unreadable(&block, None),
                _ => {}
            }
            Err(error.to_string())
        }
    }
}

/// All pieces; `None` when the replica has no files that can be mapped, or is not to be cached.
async fn pieces(
    store: &Arc<StoreState>,
    pool: &Arc<Pool>,
    slice: &Arc<BlockPoolSlice>,
    of: &ToCache,
    block: &ExtendedBlock,
) -> Result<Option<LockedReplica>, StoreError> {
    let failed = |error| {
        let doing = format!("reading {block} into memory");
        examine(store, &slice.volume, StoreError::io(doing, error))
    };
    let Some(room) = pool.map.room_to_cache(of) else {
        return Ok(None);
    };
    let opened = open_own_files(store, pool, (of.id, &of.replica), slice, CLASS);
    let Some(files) = opened.await.map_err(failed)? else {
        return Ok(None);
    };
    let path = slice.paths.finalized_dir(of.id);
    let meta = slice.volume.meta(CLASS);
    let len = of.replica.len;
    let begun = meta.run(IoOp::Read, &path, move |path| {
        told(path, Loading::begin(files, len, room))
    });
    let mut loading = begun.await.map_err(failed)?.map_err(|w| w.of(block))?;
    while loading.done < loading.len {
        if !pool.map.is_to_be_cached(of) {
            let _given_back = drop_apart(loading);
            return Ok(None);
        }
        let step = meta.run(IoOp::Read, &path, move |path| told(path, loading.step()));
        loading = step.await.map_err(failed)?.map_err(|w| w.of(block))?;
    }
    let Loading { files, locked, .. } = loading;
    let _closed = drop_apart(files);
    Ok(Some(locked))
}

/// Why a replica does not get into memory.
#[derive(Debug)]
enum Why {
    /// Its files are not what they should be.
    Damaged(String),
    /// The system does not lock them.
    NotLocked(String),
    /// The disk does not give them.
    Disk(io::Error),
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged("a file is too short".to_owned()),
            _ => Self::Disk(error),
        }
    }
}

impl Why {
    fn of(self, block: &ExtendedBlock) -> StoreError {
        match self {
            Self::Damaged(what) => StoreError::corrupt(format!("{block}: {what}")),
            Self::NotLocked(what) => StoreError::illegal(format!("{block}: {what}")),
            Self::Disk(error) => StoreError::illegal(format!("{block}: {error}")),
        }
    }
}

/// Sets apart what the disk said.
fn told<T>(path: &Path, outcome: Result<T, Why>) -> Result<Result<T, Why>, IoError> {
    match outcome {
        Err(Why::Disk(error)) => Err(IoError::from_std(IoOp::Read, path, &error)),
        other => Ok(other),
    }
}

/// A replica on its way into memory. Everything here blocks.
struct Loading {
    files: PlainFiles,
    checksum: DataChecksum,
    len: u64,
    /// Bytes that are locked and verified.
    done: u64,
    locked: LockedReplica,
    data: Vec<u8>,
    sums: Vec<u8>,
}

impl Loading {
    /// Maps the data, and sees that both files are long enough.
    fn begin(files: PlainFiles, len: u64, room: LockedRoom) -> Result<Self, Why> {
        let mut header = [0; META_HEADER_LEN];
        files.meta.read_exact_at(&mut header, 0)?;
        let checksum = DataChecksum::decode_meta_header(&header);
        let checksum =
            checksum.map_err(|e| Why::Damaged(format!("header of the meta file: {e}")))?;
        let is_short = |file: &File, wanted| Ok::<_, io::Error>(file.metadata()?.len() < wanted);
        if is_short(&files.data, len)? || is_short(&files.meta, checksum.meta_len(len))? {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mapped = LockedFile::map(&files.data, len);
        let mapped = mapped.map_err(|e| Why::NotLocked(format!("cannot be mapped: {e}")))?;
        Ok(Self {
            files,
            checksum,
            len,
            done: 0,
            locked: LockedReplica::new(mapped, room),
            data: Vec::new(),
            sums: Vec::new(),
        })
    }

    /// The next piece.
    fn step(mut self) -> Result<Self, Why> {
        let piece = PIECE_BYTES.next_multiple_of(self.checksum.chunk_size());
        let left = usize::try_from(self.len - self.done).unwrap_or(usize::MAX);
        let bytes = left.min(piece);
        let end = self.done + bytes as u64;
        self.data.resize(bytes, 0);
        self.files.data.read_exact_at(&mut self.data, self.done)?;
        self.locked.file.lock_to(end).map_err(|e| {
            Why::NotLocked(format!(
                "the system does not lock its {} bytes: {e}; raise LimitMEMLOCK (ulimit -l) of \
                 the service above dfs.datanode.max.locked.memory",
                self.len
            ))
        })?;
        self.files.data.read_exact_at(&mut self.data, self.done)?;
        self.sums.resize(self.checksum.sums_len(bytes), 0);
        let at = self.checksum.meta_len(self.done);
        self.files.meta.read_exact_at(&mut self.sums, at)?;
        let compared = self.checksum.verify(&self.data, &self.sums);
        compared.map_err(|e| Why::Damaged(format!("from byte {}: {e}", self.done)))?;
        self.done = end;
        Ok(self)
    }
}
