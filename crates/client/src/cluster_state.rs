//! What a command asks the active NameNode of its cluster, beside files.

use hayloft_wire::proto::hdfs::{DatanodeId, DatanodeInfo};
use hayloft_wire::proto::namespace::{
    DatanodeReportType, GetDatanodeStorageReportRequest, GetDatanodeStorageReportResponse,
    GetFsStatsResponse, GetFsStatusRequest, SafeModeAction, SetSafeModeRequest,
    SetSafeModeResponse,
};

use super::error::FileError;
use super::locate_blocks::locate;
use super::{FileClient, Repeat};

impl FileClient {
    /// Blocks without a replica. A standby does not answer, so what is asked behind this is asked
    /// of the active NameNode.
    ///
    /// # Errors
    /// What the NameNode says.
    pub async fn missing_blocks(&self) -> Result<u64, FileError> {
        let request = GetFsStatusRequest {};
        let answer: GetFsStatsResponse = self
            .namenodes
            .call("getFsStats", &request, Repeat::Harmless)
            .await?;
        Ok(answer.missing_blocks)
    }

    /// The address of the NameNode that answered last; empty where none is configured.
    #[must_use]
    pub fn namenode(&self) -> &str {
        self.namenodes.answering().unwrap_or_default()
    }

    /// Whether the NameNode is in safe mode.
    ///
    /// # Errors
    /// What the NameNode says.
    pub async fn is_in_safe_mode(&self) -> Result<bool, FileError> {
        let request = SetSafeModeRequest {
            action: SafeModeAction::Get.into(),
            checked: Some(true),
        };
        let answer: SetSafeModeResponse = self
            .namenodes
            .call("setSafeMode", &request, Repeat::Harmless)
            .await?;
        Ok(answer.result)
    }

    /// The nodes of this kind, as the NameNode sees them. For HDFS's superusers alone.
    ///
    /// # Errors
    /// What the NameNode says.
    pub async fn datanodes(
        &self,
        which: DatanodeReportType,
    ) -> Result<Vec<DatanodeInfo>, FileError> {
        let request = GetDatanodeStorageReportRequest {
            r#type: which.into(),
        };
        // The one answer that counts blocks and is known to the other commands.
        let answer: GetDatanodeStorageReportResponse = self
            .namenodes
            .call("getDatanodeStorageReport", &request, Repeat::Harmless)
            .await?;
        let reports = answer.datanode_storage_reports.into_iter();
        Ok(reports.map(|of| of.datanode_info).collect())
    }

    /// The nodes that have the first block of a file.
    ///
    /// # Errors
    /// There is no such file, or the caller may not read it.
    pub async fn nodes_of_first_block(&self, path: &str) -> Result<Vec<DatanodeId>, FileError> {
        let located = locate(self, path, 0, 1).await?;
        let first = located.blocks.into_iter().next();
        let nodes = first.into_iter().flat_map(|block| block.locs);
        Ok(nodes.map(|node| node.id).collect())
    }
}
