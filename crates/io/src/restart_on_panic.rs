//! Services that a defect must not end for as long as the process runs.
//!
//! A task that panics is gone, and what it looked after is without it, while the rest of the node
//! goes on. So it begins again, is counted, and the operator is told.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;

/// A service that broke begins again after so long.
const AGAIN: Duration = Duration::from_secs(5);

static BROKEN: AtomicU64 = AtomicU64::new(0);

/// How often a service of this process broke and began again.
#[must_use]
pub fn services_broken() -> u64 {
    BROKEN.load(Ordering::Relaxed)
}

/// Runs the service that `begin` gives, to its end. One that panics begins again after 5 s, as
/// often as it does. `None` when it is to `stop` meanwhile.
pub async fn unbroken<S: Future>(
    what: &'static str,
    stop: impl Future,
    begin: impl Fn() -> S,
) -> Option<S::Output> {
    let mut stop = std::pin::pin!(stop);
    loop {
        let end = told_if_broken(what, begin()).await;
        if end.is_some() {
            return end;
        }
        tracing::info!(service = what, "begins again in {} s", AGAIN.as_secs());
        tokio::select! {
            _ = &mut stop => return None,
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

/// Runs a service to its end. `None` when it panicked: that is counted, and told.
pub async fn told_if_broken<S: Future>(what: &'static str, service: S) -> Option<S::Output> {
    // What it shares is behind locks that bear a panic (see `locks`).
    let end = AssertUnwindSafe(service).catch_unwind().await.ok();
    if end.is_none() {
        BROKEN.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            service = what,
            "a defect of Hayloft ended this work: please report the panic that the log shows \
             before this line"
        );
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[tokio::test(start_paused = true)]
    async fn a_service_that_panics_begins_again_and_is_counted() {
        let (begun, before) = (AtomicU32::new(0), services_broken());
        let wrong_twice = || async {
            let number = begun.fetch_add(1, Ordering::Relaxed);
            assert!(number >= 2, "wrong");
        };
        let ended = unbroken("one that is wrong twice", never(), wrong_twice).await;
        assert_eq!(ended, Some(()));
        assert_eq!(begun.load(Ordering::Relaxed), 3);
        assert!(services_broken() - before >= 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_does_not_wait_until_a_service_begins_again() {
        let began = tokio::time::Instant::now();
        let stop = tokio::time::sleep(AGAIN / 2);
        let always_wrong = || async { panic!("wrong") };
        let ended: Option<()> = unbroken("one that is always wrong", stop, always_wrong).await;
        assert_eq!(ended, None);
        assert!(began.elapsed() < AGAIN, "{:?}", began.elapsed());
    }

    fn never() -> std::future::Pending<()> {
        std::future::pending()
    }
}
