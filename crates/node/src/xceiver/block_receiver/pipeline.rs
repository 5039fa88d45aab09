//! The data phase of a client's write: one task that receives, verifies, writes, passes on and
//! acknowledges.
//!
//! ```text
//! client ──packets──> Receiver ──> ReplicaSink (the replica's writer)
//!                        └───────> Next ──> next node
//! client <──acks── Responder <──── Next <── acknowledgements
//! ```
//!
//! All parts are polled by the connection's task, in turns: what one turn received is on its way to
//! the next node, verified, handed to the disk and, where that takes no waiting, acknowledged with
//! one send before the socket is looked at again. No task wakes another.

use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf as _;
use hayloft_store::AckHandle;
use hayloft_wire::ack::UNKNOWN_SEQNO;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::outliers::PeerClock;
use crate::xceiver::block_receiver::mirror::Mirror;
use crate::xceiver::block_receiver::packet_responder::{PacketResponder, Pending, Step};
use crate::xceiver::block_receiver::replica_sink::ReplicaSink;
use crate::xceiver::block_receiver::verify::{BadPacket, IncomingBlock, ends_block};
use crate::xceiver::context::Xceivers;
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::{Conn, Patience, silence};
use crate::xceiver::packet::receiver::{PacketBatch, PacketReceiver};
use crate::xceiver::settings::Settings;

/// After its last packet a block has this long to be completed by all nodes when the writer is
/// gone: no client is left that would recover it soon.
const ORPHAN_GRACE: Duration = Duration::from_secs(10);

/// Turns after which other tasks get the thread.
const TURNS: u32 = 8;

/// While more is there to be received, acknowledgements wait until those of so many bytes go with
/// one send: a fifth of what the usual client has on its way. Each send wakes up the writer, which
/// costs both sides more than the rest of it.
const TELL_AFTER: u64 = 1 << 20;

/// What a pipeline is connected to.
pub struct Ends<'a> {
    /// The client or the node before.
    pub conn: &'a mut Conn,
    /// The next node.
    pub mirror: Option<Conn>,
    /// Measures it.
    pub clock: Option<PeerClock>,
    /// Where acknowledged lengths go.
    pub acks: AckHandle,
    /// Another taker wants the replica.
    pub cancel: CancellationToken,
    /// The replica's writer.
    pub disk: ReplicaSink,
}

/// Receives a block from a client.
///
/// # Errors
/// What broke the pipeline. The replica stays as it is.
pub async fn run(
    x: &Xceivers,
    settings: &Settings,
    incoming: IncomingBlock,
    ends: Ends<'_>,
) -> Result<(), XferError> {
    let Ends {
        conn,
        mirror,
        clock,
        acks,
        cancel,
        disk,
    } = ends;
    let inbox = conn.take_inbox();
    let conn: &Conn = conn;
    let pool = incoming.block.pool.clone();
    let next = mirror.map(|mirror| Mirror::new(mirror, clock));
    let behind = next.as_ref().map(Mirror::name);
    let mut pipeline = Pipeline {
        x,
        conn,
        responder: PacketResponder::new(x, settings, &pool, conn.peer_name(), behind, acks),
        receiver: Receiver {
            inflow: PacketReceiver::new(
                x,
                settings.max_packet,
                incoming.checksum,
                disk.landing(),
                &inbox,
            ),
            incoming,
            packets: 0,
            phase: Phase::Open,
            patience: Patience::new(conn.read_limit()),
        },
        next,
        disk,
        signals: Signals::new(x, &cancel),
        slow_io: settings.slow_io,
        sending: Patience::new(conn.write_limit()),
        untold_bytes: 0,
        untold_since: None,
        outcome: None,
    };
    drop(inbox);
    let outcome = poll_fn(|cx| pipeline.poll(cx)).await;
    pipeline.disk.abandon();
    outcome
}

struct Pipeline<'a> {
    x: &'a Xceivers,
    conn: &'a Conn,
    receiver: Receiver,
    next: Option<Mirror>,
    disk: ReplicaSink,
    responder: PacketResponder<'a>,
    signals: Signals,
    slow_io: Duration,
    /// Acknowledgements are being taken.
    sending: Patience,
    /// Bytes received since acknowledgements were last sent.
    untold_bytes: u64,
    /// Since when some wait for room.
    untold_since: Option<Instant>,
    /// How it ends, when the last acknowledgements are sent.
    outcome: Option<Result<(), XferError>>,
}

struct Receiver {
    inflow: PacketReceiver,
    incoming: IncomingBlock,
    packets: u64,
    phase: Phase,
    patience: Patience,
}

/// How far the receiving is.
enum Phase {
    /// Packets are expected.
    Open,
    /// The limit on bandwidth has to be waited for.
    Throttled(Pin<Box<dyn Future<Output = ()> + Send>>, After),
    /// What the client still sends no longer counts: the receiver drops it until the client leaves.
    Discarding(After),
    /// The client has left; the block can still become complete here and at the mirror.
    ClientGone(Pin<Box<Sleep>>),
}

/// What follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// More packets.
    More,
    /// The block had its last packet.
    Last,
    /// The data was corrupt.
    Corrupt,
}

impl Pipeline<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), XferError>> {
        self.signals.poll(cx, &mut self.responder)?;
        for turn in 1..=TURNS {
            let received = self.poll_receive(cx)?;
            self.disk.set_drained(!received);
            let heard = self.poll_recv_acks(cx)?;
            let sent = self.next.as_mut().is_some_and(|next| next.poll_send(cx));
            let written = self.disk.poll(cx);
            if self.outcome.is_none() {
                match self.responder.advance(&mut self.disk) {
                    Step::Wait => {}
                    Step::Finished => self.outcome = Some(Ok(())),
                    Step::GiveUp(error) => self.outcome = Some(Err(error)),
                }
            }
            let told = if received && turn < TURNS && self.may_tell_later() {
                false
            } else {
                self.poll_send_acks(cx)?
            };
            if self.responder.out.is_empty()
                && let Some(outcome) = self.outcome.take()
            {
                return Poll::Ready(outcome);
            }
            // The responder may have let the disk go on.
            if !(received || heard || sent || written || told || self.disk.poll(cx)) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether there is room for more of the writer's packets everywhere they go.
    fn has_room(&self) -> bool {
        self.outcome.is_none()
            && self.disk.has_room()
            && self.responder.has_room()
            && self.next.as_ref().is_none_or(Mirror::has_room)
    }

    /// Takes what has arrived; true when there was something.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Result<bool, XferError> {
        let receiver = &mut self.receiver;
        match &mut receiver.phase {
            Phase::Open => {}
            Phase::Throttled(wait, after) => {
                if wait.as_mut().poll(cx).is_pending() {
                    return Ok(false);
                }
                receiver.patience.touch();
                receiver.phase = match *after {
                    After::More => Phase::Open,
                    after => Phase::Discarding(after),
                };
                return Ok(true);
            }
            Phase::Discarding(after) => {
                let after = *after;
                return self.poll_deaf(after, cx);
            }
            Phase::ClientGone(grace) => {
                return match grace.as_mut().poll(cx) {
                    Poll::Ready(()) => Err(self.writer_left()),
                    Poll::Pending => Ok(false),
                };
            }
        }
        if !self.has_room() {
            self.receiver.patience.touch();
            return Ok(false);
        }
        let receiver = &mut self.receiver;
        match receiver.inflow.poll_next(self.conn, cx) {
            Poll::Ready(run) => {
                receiver.patience.touch();
                self.on_run(run?)?;
                Ok(true)
            }
            Poll::Pending => {
                if receiver.inflow.made_progress() || receiver.inflow.waits_for_memory() {
                    receiver.patience.touch();
                }
                match receiver.patience.poll_end(cx) {
                    Poll::Ready(limit) => Err(self.conn.socket_error(silence("reading", limit))),
                    Poll::Pending => Ok(false),
                }
            }
        }
    }

    /// Passes a run on, checks it and hands it to the disk.
    fn on_run(&mut self, mut run: PacketBatch) -> Result<(), XferError> {
        let arrived = Instant::now();
        if let Some(next) = &mut self.next {
            next.push(run.raw.iter().cloned(), run.packets.len(), arrived);
        }
        let receiver = &mut self.receiver;
        let checked = receiver.incoming.accept_run(&mut run);
        let (last, bytes) = (ends_block(&run), run.data_len());
        for packet in &run.packets {
            self.responder.push(Pending {
                seqno: packet.header.seqno,
                index: receiver.packets,
                end_offset: packet.end_offset(),
                last: packet.header.last_packet_in_block,
                arrived,
                corrupt: false,
            });
            receiver.packets += 1;
        }
        if run.in_place {
            self.x.stats().add_in_place(bytes);
        }
        self.disk.push(run);
        self.untold_bytes += bytes;
        let after = match checked {
            Ok(()) if last => After::Last,
            Ok(()) => After::More,
            Err(BadPacket::Corrupt(reason)) => {
                self.on_corrupt(&reason, arrived);
                After::Corrupt
            }
            Err(bad) => return Err(bad.into_error(self.conn)),
        };
        let write = &self.x.throttles().write;
        if write.rate() > 0 && after != After::Corrupt {
            let x = self.x.clone();
            let wait = Box::pin(async move { x.throttles().write.take(bytes).await });
            self.receiver.phase = Phase::Throttled(wait, after);
        } else if after != After::More {
            self.receiver.phase = Phase::Discarding(after);
        }
        Ok(())
    }

    /// The packets before the corrupt one are written and acknowledged, then the writer is told.
    fn on_corrupt(&mut self, reason: &str, arrived: Instant) {
        tracing::warn!(
            peer = self.conn.peer_name(),
            "corrupt data in a write: {reason}"
        );
        let incoming = &self.receiver.incoming;
        crate::xceiver::block_receiver::blame_source(
            self.x,
            incoming.source.as_ref(),
            &incoming.block,
        );
        self.responder.push(Pending {
            seqno: incoming.bad_seqno.unwrap_or(UNKNOWN_SEQNO),
            index: self.receiver.packets,
            end_offset: 0,
            last: false,
            arrived,
            corrupt: true,
        });
    }

    fn poll_deaf(&mut self, after: After, cx: &mut Context<'_>) -> Result<bool, XferError> {
        let mut dropped = [0; 4 << 10];
        match self.conn.read_ready(&mut dropped) {
            Ok(Some(n)) if n > 0 => Ok(true),
            Ok(None) => match self.conn.poll_readable(cx) {
                Poll::Ready(_) => Ok(true),
                Poll::Pending => Ok(false),
            },
            _ if after == After::Last => {
                let grace = Box::pin(tokio::time::sleep(ORPHAN_GRACE));
                self.receiver.phase = Phase::ClientGone(grace);
                Ok(true)
            }
            _ => Err(self.writer_left()),
        }
    }

    fn writer_left(&self) -> XferError {
        self.conn
            .socket_error(std::io::ErrorKind::UnexpectedEof.into())
    }

    fn poll_recv_acks(&mut self, cx: &mut Context<'_>) -> Result<bool, XferError> {
        let Some(next) = &mut self.next else {
            return Ok(false);
        };
        let mut heard = false;
        while self.outcome.is_none() && self.responder.listens() {
            let Poll::Ready(said) = next.poll_recv_acks(cx) else {
                break;
            };
            self.responder.on_behind(said)?;
            heard = true;
        }
        Ok(heard)
    }

    /// Whether acknowledgements may wait for those of what is received next.
    fn may_tell_later(&self) -> bool {
        self.outcome.is_none()
            && self.untold_bytes < TELL_AFTER
            && matches!(self.receiver.phase, Phase::Open)
    }

    /// Sends the acknowledgements that there are; true when some were taken.
    fn poll_send_acks(&mut self, cx: &mut Context<'_>) -> Result<bool, XferError> {
        let mut told = false;
        self.untold_bytes = 0;
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
            tracing::warn!(peer, millis, "slow to take acknowledgements");
        }
        Ok(told)
    }
}

/// What ends a pipeline, or interrupts it, from outside.
struct Signals {
    ends: [(Pin<Box<WaitForCancellationFutureOwned>>, &'static str); 3],
    restart: Pin<Box<WaitForCancellationFutureOwned>>,
    restarted: bool,
}

impl Signals {
    fn new(x: &Xceivers, cancel: &CancellationToken) -> Self {
        let wait = |token: &CancellationToken| Box::pin(token.clone().cancelled_owned());
        Self {
            ends: [
                (wait(cancel), crate::xceiver::block_receiver::TAKEN_OVER),
                (wait(&x.evict_token()), "writers were evicted"),
                (
                    wait(x.shutdown_token()),
                    crate::xceiver::block_receiver::SHUT_DOWN,
                ),
            ],
            restart: wait(x.restart_token()),
            restarted: false,
        }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        responder: &mut PacketResponder<'_>,
    ) -> Result<(), XferError> {
        for (signal, why) in &mut self.ends {
            if signal.as_mut().poll(cx).is_ready() {
                return Err(XferError::Stopped(why));
            }
        }
        if !self.restarted && self.restart.as_mut().poll(cx).is_ready() {
            self.restarted = true;
            responder.announce_restart();
        }
        Ok(())
    }
}
