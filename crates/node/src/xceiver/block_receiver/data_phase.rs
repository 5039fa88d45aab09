//! The data phase of a write: one task receives, verifies, writes, passes on and acknowledges. A
//! copy between nodes is the same without acknowledgements.
//!
//! ```text
//! client or node ──packets──> Receiver ──> ReplicaSink (the replica's writer)
//!                                └───────> Mirror ──> next node
//! client <──acks── PacketResponder <────── Mirror <── acknowledgements
//! ```
//!
//! The connection's task polls all parts, in turns. What one turn received is on its way to the
//! next node, verified and handed to the disk before the socket is looked at again. Where that
//! takes no waiting, it is acknowledged with one send. No task wakes another.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use hayloft_io::MayWait;
use hayloft_store::AckHandle;
use hayloft_wire::checksum::DataChecksum;
use tokio::time::Instant;

use crate::activity::Count;
use crate::xceiver::block_receiver::blame_source;
use crate::xceiver::block_receiver::client_acks::ClientAcks;
use crate::xceiver::block_receiver::completion::End;
use crate::xceiver::block_receiver::end_signals::Signals;
use crate::xceiver::block_receiver::mirror::Mirror;
use crate::xceiver::block_receiver::packet_responder::{AckStep, PacketResponder, Pending};
use crate::xceiver::block_receiver::phase::{After, Receiving};
use crate::xceiver::block_receiver::replica_sink::ReplicaSink;
use crate::xceiver::block_receiver::verify_packets::{BadPacket, IncomingBlock};
use crate::xceiver::block_receiver::write_counts::Received;
use crate::xceiver::context::Xceivers;
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::net::silence_limit::{Patience, silence};
use crate::xceiver::net::throttle::Throttle;
use crate::xceiver::packet::PacketBatch;
use crate::xceiver::packet::from_socket::PacketReceiver;
use crate::xceiver::settings::Settings;
use crate::xceiver::stats::Activity;

/// After its last packet a block has this long to be completed by all nodes when the writer is
/// gone. No client is left that would recover it soon.
const ORPHAN_GRACE: Duration = Duration::from_secs(10);

/// Turns after which other tasks get the thread.
const TURNS: u32 = 8;

/// What a pipeline is connected to.
pub struct Ends<'a> {
    /// The client or the node before.
    pub conn: &'a mut Conn,
    /// What the packets' checksums are of.
    pub checksum: DataChecksum,
    /// The next node.
    pub mirror: Option<Mirror>,
    /// The replica's writer.
    pub disk: ReplicaSink,
    /// What is received is held to this limit.
    pub throttle: &'a Throttle,
    /// Where acknowledged lengths of a client's write go; `None` for a copy between nodes, of which
    /// no packet is acknowledged.
    pub acks: Option<AckHandle>,
}

/// Receives a block, to its completion.
///
/// # Errors
/// What broke the pipeline. A client's replica stays as it is, that of a copy is gone.
pub async fn run(
    x: &Xceivers,
    settings: &Settings,
    incoming: IncomingBlock,
    ends: Ends<'_>,
) -> Result<Received, XferError> {
    let Ends {
        conn,
        checksum,
        mirror,
        disk,
        throttle,
        acks,
    } = ends;
    let inbox = conn.take_inbox();
    let conn: &Conn = conn;
    let pool = incoming.block.pool.clone();
    let packets = PacketReceiver::new(
        x,
        settings.max_packet,
        checksum,
        disk.receive_buffers(),
        &inbox,
    );
    drop(inbox);
    let behind = mirror.as_ref().map(Mirror::name);
    let acks = acks.map(|acks| {
        let responder = PacketResponder::new(x, settings, &pool, conn.peer_name(), behind, acks);
        ClientAcks::new(responder, conn, settings.slow_io)
    });
    let signals = match acks {
        Some(_) => Signals::of_client(x, disk.cancelled()),
        None => Signals::of_copy(disk.cancelled()),
    };
    let mut pipeline = Pipeline {
        x,
        conn,
        receiver: Receiver {
            packets,
            incoming,
            count: 0,
            bytes: 0,
            throttled: Duration::ZERO,
            phase: Receiving::Open,
            patience: Patience::new(conn.read_limit()),
        },
        next: mirror,
        disk,
        throttle,
        acks,
        signals,
        outcome: None,
    };
    let _responder = pipeline
        .acks
        .as_ref()
        .map(|_| x.stats().enter(Activity::Responder));
    let outcome = poll_fn(|cx| pipeline.poll(cx)).await;
    let received = pipeline.received();
    if pipeline.acks.is_some() {
        pipeline.disk.abandon();
    }
    outcome.map(|()| received)
}

struct Pipeline<'a> {
    x: &'a Xceivers,
    conn: &'a Conn,
    receiver: Receiver<'a>,
    next: Option<Mirror>,
    disk: ReplicaSink,
    throttle: &'a Throttle,
    /// `None` for a copy.
    acks: Option<ClientAcks<'a>>,
    signals: Signals,
    /// How it ends, when the last acknowledgements are sent.
    outcome: Option<Result<(), XferError>>,
}

struct Receiver<'a> {
    packets: PacketReceiver,
    incoming: IncomingBlock,
    /// Packets received.
    count: u64,
    /// Bytes of data received.
    bytes: u64,
    /// How long the limit on bandwidth was waited for.
    throttled: Duration,
    phase: Receiving<'a>,
    patience: Patience,
}

impl Pipeline<'_> {
    /// What was received, with the counts that are kept of it.
    fn received(&self) -> Received {
        let (block, disk) = self.disk.record();
        let received = Received {
            block,
            packets: self.receiver.count,
            bytes: self.receiver.bytes,
            throttled: self.receiver.throttled,
            disk,
        };
        let slow = self.next.as_ref().map_or(0, Mirror::slow_packets);
        received.count(self.x.activity(), slow);
        received
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), XferError>> {
        if self.signals.poll_restart(cx)?
            && let Some(acks) = &mut self.acks
        {
            acks.responder.announce_restart();
        }
        for turn in 1..=TURNS {
            let received = self.poll_receive(cx)?;
            // No writer waits for the packets of a copy: its buffers may fill up.
            self.disk.set_drained(!received && self.acks.is_some());
            let heard = self.poll_recv_acks(cx)?;
            let sent = self.next.as_mut().is_some_and(|next| next.poll_send(cx));
            // Where this thread may do the write itself, no packet waits for that of the next.
            let told = !received && MayWait::is_set() && self.poll_acknowledge(cx, false)?;
            let written = self.disk.poll(cx);
            let told = self.poll_acknowledge(cx, received && turn < TURNS)? || told;
            if self.acks.as_ref().is_none_or(ClientAcks::all_sent)
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

    /// Acknowledges what can be, and sends that unless it may wait.
    fn poll_acknowledge(&mut self, cx: &mut Context<'_>, more: bool) -> Result<bool, XferError> {
        if self.outcome.is_none() {
            self.outcome = self.advance();
        }
        self.poll_send_acks(cx, more)
    }

    /// Acknowledges what can be. The outcome, when there is one.
    fn advance(&mut self) -> Option<Result<(), XferError>> {
        let Some(acks) = &mut self.acks else {
            return match self.disk.end()? {
                End::Failed(error) => Some(Err(XferError::Store((**error).clone()))),
                End::Done(_) => {
                    let all_sent = self.next.as_ref().is_none_or(Mirror::has_sent_all);
                    all_sent.then_some(Ok(()))
                }
            };
        };
        match acks.responder.advance(&mut self.disk) {
            AckStep::Wait => None,
            AckStep::Finished => Some(Ok(())),
            AckStep::GiveUp(error) => Some(Err(error)),
        }
    }

    /// Whether there is room for more of the writer's packets everywhere they go.
    fn has_room(&self) -> bool {
        self.outcome.is_none()
            && self.disk.has_room()
            && self
                .acks
                .as_ref()
                .is_none_or(|acks| acks.responder.has_room())
            && self.next.as_ref().is_none_or(Mirror::has_room)
    }

    /// Takes what has arrived; true when there was something.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Result<bool, XferError> {
        let receiver = &mut self.receiver;
        match &mut receiver.phase {
            Receiving::Open => {}
            Receiving::Throttled(wait, after, since) => {
                if wait.as_mut().poll(cx).is_pending() {
                    return Ok(false);
                }
                let (after, since) = (*after, *since);
                receiver.throttled += since.elapsed();
                receiver.patience.touch();
                self.receiver.phase = self.phase_after(after);
                return Ok(true);
            }
            Receiving::Complete => return Ok(false),
            Receiving::Discarding(after) => {
                let after = *after;
                return self.poll_discard(after, cx);
            }
            Receiving::ClientGone(grace) => {
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
        match receiver.packets.poll_next(self.conn, cx) {
            Poll::Ready(batch) => {
                receiver.patience.touch();
                self.on_batch(batch?)?;
                Ok(true)
            }
            Poll::Pending => {
                if receiver.packets.made_progress() || receiver.packets.waits_for_memory() {
                    receiver.patience.touch();
                }
                match receiver.patience.poll_end(cx) {
                    Poll::Ready(limit) => Err(self.conn.socket_error(silence("reading", limit))),
                    Poll::Pending => Ok(false),
                }
            }
        }
    }

    /// Passes a batch on, checks it and hands it to the disk.
    fn on_batch(&mut self, mut batch: PacketBatch) -> Result<(), XferError> {
        let arrived = Instant::now();
        if let Some(next) = &mut self.next {
            next.push(batch.raw.iter().cloned(), batch.packets.len(), arrived);
        }
        let checked = self.receiver.incoming.accept_batch(&mut batch);
        let (last, bytes) = (batch.ends_block(), batch.data_len());
        if let Some(acks) = &mut self.acks {
            let indexed = (self.receiver.count..).zip(&batch.packets);
            for (index, packet) in indexed {
                acks.responder.push(Pending {
                    seqno: packet.seqno,
                    index,
                    end_offset: packet.body.end(),
                    last: packet.last,
                    arrived,
                    corrupt: false,
                });
            }
            acks.received(bytes);
        }
        let packets = batch.packets.len() as u64;
        self.receiver.count += packets;
        self.receiver.bytes += bytes;
        self.x.activity().add(Count::PacketsReceived, packets);
        if batch.in_place {
            self.x.stats().bytes_in_place.add(bytes);
        }
        self.disk.push(batch);
        let after = match checked {
            Ok(()) if last => After::Last,
            Ok(()) => After::More,
            Err(BadPacket::Gap(reason)) => {
                return Err(XferError::protocol(self.conn.peer_name(), reason));
            }
            Err(BadPacket::Corrupt { seqno, reason }) => {
                self.on_corrupt(seqno, reason, arrived)?;
                After::Corrupt
            }
        };
        self.receiver.phase = if self.throttle.rate() > 0 && after != After::Corrupt {
            Receiving::Throttled(Box::pin(self.throttle.take(bytes)), after, arrived)
        } else {
            self.phase_after(after)
        };
        Ok(())
    }

    fn phase_after(&self, after: After) -> Receiving<'static> {
        match after {
            After::More => Receiving::Open,
            _ if self.acks.is_none() => Receiving::Complete,
            after => Receiving::Discarding(after),
        }
    }

    /// The packets before the corrupt one are written and acknowledged, then the writer is told. A
    /// copy ends.
    fn on_corrupt(
        &mut self,
        seqno: i64,
        reason: String,
        arrived: Instant,
    ) -> Result<(), XferError> {
        let incoming = &self.receiver.incoming;
        blame_source(self.x, incoming.source.as_ref(), &incoming.block);
        let Some(acks) = &mut self.acks else {
            return Err(XferError::Checksum(reason));
        };
        tracing::warn!(
            peer = self.conn.peer_name(),
            "corrupt data in a write: {reason}"
        );
        acks.responder.push(Pending {
            seqno,
            index: self.receiver.count,
            end_offset: 0,
            last: false,
            arrived,
            corrupt: true,
        });
        Ok(())
    }

    fn poll_discard(&mut self, after: After, cx: &mut Context<'_>) -> Result<bool, XferError> {
        let mut dropped = [0; 4 << 10];
        match self.conn.read_ready(&mut dropped) {
            Ok(Some(n)) if n > 0 => Ok(true),
            Ok(None) => match self.conn.poll_readable(cx) {
                Poll::Ready(_) => Ok(true),
                Poll::Pending => Ok(false),
            },
            _ if after == After::Last => {
                let grace = Box::pin(tokio::time::sleep(ORPHAN_GRACE));
                self.receiver.phase = Receiving::ClientGone(grace);
                Ok(true)
            }
            _ => Err(self.writer_left()),
        }
    }

    fn writer_left(&self) -> XferError {
        self.conn
            .socket_error(std::io::ErrorKind::UnexpectedEof.into())
    }

    /// Hears what the mirror acknowledges; true when it said something.
    fn poll_recv_acks(&mut self, cx: &mut Context<'_>) -> Result<bool, XferError> {
        let (Some(next), Some(acks)) = (&mut self.next, &mut self.acks) else {
            return Ok(false);
        };
        let mut heard = false;
        while self.outcome.is_none() && acks.responder.listens() {
            let Poll::Ready(said) = next.poll_recv_acks(cx) else {
                break;
            };
            acks.responder.on_mirror_acks(said)?;
            heard = true;
        }
        Ok(heard)
    }

    /// Sends acknowledgements, unless they may wait for those of what is received next.
    fn poll_send_acks(&mut self, cx: &mut Context<'_>, more: bool) -> Result<bool, XferError> {
        let Some(acks) = &mut self.acks else {
            return Ok(false);
        };
        let open = self.outcome.is_none() && matches!(self.receiver.phase, Receiving::Open);
        if more && open && acks.may_wait() {
            return Ok(false);
        }
        acks.poll_send(cx)
    }
}
