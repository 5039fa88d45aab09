//! Connections over domain sockets: with processes of this host, which can be passed descriptors.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use tokio::net::UnixStream;

use super::conn::{Conn, HERE};
use super::stream::{self, NetStream};
use crate::xceiver::settings::Settings;

impl Conn {
    /// Takes over a socket accepted at a path of this host, which needs no handshake.
    ///
    /// # Errors
    /// Of the system.
    pub fn domain(stream: UnixStream, path: &Path, settings: &Settings) -> io::Result<Self> {
        stream::set_buffers(stream.as_fd(), settings)?;
        let name = format!("unix:{}", path.display());
        Ok(Self::of(NetStream::Domain(stream), HERE, name, settings))
    }

    /// Whether descriptors can be passed: over domain sockets only.
    #[must_use]
    pub fn passes_descriptors(&self) -> bool {
        matches!(self.stream, NetStream::Domain(_))
    }

    /// Sends one byte with these descriptors, one or two. The peer gets duplicates.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all), and where descriptors cannot be passed.
    pub async fn send_descriptors(&self, fds: &[BorrowedFd<'_>], byte: u8) -> io::Result<()> {
        loop {
            match self.stream.try_send_descriptors(fds, byte) {
                Ok(()) => return Ok(()),
                Err(e) => self.after_refused_write(e).await?,
            }
        }
    }
}
