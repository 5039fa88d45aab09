//! What ends a write, or interrupts it, from outside.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::xceiver::block_receiver::{SHUT_DOWN, TAKEN_OVER};
use crate::xceiver::context::Xceivers;
use crate::xceiver::error::XferError;

type Signal = Pin<Box<WaitForCancellationFutureOwned>>;

/// The signals that one write listens to.
pub struct Signals {
    ends: Vec<(Signal, &'static str)>,
    restart: Option<Signal>,
}

fn signal(token: &CancellationToken) -> Signal {
    Box::pin(token.clone().cancelled_owned())
}

impl Signals {
    /// For a copy: it ends when another writer wants the replica. At a shutdown it gets the time
    /// that every operation gets.
    pub fn of_copy(taken_over: WaitForCancellationFutureOwned) -> Self {
        Self {
            ends: vec![(Box::pin(taken_over), TAKEN_OVER)],
            restart: None,
        }
    }

    /// For a client's write: it ends at once at a shutdown, and its client is told of a restart.
    pub fn of_client(x: &Xceivers, taken_over: WaitForCancellationFutureOwned) -> Self {
        let mut signals = Self::of_copy(taken_over);
        signals.ends.extend([
            (signal(&x.evict_token()), "writers were evicted"),
            (signal(x.shutdown_token()), SHUT_DOWN),
        ]);
        signals.restart = Some(signal(x.restart_token()));
        signals
    }

    /// True once, when the node is about to restart.
    ///
    /// # Errors
    /// The write has to end.
    pub fn poll_restart(&mut self, cx: &mut Context<'_>) -> Result<bool, XferError> {
        for (end, why) in &mut self.ends {
            if end.as_mut().poll(cx).is_ready() {
                return Err(XferError::Stopped(why));
            }
        }
        let restart = self.restart.as_mut();
        let now = restart.is_some_and(|signal| signal.as_mut().poll(cx) == Poll::Ready(()));
        if now {
            self.restart = None;
        }
        Ok(now)
    }
}
