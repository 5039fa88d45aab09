//! Takes one snapshot after the other. What fails is begun again, after a pause that grows.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hayloft_conf::{SharedConfig, keys};
use hayloft_snapshot::{
    Covered, CreateOptions, CreateReport, PruneOptions, Rate, RestoreOptions, SnapshotError,
    SnapshotErrorKind, SnapshotProgress, Target, covered, create, prune, restore_to,
};
use hayloft_store::offline::{ReplicaOnDisk, data_name};
use hayloft_store::{Store, now_ms};
use hayloft_wire::ids::{Block, PoolId, ReplicaState};
use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Snapshots;
use super::store_sink::StoreSink;
use super::store_source::StoreSource;
use crate::namenode::NameNodes;

/// How often it is looked how far snapshots are behind.
const LOOK: Duration = Duration::from_secs(5);
/// The first pause after a failure; it doubles, up to the pause between snapshots.
const AGAIN: Duration = Duration::from_secs(10);
/// Replicas on their way at a time.
const AT_ONCE: usize = 4;

/// The pause before the next try.
struct Pause(Duration);

/// What the service needs of the node.
pub struct SnapshotNode {
    /// Its configuration.
    pub config: SharedConfig,
    /// Its replicas.
    pub store: Store,
    /// Who hears of those that are put back.
    pub namenodes: NameNodes,
    /// Name of its host, for people.
    pub host: String,
    /// What is told of it.
    pub snapshots: Snapshots,
    /// Cancelled to stop it.
    pub stop: CancellationToken,
    /// Held while it is looked how far snapshots are behind.
    pub looking: Arc<Mutex<()>>,
}

/// Takes snapshots until it is stopped.
pub async fn serve(node: Arc<SnapshotNode>) {
    tokio::select! {
        () = node.stop.cancelled() => {}
        () = node.run() => {}
    }
}

impl SnapshotNode {
    async fn run(&self) {
        while self.store.pools().is_empty() {
            sleep(Duration::from_secs(1)).await;
        }
        let mut pause = Pause(AGAIN);
        // First: a snapshot of a node that lacks replicas would lack them, too.
        while let Some(from) = self.snapshots.state().restoring {
            if let Err(error) = self.put_back(&from).await {
                sleep(self.failed(&error, &mut pause)).await;
            }
        }
        if self.snapshots.state().to.is_empty() {
            return;
        }
        let mut known: Option<Arc<Covered>> = None;
        loop {
            let wait = match self.take(&mut known).await {
                Ok(()) => {
                    pause = Pause(AGAIN);
                    self.interval()
                }
                Err(error) => self.failed(&error, &mut pause),
            };
            let until = Instant::now() + wait;
            while Instant::now() < until {
                self.look(known.as_ref()).await;
                sleep(LOOK.min(until.saturating_duration_since(Instant::now()))).await;
            }
        }
    }

    /// Tells of a failure; gives the pause before the next try.
    fn failed(&self, error: &SnapshotError, pause: &mut Pause) -> Duration {
        let wait = pause.0;
        warn!(
            "a snapshot failed, and is begun again in {} s: {error}",
            wait.as_secs()
        );
        self.snapshots.change(|state| {
            state.running = None;
            state.failures += 1;
            state.error = Some(error.to_string());
        });
        pause.0 = (wait * 2).min(self.interval().max(AGAIN));
        wait
    }

    /// Puts the snapshot back that the configuration names.
    async fn put_back(&self, from: &str) -> Result<(), SnapshotError> {
        let (url, node) = match from.rsplit_once('#') {
            Some((url, node)) => (url, Some(node.to_owned())),
            None => (from, None),
        };
        let target = Target::to_read(url)?;
        let options = RestoreOptions {
            node,
            snapshot: None,
            new_identity: false,
            rate: Rate::new(self.config.get(&keys::SNAPSHOT_RATE)),
            at_once: AT_ONCE,
        };
        let sink = StoreSink {
            store: self.store.clone(),
            namenodes: self.namenodes.clone(),
        };
        let (cluster, own) = (
            self.store.storage_info().cluster_id,
            self.store.datanode_uuid(),
        );
        let progress = SnapshotProgress::default();
        let work = restore_to(&target, &sink, (&cluster, &own), &options, &progress).boxed();
        let report = self.with_progress(work, &progress, None).await?;
        for problem in &report.problems {
            warn!("snapshot {}: {problem}", report.snapshot);
        }
        let restored = format!(
            "{} of {}: {} replicas came, {} were there, {} are missing or altered",
            report.snapshot,
            report.node,
            report.restored_replicas,
            report.there_already,
            report.broken
        );
        info!("a snapshot was put back: {restored}");
        self.snapshots.change(|state| {
            state.running = None;
            state.restoring = None;
            state.restored = Some(restored);
            state.restore_broken = report.broken;
            state.error = None;
        });
        Ok(())
    }

    /// Does a work, and tells how far it is meanwhile, and how far snapshots are behind.
    async fn with_progress<T>(
        &self,
        mut work: BoxFuture<'_, T>,
        progress: &SnapshotProgress,
        known: Option<&Arc<Covered>>,
    ) -> T {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = looks.tick() => {
                    let running = Some(progress.bytes());
                    self.snapshots.change(|state| state.running = running);
                    self.look(known).await;
                }
            }
        }
    }

    fn interval(&self) -> Duration {
        self.config.get(&keys::SNAPSHOT_INTERVAL)
    }

    /// Takes one, and tells how far it is and how far the replicas that came meanwhile are behind.
    async fn take(&self, known: &mut Option<Arc<Covered>>) -> Result<(), SnapshotError> {
        let target = Target::open(&self.snapshots.state().to)?;
        let node = self.store.datanode_uuid();
        let before = match known.take() {
            Some(before) => before,
            None => Arc::new(covered(&target, &node).await?),
        };
        let options = CreateOptions {
            host: self.host.clone(),
            rate: Rate::new(self.config.get(&keys::SNAPSHOT_RATE)),
            at_once: AT_ONCE,
            now_ms: now_ms(),
        };
        let (source, progress) = (StoreSource(self.store.clone()), SnapshotProgress::default());
        let work = create(&source, &target, &options, &progress).boxed();
        let taken = self.with_progress(work, &progress, Some(&before)).await;
        let (bytes, _) = progress.bytes();
        self.snapshots.change(|state| {
            state.running = None;
            state.uploaded_bytes += bytes;
        });
        let report = match taken {
            Ok(report) => report,
            Err(error) => {
                *known = Some(before);
                return Err(error);
            }
        };
        self.tell(&report, options.now_ms);
        *known = Some(Arc::new(report.covered.clone()));
        self.prune(&target, &report).await
    }

    fn tell(&self, report: &CreateReport, taken_ms: u64) {
        for problem in &report.problems {
            warn!("snapshot {}: {problem}", report.snapshot);
        }
        if report.uploaded_replicas > 0 {
            info!(
                snapshot = report.snapshot,
                replicas = report.replicas,
                uploaded = report.uploaded_replicas,
                bytes = report.uploaded_bytes,
                "a snapshot was taken"
            );
        }
        self.snapshots.change(|state| {
            state.last = Some(report.snapshot.clone());
            state.last_ms = Some(taken_ms);
            state.replicas = report.replicas;
            state.left_out = report.damaged;
            state.error = None;
        });
    }

    /// Removes old snapshots, unless the newest lacks something that those may have.
    async fn prune(&self, target: &Target, report: &CreateReport) -> Result<(), SnapshotError> {
        let keep = self.config.get(&keys::SNAPSHOT_KEEP);
        let broken = self.snapshots.state().restore_broken;
        if keep == 0 || report.damaged > 0 || broken > 0 {
            return Ok(());
        }
        let options = PruneOptions {
            node: Some(report.node.clone()),
            keep: usize::try_from(keep).unwrap_or(usize::MAX),
            keep_within: None,
            remove: true,
            now_ms: now_ms(),
        };
        match prune(target, &options).await {
            // The next snapshot prunes as well.
            Err(error) if error.kind() == SnapshotErrorKind::AtWork => {
                info!("old snapshots stay for now: {error}");
                Ok(())
            }
            pruned => pruned.map(drop),
        }
    }

    /// Tells how far snapshots are behind. `known` is what the newest has; it is not known before
    /// the store has answered.
    async fn look(&self, known: Option<&Arc<Covered>>) {
        let Some(known) = known.cloned() else { return };
        // The last look waits for its disk.
        let Ok(looking) = Arc::clone(&self.looking).try_lock_owned() else {
            return;
        };
        let (store, snapshots) = (self.store.clone(), self.snapshots.clone());
        let look = tokio::task::spawn_blocking(move || {
            let _looking = looking;
            if let Some(lag) = lag(&store, &known) {
                snapshots.change(|state| state.lag_s = Some(lag));
            }
        });
        let _in_time = timeout(LOOK / 2, look).await;
    }
}

/// Seconds since the oldest closed replica that is not `known` was written; `None` where its disk
/// does not say. Blocking.
fn lag(store: &Store, known: &Covered) -> Option<u64> {
    let mut oldest: Option<(PoolId, Block, String)> = None;
    for pool in store.pools() {
        for (storage, replicas) in store.block_report(&pool) {
            if storage.storage_type.is_transient() {
                continue;
            }
            // A NameNode gives out generation stamps in order: the lowest is of the oldest.
            let closed = replicas
                .iter()
                .filter(|r| r.state == ReplicaState::Finalized);
            let new = closed.map(|r| r.block).filter(|b| !known.has(&pool, *b));
            let first = new.min_by_key(|block| block.generation_stamp);
            let older = |block: &Block| {
                let stamp = block.generation_stamp;
                oldest
                    .as_ref()
                    .is_none_or(|(_, b, _)| stamp < b.generation_stamp)
            };
            if let Some(block) = first.filter(older) {
                oldest = Some((pool.clone(), block, storage.id.to_string()));
            }
        }
    }
    let Some((pool, block, storage)) = oldest else {
        return Some(0);
    };
    let mut volumes = store.volume_report().into_iter();
    let root = volumes.find(|volume| *volume.storage.id == *storage)?.path;
    let file = ReplicaOnDisk::home(&root, &pool, block).join(data_name(block.id));
    let modified = std::fs::metadata(file).ok()?.modified().ok()?;
    let age = SystemTime::now().duration_since(modified);
    Some(age.unwrap_or_default().as_secs())
}
