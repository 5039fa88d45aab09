//! How much of closed replicas may be on its way to a disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Volume;

/// What may always be on its way, in bytes: what a slow disk takes in a few seconds.
const ALWAYS: u64 = 16 << 20;
/// Else as much as the disk takes in this time, as far as known: whoever comes next waits behind it.
const AHEAD: Duration = Duration::from_secs(2);

/// Bytes of closed replicas that are not in their files yet, and how fast they get there. Without a limit a disk that is
/// slower than its clients would have the whole memory limit before it, and the next writer's first
/// acknowledgement behind that: later than clients wait.
#[derive(Debug, Default)]
pub struct Backlog {
    bytes: AtomicU64,
    /// Bytes a second of one replica lately; 0 before the first.
    rate: AtomicU64,
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
pub struct Draining {
    volume: Arc<Volume>,
    bytes: u64,
}

impl Backlog {
    /// Takes note that `bytes` of a replica got to their files in `took`.
    pub fn learn(&self, bytes: u64, took: Duration) {
        let nanos = took.as_nanos().max(1);
        let rate = u128::from(bytes) * 1_000_000_000 / nanos;
        let rate = u64::try_from(rate).unwrap_or(u64::MAX).max(1);
        // Of several at the same time one counts.
        let known = self.rate.load(Ordering::Relaxed);
        let mean = if known == 0 {
            rate
        } else {
            known / 2 + rate / 2
        };
        self.rate.store(mean.max(1), Ordering::Relaxed);
    }

    /// Bytes that may be on their way. `gathered` is what a replica may have staged in any case.
    fn limit(&self, gathered: u64) -> u64 {
        let rate = self.rate.load(Ordering::Relaxed);
        let ahead = rate.saturating_mul(AHEAD.as_secs());
        ahead.max(gathered).max(ALWAYS)
    }

    /// Whether nothing is on its way.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) == 0
    }
}

impl Volume {
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

    #[test]
    fn the_limit_follows_the_disk_and_has_a_floor() {
        let backlog = Backlog::default();
        assert_eq!(backlog.limit(0), ALWAYS, "nothing is known");
        assert_eq!(backlog.limit(64 << 20), 64 << 20);
        backlog.learn(256 << 20, Duration::from_millis(100));
        assert!(backlog.limit(0) > 4 << 30);
        for _ in 0..40 {
            backlog.learn(3 << 20, Duration::from_secs(1));
        }
        assert_eq!(backlog.limit(0), ALWAYS, "2 s of it are less");
        for _ in 0..40 {
            backlog.learn(100 << 20, Duration::from_secs(1));
        }
        assert!((190 << 20..=200 << 20).contains(&backlog.limit(0)));
        // Neither a clock that stands still nor a disk that does stops the arithmetic.
        backlog.learn(u64::MAX, Duration::ZERO);
        backlog.learn(0, Duration::MAX);
        assert!(backlog.limit(0) >= ALWAYS);
    }
}
