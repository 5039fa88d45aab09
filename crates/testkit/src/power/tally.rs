//! Sums over rounds: how much was acknowledged, and how much of it cannot be read afterwards.

use super::check::{Findings, LeftBehind};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// From this age on, nothing that a Hayloft node acknowledged may be lost: two commit rounds of
/// 5 s, and as long again as a busy disk may take for one.
pub const OLD: Duration = Duration::from_secs(15);
/// From this age on, the kernel writes what is dirty by itself: 30 s, and a commit of the log.
pub const OLDER: Duration = Duration::from_secs(40);
/// Losses of each sort that are kept in words.
const EXAMPLES_MAX: usize = 4;

/// Of how many acknowledgements how many are lost: not readable afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Acknowledgements.
    pub acknowledged: u64,
    /// Those that cannot be read.
    pub lost: u64,
}

impl Count {
    fn add(&mut self, acknowledged: u64, lost: u64) {
        self.acknowledged += acknowledged;
        self.lost += lost;
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.lost, self.acknowledged)
    }
}

/// The sums of one node's rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PowerTally {
    /// Events, such as cuts.
    pub events: u64,
    /// Closed files of one block.
    pub closed: Count,
    /// Those of them that were closed [`OLD`] before the event, or longer.
    pub closed_old: Count,
    /// Those of them that were closed [`OLDER`] before the event, or longer.
    pub closed_older: Count,
    /// Files closed with `SYNC_BLOCK`.
    pub closed_synced: Count,
    /// Records that were hflushed.
    pub flushed: Count,
    /// Those of them that were hflushed [`OLD`] before the event, or longer.
    pub flushed_old: Count,
    /// Records that were hsynced.
    pub hsynced: Count,
    /// Replicas that the NameNode counts on afterwards.
    pub counted_on: u64,
    /// Those of them that cannot be read, or have other bytes than were written.
    pub unreadable: u64,
    /// Those of them that were being written: of these Apache's node looks at the last chunk alone
    /// when it starts.
    pub unreadable_open: u64,
    /// Some of the losses in words, by their sort.
    pub examples: BTreeMap<&'static str, Vec<String>>,
}

impl PowerTally {
    /// Adds a round of the node.
    pub fn add(&mut self, found: &Findings) {
        self.events += 1;
        for closed in &found.closed {
            let lost = u64::from(closed.left != LeftBehind::Whole);
            if closed.file.synced {
                self.closed_synced.add(1, lost);
            } else {
                self.closed.add(1, lost);
                if closed.age >= OLD {
                    self.closed_old.add(1, lost);
                }
                if closed.age >= OLDER {
                    self.closed_older.add(1, lost);
                }
            }
            let sync = if closed.file.synced {
                "SYNC_BLOCK "
            } else {
                ""
            };
            let age = closed.age.as_secs_f64();
            let what = format!("{}, {sync}closed {age:.1} s before", closed.file.path);
            self.judge(&closed.left, &what);
        }
        for log in &found.logs {
            let records = |bytes: u64| bytes.div_ceil(log.log.record);
            let lost = |acked: u64| records(acked.saturating_sub(log.kept));
            let acked = log.log.acked;
            if log.log.synced {
                self.hsynced.add(records(acked), lost(acked));
            } else {
                let old = log.log.acked_before(found.event, OLD);
                self.flushed.add(records(acked), lost(acked));
                self.flushed_old.add(records(old), lost(old));
            }
            let kept = log.kept;
            let what = format!("{}, {kept} bytes kept of {acked}", log.log.path);
            self.judge(&log.left, &what);
            self.unreadable_open += u64::from(matches!(log.left, LeftBehind::Unreadable(_)));
            if log.left == LeftBehind::Whole && kept < acked {
                self.tell("cut off", &what);
            }
        }
    }

    fn judge(&mut self, left: &LeftBehind, what: &str) {
        let (sort, why) = match left {
            LeftBehind::Whole => {
                self.counted_on += 1;
                return;
            }
            LeftBehind::Unreadable(why) => {
                self.counted_on += 1;
                self.unreadable += 1;
                ("unreadable while counted on", why)
            }
            LeftBehind::Gone(why) => ("gone", why),
        };
        self.tell(sort, &format!("{what}: {why}"));
    }

    fn tell(&mut self, sort: &'static str, what: &str) {
        let told = self.examples.entry(sort).or_default();
        if told.len() < EXAMPLES_MAX {
            told.push(what.to_owned());
        }
    }

    /// Adds the sums of another.
    pub fn absorb(&mut self, other: Self) {
        self.events += other.events;
        self.counted_on += other.counted_on;
        self.unreadable += other.unreadable;
        self.unreadable_open += other.unreadable_open;
        for (mine, more) in [
            (&mut self.closed, other.closed),
            (&mut self.closed_old, other.closed_old),
            (&mut self.closed_older, other.closed_older),
            (&mut self.closed_synced, other.closed_synced),
            (&mut self.flushed, other.flushed),
            (&mut self.flushed_old, other.flushed_old),
            (&mut self.hsynced, other.hsynced),
        ] {
            mine.add(more.acknowledged, more.lost);
        }
        for (sort, examples) in other.examples {
            for example in examples {
                self.tell(sort, &example);
            }
        }
    }
}

impl fmt::Display for PowerTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cuts; lost: closed {} ({} s and older {}, {} s and older {}), SYNC_BLOCK {}, \
             hflushed records {} ({} s and older {}), hsynced records {}; \
             counted on {}, unreadable of these {}",
            self.events,
            self.closed,
            OLD.as_secs(),
            self.closed_old,
            OLDER.as_secs(),
            self.closed_older,
            self.closed_synced,
            self.flushed,
            OLD.as_secs(),
            self.flushed_old,
            self.hsynced,
            self.counted_on,
            self.unreadable,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{ClosedLeft, LogLeft};
    use super::super::writers::{Closed, Log};
    use super::*;
    use std::time::Instant;

    fn closed(age: u64, synced: bool, left: LeftBehind, event: Instant) -> ClosedLeft {
        ClosedLeft {
            file: Closed {
                path: "/f".into(),
                bytes: 1,
                seed: 1,
                at: event,
                synced,
            },
            age: Duration::from_secs(age),
            left,
            block: None,
        }
    }

    #[test]
    fn losses_are_told_by_what_was_asked_for_and_by_age() {
        let event = Instant::now() + Duration::from_secs(100);
        let gone = || LeftBehind::Gone("it".into());
        let log = |synced, kept| LogLeft {
            log: Log {
                path: "/l".into(),
                seed: 1,
                record: 10,
                synced,
                points: vec![(event.checked_sub(OLD).expect("later than the start"), 50)],
                acked: 80,
            },
            left: LeftBehind::Whole,
            kept,
        };
        let found = Findings {
            event,
            closed: vec![
                closed(1, false, gone(), event),
                closed(20, false, LeftBehind::Unreadable("bytes".into()), event),
                closed(50, false, LeftBehind::Whole, event),
                closed(1, true, LeftBehind::Whole, event),
            ],
            logs: vec![log(false, 45), log(true, 80)],
        };
        let mut tally = PowerTally::default();
        tally.add(&found);
        let count = |acknowledged, lost| Count { acknowledged, lost };
        assert_eq!(tally.closed, count(3, 2));
        assert_eq!(tally.closed_old, count(2, 1));
        assert_eq!(tally.closed_older, count(1, 0));
        assert_eq!(tally.closed_synced, count(1, 0));
        assert_eq!(tally.flushed, count(8, 4));
        assert_eq!(tally.flushed_old, count(5, 1));
        assert_eq!(tally.hsynced, count(8, 0));
        assert_eq!((tally.counted_on, tally.unreadable), (5, 1));
        let mut twice = tally.clone();
        twice.absorb(tally);
        assert_eq!(twice.closed, count(6, 4));
        assert_eq!(twice.events, 2);
        let told: usize = twice.examples.values().map(Vec::len).sum();
        assert_eq!(told, 6, "gone, unreadable and cut off, twice: {twice:?}");
    }
}
