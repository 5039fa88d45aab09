//! Calls that block, kept off the async threads and within limits.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use hayloft_gss::GssError;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Calls of each sort that run at the same time. One that waits for a KDC which does not answer
/// keeps its place, so that threads never pile up.
const CALLS_MAX: usize = 8;

/// Sorts of calls, each with places of its own: neither a crowd of callers nor servers whose
/// tickets are long in coming keep the node from logging in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OffThreads {
    /// It logs in.
    Login,
    /// It asks a KDC for a ticket for a server.
    Ticket,
    /// It looks at what a caller sent.
    Caller,
    /// The same at the web port, whose callers may be strangers.
    WebCaller,
    /// It asks a name server.
    Names,
}

impl OffThreads {
    fn places(self) -> Arc<Semaphore> {
        static PLACES: OnceLock<[Arc<Semaphore>; 5]> = OnceLock::new();
        let places = || std::array::from_fn(|_| Arc::new(Semaphore::new(CALLS_MAX)));
        let [login, ticket, caller, web, names] = PLACES.get_or_init(places);
        Arc::clone(match self {
            Self::Login => login,
            Self::Ticket => ticket,
            Self::Caller => caller,
            Self::WebCaller => web,
            Self::Names => names,
        })
    }
}

/// Why a call of Kerberos gave nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum BlockedCall {
    #[error(transparent)]
    Failed(#[from] GssError),
    #[error(
        "Kerberos gave no answer within {0:?}: see that a KDC of krb5.conf and the name servers \
         answer"
    )]
    Slow(Duration),
    #[error("a call of Kerberos broke off: see the error above, and report it")]
    Broken,
}

/// Runs a call that may block, and waits for its place and its end at most `limit`.
pub(crate) async fn off_threads<T: Send + 'static>(
    sort: OffThreads,
    limit: Duration,
    call: impl FnOnce() -> Result<T, GssError> + Send + 'static,
) -> Result<T, BlockedCall> {
    let places = sort.places();
    let called = async move {
        let place = places.acquire_owned().await;
        // The place is held until the call is over, whether or not someone still waits.
        let run = tokio::task::spawn_blocking(move || {
            let _place = place;
            call()
        });
        run.await
    };
    match timeout(limit, called).await {
        Ok(Ok(done)) => Ok(done?),
        Ok(Err(_)) => Err(BlockedCall::Broken),
        Err(_) => Err(BlockedCall::Slow(limit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    /// Calls of one sort hang; whether those of others go on.
    async fn goes_on(hanging: OffThreads, others: &[OffThreads]) {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let wait = Arc::new(std::sync::Mutex::new(wait));
        for _ in 0..CALLS_MAX {
            let wait = Arc::clone(&wait);
            let call = off_threads(hanging, SHORT, move || {
                let _ = wait.lock().unwrap().recv();
                Ok(())
            });
            assert!(matches!(call.await, Err(BlockedCall::Slow(_))));
        }
        let same = off_threads(hanging, SHORT, || Ok(()));
        assert!(matches!(same.await, Err(BlockedCall::Slow(_))));
        let limit = Duration::from_secs(60);
        for other in others {
            assert!(off_threads(*other, limit, || Ok(())).await.is_ok());
        }
        drop(done);
    }

    #[tokio::test]
    async fn servers_that_hang_do_not_keep_the_node_from_logging_in() {
        goes_on(OffThreads::Ticket, &[OffThreads::Login]).await;
    }

    #[tokio::test]
    async fn strangers_at_the_web_port_do_not_keep_callers_of_rpc_waiting() {
        goes_on(
            OffThreads::WebCaller,
            &[OffThreads::Caller, OffThreads::Login],
        )
        .await;
    }
}
