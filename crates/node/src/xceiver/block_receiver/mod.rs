//! WRITE_BLOCK: receiving a block, as any node of a pipeline and in every stage.

pub mod mirror;
pub mod mirror_setup;
pub mod packet_responder;
mod pipeline;
pub mod replica_sink;
pub mod verify;

use std::time::Duration;

use hayloft_io::{CacheHints, IoClass};
use hayloft_store::{ReplicaWriter, StorageInfo, StoreError, StoreErrorKind, WriteOptions};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::{ExtendedBlock, ReplicaState};
use hayloft_wire::proto::hdfs::DatanodeInfo;
use hayloft_wire::transfer::{BlockOpResponse, Stage, Status, WriteRequest};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::outliers::PeerClock;
use crate::xceiver::block_receiver::mirror_setup::SetUp;
use crate::xceiver::context::Xceivers;
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::server::{AfterOperation, wait_ready};
use crate::xceiver::settings::Settings;
use crate::xceiver::stats::Activity;
use replica_sink::{CompleteWhen, Finish, ReplicaSink};

pub use crate::xceiver::block_receiver::verify::{IncomingBlock, keep_telling, receive_alone};

/// Why a write ended that neither its writer nor this node wanted to end.
const TAKEN_OVER: &str = "another writer or a recovery took the replica over";
const SHUT_DOWN: &str = "the node shuts down";

/// Who writes, which decides about acknowledgements, checks and what the NameNode is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterKind {
    /// A client's pipeline: every packet is acknowledged.
    Client,
    /// A node that copies a replica to add this node to a client's pipeline: one answer at the end.
    Transfer,
    /// A node that copies a replica on the NameNode's order: no answer at all.
    Datanode,
}

impl WriterKind {
    fn of(request: &WriteRequest) -> Self {
        if request.message.header.client_name.is_empty() {
            Self::Datanode
        } else if request.stage.is_transfer() {
            Self::Transfer
        } else {
            Self::Client
        }
    }
}

/// Serves one write. The connection is closed afterwards in any case.
///
/// # Errors
/// What ended the write early. A replica of a client stays as it is, for recovery to find; one of a
/// node is gone.
pub async fn write_block(
    x: &Xceivers,
    conn: &mut Conn,
    request: WriteRequest,
) -> Result<AfterOperation, XferError> {
    wait_ready(x, &request.block.pool).await?;
    let kind = WriterKind::of(&request);
    if kind == WriterKind::Transfer && !request.message.targets.is_empty() {
        return Err(XferError::Refused(format!(
            "stage {:?} with further targets",
            request.stage
        )));
    }
    let _writer = x.stats().enter(Activity::Writer);
    let settings = x.settings();
    tracing::debug!(block = %request.block, stage = ?request.stage, from = conn.peer_name(), "receiving");
    if request.stage == Stage::PipelineCloseRecovery && kind != WriterKind::Datanode {
        return close_recovery(x, conn, &settings, &request).await;
    }
    let (writer, translate) = open_replica(x, &settings, &request, kind).await?;
    let cancel = writer.cancel_token();
    let connecting = connect_mirror(conn, &settings, &request, kind);
    let (mirror, set_up) = unless_taken_over(x, &cancel, connecting).await?;
    if kind == WriterKind::Client {
        conn.write_message(&set_up.response()).await?;
    }
    let incoming = IncomingBlock {
        block: request.block.clone(),
        checksum: request.checksum,
        verify: mirror.is_none() || kind == WriterKind::Datanode || translate,
        received: writer.block().block.num_bytes,
        source: request.message.source.clone(),
        bad_seqno: None,
    };
    let acks = writer.acks();
    let when = if kind == WriterKind::Client && mirror.is_some() {
        CompleteWhen::Allowed
    } else {
        CompleteWhen::Written
    };
    let disk = ReplicaSink::new(
        x,
        writer,
        request.checksum,
        finish_of(kind, request.stage, &settings),
        when,
        write_cache(&request, &settings),
    );
    match kind {
        WriterKind::Client => {
            let ends = pipeline::Ends {
                conn,
                mirror,
                clock: peer_clock(x, &settings, &request),
                acks,
                cancel,
                disk,
            };
            let outcome = pipeline::run(x, &settings, incoming, ends).await;
            if matches!(
                outcome,
                Err(XferError::Checksum(_) | XferError::Store(_) | XferError::Remote { .. })
            ) {
                // The writer was told, and sends on until it reads that.
                conn.linger().await;
            }
            outcome?;
        }
        WriterKind::Datanode | WriterKind::Transfer => {
            receive_alone(x, conn, mirror, incoming, disk, &x.throttles().write).await?;
            if kind == WriterKind::Transfer {
                conn.write_message(&BlockOpResponse::success()).await?;
            }
        }
    }
    Ok(AfterOperation::Close)
}

/// The next writer of a replica waits for this one, which must not wait for a silent node
/// meanwhile.
async fn unless_taken_over<T>(
    x: &Xceivers,
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, XferError>>,
) -> Result<T, XferError> {
    tokio::select! {
        done = work => done,
        () = cancel.cancelled() => Err(XferError::Stopped(TAKEN_OVER)),
        () = x.shutdown_token().cancelled() => Err(XferError::Stopped(SHUT_DOWN)),
    }
}

fn finish_of(kind: WriterKind, stage: Stage, settings: &Settings) -> Finish {
    let report = |wait| Finish::Report {
        delete_hint: None,
        wait,
    };
    match kind {
        WriterKind::Client => report(settings.report_before_ack),
        WriterKind::Datanode => report(Duration::ZERO),
        WriterKind::Transfer if stage == Stage::TransferRbw => Finish::ConvertToRbw,
        WriterKind::Transfer => Finish::Quietly,
    }
}

/// The last packet was received everywhere, but a node failed before it was acknowledged: the
/// remaining ones take the new generation stamp and finalize.
async fn close_recovery(
    x: &Xceivers,
    conn: &mut Conn,
    settings: &Settings,
    request: &WriteRequest,
) -> Result<AfterOperation, XferError> {
    let message = &request.message;
    let replica = x
        .store()
        .recover_close(
            &request.block,
            message.latest_generation_stamp,
            message.min_bytes_rcvd,
        )
        .await?;
    let (_mirror, set_up) = connect_mirror(conn, settings, request, WriterKind::Client).await?;
    // The answer ends the block for the client, as the last acknowledgement does elsewhere.
    let finish = finish_of(WriterKind::Client, request.stage, settings);
    replica_sink::tell(x, &replica, &finish).await;
    conn.write_message(&set_up.response()).await?;
    Ok(AfterOperation::Close)
}

/// Opens the replica as the stage says, with the checksum of the packets. The flag: the disk keeps
/// another checksum than the packets carry, so that packets have to be checked here.
async fn open_replica(
    x: &Xceivers,
    settings: &Settings,
    request: &WriteRequest,
    kind: WriterKind,
) -> Result<(ReplicaWriter, bool), XferError> {
    let opened = open_writer(x, settings, request, kind).await;
    let mut writer = match opened {
        Ok(writer) => writer,
        Err(error) => {
            if error.kind() == StoreErrorKind::Io {
                x.check_volumes_soon();
            }
            if kind == WriterKind::Datanode && error.kind() == StoreErrorKind::AlreadyExists {
                report_stale(x, &request.block);
            }
            return Err(error.into());
        }
    };
    same_chunks(writer.checksum(), request.checksum)?;
    let translate = differs(writer.checksum(), request.checksum);
    writer.set_checksum(request.checksum).await?;
    if announces(request.stage, kind) {
        announce(x, &writer.block(), writer.storage());
    }
    Ok((writer, translate))
}

/// A copy that the NameNode ordered was refused for what a recovery left of the replica here. It
/// does not know of that one, and would order the copy again and again until the next full report,
/// hours later: told of it now, as that would tell it, it compares generation stamps and may have
/// the replica deleted. A newer stamp is of a recovery that came after the one that the NameNode
/// committed.
fn report_stale(x: &Xceivers, wanted: &ExtendedBlock) {
    let Some(there) = x.store().replica(&wanted.pool, wanted.block.id) else {
        return;
    };
    let (stamp, wanted) = (
        there.block.block.generation_stamp,
        wanted.block.generation_stamp,
    );
    let tell = || {
        tracing::info!(block = %there.block, state = %there.state, wanted,
            "a copy was refused for a replica with another generation stamp: reporting it");
    };
    match there.state {
        ReplicaState::Finalized if stamp != wanted => {
            tell();
            x.link().received(&there.block, &there.storage, None);
        }
        ReplicaState::Rwr | ReplicaState::Rur if stamp < wanted => {
            tell();
            announce(x, &there.block, &there.storage);
        }
        _ => {}
    }
}

/// Sums of another type can be made anew, but a block keeps its chunk size for life: Apache refuses
/// an append with another one, and a client is told so here too.
fn same_chunks(disk: Option<DataChecksum>, packets: DataChecksum) -> Result<(), XferError> {
    match disk {
        Some(disk) if disk.bytes_per_checksum() != packets.bytes_per_checksum() => {
            Err(XferError::Refused(format!(
                "Client requested {packets:?} when appending to an existing block with different \
                    chunk size: {disk:?}"
            )))
        }
        _ => Ok(()),
    }
}

fn differs(disk: Option<DataChecksum>, packets: DataChecksum) -> bool {
    disk.is_some_and(|disk| disk != packets)
}

async fn open_writer(
    x: &Xceivers,
    settings: &Settings,
    request: &WriteRequest,
    kind: WriterKind,
) -> Result<ReplicaWriter, StoreError> {
    let store = x.store();
    let message = &request.message;
    let block = &request.block;
    let new_gs = message.latest_generation_stamp;
    let options = write_options(settings, request, kind);
    if kind != WriterKind::Client {
        return store.create_temporary(block, options).await;
    }
    match request.stage {
        Stage::PipelineSetupCreate => store.create_rbw(block, options).await,
        Stage::PipelineSetupStreamingRecovery => {
            store
                .recover_rbw(
                    block,
                    new_gs,
                    message.min_bytes_rcvd,
                    message.max_bytes_rcvd,
                )
                .await
        }
        Stage::PipelineSetupAppend => store.append(block, new_gs, message.min_bytes_rcvd).await,
        Stage::PipelineSetupAppendRecovery => {
            store
                .recover_append(block, new_gs, message.min_bytes_rcvd)
                .await
        }
        stage => Err(StoreError::new(
            StoreErrorKind::Illegal,
            format!("stage {stage:?} cannot start a write of {block}"),
        )),
    }
}

fn write_options(settings: &Settings, request: &WriteRequest, kind: WriterKind) -> WriteOptions {
    let message = &request.message;
    let known_len = request.block.block.num_bytes;
    WriteOptions {
        storage_type: request.storage_type,
        // The NameNode names the first storage with room for every block: followed, all writes
        // would meet on one disk. Hadoop's volume choosing policies pass over it too.
        storage_id: None,
        // `allowLazyPersist` asks for nothing that must be done: without memory set aside for it
        // the stock node, too, writes to the type that the NameNode named, which is never RAM_DISK.
        expected_len: Some(if known_len == 0 {
            settings.block_size_estimate
        } else {
            known_len
        }),
        pinned: settings.pinning && message.pinning(),
        new_gs: Some(message.latest_generation_stamp).filter(|gs| *gs != 0),
        transfer: kind == WriterKind::Transfer,
        // A client waits for the copy that a node makes to add this one to its pipeline.
        class: if kind == WriterKind::Datanode {
            IoClass::Replication
        } else {
            IoClass::ClientWrite
        },
    }
}

/// Stages after which the NameNode is told that a block is coming.
fn announces(stage: Stage, kind: WriterKind) -> bool {
    kind == WriterKind::Client
        && matches!(
            stage,
            Stage::PipelineSetupCreate
                | Stage::PipelineSetupAppend
                | Stage::PipelineSetupAppendRecovery
        )
}

fn announce(x: &Xceivers, block: &ExtendedBlock, storage: &StorageInfo) {
    x.link().receiving(block, storage);
}

/// Connects to the next node, if there is one. A client learns at once when that fails; a copy
/// between nodes goes on without the rest of its chain.
async fn connect_mirror(
    conn: &Conn,
    settings: &Settings,
    request: &WriteRequest,
    kind: WriterKind,
) -> Result<(Option<Conn>, SetUp), XferError> {
    let Some((next, message)) = crate::xceiver::block_receiver::mirror_setup::next_hop(request)
    else {
        return Ok((None, SetUp::fine()));
    };
    match crate::xceiver::block_receiver::mirror_setup::open(
        settings,
        &next,
        &message,
        kind == WriterKind::Client,
    )
    .await
    {
        Ok((mirror, set_up)) => Ok((Some(mirror), set_up)),
        Err(error) if kind == WriterKind::Client => {
            let set_up = SetUp {
                status: Status::Error,
                first_bad_link: next.id.xfer_addr(),
            };
            conn.write_message(&set_up.response()).await?;
            Err(error)
        }
        Err(error) => {
            tracing::info!(block = %request.block, "copying on without the next node: {error}");
            Ok((None, SetUp::fine()))
        }
    }
}

/// Only the last node of a pipeline is measured, by the one before: how long any other one takes
/// depends on those behind it too.
fn peer_clock(x: &Xceivers, settings: &Settings, request: &WriteRequest) -> Option<PeerClock> {
    let [last] = &request.message.targets[..] else {
        return None;
    };
    settings
        .peer_stats
        .then(|| PeerClock::new(x.peer_times().clone(), &last.id.info_addr(), Instant::now()))
}

fn write_cache(request: &WriteRequest, settings: &Settings) -> CacheHints {
    let drop_behind = request
        .message
        .caching_strategy
        .as_ref()
        .and_then(|hints| hints.drop_behind);
    CacheHints {
        sync_behind: settings.sync_behind_writes,
        drop_behind: drop_behind.unwrap_or(settings.drop_behind_writes),
    }
}

/// The node that a copy came from, when the data turns out to be bad.
fn blame_source(x: &Xceivers, source: Option<&DatanodeInfo>, block: &ExtendedBlock) {
    if let Some(source) = source {
        tracing::warn!(%block, source = source.id.xfer_addr(), "a copy arrived corrupt: its \
            source is reported");
        x.link().remote_bad_block(source, block);
    }
}
