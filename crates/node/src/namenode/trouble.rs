//! A failure that repeats is logged when it begins, now and then while it lasts, and when it ends.

use std::time::Duration;

use tokio::time::Instant;

/// While trouble lasts, one line in this time.
const REMIND: Duration = Duration::from_secs(60);

/// Whether and for how long something has been failing.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    since: Option<Instant>,
    said: Option<Instant>,
    failures: u64,
}

impl Trouble {
    /// One more failure. True when it should be logged.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        self.since.get_or_insert(now);
        self.failures += 1;
        let due = self
            .said
            .is_none_or(|said| now.duration_since(said) >= REMIND);
        if due {
            self.said = Some(now);
        }
        due
    }

    /// It works. How often and for how long it did not, if so.
    pub(super) fn over(&mut self, now: Instant) -> Option<(u64, Duration)> {
        let since = self.since.take()?;
        self.said = None;
        Some((
            std::mem::take(&mut self.failures),
            now.duration_since(since),
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::Trouble;

    #[test]
    fn says_the_first_and_one_a_minute() {
        let start = Instant::now();
        let mut trouble = Trouble::default();
        assert_eq!(trouble.over(start), None);
        let said = (0..200u64)
            .filter(|second| trouble.failed(start + Duration::from_secs(*second)))
            .count();
        assert_eq!(said, 4);
        assert_eq!(
            trouble.over(start + Duration::from_secs(200)),
            Some((200, Duration::from_secs(200)))
        );
        assert!(trouble.failed(start));
    }
}
