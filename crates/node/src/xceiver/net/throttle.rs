//! Bandwidth limits: token buckets whose rate can change while they are waited on.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hayloft_conf::{Configuration, keys};
use hayloft_io::locks::lock;
use tokio::time::Instant;

/// The bucket holds at most this much time's worth of bytes; the period of Apache's throttler.
const BURST: Duration = Duration::from_millis(500);

/// One sleep never lasts longer, so that a raised rate takes effect soon.
const NAP_MAX: Duration = Duration::from_millis(500);

/// A limit in bytes a second, shared by every caller that takes from it; 0 means no limit.
///
/// Bytes are taken after they were transferred: the bucket may go into debt, and the caller that
/// takes next waits until it is paid. So one large transfer is never refused, and the average
/// holds.
#[derive(Debug)]
pub struct Throttle {
    rate: AtomicU64,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    /// Bytes that may be taken now; negative while in debt.
    level: i64,
    filled_at: Instant,
}

impl Throttle {
    /// A limit of `bytes_per_second`; 0 means none.
    #[must_use]
    pub fn new(bytes_per_second: u64) -> Self {
        Self {
            rate: AtomicU64::new(bytes_per_second),
            bucket: Mutex::new(Bucket {
                level: 0,
                filled_at: Instant::now(),
            }),
        }
    }

    /// Changes the limit, also for callers that wait now.
    pub fn set(&self, bytes_per_second: u64) {
        self.rate.store(bytes_per_second, Ordering::Relaxed);
    }

    /// The limit now, bytes a second; 0 means none.
    #[must_use]
    pub fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// Takes `bytes` and waits until the limit allows them.
    pub async fn take(&self, bytes: u64) {
        let Some(mut wait) = self.spend(bytes) else {
            return;
        };
        while !wait.is_zero() {
            tokio::time::sleep(wait.min(NAP_MAX)).await;
            match self.spend(0) {
                Some(left) => wait = left,
                None => return,
            }
        }
    }

    /// Takes `bytes` at once and says how long the debt lasts; `None` without a limit.
    fn spend(&self, bytes: u64) -> Option<Duration> {
        let rate = self.rate();
        if rate == 0 {
            return None;
        }
        let mut bucket = lock(&self.bucket);
        let now = Instant::now();
        let burst = share(rate, BURST);
        let earned = share(rate, now.saturating_duration_since(bucket.filled_at));
        bucket.filled_at = now;
        let level = bucket.level.saturating_add(earned).min(burst);
        bucket.level = level.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
        let debt = u64::try_from(bucket.level.saturating_neg()).unwrap_or(0);
        let nanos = u128::from(debt) * 1_000_000_000 / u128::from(rate);
        Some(Duration::from_nanos(
            u64::try_from(nanos).unwrap_or(u64::MAX),
        ))
    }
}

/// Bytes that `rate` earns in `time`.
fn share(rate: u64, time: Duration) -> i64 {
    let bytes = u128::from(rate) * time.as_nanos() / 1_000_000_000;
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// The limits of one node.
#[derive(Debug)]
pub struct Throttles {
    /// Copies for the balancer and the mover, both directions
    /// (`dfs.datanode.balance.bandwidthPerSec`, the NameNode's balancer bandwidth command).
    pub balancer: Throttle,
    /// Replication on the NameNode's order (`dfs.datanode.data.transfer.bandwidthPerSec`).
    pub transfer: Throttle,
    /// Blocks received (`dfs.datanode.data.write.bandwidthPerSec`).
    pub write: Throttle,
    /// Blocks read by clients (`dfs.datanode.data.read.bandwidthPerSec`).
    pub read: Throttle,
    /// What reconstruction of striped files reads
    /// (`dfs.datanode.ec.reconstruct.read.bandwidthPerSec`).
    pub reconstruction_read: Throttle,
    /// What it writes (`dfs.datanode.ec.reconstruct.write.bandwidthPerSec`).
    pub reconstruction_write: Throttle,
    /// Balancer moves that may run at the same time (`dfs.datanode.balance.max.concurrent.moves`).
    pub moves: MoveLimit,
}

impl Throttles {
    /// The bandwidth limits of `config`.
    #[must_use]
    pub fn of(config: &Configuration) -> Self {
        let limit = |key| Throttle::new(config.get(key));
        Self {
            reconstruction_read: limit(&keys::EC_RECONSTRUCT_READ_BANDWIDTH),
            reconstruction_write: limit(&keys::EC_RECONSTRUCT_WRITE_BANDWIDTH),
            ..Self::new(
                config.get(&keys::BALANCE_BANDWIDTH),
                config.get(&keys::DATA_TRANSFER_BANDWIDTH),
                config.get(&keys::DATA_WRITE_BANDWIDTH),
                config.get(&keys::DATA_READ_BANDWIDTH),
                config.get(&keys::BALANCE_MAX_MOVES) as usize,
            )
        }
    }

    /// Limits in bytes a second (0: none), and the number of concurrent moves. Reconstruction has
    /// no limit.
    #[must_use]
    pub fn new(balancer: u64, transfer: u64, write: u64, read: u64, moves: usize) -> Self {
        Self {
            balancer: Throttle::new(balancer),
            transfer: Throttle::new(transfer),
            write: Throttle::new(write),
            read: Throttle::new(read),
            reconstruction_read: Throttle::new(0),
            reconstruction_write: Throttle::new(0),
            moves: MoveLimit::new(moves),
        }
    }
}

/// How many balancer moves may run; one too many is refused, not queued, as with Apache's.
#[derive(Clone, Debug)]
pub struct MoveLimit(Arc<MoveLimitInner>);

#[derive(Debug)]
struct MoveLimitInner {
    max: AtomicUsize,
    running: AtomicUsize,
}

/// One running move.
#[derive(Debug)]
pub struct MovePermit(Arc<MoveLimitInner>);

impl MoveLimit {
    /// At most `max` at a time.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self(Arc::new(MoveLimitInner {
            max: AtomicUsize::new(max),
            running: AtomicUsize::new(0),
        }))
    }

    /// Changes the limit; moves that run are not stopped.
    pub fn set(&self, max: usize) {
        self.0.max.store(max, Ordering::Relaxed);
    }

    /// The limit.
    #[must_use]
    pub fn max(&self) -> usize {
        self.0.max.load(Ordering::Relaxed)
    }

    /// A place, unless all are taken.
    #[must_use]
    pub fn try_enter(&self) -> Option<MovePermit> {
        let max = self.max();
        self.0
            .running
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| {
                (n < max).then_some(n + 1)
            })
            .ok()
            .map(|_| MovePermit(Arc::clone(&self.0)))
    }
}

impl Drop for MovePermit {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_average_rate_holds() {
        let throttle = Throttle::new(1000);
        let start = Instant::now();
        for _ in 0..10 {
            throttle.take(500).await;
        }
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(4400), "{took:?}");
        assert!(took <= Duration::from_millis(5200), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_raised_rate_frees_those_who_wait() {
        let throttle = Arc::new(Throttle::new(1));
        let waiter = tokio::spawn({
            let throttle = Arc::clone(&throttle);
            async move { throttle.take(1_000_000).await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waiter.is_finished());
        throttle.set(0);
        tokio::time::timeout(Duration::from_secs(2), waiter)
            .await
            .expect("freed")
            .expect("no panic");
    }

    #[test]
    fn moves_are_refused_beyond_the_limit() {
        let limit = MoveLimit::new(1);
        let first = limit.try_enter().expect("free");
        assert!(limit.try_enter().is_none());
        limit.set(2);
        let second = limit.try_enter().expect("raised");
        drop((first, second));
        assert!(limit.try_enter().is_some());
    }
}
