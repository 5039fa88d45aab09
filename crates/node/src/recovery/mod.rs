//! Block recovery, after a writer died (lease recovery) or a file was truncated. It brings the
//! replicas of the last block to the same length and a new generation stamp. The NameNode chooses
//! one of the nodes as the primary and sends it an order with a heartbeat; this module carries it
//! out.
//!
//! | module | what it is |
//! |---|---|
//! | `command` | the order, checked |
//! | `rules` | which replicas are kept and how long they become: pure functions |
//! | `lead` | the steps of one recovery |
//! | `peers` | the participants, here and elsewhere |
//! | `participant` | this node's part, also when another node leads |
//!
//! Nothing is kept of a recovery that fails. The NameNode sends a new order with a higher recovery
//! id when the old one's time is over. Participants refuse what is older than they have seen.

mod command;
mod lead;
#[cfg(test)]
mod lead_tests;
pub(crate) mod participant;
mod peers;
mod rules;
#[cfg(test)]
mod rules_tests;

use std::sync::Arc;

use hayloft_wire::proto::hdfs_server::RecoveringBlock;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, info, warn};

use command::Order;
use lead::RecoveryError;
use peers::Network;

use crate::ipc::host::Host;

/// Recoveries that run at the same time.
const RUNNING: usize = 16;
/// Recoveries that run or wait. More are dropped: the NameNode orders them again.
const WAITING: usize = 4096;

/// Carries out the NameNode's orders to recover blocks. Clones share the work.
#[derive(Clone)]
pub struct BlockRecovery(Arc<Inner>);

struct Inner {
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
        Self(Arc::new(Inner {
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
            let inner = Arc::clone(&self.0);
            let recovering = async move {
                let stop = inner.stop.clone();
                tokio::select! {
                    () = inner.run(&order) => {}
                    () = stop.cancelled() => {}
                }
                drop(place);
            };
            self.0.tasks.spawn(recovering.in_current_span());
        }
    }
}

impl Inner {
    async fn run(&self, order: &Order) {
        let _turn = self.running.acquire().await;
        let block = order.block();
        let Some(peers) = Network::new(Arc::clone(&self.host), &block.pool) else {
            warn!(%block, "block not recovered: this node is not registered for its pool");
            return;
        };
        match lead::recover(order, &peers).await {
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
