//! Reading one replica.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::Bytes;
use hayloft_io::{Advice, AlignedBuf, EngineFile, IoClass, IoError, IoErrorKind, OpenMode};
use hayloft_wire::checksum::{ChecksumKind, DataChecksum, META_HEADER_LEN};
use hayloft_wire::ids::{Block, ExtendedBlock};
use tracing::warn;

use crate::error::{StoreError, StoreErrorKind};
use crate::failures::examine;
use crate::files::Pair;
use crate::inner::Inner;
use crate::pool::Pool;
use crate::replica::{FinalReplica, LiveReplica, Place, Slot};
use crate::types::{StorageInfo, StoreEvent};
use crate::volume::{Slice, footprint};

/// How often opening is tried again when the replica moves between directories meanwhile.
const ATTEMPTS_MAX: usize = 10;
/// Chunk size that stands for "no checksums".
const NULL_CHUNK_BYTES: u32 = 512;

/// One replica opened for reading: a snapshot of its length and of the checksum of its last
/// partial chunk, so that data and checksums always fit together, also while it is being written.
/// It stays readable when the replica is deleted or moved.
#[derive(Debug)]
pub struct ReplicaReader {
    inner: Arc<Inner>,
    slice: Arc<Slice>,
    block: ExtendedBlock,
    visible_len: u64,
    readable_len: u64,
    checksum: DataChecksum,
    /// CRC of the last chunk up to `readable_len`, when that is partial.
    last_crc: Option<u32>,
    data: Arc<dyn EngineFile>,
    meta: Option<Arc<dyn EngineFile>>,
}

/// See [`Store::open_reader`](crate::Store::open_reader).
pub(crate) async fn open_reader(
    inner: &Arc<Inner>,
    wanted: &ExtendedBlock,
) -> Result<ReplicaReader, StoreError> {
    let pool = inner.pool(&wanted.pool)?;
    let id = wanted.block.id;
    let mut last_error = pool.not_found(id);
    for _ in 0..ATTEMPTS_MAX {
        let slot = pool.slot(id)?;
        let here = crate::deletes::block_of(id, &slot);
        if here.generation_stamp < wanted.block.generation_stamp {
            return Err(StoreError::new(
                StoreErrorKind::UnexpectedGenerationStamp,
                format!("Replica gen stamp < block genstamp, block={wanted}, replica={here}"),
            ));
        }
        let attempt = match &slot {
            Slot::Finalized(replica) => open_finalized(inner, &pool, id, *replica).await,
            Slot::Live(live) => open_live(inner, &pool, live).await,
        };
        let unchanged = pool.map.get(id).is_some_and(|now| same(&slot, &now));
        match attempt {
            Ok(reader) if unchanged => return Ok(reader),
            Ok(_) => {}
            Err(e) if unchanged => {
                if is_missing(&e) {
                    missing(inner, &pool, id, &slot).await;
                }
                return Err(e);
            }
            Err(e) => last_error = e,
        }
    }
    Err(last_error)
}

/// Whether nothing happened to the replica that would make an open file or a length wrong. A live
/// replica that only grew is the same.
fn same(before: &Slot, now: &Slot) -> bool {
    match (before, now) {
        (Slot::Finalized(a), Slot::Finalized(b)) => a == b,
        (Slot::Live(a), Slot::Live(b)) => Arc::ptr_eq(a, b),
        _ => false,
    }
}

fn is_missing(error: &StoreError) -> bool {
    error
        .io_error()
        .is_some_and(|e| e.kind() == IoErrorKind::NotFound)
}

/// The data file of a finalized replica is not there: it is no longer served, unless the whole
/// volume is gone.
async fn missing(inner: &Arc<Inner>, pool: &Arc<Pool>, id: i64, slot: &Slot) {
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
        crate::failures::suspect(
            inner,
            &slice.volume,
            "the directory of finalized replicas is gone",
        );
        return;
    }
    let _latch = pool.latches.acquire(id).await;
    if !pool.map.get(id).is_some_and(|now| same(slot, &now)) {
        return;
    }
    pool.map.remove(id);
    slice.used.sub(footprint(replica.len, None));
    let block = pool.extended(Block::new(id, replica.generation_stamp, replica.len));
    warn!(%block, volume = %slice.volume.root.display(), "the files of a replica are gone; it is no longer served");
    inner
        .tell(StoreEvent::Lost {
            block,
            storage: slice.volume.info.clone(),
        })
        .await;
}

/// Data file and, if there is one, meta file.
async fn open_pair(
    slice: &Slice,
    pair: &Pair,
) -> Result<(Arc<dyn EngineFile>, Option<Arc<dyn EngineFile>>), IoError> {
    let engine = &slice.volume.engine;
    let (data, meta) = futures_util::future::join(
        engine.open(&pair.data(), OpenMode::ReadOnly, IoClass::ClientRead),
        engine.open(&pair.meta(), OpenMode::ReadOnly, IoClass::ClientRead),
    )
    .await;
    let meta = match meta {
        Ok(meta) => Some(meta),
        Err(e) if e.kind() == IoErrorKind::NotFound => None,
        Err(e) => return Err(e),
    };
    Ok((data?, meta))
}

/// Reads exactly `len` bytes; `None` when the file is shorter.
async fn read_exact(
    file: &Arc<dyn EngineFile>,
    offset: u64,
    len: usize,
) -> Result<Option<AlignedBuf>, IoError> {
    let (buf, n) = file
        .read_at(AlignedBuf::unpooled(len), offset, len)
        .await
        .into_result()?;
    Ok((n == len).then_some(buf))
}

/// The checksum in the header of a meta file; NULL when there is none.
async fn read_checksum(
    meta: Option<&Arc<dyn EngineFile>>,
    block: Block,
) -> Result<DataChecksum, IoError> {
    let none =
        DataChecksum::new(ChecksumKind::Null, NULL_CHUNK_BYTES).expect("a possible chunk size");
    let Some(meta) = meta else {
        warn!(%block, "no meta file: served without checksums");
        return Ok(none);
    };
    let Some(header) = read_exact(meta, 0, META_HEADER_LEN).await? else {
        return Ok(none);
    };
    Ok(
        DataChecksum::decode_meta_header(header.as_slice()).unwrap_or_else(|error| {
            warn!(%block, %error, "unreadable meta file header: served without checksums");
            none
        }),
    )
}

/// The stored checksum of one chunk.
async fn read_sum(
    meta: &Arc<dyn EngineFile>,
    checksum: DataChecksum,
    chunk_start: u64,
) -> Result<Option<u32>, IoError> {
    let sum = read_exact(meta, checksum.meta_len(chunk_start), checksum.sum_size()).await?;
    Ok(sum
        .and_then(|b| b.as_slice().first_chunk().copied())
        .map(u32::from_be_bytes))
}

async fn open_finalized(
    inner: &Arc<Inner>,
    pool: &Arc<Pool>,
    id: i64,
    replica: FinalReplica,
) -> Result<ReplicaReader, StoreError> {
    let slice = pool.slice(replica.volume)?;
    let pair = Pair {
        dir: slice.paths.finalized_dir(id),
        id,
        generation_stamp: replica.generation_stamp,
    };
    let block = Block::new(id, replica.generation_stamp, replica.len);
    open_whole(inner, pool, &slice, pair, block).await
}

/// Opens a replica all of whose bytes are on the disk. The checksum of a partial last chunk is
/// read now: an append would change it under a reader.
async fn open_whole(
    inner: &Arc<Inner>,
    pool: &Arc<Pool>,
    slice: &Arc<Slice>,
    pair: Pair,
    block: Block,
) -> Result<ReplicaReader, StoreError> {
    let failed = |e| {
        let e = StoreError::io(format!("opening replica {block} for reading"), e);
        examine(inner, &slice.volume, e)
    };
    let (data, meta) = open_pair(slice, &pair).await.map_err(failed)?;
    let checksum = read_checksum(meta.as_ref(), block).await.map_err(failed)?;
    let start = checksum.chunk_start(block.num_bytes);
    let last_crc = match &meta {
        Some(meta) if start < block.num_bytes && checksum.sum_size() > 0 => {
            read_sum(meta, checksum, start).await.map_err(failed)?
        }
        _ => None,
    };
    Ok(ReplicaReader {
        inner: Arc::clone(inner),
        slice: Arc::clone(slice),
        block: pool.extended(block),
        visible_len: block.num_bytes,
        readable_len: block.num_bytes,
        checksum,
        last_crc,
        data,
        meta,
    })
}

async fn open_live(
    inner: &Arc<Inner>,
    pool: &Arc<Pool>,
    live: &Arc<LiveReplica>,
) -> Result<ReplicaReader, StoreError> {
    let slice = &live.slice;
    let status = live.snapshot();
    let block = Block::new(live.id, status.generation_stamp, status.bytes_on_disk);
    let Some(visible_len) = status.visible_len() else {
        let text = format!(
            "Replica is not readable, block={block}, replica is {}",
            status.state
        );
        return Err(StoreError::new(StoreErrorKind::Illegal, text));
    };
    let pair = crate::finish::pair_of(live);
    if status.place == Place::Finalized {
        return open_whole(inner, pool, slice, pair, block).await;
    }
    let failed = |e| {
        let e = StoreError::io(format!("opening replica {block} for reading"), e);
        examine(inner, &slice.volume, e)
    };
    let (data, meta) = open_pair(slice, &pair).await.map_err(failed)?;
    let none =
        DataChecksum::new(ChecksumKind::Null, NULL_CHUNK_BYTES).expect("a possible chunk size");
    // Taken after opening, in one piece: length and checksum of the last chunk belong together.
    let status = live.snapshot();
    let checksum = status.checksum.unwrap_or(none);
    let partial = checksum.chunk_start(status.bytes_on_disk) < status.bytes_on_disk;
    Ok(ReplicaReader {
        inner: Arc::clone(inner),
        slice: Arc::clone(slice),
        block: pool.extended(Block::new(
            live.id,
            status.generation_stamp,
            status.bytes_acked,
        )),
        visible_len: status.visible_len().unwrap_or(visible_len),
        readable_len: status.bytes_on_disk,
        checksum,
        last_crc: (partial && checksum.sum_size() > 0).then_some(status.last_crc),
        data,
        meta,
    })
}

impl ReplicaReader {
    /// The block with the generation stamp of the replica and the visible length.
    #[must_use]
    pub fn block(&self) -> &ExtendedBlock {
        &self.block
    }

    /// The volume.
    #[must_use]
    pub fn storage(&self) -> &StorageInfo {
        &self.slice.volume.info
    }

    /// Bytes that a client may ask for.
    #[must_use]
    pub fn visible_len(&self) -> u64 {
        self.visible_len
    }

    /// Bytes for which data and checksums of this reader are consistent (at least the visible
    /// length). A range is extended to the end of its last chunk, but not beyond this.
    #[must_use]
    pub fn readable_len(&self) -> u64 {
        self.readable_len
    }

    /// How the data is checksummed; NULL without a meta file.
    #[must_use]
    pub fn checksum(&self) -> DataChecksum {
        self.checksum
    }

    /// Reads `len` bytes at `offset` to the start of `buf`. `offset + len` must not go beyond
    /// `readable_len`.
    ///
    /// # Errors
    /// `Corrupt` when the data file is shorter than it should be, `Illegal`, `Io`.
    pub async fn read_data(
        &self,
        buf: AlignedBuf,
        offset: u64,
        len: usize,
    ) -> Result<AlignedBuf, StoreError> {
        let end = u64::try_from(len)
            .ok()
            .and_then(|len| offset.checked_add(len));
        if end.is_none_or(|end| end > self.readable_len) {
            let text = format!(
                "{len} bytes at {offset} of {}, of which {} can be read",
                self.block, self.readable_len
            );
            return Err(StoreError::new(StoreErrorKind::Illegal, text));
        }
        let (buf, n) = self
            .data
            .read_at(buf, offset, len)
            .await
            .into_result()
            .map_err(|e| self.failed(e))?;
        if n < len {
            return Err(self.too_short("data", offset, len, n));
        }
        Ok(buf)
    }

    /// Reads the checksums of `count` chunks from chunk number `first` on. Empty with NULL
    /// checksums.
    ///
    /// # Errors
    /// `Corrupt` when the meta file is shorter than it should be, `Illegal`, `Io`.
    pub async fn read_sums(&self, first: u64, count: u64) -> Result<Bytes, StoreError> {
        let size = self.checksum.sum_size();
        let chunks = self
            .readable_len
            .div_ceil(u64::from(self.checksum.bytes_per_checksum()));
        let end = first.checked_add(count).filter(|end| *end <= chunks);
        let len = usize::try_from(count)
            .ok()
            .and_then(|n| n.checked_mul(size))
            .filter(|n| *n <= hayloft_io::BUFFER_MAX);
        let (Some(end), Some(len)) = (end, len) else {
            let text = format!(
                "{count} checksums at {first} of {}, which has {chunks}",
                self.block
            );
            return Err(StoreError::new(StoreErrorKind::Illegal, text));
        };
        let Some(meta) = self.meta.as_ref().filter(|_| len > 0) else {
            return Ok(Bytes::new());
        };
        let offset = self
            .checksum
            .meta_len(first * u64::from(self.checksum.bytes_per_checksum()));
        let (mut buf, n) = meta
            .read_at(AlignedBuf::unpooled(len), offset, len)
            .await
            .into_result()
            .map_err(|e| self.failed(e))?;
        if n < len {
            return Err(self.too_short("meta", offset, len, n));
        }
        if let Some(crc) = self.last_crc.filter(|_| end == chunks) {
            let at = len - size;
            buf.as_mut_slice()[at..].copy_from_slice(&crc.to_be_bytes());
        }
        Ok(buf.freeze())
    }

    /// The data file for sendfile, when the engine has one.
    #[must_use]
    pub fn data_fd(&self) -> Option<BorrowedFd<'_>> {
        self.data.fd()
    }

    /// The open data file, for sending from it while this reader is used elsewhere.
    #[must_use]
    pub fn data_file(&self) -> &Arc<dyn EngineFile> {
        &self.data
    }

    /// The meta file, for short-circuit reads, when the engine has one.
    #[must_use]
    pub fn meta_fd(&self) -> Option<BorrowedFd<'_>> {
        self.meta.as_ref().and_then(|meta| meta.fd())
    }

    /// A caching hint about a range of the data; `len` 0 means to the end. Errors are of no
    /// consequence and dropped.
    pub async fn advise(&self, advice: Advice, offset: u64, len: u64) {
        let _ = self.data.advise(advice, offset, len).await;
    }

    /// On whose behalf later reads run; `ClientRead` at first.
    #[must_use]
    pub fn with_class(mut self, class: IoClass) -> Self {
        self.data = self.data.with_class(class);
        self.meta = self.meta.map(|meta| meta.with_class(class));
        self
    }

    fn failed(&self, error: IoError) -> StoreError {
        let error = StoreError::io(format!("reading replica {}", self.block), error);
        examine(&self.inner, &self.slice.volume, error)
    }

    fn too_short(&self, file: &str, offset: u64, len: usize, n: usize) -> StoreError {
        let text = format!(
            "{}: the {file} file ends {n} bytes after {offset}, {len} were expected",
            self.block
        );
        StoreError::new(StoreErrorKind::Corrupt, text)
    }
}
