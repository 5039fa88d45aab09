//! A failure that repeats is logged when it begins, now and then while it lasts, and when it ends.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

/// While trouble lasts, one line in this time.
const REMIND: Duration = Duration::from_secs(60);

/// Whether and for how long something has been failing.
#[derive(Debug, Default)]
pub struct Trouble {
    since: Option<Instant>,
    said: Option<Instant>,
    failures: u64,
}

impl Trouble {
    /// One more failure. True when it should be logged.
    pub fn failed(&mut self, now: Instant) -> bool {
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
    pub fn over(&mut self, now: Instant) -> Option<(u64, Duration)> {
        let since = self.since.take()?;
        self.said = None;
        Some((
            std::mem::take(&mut self.failures),
            now.duration_since(since),
        ))
    }
}

/// First and longest pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A port that cannot accept connections: what its callers meet waits in the kernel meanwhile. The
/// port never gives up, and never asks again at once.
#[derive(Debug)]
pub struct AcceptTrouble {
    port: &'static str,
    trouble: Trouble,
    pause: Duration,
}

impl AcceptTrouble {
    /// Of a port with this name in the log.
    #[must_use]
    pub fn of(port: &'static str) -> Self {
        Self {
            port,
            trouble: Trouble::default(),
            pause: PAUSE,
        }
    }

    /// A connection was accepted.
    pub fn works(&mut self) {
        self.pause = PAUSE;
        if let Some((failures, lasted)) = self.trouble.over(Instant::now()) {
            tracing::info!(
                port = self.port,
                failures,
                "accepts connections again, after {:.1} s",
                lasted.as_secs_f64()
            );
        }
    }

    /// None could be; how long to wait before the next.
    #[must_use]
    pub fn failed(&mut self, error: &io::Error) -> Duration {
        if self.trouble.failed(Instant::now()) {
            tracing::warn!(port = self.port, %error, "cannot accept connections; trying again");
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        pause
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{AcceptTrouble, Trouble};

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

    #[test]
    fn a_port_waits_longer_and_longer_up_to_a_second() {
        let mut accepts = AcceptTrouble::of("test");
        let error = std::io::Error::from_raw_os_error(24);
        let waits: Vec<u128> = (0..9).map(|_| accepts.failed(&error).as_millis()).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        accepts.works();
        assert_eq!(accepts.failed(&error).as_millis(), 10);
    }
}
