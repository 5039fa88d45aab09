//! Polling with deadlines.

use crate::error::{ClusterError, Result};
use std::time::{Duration, Instant};

/// What one look showed.
pub enum Seen<T> {
    /// It is true now; waiting ends.
    Done(T),
    /// Not yet; the text is what was seen and goes into the error on timeout.
    NotYet(String),
}

/// Looks every 50 ms (500 ms after five seconds) until `look` says done or `limit` has passed.
///
/// # Errors
/// [`ClusterError::Timeout`] with the last observation, or the error of `look` itself, at once.
pub fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<Seen<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let last = match look()? {
            Seen::Done(value) => return Ok(value),
            Seen::NotYet(last) => last,
        };
        if start.elapsed() >= limit {
            return Err(ClusterError::Timeout {
                what: what.to_owned(),
                waited: limit,
                last,
            });
        }
        let pause = if start.elapsed() < Duration::from_secs(5) {
            50
        } else {
            250
        };
        std::thread::sleep(Duration::from_millis(pause));
    }
}
