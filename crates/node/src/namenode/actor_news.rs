//! One actor per NameNode address: what is known of it, and what waits to be told to it.

use std::sync::{Arc, Mutex, MutexGuard};

use hayloft_wire::proto::datanode::DatanodeRegistration;
use hayloft_wire::proto::hdfs_server::NnHaState;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error_reports::{ErrorReport, ErrorReports};
use super::service_side::NodeSide;
use super::settings;
use crate::namenode::block_report::ReportSchedule;
use crate::namenode::ibr::{Added, Batch, BlockChange, IbrQueue};
use hayloft_conf::{NameNodeAddr, keys};
use hayloft_io::locks::lock;
use hayloft_rpc::{DATANODE_LIFELINE_PROTOCOL, DATANODE_PROTOCOL, RpcClient};

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

/// What changes during an actor's life; copied out, never held across a wait.
#[derive(Debug)]
pub(super) struct ActorState {
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
    state: Mutex<ActorState>,
    pub(super) stop: CancellationToken,
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
            state: Mutex::new(ActorState {
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

    pub(super) fn state(&self) -> MutexGuard<'_, ActorState> {
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
}
