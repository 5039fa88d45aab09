//! Heartbeats: on time whatever else goes on, and what their answers bring.

use std::sync::Arc;

use hayloft_store::{FailureSummary, RollingUpgradeState, StorageReport};
use hayloft_wire::proto::datanode::{
    DatanodeCommandType, DatanodeRegistration, HeartbeatRequest, HeartbeatResponse,
    VolumeFailureSummary,
};
use hayloft_wire::proto::hdfs::{self, DatanodeStorage, StorageState};
use hayloft_wire::proto::hdfs_server::NnHaState;
use tokio::time::Instant;

use super::actor_news::{Actor, End};
use super::handshake::handshake;
use super::pool_service::PoolService;
use super::queued_command::Order;
use super::service_side::NodeSide;
use super::settings::{self, caches};
use super::token_keys;
use crate::activity::Timed;
use hayloft_rpc::RpcError;
use hayloft_rpc::Trouble;

/// Exceptions by which a NameNode says that it does not want this node.
const REFUSALS: [&str; 3] = [
    "UnregisteredNodeException",
    "DisallowedDatanodeException",
    "IncorrectVersionException",
];

/// Sends heartbeats until the NameNode refuses the node.
pub(super) async fn run(service: &Arc<PoolService>, actor: &Arc<Actor>) -> End {
    let mut trouble = Trouble::default();
    let mut next = Instant::now();
    // Heartbeats name outliers only so often: a search takes its time, and what it finds changes
    // slowly.
    let mut outliers_due = next;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = actor.heartbeat_wake.notified() => {}
        }
        next = Instant::now() + settings::heartbeat_interval(&actor.node.config);
        match beat(service, actor, &mut outliers_due).await {
            Ok(Next::GoOn) => {
                if let Some((failures, time)) = trouble.over(Instant::now()) {
                    tracing::info!(
                        namenode = actor.address,
                        "the NameNode answers again after {failures} failed heartbeats in {:.0} s",
                        time.as_secs_f64()
                    );
                }
            }
            Ok(Next::End(reason)) => return End::Refused(reason),
            Ok(Next::Register) => {
                tracing::info!(
                    namenode = actor.address,
                    "the NameNode asks this node to register again"
                );
                match handshake(actor, service).await {
                    Ok(()) => next = Instant::now(),
                    Err(refusal) if refusal.lasting || service.stop.is_cancelled() => {
                        return End::Refused(refusal.reason);
                    }
                    Err(refusal) => {
                        if trouble.failed(Instant::now()) {
                            tracing::error!(
                                namenode = actor.address,
                                "the NameNode refuses to register this node, will try again: {}",
                                refusal.reason
                            );
                        }
                    }
                }
            }
            Err(error) if REFUSALS.iter().any(|class| error.is_remote(class)) => {
                let hint = match error.is_remote("UnregisteredNodeException") {
                    true => {
                        "it knows no such node (was it reformatted, or another node given this \
                            one's place?)"
                    }
                    false => "it does not want this node (see its host lists)",
                };
                return End::Refused(format!("{hint}: {}", error.brief()));
            }
            Err(error) => {
                if trouble.failed(Instant::now()) {
                    tracing::warn!(
                        namenode = actor.address,
                        "heartbeat failed, will go on trying: {}",
                        error.brief()
                    );
                }
            }
        }
    }
}

enum Next {
    GoOn,
    Register,
    /// The block pool cannot be served any longer, and why.
    End(String),
}

async fn beat(
    service: &Arc<PoolService>,
    actor: &Arc<Actor>,
    outliers_due: &mut Instant,
) -> Result<Next, RpcError> {
    let Some(registration) = actor.registration() else {
        return Ok(Next::Register);
    };
    let began = Instant::now();
    let wants_lease = actor.schedule().wants_lease(Instant::now());
    let mut request = request(&actor.node, service, &registration);
    request.request_full_block_report_lease = Some(wants_lease);
    let with_outliers = Instant::now() >= *outliers_due;
    if with_outliers {
        let outliers = actor.node.outliers();
        request.slow_peers = outliers.slow_peers;
        request.slow_disks = outliers.slow_disks;
    }
    let called = Instant::now();
    let answer: HeartbeatResponse = actor.client.call("sendHeartbeat", &request).await?;
    let activity = &actor.node.activity;
    activity.took(Timed::Heartbeats, called.elapsed());
    if with_outliers {
        *outliers_due = Instant::now() + settings::outliers_interval(&actor.node.config);
    }
    let next = take_answer(service, actor, answer);
    activity.took(Timed::HeartbeatsTotal, began.elapsed());
    Ok(next)
}

/// Takes in an answer. Nothing here waits: orders go to the queue of the pool.
fn take_answer(service: &Arc<PoolService>, actor: &Arc<Actor>, answer: HeartbeatResponse) -> Next {
    let ha = NnHaState::try_from(answer.ha_status.state).unwrap_or(NnHaState::Standby);
    let before = {
        let mut state = actor.state();
        state.heard = Some(Instant::now());
        state.slow = answer.is_slownode();
        state.ha.replace(ha)
    };
    if before != Some(ha) {
        tracing::info!(
            namenode = actor.address,
            "the NameNode says that it is {ha:?}"
        );
    }
    service.claims(actor, ha == NnHaState::Active, answer.ha_status.txid);
    // Keys are taken from every NameNode, the standby's too: its clients come after a failover.
    for cmd in &answer.cmds {
        let Some(update) = &cmd.key_update_cmd else {
            continue;
        };
        if let Err(reason) = token_keys::in_heartbeat(service, actor, &update.keys) {
            return Next::End(reason);
        }
    }
    let lease = answer.full_block_report_lease_id();
    if lease != 0 {
        actor.schedule().granted(lease);
        actor.report_wake.notify_one();
    }
    if answer
        .cmds
        .iter()
        .any(|cmd| cmd.cmd_type() == DatanodeCommandType::RegisterCommand)
    {
        return Next::Register;
    }
    // No other one is obeyed. How a rolling upgrade stands comes first: deletes go by it.
    if service.is_active(actor.id) && rolling_upgrade(service, actor, &answer) {
        for command in answer.cmds {
            let command = Order::Command {
                from: actor.id,
                address: actor.address.clone(),
                command: Box::new(command),
            };
            service.order(actor.id, command);
        }
    }
    Next::GoOn
}

/// Takes in how a rolling upgrade stands; whether the commands beside it may be carried out. A
/// NameNode says so with every heartbeat while one runs, and after its end until it is restarted.
fn rolling_upgrade(service: &Arc<PoolService>, actor: &Actor, answer: &HeartbeatResponse) -> bool {
    let Some(pool) = service.pool() else {
        return true;
    };
    let status = answer
        .rolling_upgrade_status_v2
        .as_ref()
        .or(answer.rolling_upgrade_status.as_ref());
    let state = match status {
        None => RollingUpgradeState::Absent,
        Some(status) if status.block_pool_id != pool.as_str() => {
            tracing::error!(%pool, "a rolling upgrade status for the pool {:?} arrived: \
                ignored", status.block_pool_id);
            return true;
        }
        Some(status) if status.finalized() => RollingUpgradeState::Finalized,
        Some(_) => RollingUpgradeState::InProgress,
    };
    service.rolling_upgrade(actor.id, &pool, state)
}

/// What heartbeats and lifelines carry. No disk is touched for it.
pub(super) fn request(
    node: &NodeSide,
    service: &PoolService,
    registration: &DatanodeRegistration,
) -> HeartbeatRequest {
    let reports = service
        .pool()
        .map(|pool| node.store.storage_reports(&pool))
        .unwrap_or_default();
    let failures = node.store.failure_summary();
    let load = node.load();
    let cache = caches(&node.config).then(|| node.store.cache_use());
    HeartbeatRequest {
        registration: registration.clone(),
        reports: reports.iter().map(storage_report).collect(),
        xmits_in_progress: Some(load.xmits),
        xceiver_count: Some(load.xceivers),
        failed_volumes: Some(u32::try_from(failures.failed_locations.len()).unwrap_or(u32::MAX)),
        cache_capacity: cache.map(|cache| cache.capacity),
        cache_used: cache.map(|cache| cache.used),
        volume_failure_summary: failure_summary(&failures),
        ..HeartbeatRequest::default()
    }
}

fn failure_summary(failures: &FailureSummary) -> Option<VolumeFailureSummary> {
    if failures.failed_locations.is_empty() {
        return None;
    }
    Some(VolumeFailureSummary {
        failed_storage_locations: failures
            .failed_locations
            .iter()
            .map(|path| path.display().to_string())
            .collect(),
        last_volume_failure_date: failures.last_failure_ms,
        estimated_capacity_lost_total: failures.lost_capacity,
    })
}

/// A storage as the wire names it.
pub(super) fn wire_storage(storage: &hayloft_store::StorageInfo) -> DatanodeStorage {
    DatanodeStorage {
        storage_uuid: storage.id.to_string(),
        state: Some(StorageState::Normal.into()),
        storage_type: Some(storage.storage_type.into()),
    }
}

fn storage_report(report: &StorageReport) -> hdfs::StorageReport {
    hdfs::StorageReport {
        storage_uuid: report.storage.id.to_string(),
        failed: Some(report.failed),
        capacity: Some(report.capacity),
        dfs_used: Some(report.dfs_used),
        remaining: Some(report.remaining),
        block_pool_used: Some(report.block_pool_used),
        storage: Some(wire_storage(&report.storage)),
        non_dfs_used: Some(report.non_dfs_used),
        mount: (!report.mount.is_empty()).then(|| report.mount.clone()),
    }
}
