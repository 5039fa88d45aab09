//! What all parts of the store share.

use std::collections::HashMap;
use std::future::Future;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};

use futures_util::future::BoxFuture;
use hayloft_io::decorators::Sampling;
use hayloft_io::{locks, unbroken};
use hayloft_wire::ids::{ExtendedBlock, PoolId, StorageType};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug};

use crate::cache::CacheQueues;
use crate::config::{StoreConfig, VolumeConfig};
use crate::counts::StoreCounts;
use crate::error::{StoreError, StoreErrorKind};
use crate::identity::StoreIdentity;
use crate::protection::{Damage, Protection};
use crate::replica::block_pool::Pool;
use crate::replica::locked_memory::NodeCache;
use crate::replica::memory_counts::LazyPersist;
use crate::replica::suspect::{Suspect, Why};
use crate::shared::StoreShared;
use crate::store_tasks::StoreTasks;
use crate::types::{FailedVolume, StoreEvent};
use crate::volume::open::open_volume;
use crate::volume::remembered_storages::{NodeMemory, remember};
use crate::volume::volume_choosing_policy::{Candidate, Rounds, choose};
use crate::volume::{BlockPoolSlice, OpenedVolume, Volume};

/// What protects the finalized replicas of a store, or of all stores of a process.
pub type StoreProtection = Arc<dyn Protection<StoreState>>;

/// Serves the second copy of a block whose replica memory has lost (`true`) or damaged; whether
/// that was done.
pub(crate) type FallBack =
    for<'a> fn(&'a Arc<StoreState>, &'a ExtendedBlock, bool) -> BoxFuture<'a, bool>;

/// The state behind a [`Store`](crate::Store).
#[derive(Debug)]
pub struct StoreState {
    /// What the store was told.
    pub(crate) config: StoreConfig,
    /// Who this node is.
    pub(crate) identity: Mutex<StoreIdentity>,
    /// The volumes.
    pub(crate) volumes: RwLock<Volumes>,
    /// What the volumes remember of each other.
    pub(crate) memory: Mutex<NodeMemory>,
    /// The configured directories, those that failed too.
    pub(crate) configured: Mutex<Vec<PathBuf>>,
    /// The loaded pools.
    pub(crate) pools: RwLock<HashMap<PoolId, Arc<Pool>>>,
    /// Held while pools or volumes come and go.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// Events for the node.
    pub(crate) events: mpsc::Sender<StoreEvent>,
    /// Is to stop: what may take long is to be left now.
    pub(crate) ending: CancellationToken,
    /// Told to stop.
    pub stop: CancellationToken,
    /// Background work.
    pub tasks: StoreTasks,
    /// What it shares with other stores of the process.
    pub(crate) shared: StoreShared,
    /// Work on deletes, by number of the volume.
    pub(crate) delete_queues: RwLock<HashMap<u16, mpsc::Sender<Delete>>>,
    /// Replicas to look at soon, by number of the volume.
    pub(crate) suspects: RwLock<HashMap<u16, mpsc::Sender<Suspect>>>,
    /// Held while a volume is taken out of use that failed: how many may is counted then.
    pub(crate) failing: tokio::sync::Mutex<()>,
    /// What protects finalized replicas, if something does.
    pub(crate) protection: Option<StoreProtection>,
    /// Which operations on the volumes are measured.
    pub(crate) sampling: Arc<Sampling>,
    /// What was done since it was opened.
    pub(crate) counts: StoreCounts,
    /// Replicas in locked memory, in numbers.
    pub(crate) cache: Arc<NodeCache>,
    /// What is to be locked there.
    pub(crate) cache_queues: CacheQueues,
    /// What is done about a replica that memory has lost, where a `RAM_DISK` volume is.
    pub(crate) fall_back: OnceLock<FallBack>,
    /// Replicas on `RAM_DISK` volumes, in numbers.
    pub(crate) lazy: Arc<LazyPersist>,
    rounds: Mutex<Rounds>,
}

/// Files to remove for good.
#[derive(Debug)]
pub enum Delete {
    /// A replica in `tmp/deleting`.
    Replica {
        /// Part of the pool.
        slice: Arc<BlockPoolSlice>,
        /// The block.
        block: ExtendedBlock,
        /// The names that its files have now.
        files: Vec<PathBuf>,
        /// What the pool uses there has them in it.
        counted: bool,
        /// Tell the node when they are gone.
        tell: bool,
    },
    /// A directory that an earlier process left.
    Leftover(PathBuf),
}

/// The volumes that are used, and those that failed.
#[derive(Debug, Default)]
pub struct Volumes {
    /// Healthy, in the order of configuration.
    pub healthy: Vec<Arc<Volume>>,
    /// Failed.
    pub failed: Vec<FailedVolume>,
    /// Number for the next volume.
    pub next_index: u16,
}

impl StoreState {
    /// Without volumes and pools.
    #[must_use]
    pub(crate) fn new(
        config: StoreConfig,
        events: mpsc::Sender<StoreEvent>,
        shared: StoreShared,
        protection: Option<StoreProtection>,
    ) -> Self {
        let configured = config.volumes.iter().map(|v| v.path.clone()).collect();
        Self {
            config,
            identity: Mutex::default(),
            volumes: RwLock::default(),
            memory: Mutex::default(),
            configured: Mutex::new(configured),
            pools: RwLock::default(),
            changing: tokio::sync::Mutex::default(),
            events,
            cache: Arc::new(NodeCache::new(Arc::clone(&shared.locked))),
            cache_queues: CacheQueues::default(),
            ending: CancellationToken::new(),
            stop: CancellationToken::new(),
            tasks: StoreTasks::new(),
            shared,
            delete_queues: RwLock::default(),
            suspects: RwLock::default(),
            failing: tokio::sync::Mutex::default(),
            protection,
            sampling: Arc::new(Sampling::new(0)),
            counts: StoreCounts::default(),
            fall_back: OnceLock::new(),
            lazy: Arc::default(),
            rounds: Mutex::default(),
        }
    }

    /// Opens a configured volume.
    ///
    /// # Errors
    /// `Incompatible` when another DataNode uses the directory or it is of another make; `Io`.
    pub(crate) async fn open_volume(
        &self,
        config: &VolumeConfig,
    ) -> Result<OpenedVolume, StoreError> {
        let opened = open_volume(&self.config, &self.shared.disks, &self.sampling, config).await?;
        let suits = self.protection.as_ref().map(|p| p.suits(&*opened.engine));
        suits.unwrap_or(Ok(())).map_err(|what| {
            let doing = format!("opening volume {}", config.path.display());
            StoreError::incompatible(format!("{doing}: {what}"))
        })?;
        Ok(opened)
    }

    /// How many volumes may fail; -1 is any number. With protection it is any number, while one
    /// lives: what a failed one had is decoded and rebuilt, and where too many are gone the rest
    /// can still be served.
    #[must_use]
    pub(crate) fn tolerated_failures(&self) -> i32 {
        match self.protection {
            Some(_) => -1,
            None => self.config.failed_volumes_tolerated,
        }
    }

    /// The identity, to look at or change.
    pub(crate) fn identity(&self) -> MutexGuard<'_, StoreIdentity> {
        locks::lock(&self.identity)
    }

    /// The healthy volumes.
    #[must_use]
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        locks::read(&self.volumes).healthy.clone()
    }

    /// The loaded pools.
    #[must_use]
    pub fn pools(&self) -> Vec<Arc<Pool>> {
        locks::read(&self.pools).values().cloned().collect()
    }

    /// A loaded pool.
    ///
    /// # Errors
    /// `NotReady` when it is not loaded, `Closed` when the store was shut down.
    pub fn pool(&self, id: &PoolId) -> Result<Arc<Pool>, StoreError> {
        if self.stop.is_cancelled() {
            return Err(StoreError::closed("the store is shut down"));
        }
        locks::read(&self.pools).get(id).cloned().ok_or_else(|| {
            StoreError::new(
                StoreErrorKind::NotReady,
                format!("block pool {id} is not registered here (yet)"),
            )
        })
    }

    /// Runs `work` to its end even if the caller goes away. An operation on files is not left half
    /// done, and no other operation gets at them before.
    pub(crate) async fn complete<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        match self.tasks.spawn(work.in_current_span()).await {
            Ok(result) => result,
            Err(error) => Err(StoreError::closed(format!(
                "the operation did not end: {error}"
            ))),
        }
    }

    /// Runs a service for as long as the store runs. One that panics begins again.
    pub(crate) fn serve<S: Future<Output = ()> + Send + 'static>(
        &self,
        what: &'static str,
        begin: impl Fn() -> S + Send + 'static,
    ) {
        let stop = self.stop.clone();
        let serving = async move { unbroken(what, stop.cancelled(), begin).await };
        self.tasks.spawn(serving.in_current_span());
    }

    /// Sends an event; waits when the node is behind.
    ///
    /// Of a damaged replica the node hears only if its protection cannot mend it. Of one that
    /// memory has lost or damaged it hears that the copy on disk is served, if it has one. The
    /// caller holds no latch of a block that is lost; of a damaged one it may.
    pub async fn send_event(self: &Arc<Self>, event: StoreEvent) {
        let Some(fall_back) = self.fall_back.get() else {
            return self.pass_on(event).await;
        };
        match event {
            StoreEvent::Lost { block, storage } if storage.storage_type.is_transient() => {
                if !fall_back(self, &block, true).await {
                    self.pass_on(StoreEvent::Lost { block, storage }).await;
                }
            }
            StoreEvent::Corrupt { block, storage } if storage.storage_type.is_transient() => {
                let (store, fall_back) = (Arc::clone(self), *fall_back);
                self.tasks.spawn_here(async move {
                    if !fall_back(&store, &block, false).await {
                        store.pass_on(StoreEvent::Corrupt { block, storage }).await;
                    }
                });
            }
            event => self.pass_on(event).await,
        }
    }

    /// As [`send_event`](Self::send_event), of a replica that nothing on disk stands in for.
    async fn pass_on(self: &Arc<Self>, event: StoreEvent) {
        let event = match (event, &self.protection) {
            (StoreEvent::Corrupt { block, storage }, Some(protection)) => {
                protection.heal(self, block, storage, Damage::Certain);
                return;
            }
            (event, _) => event,
        };
        // The node stops listening only when it ends.
        let _ = self.events.send(event).await;
    }

    /// The data of a replica may differ from its checksums: it is looked at soon.
    pub fn mark_suspect(&self, block: &ExtendedBlock) {
        self.mark(block, Why::Damage);
    }

    /// The disk did not give the files of a replica, or this range of its data: it is looked at
    /// soon.
    pub fn mark_unreadable(&self, block: &ExtendedBlock, at: Option<Range<u64>>) {
        self.mark(block, Why::Unreadable(at));
    }

    fn mark(&self, block: &ExtendedBlock, why: Why) {
        let Ok(pool) = self.pool(&block.pool) else {
            return;
        };
        let Some(slot) = pool.map.get(block.block.id) else {
            return;
        };
        let suspect = Suspect {
            pool: block.pool.clone(),
            id: block.block.id,
            why,
        };
        let suspects = locks::read(&self.suspects);
        let full = |sender: &mpsc::Sender<Suspect>| sender.try_send(suspect).is_err();
        if suspects.get(&slot.volume()).is_some_and(full) {
            debug!(%block, "too many suspects wait; the regular round finds this one");
        }
    }

    /// Has all volumes remember those that are in use now.
    pub(crate) async fn remember(&self) {
        let configured = locks::lock(&self.configured).clone();
        let uuid = self.identity().datanode_uuid.clone();
        remember(&self.memory, &self.volumes(), &configured, uuid).await;
    }

    /// Whether the disk of a volume had an error a while ago: what can go elsewhere does.
    #[must_use]
    pub fn is_failing(&self, volume: &Volume) -> bool {
        volume.errors.places(self.config.errors.window) > 0
    }

    /// Reserves room for a replica of `bytes` on one part of a pool; whether there was more.
    pub(crate) fn reserve_on(&self, slice: &BlockPoolSlice, bytes: u64) -> bool {
        // As with choosing: two writers do not get the same room.
        let _rounds = locks::lock(&self.rounds);
        let _promise = self.shared.file_systems.promise();
        let well = !slice.volume.is_failed() && !self.is_failing(&slice.volume);
        let has_room = well && slice.volume.room() > bytes;
        if has_room {
            slice.volume.reserve_for_replica(bytes);
        }
        has_room
    }

    /// Chooses a volume with room for a replica of `bytes`, none of `except`, and reserves the room
    /// for it.
    ///
    /// # Errors
    /// `OutOfSpace` when no healthy volume of the type has room.
    pub(crate) fn choose_slice(
        &self,
        pool: &Pool,
        storage_type: StorageType,
        storage_id: Option<&str>,
        bytes: u64,
        except: &[u16],
    ) -> Result<Arc<BlockPoolSlice>, StoreError> {
        let mut rounds = locks::lock(&self.rounds);
        let _promise = self.shared.file_systems.promise();
        let usable: Vec<Arc<BlockPoolSlice>> = pool
            .slices()
            .into_iter()
            .filter(|s| s.volume.info.storage_type == storage_type && !s.volume.is_failed())
            .filter(|s| !except.contains(&s.volume.index))
            .collect();
        let candidates: Vec<Candidate> = usable
            .iter()
            .map(|s| Candidate {
                remaining: s.volume.room(),
                preferred: storage_id.is_some_and(|id| *s.volume.info.id == *id),
                avoid: s.volume.avoid.load(Ordering::Relaxed) || self.is_failing(&s.volume),
            })
            .collect();
        let chosen = choose(
            self.config.volume_choosing,
            &candidates,
            bytes,
            &mut rounds,
            rand::random(),
        );
        let Some(chosen) = chosen else {
            let most = candidates.iter().map(|c| c.remaining).max().unwrap_or(0);
            return Err(StoreError::new(
                StoreErrorKind::OutOfSpace,
                format!(
                    "Out of space: The volume with the most available space (={most} B) is less \
                        than the block size \
                     (={bytes} B); {} volumes of type {storage_type} are in use",
                    candidates.len()
                ),
            ));
        };
        usable[chosen].volume.reserve_for_replica(bytes);
        Ok(Arc::clone(&usable[chosen]))
    }
}
