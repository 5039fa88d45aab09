//! What a NameNode counts of blocks that it has copied, and the wait until it has none to copy.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::up::Testbed;
use hayloft_testkit::error::{Result, TestkitError};

/// Hosts stay off for so long at least: more than what the NameNode waits for a node, three times.
pub(super) const OFF: Duration = Duration::from_secs(40);
/// The longest wait until the NameNode has nothing to copy: about two thousand blocks, of which it
/// has four copied in a second where two nodes are live.
pub(super) const SETTLE_LIMIT: Duration = Duration::from_secs(600);
/// It must have nothing to copy for so long: its counter of copies is up to ten seconds old.
const QUIET: Duration = Duration::from_secs(15);
/// How often the NameNode is asked.
const EVERY: Duration = Duration::from_secs(1);

/// What the NameNode counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ReplicationCounters {
    /// Blocks that it had copied so far.
    pub copied: u64,
    /// Blocks with too few replicas.
    pub low: u64,
    /// Copies under way.
    pub pending: u64,
    /// Blocks without a replica.
    pub missing: u64,
    /// Live nodes.
    pub live: u64,
}

impl ReplicationCounters {
    pub fn read(testbed: &Testbed) -> Result<Self> {
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

/// Waits at least `least`, until the NameNode has nothing to copy; the last counters, and after how
/// many seconds nothing was left, if that was within the limit.
pub(super) fn settle(
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
    fn what_has_no_replica_cannot_be_copied() {
        let at = |low| {
            let activity = json!({ "SuccessfulReReplications": 5 });
            counters(&activity, low, 8).expect("it has all")
        };
        assert_eq!((at(1).copied, at(1).live), (5, 8));
        assert!(at(0).is_settled() && !at(1).is_settled());
        let lost = ReplicationCounters {
            missing: 1,
            ..at(1)
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
