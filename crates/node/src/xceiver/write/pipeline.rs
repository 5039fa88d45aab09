//! The data phase of a client's write: four loops that run side by side until the block is complete.
//!
//! ```text
//! client ──receive──> disk task (group commit)
//!            │ └────> forward ──> next node
//! client <──respond── hear <───── next node
//! ```
//!
//! All of them live in the connection's task; only the disk task is one of its own. Whichever ends first
//! ends the others.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hayloft_store::AckHandle;
use hayloft_wire::ack::PipelineAck;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::conn::Conn;
use super::super::context::Xceivers;
use super::super::error::XferError;
use super::super::inflow::{Inflow, Run};
use super::super::settings::Settings;
use super::disk::Disk;
use super::receive::{BadPacket, Incoming, ends_block};
use super::respond::{Behind, Pending, Responder, State, WINDOW};

/// Runs that may wait for the next node.
const FORWARD_RUNS: usize = 8;

/// Bytes read at a time from the next node: acknowledgements are small.
const ACK_READ: usize = 2 << 10;

/// After its last packet a block has this long to be completed by all nodes when the writer is gone: nobody
/// is left who would recover it soon.
const ORPHAN_GRACE: Duration = Duration::from_secs(10);

/// What a pipeline is connected to.
pub struct Ends<'a> {
    /// The client or the node before.
    pub conn: &'a mut Conn,
    /// The next node.
    pub mirror: Option<Conn>,
    /// Where acknowledged lengths go.
    pub acks: AckHandle,
    /// Another taker wants the replica.
    pub cancel: CancellationToken,
    /// The disk task.
    pub disk: Disk,
}

/// When something was last sent to the next node.
struct LastSent {
    origin: Instant,
    millis: AtomicU64,
}

impl LastSent {
    fn now() -> Self {
        Self {
            origin: Instant::now(),
            millis: AtomicU64::new(0),
        }
    }

    fn touch(&self) {
        let millis = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.millis.store(millis, Ordering::Relaxed);
    }

    fn ago(&self) -> Duration {
        self.origin
            .elapsed()
            .saturating_sub(Duration::from_millis(self.millis.load(Ordering::Relaxed)))
    }
}

/// Receives a block from a client.
///
/// # Errors
/// What broke the pipeline. The replica stays as it is.
pub async fn run(
    x: &Xceivers,
    settings: &Settings,
    incoming: Incoming,
    ends: Ends<'_>,
) -> Result<(), XferError> {
    let Ends {
        conn,
        mirror,
        acks,
        cancel,
        disk,
    } = ends;
    let inbox = conn.take_inbox();
    let conn: &Conn = conn;
    let inflow = Inflow::new(x.memory().clone(), settings.max_packet, &inbox);
    drop(inbox);
    let pool = incoming.block.pool.clone();
    let evict = x.evict_token();
    let (tell_pending, pending) = mpsc::channel(WINDOW);
    let (tell_forward, forward_queue) = mpsc::channel(FORWARD_RUNS);
    let (tell_behind, behind) = mpsc::channel(WINDOW);
    let last_sent = LastSent::now();
    let mut mirror = mirror;
    let mirror_inbox = mirror.as_mut().map(Conn::take_inbox).unwrap_or_default();
    let mirror = mirror.as_ref();
    let responder = Responder {
        x,
        settings,
        conn,
        pool: &pool,
        pending,
        behind_name: mirror.map_or("", Conn::peer_name),
        behind: mirror.is_some().then_some(behind),
        progress: disk.progress,
        allow: disk.allow,
        acks,
        state: State::default(),
    };
    let receiver = Receiver {
        x,
        conn,
        inflow,
        incoming,
        pending: tell_pending,
        disk: disk.queue,
        forward: mirror.is_some().then_some(tell_forward),
        packets: 0,
    };
    tokio::select! {
        outcome = responder.run() => outcome,
        outcome = receiver.run() => outcome.map(|never| match never {}),
        () = forward(mirror, forward_queue, &last_sent) => Ok(()),
        () = hear(mirror, mirror_inbox, tell_behind, &last_sent) => Ok(()),
        () = cancel.cancelled() => Err(XferError::Stopped(super::TAKEN_OVER)),
        () = evict.cancelled() => Err(XferError::Stopped("writers were evicted")),
        () = x.shutdown_token().cancelled() => Err(XferError::Stopped(super::SHUT_DOWN)),
    }
}

struct Receiver<'a> {
    x: &'a Xceivers,
    conn: &'a Conn,
    inflow: Inflow,
    incoming: Incoming,
    pending: mpsc::Sender<Pending>,
    disk: mpsc::Sender<Run>,
    forward: Option<mpsc::Sender<Bytes>>,
    packets: u64,
}

impl Receiver<'_> {
    /// Receives up to the last packet; then the responder decides when all is done, unless the writer leaves
    /// before.
    async fn run(mut self) -> Result<Infallible, XferError> {
        loop {
            let mut run = self.inflow.next(self.conn).await?;
            if let Some(forward) = &self.forward {
                // A mirror that is gone takes no more; the responder tells the client.
                let _mirror_gone = forward.send(run.raw.clone()).await;
            }
            let outcome = self.incoming.accept_run(&mut run);
            let (last, bytes) = (ends_block(&run), run.data_len());
            let arrived = Instant::now();
            let pending: Vec<Pending> = run
                .packets
                .iter()
                .enumerate()
                .map(|(at, p)| self.pending(p, at, arrived))
                .collect();
            self.packets += pending.len() as u64;
            // A disk task that is gone has said why to the responder, which ends the pipeline.
            let _disk_gone = self.disk.send(run).await;
            for packet in pending {
                let _responder_gone = self.pending.send(packet).await;
            }
            match outcome {
                Ok(()) => {}
                Err(BadPacket::Corrupt(reason)) => return self.on_corrupt(&reason).await,
                Err(bad) => return Err(bad.into_error(self.conn)),
            }
            self.x.throttles().write.take(bytes).await;
            if last {
                self.conn.ended().await;
                // The block can still become complete here and behind without its writer.
                tokio::time::sleep(ORPHAN_GRACE).await;
                return Err(self.writer_left());
            }
        }
    }

    fn pending(
        &self,
        packet: &hayloft_wire::packet::Packet,
        at: usize,
        arrived: Instant,
    ) -> Pending {
        Pending {
            seqno: packet.header.seqno,
            index: self.packets + at as u64,
            end_offset: packet.end_offset(),
            last: packet.header.last_packet_in_block,
            arrived,
            corrupt: false,
        }
    }

    /// The packets before the corrupt one are written and acknowledged, then the writer is told.
    async fn on_corrupt(&mut self, reason: &str) -> Result<Infallible, XferError> {
        tracing::warn!(
            peer = self.conn.peer_name(),
            "corrupt data in a write: {reason}"
        );
        super::blame_source(self.x, self.incoming.source.as_ref(), &self.incoming.block);
        let seqno = self.inflow_bad_seqno();
        let corrupt = Pending {
            seqno,
            index: self.packets,
            end_offset: 0,
            last: false,
            arrived: Instant::now(),
            corrupt: true,
        };
        let _responder_gone = self.pending.send(corrupt).await;
        self.conn.ended().await;
        Err(self.writer_left())
    }

    fn writer_left(&self) -> XferError {
        self.conn
            .socket_error(std::io::ErrorKind::UnexpectedEof.into())
    }

    fn inflow_bad_seqno(&self) -> i64 {
        self.incoming
            .bad_seqno
            .unwrap_or(hayloft_wire::ack::UNKNOWN_SEQNO)
    }
}

/// Sends run after run to the next node. When that fails the connection is shut down, so that [`hear`] comes to
/// its end after everything the node had still said. Never returns.
async fn forward(mirror: Option<&Conn>, mut queue: mpsc::Receiver<Bytes>, last_sent: &LastSent) {
    if let Some(mirror) = mirror {
        while let Some(raw) = queue.recv().await {
            if let Err(error) = mirror.write_all(&raw).await {
                tracing::info!(
                    node = mirror.peer_name(),
                    "cannot send to the next node: {error}"
                );
                mirror.shut_down();
                break;
            }
            last_sent.touch();
        }
        drop(queue);
    }
    std::future::pending().await
}

/// Reads the acknowledgements of the next node until it is gone. Never returns.
async fn hear(
    mirror: Option<&Conn>,
    inbox: BytesMut,
    tell: mpsc::Sender<Behind>,
    last_sent: &LastSent,
) {
    if let Some(mirror) = mirror {
        let gone = hear_all(mirror, inbox, &tell, last_sent).await;
        let _responder_gone = tell.send(gone).await;
    }
    std::future::pending().await
}

async fn hear_all(
    mirror: &Conn,
    mut inbox: BytesMut,
    tell: &mpsc::Sender<Behind>,
    last_sent: &LastSent,
) -> Behind {
    let mut bytes = [0; ACK_READ];
    loop {
        loop {
            match PipelineAck::decode(&mut inbox) {
                Ok(Some(ack)) => {
                    if tell.send(Behind::Ack(ack, Instant::now())).await.is_err() {
                        return std::future::pending().await;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    return Behind::Gone {
                        reason: error.to_string(),
                        neglected: false,
                    };
                }
            }
        }
        match mirror.read_some(&mut bytes).await {
            Ok(0) => {
                // Apache's rule: after 0.9 of the read timeout without a packet, the silence was ours.
                let patience = mirror.read_limit().map(|limit| limit.mul_f32(0.9));
                let neglected = patience.is_some_and(|patience| last_sent.ago() > patience);
                return Behind::Gone {
                    reason: "it closed the connection".to_owned(),
                    neglected,
                };
            }
            Ok(n) => inbox.extend_from_slice(&bytes[..n]),
            Err(error) => {
                return Behind::Gone {
                    reason: error.to_string(),
                    neglected: false,
                };
            }
        }
    }
}
