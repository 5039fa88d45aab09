//! Packets out of a socket, in batches, without copying their data.
//!
//! Bytes are read into large pooled buffers. When a packet is complete and the socket has nothing
//! more at once, the complete packets are cut off as one [`PacketBatch`]. They are slices of the
//! buffer, which goes back to its pool when the last of them is dropped. Only the part of a packet
//! that had arrived behind them is copied, to the front of the next buffer.
//!
//! Memory: a stream that waits for its peer holds no buffer. When the pool is used up, a stream
//! with batches still on their way waits for them. One without goes on with a small buffer of its
//! own, so that no stream can starve.

use std::io::IoSliceMut;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use futures_util::future::BoxFuture;
use hayloft_io::{AlignedBuf, BufferPool, WriteBuffers};
use hayloft_wire::checksum::DataChecksum;
use hayloft_wire::packet::PacketLayout;
use tokio::sync::Semaphore;

use crate::xceiver::context::Xceivers;
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::packet::buffer_wait::{BUFFER_MAX, BUFFER_MIN, BufferWait};
use crate::xceiver::packet::in_place::{FoundPackets, Guess, InPlace};
use crate::xceiver::packet::{CheckedPacket, PacketBatch, ParseError};

/// The receiving end of a stream of packets.
pub struct PacketReceiver {
    memory: BufferPool,
    max_packet: u32,
    /// Received bytes that belong to no run yet are `buf[..filled]`.
    buf: Option<AlignedBuf>,
    filled: usize,
    size: usize,
    token: Arc<()>,
    progress: bool,
    /// Where packets can be received in place.
    receive_buffers: Option<WriteBuffers>,
    places: Arc<Semaphore>,
    guess: Guess,
    place: Option<InPlace>,
    /// The wait for a buffer.
    waiting: Option<BoxFuture<'static, Result<AlignedBuf, XferError>>>,
}

impl PacketReceiver {
    /// Starts with `inbox`, which was received already. With `receive_buffers` the data of a stream
    /// that
    /// runs is received into write buffers.
    #[must_use]
    pub fn new(
        x: &Xceivers,
        max_packet: u32,
        checksum: DataChecksum,
        receive_buffers: Option<WriteBuffers>,
        inbox: &BytesMut,
    ) -> Self {
        let mut this = Self {
            memory: x.memory().clone(),
            max_packet,
            buf: None,
            filled: 0,
            size: BUFFER_MIN,
            token: Arc::new(()),
            progress: false,
            receive_buffers,
            places: Arc::clone(x.places()),
            guess: Guess::new(checksum),
            place: None,
            waiting: None,
        };
        if !inbox.is_empty() {
            let mut buf = AlignedBuf::unpooled(inbox.len().max(BUFFER_MIN));
            buf.extend_from_slice(inbox);
            this.filled = inbox.len();
            this.buf = Some(buf);
        }
        this
    }

    /// Takes all complete packets, at least one. The caller watches for silence.
    ///
    /// # Errors
    /// `Socket` when the stream ends or breaks; `Protocol` for bytes that are no packet.
    pub fn poll_next(
        &mut self,
        conn: &Conn,
        cx: &mut Context<'_>,
    ) -> Poll<Result<PacketBatch, XferError>> {
        loop {
            if self.place.is_some() {
                if let Some(run) = ready!(self.poll_place(conn, cx))? {
                    return Poll::Ready(Ok(run));
                }
                continue;
            }
            let needed = match self.complete(conn)? {
                Complete::PacketBatch(run) => return Poll::Ready(Ok(run)),
                Complete::Needs(bytes) => bytes,
            };
            if self.guess.is_ready() && self.receive_buffers.is_some() {
                if self.filled == 0 {
                    self.buf = None; // A stream that waits holds no memory.
                    ready!(conn.poll_readable(cx)).map_err(|e| conn.socket_error(e))?;
                }
                if self.begin_place() {
                    continue;
                }
            }
            ready!(self.poll_receive(conn, needed, cx))?;
        }
    }

    /// Goes on in place, if there is room.
    fn begin_place(&mut self) -> bool {
        let seed = self.buf.as_ref().map_or(&[][..], AlignedBuf::as_slice);
        let receive_buffers = self.receive_buffers.as_ref();
        self.place = receive_buffers.and_then(|receive_buffers| {
            InPlace::begin(&self.places, receive_buffers, &self.guess, seed)
        });
        if self.place.is_some() {
            self.buf = None;
            self.filled = 0;
        }
        self.place.is_some()
    }

    /// Receives in place; nothing when that has come to its end.
    fn poll_place(
        &mut self,
        conn: &Conn,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<PacketBatch>, XferError>> {
        while let Some(place) = &mut self.place {
            let found = place.find(self.max_packet);
            let FoundPackets { packets, raw, rest } =
                found.map_err(|e| XferError::protocol(conn.peer_name(), e))?;
            self.guess.went_on(packets.len());
            if let Some(rest) = rest {
                self.place = None;
                self.guess.forget();
                let mut buf = AlignedBuf::unpooled(rest.len().max(BUFFER_MIN));
                buf.extend_from_slice(&rest);
                self.filled = rest.len();
                self.buf = Some(buf);
            } else if place.is_over() {
                self.place = None;
            }
            if !packets.is_empty() {
                let token = Arc::clone(&self.token);
                return Poll::Ready(Ok(Some(PacketBatch {
                    raw,
                    packets,
                    in_place: true,
                    token,
                })));
            }
            let Some(place) = &mut self.place else { break };
            match place.read(conn).map_err(|e| conn.socket_error(e))? {
                Some(0) => {
                    let ended = std::io::ErrorKind::UnexpectedEof.into();
                    return Poll::Ready(Err(conn.socket_error(ended)));
                }
                Some(_) => self.progress = true,
                None => {
                    if place.is_clean() {
                        self.place = None; // A stream that waits holds no room.
                    }
                    ready!(conn.poll_readable(cx)).map_err(|e| conn.socket_error(e))?;
                }
            }
        }
        Poll::Ready(Ok(None))
    }

    /// Whether bytes arrived since this was last asked.
    pub fn made_progress(&mut self) -> bool {
        std::mem::take(&mut self.progress)
    }

    /// The stream waits for this node, not for its peer.
    #[must_use]
    pub fn waits_for_memory(&self) -> bool {
        self.waiting.is_some()
    }

    /// Cuts off the complete packets, or says how long the first one is as far as is known.
    fn complete(&mut self, conn: &Conn) -> Result<Complete, XferError> {
        let Some(buf) = &self.buf else {
            return Ok(Complete::Needs(0));
        };
        let bytes = buf.as_slice();
        let mut layouts = Vec::new();
        let mut end = 0;
        let mut needed = 0;
        loop {
            match PacketLayout::peek(&bytes[end..], self.max_packet) {
                Ok(Some(layout)) if bytes.len() - end >= layout.total_len() => {
                    let total = layout.total_len();
                    layouts.push((end, layout));
                    end += total;
                }
                Ok(Some(layout)) => {
                    needed = layout.total_len();
                    break;
                }
                Ok(None) => break,
                Err(e) => return Err(XferError::protocol(conn.peer_name(), e)),
            }
        }
        if layouts.is_empty() {
            return Ok(Complete::Needs(needed));
        }
        let batch = self.cut(layouts, end);
        Ok(Complete::PacketBatch(
            batch.map_err(|e| XferError::protocol(conn.peer_name(), e))?,
        ))
    }

    fn cut(
        &mut self,
        layouts: Vec<(usize, PacketLayout)>,
        end: usize,
    ) -> Result<PacketBatch, ParseError> {
        let mut buf = self.buf.take().expect("packets were found in it");
        self.adapt(buf.capacity());
        let rest = self.filled - end;
        if rest > 0 {
            // The rest is less than a packet; a small buffer that is not counted holds it until
            // more comes.
            let mut next = match self.memory.try_acquire(self.size.max(rest)) {
                Ok(Some(next)) => next,
                Ok(None) | Err(_) => AlignedBuf::unpooled(rest.max(BUFFER_MIN)),
            };
            next.extend_from_slice(&buf.as_slice()[end..]);
            self.buf = Some(next);
        }
        self.filled = rest;
        buf.set_len(end);
        let raw = buf.freeze();
        let mut packets = Vec::with_capacity(layouts.len());
        for (at, layout) in layouts {
            let sums_at = at + layout.prefix_len;
            let data_at = sums_at + layout.sums_len;
            let sums = raw.slice(sums_at..data_at);
            let data = raw.slice(data_at..at + layout.total_len());
            let checksum = self.guess.checksum();
            packets.push(CheckedPacket::new(
                &layout.header,
                checksum,
                data.into(),
                sums,
            )?);
            self.guess.learn(&layout);
        }
        Ok(PacketBatch {
            raw: vec![raw],
            packets,
            in_place: false,
            token: Arc::clone(&self.token),
        })
    }

    /// Larger buffers for a stream that fills them, smaller ones for one that does not.
    fn adapt(&mut self, capacity: usize) {
        if self.filled >= capacity {
            self.size = (self.size * 2).min(BUFFER_MAX);
        } else if self.filled < capacity / 4 {
            self.size = (self.size / 2).max(BUFFER_MIN);
        }
    }

    /// Reads what is there, at least one byte, with room for a packet of `needed` bytes.
    fn poll_receive(
        &mut self,
        conn: &Conn,
        needed: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), XferError>> {
        if self.filled == 0 {
            self.buf = None;
            ready!(conn.poll_readable(cx)).map_err(|e| conn.socket_error(e))?;
        }
        let too_small = self
            .buf
            .as_ref()
            .is_none_or(|buf| buf.capacity() <= self.filled || buf.capacity() < needed);
        if too_small {
            let mut buf = ready!(self.poll_buffer(conn, needed, cx))?;
            if let Some(old) = self.buf.take() {
                buf.extend_from_slice(old.as_slice());
            }
            self.buf = Some(buf);
        }
        let buf = self.buf.as_mut().expect("made above");
        let room = &mut buf.as_mut_capacity()[self.filled..];
        match conn.read_ready_vectored(&mut [IoSliceMut::new(room)]) {
            Ok(Some(0)) => {
                let ended = std::io::ErrorKind::UnexpectedEof.into();
                Poll::Ready(Err(conn.socket_error(ended)))
            }
            Ok(Some(n)) => {
                self.filled += n;
                self.progress = true;
                buf.set_len(self.filled);
                Poll::Ready(Ok(()))
            }
            Ok(None) => {
                if self.filled == 0 {
                    self.buf = None; // A stream that waits holds no memory.
                }
                ready!(conn.poll_readable(cx)).map_err(|e| conn.socket_error(e))?;
                Poll::Ready(Ok(()))
            }
            Err(e) => Poll::Ready(Err(conn.socket_error(e))),
        }
    }

    /// A buffer from the pool; a small one of its own for a stream that has nothing else. One that
    /// is larger than those is waited for as long as for a silent peer: it may depend on other
    /// streams.
    fn poll_buffer(
        &mut self,
        conn: &Conn,
        needed: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<AlignedBuf, XferError>> {
        if self.waiting.is_none() {
            let size = self
                .size
                .max(needed)
                .max((self.filled + 1).next_power_of_two());
            if size > self.memory.budget() {
                // Only where the operator allows packets that large.
                return Poll::Ready(Ok(AlignedBuf::unpooled(size)));
            }
            match self.memory.try_acquire(size) {
                Ok(Some(buf)) => return Poll::Ready(Ok(buf)),
                Ok(None) => {}
                Err(e) => return Poll::Ready(Err(XferError::protocol(conn.peer_name(), e))),
            }
            let wait = BufferWait {
                pool: self.memory.clone(),
                size,
                filled: self.filled,
                batches: Arc::downgrade(&self.token),
                limit: conn.read_limit(),
                peer: conn.peer_name().to_owned(),
            };
            self.waiting = Some(Box::pin(wait.buffer()));
        }
        let waiting = self.waiting.as_mut().expect("made above");
        let outcome = ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(outcome)
    }
}

impl std::fmt::Debug for PacketReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacketReceiver")
            .field("filled", &self.filled)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

enum Complete {
    PacketBatch(PacketBatch),
    Needs(usize),
}
