//! What every packet of a block must satisfy, and receiving without acknowledgements.

use std::future::poll_fn;
use std::io::IoSlice;
use std::task::Poll;
use std::time::Duration;

use hayloft_store::{Pieces, ReplicaRef};
use hayloft_wire::checksum::{ChecksumMismatch, DataChecksum};
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::proto::hdfs::DatanodeInfo;
use hayloft_wire::transfer::{BlockOpResponse, Status};

use crate::xceiver::block_receiver::blame_source;
use crate::xceiver::block_receiver::replica_sink::{End, ReplicaSink};
use crate::xceiver::context::Xceivers;
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::net::throttle::Throttle;
use crate::xceiver::packet::receiver::{PacketBatch, PacketReceiver, ReceivedPacket};

/// A block being received: how far it came, and how its packets are checked.
#[derive(Debug)]
pub struct IncomingBlock {
    /// The block as it was announced.
    pub block: ExtendedBlock,
    /// Checksum of the packets.
    pub checksum: DataChecksum,
    /// Compare data with checksums here. Nodes in the middle of a pipeline leave that to the last
    /// one.
    pub verify: bool,
    /// End of the data received so far.
    pub received: u64,
    /// The node that the data is copied from.
    pub source: Option<DatanodeInfo>,
    /// Sequence number of the packet that was not accepted.
    pub bad_seqno: Option<i64>,
}

/// Why a packet was not accepted.
#[derive(Debug)]
pub enum BadPacket {
    /// It contradicts what came before, or itself.
    Nonsense(String),
    /// Data and checksums do not match.
    Corrupt(String),
}

impl IncomingBlock {
    /// Checks one packet and counts its data.
    ///
    /// # Errors
    /// Nothing was counted then.
    pub fn accept(&mut self, packet: &ReceivedPacket) -> Result<(), BadPacket> {
        let header = &packet.header;
        let offset = header.offset_in_block.unsigned_abs();
        if offset > self.received {
            return Err(BadPacket::Nonsense(format!(
                "a packet at {offset} of {} leaves a gap: only {} bytes were received",
                self.block, self.received
            )));
        }
        if packet.data.is_empty() {
            return Ok(());
        }
        self.check_shape(packet, offset)?;
        if self.verify && !packet.sums.is_empty() {
            verify(self.checksum, &packet.data, &packet.sums).map_err(|mismatch| {
                BadPacket::Corrupt(format!(
                    "packet {} at {offset} of {}: {mismatch}",
                    header.seqno, self.block
                ))
            })?;
        }
        self.received = self.received.max(packet.end_offset());
        Ok(())
    }

    fn check_shape(&self, packet: &ReceivedPacket, offset: u64) -> Result<(), BadPacket> {
        if !packet.sums.is_empty() && packet.sums.len() != self.checksum.sums_len(packet.data.len())
        {
            return Err(BadPacket::Nonsense(format!(
                "a packet of {} has {} bytes of checksums for {} bytes of data",
                self.block,
                packet.sums.len(),
                packet.data.len()
            )));
        }
        let chunk = u64::from(self.checksum.bytes_per_checksum());
        let in_chunk = offset % chunk;
        if in_chunk != 0 && in_chunk + packet.data.len() as u64 > chunk {
            return Err(BadPacket::Nonsense(format!(
                "a packet at {offset} of {} begins inside a chunk and goes beyond it",
                self.block
            )));
        }
        if packet.end_offset() > i64::MAX.unsigned_abs() {
            return Err(BadPacket::Nonsense(format!(
                "a packet at {offset} of {} has no end",
                self.block
            )));
        }
        Ok(())
    }

    /// Checks the packets of a run; those from the first bad one on are cut off.
    pub fn accept_run(&mut self, run: &mut PacketBatch) -> Result<(), BadPacket> {
        for at in 0..run.packets.len() {
            if let Err(bad) = self.accept(&run.packets[at]) {
                self.bad_seqno = Some(run.packets[at].header.seqno);
                run.packets.truncate(at);
                return Err(bad);
            }
            if run.packets[at].header.last_packet_in_block {
                run.packets.truncate(at + 1);
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Compares data with checksums, piece by piece: a piece that is not the last one ends with a
/// chunk.
fn verify(checksum: DataChecksum, data: &Pieces, sums: &[u8]) -> Result<(), ChecksumMismatch> {
    let mut sums = sums;
    let mut at = 0;
    for piece in data.iter().filter(|piece| !piece.is_empty()) {
        let len = checksum.sums_len(piece.len()).min(sums.len());
        let (now, behind) = sums.split_at(len);
        checksum
            .verify(piece, now)
            .map_err(|mismatch| ChecksumMismatch {
                offset: at + mismatch.offset,
                ..mismatch
            })?;
        at += piece.len();
        sums = behind;
    }
    Ok(())
}

/// Whether a run ends the block.
pub fn ends_block(run: &PacketBatch) -> bool {
    run.packets
        .last()
        .is_some_and(|p| p.header.last_packet_in_block)
}

impl BadPacket {
    /// As the error of the operation.
    pub fn into_error(self, conn: &Conn) -> XferError {
        match self {
            Self::Nonsense(reason) => XferError::protocol(conn.peer_name(), reason),
            Self::Corrupt(reason) => XferError::Checksum(reason),
        }
    }
}

/// Receives a block from a node: every packet is checked, none is acknowledged. The rest of the
/// chain behind `mirror` is served as long as it keeps up.
///
/// # Errors
/// What ended the copy early; the replica is gone then.
pub async fn receive_alone(
    x: &Xceivers,
    conn: &mut Conn,
    mirror: Option<Conn>,
    mut incoming: IncomingBlock,
    disk: ReplicaSink,
    throttle: &Throttle,
) -> Result<ReplicaRef, XferError> {
    let inbox = conn.take_inbox();
    let mut inflow = PacketReceiver::new(
        x,
        x.settings().max_packet,
        incoming.checksum,
        disk.landing(),
        &inbox,
    );
    drop(inbox);
    let mut mirror = mirror;
    let mut disk = disk;
    loop {
        let mut run = tokio::select! {
            biased;
            error = failed(&mut disk) => return Err(error),
            run = inflow.next(conn) => run?,
        };
        if let Some(next) = &mirror
            && let Err(error) = send(next, &run).await
        {
            tracing::info!(block = %incoming.block, node = next.peer_name(), "copying on without \
                the next node: {error}");
            mirror = None;
        }
        if let Err(bad) = incoming.accept_run(&mut run) {
            if matches!(bad, BadPacket::Corrupt(_)) {
                blame_source(x, incoming.source.as_ref(), &incoming.block);
            }
            return Err(bad.into_error(conn));
        }
        let (last, bytes) = (ends_block(&run), run.data_len());
        disk.push(run);
        until(&mut disk, |disk| disk.has_room()).await?;
        throttle.take(bytes).await;
        if last {
            break;
        }
    }
    until(&mut disk, |disk| disk.end().is_some()).await?;
    match disk.end() {
        Some(End::Done(replica)) => Ok(replica.clone()),
        _ => Err(XferError::Stopped("the replica was given up")),
    }
}

/// Passes a run on.
async fn send(next: &Conn, run: &PacketBatch) -> std::io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = run.raw.iter().map(|piece| IoSlice::new(piece)).collect();
    next.write_all_vectored(&mut slices).await
}

/// Lets the disk go on until `condition` holds.
///
/// # Errors
/// The disk gave up, or another taker wants the replica.
async fn until(
    disk: &mut ReplicaSink,
    condition: impl Fn(&ReplicaSink) -> bool,
) -> Result<(), XferError> {
    let cancelled = disk.cancelled();
    tokio::pin!(cancelled);
    poll_fn(|cx| {
        disk.poll(cx);
        if let Some(End::Failed(error)) = disk.end() {
            return Poll::Ready(Err(XferError::Store((**error).clone())));
        }
        if condition(disk) {
            return Poll::Ready(Ok(()));
        }
        cancelled.as_mut().poll(cx).map(|()| {
            Err(XferError::Stopped(
                crate::xceiver::block_receiver::TAKEN_OVER,
            ))
        })
    })
    .await
}

/// Lets the disk go on; resolves when it gave up.
async fn failed(disk: &mut ReplicaSink) -> XferError {
    match until(disk, |_| false).await {
        Err(error) => error,
        Ok(()) => std::future::pending().await,
    }
}

/// Tells the peer that waits for the outcome of a long operation that it is still going on.
pub async fn keep_telling(conn: &Conn, every: Duration) -> XferError {
    let message = BlockOpResponse::of(Status::InProgress);
    loop {
        tokio::time::sleep(every).await;
        if let Err(error) = conn.write_message(&message).await {
            return error;
        }
    }
}
