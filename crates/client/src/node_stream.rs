//! The stream of a connection to a node, plain or protected.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use hayloft_sasl::{ProtectedIn, ProtectedOut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::prove_to_node::Protected;

/// Bytes received at a time, and bytes that become one protected message.
const PIECE: usize = 64 << 10;

/// A connected stream; flushed, all that was written is sent. Without protection bytes go straight
/// to the socket.
#[derive(Debug)]
pub enum NodeStream {
    /// As they are.
    Plain(TcpStream),
    /// Protected.
    Protected(Box<ProtectedStream>),
}

impl NodeStream {
    /// The stream behind a handshake.
    #[must_use]
    pub fn over(stream: TcpStream, protected: Option<Protected>) -> Self {
        match protected {
            None => Self::Plain(stream),
            Some((out, into)) => Self::Protected(Box::new(ProtectedStream {
                stream,
                out,
                into,
                raw: BytesMut::new(),
                opened: BytesMut::new(),
                sealed: BytesMut::new(),
                received: vec![0; PIECE].into(),
            })),
        }
    }
}

impl AsyncRead for NodeStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Protected(stream) => Pin::new(&mut **stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for NodeStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Protected(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Protected(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Protected(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}

/// A stream whose bytes are protected.
#[derive(Debug)]
pub struct ProtectedStream {
    stream: TcpStream,
    out: ProtectedOut,
    into: ProtectedIn,
    /// What came and is not complete.
    raw: BytesMut,
    /// What was opened and not taken.
    opened: BytesMut,
    /// What was sealed and not sent.
    sealed: BytesMut,
    received: Box<[u8]>,
}

impl ProtectedStream {
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.sealed.is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.sealed))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sealed.advance(sent);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for ProtectedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.opened.is_empty() {
            let mut received = ReadBuf::new(&mut this.received);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut received))?;
            let came = received.filled();
            if came.is_empty() {
                // An end within a message was not the other side's.
                let whole = this.raw.is_empty();
                let cut = || io::ErrorKind::UnexpectedEof.into();
                return Poll::Ready(whole.then_some(()).ok_or_else(cut));
            }
            this.raw.extend_from_slice(came);
            this.into
                .open(&mut this.raw, &mut this.opened)
                .map_err(io::Error::other)?;
        }
        let now = this.opened.len().min(buf.remaining());
        buf.put_slice(&this.opened.split_to(now));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ProtectedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(cx))?;
        let this = &mut *self;
        let (now, _later) = bytes.split_at(bytes.len().min(PIECE));
        this.out.seal(&[now], &mut this.sealed);
        // What does not fit is sent before anything else, or by a flush.
        match self.poll_drain(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(now.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_drain(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
