//! Full block reports: what they hold, and sending them.
//!
//! - `lease`: when the next full block report to a NameNode is due, and under which lease

mod lease;

pub(super) use lease::ReportSchedule;

use std::sync::Arc;
use std::time::Duration;

use hayloft_store::{ReplicaReport, StorageInfo};
use hayloft_wire::block_report::{self as wire_report, ReportEncoder};
use hayloft_wire::ids::{PoolId, ReplicaState};
use hayloft_wire::proto::datanode::{
    BlockReportContext, BlockReportRequest, BlockReportResponse, StorageBlockReport,
};
use tokio::time::Instant;

use crate::activity::Timed;
use crate::namenode::actor_news::Actor;
use crate::namenode::heartbeat::wire_storage;
use crate::namenode::inventory::Inventory;
use crate::namenode::pool_service::PoolService;
use crate::namenode::queued_command::Order;
use crate::namenode::{ibr, settings};
use hayloft_conf::keys;
use hayloft_rpc::RpcError;
use hayloft_rpc::Trouble;

/// Sends full reports when the schedule has one, for ever.
pub(super) async fn run(service: &Arc<PoolService>, actor: &Arc<Actor>) {
    let mut trouble = Trouble::default();
    loop {
        // The tick repeats a report that failed.
        let tick = settings::heartbeat_interval(&actor.node.config).max(Duration::from_secs(1));
        tokio::select! {
            () = tokio::time::sleep(tick) => {}
            () = actor.report_wake.notified() => {}
        }
        let Some(lease) = actor.schedule().start() else {
            continue;
        };
        match send(service, actor, lease).await {
            Ok(()) => {
                let interval = actor.node.config.get(&keys::BLOCK_REPORT_INTERVAL);
                actor
                    .schedule()
                    .sent(Instant::now(), interval, rand::random());
                trouble.over(Instant::now());
            }
            Err(error) => {
                let void = error.is_remote("InvalidBlockReportLeaseException");
                actor.schedule().failed(void);
                if trouble.failed(Instant::now()) {
                    tracing::warn!(
                        namenode = actor.address,
                        "full block report failed, all of it will be sent again: {}",
                        error.brief()
                    );
                }
            }
        }
    }
}

async fn send(service: &Arc<PoolService>, actor: &Arc<Actor>, lease: u64) -> Result<(), RpcError> {
    let (Some(pool), Some(registration)) = (service.pool(), actor.registration()) else {
        return Ok(());
    };
    let _gate = actor.report_gate.lock().await;
    ibr::flush(service, actor).await?;
    let began = Instant::now();
    let store = Arc::clone(&actor.node.store);
    let buffers = actor.state().report_buffers;
    let of = pool.clone();
    let content = tokio::task::spawn_blocking(move || content(&*store, &of, buffers))
        .await
        .map_err(|error| RpcError::Lost {
            address: actor.address.clone(),
            reason: format!("the report could not be made: {error}"),
        })?;
    let made = began.elapsed();
    let replicas: u64 = content.iter().map(|(count, _)| count).sum();
    let split = replicas >= actor.node.config.get(&keys::BLOCK_REPORT_SPLIT_THRESHOLD);
    let storages = content.len();
    let messages = messages(content, split);
    let total_rpcs = i32::try_from(messages.len()).unwrap_or(i32::MAX);
    // Any number that differs from that of the report before.
    let id = i64::from_be_bytes(rand::random());
    for (cur_rpc, reports) in (0..).zip(messages) {
        let request = BlockReportRequest {
            registration: (*registration).clone(),
            block_pool_id: pool.as_str().to_owned(),
            reports,
            context: Some(BlockReportContext {
                total_rpcs,
                cur_rpc,
                id,
                lease_id: Some(lease),
            }),
        };
        let answer: BlockReportResponse = actor.report_client.call("blockReport", &request).await?;
        if let Some(command) = answer.cmd {
            let command = Order::Command {
                from: actor.id,
                address: actor.address.clone(),
                command: Box::new(command),
            };
            service.order(actor.id, command);
        }
    }
    let activity = &actor.node.activity;
    activity.took(Timed::BlockReportsCreateCostMills, made);
    activity.took(Timed::BlockReports, began.elapsed() - made);
    tracing::info!(
        namenode = actor.address,
        %pool,
        "full block report of {replicas} replicas on {storages} storages sent in {total_rpcs} \
            message(s): \
         {} ms to make, {} ms until it was taken (lease {lease:#x})",
        made.as_millis(),
        (began.elapsed() - made).as_millis()
    );
    Ok(())
}

/// Number of replicas and report of each storage.
fn content(store: &dyn Inventory, pool: &PoolId, buffers: bool) -> Vec<(u64, StorageBlockReport)> {
    store
        .block_report(pool)
        .into_iter()
        .map(|(storage, replicas)| {
            (
                replicas.len() as u64,
                storage_report(&storage, &replicas, buffers),
            )
        })
        .collect()
}

fn storage_report(
    storage: &StorageInfo,
    replicas: &[ReplicaReport],
    buffers: bool,
) -> StorageBlockReport {
    let mut report = StorageBlockReport {
        storage: wire_storage(storage),
        ..StorageBlockReport::default()
    };
    if buffers {
        let mut encoder = ReportEncoder::new();
        for replica in replicas {
            encoder.push(wire_report::ReportedReplica {
                block: replica.block,
                state: replica.state,
            });
        }
        return encoder.into_report(report.storage);
    }
    report.blocks = longs(replicas);
    report
}

/// The old form: the number of finalized and of other replicas, then three numbers for each
/// finalized one. Three times -1 follows, then four numbers for each other one.
fn longs(replicas: &[ReplicaReport]) -> Vec<u64> {
    let is_finalized = |replica: &&ReplicaReport| replica.state == ReplicaState::Finalized;
    let finalized = replicas.iter().filter(is_finalized).count();
    let mut longs = Vec::with_capacity(2 + 3 * finalized + 3 + 4 * (replicas.len() - finalized));
    longs.extend([finalized as u64, (replicas.len() - finalized) as u64]);
    let block = |replica: &ReplicaReport| {
        let block = replica.block;
        [
            block.id.cast_unsigned(),
            block.num_bytes,
            block.generation_stamp,
        ]
    };
    for replica in replicas.iter().filter(is_finalized) {
        longs.extend(block(replica));
    }
    longs.extend([u64::MAX; 3]);
    for replica in replicas.iter().filter(|replica| !is_finalized(replica)) {
        longs.extend(block(replica));
        longs.push(u64::from(i32::from(replica.state).unsigned_abs()));
    }
    longs
}

/// One message with all storages, or one for each.
fn messages(content: Vec<(u64, StorageBlockReport)>, split: bool) -> Vec<Vec<StorageBlockReport>> {
    let reports = content.into_iter().map(|(_, report)| report);
    if split {
        reports.map(|report| vec![report]).collect()
    } else {
        vec![reports.collect()]
    }
}

#[cfg(test)]
mod tests {
    use hayloft_store::{ReplicaReport, StorageInfo};
    use hayloft_wire::ids::{Block, ReplicaState, StorageType};
    use hayloft_wire::proto::datanode::StorageBlockReport;

    use super::{longs, messages, storage_report};

    fn replica(id: i64, state: ReplicaState) -> ReplicaReport {
        ReplicaReport {
            block: Block::new(id, 1001, 7),
            state,
        }
    }

    #[test]
    fn the_old_form_keeps_finalized_and_other_replicas_apart() {
        let replicas = [
            replica(5, ReplicaState::Rbw),
            replica(-16, ReplicaState::Finalized),
        ];
        let minus = u64::MAX;
        let id = (-16i64).cast_unsigned();
        assert_eq!(
            longs(&replicas),
            [1, 1, id, 7, 1001, minus, minus, minus, 5, 7, 1001, 1]
        );
    }

    #[test]
    fn buffers_carry_the_count() {
        let storage = StorageInfo {
            id: "DS-1".into(),
            storage_type: StorageType::Ssd,
        };
        let report = storage_report(&storage, &[replica(1, ReplicaState::Finalized)], true);
        assert_eq!(report.number_of_blocks, Some(1));
        assert!(report.blocks.is_empty() && !report.blocks_buffers.is_empty());
        let report = storage_report(&storage, &[replica(1, ReplicaState::Finalized)], false);
        assert_eq!((report.number_of_blocks, report.blocks.len()), (None, 8));
    }

    #[test]
    fn a_storage_without_replicas_says_so() {
        let storage = StorageInfo {
            id: "DS-1".into(),
            storage_type: StorageType::Ssd,
        };
        let report = storage_report(&storage, &[], true);
        assert_eq!((report.number_of_blocks, report.blocks.len()), (Some(0), 0));
        assert!(report.blocks_buffers.iter().all(|buffer| buffer.is_empty()));
        let report = storage_report(&storage, &[], false);
        let minus = u64::MAX;
        assert_eq!(report.number_of_blocks, None);
        assert_eq!(report.blocks, [0, 0, minus, minus, minus]);
    }

    #[test]
    fn large_reports_go_storage_by_storage() {
        let content = || {
            vec![
                (1, StorageBlockReport::default()),
                (2, StorageBlockReport::default()),
            ]
        };
        assert_eq!(
            messages(content(), false)
                .iter()
                .map(Vec::len)
                .collect::<Vec<_>>(),
            [2]
        );
        assert_eq!(
            messages(content(), true)
                .iter()
                .map(Vec::len)
                .collect::<Vec<_>>(),
            [1, 1]
        );
    }
}
