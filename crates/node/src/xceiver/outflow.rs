//! Replica data into a socket, as packets: for readers, copies and transfers.
//!
//! Data goes out in large pieces. A piece that is in the page cache is sent from there inside the
//! kernel. Any other is read from the store, while the one before it is being sent, and goes out in one gathered
//! write: packet prefixes and checksums beside the data. Sending 256 MiB that are cached cost 28 ms of
//! processor time from the page cache and 60 ms by reading (two-core virtual machine, loopback); sending
//! what is not cached would block a thread that serves other connections.

use std::io::{self, IoSlice};

use bytes::{Bytes, BytesMut};
use hayloft_io::{Advice, AlignedBuf, BufferPool};
use hayloft_store::{ReplicaReader, StoreError, StoreErrorKind};
use hayloft_wire::packet::{MAX_PREFIX_BYTES, PacketHeader};

use super::conn::Conn;
use super::error::XferError;
use super::range::Range;
use super::throttle::Throttle;

/// Data in a packet, rounded to whole chunks: Apache's size, which every client is known to take.
const PACKET_DATA: usize = 64 << 10;

/// Data read from the store at a time, and when memory is short.
const PIECE: usize = 512 << 10;
const PIECE_SHORT_OF_MEMORY: usize = 64 << 10;

/// A read longer than this is worth reading ahead and dropping behind without being asked to.
const LONG_READ: u64 = 256 << 10;

/// What to do with the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachePolicy {
    /// Bytes to ask for ahead of the reader; 0 for none.
    pub readahead: u64,
    /// Ask also for short reads.
    pub always_readahead: bool,
    /// Drop what was sent.
    pub drop_behind: bool,
    /// Drop also after short reads.
    pub always_drop: bool,
}

/// One replica on its way out.
#[derive(Debug)]
pub struct Outflow<'a> {
    /// Where it is read.
    pub reader: &'a ReplicaReader,
    /// What is sent.
    pub range: Range,
    /// Page cache.
    pub cache: CachePolicy,
    /// Memory for the data.
    pub memory: &'a BufferPool,
    /// Limits that apply; each one is charged.
    pub throttles: &'a [&'a Throttle],
    /// Cached data may be sent inside the kernel (`dfs.datanode.transferTo.allowed`).
    pub sendfile: bool,
}

/// A piece of data, ready to be sent.
struct Piece {
    offset: u64,
    len: usize,
    data: Data,
    sums: Bytes,
}

/// Where the data of a piece is.
enum Data {
    /// In memory.
    Read(AlignedBuf),
    /// In the page cache.
    Cached,
}

impl Outflow<'_> {
    /// Sends `head`, then the range in packets, then the empty last packet. Returns the data bytes sent.
    ///
    /// # Errors
    /// `Store` when reading failed, `Socket` when sending did; in both cases the stream is cut off
    /// in the middle, and only closing the connection tells the peer.
    pub async fn send(&self, conn: &Conn, head: Bytes) -> Result<u64, XferError> {
        let mut head = head;
        let mut seqno = 0;
        let mut ahead_until = self.range.start;
        let mut next = self.read(self.range.start).await?;
        while let Some(piece) = next.take() {
            let end = piece.offset + piece.len as u64;
            let last = end == self.range.end;
            ahead_until = self.read_ahead(end, ahead_until).await;
            let (sent, read) = tokio::join!(
                self.send_piece(conn, &head, &piece, seqno, last),
                self.read(end)
            );
            sent?;
            head = Bytes::new();
            seqno += i64::try_from(piece.len.div_ceil(self.packet_data())).unwrap_or(i64::MAX);
            for throttle in self.throttles {
                throttle.take(piece.len as u64).await;
            }
            if self.cache.drop_behind && (self.cache.always_drop || self.range.len() > LONG_READ) {
                self.reader
                    .advise(Advice::DontNeed, piece.offset, piece.len as u64)
                    .await;
            }
            next = read?;
            // A fast reader of cached data would otherwise have the thread to itself.
            tokio::task::yield_now().await;
        }
        if self.range.len() == 0 {
            self.send_empty(conn, &head).await?;
        }
        Ok(self.range.len())
    }

    /// Data bytes of a full packet.
    fn packet_data(&self) -> usize {
        let chunk = self.range.checksum.chunk_size();
        (PACKET_DATA / chunk).max(1) * chunk
    }

    /// Reads the piece at `offset`; `None` at the end of the range.
    async fn read(&self, offset: u64) -> Result<Option<Piece>, StoreError> {
        let left = self.range.end - offset;
        if left == 0 {
            return Ok(None);
        }
        let packet = self.packet_data();
        let whole = |bytes: usize| (bytes / packet).max(1) * packet;
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let wanted = whole(PIECE).min(left);
        if self.is_cached(offset, wanted) {
            let sums = self.sums(offset, wanted).await?;
            return Ok(Some(Piece {
                offset,
                len: wanted,
                data: Data::Cached,
                sums,
            }));
        }
        let (buf, len) = match self.memory.try_acquire(wanted) {
            Ok(Some(buf)) => (buf, wanted),
            // Slow readers hold the memory. A small buffer of one's own keeps every reader going.
            Ok(None) | Err(_) => {
                let len = whole(PIECE_SHORT_OF_MEMORY).min(left);
                (AlignedBuf::unpooled(len), len)
            }
        };
        let (data, sums) = tokio::join!(
            self.reader.read_data(buf, offset, len),
            self.sums(offset, len)
        );
        Ok(Some(Piece {
            offset,
            len,
            data: Data::Read(data?),
            sums: sums?,
        }))
    }

    fn is_cached(&self, offset: u64, len: usize) -> bool {
        self.sendfile
            && self
                .reader
                .data_fd()
                .is_some_and(|fd| hayloft_io::is_resident(fd, offset, len as u64))
    }

    /// Checksums of the chunks of `len` bytes at `offset`.
    async fn sums(&self, offset: u64, len: usize) -> Result<Bytes, StoreError> {
        if self.range.checksum.sum_size() == 0 {
            return Ok(Bytes::new());
        }
        let chunk = u64::from(self.range.checksum.bytes_per_checksum());
        self.reader
            .read_sums(offset / chunk, (len as u64).div_ceil(chunk))
            .await
    }

    /// Sends one piece: `head`, then packet after packet, then the empty last packet if it is the last piece.
    async fn send_piece(
        &self,
        conn: &Conn,
        head: &Bytes,
        piece: &Piece,
        first_seqno: i64,
        last: bool,
    ) -> Result<(), XferError> {
        match &piece.data {
            Data::Read(data) => {
                self.send_read(conn, head, piece, data.as_slice(), first_seqno, last)
                    .await
            }
            Data::Cached => self.send_cached(conn, head, piece, first_seqno, last).await,
        }
    }

    async fn send_read(
        &self,
        conn: &Conn,
        head: &Bytes,
        piece: &Piece,
        data: &[u8],
        first_seqno: i64,
        last: bool,
    ) -> Result<(), XferError> {
        let packet = self.packet_data();
        let mut seqno = first_seqno;
        let mut offset = piece.offset;
        let count = data.len().div_ceil(packet) + 1;
        let mut prefixes = BytesMut::with_capacity(count * MAX_PREFIX_BYTES);
        let mut parts = Vec::with_capacity(count);
        let mut sums_at = 0;
        for data in data.chunks(packet) {
            let sums_len = self.range.checksum.sums_len(data.len());
            let header = self.header(offset, seqno, data.len(), false);
            header.encode_prefix(sums_len, &mut prefixes);
            parts.push((
                prefixes.split().freeze(),
                &piece.sums[sums_at..sums_at + sums_len],
                data,
            ));
            sums_at += sums_len;
            seqno += 1;
            offset += data.len() as u64;
        }
        if last {
            self.header(offset, seqno, 0, true)
                .encode_prefix(0, &mut prefixes);
            parts.push((prefixes.split().freeze(), &[], &[]));
        }
        let mut slices = Vec::with_capacity(3 * parts.len() + 1);
        slices.push(IoSlice::new(head));
        for (prefix, sums, data) in &parts {
            slices.extend([IoSlice::new(prefix), IoSlice::new(sums), IoSlice::new(data)]);
        }
        conn.write_all_vectored(&mut slices)
            .await
            .map_err(|e| conn.socket_error(e))
    }

    async fn send_cached(
        &self,
        conn: &Conn,
        head: &Bytes,
        piece: &Piece,
        first_seqno: i64,
        last: bool,
    ) -> Result<(), XferError> {
        let Some(file) = self.reader.data_fd() else {
            return Err(StoreError::new(
                StoreErrorKind::Illegal,
                "a cached piece of a replica without descriptor",
            )
            .into());
        };
        let packet = self.packet_data();
        let mut seqno = first_seqno;
        let mut offset = piece.offset;
        let mut left = piece.len;
        let mut sums = piece.sums.clone();
        let mut front = BytesMut::from(&head[..]);
        while left > 0 {
            let len = packet.min(left);
            let sums_len = self.range.checksum.sums_len(len);
            front.reserve(MAX_PREFIX_BYTES + sums_len);
            self.header(offset, seqno, len, false)
                .encode_prefix(sums_len, &mut front);
            front.extend_from_slice(&sums.split_to(sums_len));
            conn.write_with_more(&front)
                .await
                .map_err(|e| conn.socket_error(e))?;
            conn.send_file(file, offset, len)
                .await
                .map_err(|e| self.file_or_socket(conn, e))?;
            front.clear();
            seqno += 1;
            offset += len as u64;
            left -= len;
        }
        if last {
            self.header(offset, seqno, 0, true)
                .encode_prefix(0, &mut front);
            conn.write_all(&front)
                .await
                .map_err(|e| conn.socket_error(e))?;
        }
        Ok(())
    }

    /// Which end of sendfile failed.
    fn file_or_socket(&self, conn: &Conn, error: io::Error) -> XferError {
        let block = self.reader.block();
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return StoreError::new(
                StoreErrorKind::Corrupt,
                format!("the data file of {block} ends too soon"),
            )
            .into();
        }
        if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) {
            return StoreError::new(
                StoreErrorKind::Io,
                format!("sending {block} from its file: {error}"),
            )
            .into();
        }
        conn.socket_error(error)
    }

    async fn send_empty(&self, conn: &Conn, head: &Bytes) -> Result<(), XferError> {
        let mut out = BytesMut::with_capacity(head.len() + MAX_PREFIX_BYTES);
        out.extend_from_slice(head);
        self.header(self.range.end, 0, 0, true)
            .encode_prefix(0, &mut out);
        conn.write_all(&out).await.map_err(|e| conn.socket_error(e))
    }

    fn header(&self, offset: u64, seqno: i64, data_len: usize, last: bool) -> PacketHeader {
        PacketHeader {
            offset_in_block: i64::try_from(offset).expect("block lengths fit 63 bits"),
            seqno,
            last_packet_in_block: last,
            data_len: u32::try_from(data_len).expect("a packet is far smaller than 4 GiB"),
            sync_block: false,
        }
    }

    /// Asks the system for the bytes ahead of `position` when half of what was asked for is used up.
    async fn read_ahead(&self, position: u64, until: u64) -> u64 {
        let window = self.cache.readahead;
        let wanted = window > 0 && (self.cache.always_readahead || self.range.len() > LONG_READ);
        if !wanted || until >= self.range.end || until.saturating_sub(position) > window / 2 {
            return until;
        }
        let from = until.max(position);
        let to = position.saturating_add(window).min(self.range.end);
        if to > from {
            self.reader.advise(Advice::WillNeed, from, to - from).await;
        }
        to
    }
}
