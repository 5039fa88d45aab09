//! Cache reports: which blocks are locked in memory, all of them each time.

use std::sync::Arc;

use hayloft_conf::keys;
use hayloft_rpc::{RpcError, Trouble};
use hayloft_wire::proto::datanode::{CacheReportRequest, CacheReportResponse};
use tokio::time::Instant;

use super::actor_news::Actor;
use super::pool_service::PoolService;
use super::queued_command::Order;
use super::settings;
use crate::activity::Timed;

/// Sends cache reports at once and then in their interval, for ever; none where nothing can be
/// cached.
///
/// Beyond Apache's 3.5.0, an empty report is sent as well. Without it a NameNode takes what was
/// cached last for cached: after a restart, or when the last directive is gone.
pub(super) async fn run(service: &Arc<PoolService>, actor: &Arc<Actor>) {
    if !settings::caches(&actor.node.config) {
        return std::future::pending().await;
    }
    let mut trouble = Trouble::default();
    loop {
        match send(service, actor).await {
            Ok(()) => {
                trouble.over(Instant::now());
            }
            Err(error) => {
                if trouble.failed(Instant::now()) {
                    tracing::warn!(
                        namenode = actor.address,
                        "cache report failed, another will be sent: {}",
                        error.brief()
                    );
                }
            }
        }
        tokio::time::sleep(actor.node.config.get(&keys::CACHE_REPORT_INTERVAL)).await;
    }
}

async fn send(service: &Arc<PoolService>, actor: &Arc<Actor>) -> Result<(), RpcError> {
    let (Some(pool), Some(registration)) = (service.pool(), actor.registration()) else {
        return Ok(());
    };
    let began = Instant::now();
    let blocks = actor.node.store.cached_blocks(&pool);
    let request = CacheReportRequest {
        registration: (*registration).clone(),
        block_pool_id: pool.as_str().to_owned(),
        blocks: blocks.into_iter().map(i64::cast_unsigned).collect(),
    };
    let answer: CacheReportResponse = actor.report_client.call("cacheReport", &request).await?;
    if let Some(command) = answer.cmd {
        let command = Order::Command {
            from: actor.id,
            address: actor.address.clone(),
            command: Box::new(command),
        };
        service.order(actor.id, command);
    }
    let activity = &actor.node.activity;
    activity.took(Timed::CacheReports, began.elapsed());
    Ok(())
}
