//! Acknowledgements of a pipeline: in order, each one only after this node's disk and every node
//! behind.

use std::collections::VecDeque;

use bytes::BytesMut;
use hayloft_store::{AckHandle, StoreError};
use hayloft_wire::ids::PoolId;
use hayloft_wire::pipeline_ack::{Ecn, Hop, PipelineAck, Slow, UNKNOWN_SEQNO};
use hayloft_wire::transfer::Status;
use tokio::time::Instant;

use crate::activity::{Count, Tally, Timed, nanos};
use crate::xceiver::block_receiver::completion::End;
use crate::xceiver::block_receiver::replica_sink::ReplicaSink;
use crate::xceiver::context::Xceivers;
use crate::xceiver::error::XferError;
use crate::xceiver::settings::Settings;

/// Packets that may wait for their acknowledgement here, and acknowledgements from behind that may
/// wait for the disk. A stock client has 80 packets on their way at most.
pub const WINDOW: usize = 256;

/// Bytes that may wait for the writer before the node behind is listened to again: what belongs to
/// no packet is passed on at once, and a writer that reads nothing would let it grow.
const OUT_BYTES_MAX: usize = 64 << 10;

/// A packet to be acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// Sequence number.
    pub seqno: i64,
    /// Packets that arrived before it.
    pub index: u64,
    /// End of its data in the block.
    pub end_offset: u64,
    /// The block ends with it.
    pub last: bool,
    /// When it arrived.
    pub arrived: Instant,
    /// Its data does not match its checksums; it was not written.
    pub corrupt: bool,
}

/// What comes from the node behind.
#[derive(Debug)]
pub enum FromMirror {
    /// An acknowledgement.
    Ack(PipelineAck, Instant),
    /// It is gone, or says nonsense.
    Gone {
        /// Why.
        reason: String,
        /// Nothing was sent to it for so long that this node may be the reason.
        starved_by_us: bool,
    },
}

/// Decides when which packet is acknowledged, and writes the acknowledgements. Does no I/O.
pub struct PacketResponder<'a> {
    x: &'a Xceivers,
    settings: &'a Settings,
    pool: &'a PoolId,
    /// The writer, as text.
    peer: &'a str,
    /// The node behind, as text; `None` in the last node, and when it is gone.
    behind: Option<String>,
    behind_name: String,
    acks: AckHandle,
    queue: VecDeque<Pending>,
    from_behind: VecDeque<(PipelineAck, Instant)>,
    gone: Option<String>,
    /// The writer was told that the node behind is gone; nothing more is acknowledged.
    mirror_failure_reported: bool,
    restart_told: bool,
    /// What the nodes behind said to the last packet, while this node completes the replica.
    last_hops: Option<(Vec<Hop>, u64)>,
    acked: u64,
    /// How long the node behind took to acknowledge.
    round_trips: Tally,
    /// To be sent to the writer.
    pub out: BytesMut,
}

/// What [`PacketResponder::advance`] came to.
pub enum AckStep {
    /// Nothing more to acknowledge now.
    Wait,
    /// The last packet was acknowledged.
    Finished,
    /// Send what there is and give up.
    GiveUp(XferError),
}

impl<'a> PacketResponder<'a> {
    /// For one block; `behind` is the next node's name.
    pub fn new(
        x: &'a Xceivers,
        settings: &'a Settings,
        pool: &'a PoolId,
        peer: &'a str,
        behind: Option<&str>,
        acks: AckHandle,
    ) -> Self {
        Self {
            x,
            settings,
            pool,
            peer,
            behind: behind.map(str::to_owned),
            behind_name: behind.unwrap_or_default().to_owned(),
            acks,
            queue: VecDeque::new(),
            from_behind: VecDeque::new(),
            gone: None,
            mirror_failure_reported: false,
            restart_told: false,
            last_hops: None,
            acked: 0,
            round_trips: Tally::default(),
            out: BytesMut::new(),
        }
    }

    /// Whether more packets may wait for their acknowledgement.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.queue.len() < WINDOW
    }

    /// Whether the node behind may be listened to.
    #[must_use]
    pub fn listens(&self) -> bool {
        let waits = self.from_behind.len() < WINDOW && self.out.len() < OUT_BYTES_MAX;
        self.behind.is_some() && waits
    }

    /// The writer was slow to take acknowledgements.
    pub fn count_slow_writer(&self) {
        self.x.activity().add(Count::SlowAckToUpstreamCount, 1);
    }

    /// A packet arrived.
    pub fn push(&mut self, packet: Pending) {
        self.queue.push_back(packet);
    }

    /// Says once, out of band, that this node restarts.
    pub fn announce_restart(&mut self) {
        if !std::mem::replace(&mut self.restart_told, true) {
            PipelineAck::new(UNKNOWN_SEQNO, vec![self.own_hop(Status::OobRestart)], 0)
                .encode(&mut self.out);
            tracing::info!(peer = self.peer, "told a writer that this node restarts");
        }
    }

    /// Takes note of what the node behind said.
    ///
    /// # Errors
    /// This node has to leave the pipeline without a word.
    pub fn on_mirror_acks(&mut self, event: FromMirror) -> Result<(), XferError> {
        match event {
            FromMirror::Ack(ack, at) => {
                if ack.oob_status().is_some() || ack.seqno == UNKNOWN_SEQNO {
                    self.pass_on(&ack)?;
                } else {
                    self.show(&ack);
                    self.from_behind.push_back((ack, at));
                }
            }
            FromMirror::Gone {
                starved_by_us: true,
                reason,
            } => {
                // The node behind may have given up because this one sent nothing: do not blame it.
                return Err(XferError::Refused(format!(
                    "the node behind closed after a silence: {reason}"
                )));
            }
            FromMirror::Gone { reason, .. } => {
                self.behind = None;
                self.gone = Some(reason);
            }
        }
        Ok(())
    }

    /// What all nodes behind have, readers may see here too, as at Apache's node. One that has
    /// followed the last node finds no less here, however far behind this node's disk is. The
    /// acknowledgement waits for that.
    fn show(&self, ack: &PipelineAck) {
        let packet = self.queue.get(self.from_behind.len());
        let shown = packet.filter(|p| p.seqno == ack.seqno && !p.corrupt && ack.is_success());
        if let Some(packet) = shown {
            self.acks.set_bytes_shown(packet.end_offset);
        }
    }

    /// To be called when what is in `out` goes to the writer now. Were it visible before, a node in
    /// front, where it becomes so by this, would be the further behind.
    pub fn tell(&mut self) {
        self.acks.set_bytes_acked(self.acked);
    }

    /// An acknowledgement that belongs to no packet goes upstream at once, with this node in front.
    fn pass_on(&mut self, ack: &PipelineAck) -> Result<(), XferError> {
        refuse_corrupt(ack)?;
        let hops = self.with_own_hop(ack);
        PipelineAck::new(UNKNOWN_SEQNO, hops, 0).encode(&mut self.out);
        Ok(())
    }

    fn with_own_hop(&self, behind: &PipelineAck) -> Vec<Hop> {
        let mut hops = Vec::with_capacity(behind.hops.len() + 1);
        hops.push(self.own_hop(Status::Success));
        hops.extend_from_slice(&behind.hops);
        hops
    }

    /// Acknowledges every packet at the front whose time has come.
    pub fn advance(&mut self, disk: &mut ReplicaSink) -> AckStep {
        let written = disk.written();
        while let Some(&head) = self.queue.front() {
            if head.corrupt && head.index <= written {
                return self.on_corrupt(head);
            }
            if head.index >= written {
                break;
            }
            if self.mirror_failure_reported {
                self.queue.pop_front();
                if head.last {
                    // Nothing more can come that would end this pipeline.
                    return AckStep::GiveUp(XferError::remote(
                        &self.behind_name,
                        "failed before it acknowledged the end of the block",
                    ));
                }
                continue;
            }
            if head.last {
                match self.advance_last(head, disk) {
                    AckStep::Wait => break,
                    step => return step,
                }
            }
            let hops = match self.hops_for(head) {
                None => break,
                Some(Ok(hops)) => hops,
                Some(Err(error)) => return AckStep::GiveUp(error),
            };
            self.acknowledge(head, hops);
            self.queue.pop_front();
        }
        if let Some(End::Failed(error)) = disk.end() {
            return self.on_disk_failure(error);
        }
        if self.report_mirror_failure() {
            // What waited only for the node behind has its end now.
            return self.advance(disk);
        }
        AckStep::Wait
    }

    /// The last packet: acknowledged when the replica is completed here, which waits for the nodes
    /// behind. When one of them failed, the replica stays one being written: the client that
    /// rebuilds the pipeline, or recovers the block, decides on its length.
    fn advance_last(&mut self, head: Pending, disk: &mut ReplicaSink) -> AckStep {
        if self.last_hops.is_none() {
            let hops = match self.hops_for(head) {
                None => return AckStep::Wait,
                Some(Ok(hops)) => hops,
                Some(Err(error)) => return AckStep::GiveUp(error),
            };
            if hops.0.iter().any(|hop| hop.status() != Status::Success) {
                self.acknowledge(head, hops);
                return AckStep::GiveUp(XferError::remote(
                    &self.behind_name,
                    "did not take the end of the block",
                ));
            }
            self.last_hops = Some(hops);
            disk.allow();
        }
        if !matches!(disk.end(), Some(End::Done(_))) {
            return AckStep::Wait;
        }
        let hops = self.last_hops.take().expect("set above");
        self.acknowledge(head, hops);
        AckStep::Finished
    }

    /// The states of all hops for the packet; `None` while the node behind has not acknowledged it.
    fn hops_for(&mut self, head: Pending) -> Option<Result<(Vec<Hop>, u64), XferError>> {
        if self.behind.is_none() && self.gone.is_none() {
            return Some(Ok((vec![self.own_hop(Status::Success)], 0)));
        }
        let (ack, at) = self.from_behind.pop_front()?;
        if ack.seqno != head.seqno {
            return Some(Err(XferError::Refused(format!(
                "the node behind acknowledged packet {} where {} was expected",
                ack.seqno, head.seqno
            ))));
        }
        if let Err(error) = refuse_corrupt(&ack) {
            return Some(Err(error));
        }
        let waited = nanos(at.saturating_duration_since(head.arrived));
        Some(Ok((self.with_own_hop(&ack), waited)))
    }

    /// Rests on: the packet is written here ([`ReplicaSink::written`]) and acknowledged by every
    /// node behind.
    fn acknowledge(&mut self, head: Pending, (hops, waited): (Vec<Hop>, u64)) {
        if waited > 0 {
            self.round_trips.add(waited);
        }
        let ack = PipelineAck::new(head.seqno, hops, waited);
        if ack.is_success() && head.end_offset > self.acked {
            self.acked = head.end_offset;
        }
        ack.encode(&mut self.out);
    }

    fn on_corrupt(&mut self, head: Pending) -> AckStep {
        PipelineAck::new(head.seqno, vec![self.own_hop(Status::ErrorChecksum)], 0)
            .encode(&mut self.out);
        AckStep::GiveUp(XferError::Checksum(format!(
            "packet {} does not match its checksums",
            head.seqno
        )))
    }

    /// The writer learns that it is this node that failed.
    fn on_disk_failure(&mut self, error: &StoreError) -> AckStep {
        PipelineAck::new(UNKNOWN_SEQNO, vec![self.own_hop(Status::Error)], 0).encode(&mut self.out);
        AckStep::GiveUp(XferError::Store(error.clone()))
    }

    /// Tells the writer once that the node behind is gone; the writer rebuilds the pipeline without
    /// it. True when it was told now.
    fn report_mirror_failure(&mut self) -> bool {
        // A node that leaves after it has acknowledged the last packet is no loss.
        if self.mirror_failure_reported || self.last_hops.is_some() || !self.from_behind.is_empty()
        {
            return false;
        }
        let Some(reason) = &self.gone else {
            return false;
        };
        tracing::info!(
            peer = self.peer,
            "the node behind in a pipeline failed: {reason}"
        );
        let hops = vec![self.own_hop(Status::Success), Hop::of(Status::Error)];
        PipelineAck::new(UNKNOWN_SEQNO, hops, 0).encode(&mut self.out);
        self.mirror_failure_reported = true;
        true
    }

    fn own_hop(&self, status: Status) -> Hop {
        let ecn = if self.settings.ecn {
            congestion(self.settings.congestion_ratio)
        } else {
            Ecn::Disabled
        };
        let slow = match (
            self.settings.slow_flag,
            self.settings.slow_flag && self.x.link().is_slow(self.pool),
        ) {
            (false, _) => Slow::Disabled,
            (true, false) => Slow::Normal,
            (true, true) => Slow::Slow,
        };
        Hop::new(status, ecn, slow)
    }
}

impl Drop for PacketResponder<'_> {
    fn drop(&mut self) {
        let times = &mut self.round_trips;
        times.give(self.x.activity(), Timed::PacketAckRoundTripTimeNanos);
    }
}

/// When the next node found the data corrupt that this one sent it, this one (or the way to it) is
/// to blame. Closing without an acknowledgement makes the writer drop this node.
fn refuse_corrupt(ack: &PipelineAck) -> Result<(), XferError> {
    if ack
        .hops
        .first()
        .is_some_and(|hop| hop.status() == Status::ErrorChecksum)
    {
        return Err(XferError::Checksum(
            "the node behind received corrupt data from this one".to_owned(),
        ));
    }
    Ok(())
}

/// This node's own congestion: the one-minute load average per processor against the ratio.
fn congestion(ratio: f64) -> Ecn {
    let load_fixed = rustix::system::sysinfo().loads[0]; // 16 fraction bits
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    #[expect(
        clippy::cast_precision_loss,
        reason = "a load average needs no more than 53 bits"
    )]
    let load = load_fixed as f64 / 65_536.0;
    #[expect(clippy::cast_precision_loss, reason = "no machine has 2^53 processors")]
    let limit = ratio * processors as f64;
    if load > limit {
        Ecn::Congested
    } else {
        Ecn::Supported
    }
}
