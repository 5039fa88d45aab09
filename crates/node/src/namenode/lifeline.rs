//! Lifelines: signs of life on a NameNode port of their own, for when heartbeats are late.

use std::sync::Arc;

use hayloft_wire::proto::datanode::LifelineResponse;
use tokio::time::Instant;

use super::actor_news::Actor;
use super::pool_service::PoolService;
use super::{heartbeat, settings};
use crate::activity::Timed;
use hayloft_rpc::Trouble;

/// Sends a lifeline whenever no heartbeat was answered for a heartbeat and a lifeline interval, and
/// then one per lifeline interval. Without a lifeline address it only waits.
pub(super) async fn run(service: &Arc<PoolService>, actor: &Arc<Actor>) {
    let Some(client) = &actor.lifeline_client else {
        return std::future::pending().await;
    };
    let mut trouble = Trouble::default();
    let mut sent = Instant::now();
    loop {
        let config = &actor.node.config;
        let heard = actor.state().heard.unwrap_or(sent);
        let interval = settings::lifeline_interval(config);
        let due = (heard + settings::heartbeat_interval(config)).max(sent) + interval;
        if Instant::now() < due {
            tokio::time::sleep_until(due).await;
            continue;
        }
        sent = Instant::now();
        let Some(registration) = actor.registration() else {
            continue;
        };
        let request = heartbeat::request(&actor.node, service, &registration);
        let answer: Result<LifelineResponse, _> = client.call("sendLifeline", &request).await;
        match answer {
            Ok(_) => {
                actor.node.activity.took(Timed::Lifelines, sent.elapsed());
                trouble.over(Instant::now());
                tracing::debug!(
                    namenode = actor.address,
                    "heartbeats are late: sent a lifeline"
                );
            }
            Err(error) => {
                if trouble.failed(Instant::now()) {
                    tracing::warn!(
                        namenode = client.address(),
                        "lifeline failed: {}",
                        error.brief()
                    );
                }
            }
        }
    }
}
