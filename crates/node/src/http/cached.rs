//! Answers that cost something to find out, given to all who ask for a while.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hayloft_io::locks::lock;

/// An answer, and when it was so.
#[derive(Debug)]
pub struct Sampled<T> {
    /// When.
    pub at: Instant,
    /// What.
    pub what: T,
}

/// The last answer.
#[derive(Debug)]
pub struct Cached<T> {
    last: Mutex<Option<Arc<Sampled<T>>>>,
    lasts: Duration,
}

impl<T> Cached<T> {
    /// Nothing yet.
    #[must_use]
    pub fn new(lasts: Duration) -> Self {
        Self {
            last: Mutex::new(None),
            lasts,
        }
    }

    /// The last answer, or `find` anew: those who ask meanwhile wait for that.
    pub fn get_or(&self, find: impl FnOnce() -> T) -> Arc<Sampled<T>> {
        let mut last = lock(&self.last);
        match &*last {
            Some(sample) if sample.at.elapsed() < self.lasts => Arc::clone(sample),
            _ => {
                let at = Instant::now();
                let sample = Arc::new(Sampled { at, what: find() });
                Arc::clone(last.insert(sample))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_out_once_in_a_while() {
        let hour = Cached::new(Duration::from_secs(3600));
        let first = hour.get_or(|| 1);
        assert_eq!((first.what, hour.get_or(|| 2).what), (1, 1));
        assert_eq!(hour.get_or(|| 2).at, first.at);
        let never = Cached::new(Duration::ZERO);
        assert_eq!((never.get_or(|| 1).what, never.get_or(|| 2).what), (1, 2));
    }
}
