//! When less than a full write buffer is written.

use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use hayloft_io::{MayWait, WRITE_BUFFER};
use hayloft_store::Due;
use tokio::time::{Instant, Sleep, sleep_until};

/// How long what was received may wait for more, where the sender is known to have more under way.
const GATHER: Duration = Duration::from_millis(1);

/// What a sender is taken to have under way before it is known, in bytes: the packets of a small
/// file are written together.
const WINDOW_MIN: u64 = 512 << 10;

/// Gatherings in vain after which a stream gathers no more.
const MISSES_MAX: u32 = 4;

/// Decides whether a block's received bytes wait for more of them.
pub struct Gathering {
    /// The socket has nothing more now.
    pub drained: bool,
    /// Nothing more comes.
    ended: bool,
    /// The most bytes that were received and not written: the sender's window is at least so large.
    window: u64,
    /// Bytes that waited when the alarm was set.
    at_alarm: u64,
    alarm: Option<Pin<Box<Sleep>>>,
    /// The alarm is set.
    waiting: bool,
    misses: u32,
}

impl Default for Gathering {
    /// On a thread that [may wait](MayWait) for a disk small writes are handed to no other thread.
    /// There a sender is waited for only once it has filled a write buffer.
    fn default() -> Self {
        let misses = if MayWait::is_set() { MISSES_MAX } else { 0 };
        Self {
            drained: false,
            ended: false,
            window: WINDOW_MIN,
            at_alarm: 0,
            alarm: None,
            waiting: false,
            misses,
        }
    }
}

impl Gathering {
    pub fn ended() -> Self {
        Self {
            drained: true,
            ended: true,
            ..Self::default()
        }
    }

    pub fn received(&mut self, unwritten: u64) {
        self.window = self.window.max(unwritten);
        self.drained = false;
    }

    /// What to write of `unwritten` bytes, while no write is under way. A sender that has half of
    /// its window under way sends more without an acknowledgement. One that stops all the same is
    /// waited for a few times only.
    pub fn due(&mut self, cx: &mut Context<'_>, unwritten: u64) -> Due {
        if self.ended {
            return Due::All;
        }
        let full = unwritten >= WRITE_BUFFER as u64;
        if full {
            self.misses = self.misses.saturating_sub(1);
        }
        if !self.drained {
            return Due::Full;
        }
        let more_comes = unwritten > 0 && unwritten.saturating_mul(2) < self.window;
        if full || !more_comes || self.misses >= MISSES_MAX {
            self.waiting = false;
            return Due::Drained;
        }
        let alarm = self
            .alarm
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + GATHER)));
        if !self.waiting {
            self.waiting = true;
            self.at_alarm = unwritten;
            alarm.as_mut().reset(Instant::now() + GATHER);
        }
        if alarm.as_mut().poll(cx).is_pending() {
            return Due::Full;
        }
        self.waiting = false;
        if unwritten == self.at_alarm {
            self.misses += 1;
        }
        Due::Drained
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;

    const SMALL: u64 = 512;

    async fn due(gathering: &mut Gathering, unwritten: u64) -> Due {
        gathering.received(unwritten);
        gathering.drained = true;
        poll_fn(|cx| Poll::Ready(gathering.due(cx, unwritten))).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_thread_that_writes_by_itself_waits_for_no_more() {
        let mut shared = Gathering::default();
        assert_eq!(due(&mut shared, SMALL).await, Due::Full);
        let _may_wait = MayWait::this_thread();
        let mut own = Gathering::default();
        assert_eq!(due(&mut own, SMALL).await, Due::Drained);
        // A stream gathers there as well.
        assert_eq!(due(&mut own, WRITE_BUFFER as u64).await, Due::Drained);
        assert_eq!(due(&mut own, SMALL).await, Due::Full);
    }
}
