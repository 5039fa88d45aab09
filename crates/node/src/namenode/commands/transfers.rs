//! Commands that send blocks to other nodes: copies of replicas, and reconstructed ones.

use std::sync::Arc;

use hayloft_wire::ids::{Block, ExtendedBlock, PoolId, ReplicaState};
use hayloft_wire::proto::datanode::{BlockCommand, ErrorReportCode};
use hayloft_wire::proto::hdfs::BlockEcReconstructionInfo;

use super::Commander;
use crate::namenode::error_reports::ErrorReport;
use crate::namenode::work::Targets;

impl Commander {
    pub(super) fn reconstruct(&self, pool: &PoolId, groups: Vec<BlockEcReconstructionInfo>) {
        for group in groups {
            let id = group.block.block_id.cast_signed();
            if group.block.pool_id != pool.as_str() {
                tracing::warn!(%pool, "asked to reconstruct the group {id} of the pool {:?}: \
                    ignored", group.block.pool_id);
                continue;
            }
            let Ok(permit) = Arc::clone(&self.reconstructions).try_acquire_owned() else {
                tracing::warn!(%pool, "too many reconstructions at a time: the group {id} is left \
                    to the NameNode's next order");
                return;
            };
            let work = self.work.reconstruct(pool.clone(), group);
            let pool = pool.clone();
            self.spawn(async move {
                if let Err(reason) = work.await {
                    tracing::warn!(%pool, "reconstructing blocks of the group {id} failed: \
                        {reason}");
                }
                drop(permit);
            });
        }
    }

    pub(super) fn transfer(&self, pool: &PoolId, command: BlockCommand) {
        let mut ids = command.target_storage_uuids.into_iter();
        let mut types = command.target_storage_types.into_iter();
        let mut targets = command.targets.into_iter();
        for block in &command.blocks {
            let targets = targets
                .next()
                .map(|infos| infos.datanodes)
                .unwrap_or_default();
            let storage_ids = ids.next().map(|ids| ids.storage_uuids).unwrap_or_default();
            let storage_types = types
                .next()
                .map(|types| types.storage_types)
                .unwrap_or_default();
            let Ok(block) = Block::try_from(block) else {
                continue;
            };
            let block = ExtendedBlock::new(pool.clone(), block);
            let fits = |len: usize| len == 0 || len == targets.len();
            if targets.is_empty() || !fits(storage_ids.len()) || !fits(storage_types.len()) {
                tracing::warn!(%block, "an order to copy names {} target(s) but other numbers of \
                    storages: ignored", targets.len());
                continue;
            }
            if self.can_transfer(&block) {
                let targets = Targets {
                    nodes: targets,
                    types: storage_types,
                    storage_ids,
                };
                self.start_transfer(block, targets);
            }
        }
    }

    /// The NameNode learns of a replica that it believes in and that cannot be copied.
    fn can_transfer(&self, block: &ExtendedBlock) -> bool {
        let replica = self.service.node.store.replica(&block.pool, block.block.id);
        let usable = replica.filter(|replica| {
            replica.state == ReplicaState::Finalized
                && replica.block.block.generation_stamp == block.block.generation_stamp
        });
        let Some(replica) = usable else {
            let message = format!("Can't send invalid block {block}");
            tracing::info!(%block, "asked to copy a replica that is not here or not finalized");
            self.service.tell(&ErrorReport::Error {
                code: ErrorReportCode::InvalidBlock,
                message,
            });
            return false;
        };
        if replica.bytes_on_disk < block.block.num_bytes {
            tracing::warn!(
                %block,
                "asked to copy {} bytes of a replica that has {}: reported as bad",
                block.block.num_bytes,
                replica.bytes_on_disk
            );
            self.service.bad_block(block, &replica.storage);
            return false;
        }
        true
    }

    fn start_transfer(&self, block: ExtendedBlock, targets: Targets) {
        let Ok(permit) = Arc::clone(&self.transfers).try_acquire_owned() else {
            tracing::warn!(%block, "too many copies at a time: left to the NameNode's next order");
            return;
        };
        let copy = self.work.transfer(block.clone(), targets);
        self.spawn(async move {
            if let Err(reason) = copy.await {
                tracing::warn!(%block, "copying to other nodes failed: {reason}");
            }
            drop(permit);
        });
    }
}
