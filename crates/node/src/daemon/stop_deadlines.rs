//! How long a stop may take.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tracing::warn;

/// A whole stop, from the order to the end of the process. Clients of a node that restarts wait 30
/// s for it by default (`dfs.client.datanode-restart.timeout`). Replicas wait 50 s
/// (`dfs.datanode.restart.replica.expiration`). Both must leave time for the next start.
const LIMIT: Duration = Duration::from_secs(10);
/// What services must leave of it to the store.
const STORE: Duration = Duration::from_secs(4);
/// Writers get this long to be told that the node comes back.
pub(super) const ANNOUNCE: Duration = Duration::from_secs(2);
/// Markers of replicas that wait for their writers get this long to be written.
const MARK: Duration = Duration::from_secs(2);

/// When a stop has to be over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    /// [`LIMIT`] from now.
    pub(super) fn new() -> Self {
        Self(Instant::now() + LIMIT)
    }

    /// Waits for the services; those that do not end in time are cut off.
    pub(super) async fn end_services(self, services: impl Future<Output = ()>) {
        if timeout_at(self.0 - STORE, services).await.is_err() {
            warn!("some operations did not end in time; they are cut off");
        }
    }

    /// Waits for the store. What a disk does not take in time is left to the next start, as
    /// after a kill.
    pub(super) async fn close(self, store: impl Future<Output = ()>) {
        if timeout_at(self.0, store).await.is_err() {
            warn!(
                "a volume does not take what a stop writes: the stop ends without it after \
                 {LIMIT:?}, and the next start walks the directories"
            );
        }
    }
}

/// Tells the writers that the node comes back, and marks their replicas.
pub(super) async fn announce(told: impl Future<Output = ()>, marked: impl Future<Output = ()>) {
    told.await;
    if timeout(MARK, marked).await.is_err() {
        warn!(
            "some replicas are not marked for the restart after {MARK:?}; their clients have to \
             recover them"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stop_for_an_upgrade_on_a_hung_disk_takes_ten_seconds_at_most() {
        let began = Instant::now();
        let deadline = Deadline::new();
        announce(tokio::time::sleep(ANNOUNCE), pending()).await;
        deadline.end_services(pending()).await;
        deadline.close(pending()).await;
        assert!(began.elapsed() <= Duration::from_millis(10_010));
    }

    #[tokio::test(start_paused = true)]
    async fn services_that_hang_leave_the_store_its_time() {
        let began = Instant::now();
        let deadline = Deadline::new();
        announce(tokio::time::sleep(ANNOUNCE), pending()).await;
        deadline.end_services(pending()).await;
        let saved = std::cell::Cell::new(false);
        let saving = async {
            tokio::time::sleep(STORE - Duration::from_millis(100)).await;
            saved.set(true);
        };
        deadline.close(saving).await;
        assert!(saved.get() && began.elapsed() < LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_with_nothing_in_its_way_takes_no_time() {
        let began = Instant::now();
        let deadline = Deadline::new();
        announce(ready(()), ready(())).await;
        deadline.end_services(ready(())).await;
        deadline.close(ready(())).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
