//! The NameNode's command to recover blocks: its orders wait here for their turn, some at a time.

use std::sync::Arc;

use hayloft_wire::proto::hdfs_server::RecoveringBlock;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, info, warn};

use super::calls_to_holders::Network;
use super::check_order::Order;
use super::lead::{RecoveryError, recover};
use crate::ipc::host::Host;

/// Recoveries that run at the same time.
const RUNNING: usize = 16;
/// Recoveries that run or wait. More are dropped: the NameNode orders them again.
const WAITING: usize = 4096;

/// Carries out the NameNode's orders to recover blocks. Clones share the work.
#[derive(Clone)]
pub struct BlockRecovery(Arc<Recoveries>);

struct Recoveries {
    host: Arc<dyn Host>,
    stop: CancellationToken,
    running: Semaphore,
    waiting: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl BlockRecovery {
    /// Recoveries end when `stop` is cancelled; their tasks are on `tasks`.
    #[must_use]
    pub fn new(host: Arc<dyn Host>, stop: CancellationToken, tasks: TaskTracker) -> Self {
        Self(Arc::new(Recoveries {
            host,
            stop,
            running: Semaphore::new(RUNNING),
            waiting: Arc::new(Semaphore::new(WAITING)),
            tasks,
        }))
    }

    /// Recoveries that run or wait for their turn.
    #[must_use]
    pub fn in_progress(&self) -> usize {
        WAITING.saturating_sub(self.0.waiting.available_permits())
    }

    /// Takes over the orders of one command and returns at once. `who` names the NameNode in logs.
    /// Must be called inside the runtime.
    pub fn recover_blocks(&self, who: &str, blocks: Vec<RecoveringBlock>) {
        for block in blocks {
            let order = match Order::try_from(block) {
                Ok(order) => order,
                Err(error) => {
                    warn!(namenode = who, %error, "an order to recover a block makes no sense and \
                        is ignored");
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&self.0.waiting).try_acquire_owned() else {
                warn!(
                    block = %order.block(),
                    waiting = WAITING,
                    "too many block recoveries wait; the NameNode will order this one again"
                );
                continue;
            };
            info!(
                namenode = who,
                block = %order.block(),
                recovery_id = order.recovery_id(),
                "recovering a block"
            );
            let recoveries = Arc::clone(&self.0);
            let recovering = async move {
                let stop = recoveries.stop.clone();
                tokio::select! {
                    () = recoveries.run(&order) => {}
                    () = stop.cancelled() => {}
                }
                drop(place);
            };
            self.0.tasks.spawn(recovering.in_current_span());
        }
    }
}

impl Recoveries {
    async fn run(&self, order: &Order) {
        let _turn = self.running.acquire().await;
        let block = order.block();
        let Some(peers) = Network::new(Arc::clone(&self.host), &block.pool) else {
            warn!(%block, "block not recovered: this node is not registered for its pool");
            return;
        };
        match recover(order, &peers).await {
            Ok(()) => {}
            Err(RecoveryError::Superseded(why)) => {
                info!(%block, recovery_id = order.recovery_id(), why, "block recovery given up");
            }
            Err(error) => {
                warn!(
                    %block,
                    recovery_id = order.recovery_id(),
                    %error,
                    "block not recovered; the NameNode will order it again"
                );
            }
        }
    }
}
