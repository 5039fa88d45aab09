//! News from the store: deleted, corrupt and found replicas, failed volumes.

use std::time::Duration;

use hayloft_store::{ReplicaRef, StorageInfo, StoreEvent};
use hayloft_wire::ids::{ExtendedBlock, ReplicaState};
use hayloft_wire::proto::datanode::{BlockStatus, ErrorReportCode};
use tokio::sync::mpsc;

use super::NameNodes;
use super::error_reports::ErrorReport;
use super::ibr::BlockChange;

/// How long the node lives on after a fatal disk error, so that NameNodes hear of it.
const LAST_WORDS: Duration = Duration::from_secs(2);

impl NameNodes {
    /// Passes the store's news on until the store is gone or the node stops. A fatal disk error
    /// stops the node.
    pub async fn serve_store_events(&self, mut events: mpsc::Receiver<StoreEvent>) {
        loop {
            let event = tokio::select! {
                () = self.node().shutdown.cancelled() => return,
                event = events.recv() => match event {
                    Some(event) => event,
                    None => return,
                },
            };
            self.store_event(event).await;
        }
    }

    async fn store_event(&self, event: StoreEvent) {
        match event {
            StoreEvent::Deleted { block, storage } | StoreEvent::Lost { block, storage } => {
                self.gone(&block, &storage);
            }
            StoreEvent::Found { block, storage } => {
                self.notify_finalized(&block, &storage, None);
            }
            StoreEvent::Mended { block, storage } => self.notify_mended(&block, &storage),
            StoreEvent::Corrupt { block, storage } => {
                tracing::warn!(%block, storage = &*storage.id, "replica is corrupt: reported to \
                    the NameNode");
                self.report_bad_block(&block, &storage);
            }
            StoreEvent::VolumeFailed {
                path,
                storage,
                reason,
                fatal,
            } => {
                let message = format!(
                    "DataNode failed volumes:{};: {} {reason}",
                    path.display(),
                    storage.id
                );
                tracing::error!(
                    volume = %path.display(),
                    storage = &*storage.id,
                    "volume failed{}: {reason}",
                    if fatal { ", more than are tolerated: the node stops" } else { "" }
                );
                self.volume_failed(message, fatal).await;
            }
        }
    }

    /// A replica is gone. The block may be here again, in another place or with a newer generation
    /// stamp. Then the NameNode must not hear that it is gone: it forgets all replicas of this
    /// node.
    fn gone(&self, block: &ExtendedBlock, storage: &StorageInfo) {
        let here = self.node().store.replica(&block.pool, block.block.id);
        let replaced = here.is_some_and(|replica| {
            let (now, then) = (
                replica.block.block.generation_stamp,
                block.block.generation_stamp,
            );
            // The same one is here again when its directory was put in again. A copy that only
            // begins may not end.
            let again = now == then && replica.state != ReplicaState::Temporary;
            now > then || again || replica.storage.id != storage.id
        });
        if replaced {
            tracing::debug!(%block, "an old replica is gone; a newer one is here");
            return;
        }
        self.notify(block, storage, BlockStatus::Deleted, None);
    }

    /// A replica has right files again: what was told of it before, by whomever, is of the old
    /// ones. Where a NameNode has forgotten it meanwhile and has enough others, this one goes.
    fn notify_mended(&self, block: &ExtendedBlock, storage: &StorageInfo) {
        let Some(service) = self.service(&block.pool) else {
            return;
        };
        let here = self.node().store.replica(&block.pool, block.block.id);
        let same = |replica: &ReplicaRef| {
            replica.state == ReplicaState::Finalized
                && replica.block == *block
                && replica.storage == *storage
        };
        if !here.is_some_and(|replica| same(&replica)) {
            return;
        }
        for actor in service.actors() {
            let this = self.datanode_id(&block.pool);
            actor.news(
                storage,
                BlockChange {
                    block: block.block,
                    status: BlockStatus::Received,
                    delete_hint: this.map(|this| this.datanode_uuid),
                    anew: true,
                },
            );
        }
    }

    async fn volume_failed(&self, message: String, fatal: bool) {
        let code = if fatal {
            ErrorReportCode::FatalDiskError
        } else {
            ErrorReportCode::DiskError
        };
        for service in self.services() {
            service.tell(&ErrorReport::Error {
                code,
                message: message.clone(),
            });
            for actor in service.actors() {
                // The failed volume's replicas are missing from it.
                actor.report_soon();
            }
        }
        if fatal {
            tokio::time::sleep(LAST_WORDS).await;
            self.node().shutdown.cancel();
        }
    }
}
