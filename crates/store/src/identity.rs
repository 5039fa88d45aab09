//! Which node and cluster a store is of, and how it takes that over from its volumes.

use std::path::Path;

use crate::error::StoreError;
use crate::layout::version::VolumeVersion;

/// Who this node is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreIdentity {
    /// Uuid of the datanode.
    pub datanode_uuid: String,
    /// Cluster; empty before the first pool.
    pub cluster_id: String,
}

impl StoreIdentity {
    /// Compares the identity of the volume at `path` with that of the node, which has it from then
    /// on where it had none.
    ///
    /// # Errors
    /// `Incompatible` when they differ.
    pub fn adopt(&mut self, path: &Path, version: &VolumeVersion) -> Result<(), StoreError> {
        for (what, ours, theirs) in [
            (
                "datanodeUuid",
                &mut self.datanode_uuid,
                &version.datanode_uuid,
            ),
            ("clusterID", &mut self.cluster_id, &version.cluster_id),
        ] {
            if ours.is_empty() {
                ours.clone_from(theirs);
            } else if ours != theirs {
                return Err(StoreError::incompatible(format!(
                    "{}: {what} {theirs} differs from {ours} of this node: the directory belongs \
                     to another DataNode or cluster; take it out of dfs.datanode.data.dir or move \
                     its contents away",
                    path.display()
                )));
            }
        }
        Ok(())
    }
}
