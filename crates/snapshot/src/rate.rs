//! Bytes a second, for all tasks that share one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hayloft_io::locks;
use tokio::time::{Instant, sleep_until};

/// What may be caught up after a pause.
const BURST: Duration = Duration::from_millis(250);

/// A limit of bytes a second. All clones share it.
#[derive(Clone, Debug)]
pub struct Rate {
    bytes_per_second: u64,
    /// When what was taken so far has its time.
    paid_until: Arc<Mutex<Option<Instant>>>,
}

impl Rate {
    /// So many bytes a second; 0 is no limit.
    #[must_use]
    pub fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second,
            paid_until: Arc::default(),
        }
    }

    /// Waits until so many bytes more keep to the limit.
    pub async fn take(&self, bytes: usize) {
        if self.bytes_per_second == 0 {
            return;
        }
        let nanos = (bytes as u128) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let until = {
            let mut paid = locks::lock(&self.paid_until);
            let now = Instant::now();
            let from = paid.map_or(now, |paid| paid.max(now.checked_sub(BURST).unwrap_or(now)));
            *paid = Some(from + cost);
            from
        };
        sleep_until(until).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_keep_to_the_limit_in_the_long_run() {
        let (rate, began) = (Rate::new(1000), Instant::now());
        for _ in 0..11 {
            rate.take(1000).await;
        }
        assert_eq!(began.elapsed().as_secs(), 10);
        Rate::new(0).take(usize::MAX).await;
    }
}
