//! Packets received straight to their place in write buffers.
//!
//! While a stream runs, its packets have all the same shape, and the kernel has several of them at
//! a time. So one gather read puts them where they belong, before anything of them is known. The
//! heads (lengths, header, checksums) lie side by side in memory of our own, the data behind each
//! other in the replica's write buffers. Then the heads are read. A packet that is not what was
//! guessed, such as the last one, ends the guessing. What was received from its first byte on is
//! put together again in the order of the stream, for the usual way of receiving.

use std::io::{self, IoSliceMut};
use std::sync::Arc;

use bytes::Bytes;
use hayloft_io::{ReservedRoom, WriteBuffers};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::packet::{PacketHeader, PacketLayout};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::xceiver::net::conn::Conn;
use crate::xceiver::packet::{CheckedPacket, ParseError};

/// Packets that one read may take.
const PACKETS_MAX: usize = 8;

/// Bytes of data that are reserved at a time, at most.
const DATA_MAX: usize = 1 << 20;

/// Less data than this in a packet is not worth a place of its own.
const DATA_MIN: usize = 8 << 10;

/// Packets in a row of the same shape after which more of them are expected.
const STREAK: u32 = 3;

/// Every boundary of memory that data can be received into is a multiple of this in the block.
const GRID: usize = hayloft_io::WRITE_BUFFER;

/// The lengths of a packet's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    prefix: usize,
    sums: usize,
    data: usize,
}

impl Shape {
    fn head(self) -> usize {
        self.prefix + self.sums
    }

    fn whole(self) -> usize {
        self.head() + self.data
    }
}

/// Learns from the packets of a stream what the next ones will be.
#[derive(Debug)]
pub struct Guess {
    checksum: DataChecksum,
    shape: Option<Shape>,
    /// Where the data of the next packet is expected.
    offset: u64,
    streak: u32,
}

impl Guess {
    /// For packets with this checksum.
    #[must_use]
    pub fn new(checksum: DataChecksum) -> Self {
        Self {
            checksum,
            shape: None,
            offset: 0,
            streak: 0,
        }
    }

    /// What the stream's checksums are of.
    #[must_use]
    pub fn checksum(&self) -> DataChecksum {
        self.checksum
    }

    /// A packet came, which the parser took.
    pub fn learn(&mut self, layout: &PacketLayout) {
        let header = &layout.header;
        if header.is_heartbeat() {
            return;
        }
        let (data, sums) = (layout.data_len, layout.sums_len);
        let shape = Shape {
            prefix: layout.prefix_len,
            sums,
            data,
        };
        let offset = header.offset_in_block;
        let chunk = self.checksum.chunk_size();
        let regular = GRID.is_multiple_of(chunk)
            && data.is_multiple_of(chunk)
            && offset.is_multiple_of(chunk as u64)
            && (sums > 0 || self.checksum.sum_size() == 0)
            && (DATA_MIN..=DATA_MAX).contains(&data)
            && !header.sync_block
            && !header.last_packet_in_block;
        let goes_on = self.shape == Some(shape) && self.offset == offset;
        self.streak = match (regular, goes_on) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => self.streak.saturating_add(1),
        };
        self.shape = regular.then_some(shape);
        self.offset = offset.saturating_add(data as u64);
    }

    /// So many packets came as guessed.
    pub fn went_on(&mut self, packets: usize) {
        let data = self.shape.map_or(0, |shape| shape.data);
        self.offset = self.offset.saturating_add((packets * data) as u64);
    }

    /// The guess was wrong.
    pub fn forget(&mut self) {
        self.streak = 0;
    }

    /// Whether a guess is worth it.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.streak >= STREAK
    }
}

/// A read in place that is going on.
#[derive(Debug)]
pub struct InPlace {
    _place: OwnedSemaphorePermit,
    reserved: ReservedRoom,
    checksum: DataChecksum,
    shape: Shape,
    /// Offset in the block of the first packet's data.
    offset: u64,
    /// Packets that there is room for.
    count: usize,
    /// The heads of all of them.
    heads: Vec<u8>,
    /// Bytes received.
    got: usize,
    /// Packets given out.
    done: usize,
    /// Headers of the packets behind them whose head is what was guessed.
    headers: Vec<PacketHeader>,
}

/// What was found in the bytes received in place.
#[derive(Debug)]
pub struct FoundPackets {
    /// Complete packets, and the bytes that they came as.
    pub packets: Vec<CheckedPacket>,
    /// The same, byte for byte.
    pub raw: Vec<Bytes>,
    /// The guess was wrong: the stream from the first unexpected packet on.
    pub rest: Option<Vec<u8>>,
}

impl InPlace {
    /// Expects more packets like the last ones; `seed` are bytes of the first that were received
    /// already. `None` when there is no room for them in place now, or as many streams as there are
    /// `places` have some.
    #[must_use]
    pub fn begin(
        places: &Arc<Semaphore>,
        receive_buffers: &WriteBuffers,
        guess: &Guess,
        seed: &[u8],
    ) -> Option<Self> {
        let place = Arc::clone(places).try_acquire_owned().ok()?;
        let shape = guess.shape.filter(|shape| shape.whole() > seed.len())?;
        let count = PACKETS_MAX.min(DATA_MAX / shape.data);
        let reserved = receive_buffers.try_reserve(guess.offset, count * shape.data)?;
        let mut this = Self {
            _place: place,
            reserved,
            checksum: guess.checksum,
            shape,
            offset: guess.offset,
            count,
            heads: vec![0; count * shape.head()],
            got: 0,
            done: 0,
            headers: Vec::with_capacity(count),
        };
        this.with_room(|room| {
            let mut seed = seed;
            for piece in room {
                let now = seed.len().min(piece.len());
                piece[..now].copy_from_slice(&seed[..now]);
                seed = &seed[now..];
            }
        });
        this.got = seed.len();
        Some(this)
    }

    /// Nothing of a packet was received that was not given out.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.got == self.done * self.shape.whole()
    }

    /// Everything that there was room for was received and given out.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.done == self.count
    }

    /// Reads what is there: `None` when nothing is.
    ///
    /// # Errors
    /// The connection broke.
    pub fn read(&mut self, conn: &Conn) -> io::Result<Option<usize>> {
        let read = self.with_room(|room| conn.read_ready_vectored(room));
        if let Ok(Some(n)) = read {
            self.got += n;
        }
        read
    }

    /// The memory for the bytes of the stream that come next, in order.
    fn with_room<T>(&mut self, work: impl FnOnce(&mut [IoSliceMut<'_>]) -> T) -> T {
        let Shape { data, .. } = self.shape;
        let head = self.shape.head();
        let (first, within) = (self.got / self.shape.whole(), self.got % self.shape.whole());
        // Of data that was received and not given out.
        let mut skip = (first - self.done) * data + within.saturating_sub(head);
        let mut unfilled = self.reserved.unfilled();
        let mut segments = unfilled.iter_mut().map(|slice| &mut slice[..]);
        let mut segment: &mut [u8] = &mut [];
        let mut room = Vec::with_capacity(2 * (self.count - first) + 4);
        let heads = self.heads[first * head..].chunks_exact_mut(head);
        for (number, bytes) in heads.enumerate() {
            let before = if number == 0 { within } else { 0 };
            let bytes = &mut bytes[before.min(head)..];
            if !bytes.is_empty() {
                room.push(IoSliceMut::new(bytes));
            }
            let mut want = data - before.saturating_sub(head);
            while skip + want > 0 {
                if segment.is_empty() {
                    let Some(next) = segments.next() else { break };
                    segment = next;
                }
                if skip > 0 {
                    let now = skip.min(segment.len());
                    segment = &mut segment[now..];
                    skip -= now;
                    continue;
                }
                let now = want.min(segment.len());
                let (bytes, behind) = segment.split_at_mut(now);
                room.push(IoSliceMut::new(bytes));
                segment = behind;
                want -= now;
            }
        }
        work(&mut room)
    }

    /// Reads the heads of what was received and takes the complete packets.
    ///
    /// # Errors
    /// Bytes that are no packet.
    pub fn find(&mut self, max_packet: u32) -> Result<FoundPackets, ParseError> {
        let (head, whole) = (self.shape.head(), self.shape.whole());
        let mut wrong = false;
        loop {
            let next = self.done + self.headers.len();
            if next == self.count {
                break;
            }
            let there = self.got.saturating_sub(next * whole).min(head);
            let bytes = &self.heads[next * head..][..there];
            let Some(layout) = PacketLayout::peek(bytes, max_packet)? else {
                break;
            };
            if !self.is_expected(&layout, next) {
                wrong = true;
                break;
            }
            self.headers.push(layout.header);
        }
        let complete = (self.got / whole - self.done).min(self.headers.len());
        let (packets, raw) = self.give_out(complete)?;
        // Complete packets come first; the wrong one follows them.
        let rest = (wrong && self.headers.is_empty()).then(|| self.put_together());
        Ok(FoundPackets { packets, raw, rest })
    }

    fn is_expected(&self, layout: &PacketLayout, number: usize) -> bool {
        let Shape { prefix, sums, data } = self.shape;
        let offset = self.offset + (number * data) as u64;
        let header = &layout.header;
        (layout.prefix_len, layout.sums_len, layout.data_len) == (prefix, sums, data)
            && header.offset_in_block == offset
            && !header.last_packet_in_block
            && !header.sync_block
    }

    /// Takes the next `count` packets, which are complete.
    fn give_out(&mut self, count: usize) -> Result<(Vec<CheckedPacket>, Vec<Bytes>), ParseError> {
        let Shape { prefix, data, .. } = self.shape;
        let head = self.shape.head();
        if count == 0 {
            return Ok((Vec::new(), Vec::new()));
        }
        let heads = &self.heads[self.done * head..][..count * head];
        let heads = Bytes::copy_from_slice(heads);
        self.reserved.advance(count * data);
        let mut segments = self.reserved.take().into_iter();
        let mut segment = Bytes::new();
        let mut raw = Vec::with_capacity(3 * count);
        let mut packets = Vec::with_capacity(count);
        for (number, header) in self.headers.drain(..count).enumerate() {
            let mut want = data;
            let mut pieces = Vec::with_capacity(1);
            while want > 0 {
                if segment.is_empty() {
                    segment = segments.next().expect("as much as was filled");
                }
                let piece = segment.split_to(want.min(segment.len()));
                want -= piece.len();
                pieces.push(piece);
            }
            let head = heads.slice(number * head..(number + 1) * head);
            let sums = head.slice(prefix..);
            raw.push(head);
            raw.extend(pieces.iter().cloned());
            packets.push(CheckedPacket::new(
                &header,
                self.checksum,
                pieces.into(),
                sums,
            )?);
        }
        self.done += count;
        Ok((packets, raw))
    }

    /// What was received and not given out, in the order of the stream.
    fn put_together(&mut self) -> Vec<u8> {
        let (head, whole) = (self.shape.head(), self.shape.whole());
        let (done, got) = (self.done, self.got);
        let mut stream = vec![0; got - done * whole];
        // The heads, with gaps for the data, then the data into the gaps.
        for (number, packet) in stream.chunks_mut(whole).enumerate() {
            let there = packet.len().min(head);
            packet[..there].copy_from_slice(&self.heads[(done + number) * head..][..there]);
        }
        let unfilled = self.reserved.unfilled();
        let mut segments = unfilled.iter().map(|segment| &segment[..]);
        let mut segment: &[u8] = &[];
        for packet in stream.chunks_mut(whole) {
            let mut gap = packet.get_mut(head..).unwrap_or_default();
            while !gap.is_empty() {
                if segment.is_empty() {
                    let Some(next) = segments.next() else { break };
                    segment = next;
                }
                let now = gap.len().min(segment.len());
                gap[..now].copy_from_slice(&segment[..now]);
                segment = &segment[now..];
                gap = &mut gap[now..];
            }
        }
        stream
    }
}
