//! The life of an actor: the handshake, then heartbeats, incremental reports, full reports, cache
//! reports, notices and lifelines. Each has a loop of its own, so that none waits for another.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::actor_news::{Actor, End, Phase};
use super::handshake::handshake;
use super::pool_service::PoolService;
use super::{block_report, cache_report, error_reports, heartbeat, ibr, lifeline, settings};
use hayloft_rpc::Trouble;

/// Wait before a failed initialisation is tried again, when another NameNode serves the pool.
const INIT_RETRY: Duration = Duration::from_secs(5);

/// Lives until it is stopped or refused.
pub(super) async fn run(actor: &Arc<Actor>, service: &Arc<PoolService>) -> End {
    let end = tokio::select! {
        () = actor.stop.cancelled() => End::Stopped,
        end = live(actor, service) => end,
    };
    actor.state().phase = Phase::Exited;
    end
}

async fn live(actor: &Arc<Actor>, service: &Arc<PoolService>) -> End {
    tracing::info!(
        namenode = actor.address,
        nameservice = service.label(),
        "connecting to the NameNode"
    );
    actor.schedule().begins_anew();
    let mut said = Trouble::default();
    while let Err(refusal) = handshake(actor, service).await {
        let reason = refusal.reason;
        actor.state().phase = Phase::Failed;
        if !service.should_retry(actor.id) {
            return End::Refused(reason);
        }
        if said.failed(Instant::now()) {
            tracing::error!(
                namenode = actor.address,
                "cannot serve this NameNode, will try again: {reason}"
            );
        }
        tokio::time::sleep(INIT_RETRY).await;
        actor.state().phase = Phase::Connecting;
    }
    // The loops are dropped together: each leaves at a wait, with nothing half done.
    tokio::select! {
        end = heartbeat::run(service, actor) => end,
        () = ibr::run(service, actor) => End::Stopped,
        () = block_report::run(service, actor) => End::Stopped,
        () = cache_report::run(service, actor) => End::Stopped,
        () = send_notices(actor) => End::Stopped,
        () = lifeline::run(service, actor) => End::Stopped,
    }
}

/// Tells the NameNode of bad blocks and errors, oldest first; an unreachable NameNode is told
/// again later.
async fn send_notices(actor: &Actor) {
    loop {
        let notices = actor.error_reports().first();
        let Some(registration) = actor.registration().filter(|_| !notices.is_empty()) else {
            actor.notice_wake.notified().await;
            continue;
        };
        let count = notices.len();
        match error_reports::send(&actor.client, &registration, notices).await {
            Ok(()) => actor.error_reports().done(count),
            // The heartbeats say that the NameNode is away.
            Err(_) => tokio::time::sleep(settings::heartbeat_interval(&actor.node.config)).await,
        }
    }
}
