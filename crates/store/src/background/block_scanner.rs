//! The block scanner: every finalized replica is read once in a period and compared with its
//! checksums, suspects first. One task per volume, in the class of I/O that no client waits for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hayloft_io::{Advice, AlignedBuf, IoClass};
use hayloft_wire::checksum::ChecksumMismatch;
use hayloft_wire::ids::{Block, ExtendedBlock, PoolId};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{Instrument as _, debug, info, warn};

use crate::background::scanner_cursor::Cursor;
use crate::counts::ScanCounts;
use crate::error::{StoreError, StoreErrorKind};
use crate::layout::dirs::now_ms;
use crate::layout::names;
use crate::lifecycle::volume_failure;
use crate::locks;
use crate::reader::{MissingMeta, ReplicaReader, open_reader};
use crate::replica::Slot;
use crate::replica::block_pool::Pool;
use crate::state::{StoreState, Suspect};
use crate::types::StoreEvent;
use crate::volume::{BlockPoolSlice, Volume};

/// Suspects that may wait on a volume; more are forgotten, the regular round finds them.
const SUSPECTS_MAX: usize = 1000;
/// A suspect that was scanned is not scanned again for this long.
const SUSPECT_AGAIN: Duration = Duration::from_secs(600);
/// Suspects are read at least this fast, bytes a second.
const SUSPECT_RATE_MIN: u64 = 32 << 20;
/// Bytes read at a time, at least.
const PIECE_BYTES: usize = 1 << 20;
/// How often the place in a round is saved.
const SAVE_EVERY: Duration = Duration::from_secs(600);
/// How long a volume without anything to scan is left alone.
const IDLE: Duration = Duration::from_secs(1);
/// Directories that a round goes through.
const DIRECTORIES: u8 = 32;

/// Starts a scanner on every volume that has none.
pub fn start(inner: &Arc<StoreState>) {
    let config = inner.config.scan;
    if config.bytes_per_second == 0 || config.period.is_zero() {
        return;
    }
    for volume in inner.volumes() {
        let mut scanners = locks::write(&inner.scanners);
        if scanners.contains_key(&volume.index) {
            continue;
        }
        let (sender, suspects) = mpsc::channel(SUSPECTS_MAX);
        scanners.insert(volume.index, sender);
        let scanner = Scanner {
            inner: Arc::clone(inner),
            counts: inner.counts.scans_of(&volume),
            volume,
            recent: HashMap::new(),
            due: Instant::now(),
            rounds: HashMap::new(),
        };
        inner.tasks.spawn(scanner.run(suspects).in_current_span());
    }
}

/// See [`Store::mark_suspect`](crate::Store::mark_suspect).
pub fn mark_suspect(inner: &StoreState, block: &ExtendedBlock) {
    let Some(slot) = inner
        .pool(&block.pool)
        .ok()
        .and_then(|pool| pool.map.get(block.block.id))
    else {
        return;
    };
    let scanners = locks::read(&inner.scanners);
    if let Some(suspects) = scanners.get(&slot.volume())
        && suspects
            .try_send((block.pool.clone(), block.block.id))
            .is_err()
    {
        debug!(%block, "too many suspects wait; the regular round finds this one");
    }
}

struct Scanner {
    inner: Arc<StoreState>,
    volume: Arc<Volume>,
    counts: Arc<ScanCounts>,
    /// Suspects scanned a short while ago.
    recent: HashMap<Suspect, Instant>,
    /// When the next bytes may be read.
    due: Instant,
    rounds: HashMap<PoolId, Round>,
}

/// The place in the round through one pool.
struct Round {
    cursor: Cursor,
    /// Ids of the present directory that are still to do, last first.
    todo: Vec<i64>,
    /// The next directory.
    next: u8,
    saved: Instant,
}

impl Scanner {
    async fn run(mut self, mut suspects: mpsc::Receiver<Suspect>) {
        let stop = self.inner.stop.clone();
        let gone = self.volume.gone.clone();
        while !stop.is_cancelled() && !gone.is_cancelled() {
            let work = async {
                match suspects.try_recv() {
                    Ok(suspect) => self.scan_suspect(suspect).await,
                    Err(_) => {
                        if !self.scan_next().await {
                            tokio::select! {
                                Some(suspect) = suspects.recv() => self.scan_suspect(suspect).await,
                                () = tokio::time::sleep(IDLE) => {}
                            }
                        }
                    }
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = gone.cancelled() => return,
                () = work => {}
            }
        }
        for (pool, round) in &self.rounds {
            self.save(pool, &round.cursor).await;
        }
    }

    async fn scan_suspect(&mut self, suspect: Suspect) {
        let now = Instant::now();
        self.recent.retain(|_, at| *at + SUSPECT_AGAIN > now);
        if self.recent.len() >= SUSPECTS_MAX || self.recent.insert(suspect.clone(), now).is_some() {
            return;
        }
        let rate = self
            .inner
            .config
            .scan
            .bytes_per_second
            .max(SUSPECT_RATE_MIN);
        if let Ok(pool) = self.inner.pool(&suspect.0) {
            self.scan(&pool, suspect.1, rate).await;
        }
    }

    /// Scans the next replica of the round that began first; false when none is due.
    async fn scan_next(&mut self) -> bool {
        let mut pools = self.inner.pools();
        pools.sort_unstable_by_key(|p| {
            let round = self.rounds.get(p.id());
            (round.map(|r| r.cursor.iter_start_ms), p.id().clone())
        });
        for pool in pools {
            let Some(slice) = self.volume.slice(pool.id()) else {
                continue;
            };
            if let Some(id) = self.next_of(&pool, &slice).await {
                let rate = self.inner.config.scan.bytes_per_second;
                self.scan(&pool, id, rate).await;
                return true;
            }
        }
        false
    }

    /// The next replica of a pool's round; begins a round when that is due.
    async fn next_of(&mut self, pool: &Pool, slice: &BlockPoolSlice) -> Option<i64> {
        if !self.rounds.contains_key(pool.id()) {
            let round = self.begin(pool, slice).await;
            self.counts.began(round.cursor.iter_start_ms);
            if round.cursor.at_end {
                self.counts.ended();
            }
            self.rounds.insert(pool.id().clone(), round);
        }
        let period_ms =
            u64::try_from(self.inner.config.scan.period.as_millis()).unwrap_or(u64::MAX);
        let volume = self.volume.index;
        let round = self.rounds.get_mut(pool.id())?;
        if round.cursor.at_end {
            if now_ms() < round.cursor.iter_start_ms.saturating_add(period_ms) {
                return None;
            }
            round.cursor = Cursor::begin(now_ms());
            round.next = 0;
            self.counts.began(round.cursor.iter_start_ms);
        }
        while round.todo.is_empty() {
            if round.next == DIRECTORIES {
                round.cursor.at_end = true;
                self.counts.ended();
                info!(pool = %pool.id(), volume = %self.volume.root.display(), "block scanner has \
                    finished a round");
                let cursor = round.cursor.clone();
                self.save(pool.id(), &cursor).await;
                return None;
            }
            round.todo = ids_in(pool, volume, round.next);
            round.next += 1;
        }
        let id = round.todo.pop()?;
        round.cursor.set_place(id);
        if round.saved.elapsed() > SAVE_EVERY {
            round.saved = Instant::now();
            let cursor = round.cursor.clone();
            self.save(pool.id(), &cursor).await;
        }
        Some(id)
    }

    /// Goes on with the round that was saved, or begins one.
    async fn begin(&self, pool: &Pool, slice: &BlockPoolSlice) -> Round {
        let path = slice
            .paths
            .root
            .join(crate::background::scanner_cursor::FILE);
        let saved = slice
            .volume
            .meta(IoClass::Scan)
            .read_small(&path, crate::background::scanner_cursor::BYTES_MAX)
            .await;
        let cursor = saved
            .ok()
            .and_then(|bytes| Cursor::parse(&bytes))
            .unwrap_or_else(|| Cursor::begin(now_ms()));
        let (mut todo, mut next) = (Vec::new(), 0);
        if let Some((directory, last)) = cursor.place() {
            todo = ids_in(pool, self.volume.index, directory);
            todo.retain(|id| order(*id) > order(last));
            next = directory + 1;
        }
        Round {
            cursor,
            todo,
            next,
            saved: Instant::now(),
        }
    }

    async fn save(&self, pool: &PoolId, cursor: &Cursor) {
        let Some(slice) = self.volume.slice(pool) else {
            return;
        };
        let path = slice
            .paths
            .root
            .join(crate::background::scanner_cursor::FILE);
        let contents = cursor.encode(now_ms());
        if let Err(error) = self
            .volume
            .meta(IoClass::Scan)
            .replace(&path, contents, crate::layout::dirs::FILE_MODE)
            .await
        {
            debug!(path = %path.display(), %error, "cannot save the place of the block scanner");
        }
    }

    /// Reads a replica and tells when it is damaged.
    async fn scan(&mut self, pool: &Arc<Pool>, id: i64, rate: u64) {
        let Some(Slot::Finalized(replica)) = pool.map.get(id) else {
            return;
        };
        if replica.volume != self.volume.index {
            return;
        }
        let block = pool.extended(Block::new(id, replica.generation_stamp, replica.len));
        let outcome = loop {
            let outcome = match open_reader(&self.inner, &block, MissingMeta::Refused).await {
                Ok(reader) if reader.is_decoded() => {
                    let text = format!("{block}: its files cannot be opened, or are not its own");
                    Err(StoreError::corrupt(text))
                }
                Ok(reader) => {
                    let reader = reader.as_it_is().with_class(IoClass::Scan);
                    self.verify(&reader, rate).await
                }
                Err(error) => Err(error),
            };
            match outcome {
                Err(error) if error.kind() == StoreErrorKind::Retry => {
                    tokio::time::sleep(volume_failure::LACKING).await;
                }
                outcome => break outcome,
            }
        };
        let Err(error) = outcome else {
            self.counts.scanned(&block, true);
            return;
        };
        // Everything else says that the replica, the pool or the volume went away meanwhile.
        if !matches!(error.kind(), StoreErrorKind::Corrupt | StoreErrorKind::Io) {
            return;
        }
        if error.io_error().is_some() {
            volume_failure::check(&self.inner, &self.volume).await;
            if self.volume.is_failed() || self.inner.stop.is_cancelled() {
                return;
            }
        }
        if !pool.map.is_finalized(id, &replica) {
            debug!(%block, %error, "a replica changed while it was scanned");
            return;
        }
        self.counts.scanned(&block, false);
        warn!(%block, volume = %self.volume.root.display(), %error, "block scanner found a \
            damaged replica");
        self.inner
            .send_event(StoreEvent::Corrupt {
                block,
                storage: self.volume.info.clone(),
            })
            .await;
    }

    /// Compares all data of a replica with its checksums, at most `rate` bytes a second.
    async fn verify(&mut self, reader: &ReplicaReader, rate: u64) -> Result<(), StoreError> {
        let checksum = reader.checksum();
        let chunk = u64::from(checksum.bytes_per_checksum());
        let piece = PIECE_BYTES.next_multiple_of(checksum.chunk_size());
        let len = reader.readable_len();
        let mut buf = AlignedBuf::unpooled(piece);
        let mut offset = 0;
        while offset < len {
            let n = usize::try_from(len - offset).map_or(piece, |left| left.min(piece));
            let (sums_at, bytes) = (offset / chunk, n as u64);
            let sums = reader.read_sums(sums_at, bytes.div_ceil(chunk)).await?;
            buf = reader.read_data(buf, offset, n).await?;
            checksum
                .verify(buf.as_slice(), &sums)
                .map_err(|e| mismatch(reader, offset, e))?;
            reader.advise(Advice::DontNeed, offset, bytes).await;
            offset += bytes;
            self.counts.read(bytes);
            self.pace(bytes + sums.len() as u64, rate).await;
        }
        Ok(())
    }

    /// Waits so long that `bytes` at `rate` have had their time.
    async fn pace(&mut self, bytes: u64, rate: u64) {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        self.due = self.due.max(Instant::now()) + Duration::from_nanos(nanos);
        tokio::time::sleep_until(self.due).await;
    }
}

fn mismatch(reader: &ReplicaReader, offset: u64, error: ChecksumMismatch) -> StoreError {
    StoreError::corrupt(format!("{} from byte {offset}: {error}", reader.block()))
}

/// The order of a round within a first-level directory.
fn order(id: i64) -> (u8, i64) {
    (names::subdir_numbers(id).1, id)
}

/// Finalized replicas on a volume in one first-level directory, the first to scan last.
fn ids_in(pool: &Pool, volume: u16, directory: u8) -> Vec<i64> {
    let mut ids = Vec::new();
    pool.map.for_each(|id, slot| {
        let here = matches!(slot, Slot::Finalized(r) if r.volume == volume);
        if here && names::subdir_numbers(id).0 == directory {
            ids.push(id);
        }
    });
    ids.sort_unstable_by_key(|id| std::cmp::Reverse(order(*id)));
    ids
}
