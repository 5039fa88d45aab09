//! The ends of a TEMPORARY replica that is not finalized, and of a writer that is dropped.

use std::sync::Arc;

use hayloft_io::IoOp;
use hayloft_wire::ids::ReplicaState;
use tokio::task::JoinHandle;
use tracing::warn;

use super::ReplicaWriter;
use crate::error::StoreError;
use crate::replica::file_pair;
use crate::replica::reference::reference;
use crate::replica::state::{Move, after};
use crate::replica::{ReplicaDir, Slot};
use crate::types::ReplicaRef;

impl ReplicaWriter {
    /// Turns a TEMPORARY replica into an RBW one without a writer.
    pub(crate) async fn convert(self) -> Result<ReplicaRef, StoreError> {
        let store = Arc::clone(&self.store);
        store.complete(self.convert_owned()).await
    }

    async fn convert_owned(mut self) -> Result<ReplicaRef, StoreError> {
        let result = self.convert_files().await.map_err(|e| self.examine(e));
        self.done = result.is_ok();
        result
    }

    async fn convert_files(&mut self) -> Result<ReplicaRef, StoreError> {
        let block = self.live.block();
        let next = self.live.status().state;
        let Some(next) = after(next, Move::Convert) else {
            return Err(StoreError::illegal(format!(
                "{block} is {next}, not TEMPORARY"
            )));
        };
        self.write_all().await?;
        let from = self.live.pair();
        let to = from.at(self.live.slice.paths.rbw());
        let dirs = [from.dir.clone(), to.dir.clone()];
        let path = from.data();
        file_pair::on_disk(
            &self.live.slice,
            self.class,
            IoOp::Rename,
            &path,
            move || file_pair::move_pair(&from, &to, false),
        )
        .await
        .map_err(|e| StoreError::io(format!("making {block} a replica being written"), e))?;
        for dir in &dirs {
            self.live.slice.volume.commits.touch_dir(dir);
        }
        {
            let mut status = self.live.status();
            status.state = next;
            status.place = ReplicaDir::Rbw;
            status.bytes_acked = status.bytes_on_disk;
        }
        Ok(reference(&self.pool, &self.live))
    }
}

impl ReplicaWriter {
    /// Gives back the room in memory beyond the bytes of the replica, once the last write has
    /// ended, as Apache's node does: the client may be gone, and the recovery an hour away. A
    /// writer that goes on with the replica takes room as it grows.
    fn give_memory_back(&self, writing: Option<JoinHandle<Result<bool, StoreError>>>) {
        if !self.live.slice.volume.info.storage_type.is_transient() {
            return;
        }
        let (pool, live) = (Arc::clone(&self.pool), Arc::clone(&self.live));
        let writer_lock = Arc::clone(&self.writer_lock);
        let give_back = move || {
            let _writer_lock = writer_lock;
            let bytes = live.status().bytes_on_disk;
            pool.map.in_memory.shrink_room(live.id, bytes);
        };
        let Some(writing) = writing else {
            return give_back();
        };
        let ended = async move {
            let _told_elsewhere = writing.await;
            give_back();
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.store.tasks.spawn_on(ended, &runtime);
        }
    }
}

impl Drop for ReplicaWriter {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        self.live.release_reserved();
        let temporary = self.live.status().state == ReplicaState::Temporary;
        let (writing, moving) = (self.writing.take(), self.moving.take());
        if !temporary && moving.is_none() {
            self.give_memory_back(writing);
            return;
        }
        let (store, pool, mut live) = (
            Arc::clone(&self.store),
            Arc::clone(&self.pool),
            Arc::clone(&self.live),
        );
        let writer_lock = Arc::clone(&self.writer_lock);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let cleanup = async move {
            let _writer_lock = writer_lock;
            if let Some(writing) = writing.filter(|_| temporary) {
                // What it wrote is counted as used before the files are deleted.
                let _of_no_use = writing.await;
            }
            // Its right to the replica is held to the end.
            let moved = match moving {
                Some(moving) => moving.await.ok().and_then(Result::ok),
                None => None,
            };
            if let Some(moved) = &moved {
                live = moved.live();
                live.release_reserved();
            }
            if !temporary || !pool.map.is_live(&live) {
                return;
            }
            let block = live.block();
            // It stays in the map until its files are out of the way, or a new copy of the block
            // would have its own under the same names.
            if let Err(error) = crate::transitions::delete::discard_files(
                &store,
                &pool,
                &live.slice,
                ReplicaDir::Temporary,
                block,
                false,
            )
            .await
            {
                warn!(%block, %error, "cannot delete an unfinished copy; it is removed at the \
                    next start");
            }
            pool.map.remove_if(block.id, &Slot::Live(live));
        };
        self.store.tasks.spawn_on(cleanup, &runtime);
    }
}
