//! Fewer and larger awakenings for a stream that runs fast.
//!
//! A sender on a fast link sends a packet, this node wakes up, takes it, acknowledges it, wakes the sender up by that,
//! sleeps, and so on: as many switches on both sides as there are packets. So while a stream is fast the kernel is asked to
//! wake it up only when a few packets are there (`SO_RCVLOWAT`), or after a millisecond. Interrupts of network cards
//! are moderated the same way, for the same reason.
//!
//! A stream that is slower than [`RATE_MIN`], such as one that waits for each acknowledgement, is not delayed at all. One
//! whose sender stops before as much is there (because it has only so much under way, say) is delayed
//! [`MISSES_MAX`] times, and then left alone up to the end of its block.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::conn::Conn;

/// Bytes to wait for, at most: four packets of the usual size, far less than what the usual client has under way.
const BATCH_MAX: u32 = 256 << 10;

/// Bytes a second below which nothing is gained; in [`NAP`] this is a batch and a half.
const RATE_MIN: f64 = 400e6;

/// How long what is there may wait for more.
const NAP: Duration = Duration::from_millis(1);

/// Over how much time the rate is looked at, at least.
const WINDOW: Duration = Duration::from_millis(2);

/// Waits in vain after which a stream is left alone.
const MISSES_MAX: u32 = 4;

/// When to wake up the task that receives a stream.
#[derive(Debug)]
pub struct Moderation {
    since: Instant,
    bytes: usize,
    fast: bool,
    /// The last wait was in vain, and nothing was received since.
    missed: bool,
    misses: u32,
    alarm: Option<Pin<Box<Sleep>>>,
    /// The alarm is set for the wait that is going on.
    waiting: bool,
}

impl Moderation {
    /// For a stream of which nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self {
            since: Instant::now(),
            bytes: 0,
            fast: false,
            missed: false,
            misses: 0,
            alarm: None,
            waiting: false,
        }
    }

    /// Bytes were received.
    pub fn received(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.missed = false;
    }

    /// Waits until it is worth reading from the socket, of which everything that was there was read.
    ///
    /// # Errors
    /// The connection broke.
    pub fn poll_readable(&mut self, conn: &Conn, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.waiting {
            self.look(Instant::now());
        }
        let batch = self.fast && !self.missed && self.misses < MISSES_MAX;
        if !batch {
            self.waiting = false;
            return conn.poll_readable(cx);
        }
        if let Poll::Ready(ready) = conn.poll_readable_from(BATCH_MAX, cx) {
            self.waiting = false;
            return Poll::Ready(ready);
        }
        ready!(self.poll_alarm(cx));
        self.missed = true;
        self.misses += 1;
        self.waiting = false;
        // If anything is there, asking for a byte makes the kernel tell.
        conn.poll_readable(cx)
    }

    fn look(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed < WINDOW {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
        let rate = self.bytes as f64 / elapsed.as_secs_f64();
        self.fast = rate >= RATE_MIN;
        self.since = now;
        self.bytes = 0;
    }

    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let alarm = self
            .alarm
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + NAP)));
        if !self.waiting {
            self.waiting = true;
            alarm.as_mut().reset(Instant::now() + NAP);
        }
        alarm.as_mut().poll(cx)
    }
}
