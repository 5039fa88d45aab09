//! Reading replicas of one volume for the sake of reading them: scanners, suspects, searches.
//!
//! What is read is the replica's own two files: nothing is decoded here, which would
//! make every damaged replica of a group look whole.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hayloft_io::{Advice, AlignedBuf, IoClass, IoErrorKind, told_if_broken};
use hayloft_wire::checksum::ChecksumMismatch;
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::counts::ScanCounts;
use crate::error::{StoreError, StoreErrorKind};
use crate::reader::{MissingMeta, ReplicaReader, open_alone, open_reader};
use crate::replica::block_pool::Pool;
use crate::replica::{FinalReplica, Slot};
use crate::state::StoreState;
use crate::transitions::check_volume;
use crate::types::StoreEvent;
use crate::volume::Volume;

/// Bytes read at a time, at least.
const PIECE_BYTES: usize = 1 << 20;
/// A bad replica is not told again for this long.
const TOLD: Duration = Duration::from_secs(600);
/// The same where its protection may mend it.
const MENDED: Duration = Duration::from_secs(5);
/// Bytes of a page of the page cache, or a multiple of it.
const PAGE: u64 = 64 << 10;
/// Bytes around a failed read that a second look reads, at most.
const RANGE_MAX: u64 = 4 << 20;

/// A replica that is not as it should be.
#[derive(Debug)]
pub struct NotWhole {
    /// What is wrong.
    pub error: StoreError,
    /// Where in the data, if it was read.
    pub at: Option<Range<u64>>,
    /// When that was seen.
    pub seen: std::time::Instant,
}

impl NotWhole {
    /// Seen now.
    pub fn new(error: StoreError, at: Option<Range<u64>>) -> Self {
        let seen = std::time::Instant::now();
        Self { error, at, seen }
    }

    /// The process lacked what the look takes, which says nothing of the replica.
    pub fn is_lack(&self) -> bool {
        let io = self.error.io_error();
        self.error.kind() == StoreErrorKind::Retry || io.is_some_and(|e| e.lacks().is_some())
    }

    /// The disk said so, and may say something else the next time.
    pub fn is_of_disk(&self) -> bool {
        let io = self.error.io_error();
        io.is_some_and(|e| e.kind().suspects_volume())
    }
}

/// How fast is read: what passed so far decides when more may be.
#[derive(Debug)]
pub enum Pace {
    /// Bytes a second, and when the next may be read.
    Rate(u64, Instant),
    /// After each piece this many times as long as it took.
    Rest(u32),
}

impl Pace {
    /// At most `rate` bytes a second.
    pub fn rate(rate: u64) -> Self {
        Self::Rate(rate.max(1), Instant::now())
    }

    /// Waits after `bytes` that took so long.
    pub async fn rest(&mut self, bytes: u64, took: Duration) {
        match self {
            Self::Rate(rate, due) => {
                let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(*rate);
                let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
                *due = (*due).max(Instant::now()) + Duration::from_nanos(nanos);
                tokio::time::sleep_until(*due).await;
            }
            Self::Rest(times) => tokio::time::sleep(took * *times).await,
        }
    }
}

/// Who looks at replicas of a volume.
#[derive(Clone, Debug)]
pub struct Looker {
    pub store: Arc<StoreState>,
    pub volume: Arc<Volume>,
    pub counts: Arc<ScanCounts>,
}

impl Looker {
    /// For a volume.
    pub fn new(store: &Arc<StoreState>, volume: &Arc<Volume>) -> Self {
        Self {
            store: Arc::clone(store),
            volume: Arc::clone(volume),
            counts: store.counts.scans_of(volume),
        }
    }

    /// The finalized replica of a block, if it is on this volume.
    pub fn here(&self, pool: &Pool, id: i64) -> Option<FinalReplica> {
        match pool.map.get(id)? {
            Slot::Finalized(replica) if replica.volume == self.volume.index => Some(replica),
            _ => None,
        }
    }

    /// Opens the files of a replica anew.
    async fn open(
        &self,
        pool: &Arc<Pool>,
        id: i64,
        replica: &FinalReplica,
        class: IoClass,
    ) -> Result<ReplicaReader, NotWhole> {
        let opened = open_alone(&self.store, pool, id, *replica).await;
        let opened = match opened {
            Err(error) if is_missing(&error) => {
                // Gone, or just renamed: this tells.
                let block = extended(pool, id, replica);
                let looked = open_reader(&self.store, &block, MissingMeta::Refused).await;
                match looked {
                    Ok(reader) if reader.is_decoded() => {
                        let what = "its files cannot be opened, or are not its own";
                        Err(StoreError::corrupt(format!("{block}: {what}")))
                    }
                    looked => looked.map(ReplicaReader::alone),
                }
            }
            opened => opened,
        };
        let reader = opened.map_err(|error| NotWhole::new(error, None))?;
        Ok(reader.with_class(class))
    }

    /// Opens a replica and reads its checksums, and a range of its data, from the device: not what
    /// the page cache still has of them.
    ///
    /// # Errors
    /// What cannot be read. Nothing is compared.
    pub async fn glance(
        &self,
        pool: &Arc<Pool>,
        id: i64,
        replica: &FinalReplica,
        at: Option<Range<u64>>,
        class: IoClass,
    ) -> Result<u64, NotWhole> {
        let reader = self.open(pool, id, replica, class).await?;
        reader.forget_cached_sums().await;
        let checksum = reader.checksum();
        let chunk = u64::from(checksum.bytes_per_checksum());
        let chunks = reader.readable_len().div_ceil(chunk);
        let sum = checksum.sum_size().max(1);
        let some = (PIECE_BYTES / sum) as u64;
        let mut first = 0;
        while first < chunks && checksum.sum_size() > 0 {
            let count = some.min(chunks - first);
            let sums = reader.read_sums(first, count).await;
            sums.map_err(|error| NotWhole::new(error, None))?;
            first += count;
        }
        if let Some(at) = at {
            let end = at.end.min(reader.readable_len());
            let range = at.start..end.min(at.start.saturating_add(RANGE_MAX));
            let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0);
            if len > 0 {
                // Only this: clients may be reading the rest. Parts of pages are not dropped.
                let from = range.start / PAGE * PAGE;
                let bytes = range.end.next_multiple_of(PAGE) - from;
                reader.advise(Advice::DontNeed, from, bytes).await;
                let buf = AlignedBuf::unpooled(len);
                let read = reader.read_data(buf, range.start, len).await;
                read.map_err(|error| NotWhole::new(error, Some(range)))?;
            }
        }
        Ok(chunks * sum as u64)
    }

    /// Compares all data of a replica with its checksums; whether it has any.
    ///
    /// # Errors
    /// What differs or cannot be read.
    pub async fn verify(
        &self,
        pool: &Arc<Pool>,
        id: i64,
        replica: &FinalReplica,
        pace: &mut Pace,
    ) -> Result<bool, NotWhole> {
        let reader = self.open(pool, id, replica, IoClass::Scan).await?;
        if matches!(pace, Pace::Rest(_)) {
            reader.forget_cached().await;
        }
        let checksum = reader.checksum();
        let chunk = u64::from(checksum.bytes_per_checksum());
        let piece = PIECE_BYTES.next_multiple_of(checksum.chunk_size());
        let len = reader.readable_len();
        let mut buf = AlignedBuf::unpooled(piece);
        let mut offset = 0;
        while offset < len {
            let began = std::time::Instant::now();
            let n = usize::try_from(len - offset).map_or(piece, |left| left.min(piece));
            let (sums_at, bytes) = (offset / chunk, n as u64);
            let range = offset..offset + bytes;
            let sums = reader.read_sums(sums_at, bytes.div_ceil(chunk)).await;
            let sums = sums.map_err(|error| NotWhole::new(error, None))?;
            let read = reader.read_data(buf, offset, n).await;
            buf = read.map_err(|error| NotWhole::new(error, Some(range.clone())))?;
            checksum
                .verify(buf.as_slice(), &sums)
                .map_err(|e| NotWhole::new(mismatch(&reader, offset, e), Some(range)))?;
            reader.advise(Advice::DontNeed, offset, bytes).await;
            offset += bytes;
            self.counts.read(bytes);
            pace.rest(bytes + sums.len() as u64, began.elapsed()).await;
        }
        Ok(checksum.sum_size() > 0)
    }

    /// Does `work` on a replica. `None` when that panicked: the log names the replica then, and the
    /// next one is looked at.
    pub async fn unless_broken<T>(
        &self,
        (pool, id): (&PoolId, i64),
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let done = told_if_broken("look at a replica", work).await;
        if done.is_none() {
            let volume = self.volume.root.display();
            warn!(%pool, id, %volume, "this replica is left alone: looking at it met the defect");
        }
        done
    }

    /// As [`verify`](Self::verify) a replica that is here, and tells when it is damaged; whether it
    /// is. While the process lacks something for it, it is tried again, so many times at most.
    pub async fn scan(&self, pool: &Arc<Pool>, id: i64, pace: &mut Pace, lacked_max: u32) -> bool {
        let scan = self.scan_once(pool, id, pace, lacked_max);
        let scanned = self.unless_broken((pool.id(), id), scan).await;
        scanned.unwrap_or(false)
    }

    async fn scan_once(&self, pool: &Arc<Pool>, id: i64, pace: &mut Pace, lacked_max: u32) -> bool {
        let Some(replica) = self.here(pool, id) else {
            return false;
        };
        let mut lacked = 0;
        loop {
            return match self.verify(pool, id, &replica, pace).await {
                Ok(_) => {
                    self.counts.scanned(&extended(pool, id, &replica), true);
                    false
                }
                Err(found) if found.is_lack() && lacked < lacked_max => {
                    lacked += 1;
                    tokio::time::sleep(check_volume::LACKING).await;
                    continue;
                }
                Err(found) => self.settle(pool, id, &replica, found, Sure::No).await,
            };
        }
    }

    /// Tells of a replica that is not whole, if that is so: whether it was told. What the disk
    /// said is asked for once more unless it is sure. A volume that has failed as a whole, and what
    /// the process lacks, are no damage; nor is a replica that a task changed meanwhile.
    pub async fn settle(
        &self,
        pool: &Arc<Pool>,
        id: i64,
        replica: &FinalReplica,
        mut found: NotWhole,
        sure: Sure,
    ) -> bool {
        if found.is_of_disk() && sure == Sure::No {
            let again = self.glance(pool, id, replica, found.at.clone(), IoClass::Scan);
            match again.await {
                Err(again) => found = again,
                Ok(_) => {
                    debug!(id, error = %found.error, "a replica can be read at the second attempt");
                    return false;
                }
            }
        }
        let error = &found.error;
        // Everything else says that the replica, the pool or the volume went away meanwhile.
        let damaged = matches!(error.kind(), StoreErrorKind::Corrupt | StoreErrorKind::Io);
        if !damaged || found.is_lack() {
            return false;
        }
        if error.io_error().is_some() {
            check_volume::check_since(&self.store, &self.volume, found.seen).await;
        }
        if self.volume.is_failed() || self.store.stop.is_cancelled() {
            return false;
        }
        let block = extended(pool, id, replica);
        if !pool.map.is_finalized(id, replica) {
            debug!(%block, %error, "a replica changed while it was scanned");
            return false;
        }
        // One that its protection has mended may be damaged again.
        let pause = if self.store.protection.is_some() {
            MENDED
        } else {
            TOLD
        };
        if !self.volume.errors.may_tell(pool.id(), id, pause) {
            return true;
        }
        self.counts.scanned(&block, false);
        warn!(%block, volume = %self.volume.root.display(), %error, "a replica is damaged or \
            cannot be read");
        let storage = self.volume.info.clone();
        let told = self
            .store
            .send_event(StoreEvent::Corrupt { block, storage });
        told.await;
        true
    }
}

/// Whether what the disk said of a replica was said twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sure {
    Yes,
    No,
}

fn extended(pool: &Pool, id: i64, replica: &FinalReplica) -> ExtendedBlock {
    pool.extended(Block::new(id, replica.generation_stamp, replica.len))
}

fn is_missing(error: &StoreError) -> bool {
    let io = error.io_error();
    io.is_some_and(|e| e.kind() == IoErrorKind::NotFound)
}

fn mismatch(reader: &ReplicaReader, offset: u64, error: ChecksumMismatch) -> StoreError {
    StoreError::corrupt(format!("{} from byte {offset}: {error}", reader.block()))
}
