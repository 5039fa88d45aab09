//! Sends incremental block reports: received blocks at once, the rest with them or at the pace of
//! heartbeats. A client's `close` waits for this.
//!
//! - `queue`: what a NameNode has not been told yet

mod queue;

pub(super) use queue::{Added, Batch, BlockChange, IbrQueue};

use std::sync::Arc;
use std::time::Duration;

use hayloft_wire::ids::PoolId;
use hayloft_wire::proto::datanode::{
    BlockReceivedAndDeletedRequest, BlockReceivedAndDeletedResponse, BlockStatus,
    DatanodeRegistration, ReceivedDeletedBlockInfo, StorageReceivedDeletedBlocks,
};
use tokio::time::Instant;

use crate::activity::Timed;
use crate::namenode::actor_news::Actor;
use crate::namenode::heartbeat::wire_storage;
use crate::namenode::pool_service::PoolService;
use crate::namenode::settings;
use hayloft_conf::keys;
use hayloft_rpc::RpcError;
use hayloft_rpc::Trouble;

/// Entries in one message: bounds its size and the time that the NameNode holds its lock for it.
const ENTRIES_PER_MESSAGE: usize = 50_000;
/// Wait after a failure, however much news arrives meanwhile.
const RETRY: Duration = Duration::from_secs(1);

/// Sends for ever.
pub(super) async fn run(service: &Arc<PoolService>, actor: &Arc<Actor>) {
    let interval = actor.node.config.get(&keys::INCREMENTAL_REPORT_INTERVAL);
    let mut trouble = Trouble::default();
    let mut not_before = Instant::now();
    let mut tick = Instant::now();
    loop {
        let woken = tokio::select! {
            () = tokio::time::sleep_until(tick) => false,
            () = actor.ibr_wake.notified() => true,
        };
        let heartbeat = settings::heartbeat_interval(&actor.node.config);
        if woken {
            tokio::time::sleep_until(not_before.min(tick)).await;
            if !actor.ibr().is_ready() {
                continue;
            }
        } else {
            tick = Instant::now() + heartbeat;
        }
        let gate = actor.report_gate.lock().await;
        let outcome = flush(service, actor).await;
        drop(gate);
        not_before = Instant::now() + interval;
        match outcome {
            Ok(()) => {
                trouble.over(Instant::now());
            }
            Err(error) => {
                not_before = not_before.max(Instant::now() + RETRY);
                if trouble.failed(Instant::now()) {
                    tracing::warn!(
                        namenode = actor.address,
                        "incremental block report failed, will send it again: {}",
                        error.brief()
                    );
                }
            }
        }
    }
}

/// Sends what is waiting now. The caller holds the report gate. What comes meanwhile has to wait
/// for the next time: a node that never rests must not hold up its full report.
pub(super) async fn flush(service: &PoolService, actor: &Actor) -> Result<(), RpcError> {
    let (Some(registration), Some(pool)) = (actor.registration(), service.pool()) else {
        return Ok(());
    };
    let mut left = actor.ibr().len();
    while left > 0 {
        let batch = actor.ibr().take(left.min(ENTRIES_PER_MESSAGE));
        if batch.len() == 0 {
            break;
        }
        left -= batch.len();
        let batch = Some(batch);
        Sending { actor, batch }.send(&registration, &pool).await?;
    }
    Ok(())
}

/// A batch on its way; it goes back to the queue unless it arrived, also when the sender is
/// dropped.
struct Sending<'a> {
    actor: &'a Actor,
    batch: Option<Batch>,
}

impl Sending<'_> {
    async fn send(
        mut self,
        registration: &DatanodeRegistration,
        pool: &PoolId,
    ) -> Result<(), RpcError> {
        let Some(batch) = &self.batch else {
            return Ok(());
        };
        let request = request(registration, pool, batch);
        let entries = batch.len();
        let began = Instant::now();
        let answer: Result<BlockReceivedAndDeletedResponse, _> = self
            .actor
            .client
            .call("blockReceivedAndDeleted", &request)
            .await;
        answer?;
        let activity = &self.actor.node.activity;
        activity.took(Timed::IncrementalBlockReports, began.elapsed());
        tracing::trace!(
            namenode = self.actor.address,
            entries,
            "incremental block report sent"
        );
        if let Some(batch) = self.batch.take() {
            self.actor.news_taken(batch);
        }
        Ok(())
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if let Some(batch) = self.batch.take() {
            let fits = self.actor.ibr().put_back(batch);
            if !fits {
                self.actor.reports_overflowed();
            }
        }
    }
}

fn request(
    registration: &DatanodeRegistration,
    pool: &PoolId,
    batch: &Batch,
) -> BlockReceivedAndDeletedRequest {
    let blocks = batch
        .by_storage()
        .into_iter()
        .map(|(storage, news)| StorageReceivedDeletedBlocks {
            storage_uuid: storage.id.to_string(),
            blocks: news.into_iter().flat_map(entries).collect(),
            storage: Some(wire_storage(&storage)),
        })
        .collect();
    BlockReceivedAndDeletedRequest {
        registration: registration.clone(),
        block_pool_id: pool.as_str().to_owned(),
        blocks,
    }
}

/// What the NameNode is told of a replica. One that is told anew is deleted and received in one
/// list, which a NameNode takes in under one lock: only a deletion has it forget that a replica is
/// corrupt (`BlockManager.removeStoredBlock`, 3.5.0), and no reader may see it gone.
fn entries(news: &BlockChange) -> impl Iterator<Item = ReceivedDeletedBlockInfo> {
    let now = ReceivedDeletedBlockInfo {
        block: news.block.into(),
        status: news.status.into(),
        delete_hint: news.delete_hint.clone(),
    };
    let before = news.anew.then(|| ReceivedDeletedBlockInfo {
        status: BlockStatus::Deleted.into(),
        delete_hint: None,
        ..now.clone()
    });
    before.into_iter().chain([now])
}
