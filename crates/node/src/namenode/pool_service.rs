//! One service per name service: its actors, which of them is active, its block pool.

use std::sync::{Arc, Mutex, MutexGuard};

use hayloft_io::locks::lock;
use hayloft_store::{RollingUpgradeState, StorageInfo};
use hayloft_wire::ids::{ExtendedBlock, PoolId};
use hayloft_wire::proto::datanode::DatanodeRegistration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::actor_news::{Actor, Phase};
use super::error_reports::ErrorReport;
use super::held_pools::HeldPool;
use super::queued_command::Order;
use super::registration_checks::Namespace;
use super::service_side::NodeSide;
use crate::namenode::active_namenode::{ActiveNameNode, ClaimChange};
use hayloft_conf::NameService;

struct ServiceState {
    namespace: Option<Namespace>,
    /// The pool of that namespace is this service's alone.
    held: Option<HeldPool>,
    /// Another name service has it, which may end.
    held_by_other: bool,
    claim: ActiveNameNode<u64>,
    actors: Vec<Arc<Actor>>,
    /// The newest order about a rolling upgrade that waits or is being carried out.
    rolling_upgrade_ordered: Option<RollingUpgradeState>,
}

/// The NameNodes of one name service, and the block pool that they manage.
pub(super) struct PoolService {
    pub(super) name: Option<String>,
    pub(super) node: Arc<NodeSide>,
    state: Mutex<ServiceState>,
    /// The pool is loaded by one actor; the others wait.
    loading: tokio::sync::Mutex<()>,
    orders: mpsc::Sender<Order>,
    ready: watch::Sender<bool>,
    pub(super) stop: CancellationToken,
}

impl PoolService {
    /// The service of `service` without actors. What it is ordered goes to `orders`.
    pub(super) fn new(
        service: &NameService,
        node: &Arc<NodeSide>,
        orders: mpsc::Sender<Order>,
    ) -> Self {
        Self {
            name: service.id.clone(),
            node: Arc::clone(node),
            state: Mutex::new(ServiceState {
                namespace: None,
                held: None,
                held_by_other: false,
                claim: ActiveNameNode::new(),
                actors: Vec::new(),
                rolling_upgrade_ordered: None,
            }),
            loading: tokio::sync::Mutex::new(()),
            orders,
            ready: watch::channel(false).0,
            stop: node.shutdown.child_token(),
        }
    }

    /// Takes in an actor that is about to run.
    pub(super) fn add(&self, actor: Arc<Actor>) {
        self.state().actors.push(actor);
    }

    /// An actor has ended; without any the service has, too.
    pub(super) fn actor_ended(&self, actor: &Actor) {
        let none_left = {
            let mut state = self.state();
            state.claim.forget(actor.id);
            state.actors.retain(|other| other.id != actor.id);
            state.actors.is_empty()
        };
        if none_left {
            self.ready.send_replace(false);
            self.stop.cancel();
        }
    }

    fn state(&self) -> MutexGuard<'_, ServiceState> {
        lock(&self.state)
    }

    /// For logs.
    pub(super) fn label(&self) -> &str {
        self.name.as_deref().unwrap_or("-")
    }

    /// The pool, once a NameNode has named it.
    pub(super) fn pool(&self) -> Option<PoolId> {
        self.state()
            .namespace
            .as_ref()
            .map(|namespace| namespace.pool.clone())
    }

    /// The actors.
    pub(super) fn actors(&self) -> Vec<Arc<Actor>> {
        self.state().actors.clone()
    }

    /// The actor of the NameNode believed to be active.
    pub(super) fn active(&self) -> Option<Arc<Actor>> {
        let state = self.state();
        let active = state.claim.active()?;
        state
            .actors
            .iter()
            .find(|actor| actor.id == active)
            .cloned()
    }

    /// Whether that actor's NameNode is believed to be active.
    pub(super) fn is_active(&self, actor: u64) -> bool {
        self.state().claim.active() == Some(actor)
    }

    /// How this node is registered, with any of the NameNodes.
    pub(super) fn registration(&self) -> Option<Arc<DatanodeRegistration>> {
        self.actors().iter().find_map(|actor| actor.registration())
    }

    /// Whether an actor that was refused should try again: the pool is in use, also by another name
    /// service, or another actor may still get to use it.
    pub(super) fn should_retry(&self, failed: u64) -> bool {
        if self.stop.is_cancelled() {
            return false;
        }
        let (known, others) = {
            let state = self.state();
            let known = state.namespace.is_some() || state.held_by_other;
            (known, state.actors.clone())
        };
        let hopeful = |actor: &Arc<Actor>| {
            actor.id != failed && matches!(actor.state().phase, Phase::Connecting | Phase::Running)
        };
        known || others.iter().any(hopeful)
    }

    /// Takes in the namespace that a NameNode named: the first one loads the pool, later ones have
    /// to agree. `Err`: why the NameNode cannot be served.
    pub(super) async fn accept(&self, actor: u64, namespace: &Namespace) -> Result<(), String> {
        let _one_at_a_time = self.loading.lock().await;
        let known = self.state().namespace.clone();
        if let Some(known) = known {
            known.same_as(namespace)?;
        } else {
            let pools = &self.node.pools;
            let held = pools.hold(&namespace.pool, self.label(), &self.stop);
            // Dropped with this future, and when the pool cannot be used.
            let held = held.await;
            self.state().held_by_other = held.is_err();
            let held = held?;
            let spec = namespace.spec();
            let added = self.node.store.add_pool(spec, self.node.start).await;
            added.map_err(|error| {
                format!("the block pool {} cannot be used: {error}", namespace.pool)
            })?;
            let mut state = self.state();
            state.namespace = Some(namespace.clone());
            state.held = Some(held);
        }
        if namespace.claims_active {
            let change = self.state().claim.handshake(actor);
            if change != ClaimChange::Same {
                tracing::debug!(pool = %namespace.pool, "the NameNode said that it is active when \
                    asked for its version");
            }
        }
        Ok(())
    }

    /// The end is over: another name service may have the pool.
    pub(super) fn let_go(&self) {
        self.state().held = None;
    }

    /// An actor has registered.
    pub(super) fn registered(&self, actor: &Actor) {
        self.ready.send_replace(true);
        actor.ibr_wake.notify_one();
        actor.notice_wake.notify_one();
    }

    /// Waits until the pool is registered with a NameNode.
    pub(super) async fn wait_ready(&self) {
        let mut ready = self.ready.subscribe();
        // An error means that the sender is gone, which `self` rules out.
        let _ = ready
            .wait_for(|ready| *ready && !self.stop.is_cancelled())
            .await;
    }

    /// Ends the service and its block pool when there is a `reason`, which it gives back: a
    /// NameNode demands protection that is not here.
    pub(super) fn end_for(&self, reason: Option<String>) -> Result<(), String> {
        let Some(reason) = reason else {
            return Ok(());
        };
        self.stop.cancel();
        self.ready.send_replace(false);
        Err(reason)
    }

    /// A heartbeat was answered.
    pub(super) fn claims(&self, actor: &Actor, active: bool, txid: u64) {
        let change = self.state().claim.heartbeat(actor.id, active, txid);
        let address = &actor.address;
        match change {
            ClaimChange::Same => {}
            ClaimChange::Took { from: None } => {
                tracing::info!(
                    namenode = address,
                    "is the active NameNode (transaction {txid})"
                );
            }
            ClaimChange::Took { from: Some(_) } => {
                tracing::info!(
                    namenode = address,
                    "took over as the active NameNode (transaction {txid})"
                );
            }
            ClaimChange::Resigned => {
                tracing::info!(
                    namenode = address,
                    "is no longer the active NameNode (transaction {txid})"
                );
            }
            ClaimChange::Refused { known_txid } => {
                tracing::warn!(
                    namenode = address,
                    "claims to be active at transaction {txid}, but another one is at \
                        {known_txid}: not believed"
                );
            }
        }
    }

    /// Queues an order; whether there was room. A full queue drops it; after the full block report
    /// that follows, the NameNode orders again what was not done.
    pub(super) fn order(&self, from: u64, order: Order) -> bool {
        if !matches!(
            self.orders.try_send(order),
            Err(mpsc::error::TrySendError::Full(_))
        ) {
            return true;
        }
        tracing::warn!(
            nameservice = self.label(),
            "too many NameNode commands wait: one is dropped, a full block report follows"
        );
        let actors = self.actors();
        if let Some(actor) = actors.iter().find(|actor| actor.id == from) {
            actor.report_soon();
        }
        false
    }

    /// What the active NameNode, whose actor is `from`, says of a rolling upgrade with each
    /// heartbeat. The store is asked what it is at rather than what it was told last: it may have
    /// failed to take that in. Gives false when the order about it has no room: what the NameNode
    /// orders besides may not be carried out in another mode.
    pub(super) fn rolling_upgrade(
        &self,
        from: u64,
        pool: &PoolId,
        state: RollingUpgradeState,
    ) -> bool {
        // The newest order decides: a later heartbeat finds what is still to be done.
        let ordered = self.state().rolling_upgrade_ordered;
        let known = match ordered {
            Some(ordered) => ordered == state,
            None => self.node.store.rolling_upgrade_is(pool, state),
        };
        if known {
            return true;
        }
        let before = self.state().rolling_upgrade_ordered.replace(state);
        let queued = self.order(from, Order::RollingUpgrade(state));
        if !queued {
            self.state().rolling_upgrade_ordered = before;
        }
        queued
    }

    /// The order was carried out, or could not be.
    pub(super) fn rolling_upgrade_done(&self, state: RollingUpgradeState) {
        let ordered = &mut self.state().rolling_upgrade_ordered;
        if *ordered == Some(state) {
            *ordered = None;
        }
    }

    /// Queues a notice for every NameNode.
    pub(super) fn tell(&self, notice: &ErrorReport) {
        for actor in self.actors() {
            actor.tell(notice.clone());
        }
    }

    /// Reports a replica of this node as corrupt.
    pub(super) fn bad_block(&self, block: &ExtendedBlock, storage: &StorageInfo) {
        self.tell(&ErrorReport::BadBlock {
            block: block.into(),
            storage: storage.id.to_string(),
            storage_type: storage.storage_type,
        });
    }
}
