//! What is taken down about a block while it is received, for the node's counts and the audit
//! trail.

use std::net::SocketAddr;
use std::time::Duration;

use hayloft_store::ReplicaWriter;
use hayloft_wire::ids::ExtendedBlock;
use tokio::time::Instant;

use crate::activity::{ClientTrace, Count, NodeActivity, OpKind, OpParts, Timed, nanos};
use crate::xceiver::context::Xceivers;

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
        let millis = u64::try_from(self.disk.as_millis()).unwrap_or(u64::MAX);
        activity.add(Count::TotalWriteTime, millis);
        activity.add(Count::PacketsSlowWriteToMirror, slow_to_mirror);
    }
}

/// A write from its beginning to its end.
pub struct WriteRecord<'a> {
    pub began: Instant,
    /// From its beginning to the open replica.
    pub opened: Duration,
    /// From then on until the next node was there.
    pub set_up: Instant,
    pub client: &'a str,
    pub volume: String,
    pub from: SocketAddr,
    pub to: Option<SocketAddr>,
    pub is_local: bool,
}

impl WriteRecord<'_> {
    /// Counts the write, and writes the audit trail for a client's.
    pub fn end(&self, x: &Xceivers, received: &Received, is_client: bool) {
        let activity: &NodeActivity = x.activity();
        activity.written_by(self.is_local, received.bytes);
        let whole = self.began.elapsed();
        let disk = received.disk + self.opened;
        let parts = OpParts::of(whole, received.throttled, disk);
        activity.latencies.add(OpKind::Write, &parts);
        let Some(block) = &received.block else {
            return;
        };
        if !is_client || !ClientTrace::wants_writes() {
            return;
        }
        let trace = ClientTrace {
            from: Some(self.from),
            to: self.to,
            volume: &self.volume,
            bytes: block.block.num_bytes,
            client: self.client,
            offset: 0,
            node: &x.store().datanode_uuid(),
            block,
            nanos: nanos(self.set_up.elapsed()),
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
