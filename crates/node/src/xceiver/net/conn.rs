//! A data transfer connection: timeouts on every wait, messages in, bytes out.
//!
//! Reads and writes are tried before they are waited for, so that the usual case costs one system
//! call and no timer. All methods take `&self` where they can: the loops of a pipeline share one
//! connection, one of them reading and another one writing.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use hayloft_client::Protected;
use hayloft_io::BufferPool;
use hayloft_wire::frame;
use hayloft_wire::schema::WireMessage;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::activity::nanos;
use crate::xceiver::error::XferError;
use crate::xceiver::net::silence_limit::{silence, within};
use crate::xceiver::net::stream::{self, NetStream};
use crate::xceiver::settings::Settings;

/// Bytes taken from the socket at a time while messages are expected. Small: an idle connection
/// keeps this much, and block data that arrives behind a request is moved once.
const INBOX_READ: usize = 4 << 10;

/// How long a connection that is given up is read on, and how much at a time.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_READ: usize = 64 << 10;

/// The address of both ends of a domain socket, which has none.
pub(super) const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// An open connection.
#[derive(Debug)]
pub struct Conn {
    pub(super) stream: NetStream,
    name: String,
    inbox: BytesMut,
    /// `None`: wait for ever.
    read_limit: Option<Duration>,
    write_limit: Option<Duration>,
    /// How often a write had to wait for the peer.
    waits: AtomicU64,
    /// Nanoseconds of these waits.
    waited_nanos: AtomicU64,
    peer: SocketAddr,
}

fn some(limit: Duration) -> Option<Duration> {
    (!limit.is_zero()).then_some(limit)
}

impl Conn {
    /// Takes over an accepted or connected socket, behind its handshake if there was one. Long
    /// protected messages are counted as part of `memory`.
    ///
    /// # Errors
    /// The peer is gone already.
    pub fn new(
        stream: TcpStream,
        protected: Option<Protected>,
        memory: &BufferPool,
        settings: &Settings,
    ) -> io::Result<Self> {
        let peer = stream.peer_addr()?;
        stream::set_options(&stream, settings)?;
        let stream = NetStream::over(stream, protected, memory);
        Ok(Self::of(stream, peer, peer.to_string(), settings))
    }

    /// A connection over any stream.
    pub(super) fn of(
        stream: NetStream,
        peer: SocketAddr,
        name: String,
        settings: &Settings,
    ) -> Self {
        Self {
            stream,
            name,
            inbox: BytesMut::new(),
            read_limit: some(settings.read_timeout),
            write_limit: some(settings.write_timeout),
            waits: AtomicU64::new(0),
            waited_nanos: AtomicU64::new(0),
            peer,
        }
    }

    /// The same connection, looked after by the runtime that this is called in.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn settle_here(self) -> io::Result<Self> {
        let stream = self.stream.settle_here()?;
        Ok(Self { stream, ..self })
    }

    /// Replaces both limits; `None` waits for ever.
    pub fn set_limits(&mut self, read: Option<Duration>, write: Option<Duration>) {
        self.read_limit = read;
        self.write_limit = write;
    }

    /// The other end, as text.
    #[must_use]
    pub fn peer_name(&self) -> &str {
        &self.name
    }

    /// How long a write may wait.
    #[must_use]
    pub fn write_limit(&self) -> Option<Duration> {
        self.write_limit
    }

    /// How often a write had to wait because the peer took nothing, since the connection was
    /// opened.
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Nanoseconds of these waits.
    pub fn waited_nanos(&self) -> u64 {
        self.waited_nanos.load(Ordering::Relaxed)
    }

    /// The other end.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// This end.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        let of_this_host = || Some(HERE);
        let tcp = self.stream.tcp();
        tcp.map_or_else(of_this_host, |tcp| tcp.local_addr().ok())
    }

    /// Whether the other end is on this machine, as Apache's node judges it: both ends have the
    /// same address.
    pub fn is_local(&self) -> bool {
        self.local_addr().map(|own| own.ip()) == Some(self.peer.ip())
    }

    /// Whether what one call writes becomes a message, or several where it is long. The Go client
    /// loses bytes where a message ends within a packet; Apache's node sends a packet in each.
    pub fn in_messages(&self) -> bool {
        self.stream.in_messages()
    }

    /// How long a read may wait.
    #[must_use]
    pub fn read_limit(&self) -> Option<Duration> {
        self.read_limit
    }

    pub fn socket_error(&self, source: io::Error) -> XferError {
        XferError::Socket {
            peer: self.name.clone(),
            source,
        }
    }

    /// What arrived behind the last message and was read with it.
    pub fn take_inbox(&mut self) -> BytesMut {
        std::mem::take(&mut self.inbox)
    }

    /// Tries to take something from the front of the inbox.
    ///
    /// # Errors
    /// Those of `decoder`.
    pub fn decode<T, E>(
        &mut self,
        decoder: impl FnOnce(&mut BytesMut) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        decoder(&mut self.inbox)
    }

    /// Whether nothing arrived that was not taken.
    #[must_use]
    pub fn inbox_is_empty(&self) -> bool {
        self.inbox.is_empty()
    }

    /// Drops the memory of an inbox that is empty.
    pub fn shrink(&mut self) {
        if self.inbox.is_empty() && self.inbox.capacity() > INBOX_READ {
            self.inbox = BytesMut::new();
        }
        self.stream.shrink();
    }

    /// Waits until bytes can be read. The first wait sets the end of all, `limit` later: pieces of
    /// a protected message are nothing that can be read.
    async fn readable_before(
        &self,
        end: &mut Option<Instant>,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        let Some(limit) = limit else {
            return self.stream.readable().await;
        };
        let end = *end.get_or_insert_with(|| Instant::now() + limit);
        let waited = timeout_at(end, self.stream.readable()).await;
        waited.unwrap_or_else(|_| Err(silence("reading", limit)))
    }

    /// Reads what is there to `into`, waiting for at least one byte; 0 at the end of the stream.
    ///
    /// # Errors
    /// The connection broke or stayed silent for longer than the limit.
    pub async fn read_some(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut end = None;
        loop {
            match self.stream.try_read(into) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.readable_before(&mut end, self.read_limit).await?;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Reads what is there without waiting; `None` when nothing is.
    ///
    /// # Errors
    /// The connection broke.
    pub fn read_ready(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.stream.try_read(into) {
                Ok(n) => return Ok(Some(n)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// As [`read_ready`](Self::read_ready), into several pieces. A call that fills less than all of
    /// them counts as the last of what was there. The next one is refused without asking the
    /// kernel, until more has arrived.
    ///
    /// # Errors
    /// The connection broke.
    pub fn read_ready_vectored(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        match self.stream.try_read_vectored(into) {
            Ok(n) => Ok(Some(n)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Readiness for the task that reads; only one task may ask at a time.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_read_ready(cx)
    }

    /// Readiness for the task that writes; only one task may ask at a time.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_write_ready(cx)
    }

    /// Writes what fits at once; `None` when nothing does.
    ///
    /// # Errors
    /// The connection broke.
    pub fn write_ready_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        loop {
            match self.stream.try_write_vectored(slices) {
                Ok(n) => return Ok(Some(n)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Adds a little more of the stream to the inbox; false at its end.
    ///
    /// # Errors
    /// The connection broke or stayed silent for longer than `limit`.
    pub async fn fill(&mut self, limit: Option<Duration>) -> io::Result<bool> {
        let mut end = None;
        loop {
            self.inbox.reserve(INBOX_READ);
            match self
                .stream
                .try_read_buf(&mut (&mut self.inbox).limit(INBOX_READ))
            {
                Ok(n) => return Ok(n > 0),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if self.inbox.is_empty() {
                        self.inbox = BytesMut::new(); // An idle connection holds no memory.
                    }
                    self.readable_before(&mut end, limit).await?;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Takes exactly `len` bytes (few), waiting at most `limit` for each piece; `None` when the
    /// stream ends before the first.
    ///
    /// # Errors
    /// The connection broke, ended in between or stayed silent.
    pub async fn read_exact_small(
        &mut self,
        len: usize,
        limit: Option<Duration>,
    ) -> io::Result<Option<BytesMut>> {
        while self.inbox.len() < len {
            if !self.fill(limit).await? {
                return if self.inbox.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        }
        Ok(Some(self.inbox.split_to(len)))
    }

    /// Reads a length-delimited message of at most `limit_bytes`.
    ///
    /// # Errors
    /// `Socket` when the connection breaks, ends or stays silent, `Protocol` for bytes that are no
    /// such message.
    pub async fn read_message<M: WireMessage>(
        &mut self,
        limit_bytes: usize,
    ) -> Result<M, XferError> {
        loop {
            match frame::decode_delimited(&mut self.inbox, limit_bytes) {
                Ok(Some(message)) => return Ok(message),
                Ok(None) => {}
                Err(e) => return Err(XferError::frame(self.name.clone(), &e)),
            }
            match self.fill(self.read_limit).await {
                Ok(true) => {}
                Ok(false) => return Err(self.socket_error(io::ErrorKind::UnexpectedEof.into())),
                Err(e) => return Err(self.socket_error(e)),
            }
        }
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// The connection broke, or the peer took nothing for longer than the limit.
    pub async fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut left = bytes;
        self.stream.begin_write();
        while !left.is_empty() {
            match self.stream.try_write(left) {
                Ok(n) => left.advance(n),
                Err(e) => self.after_refused_write(e).await?,
            }
        }
        Ok(())
    }

    /// Sends all of `slices`, one after the other.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    pub async fn write_all_vectored(&self, slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut left = slices;
        IoSlice::advance_slices(&mut left, 0);
        self.stream.begin_write();
        while !left.is_empty() {
            match self.stream.try_write_vectored(left) {
                Ok(n) => IoSlice::advance_slices(&mut left, n),
                Err(e) => self.after_refused_write(e).await?,
            }
        }
        Ok(())
    }

    /// Waits after a write that found no room; passes other errors on.
    pub async fn after_refused_write(&self, error: io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::WouldBlock => {
                let began = Instant::now();
                let room = within(self.write_limit, "writing", self.stream.writable()).await;
                let waited = nanos(began.elapsed());
                self.waits.fetch_add(1, Ordering::Relaxed);
                self.waited_nanos.fetch_add(waited, Ordering::Relaxed);
                room
            }
            io::ErrorKind::Interrupted => Ok(()),
            _ => Err(error),
        }
    }

    /// Sends a length-delimited message.
    ///
    /// # Errors
    /// `Socket`, as [`write_all`](Self::write_all).
    pub async fn write_message<M: prost::Message>(&self, message: &M) -> Result<(), XferError> {
        self.write_all(&frame::delimited(message))
            .await
            .map_err(|e| self.socket_error(e))
    }

    /// Closes so that the last bytes sent arrive: closing with unread bytes would reset the
    /// connection, and the peer might lose them. Says that nothing follows, then drops what the
    /// peer still sends, for a moment.
    pub async fn linger(&self) {
        let _gone_already = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Write);
        let drain = async {
            let mut dropped = vec![0; LINGER_READ];
            while matches!(self.read_some(&mut dropped).await, Ok(n) if n > 0) {}
        };
        let _peer_keeps_sending = timeout(LINGER, drain).await;
    }

    /// Another descriptor of the socket, for what ends it from elsewhere.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        self.stream.as_fd().try_clone_to_owned()
    }

    /// Ends both directions; a task that reads sees the end of the stream after what had arrived.
    pub fn shut_down(&self) {
        let _gone_already = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Both);
    }
}
