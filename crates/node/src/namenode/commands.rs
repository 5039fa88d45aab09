//! NameNode commands: a bounded queue per pool, carried out one after the other. What takes long
//! (deleting, copying, recovering and reconstructing blocks) goes on in tasks of its own.
//!
//! - `transfers`: commands that send blocks to other nodes: copies of replicas, and reconstructed
//!   ones

use std::sync::Arc;
use std::time::Duration;

use hayloft_io::told_if_broken;
use hayloft_store::{RollingUpgradeState, StoreErrorKind};
use hayloft_wire::ids::{Block, PoolId};
use hayloft_wire::proto::datanode::{
    BlockCommand, BlockCommandAction, BlockIdCommand, BlockIdCommandAction, DatanodeCommand,
    DatanodeCommandType,
};
use hayloft_wire::proto::hdfs_server::RecoveringBlock;
use tokio::sync::{RwLock, Semaphore, mpsc};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::pool_service::PoolService;
use super::queued_command::Order;
use super::work::NodeWork;
use crate::activity::{Count, Timed};
use hayloft_conf::keys;

mod transfers;

/// Copies in progress, per pool. The NameNode orders far fewer by the load it sees.
const TRANSFERS_MAX: usize = 128;
/// Block recoveries in progress, per pool, in commands.
const RECOVERIES_MAX: usize = 64;

/// Reconstructions in progress or waiting for their turn, per pool, in groups. The NameNode orders
/// few by the load that it is told, which counts those that wait.
const RECONSTRUCTIONS_MAX: usize = 256;

/// How long an order about an upgrade waits for the deletes that were ordered before it: they
/// decide by the upgrade's state where files go. No longer: a disk may give no answer.
const DELETIONS_WAIT: Duration = Duration::from_secs(5);

/// Blocks that are cached or uncached before a stop is looked for.
const CACHED_AT_A_TIME: usize = 4096;

/// Carries out the orders of one pool.
pub(super) struct Commander {
    service: Arc<PoolService>,
    work: Arc<dyn NodeWork>,
    transfers: Arc<Semaphore>,
    recoveries: Arc<Semaphore>,
    reconstructions: Arc<Semaphore>,
    /// Read by every delete in progress.
    deletions: Arc<RwLock<()>>,
}

impl Commander {
    pub(super) fn new(service: Arc<PoolService>, work: Arc<dyn NodeWork>) -> Self {
        Self {
            service,
            work,
            transfers: Arc::new(Semaphore::new(TRANSFERS_MAX)),
            recoveries: Arc::new(Semaphore::new(RECOVERIES_MAX)),
            reconstructions: Arc::new(Semaphore::new(RECONSTRUCTIONS_MAX)),
            deletions: Arc::default(),
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
            let upgrade = match &order {
                Order::RollingUpgrade(state) => Some(*state),
                Order::Command { .. } => None,
            };
            let done = told_if_broken("an order of the NameNode", self.carry_out(&pool, order));
            let Some(kind) = done.await else {
                self.not_carried_out(upgrade);
                continue;
            };
            let took = began.elapsed();
            let activity = &self.service.node.activity;
            activity.add(Count::NumProcessedCommands, 1);
            activity.took(Timed::ProcessedCommandsOp, took);
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

    /// The NameNode orders again what it still wants after a full report.
    fn not_carried_out(&self, upgrade: Option<RollingUpgradeState>) {
        if let Some(state) = upgrade {
            self.service.rolling_upgrade_done(state);
        }
        for actor in self.service.actors() {
            actor.report_soon();
        }
    }

    /// Carries out an order; its kind.
    async fn carry_out(&self, pool: &PoolId, order: Order) -> String {
        match order {
            Order::RollingUpgrade(state) => {
                self.rolling_upgrade(pool, state).await;
                "rolling upgrade".to_owned()
            }
            Order::Command {
                from,
                address,
                command,
            } => {
                let kind = command.cmd_type();
                self.command(pool, from, &address, *command).await;
                format!("{kind:?}")
            }
        }
    }

    async fn rolling_upgrade(&self, pool: &PoolId, state: RollingUpgradeState) {
        let said = match state {
            RollingUpgradeState::InProgress => "is in progress: deleted blocks go to trash",
            RollingUpgradeState::Finalized => "was finalized",
            RollingUpgradeState::Absent => "does not run: deleted blocks are gone, trash is kept",
        };
        tracing::info!(%pool, "the NameNode says: a rolling upgrade {said}");
        self.deletions_end().await;
        let store = &self.service.node.store;
        if let Err(error) = store.set_rolling_upgrade(pool, state).await {
            tracing::error!(%pool, "rolling upgrade: {error}");
        }
        self.service.rolling_upgrade_done(state);
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
                Some(recovery) => self.recover(pool, address, recovery.blocks),
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
                Some(ids) => self.cache(pool, address, ids).await,
                None => lacks_payload(address, kind),
            },
            DatanodeCommandType::BlockEcReconstructionCommand => {
                match command.blk_ec_reconstruction_cmd {
                    Some(groups) => self.reconstruct(pool, groups.block_ec_reconstructioninfo),
                    None => lacks_payload(address, kind),
                }
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
            match node.store.invalidate(&pool, &blocks).await {
                Ok(()) => {}
                // A NameNode repeats orders, also such as were carried out.
                Err(error) if error.kind() == StoreErrorKind::NotFound => {
                    tracing::debug!(%pool, "the NameNode's order to delete replicas: {error}");
                }
                Err(error) => {
                    tracing::warn!(%pool, "the NameNode's order to delete {count} replica(s): \
                        {error}");
                }
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

    /// Caching and uncaching. The store queues what takes a disk; giving much memory back takes a
    /// while, and so has a thread for calls that block.
    async fn cache(&self, pool: &PoolId, address: &str, command: BlockIdCommand) {
        if command.block_pool_id != pool.as_str() {
            tracing::warn!(
                namenode = address,
                "a command for the pool {:?} arrived for {pool}: ignored",
                command.block_pool_id
            );
            return;
        }
        let Ok(action) = BlockIdCommandAction::try_from(command.action) else {
            tracing::warn!(
                namenode = address,
                "unknown command for block ids {}: ignored",
                command.action
            );
            return;
        };
        let ids: Vec<i64> = command
            .block_ids
            .iter()
            .map(|id| id.cast_signed())
            .collect();
        tracing::debug!(%pool, "{action:?} of {} block(s)", ids.len());
        for ids in ids.chunks(CACHED_AT_A_TIME) {
            if self.service.stop.is_cancelled() {
                return;
            }
            let (store, pool) = (Arc::clone(&self.service.node.store), pool.clone());
            let ids = ids.to_vec();
            let order = tokio::task::spawn_blocking(move || match action {
                BlockIdCommandAction::Cache => store.cache(&pool, &ids),
                BlockIdCommandAction::Uncache => store.uncache(&pool, &ids),
            });
            if let Err(error) = order.await {
                tracing::error!("an order about cached blocks did not end: {error}");
            }
        }
    }

    fn recover(&self, pool: &PoolId, address: &str, mut blocks: Vec<RecoveringBlock>) {
        // A recovery may shorten a block: no NameNode does that to those of another one.
        blocks.retain(|order| {
            let block = &order.block.b;
            let is_ours = block.pool_id == pool.as_str();
            if !is_ours {
                tracing::warn!(
                    namenode = address,
                    "asked to recover block {} of the pool {:?}, not {pool}: ignored",
                    block.block_id.cast_signed(),
                    block.pool_id
                );
            }
            is_ours
        });
        if blocks.is_empty() {
            return;
        }
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

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.service.stop.clone();
        let work = async move {
            tokio::select! {
                () = stop.cancelled() => {}
                _ = told_if_broken("an order of the NameNode", work) => {}
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
