//! The socket of a connection, plain or protected.
//!
//! Both have the same operations, which never wait: what cannot be done at once is refused with
//! `WouldBlock`, and the socket's readiness tells when to try again. A plain one passes them on to
//! the socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsFd as _;
use std::sync::Mutex;
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut, BytesMut};
use hayloft_client::Protected;
use hayloft_io::locks::lock;
use hayloft_io::{AlignedBuf, BufferPool};
use hayloft_sasl::{ProtectedIn, ProtectedOut};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::xceiver::settings::Settings;

/// Bytes taken from the socket at a time.
const RECEIVE: usize = 64 << 10;

/// Bytes that become one protected message, at most.
const SEAL: usize = 128 << 10;

/// Longer protected messages need room in the memory of transfers until they are complete. Stock
/// clients and nodes send shorter ones, unless their packets are larger than usual.
const LONG: usize = SEAL + (64 << 10);

/// A connected socket.
#[derive(Debug)]
pub enum NetStream {
    /// Bytes go as they are.
    Plain(TcpStream),
    /// Bytes are protected on their way.
    Protected(Box<ProtectedSocket>),
}

/// A socket with what protects its bytes. One task may read while another one writes.
#[derive(Debug)]
pub struct ProtectedSocket {
    tcp: TcpStream,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
}

#[derive(Debug)]
struct Incoming {
    layer: ProtectedIn,
    /// What came and is not complete.
    raw: BytesMut,
    /// What was opened and not taken.
    opened: BytesMut,
    /// The memory of transfers, and what a long message that comes has of it.
    memory: BufferPool,
    held: Option<AlignedBuf>,
}

#[derive(Debug)]
struct Outgoing {
    layer: ProtectedOut,
    /// What was sealed and did not fit into the socket.
    sealed: BytesMut,
    /// Bytes in there, before they were sealed, that their sender does not count as sent. It comes
    /// back with them until they are.
    untold: usize,
}

/// Sets the options of a socket that is accepted or connected.
///
/// # Errors
/// The peer is gone already.
pub fn set_options(stream: &TcpStream, settings: &Settings) -> io::Result<()> {
    stream.set_nodelay(settings.tcp_nodelay)?;
    let socket = stream.as_fd();
    rustix::net::sockopt::set_socket_keepalive(socket, true)?;
    if settings.recv_buffer > 0 {
        rustix::net::sockopt::set_socket_recv_buffer_size(socket, settings.recv_buffer as usize)?;
    }
    if settings.send_buffer > 0 {
        rustix::net::sockopt::set_socket_send_buffer_size(socket, settings.send_buffer as usize)?;
    }
    Ok(())
}

fn would_block<T>() -> io::Result<T> {
    Err(io::ErrorKind::WouldBlock.into())
}

impl NetStream {
    /// The socket behind a handshake.
    #[must_use]
    pub fn over(tcp: TcpStream, protected: Option<Protected>, memory: &BufferPool) -> Self {
        let Some((out, into)) = protected else {
            return Self::Plain(tcp);
        };
        Self::Protected(Box::new(ProtectedSocket {
            tcp,
            incoming: Mutex::new(Incoming {
                layer: into,
                raw: BytesMut::new(),
                opened: BytesMut::new(),
                memory: memory.clone(),
                held: None,
            }),
            outgoing: Mutex::new(Outgoing {
                layer: out,
                sealed: BytesMut::new(),
                untold: 0,
            }),
        }))
    }

    /// The socket itself, for its addresses, its end and its readiness.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Protected(socket) => &socket.tcp,
        }
    }

    /// Whether bytes go as they are, so that the kernel may take them from elsewhere.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Waits until there is something to read.
    pub async fn readable(&self) -> io::Result<()> {
        if self.has_opened() {
            return Ok(());
        }
        self.tcp().readable().await
    }

    /// As [`readable`](Self::readable), for the one task that may ask.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_opened() {
            return Poll::Ready(Ok(()));
        }
        self.tcp().poll_read_ready(cx)
    }

    fn has_opened(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Protected(socket) => !lock(&socket.incoming).opened.is_empty(),
        }
    }

    /// Reads what is there; 0 at the end of the stream.
    pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_read(into),
            Self::Protected(socket) => socket.read(&mut &mut *into),
        }
    }

    /// As [`try_read`](Self::try_read), to the end of a buffer.
    pub fn try_read_buf(&self, into: &mut impl BufMut) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_read_buf(into),
            Self::Protected(socket) => socket.read(into),
        }
    }

    /// As [`try_read`](Self::try_read), into several pieces. A call that fills less than all of
    /// them counts as the last of what was there.
    pub fn try_read_vectored(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => read_vectored(tcp, into),
            Self::Protected(socket) => socket.read_vectored(into),
        }
    }

    /// Sends what fits.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_write(bytes),
            Self::Protected(socket) => socket.write(&[IoSlice::new(bytes)]),
        }
    }

    /// Sends what fits of `slices`, one behind the other. After a refusal the same bytes have to
    /// come first again.
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_write_vectored(slices),
            Self::Protected(socket) => socket.write(slices),
        }
    }

    /// What comes next is not what was refused before: that is sent in full, and counts no more.
    pub fn begin_write(&self) {
        if let Self::Protected(socket) = self {
            lock(&socket.outgoing).untold = 0;
        }
    }

    /// Drops memory that nothing is in.
    pub fn shrink(&self) {
        if let Self::Protected(socket) = self {
            let mut outgoing = lock(&socket.outgoing);
            if outgoing.sealed.is_empty() {
                outgoing.sealed = BytesMut::new();
            }
        }
    }
}

/// Reads what the socket has into several pieces.
fn read_vectored(tcp: &TcpStream, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let room: usize = into.iter().map(|piece| piece.len()).sum();
    let mut short = None;
    // What makes the socket count as empty is a refusal within `try_io`, which knows the
    // readiness from before the read. Data that arrives meanwhile is not forgotten.
    let outcome = tcp.try_io(Interest::READABLE, || {
        loop {
            match rustix::io::readv(tcp, into) {
                Ok(n) if n > 0 && n < room => {
                    short = Some(n);
                    return would_block();
                }
                Err(rustix::io::Errno::INTR) => {}
                other => return other.map_err(Into::into),
            }
        }
    });
    match (outcome, short) {
        (Err(e), Some(n)) if e.kind() == io::ErrorKind::WouldBlock => Ok(n),
        (outcome, _) => outcome,
    }
}

impl ProtectedSocket {
    fn read(&self, into: &mut impl BufMut) -> io::Result<usize> {
        let mut incoming = lock(&self.incoming);
        if !incoming.receive(&self.tcp)? {
            return Ok(0);
        }
        let now = incoming.opened.len().min(into.remaining_mut());
        into.put_slice(&incoming.take(now));
        Ok(now)
    }

    fn read_vectored(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut incoming = lock(&self.incoming);
        if incoming.opened.is_empty()
            && let ProtectedIn::Bytes(cipher) = &mut incoming.layer
        {
            // Each byte has its place on the wire: they are opened where they are wanted.
            let came = read_vectored(&self.tcp, into)?;
            let mut left = came;
            for piece in into {
                let now = left.min(piece.len());
                cipher.apply(&mut piece[..now]);
                left -= now;
            }
            return Ok(came);
        }
        if !incoming.receive(&self.tcp)? {
            return Ok(0);
        }
        let mut taken = 0;
        for piece in into {
            let now = incoming.opened.len().min(piece.len());
            piece[..now].copy_from_slice(&incoming.take(now));
            taken += now;
        }
        Ok(taken)
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut outgoing = lock(&self.outgoing);
        outgoing.drain(&self.tcp)?;
        if outgoing.untold == 0 {
            let mut room = SEAL;
            let pieces = slices.iter().map(|slice| {
                let piece = &slice[..slice.len().min(room)];
                room -= piece.len();
                piece
            });
            let parts: Vec<&[u8]> = pieces.filter(|piece| !piece.is_empty()).collect();
            let outgoing = &mut *outgoing;
            outgoing.layer.seal(&parts, &mut outgoing.sealed);
            outgoing.untold = SEAL - room;
            outgoing.drain(&self.tcp)?;
        }
        Ok(std::mem::take(&mut outgoing.untold))
    }
}

impl Incoming {
    /// Has something opened, or says that the stream is at its end. A read that completes no
    /// message is refused as one of nothing: empty messages hold no thread.
    fn receive(&mut self, tcp: &TcpStream) -> io::Result<bool> {
        if !self.opened.is_empty() {
            return Ok(true);
        }
        self.raw.reserve(RECEIVE);
        match tcp.try_read_buf(&mut (&mut self.raw).limit(RECEIVE)) {
            Ok(0) if self.raw.is_empty() => return Ok(false),
            // An end within a message was not the other side's.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) => {
                if self.raw.is_empty() {
                    self.raw = BytesMut::new(); // An idle connection holds no memory.
                }
                return Err(error);
            }
        }
        let opening = self.layer.open(&mut self.raw, &mut self.opened);
        opening.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.hold_room()?;
        match self.opened.is_empty() {
            true => would_block(),
            false => Ok(true),
        }
    }

    /// A peer that announces long messages takes no memory that others have.
    fn hold_room(&mut self) -> io::Result<()> {
        let announced = self.layer.announced(&self.raw);
        if announced <= LONG {
            self.held = None;
        } else if self.held.is_none() {
            let room = self.memory.try_acquire(announced).ok().flatten();
            self.held = Some(room.ok_or_else(|| {
                let text =
                    format!("there is no memory for a protected message of {announced} bytes");
                io::Error::new(io::ErrorKind::OutOfMemory, text)
            })?);
        }
        Ok(())
    }

    fn take(&mut self, len: usize) -> BytesMut {
        let taken = self.opened.split_to(len);
        if self.opened.is_empty() {
            self.opened = BytesMut::new();
        }
        taken
    }
}

impl Outgoing {
    /// Sends what was sealed.
    fn drain(&mut self, tcp: &TcpStream) -> io::Result<()> {
        while !self.sealed.is_empty() {
            match tcp.try_write(&self.sealed) {
                Ok(sent) => self.sealed.advance(sent),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
