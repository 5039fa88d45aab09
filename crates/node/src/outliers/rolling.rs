//! Averages over the last three hours, in five-minute windows: Apache's for the latencies of its
//! peers.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Length of a window.
const WINDOW: Duration = Duration::from_secs(300);
/// Windows that count, the present one included.
const WINDOWS: usize = 36;

#[derive(Clone, Copy, Debug)]
struct Window {
    began: Instant,
    count: u64,
    total: Duration,
}

/// Durations of the recent past. Takes little memory, however many are added.
#[derive(Clone, Debug, Default)]
pub struct Rolling {
    /// Oldest first.
    windows: VecDeque<Window>,
}

impl Rolling {
    /// Adds `count` durations that are `total` together. `now` never goes back.
    pub fn add(&mut self, now: Instant, count: u64, total: Duration) {
        self.forget(now);
        match self.windows.back_mut() {
            Some(window) if now.saturating_duration_since(window.began) < WINDOW => {
                window.count = window.count.saturating_add(count);
                window.total = window.total.saturating_add(total);
            }
            _ => self.windows.push_back(Window {
                began: now,
                count,
                total,
            }),
        }
        if self.windows.len() > WINDOWS {
            self.windows.pop_front();
        }
    }

    /// How many there are, and their average in milliseconds; `None` when there are none.
    pub fn average(&mut self, now: Instant) -> Option<(u64, f64)> {
        self.forget(now);
        let (count, total) = self
            .windows
            .iter()
            .fold((0_u64, Duration::ZERO), |(count, total), w| {
                (count.saturating_add(w.count), total.saturating_add(w.total))
            });
        (count > 0).then(|| (count, mean_ms(count, total)))
    }

    /// Whether everything in it is too old to count.
    pub fn is_over(&mut self, now: Instant) -> bool {
        self.forget(now);
        self.windows.is_empty()
    }

    fn forget(&mut self, now: Instant) {
        let valid = WINDOW * u32::try_from(WINDOWS).expect("a small constant");
        while let Some(oldest) = self.windows.front()
            && now.saturating_duration_since(oldest.began) >= valid
        {
            self.windows.pop_front();
        }
    }
}

/// The mean of `count` durations in milliseconds; 0 of none.
#[expect(
    clippy::cast_precision_loss,
    reason = "a count of operations; the mean is off by one part in 2^53 at most"
)]
pub fn mean_ms(count: u64, total: Duration) -> f64 {
    if count == 0 {
        return 0.0;
    }
    total.as_secs_f64() * 1000.0 / count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn averages_are_over_windows_that_are_young_enough() {
        let start = Instant::now();
        let mut rolling = Rolling::default();
        assert_eq!(rolling.average(start), None);
        rolling.add(start, 10, 100 * MS);
        rolling.add(start + WINDOW, 10, 300 * MS);
        assert_eq!(rolling.average(start + WINDOW), Some((20, 20.0)));
        let later = start + WINDOW * 36;
        assert_eq!(
            rolling.average(later),
            Some((10, 30.0)),
            "the first is three hours old"
        );
        assert!(!rolling.is_over(later));
        assert!(rolling.is_over(later + WINDOW));
    }

    #[test]
    fn the_number_of_windows_is_bounded() {
        let start = Instant::now();
        let mut rolling = Rolling::default();
        for second in 0..100_000 {
            rolling.add(start + Duration::from_secs(second), 1, MS);
            assert!(rolling.windows.len() <= WINDOWS);
        }
        let (count, mean) = rolling
            .average(start + Duration::from_secs(100_000))
            .expect("some");
        assert!((10_200..=10_800).contains(&count), "{count}");
        assert!((mean - 1.0).abs() < 1e-9);
    }
}
