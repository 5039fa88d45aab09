//! Writing one replica.
//!
//! - `allocate`: room that the file system allocates ahead of what is written
//! - `write_plan`: what a run of packets means for the files: pure
//! - `block_recovery`: block recovery as a participant
//! - `complete_replica`: completing a replica
//! - `create`: new replicas
//! - `volume_for_new_replica`: the volume that takes the files of a new replica
//! - `growth`: what a replica's growth changes: its two files, and what is known of it
//! - `keep_synced_end`: a writer keeps the end of what was synced: see `kept_end`
//! - `pending_packets`: packets that were accepted and are not in the replica's files yet
//! - `pipeline_recovery`: taking over replicas that exist: append, and the recoveries of a pipeline
//! - `recovery_steps`: what recoveries and appends do to the files of a replica
//! - `switch_volume`: a new replica whose first write fails goes to another volume
//! - `sync`: what outlives power loss
//! - `temporary`: the ends of a TEMPORARY replica that is not finalized
//! - `write_packets`: packets on their way into the files

mod allocate;
pub mod block_recovery;
mod complete_replica;
pub mod create;
mod growth;
mod keep_synced_end;
mod pending_packets;
pub mod pipeline_recovery;
pub mod recovery_steps;
mod switch_volume;
mod sync;
mod temporary;
pub mod volume_for_new_replica;
mod write_packets;
pub mod write_plan;

use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hayloft_io::{CacheHints, EngineFile, IoClass, OpenMode, WriteBehind};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::ExtendedBlock;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use self::allocate::worth_allocating;
use self::growth::{CurrentReplica, acknowledge};
use self::pending_packets::PendingPackets;
use self::switch_volume::{Moved, Unwritten};
use crate::error::{StoreError, StoreErrorKind};
use crate::replica::LiveReplica;
use crate::replica::block_pool::Pool;
use crate::state::StoreState;
use crate::transitions::check_volume::examine;
use crate::transitions::stop_writer::WriterLock;
use crate::types::StorageInfo;
use crate::volume::footprint;

pub use self::growth::AckHandle;
pub use self::pending_packets::Due;

/// The exclusive right to write one replica.
///
/// Dropping it without [`finalize`](Self::finalize) leaves an RBW replica as it is, for the
/// pipeline or block recovery to find; a TEMPORARY replica is deleted. Another taker (recovery, a
/// new pipeline) cancels the writer and waits until it is dropped.
#[derive(Debug)]
pub struct ReplicaWriter {
    store: Arc<StoreState>,
    pool: Arc<Pool>,
    live: Arc<LiveReplica>,
    /// The same, for those who report acknowledgements.
    current: CurrentReplica,
    writer_lock: WriterLock,
    cancel: CancellationToken,
    class: IoClass,
    data: Arc<dyn EngineFile>,
    meta: Arc<dyn EngineFile>,
    /// Minds the page cache behind what is written, where files go through it and a client wants
    /// it.
    write_behind: Option<Arc<WriteBehind>>,
    /// What was accepted and is not in the files; `None` before the checksum is known.
    pending: Option<PendingPackets>,
    /// The write that is under way, and whether it synced the data. One at a time: a file grows in
    /// order.
    writing: Option<JoinHandle<Result<bool, StoreError>>>,
    /// What is kept of a new replica until something is written, and its way to another volume.
    unwritten: Option<Unwritten>,
    moving: Option<JoinHandle<Result<Moved, StoreError>>>,
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
    /// Nothing was written to the data file since it was last synced.
    data_synced: bool,
    done: bool,
}

impl ReplicaWriter {
    /// Opens the files of a replica that the caller has the right to write.
    pub(crate) async fn open(
        store: &Arc<StoreState>,
        pool: &Arc<Pool>,
        live: Arc<LiveReplica>,
        writer_lock: WriterLock,
        mode: OpenMode,
        class: IoClass,
    ) -> Result<Self, StoreError> {
        let pair = live.pair();
        let engine = &live.slice.volume.engine;
        // Before the disk is waited for: what stops the writers finds this one.
        let cancel = CancellationToken::new();
        {
            let mut status = live.status();
            status.cancel = cancel.clone();
            status.unwritten = false;
        }
        let (data, meta) = futures_util::future::join(
            engine.open(&pair.data(), mode, class),
            engine.open(&pair.meta(), mode, class),
        )
        .await;
        let failed = |e| {
            let e = StoreError::io(format!("opening replica {} for writing", live.block()), e);
            examine(store, &live.slice.volume, e)
        };
        let (data, meta) = (data.map_err(failed)?, meta.map_err(failed)?);
        if mode == OpenMode::CreateNew {
            live.slice.volume.commits.touch_dir(&pair.dir);
        }
        let (client, to_allocate) = {
            let status = live.status();
            // What goes through the page cache gets its blocks when it is written back, in long
            // runs. Giving back the rest at the close would wait for that.
            let direct = !live.slice.volume.engine.capabilities().page_cache;
            let to_allocate =
                direct && store.config.preallocate && worth_allocating(&status).is_some();
            (status.checksum, to_allocate)
        };
        // The removal of a volume marks it first and then tells its writers to stop, of which
        // this is one from here on.
        if live.slice.volume.is_failed() {
            return Err(pool.volume_failed());
        }
        let mut writer = Self {
            store: Arc::clone(store),
            pool: Arc::clone(pool),
            current: Arc::new(Mutex::new(Arc::clone(&live))),
            live,
            writer_lock,
            cancel,
            class,
            data,
            meta,
            write_behind: None,
            pending: None,
            writing: None,
            unwritten: None,
            moving: None,
            client,
            names_durable: false,
            durable_finalize: false,
            to_allocate,
            allocating: None,
            data_synced: false,
            done: false,
        };
        writer.begin_pending();
        Ok(writer)
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

    /// The volume's directory.
    #[must_use]
    pub fn volume_path(&self) -> &Path {
        &self.live.slice.volume.root
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
        let (meta, live, writer_lock) = (
            Arc::clone(&self.meta),
            Arc::clone(&self.live),
            Arc::clone(&self.writer_lock),
        );
        let work = async move {
            let _writer_lock = writer_lock;
            meta.write_at(vec![header], 0)
                .await
                .result
                .map_err(|e| StoreError::io("writing a meta file header", e))?;
            let mut status = live.status();
            status.checksum = Some(checksum);
            live.slice.used.add(footprint(0, Some(checksum)));
            Ok(())
        };
        let outcome = self.store.complete(work).await;
        outcome.map_err(|e| self.examine(e))?;
        self.begin_pending();
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
            current: Arc::clone(&self.current),
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
    pub fn set_cache_hints(&mut self, hints: CacheHints) {
        let wanted = hints != CacheHints::default();
        if wanted && self.live.slice.volume.engine.capabilities().page_cache {
            let write_behind = WriteBehind::new(hints, self.bytes_on_disk());
            self.write_behind = Some(Arc::new(write_behind));
        }
    }

    pub(super) fn was_cancelled(&self) -> StoreError {
        StoreError::new(
            StoreErrorKind::Cancelled,
            format!("another writer or a recovery took {}", self.live.block()),
        )
    }

    fn examine(&self, error: StoreError) -> StoreError {
        examine(&self.store, &self.live.slice.volume, error)
    }
}
