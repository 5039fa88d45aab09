//! What is taken down about a block while it is received, for the node's counts and the audit
//! trail.

use std::time::Duration;

use hayloft_store::ReplicaWriter;
use hayloft_wire::ids::ExtendedBlock;
use tokio::time::Instant;

use crate::activity::{ClientTrace, Count, NodeActivity, OpKind, OpParts, Timed, millis, nanos};
use crate::xceiver::context::Xceivers;
use crate::xceiver::net::conn::Conn;

/// A piece of work on a replica's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A write of so many bytes.
    Write(u64),
    Sync,
}

/// The time that a disk works on a block: one piece of work after another.
#[derive(Debug, Default)]
pub struct DiskClock {
    began: Option<Instant>,
    busy: Duration,
}

impl DiskClock {
    /// Work begins.
    pub fn begin(&mut self) {
        self.began = Some(Instant::now());
    }

    /// Work went on or ended: it took so long, if there was any.
    pub fn end(&mut self) -> Option<Duration> {
        let took = self.began.take()?.elapsed();
        self.busy += took;
        Some(took)
    }

    /// Counts a piece of work that ended, and logs it when it was slow.
    pub fn end_of(&mut self, work: Work, x: &Xceivers, writer: &ReplicaWriter) {
        let Some(took) = self.end() else {
            return;
        };
        let (activity, is_slow) = (x.activity(), took > x.settings().slow_io);
        activity.took(Timed::FlushNanos, took);
        let (slow, bytes) = match work {
            Work::Write(bytes) => (Count::PacketsSlowWriteToDisk, bytes),
            Work::Sync => {
                activity.add(Count::FsyncCount, 1);
                activity.took(Timed::FsyncNanos, took);
                (Count::SlowFlushOrSyncCount, 0)
            }
        };
        if !is_slow {
            return;
        }
        activity.add(slow, 1);
        tracing::warn!(
            block = %writer.block(), storage = %writer.storage().id, bytes,
            millis = took.as_millis(), "slow write to disk"
        );
    }

    /// All work so far.
    pub fn busy(&self) -> Duration {
        self.busy
    }
}

/// A block that was received.
#[derive(Clone, Debug)]
pub struct Received {
    /// The replica as it was completed; `None` when it was not.
    pub block: Option<ExtendedBlock>,
    /// Packets that came in.
    pub packets: u64,
    /// Bytes of data that came in.
    pub bytes: u64,
    /// How long a limit on bandwidth was waited for.
    pub throttled: Duration,
    /// How long its disk was busy with it.
    pub disk: Duration,
}

impl Received {
    /// Counts it; the next node was slow to take `slow_to_mirror` packets.
    pub fn count(&self, activity: &NodeActivity, slow_to_mirror: u64) {
        activity.add(Count::TotalWriteTime, millis(self.disk));
        activity.add(Count::PacketsSlowWriteToMirror, slow_to_mirror);
    }
}

/// A write from its beginning to its end.
pub struct WriteRecord<'a> {
    began: Instant,
    /// When the replica was open.
    opened: Instant,
    client: &'a str,
    /// Directory of the volume; `None` when the audit trail is to have no line.
    volume: Option<String>,
}

impl<'a> WriteRecord<'a> {
    /// Of a write into an open replica; the audit trail has a line for a client's.
    pub fn new(began: Instant, client: &'a str, writer: &ReplicaWriter, is_client: bool) -> Self {
        let traced = is_client && ClientTrace::wants_writes();
        Self {
            began,
            opened: Instant::now(),
            client,
            volume: traced.then(|| writer.volume_path().display().to_string()),
        }
    }

    /// Counts the write that came over `conn`, and writes the audit trail.
    pub fn end(&self, x: &Xceivers, conn: &Conn, received: &Received) {
        let activity = x.activity();
        activity.written_by(conn.is_local(), received.bytes);
        let whole = self.began.elapsed();
        let disk = received.disk + (self.opened - self.began);
        let parts = OpParts::of(whole, received.throttled, disk);
        activity.latencies.add(OpKind::Write, &parts);
        let (Some(volume), Some(block)) = (&self.volume, &received.block) else {
            return;
        };
        let trace = ClientTrace {
            from: Some(conn.peer_addr()),
            to: conn.local_addr(),
            volume,
            bytes: block.block.num_bytes,
            client: self.client,
            offset: 0,
            node: &x.store().datanode_uuid(),
            block,
            nanos: nanos(self.opened.elapsed()),
        };
        trace.written(&parts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_adds_up_what_it_was_told_of() {
        let mut clock = DiskClock::default();
        assert_eq!(clock.end(), None);
        for _ in 0..3 {
            clock.begin();
            tokio::time::advance(Duration::from_millis(5)).await;
            assert_eq!(clock.end(), Some(Duration::from_millis(5)));
            tokio::time::advance(Duration::from_millis(9)).await;
        }
        assert_eq!(clock.busy(), Duration::from_millis(15));
    }
}
