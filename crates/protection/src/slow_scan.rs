//! A slow look, again and again, at what the block scanner does not read: parity files, what is
//! kept of deleted replicas, and copies of records. Damage is found long before a disk dies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hayloft_io::locks;
use hayloft_parity::{GroupId, MemberState, TableGroup, UnitRef};
use hayloft_store::now_ms;
use tracing::info;

use super::Parity;

/// Bytes that may be read at once after a pause, as seconds of the rate.
const SAVED_MAX: Duration = Duration::from_secs(60);
/// A longer period is this one: a hundred years. A configuration may name any.
const PERIOD_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How far the scan is. It goes through the groups by name from one that is chosen at random: after
/// a new start it does not see the same ones first.
#[derive(Debug)]
pub(super) struct GroupScan {
    first: GroupId,
    /// The last one that was looked at; `None` at the begin of a pass.
    last: Option<GroupId>,
    began: Instant,
    /// Bytes that may be read now; below zero behind a group that had more.
    allowed: i64,
    counted_at: Instant,
    /// When the last pass ended, milliseconds since 1970; 0: none has.
    pub ended_at_ms: u64,
}

impl Default for GroupScan {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            first: GroupId(rand::random()),
            last: None,
            began: now,
            allowed: 0,
            counted_at: now,
            ended_at_ms: 0,
        }
    }
}

impl GroupScan {
    /// Counts what may be read since the last call, at `rate` bytes a second.
    fn allow(&mut self, rate: u64, now: Instant) {
        let passed = now.duration_since(self.counted_at).min(SAVED_MAX);
        let bytes = |time: Duration| {
            let bytes = u128::from(rate) * time.as_millis() / 1000;
            i64::try_from(bytes).unwrap_or(i64::MAX)
        };
        self.allowed = self
            .allowed
            .saturating_add(bytes(passed))
            .min(bytes(SAVED_MAX));
        self.counted_at = now;
    }

    /// The next of these groups in this pass.
    fn next(&self, groups: impl Iterator<Item = GroupId>) -> Option<GroupId> {
        let from_first = |id: GroupId| id.0.wrapping_sub(self.first.0);
        let last = self.last.map(from_first);
        groups
            .filter(|id| last.is_none_or(|last| from_first(*id) > last))
            .min_by_key(|id| from_first(*id))
    }
}

impl Parity {
    /// Looks at as many groups as the time since the last call allows, and at all of them no more
    /// than once in a period. At a rate beyond the disks' it goes on in the next round: a disk that
    /// dies meanwhile does not wait for the end of a pass.
    pub(super) async fn scan(self: &Arc<Self>) {
        let config = self.config.scan;
        let volumes = self.places().len() as u64;
        let rate = config.bytes_per_second.saturating_mul(volumes);
        if rate == 0 || config.period.is_zero() {
            return;
        }
        let began = Instant::now();
        locks::lock(&self.scan).allow(rate, began);
        while let Some(group) = self.next_to_scan() {
            let (damaged, bytes) = self.scan_group(&group).await;
            if damaged > 0 {
                info!(group = %group.record.id, damaged, "the scan found damage: it is mended now");
            }
            let mut scan = locks::lock(&self.scan);
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            scan.allowed = scan.allowed.saturating_sub(bytes);
            if began.elapsed() >= self.config.turn {
                return;
            }
        }
    }

    /// A group whose turn it is now.
    fn next_to_scan(&self) -> Option<TableGroup> {
        let mut scan = locks::lock(&self.scan);
        let early = scan.last.is_none() && scan.began > Instant::now();
        if scan.allowed <= 0 || early {
            return None;
        }
        let table = self.table();
        let groups = table.iter().filter(|g| !g.may_have_been_dissolved());
        let next = scan.next(groups.map(|group| group.record.id));
        if let Some(next) = next {
            // Before the look: one that panics is not looked at again and again.
            scan.last = Some(next);
            return table.get(next).cloned();
        }
        if scan.last.take().is_some() {
            info!(
                groups = table.iter().count(),
                "parity of all groups was scanned"
            );
            scan.ended_at_ms = now_ms();
        }
        // The next pass.
        let period = self.config.scan.period.min(PERIOD_MAX);
        scan.began = (scan.began + period).max(Instant::now());
        None
    }

    /// Gives the number of damaged files, and bytes that were read.
    async fn scan_group(self: &Arc<Self>, group: &TableGroup) -> (usize, u64) {
        let record = &group.record;
        let mut damaged = self.scrub_copies(record).await;
        let mut bytes = 0_u64;
        for unit in 0..record.shape.units() {
            let member = group.members.get(unit);
            // The block scanner reads those that are replicas.
            let len = match member {
                Some(MemberState::Kept) => record.members[unit].stamp.len,
                Some(_) => continue,
                None => record.parity_len(),
            };
            let at = UnitRef {
                group: record.id,
                unit,
            };
            damaged += usize::from(self.scrub_unit(at).await);
            bytes = bytes.saturating_add(len);
        }
        (damaged, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_begins_at_random_and_sees_each_group_once() {
        let groups: Vec<GroupId> = (0..10).map(|n| GroupId(n * (u128::MAX / 10))).collect();
        let mut scan = GroupScan::default();
        let mut seen = Vec::new();
        while let Some(next) = scan.next(groups.iter().copied()) {
            scan.last = Some(next);
            seen.push(next);
        }
        seen.sort_unstable();
        assert_eq!(seen, groups);
    }

    #[test]
    fn what_is_allowed_follows_the_rate_and_is_not_saved_for_ever() {
        let (mut scan, began) = (GroupScan::default(), Instant::now());
        scan.counted_at = began;
        scan.allow(1000, began + Duration::from_secs(2));
        assert_eq!(scan.allowed, 2000);
        scan.allowed = -10_000;
        scan.allow(1000, began + Duration::from_secs(5));
        assert_eq!(scan.allowed, -7000);
        scan.allow(1000, began + Duration::from_secs(5000));
        assert_eq!(scan.allowed, 53_000);
        scan.allow(1000, began + Duration::from_secs(9000));
        assert_eq!(scan.allowed, 60_000);
    }
}
