//! What a sink lost, and when it is tried again.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

/// A sink that failed is left alone for so long, twice as long after each further time.
const PAUSE: Duration = Duration::from_secs(1);
/// At most.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(30);

const BROKE: &str = "its connection died with what was sent";
const SLOW: &str = "it takes what it gets more slowly than its period demands";

/// What is worth a line in the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The sink loses snapshots, and why.
    Begin(String),
    /// It loses none any more; how many it did.
    End(u64),
}

/// The snapshots that a sink did not get.
#[derive(Default)]
pub(super) struct Losses {
    /// When one was due last.
    last: Option<Instant>,
    /// Since the sink was well.
    lost: u64,
    /// Of those the ones that were due while the last was sent.
    missed: u64,
    is_losing: bool,
    failures: u32,
    /// Until when it is left alone.
    again: Option<Instant>,
}

impl Losses {
    /// Whether to send the snapshot that is due now; else it is lost.
    pub(super) fn is_to_be_tried(&mut self, due: Instant, period: Duration) -> bool {
        let since = self.last.replace(due).map(|last| due.duration_since(last));
        let periods = since.map_or(1, |since| since.as_millis() / period.as_millis().max(1));
        self.missed = u64::try_from(periods).unwrap_or(u64::MAX).saturating_sub(1);
        self.lost += self.missed;
        let is_left_alone = self.again.is_some_and(|again| due < again);
        self.lost += u64::from(is_left_alone);
        !is_left_alone
    }

    /// Takes in what came of it, and how many of the snapshots before were lost with a connection.
    /// A change is told once.
    pub(super) fn saw(&mut self, outcome: io::Result<()>, broken: u64) -> Option<Change> {
        self.lost += broken;
        let why = match outcome {
            Err(error) => {
                let pause = PAUSE * 2_u32.saturating_pow(self.failures.min(5));
                self.failures += 1;
                self.again = Some(Instant::now() + pause.min(PAUSE_MAX));
                self.lost += 1;
                Some(error.to_string())
            }
            Ok(()) => {
                (self.failures, self.again) = (0, None);
                let why = [(broken, BROKE), (self.missed, SLOW)];
                let why = why.into_iter().find(|(lost, _)| *lost > 0);
                why.map(|(_, why)| why.to_owned())
            }
        };
        let was_losing = std::mem::replace(&mut self.is_losing, why.is_some());
        match why {
            Some(why) => (!was_losing).then_some(Change::Begin(why)),
            None => was_losing.then(|| Change::End(std::mem::take(&mut self.lost))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(10);

    fn failed() -> io::Result<()> {
        Err(io::Error::other("gone"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_sink_that_fails_is_left_alone_longer_each_time_and_told_once() {
        let (mut losses, began) = (Losses::default(), Instant::now());
        let mut tried = Vec::new();
        for second in 0..200 {
            tokio::time::sleep_until(began + Duration::from_secs(second)).await;
            if losses.is_to_be_tried(Instant::now(), Duration::from_secs(1)) {
                tried.push(second);
                let told = losses.saw(failed(), 0);
                let first = (second == 0).then(|| Change::Begin("gone".into()));
                assert_eq!(told, first, "{second}");
            }
        }
        assert_eq!(tried, [0, 1, 3, 7, 15, 31, 61, 91, 121, 151, 181]);
        tokio::time::sleep_until(began + Duration::from_secs(211)).await;
        // Those that were due while a test slept, too.
        assert!(losses.is_to_be_tried(Instant::now(), Duration::from_secs(1)));
        assert_eq!(losses.saw(Ok(()), 0), None, "some were due since the last");
        assert!(losses.is_to_be_tried(Instant::now() + Duration::from_secs(1), PERIOD));
        assert_eq!(losses.saw(Ok(()), 0), Some(Change::End(211)));
        assert_eq!(losses.saw(failed(), 0), Some(Change::Begin("gone".into())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_sink_loses_what_is_due_meanwhile() {
        let (mut losses, began) = (Losses::default(), Instant::now());
        let mut push = |second| {
            let due = began + Duration::from_secs(second);
            assert!(losses.is_to_be_tried(due, PERIOD));
            losses.saw(Ok(()), 0)
        };
        assert_eq!((push(10), push(20)), (None, None));
        assert_eq!(push(50), Some(Change::Begin(SLOW.into())));
        assert_eq!(push(70), None);
        assert_eq!(push(80), Some(Change::End(3)));
        assert_eq!(push(90), None);
    }

    #[test]
    fn what_went_with_a_connection_is_lost() {
        let mut losses = Losses::default();
        assert_eq!(losses.saw(Ok(()), 2), Some(Change::Begin(BROKE.into())));
        assert_eq!(losses.saw(failed(), 1), None);
        assert_eq!(losses.saw(Ok(()), 0), Some(Change::End(4)));
    }
}
