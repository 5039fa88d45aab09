//! One actor per NameNode address: handshake, then heartbeats, incremental reports, full reports,
//! notices and lifelines. Each has a loop of its own, so that none waits for another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hayloft_wire::proto::datanode::{
    DatanodeRegistration, RegisterDatanodeRequest, RegisterDatanodeResponse,
};
use hayloft_wire::proto::hdfs::{NnHaState, VersionRequest, VersionResponse};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error_reports::{ErrorReport, ErrorReports};
use super::pool::PoolService;
use super::registration::{Namespace, demands_authorization, demands_tokens, may_succeed_later};
use super::service_side::NodeSide;
use super::{block_report, heartbeat, ibr, lifeline, settings};
use crate::namenode::block_report::ReportSchedule;
use crate::namenode::ibr::{Added, Batch, BlockChange, IbrQueue};
use hayloft_conf::{NameNodeAddr, keys};
use hayloft_rpc::Trouble;
use hayloft_rpc::{DATANODE_LIFELINE_PROTOCOL, DATANODE_PROTOCOL, RpcClient, RpcError};

/// Waits between attempts to reach a NameNode during the handshake; the last one repeats.
const RETRY_SECONDS: [u64; 4] = [1, 1, 2, 5];
/// Wait before a failed initialisation is tried again, when another NameNode serves the pool.
const INIT_RETRY: Duration = Duration::from_secs(5);

/// Where an actor is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not registered yet.
    Connecting,
    /// Registered; heartbeats go out.
    Running,
    /// Refused by the NameNode or by a check here; it may be tried again.
    Failed,
    /// Ended.
    Exited,
}

impl Phase {
    /// Apache's name of the state (`BPServiceActorInfo`).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "CONNECTING",
            Self::Running => "RUNNING",
            Self::Failed => "INIT_FAILED",
            Self::Exited => "EXITED",
        }
    }
}

/// Why an actor ends.
#[derive(Debug)]
pub(super) enum End {
    /// It was told to.
    Stopped,
    /// The NameNode does not want this node, or this node not the NameNode.
    Refused(String),
}

/// Why a handshake did not end in a registration.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) reason: String,
    /// The NameNode is one that this node cannot serve; asking again changes nothing.
    pub(super) lasting: bool,
}

impl Refusal {
    fn ours(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            lasting: true,
        }
    }
}

/// What changes during an actor's life; copied out, never held across a wait.
#[derive(Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) registration: Option<Arc<DatanodeRegistration>>,
    pub(super) report_buffers: bool,
    pub(super) ha: Option<NnHaState>,
    pub(super) slow: bool,
    /// When the NameNode last answered a heartbeat, or registered us.
    pub(super) heard: Option<Instant>,
}

/// Everything about one NameNode.
pub(super) struct Actor {
    pub(super) id: u64,
    pub(super) addr: NameNodeAddr,
    /// Host and port that heartbeats go to, as configured.
    pub(super) address: String,
    pub(super) node: Arc<NodeSide>,
    /// Heartbeats, incremental reports, notices.
    pub(super) client: RpcClient,
    /// Full reports: their bytes must not stand in the way of heartbeats.
    pub(super) report_client: RpcClient,
    pub(super) lifeline_client: Option<RpcClient>,
    ibr: Mutex<IbrQueue>,
    pub(super) ibr_wake: Notify,
    /// The NameNode has taken a batch of news.
    ibr_taken: Notify,
    /// Incremental and full reports exclude each other. From the moment a full report's content is
    /// taken until the NameNode has it, no newer news may overtake it: the report would undo them.
    pub(super) report_gate: tokio::sync::Mutex<()>,
    schedule: Mutex<ReportSchedule>,
    pub(super) report_wake: Notify,
    error_reports: Mutex<ErrorReports>,
    pub(super) notice_wake: Notify,
    pub(super) heartbeat_wake: Notify,
    state: Mutex<State>,
    pub(super) stop: CancellationToken,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Actor {
    pub(super) fn new(
        id: u64,
        addr: NameNodeAddr,
        node: Arc<NodeSide>,
        stop: CancellationToken,
    ) -> Self {
        let options = settings::rpc_options(&node.config, node.identity.local);
        let address = addr.for_datanodes().to_string();
        let pending = node.config.get(&keys::INCREMENTAL_REPORT_PENDING_MAX);
        Self {
            id,
            client: RpcClient::new(address.clone(), DATANODE_PROTOCOL, options.clone()),
            report_client: RpcClient::new(address.clone(), DATANODE_PROTOCOL, options.clone()),
            lifeline_client: addr.lifeline.as_ref().map(|lifeline| {
                RpcClient::new(lifeline.to_string(), DATANODE_LIFELINE_PROTOCOL, options)
            }),
            addr,
            address,
            node,
            ibr: Mutex::new(IbrQueue::new(
                usize::try_from(pending).unwrap_or(usize::MAX),
            )),
            ibr_wake: Notify::new(),
            ibr_taken: Notify::new(),
            report_gate: tokio::sync::Mutex::new(()),
            schedule: Mutex::new(ReportSchedule::new(Instant::now())),
            report_wake: Notify::new(),
            error_reports: Mutex::new(ErrorReports::default()),
            notice_wake: Notify::new(),
            heartbeat_wake: Notify::new(),
            state: Mutex::new(State {
                phase: Phase::Connecting,
                registration: None,
                report_buffers: false,
                ha: None,
                slow: false,
                heard: None,
            }),
            stop,
        }
    }

    pub(super) fn ibr(&self) -> MutexGuard<'_, IbrQueue> {
        lock(&self.ibr)
    }

    pub(super) fn schedule(&self) -> MutexGuard<'_, ReportSchedule> {
        lock(&self.schedule)
    }

    pub(super) fn error_reports(&self) -> MutexGuard<'_, ErrorReports> {
        lock(&self.error_reports)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn registration(&self) -> Option<Arc<DatanodeRegistration>> {
        self.state().registration.clone()
    }

    /// Takes in news for the next incremental report.
    pub(super) fn news(&self, storage: &hayloft_store::StorageInfo, news: BlockChange) {
        let added = self.ibr().add(storage, news);
        match added {
            Added::Stale | Added::Waits => {}
            Added::Urgent => self.ibr_wake.notify_one(),
            Added::Overflow => self.reports_overflowed(),
        }
    }

    /// The NameNode has taken the batch.
    pub(super) fn news_taken(&self, batch: Batch) {
        self.ibr().done(batch);
        self.ibr_taken.notify_waiters();
    }

    /// Waits until no news of the block is left to be told.
    pub(super) async fn told(&self, block_id: i64) {
        loop {
            // Counts from here on, so that nothing taken after the look is missed.
            let taken = self.ibr_taken.notified();
            if !self.ibr().holds(block_id) {
                return;
            }
            taken.await;
        }
    }

    /// Incremental news was dropped: a full report has to make up for it.
    pub(super) fn reports_overflowed(&self) {
        tracing::warn!(
            namenode = self.address,
            "too many block changes wait for this NameNode \
                (hayloft.blockreport.incremental.pending.max): \
             they are dropped, a full block report follows"
        );
        self.report_soon();
    }

    /// A full report is due now; the next heartbeat asks for a lease.
    pub(super) fn report_soon(&self) {
        self.schedule().soon(Instant::now());
        self.heartbeat_wake.notify_one();
    }

    /// Queues a notice.
    pub(super) fn tell(&self, notice: ErrorReport) {
        if !self.error_reports().add(notice) {
            tracing::warn!(
                namenode = self.address,
                "too many error reports wait for this NameNode: one is dropped"
            );
        }
        self.notice_wake.notify_one();
    }

    /// Lives until it is stopped or refused.
    pub(super) async fn run(self: Arc<Self>, service: Arc<PoolService>) -> End {
        let end = tokio::select! {
            () = self.stop.cancelled() => End::Stopped,
            end = self.live(&service) => end,
        };
        self.state().phase = Phase::Exited;
        end
    }

    async fn live(self: &Arc<Self>, service: &Arc<PoolService>) -> End {
        tracing::info!(
            namenode = self.address,
            nameservice = service.label(),
            "connecting to the NameNode"
        );
        let mut said = Trouble::default();
        while let Err(refusal) = self.handshake(service).await {
            let reason = refusal.reason;
            self.state().phase = Phase::Failed;
            if !service.should_retry(self.id) {
                return End::Refused(reason);
            }
            if said.failed(Instant::now()) {
                tracing::error!(
                    namenode = self.address,
                    "cannot serve this NameNode, will try again: {reason}"
                );
            }
            tokio::time::sleep(INIT_RETRY).await;
            self.state().phase = Phase::Connecting;
        }
        // The loops are dropped together: each leaves at a wait, with nothing half done.
        tokio::select! {
            end = heartbeat::run(service, self) => end,
            () = ibr::run(service, self) => End::Stopped,
            () = block_report::run(service, self) => End::Stopped,
            () = self.send_notices() => End::Stopped,
            () = lifeline::run(service, self) => End::Stopped,
        }
    }

    /// versionRequest, checks, the pool, registerDatanode. Waits while the NameNode is away.
    /// `Err`: why this NameNode cannot be served, now.
    pub(super) async fn handshake(&self, service: &PoolService) -> Result<(), Refusal> {
        let namespace = self.ask_version(service).await.map_err(Refusal::ours)?;
        service
            .accept(self.id, &namespace)
            .await
            .map_err(Refusal::ours)?;
        let registration = namespace.registration(&self.node.identity);
        let answer = self.register(service, registration).await;
        let answer = answer.map_err(|reason| Refusal {
            reason,
            lasting: false,
        })?;
        // Before the pool counts as registered: no heartbeat and no read comes first.
        service
            .end_for(demands_tokens(&answer.keys))
            .map_err(Refusal::ours)?;
        let uuid = &answer.datanode_id.datanode_uuid;
        if *uuid != self.node.identity.datanode_uuid {
            let ours = &self.node.identity.datanode_uuid;
            return Err(Refusal::ours(format!(
                "it registered this node as {uuid}, not as {ours}"
            )));
        }
        tracing::info!(
            namenode = self.address,
            pool = %namespace.pool,
            version = namespace.software_version,
            "registered as {uuid} ({}:{})",
            answer.datanode_id.ip_addr,
            answer.datanode_id.xfer_port
        );
        {
            let mut state = self.state();
            state.phase = Phase::Running;
            state.registration = Some(Arc::new(answer));
            state.report_buffers = namespace.report_buffers;
            state.heard = Some(Instant::now());
        }
        let delay = self.node.config.get(&keys::BLOCK_REPORT_INITIAL_DELAY);
        self.schedule()
            .registered(Instant::now(), delay, rand::random());
        service.registered(self);
        Ok(())
    }

    async fn ask_version(&self, service: &PoolService) -> Result<Namespace, String> {
        let mut said = Trouble::default();
        let mut attempt = 0;
        loop {
            let answer: Result<VersionResponse, _> =
                self.client.call("versionRequest", &VersionRequest {}).await;
            match answer {
                Ok(answer) => {
                    let oldest = self.node.config.get(&keys::MIN_SUPPORTED_NAMENODE_VERSION);
                    return Namespace::from_wire(&answer.info, &oldest);
                }
                Err(error) => {
                    service.end_for(demands_authorization(&error))?;
                    self.wait_to_retry(&error, &mut said, &mut attempt).await;
                }
            }
        }
    }

    async fn register(
        &self,
        service: &PoolService,
        registration: DatanodeRegistration,
    ) -> Result<DatanodeRegistration, String> {
        let request = RegisterDatanodeRequest { registration };
        let mut said = Trouble::default();
        let mut attempt = 0;
        loop {
            let answer: Result<RegisterDatanodeResponse, _> =
                self.client.call("registerDatanode", &request).await;
            match answer {
                Ok(answer) => return Ok(answer.registration),
                Err(error) if may_succeed_later(&error) => {
                    self.wait_to_retry(&error, &mut said, &mut attempt).await;
                }
                Err(error) => {
                    service.end_for(demands_authorization(&error))?;
                    return Err(error.brief());
                }
            }
        }
    }

    async fn wait_to_retry(&self, error: &RpcError, said: &mut Trouble, attempt: &mut usize) {
        if said.failed(Instant::now()) {
            tracing::warn!(
                namenode = self.address,
                "waiting for the NameNode: {}",
                error.brief()
            );
        }
        let wait = RETRY_SECONDS[(*attempt).min(RETRY_SECONDS.len() - 1)];
        *attempt += 1;
        tokio::time::sleep(Duration::from_secs(wait)).await;
    }

    /// Tells the NameNode of bad blocks and errors, oldest first; an unreachable NameNode is told
    /// again later.
    async fn send_notices(&self) {
        loop {
            let notices = self.error_reports().first();
            let Some(registration) = self.registration().filter(|_| !notices.is_empty()) else {
                self.notice_wake.notified().await;
                continue;
            };
            let count = notices.len();
            match super::error_reports::send(&self.client, &registration, notices).await {
                Ok(()) => self.error_reports().done(count),
                // The heartbeats say that the NameNode is away.
                Err(_) => tokio::time::sleep(settings::heartbeat_interval(&self.node.config)).await,
            }
        }
    }
}
