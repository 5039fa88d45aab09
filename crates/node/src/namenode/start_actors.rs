//! Starts the service of a pool: its command task, and an actor for each of its NameNodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hayloft_io::unbroken;
use tokio::sync::mpsc;
use tracing::Instrument as _;

use super::actor_news::{Actor, End};
use super::commands::Commander;
use super::pool_service::PoolService;
use super::service_side::NodeSide;
use super::{actor_loops, queued_command};
use hayloft_conf::{NameNodeAddr, NameService};

/// Names actors in logs and claims; never used twice in a process.
static NEXT_ACTOR: AtomicU64 = AtomicU64::new(1);

/// Starts the actors of `service`.
pub(super) fn start(service: &NameService, node: &Arc<NodeSide>) -> Arc<PoolService> {
    let (orders, queue) = mpsc::channel(queued_command::QUEUE);
    let started = Arc::new(PoolService::new(service, node, orders));
    if let Some(work) = node.work.get() {
        let commander = Commander::new(Arc::clone(&started), Arc::clone(work));
        node.tasks.spawn(commander.run(queue).in_current_span());
    }
    for addr in &service.namenodes {
        add_actor(&started, addr.clone());
    }
    started
}

fn add_actor(service: &Arc<PoolService>, addr: NameNodeAddr) {
    let id = NEXT_ACTOR.fetch_add(1, Ordering::Relaxed);
    let actor = Arc::new(Actor::new(
        id,
        addr,
        Arc::clone(&service.node),
        service.stop.child_token(),
    ));
    service.add(Arc::clone(&actor));
    let node = Arc::clone(&service.node);
    let service = Arc::clone(service);
    let serving = async move {
        let stop = actor.stop.cancelled();
        let end = unbroken("NameNode", stop, || actor_loops::run(&actor, &service)).await;
        if let Some(End::Refused(reason)) = &end {
            tracing::error!(
                namenode = actor.address,
                "this NameNode is served no longer: {reason}"
            );
        }
        service.actor_ended(&actor);
    };
    node.tasks.spawn(serving.in_current_span());
}

/// Makes the actors those of `namenodes`: new ones are started, others stopped.
pub(super) fn refresh(service: &Arc<PoolService>, namenodes: &[NameNodeAddr]) {
    let (gone, known): (Vec<_>, Vec<_>) = service
        .actors()
        .into_iter()
        .partition(|actor| !namenodes.contains(&actor.addr));
    for addr in namenodes
        .iter()
        .filter(|addr| !known.iter().any(|actor| actor.addr == **addr))
    {
        add_actor(service, addr.clone());
    }
    for actor in gone {
        tracing::info!(
            namenode = actor.address,
            "no longer configured: its service stops"
        );
        actor.stop.cancel();
    }
}
