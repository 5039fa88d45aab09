//! What the rest of the node sees of the NameNode services.

use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

use hayloft_io::locks::{read, write};
use hayloft_io::told_if_broken;
use hayloft_store::{StartOption, StorageInfo, Store};
use hayloft_wire::ids::{ExtendedBlock, PoolId};
use hayloft_wire::proto::datanode::{
    BlockStatus, CommitBlockSynchronizationRequest, CommitBlockSynchronizationResponse,
    DatanodeRegistration,
};
use hayloft_wire::proto::hdfs::{DatanodeId, DatanodeInfo};
use hayloft_wire::proto::hdfs_server::NnHaState;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use super::actor_news::Phase;
use super::error_reports::ErrorReport;
use super::held_pools::HeldPools;
use super::pool_service::PoolService;
use super::service_side::NodeSide;
use super::start_actors;
use super::work::NodeWork;
use crate::activity::NodeActivity;
use crate::identity::Identity;
use crate::namenode::ibr::BlockChange;
use crate::security::{BlockTokens, TokenSettings};
use hayloft_conf::{ConfigError, Configuration, HostPort, SharedConfig, namenodes};
use hayloft_rpc::RpcError;

/// What the services are made of.
pub struct NameNodesParts {
    /// The replicas that they report.
    pub store: Store,
    /// The running configuration.
    pub config: SharedConfig,
    /// How the node registers.
    pub identity: Identity,
    /// How block pools are opened.
    pub start: StartOption,
    /// Ends every service; a fatal disk error cancels it.
    pub shutdown: CancellationToken,
    /// Where the tasks of the services run.
    pub tasks: TaskTracker,
    /// Where calls and orders are counted.
    pub activity: Arc<NodeActivity>,
}

/// One actor, for administrators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActorInfo {
    /// Name service, if it has a name.
    pub nameservice: Option<String>,
    /// NameNode id in an HA group.
    pub nn_id: Option<String>,
    /// Host and port, as configured.
    pub address: String,
    /// The pool, once known.
    pub pool: Option<PoolId>,
    /// Where the actor is in its life.
    pub phase: Phase,
    /// State that the NameNode claimed last.
    pub ha: Option<NnHaState>,
    /// Whether it is believed to be the active one.
    pub active: bool,
    /// Time since the NameNode last answered.
    pub last_heartbeat: Option<Duration>,
    /// Time since it last took a full block report.
    pub last_report: Option<Duration>,
    /// Block changes that it has not been told yet.
    pub pending_reports: usize,
}

/// Handle of the NameNode services; clones are the same services. The notifications never wait.
#[derive(Clone)]
pub struct NameNodes(Arc<Inner>);

struct Inner {
    node: Arc<NodeSide>,
    services: RwLock<Vec<Arc<PoolService>>>,
    /// Number of services that were started and have not ended.
    living: watch::Sender<usize>,
}

impl NameNodes {
    /// Services that are not started yet.
    #[must_use]
    pub fn new(parts: NameNodesParts) -> Self {
        let tokens = TokenSettings::from_config(&parts.config.current());
        Self::over(NodeSide {
            tokens: BlockTokens::new(tokens),
            store: Arc::new(parts.store),
            config: parts.config,
            identity: parts.identity,
            start: parts.start,
            shutdown: parts.shutdown,
            tasks: parts.tasks,
            activity: parts.activity,
            pools: HeldPools::default(),
            work: OnceLock::new(),
        })
    }

    pub(super) fn over(node: NodeSide) -> Self {
        Self(Arc::new(Inner {
            node: Arc::new(node),
            services: RwLock::new(Vec::new()),
            living: watch::channel(0).0,
        }))
    }

    pub(super) fn node(&self) -> &NodeSide {
        &self.0.node
    }

    pub(super) fn services(&self) -> Vec<Arc<PoolService>> {
        read(&self.0.services).clone()
    }

    pub(super) fn service(&self, pool: &PoolId) -> Option<Arc<PoolService>> {
        self.services()
            .into_iter()
            .find(|service| service.pool().as_ref() == Some(pool))
    }

    /// Starts a service for each configured name service; `work` carries out NameNodes' orders.
    ///
    /// # Errors
    /// The configuration names no NameNode, or one without address.
    pub fn start(&self, work: Arc<dyn NodeWork>) -> Result<(), ConfigError> {
        let config = self.0.node.config.current();
        // A second start keeps the first one's work; there is none in a node.
        let _ = self.0.node.work.set(work);
        self.refresh(&config)
    }

    /// Starts and stops services and actors so that they are those of `config`
    /// (`dfsadmin -refreshNamenodes`). The files of a pool that is no longer served stay.
    ///
    /// # Errors
    /// As [`start`](Self::start); nothing is changed then.
    pub fn refresh(&self, config: &Configuration) -> Result<(), ConfigError> {
        let wanted = namenodes(config)?;
        let mut services = write(&self.0.services);
        services.retain(|service| {
            let stays =
                wanted.iter().any(|new| new.id == service.name) && !service.stop.is_cancelled();
            if !stays {
                service.stop.cancel();
            }
            stays
        });
        for new in &wanted {
            if let Some(service) = services.iter().find(|service| service.name == new.id) {
                start_actors::refresh(service, &new.namenodes);
                continue;
            }
            let service = start_actors::start(new, &self.0.node);
            services.push(Arc::clone(&service));
            self.0.living.send_modify(|living| *living += 1);
            let watch = self.clone().watch_end(service);
            self.0.node.tasks.spawn(watch.in_current_span());
        }
        Ok(())
    }

    /// [`refresh`](Self::refresh) by the configuration files as they are now.
    ///
    /// # Errors
    /// The files cannot be read, and as [`start`](Self::start).
    pub fn refresh_from_files(&self) -> Result<(), ConfigError> {
        let config = self.0.node.config.refresh_namenodes()?;
        self.refresh(&config)
    }

    /// Takes a service that ended out of the list, and its pool out of the store.
    async fn watch_end(self, service: Arc<PoolService>) {
        service.stop.cancelled().await;
        let node = &self.0.node;
        // The store of a stopping node keeps its pools until it has saved what it knows of them.
        if !node.shutdown.is_cancelled() {
            if let Some(pool) = service.pool() {
                tracing::warn!(%pool, nameservice = service.label(), "block pool is no longer \
                    served");
                let forgotten = node.store.forget_pool(&pool);
                told_if_broken("end of a block pool", forgotten).await;
                node.tokens.forget(&pool);
                service.let_go();
            }
            let mut services = write(&self.0.services);
            services.retain(|other| !Arc::ptr_eq(other, &service));
        }
        self.0.living.send_modify(|living| *living -= 1);
    }

    /// Waits until no service is left: nothing to do for this node any more. Only after
    /// [`start`](Self::start).
    pub async fn wait_all_ended(&self) {
        // The sender lives as long as `self`.
        let _ = self
            .0
            .living
            .subscribe()
            .wait_for(|living| *living == 0)
            .await;
    }

    pub(super) fn notify(
        &self,
        block: &ExtendedBlock,
        storage: &StorageInfo,
        status: BlockStatus,
        delete_hint: Option<&str>,
    ) {
        let Some(service) = self.service(&block.pool) else {
            tracing::debug!(%block, "{status:?} in a pool that is not served");
            return;
        };
        for actor in service.actors() {
            let delete_hint = delete_hint.map(str::to_owned);
            actor.news(
                storage,
                BlockChange {
                    block: block.block,
                    status,
                    delete_hint,
                    anew: false,
                },
            );
        }
    }

    /// A block is being received: reported with the next report.
    pub fn notify_receiving(&self, block: &ExtendedBlock, storage: &StorageInfo) {
        self.notify(block, storage, BlockStatus::Receiving, None);
    }

    /// A block was received in full: reported at once. `delete_hint`: uuid of a node whose replica
    /// may go.
    pub fn notify_received(
        &self,
        block: &ExtendedBlock,
        storage: &StorageInfo,
        delete_hint: Option<&str>,
    ) {
        self.notify(
            block,
            storage,
            BlockStatus::Received,
            delete_hint.filter(|hint| !hint.is_empty()),
        );
    }

    /// As [`notify_received`](Self::notify_received), of a replica of the store: its volume may
    /// leave after it was finalized, and that be told before.
    pub fn notify_finalized(
        &self,
        block: &ExtendedBlock,
        storage: &StorageInfo,
        delete_hint: Option<&str>,
    ) {
        self.notify_received(block, storage, delete_hint);
        let here = self.node().store.replica(&block.pool, block.block.id);
        if here.is_none() {
            self.notify(block, storage, BlockStatus::Deleted, None);
        }
    }

    /// Waits until the pool's active NameNode has taken what there is to report of the block, at
    /// most `limit`. At once when there is nothing, or no NameNode is known to be active.
    pub async fn wait_told(&self, block: &ExtendedBlock, limit: Duration) {
        let active = self
            .service(&block.pool)
            .and_then(|service| service.active());
        if let Some(active) = active {
            // Past the limit the report is on its way, or waits for a NameNode that is away.
            let _ = tokio::time::timeout(limit, active.told(block.block.id)).await;
        }
    }

    /// A replica of this node is corrupt: every NameNode of the pool is told.
    pub fn report_bad_block(&self, block: &ExtendedBlock, storage: &StorageInfo) {
        if let Some(service) = self.service(&block.pool) {
            service.bad_block(block, storage);
        }
    }

    /// A replica of another node is corrupt: every NameNode of the pool is told.
    pub fn report_remote_bad_block(&self, node: &DatanodeInfo, block: &ExtendedBlock) {
        if let Some(service) = self.service(&block.pool) {
            service.tell(&ErrorReport::RemoteBadBlock {
                block: block.into(),
                node: Box::new(node.clone()),
            });
        }
    }

    /// Ends a block recovery at the active NameNode.
    ///
    /// # Errors
    /// No NameNode is active, it does not answer, or it refuses.
    pub async fn commit_block_synchronization(
        &self,
        pool: &PoolId,
        request: &CommitBlockSynchronizationRequest,
    ) -> Result<(), RpcError> {
        let active = self.service(pool).and_then(|service| service.active());
        let Some(active) = active else {
            return Err(RpcError::Connect {
                address: format!("the active NameNode of {pool}"),
                reason: "no NameNode is known to be active".to_owned(),
            });
        };
        let answer: Result<CommitBlockSynchronizationResponse, _> = active
            .client
            .call("commitBlockSynchronization", request)
            .await;
        answer.map(|_| ())
    }

    /// Sends a report now (`dfsadmin -triggerBlockReport`): what is pending of the incremental one,
    /// or a full one without waiting for a lease. It goes to the NameNode configured so, or to all.
    /// Returns to how many.
    pub fn trigger_block_report(&self, incremental: bool, namenode: Option<&HostPort>) -> usize {
        let mut told = 0;
        for actor in self.services().iter().flat_map(|service| service.actors()) {
            if namenode.is_some_and(|wanted| actor.address != wanted.to_string()) {
                continue;
            }
            told += 1;
            if incremental {
                actor.ibr().trigger();
                actor.ibr_wake.notify_one();
            } else {
                actor.schedule().force();
                actor.report_wake.notify_one();
            }
        }
        told
    }

    /// How this node is registered with the pool's NameNodes.
    #[must_use]
    pub fn registration(&self, pool: &PoolId) -> Option<Arc<DatanodeRegistration>> {
        self.service(pool)?.registration()
    }

    /// The block tokens of this node: what NameNodes said of them, and their keys.
    #[must_use]
    pub fn block_tokens(&self) -> &BlockTokens {
        &self.0.node.tokens
    }

    /// Whether the pool has a running service (its files must not be deleted then).
    #[must_use]
    pub fn serves(&self, pool: &PoolId) -> bool {
        self.service(pool).is_some()
    }

    /// Whether the active NameNode of the pool calls this node slow.
    #[must_use]
    pub fn is_slow_node(&self, pool: &PoolId) -> bool {
        self.service(pool)
            .and_then(|service| service.active())
            .is_some_and(|actor| actor.state().slow)
    }

    /// Waits until the pool is registered with a NameNode, at most `limit`; false when it is not.
    pub async fn wait_ready(&self, pool: &PoolId, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(service) = self.service(pool) {
                return tokio::time::timeout_at(deadline, service.wait_ready())
                    .await
                    .is_ok();
            }
            // Before the first handshake it is unknown which service will have the pool.
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Id of this node as the pool's NameNode knows it.
    #[must_use]
    pub fn datanode_id(&self, pool: &PoolId) -> Option<DatanodeId> {
        self.registration(pool)
            .map(|registration| registration.datanode_id.clone())
    }

    /// All actors.
    #[must_use]
    pub fn actors(&self) -> Vec<ActorInfo> {
        self.services()
            .iter()
            .flat_map(|service| infos(service))
            .collect()
    }
}

fn infos(service: &PoolService) -> Vec<ActorInfo> {
    let pool = service.pool();
    let info = |actor: &Arc<super::actor_news::Actor>| {
        let (phase, ha, heard) = {
            let state = actor.state();
            (state.phase, state.ha, state.heard)
        };
        ActorInfo {
            nameservice: service.name.clone(),
            nn_id: actor.addr.nn_id.clone(),
            address: actor.address.clone(),
            pool: pool.clone(),
            phase,
            ha,
            active: service.is_active(actor.id),
            last_heartbeat: heard.map(|heard| heard.elapsed()),
            last_report: actor.schedule().last().map(|last| last.elapsed()),
            pending_reports: actor.ibr().len(),
        }
    };
    service.actors().iter().map(info).collect()
}
