//! How much of closed replicas may be on its way to a disk.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Volume;

/// What may always be on its way, in bytes: what a slow disk takes in a few seconds.
const ALWAYS: u64 = 16 << 20;
/// Else as much as the disk takes in this time, as far as known: whoever comes next waits behind it.
const AHEAD: Duration = Duration::from_secs(2);

/// What was seen of the disk counts as much as what it does in this time; nanoseconds.
const REMEMBERED_NANOS: u64 = 500_000_000;

/// Bytes of closed replicas that are not in their files yet, and how fast they get there. Without a limit a disk that is
/// slower than its clients would have the whole memory limit before it, and the next writer's first
/// acknowledgement behind that: later than clients wait.
#[derive(Debug, Default)]
pub struct Backlog {
    bytes: AtomicU64,
    pace: Mutex<Pace>,
}

/// How fast what is staged of closed replicas gets to their files: all of them together, in the time in which any was on
/// its way. One by itself looks the slower the more others it waits for, and a limit that follows that ends bursts though
/// the disk is as fast as ever.
#[derive(Debug, Default)]
struct Pace {
    on_their_way: usize,
    /// Until when `nanos` counts.
    until: Option<Instant>,
    bytes: u64,
    nanos: u64,
}

impl Pace {
    fn pass(&mut self, now: Instant) {
        let until = self.until.replace(now).filter(|_| self.on_their_way > 0);
        let passed = until.map_or(0, |until| {
            let passed = now.saturating_duration_since(until);
            u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
        });
        self.nanos = self.nanos.saturating_add(passed);
    }

    fn begin(&mut self, now: Instant) {
        self.pass(now);
        self.on_their_way += 1;
    }

    fn end(&mut self, bytes: u64, now: Instant) {
        self.pass(now);
        self.on_their_way -= 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.nanos > REMEMBERED_NANOS {
            self.bytes = self.in_nanos(REMEMBERED_NANOS.into());
            self.nanos = REMEMBERED_NANOS;
        }
    }

    /// Bytes that the disk takes in so many nanoseconds; none before the first replica.
    fn in_nanos(&self, nanos: u128) -> u64 {
        let bytes = u128::from(self.bytes).saturating_mul(nanos) / u128::from(self.nanos.max(1));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// What is staged of a closed replica is being written, until this is dropped.
#[derive(Debug)]
pub struct Ending {
    volume: Arc<Volume>,
    bytes: u64,
}

impl Ending {
    /// So much of it got to the files.
    pub fn has_written(mut self, bytes: u64) {
        self.bytes = bytes;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.volume.backlog.pace().end(self.bytes, Instant::now());
    }
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
pub struct Draining {
    volume: Arc<Volume>,
    bytes: u64,
}

impl Backlog {
    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that may be on their way. `gathered` is what a replica may have staged in any case.
    fn limit(&self, gathered: u64) -> u64 {
        self.pace()
            .in_nanos(AHEAD.as_nanos())
            .max(gathered)
            .max(ALWAYS)
    }

    /// Whether nothing is on its way.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) == 0
    }
}

impl Volume {
    /// What is staged of a closed replica begins to be written, all of it.
    pub fn begin_ending(self: &Arc<Self>) -> Ending {
        self.backlog.pace().begin(Instant::now());
        Ending {
            volume: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Counts `bytes` of a closed replica, if so many more may be on their way to the disk.
    pub fn admit(self: &Arc<Self>, bytes: u64) -> Option<Draining> {
        let quanta = u64::try_from(hayloft_io::staging::QUANTA).unwrap_or(1);
        let gathered = self.engine.disk().quantum().saturating_mul(quanta);
        let limit = self.backlog.limit(gathered);
        let more = |now: u64| now.checked_add(bytes).filter(|sum| *sum <= limit);
        let counted = self
            .backlog
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        counted.is_ok().then(|| Draining {
            volume: Arc::clone(self),
            bytes,
        })
    }
}

impl Drop for Draining {
    fn drop(&mut self) {
        self.volume
            .backlog
            .bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// So many replicas of so many bytes were written, one after the other.
    fn wrote(backlog: &Backlog, times: u64, bytes: u64, each: Duration) {
        let mut now = Instant::now();
        for _ in 0..times {
            let mut pace = backlog.pace();
            pace.begin(now);
            now += each;
            pace.end(bytes, now);
            now += 10 * SECOND;
        }
    }

    #[test]
    fn the_limit_follows_the_disk_and_has_a_floor() {
        let backlog = Backlog::default();
        assert_eq!(backlog.limit(0), ALWAYS, "nothing is known");
        assert_eq!(backlog.limit(64 << 20), 64 << 20);
        wrote(&backlog, 1, 256 << 20, SECOND / 10);
        assert!(backlog.limit(0) > 4 << 30);
        wrote(&backlog, 40, 3 << 20, SECOND);
        assert_eq!(backlog.limit(0), ALWAYS, "2 s of it are less");
        wrote(&backlog, 40, 100 << 20, SECOND);
        assert!((190 << 20..=200 << 20).contains(&backlog.limit(0)));
        // Neither a clock that stands still nor a disk that does stops the arithmetic.
        wrote(&backlog, 3, u64::MAX, Duration::ZERO);
        assert!(backlog.limit(0) >= ALWAYS);
        wrote(&backlog, 3, 0, Duration::from_secs(1 << 40));
        assert!(backlog.limit(0) >= ALWAYS);
    }

    #[test]
    fn a_disk_is_as_fast_with_many_replicas_as_with_one() {
        const LEN: u64 = 100 << 20;
        let one = Backlog::default();
        wrote(&one, 20, LEN, SECOND);
        // Closed at once; the disk takes one after the other, and then little ones beside large ones.
        let many = Backlog::default();
        let mut now = Instant::now();
        for _ in 0..20 {
            let mut pace = many.pace();
            (0..6).for_each(|_| pace.begin(now));
            for _ in 0..6 {
                now += SECOND;
                pace.end(LEN, now);
                pace.begin(now);
                pace.end(0, now + SECOND / 100);
            }
        }
        let (one, many) = (one.limit(0), many.limit(0));
        assert!(many.abs_diff(one) < one / 20, "{many} and {one}");
    }
}
