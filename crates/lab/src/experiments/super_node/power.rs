//! Workers are switched off and on again: what the NameNode copies meanwhile.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::runner::record::PeerFigures;
use crate::up::Testbed;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::yarn::Yarn;

/// Workers stay off for so long at least: three times what the NameNode waits for a node.
const OFF: Duration = Duration::from_secs(40);
/// The longest wait until the NameNode has nothing to copy.
const SETTLE_LIMIT: Duration = Duration::from_secs(300);
/// It must have nothing to copy for so long: its counter of copies is up to ten seconds old.
const QUIET: Duration = Duration::from_secs(15);
/// How often the NameNode is asked.
const EVERY: Duration = Duration::from_secs(1);

/// What the NameNode counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ReplicationCounters {
    /// Blocks that it had copied so far.
    copied: u64,
    /// Blocks with too few replicas.
    low: u64,
    /// Copies under way.
    pending: u64,
    /// Blocks without a replica.
    missing: u64,
    /// Live nodes.
    live: u64,
}

impl ReplicationCounters {
    fn read(testbed: &Testbed) -> Result<Self> {
        let beans = ["NameNodeActivity", "FSNamesystemState", "NameNodeInfo"];
        let [activity, state, info] = beans.map(|name| testbed.bean(name));
        Self::parse(&activity?, &state?, &info?)
    }

    fn parse(activity: &Value, state: &Value, info: &Value) -> Result<Self> {
        let of = |bean: &Value, key: &str| {
            let missing = || TestkitError::Talk(format!("the NameNode has no counter {key}"));
            bean[key].as_u64().ok_or_else(missing)
        };
        Ok(Self {
            copied: of(activity, "SuccessfulReReplications")?,
            low: of(state, "UnderReplicatedBlocks")?,
            pending: of(state, "PendingReplicationBlocks")?,
            missing: of(info, "NumberOfMissingBlocks")?,
            live: of(state, "NumLiveDataNodes")?,
        })
    }

    /// Nothing is left to copy: what has no replica cannot be.
    fn is_settled(self) -> bool {
        self.low <= self.missing && self.pending == 0
    }
}

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

/// Waits at least `least`, until the NameNode has nothing to copy; the last counters, and after how
/// many seconds nothing was left, if that was within the limit.
fn settle(
    testbed: &Testbed,
    least: Duration,
    note: &mut dyn FnMut(ReplicationCounters),
) -> Result<(ReplicationCounters, Option<f64>)> {
    let begun = Instant::now();
    let mut since = None;
    loop {
        let now = ReplicationCounters::read(testbed)?;
        note(now);
        let seconds = begun.elapsed().as_secs_f64();
        since = now.is_settled().then(|| since.unwrap_or(seconds));
        let elapsed = begun.elapsed();
        let quiet = since.is_some_and(|since| seconds - since >= QUIET.as_secs_f64());
        if (quiet && elapsed >= least) || elapsed >= SETTLE_LIMIT {
            return Ok((now, since));
        }
        std::thread::sleep(EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Counters of a NameNode with this activity.
    fn counters(activity: &Value, low: u64, live: u64) -> Result<ReplicationCounters> {
        let state = json!({
            "UnderReplicatedBlocks": low, "PendingReplicationBlocks": 0, "NumLiveDataNodes": live,
        });
        ReplicationCounters::parse(activity, &state, &json!({"NumberOfMissingBlocks": 0}))
    }

    #[test]
    fn the_worst_moment_and_all_copies_are_kept() {
        let at = |copied: u64, low, live| {
            let activity = json!({ "SuccessfulReReplications": copied });
            counters(&activity, low, live).expect("it has all")
        };
        let mut finding = PowerFinding {
            live: (8, 8, 0),
            ..PowerFinding::default()
        };
        for now in [at(5, 0, 8), at(6, 9, 4), at(14, 0, 4)] {
            finding.note(now, 5);
        }
        assert_eq!((finding.copied, finding.low, finding.live.1), (9, 9, 4));
        assert!(at(5, 0, 8).is_settled() && !at(5, 1, 8).is_settled());
        let lost = ReplicationCounters {
            missing: 1,
            ..at(5, 1, 8)
        };
        assert!(lost.is_settled(), "it cannot be copied");
    }

    #[test]
    fn a_counter_that_is_missing_is_named() {
        let read = counters(&json!({}), 0, 8);
        let error = read.expect_err("it has none").to_string();
        assert!(error.contains("SuccessfulReReplications"), "{error}");
    }
}
