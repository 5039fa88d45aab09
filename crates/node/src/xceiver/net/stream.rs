//! The socket of a connection: plain, protected, or of a process on this host.
//!
//! All have the same operations, which never wait: what cannot be done at once is refused with
//! `WouldBlock`, and the socket's readiness tells when to try again. A plain one passes them on to
//! the socket, and so does one of this host, which can carry descriptors too.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};

use bytes::BufMut;
use hayloft_client::Protected;
use hayloft_io::BufferPool;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

use super::protected_socket::ProtectedSocket;
use super::read_vectored::{read_vectored, would_block};
use crate::xceiver::settings::Settings;

/// Descriptors that go with one byte, at most.
const FDS_MAX: usize = 2;

/// A connected socket.
#[derive(Debug)]
pub enum NetStream {
    /// Bytes go as they are.
    Plain(TcpStream),
    /// Bytes are protected on their way.
    Protected(Box<ProtectedSocket>),
    /// A UNIX domain socket: bytes go as they are, and never leave the host.
    Domain(UnixStream),
}

/// Sets the options of a socket that is accepted or connected.
///
/// # Errors
/// The peer is gone already.
pub fn set_options(stream: &TcpStream, settings: &Settings) -> io::Result<()> {
    stream.set_nodelay(settings.tcp_nodelay)?;
    rustix::net::sockopt::set_socket_keepalive(stream, true)?;
    set_buffers(stream.as_fd(), settings)
}

/// Sets the sizes of a socket's buffers.
///
/// # Errors
/// Of the system.
pub fn set_buffers(socket: BorrowedFd<'_>, settings: &Settings) -> io::Result<()> {
    if settings.recv_buffer > 0 {
        rustix::net::sockopt::set_socket_recv_buffer_size(socket, settings.recv_buffer as usize)?;
    }
    if settings.send_buffer > 0 {
        rustix::net::sockopt::set_socket_send_buffer_size(socket, settings.send_buffer as usize)?;
    }
    Ok(())
}

impl NetStream {
    /// The socket behind a handshake.
    #[must_use]
    pub fn over(tcp: TcpStream, protected: Option<Protected>, memory: &BufferPool) -> Self {
        match protected {
            Some(layers) => Self::Protected(Box::new(ProtectedSocket::new(tcp, layers, memory))),
            None => Self::Plain(tcp),
        }
    }

    /// The same on the runtime that this is called in, which looks after it from now on.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn settle_here(self) -> io::Result<Self> {
        Ok(match self {
            Self::Plain(tcp) => Self::Plain(TcpStream::from_std(tcp.into_std()?)?),
            Self::Protected(socket) => Self::Protected(Box::new(socket.settle_here()?)),
            Self::Domain(socket) => Self::Domain(UnixStream::from_std(socket.into_std()?)?),
        })
    }

    /// The TCP socket, for its addresses; none of a domain socket.
    pub fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(tcp) => Some(tcp),
            Self::Protected(socket) => Some(socket.tcp()),
            Self::Domain(_) => None,
        }
    }

    /// See [`ProtectedSocket::in_messages`].
    pub fn in_messages(&self) -> bool {
        matches!(self, Self::Protected(socket) if socket.in_messages())
    }

    /// Waits until the socket has room.
    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Plain(tcp) => tcp.writable().await,
            Self::Protected(socket) => socket.tcp().writable().await,
            Self::Domain(socket) => socket.writable().await,
        }
    }

    /// As [`writable`](Self::writable), for the one task that may ask.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(tcp) => tcp.poll_write_ready(cx),
            Self::Protected(socket) => socket.tcp().poll_write_ready(cx),
            Self::Domain(socket) => socket.poll_write_ready(cx),
        }
    }

    /// Tries a write that another function does; one that it refuses waits for room.
    pub fn try_write_io<R>(&self, write: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        match self {
            Self::Plain(tcp) => tcp.try_io(Interest::WRITABLE, write),
            Self::Protected(socket) => socket.tcp().try_io(Interest::WRITABLE, write),
            Self::Domain(socket) => socket.try_io(Interest::WRITABLE, write),
        }
    }

    /// Sends one byte with duplicates of these descriptors; they arrive together.
    pub fn try_send_descriptors(&self, fds: &[BorrowedFd<'_>], byte: u8) -> io::Result<()> {
        let Self::Domain(socket) = self else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let sent = socket.try_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
            let mut with = SendAncillaryBuffer::new(&mut space);
            if !with.push(SendAncillaryMessage::ScmRights(fds)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let byte = [byte];
            let byte = [IoSlice::new(&byte)];
            Ok(sendmsg(socket, &byte, &mut with, SendFlags::NOSIGNAL)?)
        });
        match sent? {
            0 => would_block(),
            _ => Ok(()),
        }
    }

    /// Whether bytes go as they are, so that the kernel may take them from elsewhere.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        !matches!(self, Self::Protected(_))
    }

    /// Waits until there is something to read.
    pub async fn readable(&self) -> io::Result<()> {
        if self.has_opened() {
            return Ok(());
        }
        match self {
            Self::Plain(tcp) => tcp.readable().await,
            Self::Protected(socket) => socket.tcp().readable().await,
            Self::Domain(socket) => socket.readable().await,
        }
    }

    /// As [`readable`](Self::readable), for the one task that may ask.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_opened() {
            return Poll::Ready(Ok(()));
        }
        match self {
            Self::Plain(tcp) => tcp.poll_read_ready(cx),
            Self::Protected(socket) => socket.tcp().poll_read_ready(cx),
            Self::Domain(socket) => socket.poll_read_ready(cx),
        }
    }

    fn has_opened(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Domain(_) => false,
            Self::Protected(socket) => socket.has_opened(),
        }
    }

    /// Reads what is there; 0 at the end of the stream.
    pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_read(into),
            Self::Protected(socket) => socket.read(&mut &mut *into),
            Self::Domain(socket) => socket.try_read(into),
        }
    }

    /// As [`try_read`](Self::try_read), to the end of a buffer.
    pub fn try_read_buf(&self, into: &mut impl BufMut) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_read_buf(into),
            Self::Protected(socket) => socket.read(into),
            Self::Domain(socket) => socket.try_read_buf(into),
        }
    }

    /// As [`try_read`](Self::try_read), into several pieces. A call that fills less than all of
    /// them counts as the last of what was there.
    pub fn try_read_vectored(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => read_vectored(tcp, into),
            Self::Protected(socket) => socket.read_vectored(into),
            Self::Domain(socket) => read_vectored(socket, into),
        }
    }

    /// Sends what fits.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_write(bytes),
            Self::Protected(socket) => socket.write(&[IoSlice::new(bytes)]),
            Self::Domain(socket) => socket.try_write(bytes),
        }
    }

    /// Sends what fits of `slices`, one behind the other. After a refusal the same bytes have to
    /// come first again.
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_write_vectored(slices),
            Self::Protected(socket) => socket.write(slices),
            Self::Domain(socket) => socket.try_write_vectored(slices),
        }
    }

    /// What comes next is not what was refused before: that is sent in full, and counts no more.
    pub fn begin_write(&self) {
        if let Self::Protected(socket) = self {
            socket.begin_write();
        }
    }

    /// Drops memory that nothing is in.
    pub fn shrink(&self) {
        if let Self::Protected(socket) = self {
            socket.shrink();
        }
    }
}

impl AsFd for NetStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(tcp) => tcp.as_fd(),
            Self::Protected(socket) => socket.tcp().as_fd(),
            Self::Domain(socket) => socket.as_fd(),
        }
    }
}
