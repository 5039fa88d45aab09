//! The end of a block: the replica is completed, and the NameNode told.

use std::sync::Arc;
use std::time::Duration;

use hayloft_store::{ReplicaRef, ReplicaWriter, StoreError, StoreErrorKind};
use hayloft_wire::ids::ExtendedBlock;
use tokio::time::Instant;

use crate::activity::Timed;
use crate::xceiver::context::Xceivers;

/// What to do when the block is complete.
#[derive(Clone, Debug)]
pub enum Finish {
    /// Finalize and tell the NameNode, with a hint which replica may go.
    Report {
        /// Uuid of the node whose replica may be deleted.
        delete_hint: Option<String>,
        /// Done when the NameNode has heard, or after so long; zero does not wait.
        wait: Duration,
    },
    /// Finalize without telling: the client goes on with a new generation stamp.
    Quietly,
    /// Becomes a replica being written.
    ConvertToRbw,
}

/// How writing a block ended.
#[derive(Clone, Debug)]
pub enum End {
    /// Complete: the block as it is now.
    Done(ExtendedBlock),
    /// Cannot go on.
    Failed(Arc<StoreError>),
}

/// Tells the NameNode of a block that was received. A client asks it to complete the file as soon
/// as it has the last acknowledgement. When that comes before the report, a stock client sleeps
/// before it asks again: 400 ms and longer
/// (`dfs.client.block.write.locateFollowingBlock.initial.delay.ms`).
pub async fn tell(x: &Xceivers, replica: &ReplicaRef, finish: &Finish) {
    let Finish::Report { delete_hint, wait } = finish else {
        return;
    };
    let (block, link) = (&replica.block, x.link());
    link.received(block, &replica.storage, delete_hint.as_deref());
    if !wait.is_zero() {
        link.wait_told(block, *wait).await;
    }
}

/// Completes the block, of which `added` bytes came in now, and tells the NameNode. Only then is
/// the last packet acknowledged.
pub async fn complete_replica(
    x: Xceivers,
    writer: ReplicaWriter,
    finish: Finish,
    added: u64,
) -> End {
    let block = writer.block();
    let began = Instant::now();
    let what = match &finish {
        Finish::ConvertToRbw => Timed::ConvertTemporaryToRbwOp,
        Finish::Report { .. } | Finish::Quietly => Timed::FinalizeBlockOp,
    };
    let outcome = match &finish {
        Finish::ConvertToRbw => x.store().convert_temporary_to_rbw(writer).await,
        Finish::Report { .. } | Finish::Quietly => writer.finalize().await,
    };
    match outcome {
        Ok(replica) => {
            x.stats().bytes_written.add(added);
            x.stats().blocks_written.add(1);
            x.activity().took(what, began.elapsed());
            tell(&x, &replica, &finish).await;
            tracing::info!(block = %replica.block, bytes = replica.block.block.num_bytes,
                storage = %replica.storage.id, "received");
            End::Done(replica.block)
        }
        Err(error) => {
            tracing::warn!(%block, "cannot complete a received block: {error}");
            if error.kind() == StoreErrorKind::Io {
                x.store().check_volumes_soon();
            }
            End::Failed(Arc::new(error))
        }
    }
}
