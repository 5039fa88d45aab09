//! COPY_BLOCK and REPLACE_BLOCK: the two ends of a move that the balancer or the mover ordered.

use std::time::Duration;

use hayloft_io::{CacheHints, IoClass};
use hayloft_store::{Store, WriteOptions};
use hayloft_wire::block_token::AccessMode;
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::{ExtendedBlock, StorageType};
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::proto::hdfs::DatanodeInfo;
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{self, BlockOpResponse, BlockRequest, Status};
use tracing::Instrument as _;

use crate::activity::{Count, OpKind};
use crate::security::Access;
use crate::xceiver::block_receiver::completion::Finish;
use crate::xceiver::block_receiver::data_phase::{self, Ends};
use crate::xceiver::block_receiver::replica_sink::{CompleteWhen, ReplicaSink};
use crate::xceiver::block_receiver::verify_packets::IncomingBlock;
use crate::xceiver::block_sender::{BlockSender, CachePolicy};
use crate::xceiver::context::{AfterOperation, Xceivers};
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::net::connect_to_node::{self, NodeForBlock};
use crate::xceiver::net::throttle::MovePermit;
use crate::xceiver::ops::read_block::{self, after_read_error, java_text, stream_head};
use crate::xceiver::stats::Activity;

/// Two bytes that the source of a move sends after the data, for the target to know that it is done
/// with it (Apache's `writeChar('d')`).
const COPY_DONE: [u8; 2] = [0, b'd'];

/// How long the target waits for them: they are a courtesy.
const COPY_DONE_WAIT: Duration = Duration::from_secs(5);

/// A place among the running moves, or the refusal is sent.
async fn enter(
    x: &Xceivers,
    conn: &Conn,
    block: &ExtendedBlock,
) -> Result<Option<MovePermit>, XferError> {
    let moves = &x.throttles().moves;
    if let Some(permit) = moves.try_enter() {
        return Ok(Some(permit));
    }
    let text = format!(
        "Not able to move block {} for {}: {} moves are running already, the limit",
        block.block.id,
        conn.peer_name(),
        moves.max()
    );
    tracing::info!("{text}");
    conn.write_message(&BlockOpResponse::error(Status::Error, text))
        .await?;
    Ok(None)
}

/// COPY_BLOCK: sends a whole replica to the node that will hold it.
///
/// # Errors
/// The connection is closed; the other node gives the move up.
pub async fn copy_block(
    x: &Xceivers,
    conn: &mut Conn,
    request: BlockRequest<pb::OpCopyBlock>,
) -> Result<AfterOperation, XferError> {
    let block = request.block;
    x.wait_ready(&block.pool).await?;
    if x.settings().pinning
        && x.store()
            .replica(&block.pool, block.block.id)
            .is_some_and(|r| r.pinned)
    {
        let text = format!(
            "Not able to copy block {} to {} because it's pinned",
            block.block.id,
            conn.peer_name()
        );
        conn.write_message(&BlockOpResponse::error(Status::ErrorBlockPinned, text))
            .await?;
        return Ok(AfterOperation::Close);
    }
    let Some(_permit) = enter(x, conn, &block).await? else {
        return Ok(AfterOperation::Close);
    };
    let _reader = x.stats().enter(Activity::Reader);
    let len = x
        .store()
        .replica(&block.pool, block.block.id)
        .and_then(|r| r.visible_len)
        .unwrap_or(0);
    let (reader, range) = read_block::open_for_copy(x, &block, len).await?;
    let reader = reader.with_class(IoClass::Balancer);
    let sender = BlockSender {
        reader: &reader,
        range,
        cache: CachePolicy {
            readahead: x.settings().readahead,
            send_file: x.settings().send_file && conn.takes_files(),
            drop_behind: true,
            always_drop: true,
            ..CachePolicy::default()
        },
        memory: x.memory(),
        stats: x.stats(),
        throttles: &[&x.throttles().balancer],
        in_messages: conn.in_messages(),
    };
    match sender.send(conn, stream_head(&range)).await {
        Ok(sent) => {
            x.stats().bytes_read.add(sent.bytes);
            x.stats().sums_read.add(sent.sums);
            x.stats().blocks_read.add(1);
            x.activity().latencies.add(OpKind::Copy, &sent.parts);
        }
        Err(error) => {
            after_read_error(x, &block, &error).await;
            return Err(error);
        }
    }
    tracing::info!(%block, to = conn.peer_name(), "sent for a move");
    conn.write_all(&COPY_DONE)
        .await
        .map_err(|e| conn.socket_error(e))?;
    Ok(AfterOperation::Close)
}

/// REPLACE_BLOCK: takes a replica over from another node, or moves one between the storages of this
/// node.
///
/// # Errors
/// After the requester was told.
pub async fn replace_block(
    x: &Xceivers,
    conn: &mut Conn,
    request: BlockRequest<pb::OpReplaceBlock>,
) -> Result<AfterOperation, XferError> {
    let BlockRequest { block, message } = request;
    x.wait_ready(&block.pool).await?;
    let Some(permit) = enter(x, conn, &block).await? else {
        return Ok(AfterOperation::Close);
    };
    let every = x.settings().read_timeout / 2;
    let outcome = {
        let requester: &Conn = conn;
        tokio::select! {
            outcome = replace(x, requester, &block, &message) => outcome,
            // A waiting peer is told from time to time; one without a read timeout need not be.
            error = keep_telling(requester, every), if !every.is_zero() => Err(error),
        }
    };
    drop(permit);
    match outcome {
        Ok(()) => {
            conn.write_message(&BlockOpResponse::success()).await?;
            Ok(AfterOperation::Close)
        }
        Err(error) => {
            let pinned = matches!(
                &error,
                XferError::Remote {
                    status: Some(Status::ErrorBlockPinned),
                    ..
                }
            );
            let status = if pinned {
                Status::ErrorBlockPinned
            } else {
                Status::Error
            };
            let text = format!(
                "opReplaceBlock {block} received exception {}",
                java_text(&error)
            );
            conn.write_message(&BlockOpResponse::error(status, text))
                .await?;
            Err(error)
        }
    }
}

async fn replace(
    x: &Xceivers,
    requester: &Conn,
    block: &ExtendedBlock,
    message: &pb::OpReplaceBlock,
) -> Result<(), XferError> {
    let target = StorageType::from_wire(message.storage_type);
    let storage_id = message.storage_id.as_deref().filter(|id| !id.is_empty());
    let own = x.link().identity(&block.pool);
    let source = &message.source.id.datanode_uuid;
    if own.is_some_and(|own| own.datanode_uuid == *source) {
        move_here(x, block, target, storage_id).await?;
        x.activity().add(Count::ReplaceBlockOpOnSameHost, 1);
        return Ok(());
    }
    if let Some(sibling) = x.sibling(source) {
        // As it would have to be copied from there over the network.
        let token = message.header.token.as_ref();
        let copy = Access::to(AccessMode::Copy);
        x.link().block_tokens().check(token, block, &copy)?;
        take_over(x, block, message, sibling).await?;
    } else {
        fetch(x, block, message, target, storage_id).await?;
        tracing::info!(%block, source = message.source.id.xfer_addr(), hint = message.del_hint,
            requester = requester.peer_name(), "moved here");
    }
    x.activity().add(Count::ReplaceBlockOpToOtherHost, 1);
    Ok(())
}

/// Moves a replica between storages of this node and reports it, to its end also when the requester
/// goes away: a move that the NameNode does not hear of is one that it orders again.
async fn move_here(
    x: &Xceivers,
    block: &ExtendedBlock,
    target: StorageType,
    storage_id: Option<&str>,
) -> Result<(), XferError> {
    let (block, storage_id) = (block.clone(), storage_id.map(str::to_owned));
    let (tasks, x) = (x.tasks().clone(), x.clone());
    let moving = async move {
        let moved = x.store().move_block(&block, target, storage_id.as_deref());
        let moved = moved.await?;
        tracing::info!(%block, storage = %moved.storage.id, %target, "moved between storages of \
            this node");
        // The NameNode drops the old place itself when it hears of the new one.
        x.link().received(&moved.block, &moved.storage, None);
        Ok(())
    };
    let ended = tasks.spawn(moving.in_current_span()).await;
    ended.unwrap_or_else(|_| Err(XferError::Refused("the move did not end".to_owned())))
}

/// Takes a replica over from another node of this process, without the network. It goes on to its
/// end also when the requester goes away, as [`move_here`].
async fn take_over(
    x: &Xceivers,
    block: &ExtendedBlock,
    message: &pb::OpReplaceBlock,
    source: Store,
) -> Result<(), XferError> {
    let id = block.block.id;
    let pinned = source.replica(&block.pool, id).is_some_and(|r| r.pinned);
    if x.settings().pinning && pinned {
        return Err(XferError::Remote {
            node: message.source.id.xfer_addr(),
            reason: format!("Not able to copy block {id} because it's pinned"),
            status: Some(Status::ErrorBlockPinned),
        });
    }
    let (block, message) = (block.clone(), message.clone());
    let (tasks, x) = (x.tasks().clone(), x.clone());
    let taking = async move {
        let _writer = x.stats().enter(Activity::Writer);
        let target = StorageType::from_wire(message.storage_type);
        let storage_id = message.storage_id.as_deref();
        let taken = x.store().take_over(&source, &block, target, storage_id);
        let taken = taken.await?;
        let (replica, linked) = (&taken.replica, taken.linked);
        tracing::info!(%block, source = message.source.id.xfer_addr(), linked,
            storage = %replica.storage.id, hint = message.del_hint,
            "taken over from a node of this process");
        let hint = Some(message.del_hint.as_str());
        x.link().received(&replica.block, &replica.storage, hint);
        Ok(())
    };
    let ended = tasks.spawn(taking.in_current_span()).await;
    ended.unwrap_or_else(|_| Err(XferError::Refused("the take-over did not end".to_owned())))
}

/// Copies the replica from its source.
async fn fetch(
    x: &Xceivers,
    block: &ExtendedBlock,
    message: &pb::OpReplaceBlock,
    target: StorageType,
    storage_id: Option<&str>,
) -> Result<(), XferError> {
    let _writer = x.stats().enter(Activity::Writer);
    let settings = x.settings();
    let source = &message.source;
    let token = message.header.token.clone().unwrap_or_default();
    let from = NodeForBlock {
        node: &source.id,
        pool: &block.pool,
        token: &token,
    };
    let mut proxy = connect_to_node::connect(x, &settings, from, 1).await?;
    let mut wanted = block.clone();
    wanted.block.num_bytes = settings.block_size_estimate;
    connect_to_node::request(&proxy, &copy_request(&wanted, token)).await?;
    let response = connect_to_node::response(&mut proxy).await?;
    connect_to_node::expect_success(&source.id.xfer_addr(), &response)?;
    let checksum = offered_checksum(&response, source)?;
    let options = WriteOptions {
        storage_type: target,
        storage_id: storage_id.map(str::to_owned),
        expected_len: Some(settings.block_size_estimate),
        class: IoClass::Balancer,
        ..WriteOptions::default()
    };
    let mut writer = x.store().create_temporary(&wanted, options).await?;
    writer.set_checksum(checksum).await?;
    let incoming = IncomingBlock {
        block: block.clone(),
        verify: true,
        received: 0,
        source: Some(source.clone()),
    };
    let finish = Finish::Report {
        delete_hint: Some(message.del_hint.clone()),
        wait: Duration::ZERO,
    };
    let cache = CacheHints {
        sync_behind: false,
        drop_behind: true,
    };
    let disk = ReplicaSink::new(x, writer, finish, CompleteWhen::Written, cache);
    let ends = Ends {
        conn: &mut proxy,
        checksum,
        mirror: None,
        disk,
        throttle: &x.throttles().balancer,
        acks: None,
    };
    data_phase::run(x, &settings, incoming, ends).await?;
    let _courtesy = proxy
        .read_exact_small(COPY_DONE.len(), Some(COPY_DONE_WAIT))
        .await;
    Ok(())
}

/// Tells the requester that the move is still going on.
async fn keep_telling(requester: &Conn, every: Duration) -> XferError {
    let message = BlockOpResponse::of(Status::InProgress);
    loop {
        tokio::time::sleep(every).await;
        if let Err(error) = requester.write_message(&message).await {
            return error;
        }
    }
}

fn copy_request(block: &ExtendedBlock, token: Token) -> pb::OpCopyBlock {
    pb::OpCopyBlock {
        header: transfer::base_header(block, token),
    }
}

fn offered_checksum(
    response: &BlockOpResponse,
    source: &DatanodeInfo,
) -> Result<DataChecksum, XferError> {
    let node = source.id.xfer_addr();
    let info = response
        .read_op_checksum_info
        .as_ref()
        .ok_or_else(|| XferError::protocol(&node, "a copy was promised without a checksum"))?;
    DataChecksum::try_from(&info.checksum).map_err(|e| XferError::protocol(&node, e))
}
