//! Reading from a socket into several pieces.

use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;

use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// What cannot be done at once.
pub fn would_block<T>() -> io::Result<T> {
    Err(io::ErrorKind::WouldBlock.into())
}

/// A socket that the runtime watches.
pub trait Watched: AsFd {
    /// Tries a read; one that is refused has the runtime wait for more.
    fn try_read_by(&self, read: impl FnOnce() -> io::Result<usize>) -> io::Result<usize>;
}

impl Watched for TcpStream {
    fn try_read_by(&self, read: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
        self.try_io(Interest::READABLE, read)
    }
}

impl Watched for UnixStream {
    fn try_read_by(&self, read: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
        self.try_io(Interest::READABLE, read)
    }
}

/// Reads what the socket has into several pieces.
pub fn read_vectored(socket: &impl Watched, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let room: usize = into.iter().map(|piece| piece.len()).sum();
    let mut short = None;
    // What makes the socket count as empty is a refusal within `try_io`, which knows the
    // readiness from before the read. Data that arrives meanwhile is not forgotten.
    let outcome = socket.try_read_by(|| {
        loop {
            match rustix::io::readv(socket, into) {
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
