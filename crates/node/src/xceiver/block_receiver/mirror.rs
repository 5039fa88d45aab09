//! The next node of a pipeline while data flows: packets go to it unchanged, acknowledgements come
//! back.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use hayloft_wire::pipeline_ack::PipelineAck;
use tokio::time::Instant;

use crate::outliers::PeerClock;
use crate::xceiver::block_receiver::packet_responder::FromMirror;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::net::silence_limit::{Patience, silence};

/// Runs that may wait for the next node.
const WAITING_RUNS: usize = 8;

/// Pieces handed to the kernel at once.
const GATHER: usize = 64;

/// Bytes read at a time: acknowledgements are small.
const ACK_READ: usize = 2 << 10;

/// A run that waits to be sent.
struct Queued {
    /// Of which so many pieces are left.
    pieces: usize,
    packets: u64,
    since: Instant,
}

/// The connection with the next node.
pub struct Mirror {
    conn: Conn,
    inbox: BytesMut,
    /// What is to be sent, in order; runs have several pieces.
    queue: VecDeque<Bytes>,
    runs: VecDeque<Queued>,
    /// When something was last sent in full.
    last_sent: Instant,
    hearing: Patience,
    sending: Patience,
    /// Takes down how long it is waited for.
    clock: Option<PeerClock>,
    /// Packets that took longer than `slow_after` to be sent.
    slow_packets: u64,
    slow_after: Duration,
    /// Nothing can be sent any more.
    discarding: bool,
    /// [`FromMirror::Gone`] was said.
    gone: bool,
}

impl Mirror {
    /// Takes over a connection on which the pipeline was set up; `clock` is for the last node of a
    /// pipeline. Packets that take longer than `slow_after` to be sent are counted.
    #[must_use]
    pub fn new(mut conn: Conn, clock: Option<PeerClock>, slow_after: Duration) -> Self {
        Self {
            inbox: conn.take_inbox(),
            hearing: Patience::new(conn.read_limit()),
            sending: Patience::new(conn.write_limit()),
            conn,
            queue: VecDeque::new(),
            runs: VecDeque::new(),
            last_sent: Instant::now(),
            clock,
            slow_packets: 0,
            slow_after,
            discarding: false,
            gone: false,
        }
    }

    /// Its address.
    #[must_use]
    pub fn name(&self) -> &str {
        self.conn.peer_name()
    }

    /// Packets that the node was slow to take, longer than the `slow_after` of [`new`](Self::new).
    #[must_use]
    pub fn slow_packets(&self) -> u64 {
        self.slow_packets
    }

    /// Whether another run may be [pushed](Self::push).
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.runs.len() < WAITING_RUNS
    }

    /// Whether nothing is left to be sent: all was, or the node is gone.
    #[must_use]
    pub fn has_sent_all(&self) -> bool {
        self.queue.is_empty()
    }

    /// Queues a run of so many packets for sending. A node that is gone takes no more; the
    /// responder tells the client.
    pub fn push(&mut self, pieces: impl IntoIterator<Item = Bytes>, packets: usize, now: Instant) {
        if self.discarding {
            return;
        }
        if self.queue.is_empty() {
            self.sending.touch();
        }
        let before = self.queue.len();
        self.queue
            .extend(pieces.into_iter().filter(|piece| !piece.is_empty()));
        self.runs.push_back(Queued {
            pieces: self.queue.len() - before,
            packets: u64::try_from(packets).unwrap_or(u64::MAX),
            since: now,
        });
    }

    /// Sends what fits; true when something was sent. When that fails the connection is shut down,
    /// so that [`poll_recv_acks`](Self::poll_recv_acks) comes to its end after everything the node
    /// had still said.
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while !self.queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); GATHER];
            let count = self.queue.len().min(GATHER);
            for (slice, piece) in slices.iter_mut().zip(&self.queue) {
                *slice = IoSlice::new(piece);
            }
            match self.conn.write_ready_vectored(&slices[..count]) {
                Ok(Some(n)) => {
                    self.sent(n);
                    moved = true;
                }
                Ok(None) => {
                    let Poll::Ready(ready) = self.conn.poll_writable(cx) else {
                        if let Poll::Ready(limit) = self.sending.poll_end(cx) {
                            self.cannot_send(&silence("writing", limit));
                        }
                        return moved;
                    };
                    if let Err(error) = ready {
                        self.cannot_send(&error);
                    }
                }
                Err(error) => self.cannot_send(&error),
            }
        }
        moved
    }

    fn sent(&mut self, mut bytes: usize) {
        self.sending.touch();
        while let Some(front) = self.queue.front_mut() {
            if bytes < front.len() {
                front.advance(bytes);
                return;
            }
            bytes -= front.len();
            self.queue.pop_front();
            if let Some(run) = self.runs.front_mut() {
                run.pieces -= 1;
                if run.pieces == 0 {
                    self.last_sent = Instant::now();
                    if self.last_sent.saturating_duration_since(run.since) > self.slow_after {
                        self.slow_packets += run.packets;
                    }
                    if let Some(clock) = &mut self.clock {
                        clock.sent(run.packets, run.since, self.last_sent);
                    }
                    self.runs.pop_front();
                }
            }
        }
    }

    fn cannot_send(&mut self, error: &std::io::Error) {
        tracing::info!(
            node = self.conn.peer_name(),
            "cannot send to the next node: {error}"
        );
        self.conn.shut_down();
        self.discarding = true;
        self.queue.clear();
        self.runs.clear();
    }

    /// What the node says next; nothing any more after [`FromMirror::Gone`].
    pub fn poll_recv_acks(&mut self, cx: &mut Context<'_>) -> Poll<FromMirror> {
        if self.gone {
            return Poll::Pending;
        }
        loop {
            match PipelineAck::decode(&mut self.inbox) {
                Ok(Some(ack)) => return Poll::Ready(FromMirror::Ack(ack, Instant::now())),
                Ok(None) => {}
                Err(error) => return Poll::Ready(self.lost(error.to_string(), false)),
            }
            let mut bytes = [0; ACK_READ];
            // A short one says that there is no more: the next would only hear that again.
            let read = self
                .conn
                .read_ready_vectored(&mut [IoSliceMut::new(&mut bytes)]);
            match read {
                Ok(Some(0)) => {
                    let starved_by_us = self.was_starved_by_us();
                    return Poll::Ready(
                        self.lost("it closed the connection".to_owned(), starved_by_us),
                    );
                }
                Ok(Some(n)) => {
                    self.hearing.touch();
                    self.inbox.extend_from_slice(&bytes[..n]);
                }
                Ok(None) => match self.conn.poll_readable(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => {
                        return Poll::Ready(self.lost(error.to_string(), false));
                    }
                    Poll::Pending => {
                        let Poll::Ready(limit) = self.hearing.poll_end(cx) else {
                            return Poll::Pending;
                        };
                        let reason = silence("reading", limit).to_string();
                        return Poll::Ready(self.lost(reason, false));
                    }
                },
                Err(error) => return Poll::Ready(self.lost(error.to_string(), false)),
            }
        }
    }

    fn lost(&mut self, reason: String, starved_by_us: bool) -> FromMirror {
        self.gone = true;
        FromMirror::Gone {
            reason,
            starved_by_us,
        }
    }

    /// Apache's rule: after 0.9 of the read timeout without a packet, the silence was ours.
    fn was_starved_by_us(&self) -> bool {
        let patience = self.conn.read_limit().map(|limit| limit.mul_f32(0.9));
        patience.is_some_and(|patience: Duration| self.last_sent.elapsed() > patience)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write as _;

    use hayloft_io::BufferPool;
    use hayloft_wire::pipeline_ack::Hop;
    use hayloft_wire::transfer::Status;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::xceiver::settings::Settings;

    fn acks(seqnos: std::ops::Range<i64>) -> BytesMut {
        let mut out = BytesMut::new();
        for seqno in seqnos {
            PipelineAck::new(seqno, vec![Hop::of(Status::Success)], 0).encode(&mut out);
        }
        out
    }

    async fn next(mirror: &mut Mirror) -> i64 {
        match poll_fn(|cx| mirror.poll_recv_acks(cx)).await {
            FromMirror::Ack(ack, _) => ack.seqno,
            gone @ FromMirror::Gone { .. } => panic!("{gone:?}"),
        }
    }

    /// Until the runtime has looked, what arrived behind a short read is not asked for.
    #[tokio::test]
    async fn acknowledgements_that_are_there_take_one_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let to = listener.local_addr().expect("bound");
        let (connected, accepted) = tokio::join!(TcpStream::connect(to), listener.accept());
        let mut node = accepted.expect("accepts").0.into_std().expect("a socket");
        node.set_nonblocking(false).expect("a socket");
        let stream = connected.expect("connects");
        let conn = Conn::new(
            stream,
            None,
            &BufferPool::new(1 << 20),
            &Settings::default(),
        );
        let mut mirror = Mirror::new(conn.expect("open"), None, Duration::MAX);
        node.write_all(&acks(0..3)).expect("takes them");
        for seqno in 0..3 {
            assert_eq!(next(&mut mirror).await, seqno);
        }
        node.write_all(&acks(3..4)).expect("takes it");
        let at_once = poll_fn(|cx| Poll::Ready(mirror.poll_recv_acks(cx))).await;
        assert!(at_once.is_pending(), "{at_once:?}");
        assert_eq!(next(&mut mirror).await, 3, "it is not forgotten");
        node.write_all(&acks(4..5)).expect("takes it");
        drop(node);
        assert_eq!(next(&mut mirror).await, 4);
        let end = poll_fn(|cx| mirror.poll_recv_acks(cx)).await;
        assert!(matches!(end, FromMirror::Gone { .. }), "{end:?}");
    }
}
