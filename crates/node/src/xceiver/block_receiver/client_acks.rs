//! The acknowledgements of a client's pipeline on their way to the client.

use std::io::IoSlice;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf as _;
use tokio::time::Instant;

use crate::xceiver::block_receiver::packet_responder::PacketResponder;
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::net::silence_limit::{Patience, silence};

/// While more is there to be received, acknowledgements wait until those of so many bytes go with
/// one send. It is a fifth of what the usual client has on its way. Each send wakes up the writer,
/// which costs both sides more than the rest of it.
const TELL_AFTER: u64 = 1 << 20;

/// The responder of a pipeline, and what it has to send.
pub struct ClientAcks<'a> {
    /// Decides when which packet is acknowledged.
    pub responder: PacketResponder<'a>,
    conn: &'a Conn,
    slow_io: Duration,
    /// The client takes acknowledgements.
    sending: Patience,
    /// Bytes received since acknowledgements were last sent.
    untold_bytes: u64,
    /// Since when some wait for room.
    untold_since: Option<Instant>,
}

impl<'a> ClientAcks<'a> {
    /// Acknowledgements of `responder` go to `conn`; waiting for room longer than `slow_io` is
    /// logged.
    pub fn new(responder: PacketResponder<'a>, conn: &'a Conn, slow_io: Duration) -> Self {
        Self {
            responder,
            conn,
            slow_io,
            sending: Patience::new(conn.write_limit()),
            untold_bytes: 0,
            untold_since: None,
        }
    }

    /// So many bytes of data were received.
    pub fn received(&mut self, bytes: u64) {
        self.untold_bytes += bytes;
    }

    /// Whether acknowledgements may wait for those of what is received next.
    pub fn may_wait(&self) -> bool {
        self.untold_bytes < TELL_AFTER
    }

    /// Whether nothing is left to be sent.
    pub fn all_sent(&self) -> bool {
        self.responder.out.is_empty()
    }

    /// Sends the acknowledgements that there are; true when some were taken.
    ///
    /// # Errors
    /// The client is gone, or takes nothing.
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> Result<bool, XferError> {
        let mut told = false;
        self.untold_bytes = 0;
        if !self.all_sent() {
            self.responder.tell();
        }
        while !self.responder.out.is_empty() {
            let sent = self
                .conn
                .write_ready_vectored(&[IoSlice::new(&self.responder.out)])
                .map_err(|e| self.conn.socket_error(e))?;
            if let Some(n) = sent {
                self.responder.out.advance(n);
                told = true;
            } else if let Poll::Ready(ready) = self.conn.poll_writable(cx) {
                ready.map_err(|e| self.conn.socket_error(e))?;
            } else {
                self.untold_since.get_or_insert_with(Instant::now);
                return match self.sending.poll_end(cx) {
                    Poll::Ready(limit) => Err(self.conn.socket_error(silence("writing", limit))),
                    Poll::Pending => Ok(told),
                };
            }
        }
        self.sending.touch();
        if let Some(since) = self.untold_since.take()
            && since.elapsed() > self.slow_io
        {
            let (peer, millis) = (self.conn.peer_name(), since.elapsed().as_millis());
            self.responder.count_slow_writer();
            tracing::warn!(peer, millis, "slow to take acknowledgements");
        }
        Ok(told)
    }
}
