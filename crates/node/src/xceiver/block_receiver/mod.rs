//! WRITE_BLOCK: receiving a block, as any node of a pipeline and in every stage.
//!
//! - `client_acks`: the acknowledgements of a client's pipeline on their way to the client
//! - `completion`: the end of a block: the replica is completed, and the NameNode told
//! - `cut_off`: clients whose thread waits for a disk hear that their replica is lost
//! - `data_phase`: the data phase of a write: one task receives
//! - `end_signals`: what ends a write, or interrupts it, from outside
//! - `mirror`: the next node of a pipeline while data flows
//! - `mirror_setup`: the next node of a pipeline: connecting, asking it, and what it says
//! - `open_replica`: the replica that a write goes to, opened as the stage says
//! - `packet_responder`: acknowledgements of a pipeline
//! - `phase`: how far the receiving of a block is, and what follows
//! - `replica_sink`: where the packets of a block being received go
//! - `verify_packets`: how packets follow each other in a block, and whether their data is what was
//!   sent
//! - `when_to_write`: when less than a full write buffer is written
//! - `write_counts`: what is taken down about a block while it is received

mod client_acks;
pub mod completion;
mod cut_off;
pub mod data_phase;
mod end_signals;
mod mirror;
mod mirror_setup;
mod open_replica;
mod packet_responder;
mod phase;
pub mod replica_sink;
pub mod verify_packets;
mod when_to_write;
mod write_counts;

use std::time::Duration;

use hayloft_io::CacheHints;
use hayloft_store::ReplicaWriter;
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::proto::hdfs::DatanodeInfo;
use hayloft_wire::transfer::{BlockOpResponse, Stage, Status, WriteRequest};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::outliers::PeerClock;
use crate::xceiver::block_receiver::completion::Finish;
use crate::xceiver::block_receiver::cut_off::cut_off_when;
use crate::xceiver::block_receiver::data_phase::Ends;
use crate::xceiver::block_receiver::mirror::Mirror;
use crate::xceiver::block_receiver::mirror_setup::{SetUp, next_hop};
use crate::xceiver::block_receiver::open_replica::open_replica;
use crate::xceiver::block_receiver::replica_sink::{CompleteWhen, ReplicaSink};
use crate::xceiver::block_receiver::verify_packets::IncomingBlock;
use crate::xceiver::block_receiver::write_counts::WriteRecord;
use crate::xceiver::context::{AfterOperation, Xceivers};
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::settings::Settings;
use crate::xceiver::stats::Activity;

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
    x.wait_ready(&request.block.pool).await?;
    let kind = WriterKind::of(&request);
    if kind == WriterKind::Transfer && !request.message.targets.is_empty() {
        return Err(XferError::Refused(format!(
            "stage {:?} with further targets",
            request.stage
        )));
    }
    let _writer = x.stats().enter(Activity::Writer);
    let began = Instant::now();
    let settings = x.settings();
    tracing::debug!(
        block = %request.block, stage = ?request.stage, from = conn.peer_name(), "receiving"
    );
    if request.stage == Stage::PipelineCloseRecovery && kind != WriterKind::Datanode {
        return close_recovery(x, conn, &settings, &request).await;
    }
    let is_local = conn.is_local();
    let (writer, translate) = open_replica(x, &settings, &request, (kind, is_local)).await?;
    let client = &request.message.header.client_name;
    let record = WriteRecord::new(began, client, &writer, kind == WriterKind::Client);
    let cancel = writer.cancel_token();
    let _cut_off = cut_off_when(x, conn, &cancel).map_err(|e| conn.socket_error(e))?;
    let connecting = connect_mirror(x, conn, &settings, &request, kind);
    let (mirror, set_up) = unless_taken_over(x, &cancel, connecting).await?;
    if kind == WriterKind::Client {
        conn.write_message(&set_up.response()).await?;
    }
    let incoming = IncomingBlock {
        block: request.block.clone(),
        verify: mirror.is_none() || kind == WriterKind::Datanode || translate,
        received: writer.block().block.num_bytes,
        source: request.message.source.clone(),
    };
    let acks = (kind == WriterKind::Client).then(|| writer.acks());
    let mirror = mirror.map(|conn| {
        let clock = peer_clock(x, &settings, &request, kind);
        Mirror::new(conn, clock, settings.slow_io)
    });
    let ends = Ends {
        checksum: request.checksum,
        disk: sink(x, &settings, &request, writer, kind, mirror.is_some()),
        conn: &mut *conn,
        mirror,
        throttle: &x.throttles().write,
        acks,
    };
    let outcome = data_phase::run(x, &settings, incoming, ends).await;
    if kind == WriterKind::Client
        && matches!(
            outcome,
            Err(XferError::Checksum(_) | XferError::Store(_) | XferError::Remote { .. })
        )
    {
        // The writer was told, and sends on until it reads that.
        conn.linger().await;
    }
    let received = outcome?;
    record.end(x, conn, &received);
    if kind == WriterKind::Client {
        x.log_writers()
            .wrote(client, received.packets, received.bytes);
    }
    if kind == WriterKind::Transfer {
        conn.write_message(&BlockOpResponse::success()).await?;
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

/// Where the packets go, and what becomes of the replica after the last of them.
fn sink(
    x: &Xceivers,
    settings: &Settings,
    request: &WriteRequest,
    writer: ReplicaWriter,
    kind: WriterKind,
    mirrored: bool,
) -> ReplicaSink {
    let when = if kind == WriterKind::Client && mirrored {
        CompleteWhen::Allowed
    } else {
        CompleteWhen::Written
    };
    let finish = finish_of(kind, request.stage, settings);
    ReplicaSink::new(x, writer, finish, when, write_cache(request, settings))
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
    let (_mirror, set_up) = connect_mirror(x, conn, settings, request, WriterKind::Client).await?;
    // The answer ends the block for the client, as the last acknowledgement does elsewhere.
    let finish = finish_of(WriterKind::Client, request.stage, settings);
    completion::tell(x, &replica, &finish).await;
    conn.write_message(&set_up.response()).await?;
    Ok(AfterOperation::Close)
}

/// Connects to the next node, if there is one. A client learns at once when that fails; a copy
/// between nodes goes on without the rest of its chain.
async fn connect_mirror(
    x: &Xceivers,
    conn: &Conn,
    settings: &Settings,
    request: &WriteRequest,
    kind: WriterKind,
) -> Result<(Option<Conn>, SetUp), XferError> {
    let Some((next, message)) = next_hop(request) else {
        return Ok((None, SetUp::fine()));
    };
    let (pool, to_wait) = (&request.block.pool, kind == WriterKind::Client);
    match mirror_setup::open(x, settings, pool, (&next, &message), to_wait).await {
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

/// Only the last node of a client's pipeline is measured, by the one before. How long any other one
/// takes depends on those behind it too.
fn peer_clock(
    x: &Xceivers,
    settings: &Settings,
    request: &WriteRequest,
    kind: WriterKind,
) -> Option<PeerClock> {
    let [last] = &request.message.targets[..] else {
        return None;
    };
    (settings.peer_stats && kind == WriterKind::Client)
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
