//! Replica data into a socket, as packets: for readers, copies and transfers.
//!
//! - `checksums`: checksums of a replica on its way to a socket: read for many pieces at a time
//! - `from_cache`: packets whose data the kernel takes from the page cache (sendfile)
//! - `packets`: a range of a replica as a stream of packets
//! - `range`: which bytes a reader gets: whole chunks, because only they have checksums
//! - `source`: pieces of a replica on their way to a socket
//!
//! Data goes out in pieces, the next ones being read while one is sent.
//!
//! - What is not in the page cache is read through the volume's engine in large pieces into pooled
//!   buffers. Each goes out in one gathered write: packet prefixes and checksums beside the data.
//! - What is in the page cache is sent from there by descriptor (sendfile), without a copy on this
//!   side, by threads of the disk. Short reads are copied: they are over before asking where the
//!   data are has paid.
//!
//! Where a parity group has the replica, data is compared with its checksums before it goes out:
//! what differs is decoded, and no reader meets the damage.
//!
//! Why is in docs/decisions/0006.

pub mod checksums;
mod from_cache;
pub mod packets;
pub mod range;
pub mod source;

use std::time::Duration;

use bytes::Bytes;
use hayloft_io::{Advice, BufferPool};
use hayloft_store::ReplicaReader;
use tokio::time::Instant;

use crate::activity::{NodeActivity, OpParts, Timed, nanos};
use crate::xceiver::block_sender::packets::Packets;
use crate::xceiver::block_sender::range::Range;
use crate::xceiver::block_sender::source::{Ahead, Body, Piece};
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::net::throttle::Throttle;
use crate::xceiver::stats::XceiverStats;

/// Data in a packet of a short read, and in one that becomes a protected message, rounded to whole
/// chunks: Apache's size without other configuration.
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
    /// Bytes of checksums that went with them.
    pub sums: u64,
    /// Where the time went.
    pub parts: OpParts,
}

/// Where the time of a stream goes.
#[derive(Debug, Default)]
struct Clock {
    parts: OpParts,
    packets: u64,
}

impl Clock {
    /// Gives what each packet took, in the mean, to `activity`. Of the time of the network the
    /// reader took nothing for `blocked` nanoseconds.
    fn give(&self, activity: &NodeActivity, blocked: u64) {
        let sending = nanos(self.parts.network).saturating_sub(blocked);
        activity.took_together(
            Timed::SendDataPacketBlockedOnNetworkNanos,
            self.packets,
            blocked,
        );
        activity.took_together(Timed::SendDataPacketTransferNanos, self.packets, sending);
    }
}

/// The time since `at`, which becomes now.
fn lap(at: &mut Instant) -> Duration {
    let now = Instant::now();
    now - std::mem::replace(at, now)
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
    /// Each packet goes as a message, see [`Conn::in_messages`].
    pub in_messages: bool,
}

impl BlockSender<'_> {
    /// Sends `head`, then the range in packets, then the empty last packet.
    ///
    /// # Errors `Store` when reading failed, `Socket` when sending did. In both cases the stream is
    /// cut off in the middle, and only closing the connection tells the peer.
    pub async fn send(&self, conn: &Conn, head: Bytes) -> Result<Sent, XferError> {
        let mut packets = Packets::new(conn, self.range, self.packet_data(), head);
        let mut ahead = Ahead::new(self);
        let (mut by_descriptor, mut sums) = (0, 0);
        let mut turn = 0;
        let mut clock = Clock::default();
        let blocked = conn.waited_nanos();
        let mut at = Instant::now();
        while let Some(piece) = ahead.next().await? {
            clock.parts.disk += lap(&mut at);
            let waits = conn.waits();
            self.send_piece(&mut packets, &piece).await?;
            clock.parts.network += lap(&mut at);
            sums += piece.sums.len() as u64;
            clock.packets += piece.len.div_ceil(self.packet_data()) as u64;
            let waited = conn.waits() > waits;
            if matches!(piece.body, Body::Resident) {
                by_descriptor += piece.len as u64;
            }
            for throttle in self.throttles {
                throttle.take(piece.len as u64).await;
            }
            clock.parts.waiting += lap(&mut at);
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
        clock.parts.network += lap(&mut at);
        clock.give(&self.stats.activity, conn.waited_nanos() - blocked);
        self.hint_ahead().await;
        Ok(Sent {
            bytes: self.range.len(),
            by_descriptor,
            sums,
            parts: clock.parts,
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
        let packet = if self.range.len() > LONG_READ && !self.in_messages {
            PACKET_DATA_LONG
        } else {
            PACKET_DATA
        };
        (packet / chunk).max(1) * chunk
    }

    /// Sends one piece.
    async fn send_piece(
        &self,
        packets: &mut Packets<&Conn>,
        piece: &Piece,
    ) -> Result<(), XferError> {
        if let Body::Read(data) = &piece.body {
            return packets.send_read(self.reader, piece, data.as_slice()).await;
        }
        packets.send_from(self.reader, piece).await
    }
}
