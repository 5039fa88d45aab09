//! A pipeline that lost a node: set up anew with the others, and perhaps with a new one, under a
//! new generation stamp that the replica of the lost node does not have.

use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::proto::client as pb;
use hayloft_wire::proto::datatransfer::OpTransferBlock;
use hayloft_wire::proto::hdfs::{self, DatanodeInfo};
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{self, Stage};
use tracing::debug;

use super::Repeat;
use super::block_pipe::{BlockPipe, PipeTrouble};
use super::calls_for_open_file::OpenFile;
use super::error::FileError;
use super::node_link::{NodeLink, Target};

/// New nodes that are tried before a write fails.
const NEW_NODES_MAX: u32 = 3;
/// Pipelines that are set up in a row without a byte of progress.
const IN_A_ROW_MAX: u32 = 5;

/// What is known of a block's failures.
#[derive(Default)]
pub(super) struct Rebuild {
    failed: Vec<DatanodeInfo>,
    /// The block is of a file that was closed before.
    append: bool,
    /// The pipeline of an append was never set up.
    appending: bool,
    in_a_row: u32,
    acked: u64,
}

/// Whether a new node is to take the place of one that failed, with `left` nodes of `replication`:
/// the policy DEFAULT of `dfs.client.block.write.replace-datanode-on-failure.policy`.
fn wants_another(replication: usize, left: usize, append: bool) -> bool {
    replication >= 3 && left > 0 && left < replication && (left <= replication / 2 || append)
}

impl Rebuild {
    /// For a block that is written on: its pipeline is set up as if it had failed.
    pub(super) fn of_append() -> Self {
        Self {
            append: true,
            appending: true,
            ..Self::default()
        }
    }

    /// Sets the pipeline up until what is not acknowledged is on its way again.
    pub(super) async fn run(
        &mut self,
        file: &OpenFile,
        pipe: &mut BlockPipe,
        mut failed: Option<PipeTrouble>,
    ) -> Result<(), FileError> {
        if pipe.acked() > self.acked {
            (self.acked, self.in_a_row) = (pipe.acked(), 0);
        }
        loop {
            if let Some(failed) = &failed {
                self.leave_out(pipe, failed)?;
            }
            let closing = pipe.is_closing();
            if !closing && wants_another(file.replication, pipe.targets.len(), self.append) {
                self.add_node(file, pipe).await?;
            }
            match self.set_up(file, pipe, closing).await? {
                Ok(()) => return Ok(()),
                Err(again) => failed = Some(again),
            }
        }
    }

    fn leave_out(&mut self, pipe: &mut BlockPipe, failed: &PipeTrouble) -> Result<(), FileError> {
        let trouble = &failed.trouble;
        self.in_a_row += 1;
        if self.in_a_row > IN_A_ROW_MAX {
            return Err(FileError::failed(format_args!(
                "Failing write. Tried pipeline recovery {IN_A_ROW_MAX} times without success: \
                 {trouble}"
            )));
        }
        if failed.culprit < pipe.targets.len() {
            self.failed.push(pipe.targets.remove(failed.culprit).node);
        }
        if pipe.targets.is_empty() {
            let all: Vec<String> = self.failed.iter().map(|n| n.id.xfer_addr()).collect();
            return Err(FileError::failed(format_args!(
                "All datanodes [{}] are bad. Aborting... ({trouble})",
                all.join(", ")
            )));
        }
        debug!(%trouble, block = %pipe.block, "a pipeline is set up without this node");
        Ok(())
    }

    async fn set_up(
        &mut self,
        file: &OpenFile,
        pipe: &mut BlockPipe,
        closing: bool,
    ) -> Result<Result<(), PipeTrouble>, FileError> {
        let old: hdfs::ExtendedBlock = with_len(&pipe.block, pipe.acked());
        let answer = file.new_stamp(&old).await?;
        let updated = ExtendedBlock::try_from(&answer.b).map_err(FileError::failed)?;
        let stamp = updated.block.generation_stamp;
        pipe.token = answer.block_token;
        let stage = match (closing, self.appending, self.failed.is_empty()) {
            (true, ..) => Stage::PipelineCloseRecovery,
            (_, true, true) => Stage::PipelineSetupAppend,
            (_, true, false) => Stage::PipelineSetupAppendRecovery,
            _ => Stage::PipelineSetupStreamingRecovery,
        };
        if let Err(again) = pipe.open(&file.client, stage, stamp).await {
            return Ok(Err(again));
        }
        pipe.block.block.generation_stamp = stamp;
        let request = pb::UpdatePipelineRequest {
            client_name: file.client.name.clone(),
            old_block: old,
            new_block: with_len(&pipe.block, pipe.acked()),
            new_nodes: pipe.targets.iter().map(|t| t.node.id.clone()).collect(),
            storage_ids: pipe.targets.iter().map(|t| t.storage_id.clone()).collect(),
        };
        let _: pb::UpdatePipelineResponse = file
            .client
            .namenodes
            .call("updatePipeline", &request, Repeat::OnlyUnsent)
            .await?;
        self.appending = false;
        if closing {
            pipe.set_closed();
            return Ok(Ok(()));
        }
        Ok(pipe.resend().await)
    }

    /// Has the NameNode choose another node, and one that has the block copy it there.
    async fn add_node(&mut self, file: &OpenFile, pipe: &mut BlockPipe) -> Result<(), FileError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let (targets, new, token) = self.choose(file, pipe).await?;
            let source = if new == 0 { 1 } else { new - 1 };
            let ends = (&targets[source], &targets[new]);
            match self.copy(file, pipe, token, ends).await {
                Ok(()) => {
                    pipe.targets = targets;
                    return Ok(());
                }
                Err(error) if attempt == NEW_NODES_MAX => return Err(error),
                Err(error) => {
                    debug!(%error, block = %pipe.block, "another node is to get the block");
                    self.failed.push(targets[new].node.clone());
                }
            }
        }
    }

    /// The nodes of the pipeline with a new one, which that is, and a token to copy to it.
    async fn choose(
        &self,
        file: &OpenFile,
        pipe: &BlockPipe,
    ) -> Result<(Vec<Target>, usize, Token), FileError> {
        let request = pb::GetAdditionalDatanodeRequest {
            src: file.path.clone(),
            blk: with_len(&pipe.block, pipe.acked()),
            existings: pipe.targets.iter().map(|t| t.node.clone()).collect(),
            excludes: self.failed.clone(),
            num_additional_nodes: 1,
            client_name: file.client.name.clone(),
            existing_storage_uuids: pipe.targets.iter().map(|t| t.storage_id.clone()).collect(),
            file_id: file.file_id,
        };
        let answer: pb::GetAdditionalDatanodeResponse = file
            .client
            .namenodes
            .call("getAdditionalDatanode", &request, Repeat::Harmless)
            .await?;
        let targets = Target::all_of(&answer.block);
        let is_new = |target: &Target| !pipe.targets.iter().any(|known| known.is(&target.node));
        let new = targets.iter().position(is_new);
        match new.filter(|_| targets.len() > pipe.targets.len()) {
            Some(new) => Ok((targets, new, answer.block.block_token)),
            None => Err(FileError::failed(format_args!(
                "Failed to replace a bad datanode on the existing pipeline due to no more good \
                 datanodes being available to try for {}.",
                pipe.block
            ))),
        }
    }

    async fn copy(
        &self,
        file: &OpenFile,
        pipe: &BlockPipe,
        token: Token,
        (from, to): (&Target, &Target),
    ) -> Result<(), FileError> {
        let mut block = pipe.block.clone();
        block.block.num_bytes = pipe.acked();
        let request = OpTransferBlock {
            header: transfer::client_header(&block, token.clone(), &file.client.name),
            targets: vec![to.node.clone()],
            target_storage_types: vec![to.storage_type],
            target_storage_ids: vec![to.storage_id.clone()],
        };
        let copied = async {
            let mut link = NodeLink::connect(&file.client, &from.node.id, 2, &token).await?;
            let response = link.ask(&request).await?;
            link.success(response)
        };
        copied.await.map(|_| ()).map_err(FileError::failed)
    }
}

fn with_len(block: &ExtendedBlock, len: u64) -> hdfs::ExtendedBlock {
    let mut block = block.clone();
    block.block.num_bytes = len;
    (&block).into()
}

#[cfg(test)]
mod tests {
    use super::wants_another;

    #[test]
    fn nodes_are_replaced_by_the_policy_default() {
        for (replication, left, append, wanted) in [
            (1, 1, true, false),
            (2, 1, true, false),
            (3, 2, false, false),
            (3, 2, true, true),
            (3, 1, false, true),
            (3, 3, true, false),
            (3, 0, true, false),
            (10, 5, false, true),
            (10, 6, false, false),
        ] {
            let given = (replication, left, append);
            assert_eq!(
                wants_another(replication, left, append),
                wanted,
                "{given:?}"
            );
        }
    }
}
