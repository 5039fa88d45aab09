//! Means over the last period, as Hadoop's metrics have them: what an agent reads is the mean of
//! the last ten seconds or more, not of all time, and 0 when nothing happened in them.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use hayloft_io::locks::lock;

/// A mean is not renewed more often: nearly Hadoop's period of ten seconds (`*.period` of its
/// metrics), so that who asks every ten seconds gets a new one, however late the last was taken.
const PERIOD: Duration = Duration::from_millis(9_500);

/// Rates that are told at most; their names are those of beans and methods, which are bounded.
const RATES_MAX: usize = 4096;

/// What was told of rates last.
#[derive(Debug, Default)]
pub struct Periods(Mutex<HashMap<String, Told>>);

#[derive(Clone, Copy, Debug)]
struct Told {
    at: Instant,
    count: u64,
    total: u64,
    mean: f64,
}

impl Periods {
    /// The mean of `total` by `count` since the last period.
    pub fn mean(&self, name: &str, (count, total): (u64, u64)) -> f64 {
        self.mean_at(Instant::now(), name, (count, total))
    }

    fn mean_at(&self, now: Instant, name: &str, (count, total): (u64, u64)) -> f64 {
        let mut told = lock(&self.0);
        if !told.contains_key(name) && told.len() >= RATES_MAX {
            return ratio(count, total);
        }
        let last = told.entry(name.to_owned()).or_insert(Told {
            at: now,
            count: 0,
            total: 0,
            mean: 0.0,
        });
        let is_due = last.count == 0 || now.duration_since(last.at) >= PERIOD;
        if is_due && (count, last.count) != (0, 0) {
            *last = Told {
                at: now,
                count,
                total,
                mean: ratio(
                    count.saturating_sub(last.count),
                    total.saturating_sub(last.total),
                ),
            };
        }
        last.mean
    }
}

#[expect(clippy::cast_precision_loss, reason = "a mean for people")]
fn ratio(count: u64, total: u64) -> f64 {
    if count == 0 {
        0.0
    } else {
        total as f64 / count as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_that_of_the_last_period() {
        let (periods, began) = (Periods::default(), Instant::now());
        let at = |seconds, of| periods.mean_at(began + Duration::from_secs(seconds), "a", of);
        let is = |mean: f64, wanted: f64| assert!((mean - wanted).abs() < 1e-9, "{mean}");
        is(at(0, (0, 0)), 0.0);
        is(at(1, (2, 10)), 5.0);
        // Too soon for another one.
        is(at(5, (3, 30)), 5.0);
        is(at(11, (4, 50)), 20.0);
        is(at(20, (4, 50)), 20.0);
        let late = began + Duration::from_millis(20_600);
        is(periods.mean_at(late, "a", (5, 60)), 10.0);
        // Nothing since.
        is(at(60, (4, 50)), 0.0);
        is(at(71, (5, 51)), 1.0);
        is(periods.mean_at(began, "b", (1, 7)), 7.0);
    }
}
