//! Something that is good for a while, and made anew before that is over.
//!
//! One renewal runs at a time, as a task of its own: who asks and goes away takes nothing from
//! others. What is still good is given out at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::off_threads::BlockedCall;

/// Least time between two renewals while the old one is good.
const AGAIN: Duration = Duration::from_secs(60);
/// Least time between two renewals that fail.
const AGAIN_WITHOUT: Duration = Duration::from_secs(1);

/// A `T` that is renewed in time.
#[derive(Debug)]
pub(super) struct Renewal<T>(Mutex<RenewalState<T>>);

#[derive(Debug)]
struct RenewalState<T> {
    held: Option<Held<T>>,
    /// When a renewal last ended, and why it failed.
    tried: Option<(Instant, Option<BlockedCall>)>,
    /// A server did not believe what is held.
    doubted: bool,
    running: Option<(AbortHandle, Ended)>,
}

/// Comes when a renewal has ended.
type Ended = Shared<BoxFuture<'static, ()>>;

#[derive(Debug)]
struct Held<T> {
    value: Arc<T>,
    since: Instant,
    life: Duration,
}

impl<T> Held<T> {
    fn left(&self) -> Duration {
        self.life.saturating_sub(self.since.elapsed())
    }

    /// Time until it has to be renewed: 80 % of its life after it was made.
    fn fresh_for(&self) -> Duration {
        (self.life / 10 * 8).saturating_sub(self.since.elapsed())
    }
}

impl<T> RenewalState<T> {
    fn good(&self) -> Option<&Held<T>> {
        self.held.as_ref().filter(|held| !held.left().is_zero())
    }

    /// Whether it has to be renewed, and nothing speaks against it.
    fn is_due(&self) -> bool {
        let good = self.good();
        let wait = good.map_or(AGAIN_WITHOUT, |_| AGAIN);
        let lately = self.tried.as_ref().filter(|(at, _)| at.elapsed() < wait);
        let fresh = good.is_some_and(|held| !held.fresh_for().is_zero());
        self.under_way().is_none() && lately.is_none() && (!fresh || self.doubted)
    }

    /// The end of the renewal that runs now.
    fn under_way(&self) -> Option<&Ended> {
        let (task, ended) = self.running.as_ref()?;
        (!task.is_finished()).then_some(ended)
    }
}

impl<T> Default for Renewal<T> {
    fn default() -> Self {
        Self(Mutex::new(RenewalState {
            held: None,
            tried: None,
            doubted: false,
            running: None,
        }))
    }
}

impl<T: Send + Sync + 'static> Renewal<T> {
    fn lock(&self) -> MutexGuard<'_, RenewalState<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is good, at once, or else what the renewal gives that runs or begins now. `make` is
    /// run when a renewal is due, and gives how long its result is good.
    pub(super) async fn get<F>(self: &Arc<Self>, make: F) -> Result<Arc<T>, BlockedCall>
    where
        F: Future<Output = Result<(T, Duration), BlockedCall>> + Send + 'static,
    {
        let running = {
            let mut state = self.lock();
            self.begin_if_due(&mut state, make);
            if let Some(held) = state.good() {
                return Ok(Arc::clone(&held.value));
            }
            state.under_way().cloned()
        };
        if let Some(running) = running {
            running.await;
        }
        let state = self.lock();
        match (state.good(), &state.tried) {
            (Some(held), _) => Ok(Arc::clone(&held.value)),
            (None, Some((_, Some(error)))) => Err(error.clone()),
            (None, _) => Err(BlockedCall::Broken),
        }
    }

    /// A server did not believe what is held: it is made anew, now or when the last renewal is old
    /// enough.
    pub(super) fn doubt<F>(self: &Arc<Self>, make: F)
    where
        F: Future<Output = Result<(T, Duration), BlockedCall>> + Send + 'static,
    {
        let mut state = self.lock();
        state.doubted = true;
        self.begin_if_due(&mut state, make);
    }

    fn begin_if_due<F>(self: &Arc<Self>, state: &mut RenewalState<T>, make: F)
    where
        F: Future<Output = Result<(T, Duration), BlockedCall>> + Send + 'static,
    {
        if !state.is_due() {
            return;
        }
        let this = Arc::clone(self);
        let task = tokio::spawn(async move {
            let made = make.await;
            this.take(made);
        });
        // A panic there is told by its own message.
        state.running = Some((task.abort_handle(), task.map(drop).boxed().shared()));
    }

    fn take(&self, made: Result<(T, Duration), BlockedCall>) {
        let mut state = self.lock();
        state.tried = Some((Instant::now(), made.as_ref().err().cloned()));
        if let Ok((value, life)) = made {
            state.doubted = false;
            state.held = Some(Held {
                value: Arc::new(value),
                since: Instant::now(),
                life,
            });
        }
    }

    /// Time until a renewal is due, at least a second.
    pub(super) fn due_in(&self) -> Duration {
        let fresh = self.lock().held.as_ref().map(Held::fresh_for);
        let fresh = fresh.filter(|fresh| !fresh.is_zero());
        fresh.unwrap_or(AGAIN).max(AGAIN_WITHOUT)
    }

    /// How long what is held is good.
    pub(super) fn left(&self) -> Option<Duration> {
        self.lock().good().map(Held::left)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::time::{advance, timeout};

    use super::*;

    const LIFE: Duration = Duration::from_secs(1000);

    type Made = Result<(u32, Duration), BlockedCall>;

    async fn of(number: u32) -> Made {
        Ok((number, LIFE))
    }

    async fn failing() -> Made {
        Err(BlockedCall::Slow(Duration::ZERO))
    }

    async fn held(renewal: &Arc<Renewal<u32>>) -> u32 {
        *renewal.get(std::future::pending()).await.expect("good")
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_good_is_given_out_while_a_renewal_hangs() {
        let renewal = Arc::new(Renewal::default());
        assert_eq!(*renewal.get(of(1)).await.unwrap(), 1);
        advance(LIFE / 10 * 9).await;
        let (done, waits) = oneshot::channel::<()>();
        let slow = async move {
            let _ = waits.await;
            of(2).await
        };
        let at_once = timeout(Duration::from_millis(1), renewal.get(slow)).await;
        assert_eq!(*at_once.expect("nothing is waited for").unwrap(), 1);
        assert_eq!(held(&renewal).await, 1);
        done.send(()).unwrap();
        while held(&renewal).await == 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(held(&renewal).await, 2);
        // The next one begins, though no one waited for that one.
        advance(LIFE / 10 * 9).await;
        assert_eq!(*renewal.get(of(3)).await.unwrap(), 2);
        tokio::task::yield_now().await;
        assert_eq!(held(&renewal).await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_takes_nothing_from_others() {
        let renewal = Arc::new(Renewal::default());
        let slow = async {
            tokio::time::sleep(Duration::from_secs(30)).await;
            of(3).await
        };
        let gone = timeout(Duration::from_secs(1), renewal.get(slow)).await;
        assert!(gone.is_err());
        assert_eq!(held(&renewal).await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_told_and_not_tried_again_at_once() {
        let renewal = Arc::new(Renewal::<u32>::default());
        assert!(renewal.get(failing()).await.is_err());
        assert!(renewal.get(of(4)).await.is_err());
        advance(AGAIN_WITHOUT).await;
        assert_eq!(*renewal.get(of(4)).await.unwrap(), 4);
        advance(LIFE).await;
        assert!(renewal.get(failing()).await.is_err());
        assert_eq!(renewal.left(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_doubted_is_renewed_when_the_last_renewal_is_old_enough() {
        let renewal = Arc::new(Renewal::default());
        assert_eq!(*renewal.get(of(5)).await.unwrap(), 5);
        renewal.doubt(of(6));
        tokio::task::yield_now().await;
        assert_eq!(held(&renewal).await, 5);
        advance(AGAIN).await;
        renewal.doubt(of(7));
        tokio::task::yield_now().await;
        assert_eq!(held(&renewal).await, 7);
    }
}
