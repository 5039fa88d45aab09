//! A blocking connection to a data transfer port.

use crate::error::{Result, TestkitError};
use bytes::BytesMut;
use hayloft_wire::transfer::{self, BlockOpResponse, OpMessage, Status};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::io::{IoSlice, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// No answer takes longer, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Answers and acknowledgements are far smaller, bytes.
const MESSAGE_MAX: usize = 4096;
/// What is received lies in the buffer as in the stream, up to multiples of this. Pages that the
/// node sends from its page cache would otherwise be copied to the beginning of the buffer again
/// and again, which is a few bytes behind that of a page: some processors (AMD's Zen 3) copy to
/// such a place at a sixth of their speed, and the client would be what is measured
/// (docs/evaluate/benchmarks.md).
const PAGE: usize = 4096;

/// A connection, and what was received but not taken yet.
#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    peer: SocketAddr,
    /// Filled once and used again: clearing it for every packet would cost more than the rest.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Link {
    /// Connects; at most `buffer_bytes` are received at once.
    pub(super) fn connect(peer: SocketAddr, buffer_bytes: usize) -> Result<Self> {
        let failed = |error| TestkitError::Talk(format!("connecting to {peer}: {error}"));
        let stream = TcpStream::connect_timeout(&peer, PATIENCE).map_err(failed)?;
        let prepared = stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        prepared.map_err(failed)?;
        Ok(Self {
            stream,
            peer,
            buffer: vec![0; PAGE + buffer_bytes.max(2 * MESSAGE_MAX)],
            start: 0,
            end: 0,
        })
    }

    pub(super) fn error(&self, problem: impl std::fmt::Display) -> TestkitError {
        TestkitError::Talk(format!("{}: {problem}", self.peer))
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let sent = self.stream.write_all(bytes);
        sent.map_err(|error| self.error(format_args!("sending: {error}")))
    }

    /// Sends all of `parts`, which are used up.
    pub(super) fn send_parts(&mut self, mut parts: &mut [IoSlice<'_>]) -> Result<()> {
        while !parts.is_empty() {
            match self.stream.write_vectored(parts) {
                Ok(0) => return Err(self.error("sending: the node takes nothing more")),
                Ok(sent) => IoSlice::advance_slices(&mut parts, sent),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(format_args!("sending: {error}"))),
            }
        }
        Ok(())
    }

    pub(super) fn request<M: OpMessage>(&mut self, message: &M) -> Result<()> {
        let mut out = BytesMut::new();
        transfer::encode_request(message, &mut out);
        self.send(&out)
    }

    /// What was received and not taken.
    pub(super) fn held(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Takes the first `bytes` of what was received away.
    pub(super) fn take(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
        if self.start == self.end {
            let place = self.end % PAGE;
            (self.start, self.end) = (place, place);
        }
    }

    /// Receives more; waits for it when `wait`, else `Ok(false)` when there is nothing.
    pub(super) fn receive(&mut self, wait: bool) -> Result<bool> {
        if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if self.end == self.buffer.len() {
                return Err(self.error("a message that is larger than any should be"));
            }
        }
        let flags = if wait {
            RecvFlags::empty()
        } else {
            RecvFlags::DONTWAIT
        };
        loop {
            match rustix::net::recv(&self.stream, &mut self.buffer[self.end..], flags) {
                Ok((_, 0)) => return Err(self.error("the node closed the connection")),
                Ok((_, bytes)) => {
                    self.end += bytes;
                    return Ok(true);
                }
                Err(Errno::AGAIN) if !wait => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.error(format_args!("receiving: {error}"))),
            }
        }
    }

    /// Takes a message from the front of what was received, if it is there as a whole.
    pub(super) fn decode<T, E: std::fmt::Display>(
        &mut self,
        decode: impl FnOnce(&mut BytesMut) -> std::result::Result<Option<T>, E>,
    ) -> Result<Option<T>> {
        let held = self.held();
        let mut bytes = BytesMut::from(&held[..held.len().min(MESSAGE_MAX)]);
        let before = bytes.len();
        let message = decode(&mut bytes).map_err(|error| self.error(error))?;
        if message.is_some() {
            self.take(before - bytes.len());
        }
        Ok(message)
    }

    /// Waits for the answer to a request, which must be a success.
    pub(super) fn response(&mut self) -> Result<BlockOpResponse> {
        let response = loop {
            if let Some(response) = self.decode(transfer::decode_response)? {
                break response;
            }
            self.receive(true)?;
        };
        match response.outcome() {
            Status::Success => Ok(response),
            status => {
                let link = response.first_bad_link.unwrap_or_default();
                let message = response.message.unwrap_or_default();
                Err(self.error(format_args!("refused: {status:?} {link} {message}")))
            }
        }
    }
}
