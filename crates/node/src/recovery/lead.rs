//! One recovery, led by this node: ask every location, decide, bring the chosen replicas to the
//! same generation stamp and length, tell the NameNode.
//!
//! Locations are asked at the same time, so that a dead one costs one timeout and not one each.

use futures_util::future::join_all;
use hayloft_wire::ids::{Block, ExtendedBlock};
use hayloft_wire::proto::datanode::CommitBlockSynchronizationRequest;
use hayloft_wire::proto::hdfs::DatanodeId;
use tracing::{debug, info};

use super::calls_to_holders::{PeerError, Peers};
use super::check_order::{Group, Order, Whole};
use super::which_replicas_stay::{
    Answer, ContiguousPlan, Replica, StripedPlan, Unrecoverable, plan_contiguous, plan_striped,
};
use hayloft_rpc::RpcError;

/// Why a recovery did not succeed. The NameNode sends a new one when its time is over.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecoveryError {
    /// A newer recovery took over.
    #[error("{0}")]
    Superseded(String),
    /// The answers allow no recovery now.
    #[error(transparent)]
    Unrecoverable(#[from] Unrecoverable),
    /// The chosen replicas could not be brought to the same state.
    #[error("these nodes did not finish their replica: {0}")]
    SyncFailed(String),
    /// The replicas are ready, but the NameNode does not know.
    #[error("the NameNode did not take the result: {}", .0.brief())]
    Commit(RpcError),
}

/// A participant with what it is asked to update.
struct Target<'a> {
    at: &'a DatanodeId,
    block: ExtendedBlock,
    new_block_id: i64,
}

/// Carries out one order of the NameNode.
pub(super) async fn recover(order: &Order, peers: &impl Peers) -> Result<(), RecoveryError> {
    match order {
        Order::Whole(whole) => recover_whole(whole, peers).await,
        Order::Group(group) => recover_group(group, peers).await,
    }
}

async fn recover_whole(order: &Whole, peers: &impl Peers) -> Result<(), RecoveryError> {
    let block = &order.block;
    let asked: Vec<_> = order
        .locations
        .iter()
        .map(|at| (at, block.clone()))
        .collect();
    let answers = ask(peers, &asked, order.recovery_id).await?;
    let truncate_to = order.truncate.map(|new| new.num_bytes);
    let plan = plan_contiguous(block.block, &answers, truncate_to)?;
    debug!(%block, ?answers, ?plan, "block recovery planned");
    let new_block_id = order.truncate.map_or(block.block.id, |new| new.id);
    let mut request = commit_request(block, order.recovery_id);
    match plan {
        ContiguousPlan::Delete => request.delete_block = true,
        ContiguousPlan::Sync {
            participants,
            length,
        } => {
            let targets = participants
                .iter()
                .filter_map(|index| {
                    Some(Target {
                        at: &order.locations[*index],
                        block: held(block, answers[*index])?,
                        new_block_id,
                    })
                })
                .collect();
            // One node that made it is enough: the NameNode copies it to the others' places.
            let updated = update(peers, targets, order.recovery_id, length).await;
            if updated.done.is_empty() {
                return Err(RecoveryError::SyncFailed(updated.failed.join("; ")));
            }
            request.new_length = length;
            for (target, storage) in updated.done {
                request.new_taragets.push(target.at.clone());
                request.new_target_storages.push(storage);
            }
        }
    }
    commit(peers, block, request).await
}

async fn recover_group(order: &Group, peers: &impl Peers) -> Result<(), RecoveryError> {
    let group = &order.block;
    let asked: Vec<_> = order
        .locations
        .iter()
        .map(|(at, index)| (at, internal_block(group, *index)))
        .collect();
    let answers = ask(peers, &asked, order.recovery_id).await?;
    let plan = plan_striped(group.block, &answers, order.stripe)?;
    debug!(block = %group, ?answers, ?plan, "block recovery planned");
    let mut request = commit_request(group, order.recovery_id);
    // The NameNode reads the targets by index in the group; empty places are named so.
    let width = order.stripe.width();
    request.new_taragets = vec![no_node(); width];
    request.new_target_storages = vec![String::new(); width];
    match plan {
        StripedPlan::Delete { named } => {
            for (at, index) in named.into_iter().map(|named| &order.locations[named]) {
                request.new_taragets[usize::from(*index)] = at.clone();
            }
            request.delete_block = true;
        }
        StripedPlan::Sync {
            participants,
            group_length,
            internal_length,
        } => {
            let targets: Vec<_> = participants
                .iter()
                .filter_map(|index| {
                    let block = held(group, answers[*index])?;
                    Some(Target {
                        at: &order.locations[*index].0,
                        new_block_id: block.block.id,
                        block,
                    })
                })
                .collect();
            let updated = update(peers, targets, order.recovery_id, internal_length).await;
            // A group with one block left behind would look whole to the NameNode: all or nothing.
            if !updated.failed.is_empty() {
                return Err(RecoveryError::SyncFailed(updated.failed.join("; ")));
            }
            for (target, storage) in updated.done {
                let place = usize::from(target.block.block.index_in_group());
                request.new_taragets[place] = target.at.clone();
                request.new_target_storages[place] = storage;
            }
            request.new_length = group_length;
        }
    }
    commit(peers, group, request).await
}

/// Asks every location at the same time. A location that knows a newer recovery ends this one.
async fn ask(
    peers: &impl Peers,
    locations: &[(&DatanodeId, ExtendedBlock)],
    recovery_id: u64,
) -> Result<Vec<Answer>, RecoveryError> {
    let asked = locations
        .iter()
        .map(|(at, block)| peers.init(at, block, recovery_id));
    let mut answers = Vec::with_capacity(locations.len());
    for (answer, (at, block)) in join_all(asked).await.into_iter().zip(locations) {
        answers.push(match answer {
            Ok(Some(replica)) => Answer::Replica(replica),
            Ok(None) => Answer::Absent,
            Err(PeerError::RecoveryInProgress(why)) => {
                return Err(RecoveryError::Superseded(format!("{}: {why}", name(at))));
            }
            Err(PeerError::Lacking(why)) => {
                return Err(RecoveryError::SyncFailed(format!("{}: {why}", name(at))));
            }
            Err(PeerError::Failed(why)) => {
                info!(%block, node = name(at), why, "a location takes no part in block recovery");
                Answer::Failed
            }
        });
    }
    Ok(answers)
}

/// What became of the participants.
struct Updated<'a> {
    done: Vec<(Target<'a>, String)>,
    failed: Vec<String>,
}

async fn update<'a>(
    peers: &impl Peers,
    targets: Vec<Target<'a>>,
    recovery_id: u64,
    length: u64,
) -> Updated<'a> {
    let updates = targets.iter().map(|target| {
        peers.update(
            target.at,
            &target.block,
            recovery_id,
            target.new_block_id,
            length,
        )
    });
    let results = join_all(updates).await;
    let mut updated = Updated {
        done: Vec::new(),
        failed: Vec::new(),
    };
    for (target, result) in targets.into_iter().zip(results) {
        match result {
            Ok(storage) => updated.done.push((target, storage)),
            Err(error) => updated.failed.push(format!("{}: {error}", name(target.at))),
        }
    }
    if !updated.failed.is_empty() && !updated.done.is_empty() {
        info!(
            failed = updated.failed.join("; "),
            "some replicas were not recovered"
        );
    }
    updated
}

async fn commit(
    peers: &impl Peers,
    block: &ExtendedBlock,
    request: CommitBlockSynchronizationRequest,
) -> Result<(), RecoveryError> {
    let (stamp, length) = (request.new_gen_stamp, request.new_length);
    let (delete, nodes) = (request.delete_block, request.new_taragets.len());
    let taken = peers.commit(&block.pool, request).await;
    taken.map_err(RecoveryError::Commit)?;
    info!(%block, new_generation_stamp = stamp, new_length = length, delete, nodes,
        "block recovered");
    Ok(())
}

/// Closes the file; what else changes is filled in.
fn commit_request(block: &ExtendedBlock, recovery_id: u64) -> CommitBlockSynchronizationRequest {
    CommitBlockSynchronizationRequest {
        block: block.into(),
        new_gen_stamp: recovery_id,
        close_file: true,
        ..CommitBlockSynchronizationRequest::default()
    }
}

/// The replica of an answer, as the participant itself described it: that is how it knows that the
/// update is about what it answered.
fn held(block: &ExtendedBlock, answer: Answer) -> Option<ExtendedBlock> {
    match answer {
        Answer::Replica(Replica { block: found, .. }) => {
            Some(ExtendedBlock::new(block.pool.clone(), found))
        }
        _ => None,
    }
}

fn internal_block(group: &ExtendedBlock, index: u8) -> ExtendedBlock {
    ExtendedBlock::new(
        group.pool.clone(),
        Block {
            id: group.block.group_id() | i64::from(index),
            ..group.block
        },
    )
}

/// Hadoop's placeholder for no node. The NameNode compares the uuid, so it has to be there.
fn no_node() -> DatanodeId {
    DatanodeId {
        ip_addr: "null".to_owned(),
        host_name: "null".to_owned(),
        datanode_uuid: "null".to_owned(),
        ..DatanodeId::default()
    }
}

fn name(at: &DatanodeId) -> String {
    format!("{}:{}", at.ip_addr, at.ipc_port)
}
