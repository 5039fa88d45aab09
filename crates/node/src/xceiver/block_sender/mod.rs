//! Replica data into a socket, as packets: for readers, copies and transfers.
//!
//! Data goes out in pieces, the next ones being read while one is sent.
//!
//! - What is not in the page cache is read through the volume's engine in large pieces into pooled
//!   buffers. Each goes out in one gathered write: packet prefixes and checksums beside the data.
//! - What is in the page cache is sent from there by descriptor (sendfile), without a copy on this
//!   side, by threads of the disk. Short reads are copied: they are over before asking where the
//!   data are has paid.
//!
//! The figures are in docs/decisions (6 and 12).

pub mod checksums;
mod from_cache;
pub mod range;
pub mod read_ahead;

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hayloft_io::{Advice, AlignedBuf, BufferPool};
use hayloft_store::ReplicaReader;
use hayloft_wire::packet::{MAX_PREFIX_BYTES, PacketHeader};

use crate::xceiver::block_sender::range::Range;
use crate::xceiver::block_sender::read_ahead::{Ahead, Body, Piece};
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::net::throttle::Throttle;
use crate::xceiver::stats::XceiverStats;
use from_cache::{CachedPacket, SendStopped, Sending};

/// Data in a packet of a short read, rounded to whole chunks: Apache's size without other
/// configuration.
const PACKET_DATA: usize = 64 << 10;

/// Data in a packet of a long read. Every packet costs its reader three or more system calls.
/// Apache's sends as much where `io.file.buffer.size` is raised to it, and a stock client takes up
/// to 16 MiB.
const PACKET_DATA_LONG: usize = 256 << 10;

/// A read longer than this is worth reading ahead and dropping behind without being asked to.
const LONG_READ: u64 = 256 << 10;

/// A reader that takes everything at once leaves its thread to others after so many bytes.
const TURN: usize = 4 << 20;

/// What to do with the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches, one key or hint each"
)]
pub struct CachePolicy {
    /// Bytes to ask for ahead of the reader; 0 for none.
    pub readahead: u64,
    /// Ask also for short reads.
    pub always_readahead: bool,
    /// Drop what was sent.
    pub drop_behind: bool,
    /// Drop also after short reads.
    pub always_drop: bool,
    /// Send what it has from there.
    pub send_file: bool,
}

/// What was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Data bytes.
    pub bytes: u64,
    /// Of these, bytes that the kernel took from its page cache.
    pub by_descriptor: u64,
}

/// One replica on its way out.
#[derive(Debug)]
pub struct BlockSender<'a> {
    /// Where it is read.
    pub reader: &'a ReplicaReader,
    /// What is sent.
    pub range: Range,
    /// Page cache.
    pub cache: CachePolicy,
    /// Memory for the data.
    pub memory: &'a BufferPool,
    /// Tells how many share it.
    pub stats: &'a XceiverStats,
    /// Limits that apply; each one is charged.
    pub throttles: &'a [&'a Throttle],
}

impl BlockSender<'_> {
    /// Sends `head`, then the range in packets, then the empty last packet.
    ///
    /// # Errors `Store` when reading failed, `Socket` when sending did. In both cases the stream is
    /// cut off in the middle, and only closing the connection tells the peer.
    pub async fn send(&self, conn: &Conn, head: Bytes) -> Result<Sent, XferError> {
        let mut packets = Packets {
            conn,
            range: self.range,
            packet: self.packet_data(),
            offset: self.range.start,
            seqno: 0,
            head,
            ended: false,
        };
        let mut ahead = Ahead::new(self);
        let mut by_descriptor = 0;
        let mut turn = 0;
        while let Some(piece) = ahead.next().await? {
            let waits = conn.waits();
            self.send_piece(&mut packets, &piece).await?;
            let waited = conn.waits() > waits;
            if matches!(piece.body, Body::Resident) {
                by_descriptor += piece.len as u64;
            }
            for throttle in self.throttles {
                throttle.take(piece.len as u64).await;
            }
            if self.drops_behind() {
                self.reader
                    .advise(Advice::DontNeed, piece.offset, piece.len as u64)
                    .await;
            }
            // Giving up the thread wakes another one to look for work: not after every piece.
            turn = if waited { 0 } else { turn + piece.len };
            if turn >= TURN {
                turn = 0;
                tokio::task::yield_now().await;
            }
        }
        packets.end().await?;
        self.hint_ahead().await;
        Ok(Sent {
            bytes: self.range.len(),
            by_descriptor,
        })
    }

    /// Asks the system for what follows a short read, when the reader wants that. Long reads are
    /// read ahead here: what the system reads ahead on request costs twice as much processor time.
    async fn hint_ahead(&self) {
        let CachePolicy {
            readahead,
            always_readahead,
            ..
        } = self.cache;
        if always_readahead && readahead > self.range.len() && self.range.len() <= LONG_READ {
            let (from, len) = (self.range.end, readahead - self.range.len());
            self.reader.advise(Advice::WillNeed, from, len).await;
        }
    }

    /// Whether what was sent is dropped from the page cache.
    fn drops_behind(&self) -> bool {
        self.cache.drop_behind && (self.cache.always_drop || self.range.len() > LONG_READ)
    }

    /// Data bytes of a full packet.
    fn packet_data(&self) -> usize {
        let chunk = self.range.checksum.chunk_size();
        let packet = if self.range.len() > LONG_READ {
            PACKET_DATA_LONG
        } else {
            PACKET_DATA
        };
        (packet / chunk).max(1) * chunk
    }

    /// Sends one piece.
    async fn send_piece(&self, packets: &mut Packets<'_>, piece: &Piece) -> Result<(), XferError> {
        if let Body::Read(data) = &piece.body {
            return packets.send(data.as_slice(), &piece.sums).await;
        }
        packets.send_from(self.reader, piece).await
    }
}

/// The stream of packets.
struct Packets<'a> {
    conn: &'a Conn,
    range: Range,
    /// Data bytes of a full packet.
    packet: usize,
    /// Of the next packet.
    offset: u64,
    seqno: i64,
    /// What precedes the next packet.
    head: Bytes,
    /// The empty last packet has been sent.
    ended: bool,
}

impl Packets<'_> {
    /// Sends `data` as packets in one gathered write, with the empty last packet if nothing
    /// follows.
    async fn send(&mut self, data: &[u8], sums: &[u8]) -> Result<(), XferError> {
        let count = data.len().div_ceil(self.packet) + 1;
        let mut prefixes = BytesMut::with_capacity(count * MAX_PREFIX_BYTES);
        let mut parts = Vec::with_capacity(count);
        let mut sums = sums;
        for data in data.chunks(self.packet) {
            let (these, rest) = sums.split_at(self.range.checksum.sums_len(data.len()));
            self.next(data.len(), these.len(), &mut prefixes);
            parts.push((prefixes.split().freeze(), these, data));
            sums = rest;
        }
        if self.offset == self.range.end {
            self.last(&mut prefixes);
            parts.push((prefixes.split().freeze(), &[], &[]));
        }
        let head = std::mem::take(&mut self.head);
        let mut slices = Vec::with_capacity(3 * parts.len() + 1);
        slices.push(IoSlice::new(&head));
        for (prefix, sums, data) in &parts {
            slices.extend([IoSlice::new(prefix), IoSlice::new(sums), IoSlice::new(data)]);
        }
        self.conn
            .write_all_vectored(&mut slices)
            .await
            .map_err(|e| self.conn.socket_error(e))
    }

    /// Sends the data of `piece` from the page cache as packets.
    async fn send_from(&mut self, reader: &ReplicaReader, piece: &Piece) -> Result<(), XferError> {
        let failed = |e| self.conn.socket_error(e);
        let socket = self.conn.duplicate().map_err(failed)?;
        let mut sending = Sending {
            socket: Arc::new(socket),
            offset: piece.offset,
            packets: self.packets_of(piece),
        };
        loop {
            let run = reader.send_with(move |file| {
                let stopped = sending.run(file);
                (sending, stopped)
            });
            let (back, stopped) = run.await?;
            sending = back;
            match stopped {
                SendStopped::Sent => return Ok(()),
                SendStopped::Full => self.conn.wait_for_room().await.map_err(failed)?,
                SendStopped::Short => {
                    // The file is cut or broken: reading says what it is.
                    let Some((from, len)) = sending.take_first() else {
                        return Ok(());
                    };
                    let buf = AlignedBuf::unpooled(len);
                    let data = reader.read_data(buf, from, len).await?;
                    self.send_raw(data.as_slice()).await?;
                }
                SendStopped::Broken(error) => return Err(failed(error)),
            }
        }
    }

    /// The next packets, which carry `piece`.
    fn packets_of(&mut self, piece: &Piece) -> VecDeque<CachedPacket> {
        let mut packets = VecDeque::with_capacity(piece.len.div_ceil(self.packet));
        let mut sums = &piece.sums[..];
        let mut left = piece.len;
        while left > 0 {
            let len = left.min(self.packet);
            let (these, rest) = sums.split_at(self.range.checksum.sums_len(len));
            let mut head =
                BytesMut::with_capacity(self.head.len() + MAX_PREFIX_BYTES + these.len());
            head.extend_from_slice(&std::mem::take(&mut self.head));
            self.next(len, these.len(), &mut head);
            head.extend_from_slice(these);
            packets.push_back(CachedPacket {
                head: head.freeze(),
                data: len,
            });
            sums = rest;
            left -= len;
        }
        packets
    }

    /// Sends bytes of a packet whose prefix has been sent.
    async fn send_raw(&mut self, data: &[u8]) -> Result<(), XferError> {
        self.conn
            .write_all(data)
            .await
            .map_err(|e| self.conn.socket_error(e))
    }

    /// Sends the empty last packet if that has not been done.
    async fn end(mut self) -> Result<(), XferError> {
        if self.ended {
            return Ok(());
        }
        let mut out = BytesMut::with_capacity(self.head.len() + MAX_PREFIX_BYTES);
        out.extend_from_slice(&self.head);
        self.last(&mut out);
        self.send_raw(&out).await
    }

    /// Adds the empty last packet to `out`.
    fn last(&mut self, out: &mut BytesMut) {
        self.header(0, true).encode_prefix(0, out);
        self.ended = true;
    }

    /// Adds the prefix of the next packet, of `len` data bytes, to `out`.
    fn next(&mut self, len: usize, sums_len: usize, out: &mut BytesMut) {
        self.header(len, false).encode_prefix(sums_len, out);
        self.offset += len as u64;
        self.seqno += 1;
    }

    fn header(&self, data_len: usize, last: bool) -> PacketHeader {
        PacketHeader {
            offset_in_block: self.offset,
            seqno: self.seqno,
            last_packet_in_block: last,
            data_len: u32::try_from(data_len).expect("a packet is far smaller than 4 GiB"),
            sync_block: false,
        }
    }
}
