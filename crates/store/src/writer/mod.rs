//! Writing one replica.

pub mod append_plan;
pub mod block_recovery;
mod carry;
mod close;
pub mod create;
mod gathered;
pub mod pipeline_recovery;
mod sync;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt as _;
use hayloft_io::{CacheHints, EngineFile, IoClass, IoOp, OpenMode, WriteBehind, WriteBuffers};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::{ExtendedBlock, ReplicaState};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tracing::warn;

use crate::error::{StoreError, StoreErrorKind};
use crate::replica::block_pool::Pool;
use crate::replica::exclusive::WriterLock;
use crate::replica::files;
use crate::replica::finalize::{pair_of, reference};
use crate::replica::state::{Move, after};
use crate::replica::{LiveReplica, ReplicaDir, Status};
use crate::state::StoreState;
use crate::types::{PacketData, ReplicaRef, StorageInfo};
use crate::volume::failure::examine;
use crate::volume::footprint;
use crate::writer::append_plan::{Plan, Tail, plan};

use self::carry::{Files, acknowledge};
use self::gathered::Gathered;

pub use self::carry::AckHandle;
pub use self::gathered::Due;

/// Room is reserved for replicas that have this many bytes and expect as many more.
const ALLOCATE_FROM: u64 = 1 << 20;

/// No more room than this is reserved ahead: how long a replica will be is the word of a client,
/// who may send less than it said. Longer ones grow beyond it as they are written.
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
    inner: Arc<StoreState>,
    pool: Arc<Pool>,
    live: Arc<LiveReplica>,
    right: WriterLock,
    cancel: CancellationToken,
    class: IoClass,
    data: Arc<dyn EngineFile>,
    meta: Arc<dyn EngineFile>,
    /// Minds the page cache behind what is written, where files go through it and a client wants
    /// it.
    behind: Option<Arc<WriteBehind>>,
    /// What was accepted and is not in the files; `None` before the checksum is known.
    gathered: Option<Gathered>,
    /// The write that is under way. One at a time: a file grows in order.
    writing: Option<JoinHandle<Result<(), StoreError>>>,
    /// Checksum of the packets.
    client: Option<DataChecksum>,
    names_durable: bool,
    /// The names that finalizing gives outlive power loss.
    durable_finalize: bool,
    /// Room is to be asked for on the device for the length that the replica is expected to reach,
    /// once it is worth it.
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
        inner: &Arc<StoreState>,
        pool: &Arc<Pool>,
        live: Arc<LiveReplica>,
        right: WriterLock,
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
        if mode == OpenMode::CreateNew {
            live.slice.volume.commits.touch_dir(&pair.dir);
        }
        let cancel = CancellationToken::new();
        let (client, synced_len, to_allocate) = {
            let mut status = live.status();
            status.cancel = cancel.clone();
            // What goes through the page cache gets its blocks when it is written back, in long
            // runs; giving back the rest at the close would have to wait for that.
            let direct = !live.slice.volume.engine.capabilities().page_cache;
            let to_allocate =
                direct && inner.config.preallocate && worth_allocating(&status).is_some();
            (status.checksum, status.bytes_on_disk, to_allocate)
        };
        // The removal of a volume marks it first and then tells its writers to stop, of which
        // this is one from here on.
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
            gathered: None,
            writing: None,
            client,
            names_durable: false,
            durable_finalize: false,
            to_allocate,
            allocating: None,
            synced_len,
            data_synced: false,
            done: false,
        };
        writer.begin_gathering();
        Ok(writer)
    }

    /// Has the file system reserve room for the length that the replica is expected to reach, in
    /// the background: its extents become few and long. Small replicas are spared the trouble. The
    /// length of the file does not change, so that a crash leaves none that is longer than its
    /// data; what is not used is given back when the replica is finalized.
    fn allocate_ahead(&mut self) {
        if !self.to_allocate || self.bytes_on_disk() < ALLOCATE_FROM {
            return;
        }
        self.to_allocate = false;
        let Some(whole) = worth_allocating(&self.live.status()) else {
            return;
        };
        let (data, live) = (Arc::clone(&self.data), Arc::clone(&self.live));
        // The next writer of the replica does not meet it.
        let right = Arc::clone(&self.right);
        self.allocating = Some(self.inner.tasks.spawn(async move {
            let _right = right;
            // Without it the file grows as it is written.
            if data.allocate(whole).await.is_ok() {
                live.note_allocated(whole);
            }
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
        self.begin_gathering();
        Ok(())
    }

    /// Gathers from now on what is written, when the checksum is known.
    fn begin_gathering(&mut self) {
        let (checksum, tail) = {
            let status = self.live.status();
            let tail = Tail {
                len: status.bytes_on_disk,
                crc: status.last_crc,
            };
            (status.checksum, tail)
        };
        let Some(checksum) = checksum else { return };
        let direct = !self.live.slice.volume.engine.capabilities().page_cache;
        let pool = &self.inner.write_memory;
        self.gathered = Some(Gathered::new(pool, checksum, tail, direct));
    }

    /// Memory to receive packets' data in, where that saves a copy: around the page cache. Ask
    /// after [`set_checksum`](Self::set_checksum).
    #[must_use]
    pub fn landing(&self) -> Option<WriteBuffers> {
        self.gathered.as_ref().and_then(Gathered::landing)
    }

    /// End of the accepted bytes.
    #[must_use]
    pub fn received(&self) -> u64 {
        let gathered = self.gathered.as_ref();
        gathered.map_or_else(|| self.bytes_on_disk(), |g| g.received().len)
    }

    /// Checks that packets can be written now, and plans it.
    fn planned(&self, packets: &[PacketData]) -> Result<Plan, StoreError> {
        let (Some(gathered), Some(client)) = (&self.gathered, self.client) else {
            return Err(StoreError::new(
                StoreErrorKind::Illegal,
                "set_checksum comes before write",
            ));
        };
        if self.cancel.is_cancelled() {
            return Err(self.was_cancelled());
        }
        let (disk, unsettled) = {
            let status = self.live.status();
            (status.checksum, status.unsettled)
        };
        if unsettled {
            let text = format!("an earlier write of {} failed", self.live.block());
            return Err(StoreError::new(StoreErrorKind::Illegal, text));
        }
        let disk = disk.unwrap_or(client);
        plan(gathered.received(), disk, packets).map_err(|e| {
            let text = format!("{}: {e}", self.live.block());
            StoreError::new(StoreErrorKind::Illegal, text)
        })
    }

    /// Accepts a run of verified packets, in order: data that is there already is skipped, a
    /// partial last chunk that is sent again or appended to is completed. Never waits, and writes
    /// nothing: [`poll_write`](Self::poll_write) does.
    ///
    /// # Errors
    /// `Illegal` for packets that leave a gap or that contradict what is there, `Cancelled`.
    pub fn accept(&mut self, packets: &[PacketData]) -> Result<(), StoreError> {
        let plan = self.planned(packets)?;
        if let Some(gathered) = &mut self.gathered
            && !plan.data.is_empty()
        {
            gathered.accept(plan);
        }
        Ok(())
    }

    /// Goes on with writing what was accepted, as far as it is `due`; true when a write has ended
    /// or begun. What an acknowledgement rests on: all bytes up to
    /// [`bytes_on_disk`](Self::bytes_on_disk) and their checksums are in the replica's files, in
    /// the page cache or on the device.
    ///
    /// # Errors
    /// `OutOfSpace`, `Io`. Nothing more can be written through this writer then: drop it, and let
    /// the pipeline recover.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, due: Due) -> Result<bool, StoreError> {
        let mut moved = false;
        loop {
            if let Some(writing) = &mut self.writing {
                let Poll::Ready(outcome) = writing.poll_unpin(cx) else {
                    return Ok(moved);
                };
                self.writing = None;
                moved = true;
                let outcome = outcome.unwrap_or_else(|error| {
                    let text = format!("a write of {} did not end: {error}", self.live.block());
                    Err(StoreError::new(StoreErrorKind::Closed, text))
                });
                outcome.map_err(|e| self.examine(e))?;
                self.allocate_ahead();
            }
            if !self.begin_write(due) {
                return Ok(moved);
            }
            moved = true;
        }
    }

    /// Whether a write is under way.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    fn begin_write(&mut self, due: Due) -> bool {
        let Some(gathered) = &mut self.gathered else {
            return false;
        };
        let Some(cut) = gathered.cut(due) else {
            return false;
        };
        let (before, plan) = gathered.take(cut);
        // A checksum that covers synced bytes is about to be replaced.
        let chunk_start = gathered.chunk_start(plan.first_chunk);
        let guard = plan.completes_chunk && chunk_start < self.synced_len;
        self.data_synced = guard;
        let files = Files {
            inner: Arc::clone(&self.inner),
            pool: Arc::clone(&self.pool),
            live: Arc::clone(&self.live),
            data: Arc::clone(&self.data),
            meta: Arc::clone(&self.meta),
        };
        let (right, behind) = (Arc::clone(&self.right), self.behind.clone());
        // To its end even if the writer goes away: files are not left half written.
        self.writing = Some(self.inner.tasks.spawn(async move {
            let _right = right;
            files.carry_out(before, plan, guard, behind).await
        }));
        true
    }

    /// Accepts packets and waits until all that was accepted is in the files.
    ///
    /// # Errors
    /// As for [`accept`](Self::accept) and [`poll_write`](Self::poll_write).
    pub async fn write(&mut self, packets: Vec<PacketData>) -> Result<(), StoreError> {
        self.accept(&packets)?;
        drop(packets);
        self.write_all().await
    }

    /// Writes all that was accepted.
    ///
    /// # Errors
    /// As for [`poll_write`](Self::poll_write).
    pub(crate) async fn write_all(&mut self) -> Result<(), StoreError> {
        poll_fn(|cx| match self.poll_write(cx, Due::All) {
            Ok(_) if self.writing.is_some() => Poll::Pending,
            Ok(_) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error)),
        })
        .await
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

    /// Has the page cache minded behind what is written from now on. Nothing where the engine goes
    /// around it.
    pub fn mind_page_cache(&mut self, hints: CacheHints) {
        let wanted = hints != CacheHints::default();
        if wanted && self.live.slice.volume.engine.capabilities().page_cache {
            let behind = WriteBehind::new(hints, self.bytes_on_disk());
            self.behind = Some(Arc::new(behind));
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

    /// Turns a TEMPORARY replica into an RBW one without a writer.
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
        self.write_all().await?;
        let from = pair_of(&self.live);
        let to = from.at(self.live.slice.paths.rbw());
        let dirs = [from.dir.clone(), to.dir.clone()];
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
        for dir in &dirs {
            self.live.slice.volume.commits.touch_dir(dir);
        }
        {
            let mut status = self.live.status();
            status.state = next;
            status.place = ReplicaDir::Rbw;
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
            return;
        }
        let writing = self.writing.take();
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
            if let Some(writing) = writing {
                // What it wrote is counted as used before the files are deleted.
                let _of_no_use = writing.await;
            }
            if !pool.map.is_live(&live) {
                return;
            }
            let block = live.block();
            pool.map.remove(live.id);
            if let Err(error) = crate::background::delete::discard_files(
                &inner,
                &pool,
                &live.slice,
                ReplicaDir::Temporary,
                block,
                false,
            )
            .await
            {
                warn!(%block, %error, "cannot delete an unfinished copy; it is removed at the \
                    next start");
            }
        };
        self.inner.tasks.spawn_on(cleanup, &runtime);
    }
}
