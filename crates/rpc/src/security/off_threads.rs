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

/// Two sorts of calls, so that a crowd of callers never keeps the node from logging in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KdcOrCaller {
    /// It asks a KDC.
    Kdc,
    /// It looks at what a caller sent.
    Caller,
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

/// Runs a call that may block, and waits for it at most `limit`.
pub(crate) async fn off_threads<T: Send + 'static>(
    sort: KdcOrCaller,
    limit: Duration,
    call: impl FnOnce() -> Result<T, GssError> + Send + 'static,
) -> Result<T, BlockedCall> {
    static FOR_KDC: OnceLock<Arc<Semaphore>> = OnceLock::new();
    static FOR_CALLERS: OnceLock<Arc<Semaphore>> = OnceLock::new();
    let places = match sort {
        KdcOrCaller::Kdc => &FOR_KDC,
        KdcOrCaller::Caller => &FOR_CALLERS,
    };
    let places = Arc::clone(places.get_or_init(|| Arc::new(Semaphore::new(CALLS_MAX))));
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
