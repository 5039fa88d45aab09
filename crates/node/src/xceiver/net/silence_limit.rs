//! How long a connection may be silent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// Limits a wait for the socket.
pub async fn within(
    limit: Option<Duration>,
    doing: &'static str,
    wait: impl Future<Output = io::Result<()>>,
) -> io::Result<()> {
    let Some(limit) = limit else {
        return wait.await;
    };
    match timeout(limit, wait).await {
        Ok(result) => result,
        Err(_) => Err(silence(doing, limit)),
    }
}

/// Nothing moved for `limit`.
pub fn silence(doing: &'static str, limit: Duration) -> io::Error {
    let text = format!("{doing}: nothing moved for {} ms", limit.as_millis());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// Watches that something moves within a limit, with one timer however often it does.
#[derive(Debug)]
pub struct Patience {
    limit: Option<Duration>,
    moved: Instant,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    /// Counts from now; without a limit it never ends.
    #[must_use]
    pub fn new(limit: Option<Duration>) -> Self {
        Self {
            limit,
            moved: Instant::now(),
            alarm: None,
        }
    }

    /// Something moved, or nothing is waited for.
    pub fn touch(&mut self) {
        self.moved = Instant::now();
    }

    /// Ready with the limit when nothing moved for so long.
    pub fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Duration> {
        let Some(limit) = self.limit else {
            return Poll::Pending;
        };
        let alarm = self
            .alarm
            .get_or_insert_with(|| Box::pin(sleep_until(self.moved + limit)));
        while alarm.as_mut().poll(cx).is_ready() {
            let due = self.moved + limit;
            if due <= Instant::now() {
                return Poll::Ready(limit);
            }
            alarm.as_mut().reset(due);
        }
        Poll::Pending
    }
}
