//! This node's part in the recovery of a block that another node leads.

use hayloft_store::{RecoveryInfo, StoreError};
use hayloft_wire::ids::{Block, ExtendedBlock};

use crate::ipc::host::Host;

/// Stops the writer of a replica and takes it into recovery under `recovery_id`; `None` when there
/// is no replica. The answer says what the replica was before.
///
/// # Errors
/// As the store's: older replicas, newer recoveries and unreadable files refuse.
pub(crate) async fn init(
    host: &dyn Host,
    block: &ExtendedBlock,
    recovery_id: u64,
) -> Result<Option<RecoveryInfo>, StoreError> {
    host.store().init_replica_recovery(block, recovery_id).await
}

/// Ends the recovery of a replica: `new_length` bytes, generation stamp `recovery_id`, finalized.
/// Its id is `new_block_id` (a copy, when a truncate needs one) or its own. Callers too old to send
/// an id say 0 for its own. The NameNode hears of it at once. Returns the storage's id.
///
/// # Errors
/// As the store's: a recovery with another id, or a replica shorter than `new_length`, refuses.
pub(crate) async fn update(
    host: &dyn Host,
    block: &ExtendedBlock,
    recovery_id: u64,
    new_block_id: i64,
    new_length: u64,
) -> Result<String, StoreError> {
    let new_block_id = if new_block_id == 0 {
        block.block.id
    } else {
        new_block_id
    };
    let replica = host
        .store()
        .update_replica_under_recovery(block, recovery_id, new_block_id, new_length)
        .await?;
    let recovered = ExtendedBlock::new(
        block.pool.clone(),
        Block::new(new_block_id, recovery_id, new_length),
    );
    host.received(&recovered, &replica.storage);
    Ok(replica.storage.id.to_string())
}
