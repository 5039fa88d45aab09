//! What is told to all who ask for a while, because it costs something to find out.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What was so at a time.
#[derive(Debug)]
pub struct Told<T> {
    /// When.
    pub at: Instant,
    /// What.
    pub what: T,
}

/// The last thing that was told.
#[derive(Debug)]
pub struct Lasting<T> {
    last: Mutex<Option<Arc<Told<T>>>>,
    lasts: Duration,
}

impl<T> Lasting<T> {
    /// Nothing yet.
    #[must_use]
    pub fn new(lasts: Duration) -> Self {
        Self {
            last: Mutex::new(None),
            lasts,
        }
    }

    /// What was told last, or `find` anew: those who ask meanwhile wait for that.
    pub fn get_or(&self, find: impl FnOnce() -> T) -> Arc<Told<T>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(told) if told.at.elapsed() < self.lasts => Arc::clone(told),
            _ => {
                let at = Instant::now();
                let told = Arc::new(Told { at, what: find() });
                Arc::clone(last.insert(told))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_out_once_in_a_while() {
        let hour = Lasting::new(Duration::from_secs(3600));
        let first = hour.get_or(|| 1);
        assert_eq!((first.what, hour.get_or(|| 2).what), (1, 1));
        assert_eq!(hour.get_or(|| 2).at, first.at);
        let never = Lasting::new(Duration::ZERO);
        assert_eq!((never.get_or(|| 1).what, never.get_or(|| 2).what), (1, 2));
    }
}
