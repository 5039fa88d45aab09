//! A range of a replica as a stream of packets.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hayloft_io::AlignedBuf;
use hayloft_store::ReplicaReader;
use hayloft_wire::packet::{MAX_PREFIX_BYTES, PacketHeader};

use super::from_cache::{CachedPacket, PacketCheck, SendStopped, Sending};
use super::range::Range;
use super::source::Piece;
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;

/// The stream of packets of a range, into a connection that it holds or borrows.
#[derive(Debug)]
pub struct Packets<C> {
    conn: C,
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

impl<C: Borrow<Conn>> Packets<C> {
    /// A stream of `range` in packets of `packet` data bytes, whole chunks, after `head`.
    #[must_use]
    pub fn new(conn: C, range: Range, packet: usize, head: Bytes) -> Self {
        Self {
            conn,
            range,
            packet,
            offset: range.start,
            seqno: 0,
            head,
            ended: false,
        }
    }

    fn conn(&self) -> &Conn {
        self.conn.borrow()
    }

    fn failed(&self, error: std::io::Error) -> XferError {
        self.conn().socket_error(error)
    }

    /// Sends `data`, the next bytes of the range, as packets in one gathered write, or each in one
    /// of its own where that becomes a message. The empty last packet goes with it if nothing
    /// follows.
    ///
    /// # Errors
    /// `Socket` when the connection broke, or the peer took nothing for too long.
    pub async fn send(&mut self, data: &[u8], sums: &[u8]) -> Result<(), XferError> {
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
        let at_once = match self.conn().in_messages() {
            true => 1,
            false => count,
        };
        let mut head = std::mem::take(&mut self.head);
        for parts in parts.chunks(at_once) {
            let mut slices = Vec::with_capacity(3 * parts.len() + 1);
            slices.push(IoSlice::new(&head));
            for (prefix, sums, data) in parts {
                slices.extend([IoSlice::new(prefix), IoSlice::new(sums), IoSlice::new(data)]);
            }
            let sent = self.conn().write_all_vectored(&mut slices).await;
            sent.map_err(|e| self.failed(e))?;
            head = Bytes::new();
        }
        Ok(())
    }

    /// Sends the data of `piece` from the page cache as packets.
    ///
    /// # Errors
    /// `Store` when reading failed, `Socket` when sending did.
    pub(super) async fn send_from(
        &mut self,
        reader: &ReplicaReader,
        piece: &Piece,
    ) -> Result<(), XferError> {
        let socket = self.conn().duplicate().map_err(|e| self.failed(e))?;
        let mut sending = Sending {
            socket: Arc::new(socket),
            offset: piece.offset,
            packets: self.packets_of(piece),
            check: self.checks(reader).then(|| PacketCheck {
                checksum: self.range.checksum,
                passed: false,
                scratch: Vec::with_capacity(self.packet.min(piece.len)),
            }),
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
                SendStopped::Full => {
                    let room = self.conn().wait_for_room().await;
                    room.map_err(|e| self.failed(e))?;
                }
                SendStopped::Damaged => {
                    let Some((from, packet)) = sending.take_first() else {
                        return Ok(());
                    };
                    self.send_mended(reader, from, packet).await?;
                }
                SendStopped::Short => {
                    // The file is cut or broken: reading says what it is.
                    let Some((from, packet)) = sending.take_first() else {
                        return Ok(());
                    };
                    let buf = AlignedBuf::unpooled(packet.data);
                    let data = reader.read_data(buf, from, packet.data).await?;
                    self.send_raw(data.as_slice()).await?;
                }
                SendStopped::Broken(error) => return Err(self.failed(error)),
            }
        }
    }

    /// Whether data is compared with its checksums before it is sent: what differs can be decoded
    /// then. A client that wants no checksums gets what is there.
    fn checks(&self, reader: &ReplicaReader) -> bool {
        reader.is_protected() && self.range.checksum.sum_size() > 0
    }

    /// Sends the data of a piece that was read, decoded where it differs from its checksums.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(super) async fn send_read(
        &mut self,
        reader: &ReplicaReader,
        piece: &Piece,
        data: &[u8],
    ) -> Result<(), XferError> {
        let sums = &piece.sums;
        if self.checks(reader)
            && self.range.checksum.verify(data, sums).is_err()
            && let Some((data, sums)) = reader.mend(piece.offset, piece.len).await
        {
            return self.send(data.as_slice(), &sums).await;
        }
        self.send(data, sums).await
    }

    /// Sends a packet whose data in the file, from `offset` on, differs from its checksums:
    /// decoded, or as it is where that cannot be done. The client finds the damage then.
    async fn send_mended(
        &self,
        reader: &ReplicaReader,
        offset: u64,
        packet: CachedPacket,
    ) -> Result<(), XferError> {
        let CachedPacket { head, sums, data } = packet;
        let (prefix, old) = head.split_at(head.len() - sums);
        let (data, sums) = match reader.mend(offset, data).await {
            Some(mended) => mended,
            None => {
                let buf = AlignedBuf::unpooled(data);
                let there = reader.read_data(buf, offset, data).await?;
                (there, Bytes::copy_from_slice(old))
            }
        };
        let mut slices = [prefix, &sums, data.as_slice()].map(IoSlice::new);
        let sent = self.conn().write_all_vectored(&mut slices).await;
        sent.map_err(|e| self.failed(e))
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
                sums: these.len(),
                data: len,
            });
            sums = rest;
            left -= len;
        }
        packets
    }

    /// Sends bytes of a packet whose prefix has been sent.
    async fn send_raw(&mut self, data: &[u8]) -> Result<(), XferError> {
        let sent = self.conn().write_all(data).await;
        sent.map_err(|e| self.failed(e))
    }

    /// Sends the empty last packet if that has not been done.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn end(mut self) -> Result<(), XferError> {
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
