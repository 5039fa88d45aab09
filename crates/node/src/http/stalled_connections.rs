//! Connections that make no progress are ended, and those that last too long, except where files
//! are sent or received.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

/// Who is at the other end of a connection, and whether it may last as long as it makes progress.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    lasts: Arc<AtomicBool>,
    ended: CancellationToken,
}

impl Peer {
    pub(super) fn new(address: IpAddr) -> Self {
        Self {
            address,
            lasts: Arc::default(),
            ended: CancellationToken::new(),
        }
    }

    /// The connection may last from now on.
    pub(super) fn may_last(&self) {
        self.lasts.store(true, Ordering::Relaxed);
    }

    /// Whether it may.
    pub(super) fn lasts(&self) -> bool {
        self.lasts.load(Ordering::Relaxed)
    }

    /// Cancelled when the connection has to end.
    pub(super) fn ended(&self) -> &CancellationToken {
        &self.ended
    }
}

/// A socket to which a write fails when the peer takes nothing for too long.
pub(super) struct PatientStream {
    stream: TcpStream,
    limit: Duration,
    /// Since when a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl PatientStream {
    pub(super) fn new(stream: TcpStream, limit: Duration) -> Self {
        Self {
            stream,
            limit,
            waiting: None,
        }
    }

    /// The outcome of a write, or that it waits for too long.
    fn patiently<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.waiting = None;
            return outcome;
        }
        let ends = || Box::pin(tokio::time::sleep_until(Instant::now() + self.limit));
        let waiting = self.waiting.get_or_insert_with(ends);
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for PatientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for PatientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.patiently(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.patiently(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_left() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let peer = TcpStream::connect(address).await.expect("connected");
        let (stream, _) = listener.accept().await.expect("accepted");
        let mut stream = PatientStream::new(stream, Duration::from_millis(50));
        let written = stream.write_all(&vec![0; 64 << 20]).await;
        assert_eq!(
            written.expect_err("the peer does not read").kind(),
            io::ErrorKind::TimedOut
        );
        drop(peer);
    }
}
