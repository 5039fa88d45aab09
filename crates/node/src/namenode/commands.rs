//! NameNode commands: a bounded queue per pool, carried out one after the other. What takes long
//! (deleting, copying and recovering blocks) goes on in tasks of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hayloft_wire::ids::{Block, ExtendedBlock, PoolId, ReplicaState};
use hayloft_wire::proto::datanode::{
    BlockCommand, BlockCommandAction, BlockIdCommandAction, DatanodeCommand, DatanodeCommandType,
    ErrorReportCode,
};
use tokio::sync::{RwLock, Semaphore, mpsc};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::error_reports::ErrorReport;
use super::pool::PoolService;
use super::work::{NodeWork, Targets};
use hayloft_conf::keys;

/// Commands that wait, per pool. A NameNode gives few at a time and repeats what was not done.
pub(super) const QUEUE: usize = 1024;
/// Copies in progress, per pool. The NameNode orders far fewer by the load it sees.
const TRANSFERS_MAX: usize = 128;
/// Block recoveries in progress, per pool, in commands.
const RECOVERIES_MAX: usize = 64;

/// How long an order about an upgrade waits for the deletes that were ordered before it: they
/// decide by the upgrade's state where files go. No longer: a disk may give no answer.
const DELETIONS_WAIT: Duration = Duration::from_secs(5);

/// Something for the command task.
#[derive(Debug)]
pub(super) enum Order {
    /// A command of a NameNode.
    Command {
        /// The actor that received it.
        from: u64,
        /// That NameNode's address.
        address: String,
        /// The command.
        command: Box<DatanodeCommand>,
    },
    /// Whether a rolling upgrade runs, which the store does not know yet.
    RollingUpgrade {
        /// It runs.
        active: bool,
    },
}

/// Carries out the orders of one pool.
pub(super) struct Commander {
    service: Arc<PoolService>,
    work: Arc<dyn NodeWork>,
    transfers: Arc<Semaphore>,
    recoveries: Arc<Semaphore>,
    /// Read by every delete in progress.
    deletions: Arc<RwLock<()>>,
    said_no_cache: AtomicBool,
}

impl Commander {
    pub(super) fn new(service: Arc<PoolService>, work: Arc<dyn NodeWork>) -> Self {
        Self {
            service,
            work,
            transfers: Arc::new(Semaphore::new(TRANSFERS_MAX)),
            recoveries: Arc::new(Semaphore::new(RECOVERIES_MAX)),
            deletions: Arc::default(),
            said_no_cache: AtomicBool::new(false),
        }
    }

    /// Carries out orders until the pool is no longer served.
    pub(super) async fn run(self, mut orders: mpsc::Receiver<Order>) {
        loop {
            let order = tokio::select! {
                () = self.service.stop.cancelled() => return,
                order = orders.recv() => match order {
                    Some(order) => order,
                    None => return,
                },
            };
            let Some(pool) = self.service.pool() else {
                continue;
            };
            let began = Instant::now();
            let kind = match order {
                Order::RollingUpgrade { active } => {
                    self.rolling_upgrade(&pool, active).await;
                    "rolling upgrade".to_owned()
                }
                Order::Command {
                    from,
                    address,
                    command,
                } => {
                    let kind = command.cmd_type();
                    self.command(&pool, from, &address, *command).await;
                    format!("{kind:?}")
                }
            };
            let took = began.elapsed();
            if took
                > self
                    .service
                    .node
                    .config
                    .get(&keys::PROCESS_COMMANDS_THRESHOLD)
            {
                tracing::warn!(%pool, "the NameNode's command {kind} took {:.1} \
                    s", took.as_secs_f64());
            }
        }
    }

    async fn rolling_upgrade(&self, pool: &PoolId, active: bool) {
        tracing::info!(%pool, "rolling upgrade \
            {}", if active { "is in progress" } else { "was finalized" });
        self.deletions_end().await;
        if let Err(error) = self
            .service
            .node
            .store
            .set_rolling_upgrade(pool, active)
            .await
        {
            tracing::error!(%pool, "rolling upgrade: {error}");
        }
        self.service.rolling_upgrade_done();
    }

    async fn command(&self, pool: &PoolId, from: u64, address: &str, command: DatanodeCommand) {
        let Ok(kind) = DatanodeCommandType::try_from(command.cmd_type) else {
            tracing::warn!(
                namenode = address,
                "unknown command {}: ignored",
                command.cmd_type
            );
            return;
        };
        if !self.service.is_active(from) {
            tracing::debug!(
                namenode = address,
                "{kind:?} from a NameNode that is not active: ignored"
            );
            return;
        }
        match kind {
            DatanodeCommandType::BlockCommand => match command.blk_cmd {
                Some(blocks) => self.blocks(pool, address, blocks).await,
                None => lacks_payload(address, kind),
            },
            DatanodeCommandType::BlockRecoveryCommand => match command.recovery_cmd {
                Some(recovery) => self.recover(pool, recovery.blocks),
                None => lacks_payload(address, kind),
            },
            DatanodeCommandType::FinalizeCommand => match command.finalize_cmd {
                Some(finalize) => self.finalize(pool, address, &finalize.block_pool_id).await,
                None => lacks_payload(address, kind),
            },
            DatanodeCommandType::BalancerBandwidthCommand => match command.balancer_cmd {
                Some(balancer) if balancer.bandwidth > 0 => {
                    tracing::info!(
                        namenode = address,
                        "balancer bandwidth: {} bytes a second",
                        balancer.bandwidth
                    );
                    self.work.set_balancer_bandwidth(balancer.bandwidth);
                }
                Some(_) => {}
                None => lacks_payload(address, kind),
            },
            DatanodeCommandType::BlockIdCommand => match command.blk_id_cmd {
                Some(cache) => self.cache(address, cache.action(), cache.block_ids.len()),
                None => lacks_payload(address, kind),
            },
            DatanodeCommandType::BlockEcReconstructionCommand => {
                let tasks = command
                    .blk_ec_reconstruction_cmd
                    .map_or(0, |ec| ec.block_ec_reconstructioninfo.len());
                tracing::warn!(
                    namenode = address,
                    "asked to reconstruct {tasks} erasure-coded block group(s): this node cannot, \
                     only Apache nodes of the cluster can do it"
                );
            }
            DatanodeCommandType::KeyUpdateCommand
            | DatanodeCommandType::RegisterCommand
            | DatanodeCommandType::UnusedUpgradeCommand
            | DatanodeCommandType::NullDatanodeCommand => {}
        }
    }

    async fn blocks(&self, pool: &PoolId, address: &str, command: BlockCommand) {
        if command.block_pool_id != pool.as_str() {
            tracing::warn!(
                namenode = address,
                "a command for the pool {:?} arrived for {pool}: ignored",
                command.block_pool_id
            );
            return;
        }
        match BlockCommandAction::try_from(command.action) {
            Ok(BlockCommandAction::Invalidate) => self.invalidate(pool, &command),
            Ok(BlockCommandAction::Transfer) => self.transfer(pool, command),
            Ok(BlockCommandAction::Shutdown) => {
                tracing::warn!(
                    namenode = address,
                    "asked to shut down: DataNodes do not do that"
                );
            }
            Err(_) => tracing::warn!(
                namenode = address,
                "unknown block command {}: ignored",
                command.action
            ),
        }
    }

    /// Deletes in a task of its own: a disk that gives no answer holds no other command up. The
    /// store limits how many replicas wait, by volume.
    fn invalidate(&self, pool: &PoolId, command: &BlockCommand) {
        let blocks: Vec<Block> = command
            .blocks
            .iter()
            .filter_map(|block| Block::try_from(block).ok())
            .collect();
        let (count, pool) = (blocks.len(), pool.clone());
        tracing::debug!(%pool, "deleting {count} replica(s)");
        let node = Arc::clone(&self.service.node);
        // Only this task asks to write, and never while it is here.
        let in_progress = Arc::clone(&self.deletions).try_read_owned();
        self.spawn(async move {
            let _in_progress = in_progress;
            if let Err(error) = node.store.invalidate(&pool, &blocks).await {
                tracing::warn!(%pool, "the NameNode's order to delete {count} replica(s): {error}");
            }
        });
    }

    /// Waits until the deletes that were ordered have ended, at most [`DELETIONS_WAIT`].
    async fn deletions_end(&self) {
        let ended = self.deletions.write();
        if tokio::time::timeout(DELETIONS_WAIT, ended).await.is_err() {
            tracing::warn!(
                "an order about an upgrade is carried out before earlier deletes have ended"
            );
        }
    }

    async fn finalize(&self, pool: &PoolId, address: &str, named: &str) {
        if named != pool.as_str() {
            tracing::warn!(
                namenode = address,
                "asked to finalize the pool {named:?}, not {pool}: ignored"
            );
            return;
        }
        self.deletions_end().await;
        if let Err(error) = self.service.node.store.finalize_upgrade(pool).await {
            tracing::error!(%pool, "finalizing the upgrade: {error}");
        }
    }

    fn cache(&self, address: &str, action: BlockIdCommandAction, blocks: usize) {
        if action == BlockIdCommandAction::Cache
            && !self.said_no_cache.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                namenode = address,
                "asked to keep {blocks} block(s) in memory: this node has no cache (it reports \
                    none), \
                 ignored from now on"
            );
        }
    }

    fn recover(&self, pool: &PoolId, blocks: Vec<hayloft_wire::proto::hdfs::RecoveringBlock>) {
        let Ok(permit) = Arc::clone(&self.recoveries).try_acquire_owned() else {
            tracing::warn!(%pool, "too many block recoveries at a time: {} left to the next \
                attempt", blocks.len());
            return;
        };
        let work = self.work.recover(pool.clone(), blocks);
        self.spawn(async move {
            work.await;
            drop(permit);
        });
    }

    fn transfer(&self, pool: &PoolId, command: BlockCommand) {
        let mut ids = command.target_storage_uuids.into_iter();
        let mut types = command.target_storage_types.into_iter();
        let mut targets = command.targets.into_iter();
        for block in &command.blocks {
            let targets = targets
                .next()
                .map(|infos| infos.datanodes)
                .unwrap_or_default();
            let storage_ids = ids.next().map(|ids| ids.storage_uuids).unwrap_or_default();
            let storage_types = types
                .next()
                .map(|types| types.storage_types)
                .unwrap_or_default();
            let Ok(block) = Block::try_from(block) else {
                continue;
            };
            let block = ExtendedBlock::new(pool.clone(), block);
            let fits = |len: usize| len == 0 || len == targets.len();
            if targets.is_empty() || !fits(storage_ids.len()) || !fits(storage_types.len()) {
                tracing::warn!(%block, "an order to copy names {} target(s) but other numbers of \
                    storages: ignored", targets.len());
                continue;
            }
            if self.can_transfer(&block) {
                let targets = Targets {
                    nodes: targets,
                    types: storage_types,
                    storage_ids,
                };
                self.start_transfer(block, targets);
            }
        }
    }

    /// The NameNode learns of a replica that it believes in and that cannot be copied.
    fn can_transfer(&self, block: &ExtendedBlock) -> bool {
        let replica = self.service.node.store.replica(&block.pool, block.block.id);
        let usable = replica.filter(|replica| {
            replica.state == ReplicaState::Finalized
                && replica.block.block.generation_stamp == block.block.generation_stamp
        });
        let Some(replica) = usable else {
            let message = format!("Can't send invalid block {block}");
            tracing::info!(%block, "asked to copy a replica that is not here or not finalized");
            self.service.tell(&ErrorReport::Error {
                code: ErrorReportCode::InvalidBlock,
                message,
            });
            return false;
        };
        if replica.bytes_on_disk < block.block.num_bytes {
            tracing::warn!(
                %block,
                "asked to copy {} bytes of a replica that has {}: reported as bad",
                block.block.num_bytes,
                replica.bytes_on_disk
            );
            self.service.bad_block(block, &replica.storage);
            return false;
        }
        true
    }

    fn start_transfer(&self, block: ExtendedBlock, targets: Targets) {
        let Ok(permit) = Arc::clone(&self.transfers).try_acquire_owned() else {
            tracing::warn!(%block, "too many copies at a time: left to the NameNode's next order");
            return;
        };
        let copy = self.work.transfer(block.clone(), targets);
        self.spawn(async move {
            if let Err(reason) = copy.await {
                tracing::warn!(%block, "copying to other nodes failed: {reason}");
            }
            drop(permit);
        });
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.service.stop.clone();
        let work = async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = work => {}
            }
        };
        self.service.node.tasks.spawn(work.in_current_span());
    }
}

fn lacks_payload(address: &str, kind: DatanodeCommandType) {
    tracing::warn!(
        namenode = address,
        "a command says {kind:?} but holds none: ignored"
    );
}
