//! Reconstruction of striped files: internal blocks that were lost, from those that are left.
//!
//! - `check_order`: the NameNode's order to reconstruct blocks of a striped group, checked
//! - `choose_sources`: the internal blocks that a reconstruction reads, each from one of its
//!   replicas
//! - `decode`: lost blocks from those that are left, window after window
//! - `internal_block`: one internal block, read from its start or from later on, in order, and
//!   verified
//! - `lost_block_checksum`: the checksum of an internal block that no node has, or answers for
//! - `targets`: where reconstructed blocks go: a stream to each target
//! - `what_is_left`: a striped group, and what is left of it
//!
//! ```text
//! other nodes, own disk ──> SourceStream ─┐             ┌──> TargetStreams ──> other nodes
//!                           SourceStream ─┼─> Decoding ─┤
//!                           SourceStream ─┘   (coder)   └──> a checksum
//! ```
//!
//! The NameNode orders blocks to be rebuilt; a client's BLOCK_GROUP_CHECKSUM needs one for its
//! checksum. What is read is verified, and a source that fails or is slow is replaced.
//!
//! Bounded: groups at a time by `dfs.datanode.ec.reconstruction.threads`, connections of each by
//! the width of a group, memory by a share of that for block data, taken as one buffer. Besides,
//! each connection with a source has some 64 KiB, and 16 MiB where chunks are that large.

mod check_order;
mod choose_sources;
mod decode;
mod internal_block;
mod lost_block_checksum;
mod targets;
mod what_is_left;

use std::sync::Arc;

use hayloft_wire::ids::ExtendedBlock;
use hayloft_wire::proto::hdfs::BlockEcReconstructionInfo;

use crate::activity::Count;
use crate::xceiver::context::Xceivers;
use crate::xceiver::error::XferError;
use crate::xceiver::settings::ReconstructionSettings;
use crate::xceiver::stats::Activity;
use check_order::{Order, Target};
use decode::Decoding;
use targets::TargetStreams;

pub use lost_block_checksum::checksum_of_lost;
pub use what_is_left::{InternalReplica, StripedGroup};

/// Rebuilds lost blocks of a striped group on other nodes (the NameNode's order to reconstruct).
/// The node's xmits count it from this call to the end of the future, also while it waits for its
/// turn, so that the NameNode orders no more than is carried out.
///
/// # Errors
/// The order is impossible. The future: no target has its block.
pub fn reconstruct(
    x: &Xceivers,
    order: BlockEcReconstructionInfo,
) -> Result<impl Future<Output = Result<(), XferError>> + Send + use<>, XferError> {
    let order = Order::try_from(order).map_err(|e| {
        x.activity().add(Count::EcInvalidReconstructionTasks, 1);
        XferError::Refused(e.to_string())
    })?;
    let x = x.clone();
    let load = load(order.connections(), x.settings().reconstruction);
    let counted = x.stats().enter_as(Activity::Xmit, load);
    Ok(async move {
        let _counted = counted;
        let turn = Arc::clone(x.reconstructions()).acquire_owned().await;
        let _turn = turn.map_err(|_| XferError::Stopped("the node stops"))?;
        let outcome = rebuild(&x, &order).await;
        x.activity().add(Count::EcReconstructionTasks, 1);
        if outcome.is_err() {
            x.activity().add(Count::EcFailedReconstructionTasks, 1);
        }
        outcome
    })
}

/// How much of the node's xmits a reconstruction is: as Apache's node counts it, so that the
/// NameNode gives nodes of either kind as much to do.
fn load(connections: usize, settings: ReconstructionSettings) -> usize {
    let connections = u32::try_from(connections).unwrap_or(u32::MAX);
    let load = f64::from(connections) * settings.xmits_weight;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a conversion of floats is cut to the range of the integer"
    )]
    let load = load as u16;
    usize::from(load.max(1))
}

async fn rebuild(x: &Xceivers, order: &Order) -> Result<(), XferError> {
    let group = &order.group;
    let settings = x.settings();
    let wanted: Vec<usize> = order.targets.iter().map(|target| target.index).collect();
    let longest = wanted.iter().map(|&index| group.internal_len(index)).max();
    let end = longest.unwrap_or(0);
    let decoding = Decoding::open(x, &settings, group, wanted, end).await?;
    let blocks: Vec<(Target, ExtendedBlock)> = order
        .targets
        .iter()
        .map(|target| {
            let block = group.stripe.internal_block(&group.block, target.index);
            (target.clone(), block)
        })
        .collect();
    let checksum = decoding.checksum();
    let mut targets = TargetStreams::open(x, &settings, &blocks, checksum).await?;
    decoding.run(&mut targets).await?;
    tracing::info!(
        group = %group.block,
        blocks = targets.complete(),
        of = blocks.len(),
        bytes = end,
        "reconstructed"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xceiver::settings::Settings;

    #[test]
    fn the_load_is_a_part_of_the_connections() {
        let settings = |xmits_weight| ReconstructionSettings {
            xmits_weight,
            ..Settings::default().reconstruction
        };
        assert_eq!(load(6, settings(0.5)), 3);
        assert_eq!(load(3, settings(0.5)), 1);
        assert_eq!(load(1, settings(0.5)), 1);
        assert_eq!(load(10, settings(0.0)), 1);
        assert_eq!(load(10, settings(-3.0)), 1);
        assert_eq!(load(10, settings(f64::NAN)), 1);
        assert_eq!(load(10, settings(1e300)), usize::from(u16::MAX));
    }
}
