//! Sending a replica to other nodes: on the NameNode's order, and on a client's that adds a node to
//! its pipeline.

use bytes::BytesMut;
use hayloft_io::IoClass;
use hayloft_store::ReplicaRef;
use hayloft_wire::ids::{ExtendedBlock, ReplicaState, StorageType};
use hayloft_wire::limits::MAX_OP_RESPONSE_BYTES;
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::hdfs::{DatanodeId, DatanodeInfo};
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{self, BlockOpResponse, BlockRequest, Stage, Status};

use crate::activity::{Count, OpKind};
use crate::namenode::Targets;
use crate::xceiver::block_sender::range::Range;
use crate::xceiver::block_sender::{BlockSender, CachePolicy};
use crate::xceiver::context::{AfterOperation, Xceivers};
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::net::connect_to_node::{self, NodeForBlock};
use crate::xceiver::net::throttle::Throttle;
use crate::xceiver::ops::read_block::{self, after_read_error};
use crate::xceiver::stats::Activity;

/// What a copy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purpose<'a> {
    /// `PipelineSetupCreate` with an empty client name for replication, a transfer stage otherwise.
    pub stage: Stage,
    /// The client whose pipeline gets a node; empty for replication.
    pub client_name: &'a str,
}

impl Purpose<'_> {
    /// Replication on the NameNode's order.
    pub const REPLICATION: Purpose<'static> = Purpose {
        stage: Stage::PipelineSetupCreate,
        client_name: "",
    };
}

/// Sends the finalized replica of `block` to `targets` (the NameNode's TRANSFER command). Counts as
/// one of the node's xmits, and is held to the transfer bandwidth. A replica that is missing or too
/// short is reported.
///
/// # Errors
/// The copy was not made, as far as this node can tell: nodes give no answer to a replication.
pub async fn transfer_block(
    x: &Xceivers,
    block: &ExtendedBlock,
    targets: Targets,
) -> Result<(), XferError> {
    let replica = check_source(x, block)?;
    let mut block = block.clone();
    block.block.num_bytes = block.block.num_bytes.min(replica.bytes_on_disk);
    send_to(x, &block, targets, Purpose::REPLICATION).await
}

/// The replica has to be finalized and as long as the NameNode believes.
fn check_source(x: &Xceivers, block: &ExtendedBlock) -> Result<ReplicaRef, XferError> {
    let Some(replica) = x.store().replica(&block.pool, block.block.id) else {
        return Err(XferError::Refused(format!(
            "cannot copy {block}: there is no such replica"
        )));
    };
    if replica.state != ReplicaState::Finalized {
        return Err(XferError::Refused(format!(
            "cannot copy {block}: the replica is {}",
            replica.state
        )));
    }
    if replica.bytes_on_disk < block.block.num_bytes {
        x.link().bad_block(block, &replica.storage);
        return Err(XferError::Refused(format!(
            "cannot copy {block}: it has {} of {} bytes",
            replica.bytes_on_disk, block.block.num_bytes
        )));
    }
    Ok(replica)
}

/// TRANSFER_BLOCK: a client lets this node copy its replica to a new node of the pipeline.
///
/// # Errors
/// The client sees the connection close, and tries another source.
pub async fn on_client_order(
    x: &Xceivers,
    conn: &mut Conn,
    request: BlockRequest<pb::OpTransferBlock>,
) -> Result<AfterOperation, XferError> {
    let BlockRequest { mut block, message } = request;
    x.wait_ready(&block.pool).await?;
    let replica = x
        .store()
        .replica(&block.pool, block.block.id)
        .ok_or_else(|| XferError::Refused(format!("no replica of {block}")))?;
    let stored_gs = replica.block.block.generation_stamp;
    if stored_gs < block.block.generation_stamp {
        return Err(XferError::Refused(format!(
            "{block} is wanted, but the replica has generation stamp {stored_gs}"
        )));
    }
    let stage = match replica.state {
        ReplicaState::Rbw => Stage::TransferRbw,
        ReplicaState::Finalized => Stage::TransferFinalized,
        state => {
            return Err(XferError::Refused(format!(
                "{block} is {state}: there is nothing to copy yet"
            )));
        }
    };
    block.block.generation_stamp = stored_gs;
    let visible_len = replica.visible_len.unwrap_or(0);
    block.block.num_bytes = visible_len.min(replica.bytes_on_disk);
    let targets = Targets {
        nodes: message.targets,
        types: message.target_storage_types,
        storage_ids: message.target_storage_ids,
    };
    if !targets.nodes.is_empty() {
        let purpose = Purpose {
            stage,
            client_name: &message.header.client_name,
        };
        send_to(x, &block, targets, purpose).await?;
    }
    conn.write_message(&BlockOpResponse::success()).await?;
    Ok(AfterOperation::Close)
}

async fn send_to(
    x: &Xceivers,
    block: &ExtendedBlock,
    targets: Targets,
    purpose: Purpose<'_>,
) -> Result<(), XferError> {
    let _xmit = x.stats().enter(Activity::Xmit);
    let outcome = copy_to(x, block, targets, purpose).await;
    if let Err(error) = &outcome {
        after_read_error(x, block, error).await;
    }
    outcome
}

async fn copy_to(
    x: &Xceivers,
    block: &ExtendedBlock,
    targets: Targets,
    purpose: Purpose<'_>,
) -> Result<(), XferError> {
    let settings = x.settings();
    let (reader, range) = read_block::open_for_copy(x, block, block.block.num_bytes).await?;
    let reader = reader.with_class(IoClass::Replication);
    let token = x.token(block, targets.access())?;
    let request = write_request(x, block, token.clone(), &range, targets, purpose);
    let Some((first, message)) = request else {
        return Err(XferError::Refused(format!(
            "a copy of {block} without a target"
        )));
    };
    let to = NodeForBlock {
        node: &first.id,
        pool: &block.pool,
        token: &token,
    };
    let hops = message.targets.len() + 1;
    let mut conn = connect_to_node::connect(x, &settings, to, hops).await?;
    let node = first.id.xfer_addr();
    let mut head = BytesMut::new();
    transfer::encode_request(&message, &mut head);
    let throttles: &[&Throttle] = if purpose.client_name.is_empty() {
        &[&x.throttles().transfer]
    } else {
        &[]
    };
    let sender = BlockSender {
        reader: &reader,
        range,
        cache: CachePolicy {
            readahead: settings.readahead,
            send_file: settings.send_file && conn.takes_files(),
            ..CachePolicy::default()
        },
        memory: x.memory(),
        stats: x.stats(),
        throttles,
        in_messages: conn.in_messages(),
    };
    let sent = sender.send(&conn, head.freeze()).await?;
    x.activity().add(Count::BlocksReplicated, 1);
    x.activity().latencies.add(OpKind::Copy, &sent.parts);
    if purpose.client_name.is_empty() {
        // It says nothing, whether it takes the replica or not: the NameNode hears.
        tracing::info!(%block, bytes = sent.bytes, %node, "sent to another node");
    } else {
        await_close_ack(&mut conn, &node).await?;
        tracing::info!(%block, bytes = sent.bytes, %node, "copied to another node");
    }
    Ok(())
}

/// The node that was added to a pipeline says when it has the whole replica.
async fn await_close_ack(conn: &mut Conn, node: &str) -> Result<(), XferError> {
    let ack: pb::DnTransferAck = conn.read_message(MAX_OP_RESPONSE_BYTES).await?;
    let status = Status::from_wire(ack.status);
    if status == Status::Success {
        return Ok(());
    }
    Err(XferError::Remote {
        node: node.to_owned(),
        reason: format!("did not take the replica: {status:?}"),
        status: Some(status),
    })
}

/// WRITE_BLOCK for the first target, and that target.
fn write_request(
    x: &Xceivers,
    block: &ExtendedBlock,
    token: Token,
    range: &Range,
    targets: Targets,
    purpose: Purpose<'_>,
) -> Option<(DatanodeInfo, pb::OpWriteBlock)> {
    let mut nodes = targets.nodes.into_iter();
    let first = nodes.next()?;
    let mut types = targets.types.into_iter();
    let mut ids = targets.storage_ids.into_iter();
    let source = x.link().identity(&block.pool).map(node_info);
    let message = pb::OpWriteBlock {
        header: transfer::client_header(block, token, purpose.client_name),
        storage_type: Some(types.next().unwrap_or(StorageType::Disk.into())),
        target_storage_types: types.collect(),
        storage_id: ids.next(),
        target_storage_ids: ids.collect(),
        targets: nodes.collect(),
        source,
        stage: purpose.stage.into(),
        requested_checksum: range.checksum.into(),
        caching_strategy: Some(pb::CachingStrategy::default()),
        allow_lazy_persist: Some(false),
        pinning: Some(false),
        ..pb::OpWriteBlock::default()
    };
    Some((first, message))
}

/// A node's identity where its state is asked for too.
#[must_use]
pub fn node_info(id: DatanodeId) -> DatanodeInfo {
    DatanodeInfo {
        id,
        ..DatanodeInfo::default()
    }
}
