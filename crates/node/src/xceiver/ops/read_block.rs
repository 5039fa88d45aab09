//! READ_BLOCK.

use std::time::Duration;

use bytes::Bytes;
use hayloft_store::ReplicaReader;
use hayloft_wire::frame;
use hayloft_wire::ids::{ExtendedBlock, ReplicaState};
use hayloft_wire::limits::MAX_OP_RESPONSE_BYTES;
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::transfer::{BlockOpResponse, BlockRequest, Status};
use tokio::time::Instant;

use crate::activity::{ClientTrace, Count, OpKind, OpParts, Timed, millis, nanos};
use crate::xceiver::block_sender::range::Range;
use crate::xceiver::block_sender::{BlockSender, CachePolicy, Sent};
use crate::xceiver::context::{AfterOperation, Xceivers};
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::settings::Settings;
use crate::xceiver::stats::Activity;

/// A reader of a replica being written waits this long, as Apache's does, for bytes that it was
/// promised. The writer's acknowledgement may have overtaken them.
const GROWTH_WAIT: Duration = Duration::from_secs(3);
const GROWTH_POLL: Duration = Duration::from_millis(10);

/// Serves one read.
///
/// # Errors
/// The connection is of no more use; what the client was to be told it was told.
pub async fn read_block(
    x: &Xceivers,
    conn: &mut Conn,
    request: BlockRequest<pb::OpReadBlock>,
) -> Result<AfterOperation, XferError> {
    let BlockRequest { block, message } = request;
    x.wait_ready(&block.pool).await?;
    let _reader = x.stats().enter(Activity::Reader);
    let began = Instant::now();
    let settings = x.settings();
    let opened = open(
        x,
        &block,
        message.offset,
        message.len,
        message.send_checksums(),
    )
    .await;
    let (reader, range) = match opened {
        Ok(opened) => opened,
        Err(error) => return refuse(conn, &block, error).await,
    };
    let opened = began.elapsed();
    let head = stream_head(&range);
    let sender = BlockSender {
        reader: &reader,
        range,
        cache: CachePolicy {
            send_file: settings.send_file && conn.takes_files(),
            ..cache_policy(message.caching_strategy.as_ref(), &settings)
        },
        memory: x.memory(),
        stats: x.stats(),
        throttles: &[&x.throttles().read],
        in_messages: conn.in_messages(),
    };
    match sender.send(conn, head).await {
        Ok(sent) => {
            x.stats().bytes_read.add(sent.bytes);
            x.stats().sums_read.add(sent.sums);
            x.stats().blocks_read.add(1);
            x.stats().bytes_read_by_descriptor.add(sent.by_descriptor);
            let served = Served {
                block: &block,
                client: &message.header.client_name,
                offset: range.start,
                opened,
                whole: began.elapsed(),
            };
            served.count(x, conn, &sent);
        }
        Err(error) => {
            after_read_error(x, &block, &error).await;
            return Err(error);
        }
    }
    confirm(x, conn, &block).await
}

/// A read that was served.
struct Served<'a> {
    block: &'a ExtendedBlock,
    client: &'a str,
    offset: u64,
    /// From its beginning to the open replica.
    opened: Duration,
    whole: Duration,
}

impl Served<'_> {
    fn count(&self, x: &Xceivers, conn: &Conn, sent: &Sent) {
        let (activity, whole) = (x.activity(), self.whole.saturating_sub(self.opened));
        activity.read_by(conn.is_local(), sent.bytes);
        activity.add(Count::TotalReadTime, millis(whole));
        let rate = u128::from(sent.bytes) * 1_000_000_000 / whole.as_nanos().max(1);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        activity.took_together(Timed::ReadTransferRate, 1, rate);
        let parts = OpParts {
            disk: sent.parts.disk + self.opened,
            ..sent.parts
        };
        activity.latencies.add(OpKind::Read, &parts);
        if self.client.is_empty() || !ClientTrace::wants_reads() {
            return;
        }
        let trace = ClientTrace {
            from: conn.local_addr(),
            to: Some(conn.peer_addr()),
            volume: "",
            // With their checksums, as Apache's.
            bytes: sent.bytes + sent.sums,
            client: self.client,
            offset: self.offset,
            node: &x.store().datanode_uuid(),
            block: self.block,
            nanos: nanos(whole),
        };
        trace.read(&parts);
    }
}

/// After a failed read: the scanner looks at the replica, and the volumes are checked if a disk may
/// be to blame.
pub async fn after_read_error(x: &Xceivers, block: &ExtendedBlock, error: &XferError) {
    if error.is_corrupt() || error.suspects_disk() {
        x.store().mark_suspect(block);
    }
    if error.suspects_disk() {
        x.store().check_volumes_soon();
    }
}

/// Tells the client why there is nothing to read, in the words that Apache's would begin with.
async fn refuse(
    conn: &Conn,
    block: &ExtendedBlock,
    error: XferError,
) -> Result<AfterOperation, XferError> {
    let text = format!(
        "opReadBlock {block} received exception {}",
        java_text(&error)
    );
    conn.write_message(&BlockOpResponse::error(Status::Error, text))
        .await?;
    Err(error)
}

/// An error as a Java peer would print its exception.
pub fn java_text(error: &XferError) -> String {
    match error {
        XferError::Store(e) => format!("{}: {e}", e.java_class()),
        other => format!("java.io.IOException: {other}"),
    }
}

/// Opens the replica for a client and fits the range to it.
///
/// # Errors
/// `Store` and `Refused`.
pub async fn open(
    x: &Xceivers,
    block: &ExtendedBlock,
    offset: u64,
    len: u64,
    with_sums: bool,
) -> Result<(ReplicaReader, Range), XferError> {
    wait_grown(x, block, offset.saturating_add(len)).await;
    let reader = x.store().open_reader(block).await?;
    let readable = reader.readable_len();
    let range = Range::new(offset, len, readable, reader.checksum(), with_sums, block)
        .map_err(XferError::Refused)?;
    Ok((reader, range))
}

/// Opens the first `len` bytes of a replica for a copy of it, with their checksums. A replica whose
/// checksums are missing must not be multiplied.
///
/// # Errors
/// `Store` and `Refused`.
pub async fn open_for_copy(
    x: &Xceivers,
    block: &ExtendedBlock,
    len: u64,
) -> Result<(ReplicaReader, Range), XferError> {
    wait_grown(x, block, len).await;
    let reader = x.store().open_verifiable(block).await?;
    let readable = reader.readable_len();
    let range =
        Range::new(0, len, readable, reader.checksum(), true, block).map_err(XferError::Refused)?;
    Ok((reader, range))
}

/// Gives a replica that is being written a little time to reach `wanted` bytes.
async fn wait_grown(x: &Xceivers, block: &ExtendedBlock, wanted: u64) {
    let deadline = Instant::now() + GROWTH_WAIT;
    let short = || {
        x.store()
            .replica(&block.pool, block.block.id)
            .is_some_and(|r| r.state == ReplicaState::Rbw && r.bytes_on_disk < wanted)
    };
    while short() && Instant::now() < deadline {
        tokio::time::sleep(GROWTH_POLL).await;
    }
}

fn cache_policy(hints: Option<&pb::CachingStrategy>, settings: &Settings) -> CachePolicy {
    let drop_behind = hints.and_then(|h| h.drop_behind);
    let readahead = hints.and_then(|h| h.readahead);
    CachePolicy {
        readahead: readahead.map_or(settings.readahead, |bytes| {
            u64::try_from(bytes).unwrap_or(0)
        }),
        always_readahead: readahead.is_some(),
        drop_behind: drop_behind.unwrap_or(settings.drop_behind_reads),
        always_drop: drop_behind.is_some(),
        send_file: false,
    }
}

/// Reads what the client says after a complete read. A client that says nothing is done with the
/// connection.
async fn confirm(
    x: &Xceivers,
    conn: &mut Conn,
    block: &ExtendedBlock,
) -> Result<AfterOperation, XferError> {
    let status: pb::ClientReadStatus = match conn.read_message(MAX_OP_RESPONSE_BYTES).await {
        Ok(status) => status,
        Err(XferError::Socket { .. }) => return Ok(AfterOperation::Close),
        Err(error) => return Err(error),
    };
    if Status::from_wire(status.status) == Status::ErrorChecksum {
        tracing::warn!(%block, client = conn.peer_name(), "a client found a corrupt chunk: the \
            replica will be scanned");
        x.store().mark_suspect(block);
    }
    Ok(AfterOperation::KeepAlive)
}

/// The head of a reply that starts a stream of packets.
pub fn stream_head(range: &Range) -> Bytes {
    frame::delimited(&BlockOpResponse::read(range.checksum, range.start))
}
