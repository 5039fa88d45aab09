//! Workers are switched off and on again: what the NameNode copies meanwhile.

use std::time::Duration;

use super::super::replication_counters::{OFF, ReplicationCounters, settle};
use crate::runner::record::PeerFigures;
use crate::up::Testbed;
use hayloft_testkit::error::Result;
use hayloft_testkit::yarn::Yarn;

/// What switching off half of the workers did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct PowerFinding {
    /// Workers that were off.
    pub off: usize,
    /// Nodes live before, at the least while they were off, and after.
    pub live: (u64, u64, u64),
    /// Most blocks with too few replicas at one time.
    pub low: u64,
    /// Most blocks without a replica at one time.
    pub missing: u64,
    /// Blocks that the NameNode had copied.
    pub copied: u64,
    /// Seconds until it had nothing more to copy; `None` when it had not within the limit.
    pub settled_s: Option<f64>,
}

impl PowerFinding {
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
    fn figures(&self) -> PeerFigures {
        let number = |count: u64| count as f64;
        PeerFigures::of([
            ("off", self.off as f64),
            ("live_before", number(self.live.0)),
            ("live_off", number(self.live.1)),
            ("live_after", number(self.live.2)),
            ("low", number(self.low)),
            ("missing", number(self.missing)),
            ("copied", number(self.copied)),
        ])
        .with_some("settled_s", self.settled_s)
    }

    /// Notes a look at the NameNode while workers are off.
    fn note(&mut self, now: ReplicationCounters, copied_before: u64) {
        self.low = self.low.max(now.low);
        self.missing = self.missing.max(now.missing);
        self.live.1 = self.live.1.min(now.live);
        self.copied = now.copied.saturating_sub(copied_before);
    }
}

/// Switches off the second half of so many workers, with the nodes in their hosts, until the
/// NameNode has nothing to copy, and switches them on.
pub(super) fn off_and_on(
    testbed: &mut Testbed,
    yarn: &mut Yarn,
    workers: usize,
) -> Result<PeerFigures> {
    let before = settle(testbed, Duration::ZERO, &mut |_| ())?.0;
    let off_hosts = workers.div_ceil(2)..workers;
    // Workers are on the first hosts that have storage, so their places are their nodes'.
    let nodes_too = testbed.nodes().len() >= workers;
    let mut finding = PowerFinding {
        off: off_hosts.len(),
        live: (before.live, before.live, 0),
        ..PowerFinding::default()
    };
    for at in off_hosts.clone() {
        yarn.kill_worker(at)?;
    }
    if nodes_too {
        for at in off_hosts.clone() {
            testbed.nodes_mut()[at].kill()?;
        }
    }
    let mut note = |now| finding.note(now, before.copied);
    let (_, settled) = settle(testbed, OFF, &mut note)?;
    finding.settled_s = settled;
    if nodes_too {
        for at in off_hosts {
            testbed.nodes_mut()[at].restart()?;
        }
    }
    testbed.wait_live(usize::try_from(before.live).unwrap_or(usize::MAX))?;
    finding.live.2 = ReplicationCounters::read(testbed)?.live;
    Ok(finding.figures())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_moment_and_all_copies_are_kept() {
        let at = |copied, low, live| ReplicationCounters {
            copied,
            low,
            live,
            ..ReplicationCounters::default()
        };
        let mut finding = PowerFinding {
            live: (8, 8, 0),
            ..PowerFinding::default()
        };
        for now in [at(5, 0, 8), at(6, 9, 4), at(14, 0, 4)] {
            finding.note(now, 5);
        }
        assert_eq!((finding.copied, finding.low, finding.live.1), (9, 9, 4));
    }
}
