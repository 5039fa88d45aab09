//! Writing one replica.

mod carry;
mod close;
mod staged;
mod sync;

use std::sync::Arc;

use bytes::Bytes;
use hayloft_io::staging::StagedFile;
use hayloft_io::{CacheHints, EngineFile, IoClass, IoOp, OpenMode, WriteBehind};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::{ExtendedBlock, ReplicaState};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tracing::warn;

use crate::error::{StoreError, StoreErrorKind};
use crate::failures::examine;
use crate::files;
use crate::finish::{pair_of, reference};
use crate::inner::Inner;
use crate::plan::{Plan, Tail, plan};
use crate::pool::Pool;
use crate::replica::state::{Move, after};
use crate::replica::{LiveReplica, Place, Status};
use crate::seize::Right;
use crate::types::{PacketData, ReplicaRef, StorageInfo};
use crate::volume::footprint;

use self::carry::{acknowledge, carry_out};

pub use self::carry::AckHandle;
pub use self::staged::Staged;

/// Room is reserved for replicas that have this many bytes and expect as many more.
const ALLOCATE_FROM: u64 = 1 << 20;

/// No more room than this is reserved ahead: how long a replica will be is the word of a client, who may send less
/// than it said. Longer ones grow beyond it as they are written.
const ALLOCATE_MAX: u64 = 1 << 30;

/// The length to reserve room for, when the replica is expected to grow enough.
fn worth_allocating(status: &Status) -> Option<u64> {
    let ahead = status.expected.saturating_sub(status.bytes_on_disk);
    let most = status.bytes_on_disk.saturating_add(ALLOCATE_MAX);
    (ahead >= ALLOCATE_FROM).then_some(status.expected.min(most))
}

/// The exclusive right to write one replica.
///
/// Dropping it without [`finalize`](Self::finalize) leaves an RBW replica as it is, for the
/// pipeline or block recovery to find; a TEMPORARY replica is deleted. Another taker (recovery, a
/// new pipeline) cancels the writer and waits until it is dropped.
#[derive(Debug)]
pub struct ReplicaWriter {
    inner: Arc<Inner>,
    pool: Arc<Pool>,
    live: Arc<LiveReplica>,
    right: Right,
    cancel: CancellationToken,
    class: IoClass,
    data: Arc<dyn EngineFile>,
    meta: Arc<dyn EngineFile>,
    /// Minds the page cache behind what is written, where files go through it and somebody wants it.
    behind: Option<Arc<WriteBehind>>,
    /// The two files behind staging; `None` when the replica is written without.
    staged: Option<Arc<StagedFile>>,
    /// Checksum of the packets.
    client: Option<DataChecksum>,
    names_durable: bool,
    /// The names that finalizing gives outlive power loss.
    durable_finalize: bool,
    /// Room is to be asked for on the device for the length that the replica is expected to reach, once it is worth it.
    to_allocate: bool,
    /// That is being done.
    allocating: Option<JoinHandle<()>>,
    /// Bytes of the replica that may have been promised to outlive power loss: those of the last
    /// hsync, and those that were there before this writer.
    synced_len: u64,
    /// Nothing was written to the data file since it was last synced.
    data_synced: bool,
    done: bool,
}

impl ReplicaWriter {
    /// Opens the files of a replica that the caller has the right to write.
    pub(crate) async fn open(
        inner: &Arc<Inner>,
        pool: &Arc<Pool>,
        live: Arc<LiveReplica>,
        right: Right,
        mode: OpenMode,
        class: IoClass,
    ) -> Result<Self, StoreError> {
        let pair = pair_of(&live);
        let engine = &live.slice.volume.engine;
        let (data, meta) = futures_util::future::join(
            engine.open(&pair.data(), mode, class),
            engine.open(&pair.meta(), mode, class),
        )
        .await;
        let failed = |e| {
            let e = StoreError::io(format!("opening replica {} for writing", live.block()), e);
            examine(inner, &live.slice.volume, e)
        };
        let (data, meta) = (data.map_err(failed)?, meta.map_err(failed)?);
        let cancel = CancellationToken::new();
        let (client, synced_len, to_allocate) = {
            let mut status = live.status();
            status.cancel = cancel.clone();
            let to_allocate = inner.config.preallocate && worth_allocating(&status).is_some();
            (status.checksum, status.bytes_on_disk, to_allocate)
        };
        // Whoever takes a volume out marks it first and tells its writers to stop then, of whom this is one from here on.
        if live.slice.volume.is_failed() {
            return Err(pool.volume_failed());
        }
        let mut writer = Self {
            inner: Arc::clone(inner),
            pool: Arc::clone(pool),
            live,
            right,
            cancel,
            class,
            data,
            meta,
            behind: None,
            staged: None,
            client,
            names_durable: false,
            durable_finalize: false,
            to_allocate,
            allocating: None,
            synced_len,
            data_synced: false,
            done: false,
        };
        writer.begin_staging();
        Ok(writer)
    }

    /// Has the file system reserve room for the length that the replica is expected to reach, in the background: its
    /// extents become few and long. Small replicas are spared the trouble. The length of the file does not change, so
    /// that a crash leaves none that is longer than its data; what is not used is given back when the replica
    /// is finalized.
    fn allocate_ahead(&mut self) {
        if !self.to_allocate || self.bytes_on_disk() < ALLOCATE_FROM {
            return;
        }
        self.to_allocate = false;
        let staged = self.staged.clone();
        let go_on = move || {
            if let Some(staged) = staged {
                staged.let_go();
            }
        };
        let Some(whole) = worth_allocating(&self.live.status()) else {
            return go_on();
        };
        let (data, live) = (Arc::clone(&self.data), Arc::clone(&self.live));
        // Whoever gets the replica next does not meet it.
        let right = Arc::clone(&self.right);
        self.allocating = Some(self.inner.tasks.spawn(async move {
            let _right = right;
            // Without it the file grows as it is written.
            if data.allocate(whole).await.is_ok() {
                live.note_allocated(whole);
            }
            go_on();
        }));
    }

    /// Nothing is being allocated any more.
    async fn allocated(&mut self) {
        if let Some(allocating) = self.allocating.take() {
            // It only ends early when the process does.
            let _ = allocating.await;
        }
    }

    /// The block with its present generation stamp; its length is the bytes received.
    #[must_use]
    pub fn block(&self) -> ExtendedBlock {
        self.pool.extended(self.live.block())
    }

    /// The volume.
    #[must_use]
    pub fn storage(&self) -> &StorageInfo {
        &self.live.slice.volume.info
    }

    /// Bytes in the data file.
    #[must_use]
    pub fn bytes_on_disk(&self) -> u64 {
        self.live.status().bytes_on_disk
    }

    /// Checksum of the meta file; `None` in a new replica before
    /// [`set_checksum`](Self::set_checksum).
    #[must_use]
    pub fn checksum(&self) -> Option<DataChecksum> {
        self.live.status().checksum
    }

    /// Says how the packets' data is checksummed. A new replica's meta file gets this header. A
    /// replica with data keeps the checksum it has: packets are verified with the client's and
    /// stored with the disk's.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub async fn set_checksum(&mut self, checksum: DataChecksum) -> Result<(), StoreError> {
        self.client = Some(checksum);
        if self.checksum().is_some() {
            return Ok(());
        }
        let header = Bytes::copy_from_slice(&checksum.encode_meta_header());
        let (meta, live, right) = (
            Arc::clone(&self.meta),
            Arc::clone(&self.live),
            Arc::clone(&self.right),
        );
        let work = async move {
            let _right = right;
            meta.write_at(vec![header], 0)
                .await
                .result
                .map_err(|e| StoreError::io("writing a meta file header", e))?;
            let mut status = live.status();
            status.checksum = Some(checksum);
            live.slice.used.add(footprint(0, Some(checksum)));
            Ok(())
        };
        let outcome = self.inner.complete(work).await;
        outcome.map_err(|e| self.examine(e))?;
        self.begin_staging();
        Ok(())
    }

    /// Checks that packets can be written now, and plans it.
    fn planned(&self, packets: &[PacketData]) -> Result<(DataChecksum, Tail, Plan), StoreError> {
        let (disk, tail, unsettled) = {
            let status = self.live.status();
            let tail = Tail {
                len: status.bytes_on_disk,
                crc: status.last_crc,
            };
            (status.checksum, tail, status.unsettled)
        };
        let (Some(disk), Some(client)) = (disk, self.client) else {
            return Err(StoreError::new(
                StoreErrorKind::Illegal,
                "set_checksum comes before write",
            ));
        };
        if self.cancel.is_cancelled() {
            return Err(self.was_cancelled());
        }
        if unsettled {
            let text = format!("an earlier write of {} failed", self.live.block());
            return Err(StoreError::new(StoreErrorKind::Illegal, text));
        }
        let plan = plan(tail, disk, client, packets).map_err(|e| {
            let text = format!("{}: {e}", self.live.block());
            StoreError::new(StoreErrorKind::Illegal, text)
        })?;
        Ok((disk, tail, plan))
    }

    /// Accepts a run of verified packets, in order: data that is there already is skipped, a
    /// partial last chunk that is sent again or appended to is completed. Waits for room in staging, or for one
    /// gather write of the run when the replica is not staged. When it returns, data and checksums outlive a killed
    /// process.
    ///
    /// # Errors
    /// `Illegal` for packets that leave a gap or that contradict what is on the disk, `Cancelled`,
    /// `OutOfSpace`, `Io`. After an error nothing more can be written through this writer's files
    /// with certainty: drop it, and let the pipeline recover.
    pub async fn write(&mut self, packets: Vec<PacketData>) -> Result<(), StoreError> {
        self.leave_lost_area().await?;
        if self.staged.is_some() {
            self.stage_all(packets).await?;
            return self.leave_lost_area().await;
        }
        let (disk, tail, plan) = self.planned(&packets)?;
        if plan.data.is_empty() {
            return Ok(());
        }
        let files = (Arc::clone(&self.data), Arc::clone(&self.meta));
        let (live, right) = (Arc::clone(&self.live), Arc::clone(&self.right));
        // A checksum that covers synced bytes is about to be replaced.
        let chunk_start = plan
            .first_chunk
            .saturating_mul(u64::from(disk.bytes_per_checksum()));
        let guard = plan.completes_chunk && chunk_start < self.synced_len;
        self.data_synced = false;
        let work = async move {
            let _right = right;
            carry_out(&live, disk, tail, plan, guard, files).await
        };
        self.inner
            .complete(work)
            .await
            .map_err(|e| self.examine(e))?;
        self.data_synced = guard;
        self.allocate_ahead();
        if let Some(behind) = &self.behind {
            behind.written(&*self.data, self.bytes_on_disk()).await;
        }
        Ok(())
    }

    /// Everything below `bytes` was acknowledged by the whole pipeline: readers may see it. Never
    /// goes back, nor beyond what is on the disk.
    pub fn set_bytes_acked(&self, bytes: u64) {
        acknowledge(&self.live, bytes);
    }

    /// Resolves when another taker wants the replica: stop and drop the writer.
    pub fn cancelled(&self) -> WaitForCancellationFuture<'_> {
        self.cancel.cancelled()
    }

    /// A handle to report acknowledgements while the writer is busy writing: the responder of a
    /// pipeline works beside its disk loop.
    #[must_use]
    pub fn acks(&self) -> AckHandle {
        AckHandle {
            live: Arc::clone(&self.live),
            cancel: self.cancel.clone(),
        }
    }

    /// What [`cancelled`](Self::cancelled) waits for, to be watched from beside the writer.
    #[must_use]
    pub fn cancel_token(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// Has the page cache minded behind what is written from now on. Nothing where the engine goes around it.
    pub fn mind_page_cache(&mut self, hints: CacheHints) {
        let wanted = hints != CacheHints::default();
        if wanted && self.live.slice.volume.engine.capabilities().page_cache {
            let behind = Arc::new(WriteBehind::new(hints, self.bytes_on_disk()));
            if let Some(staged) = &self.staged {
                staged.mind_page_cache(&behind);
            }
            self.behind = Some(behind);
        }
    }

    fn was_cancelled(&self) -> StoreError {
        StoreError::new(
            StoreErrorKind::Cancelled,
            format!("another writer or a recovery took {}", self.live.block()),
        )
    }

    fn examine(&self, error: StoreError) -> StoreError {
        examine(&self.inner, &self.live.slice.volume, error)
    }

    /// Turns a TEMPORARY replica into an RBW one that nobody is writing.
    pub(crate) async fn convert(self) -> Result<ReplicaRef, StoreError> {
        let inner = Arc::clone(&self.inner);
        inner.complete(self.convert_owned()).await
    }

    async fn convert_owned(mut self) -> Result<ReplicaRef, StoreError> {
        let result = self.convert_files().await.map_err(|e| self.examine(e));
        self.done = result.is_ok();
        result
    }

    async fn convert_files(&mut self) -> Result<ReplicaRef, StoreError> {
        let block = self.live.block();
        let next = self.live.status().state;
        let Some(next) = after(next, Move::Convert) else {
            return Err(StoreError::new(
                StoreErrorKind::Illegal,
                format!("{block} is {next}, not TEMPORARY"),
            ));
        };
        self.close_staging().await?;
        let from = pair_of(&self.live);
        let to = from.at(self.live.slice.paths.rbw());
        let path = from.data();
        files::on_disk(
            &self.live.slice,
            self.class,
            IoOp::Rename,
            &path,
            move || files::move_pair(&from, &to, false),
        )
        .await
        .map_err(|e| StoreError::io(format!("making {block} a replica being written"), e))?;
        {
            let mut status = self.live.status();
            status.state = next;
            status.place = Place::Rbw;
            status.bytes_acked = status.bytes_on_disk;
        }
        Ok(reference(&self.pool, &self.live))
    }
}

impl Drop for ReplicaWriter {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        self.live.release_promise();
        if self.live.status().state != ReplicaState::Temporary {
            if let Some(staged) = &self.staged {
                staged.seal();
                self.inner.abandoned.note(&self.pool, &self.live, staged);
            }
            return;
        }
        let (inner, pool, live) = (
            Arc::clone(&self.inner),
            Arc::clone(&self.pool),
            Arc::clone(&self.live),
        );
        let right = Arc::clone(&self.right);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let cleanup = async move {
            let _right = right;
            if !pool.map.is_live(&live) {
                // Whoever took it from the map may not have waited for us: its segments are of use to nobody.
                live.stop_staging().await;
                live.drop_staging();
                return;
            }
            let block = live.block();
            pool.map.remove(live.id);
            live.stop_staging().await;
            if let Err(error) = crate::deletes::discard_files(
                &inner,
                &pool,
                &live.slice,
                Place::Temporary,
                block,
                false,
            )
            .await
            {
                warn!(%block, %error, "cannot delete an unfinished copy; it is removed at the next start");
            }
            live.drop_staging();
        };
        self.inner.tasks.spawn_on(cleanup, &runtime);
    }
}
