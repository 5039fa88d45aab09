//! One internal block, read from its start or from later on, in order, and verified.

use std::future::poll_fn;
use std::task::Poll;

use hayloft_io::{AlignedBuf, IoClass};
use hayloft_store::ReplicaReader;
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::proto::datatransfer as pb;
use hayloft_wire::transfer::{self, Status};

use super::group::InternalReplica;
use crate::xceiver::block_receiver::verify::{BadPacket, IncomingBlock};
use crate::xceiver::context::Xceivers;
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::net::patience::{Patience, silence};
use crate::xceiver::net::peer;
use crate::xceiver::ops::read_block;
use crate::xceiver::packet::PacketBatch;
use crate::xceiver::packet::receiver::PacketReceiver;
use crate::xceiver::settings::Settings;

/// Bytes of a local replica that are read at a time, where memory allows.
const LOCAL_PIECE: usize = 1 << 20;
/// The same where it does not.
const LOCAL_PIECE_SHORT_OF_MEMORY: usize = 64 << 10;

/// What is read.
#[derive(Debug)]
pub(super) struct SourceRange {
    pub(super) block: ExtendedBlock,
    /// First byte.
    pub(super) from: u64,
    /// Behind the last byte.
    pub(super) end: u64,
}

/// An internal block that is being read.
pub(super) enum SourceStream {
    /// From this node's own disk.
    Local(Box<LocalStream>),
    /// From another node.
    Remote(Box<RemoteStream>),
}

impl SourceStream {
    /// Begins to read. A replica of this node is not read over the network.
    ///
    /// # Errors
    /// The node cannot be reached, or has no such replica.
    pub(super) async fn open(
        x: &Xceivers,
        settings: &Settings,
        replica: &InternalReplica,
        range: SourceRange,
    ) -> Result<Self, XferError> {
        let own = x.link().identity(&range.block.pool);
        if own.is_some_and(|own| own.datanode_uuid == replica.node.id.datanode_uuid) {
            let local = LocalStream::open(x, range).await?;
            return Ok(Self::Local(Box::new(local)));
        }
        let remote = RemoteStream::open(x, settings, replica, range).await?;
        Ok(Self::Remote(Box::new(remote)))
    }

    /// How the replica is checksummed.
    pub(super) fn checksum(&self) -> DataChecksum {
        match self {
            Self::Local(local) => local.reader.checksum(),
            Self::Remote(remote) => remote.checksum,
        }
    }

    /// Fills `buf` with the next bytes. They are within the range. After an error, or when the
    /// future is dropped, the stream is of no more use.
    ///
    /// # Errors
    /// `Checksum` for a corrupt replica, and what reading meets.
    pub(super) async fn read(&mut self, buf: &mut [u8]) -> Result<(), XferError> {
        match self {
            Self::Local(local) => local.read(buf).await,
            Self::Remote(remote) => remote.read(buf).await,
        }
    }

    /// Ends a stream that was read to its end, as its node expects it.
    pub(super) async fn finish(self) {
        if let Self::Remote(remote) = self {
            remote.finish().await;
        }
    }
}

/// A replica of this node.
pub(super) struct LocalStream {
    x: Xceivers,
    reader: ReplicaReader,
    /// What was read and verified, and how much of it was given out.
    piece: AlignedBuf,
    given: usize,
    /// Offset behind `piece`.
    at: u64,
    end: u64,
}

impl LocalStream {
    async fn open(x: &Xceivers, range: SourceRange) -> Result<Self, XferError> {
        let SourceRange { block, from, end } = range;
        let (reader, readable) = read_block::open_for_copy(x, &block, end).await?;
        let at = readable.checksum.chunk_start(from);
        Ok(Self {
            x: x.clone(),
            reader: reader.with_class(IoClass::Replication),
            piece: AlignedBuf::empty(),
            // Checksums are of whole chunks: what is before `from` counts as given out.
            given: usize::try_from(from - at).expect("within a chunk"),
            at,
            end: readable.end,
        })
    }

    async fn read(&mut self, buf: &mut [u8]) -> Result<(), XferError> {
        let mut filled = 0;
        while filled < buf.len() {
            if self.given >= self.piece.len() {
                self.next_piece().await?;
            }
            let there = &self.piece.as_slice()[self.given..];
            let now = there.len().min(buf.len() - filled);
            buf[filled..filled + now].copy_from_slice(&there[..now]);
            filled += now;
            self.given += now;
        }
        Ok(())
    }

    /// Reads and verifies the next piece.
    async fn next_piece(&mut self) -> Result<(), XferError> {
        self.given -= self.piece.len();
        let checksum = self.reader.checksum();
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        if left == 0 {
            let text = format!(
                "a read beyond {} bytes of {}",
                self.end,
                self.reader.block()
            );
            return Err(XferError::Refused(text));
        }
        let size = |most: usize| {
            let whole = (most / checksum.chunk_size()).max(1) * checksum.chunk_size();
            whole.min(left)
        };
        // The memory of the last piece goes back first.
        self.piece = AlignedBuf::empty();
        let pooled = self.x.memory().try_acquire(size(LOCAL_PIECE));
        let (buf, len) = match pooled.ok().flatten() {
            Some(buf) => (buf, size(LOCAL_PIECE)),
            None => {
                let len = size(LOCAL_PIECE_SHORT_OF_MEMORY);
                (AlignedBuf::unpooled(len), len)
            }
        };
        let chunk = u64::from(checksum.bytes_per_checksum());
        let count = (len as u64).div_ceil(chunk);
        let sums = self.reader.read_sums(self.at / chunk, count);
        let data = self.reader.read_data(buf, self.at, len);
        let (sums, data) = futures_util::future::try_join(sums, data).await?;
        checksum
            .verify(&data.as_slice()[..len], &sums)
            .map_err(|mismatch| {
                XferError::Checksum(format!(
                    "{} at {}: {mismatch}",
                    self.reader.block(),
                    self.at
                ))
            })?;
        self.piece = data;
        self.at += len as u64;
        Ok(())
    }
}

/// A replica of another node.
pub(super) struct RemoteStream {
    conn: Conn,
    packets: PacketReceiver,
    checksum: DataChecksum,
    incoming: IncomingBlock,
    patience: Patience,
    /// The packets that came last, and where in them the next byte is.
    batch: Option<PacketBatch>,
    packet: usize,
    /// Offset of the next byte to give out.
    at: u64,
    end: u64,
    /// The last packet has come.
    ended: bool,
}

impl RemoteStream {
    async fn open(
        x: &Xceivers,
        settings: &Settings,
        replica: &InternalReplica,
        range: SourceRange,
    ) -> Result<Self, XferError> {
        let SourceRange { block, from, end } = range;
        let node = replica.node.id.xfer_addr();
        let mut conn = peer::connect(settings, &replica.node.id, 1).await?;
        let request = pb::OpReadBlock {
            header: transfer::client_header(&block, replica.token.clone(), ""),
            offset: from,
            len: end - from,
            send_checksums: Some(true),
            caching_strategy: Some(pb::CachingStrategy::default()),
        };
        peer::request(&conn, &request).await?;
        let response = peer::response(&mut conn).await?;
        peer::expect_success(&node, &response)?;
        let info = response
            .read_op_checksum_info
            .ok_or_else(|| XferError::protocol(&node, "a read begins without its checksum"))?;
        let checksum =
            DataChecksum::try_from(&info.checksum).map_err(|e| XferError::protocol(&node, e))?;
        let first = info.chunk_offset;
        if first > from || from - first >= u64::from(checksum.bytes_per_checksum()) {
            let text = format!("a read at {from} begins at {first}, in another chunk");
            return Err(XferError::protocol(&node, text));
        }
        let inbox = conn.take_inbox();
        Ok(Self {
            packets: PacketReceiver::new(x, settings.max_packet, checksum, None, &inbox),
            checksum,
            incoming: IncomingBlock {
                block,
                verify: true,
                received: first,
                source: None,
            },
            patience: Patience::new(conn.read_limit()),
            conn,
            batch: None,
            packet: 0,
            at: from,
            end,
            ended: false,
        })
    }

    async fn read(&mut self, buf: &mut [u8]) -> Result<(), XferError> {
        let mut filled = 0;
        while filled < buf.len() {
            let taken = self.take(&mut buf[filled..]);
            filled += taken;
            if taken == 0 {
                self.next_batch().await?;
            }
        }
        Ok(())
    }

    /// Copies what has come from `at` on; 0 when a next batch is needed.
    fn take(&mut self, buf: &mut [u8]) -> usize {
        let mut filled = 0;
        while let Some(packet) = self.batch.as_ref().and_then(|b| b.packets.get(self.packet)) {
            let body = &packet.body;
            let mut piece_at = body.offset();
            for piece in body.data().iter() {
                let end = piece_at + piece.len() as u64;
                if self.at < end && filled < buf.len() {
                    // A packet begins at or before `at`: the first at its chunk, others behind it.
                    let skip = usize::try_from(self.at - piece_at).expect("within the piece");
                    let now = (piece.len() - skip).min(buf.len() - filled);
                    buf[filled..filled + now].copy_from_slice(&piece[skip..skip + now]);
                    filled += now;
                    self.at += now as u64;
                }
                piece_at = end;
            }
            if self.at < piece_at {
                return filled;
            }
            self.packet += 1;
        }
        // Its memory goes back before more is asked for.
        self.batch = None;
        filled
    }

    /// Waits for packets, and checks them.
    async fn next_batch(&mut self) -> Result<(), XferError> {
        if self.ended {
            let text = format!("{} ends before byte {}", self.incoming.block, self.end);
            return Err(XferError::protocol(self.conn.peer_name(), text));
        }
        let mut batch = self.receive().await?;
        let mut expected = self.incoming.received;
        for packet in &batch.packets {
            let (offset, end) = (packet.body.offset(), packet.body.end());
            if offset != expected || (packet.last && end < self.end) {
                let text = format!(
                    "a packet at {offset} of {} follows {expected} bytes of {}",
                    self.incoming.block, self.end
                );
                return Err(XferError::protocol(self.conn.peer_name(), text));
            }
            expected = end;
        }
        let accepted = self.incoming.accept_batch(&mut batch);
        accepted.map_err(|bad| match bad {
            BadPacket::Gap(text) => XferError::protocol(self.conn.peer_name(), text),
            BadPacket::Corrupt { reason, .. } => XferError::Checksum(reason),
        })?;
        self.ended = batch.ends_block();
        self.batch = Some(batch);
        self.packet = 0;
        Ok(())
    }

    async fn receive(&mut self) -> Result<PacketBatch, XferError> {
        let Self {
            conn,
            packets,
            patience,
            ..
        } = self;
        patience.touch();
        poll_fn(|cx| {
            if let Poll::Ready(batch) = packets.poll_next(conn, cx) {
                return Poll::Ready(batch);
            }
            if packets.made_progress() || packets.waits_for_memory() {
                patience.touch();
            }
            let ended = patience.poll_end(cx);
            ended.map(|limit| Err(conn.socket_error(silence("reading", limit))))
        })
        .await
    }

    /// Takes the empty last packet and says that all was well. A node that hears nothing takes that
    /// for a reader that broke down.
    async fn finish(mut self) {
        while !self.ended {
            if self.next_batch().await.is_err() {
                return;
            }
        }
        let status = pb::ClientReadStatus {
            status: Status::ChecksumOk.into(),
        };
        // It is a courtesy.
        let _gone = self.conn.write_message(&status).await;
    }
}
