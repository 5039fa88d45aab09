//! Closing the files that readers left open for the next, when no next one comes.

use std::sync::Arc;
use std::time::Duration;

use crate::state::StoreState;

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// Closes what no reader has asked for in the time that the configuration gives, until the store
/// stops.
pub async fn run(store: Arc<StoreState>) {
    let idle = store.config.kept_open;
    loop {
        tokio::select! {
            () = store.stop.cancelled() => return,
            () = tokio::time::sleep(LOOK.min(idle)) => {}
        }
        for pool in store.pools() {
            pool.map.close_idle(idle);
        }
    }
}
