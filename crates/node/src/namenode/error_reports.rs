//! Bad blocks and errors that a NameNode is to be told of, beside the reports.

use std::collections::VecDeque;

use hayloft_wire::proto::datanode::{
    DatanodeRegistration, ErrorReportCode, ErrorReportRequest, ErrorReportResponse,
    ReportBadBlocksRequest, ReportBadBlocksResponse,
};
use hayloft_wire::proto::hdfs::{DatanodeInfo, ExtendedBlock, LocatedBlock, StorageType};

use hayloft_rpc::{RpcClient, RpcError};

/// Notices that wait for one NameNode, at most; further ones are dropped, the scanners or readers
/// will come across the same trouble again.
const NOTICES_MAX: usize = 1000;

/// One thing to tell.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ErrorReport {
    /// A replica of this node is corrupt.
    BadBlock {
        /// The block.
        block: ExtendedBlock,
        /// Its storage.
        storage: String,
        /// The type of that storage.
        storage_type: StorageType,
    },
    /// A replica of another node is corrupt.
    RemoteBadBlock {
        /// The block.
        block: ExtendedBlock,
        /// The node that has it.
        node: Box<DatanodeInfo>,
    },
    /// Something failed here.
    Error {
        /// What kind.
        code: ErrorReportCode,
        /// One line.
        message: String,
    },
}

/// Notices for one NameNode, oldest first, each once.
#[derive(Debug, Default)]
pub(super) struct ErrorReports {
    waiting: VecDeque<ErrorReport>,
}

impl ErrorReports {
    /// Adds a notice unless it waits already. False: dropped, because too many wait.
    pub(super) fn add(&mut self, notice: ErrorReport) -> bool {
        if self.waiting.contains(&notice) {
            return true;
        }
        if self.waiting.len() >= NOTICES_MAX {
            return false;
        }
        self.waiting.push_back(notice);
        true
    }

    /// The oldest; it stays until [`ErrorReports::done`].
    pub(super) fn first(&self) -> Option<ErrorReport> {
        self.waiting.front().cloned()
    }

    /// Removes the oldest.
    pub(super) fn done(&mut self) {
        self.waiting.pop_front();
    }
}

/// Tells the NameNode. `Err`: it was not reached, tell it again. An exception from the NameNode
/// counts as told: it would be the same the next time.
pub(super) async fn send(
    client: &RpcClient,
    registration: &DatanodeRegistration,
    notice: ErrorReport,
) -> Result<(), RpcError> {
    let outcome = match notice {
        ErrorReport::Error { code, message } => {
            let request = ErrorReportRequest {
                registartion: registration.clone(),
                error_code: i32::from(code).cast_unsigned(),
                msg: message,
            };
            let answer: Result<ErrorReportResponse, _> = client.call("errorReport", &request).await;
            answer.map(|_| ())
        }
        ErrorReport::BadBlock {
            block,
            storage,
            storage_type,
        } => {
            let node = DatanodeInfo {
                id: registration.datanode_id.clone(),
                ..DatanodeInfo::default()
            };
            let located = LocatedBlock {
                storage_types: vec![storage_type.into()],
                storage_ids: vec![storage],
                ..located(block, node)
            };
            bad_blocks(client, located).await
        }
        ErrorReport::RemoteBadBlock { block, node } => {
            bad_blocks(client, located(block, *node)).await
        }
    };
    match outcome {
        Err(error) if error.is_standby() => {
            tracing::debug!(
                namenode = client.address(),
                "a standby does not take error reports"
            );
            Ok(())
        }
        Err(error @ RpcError::Remote { .. }) => {
            tracing::warn!(
                namenode = client.address(),
                "telling of an error: {}",
                error.brief()
            );
            Ok(())
        }
        other => other,
    }
}

fn located(block: ExtendedBlock, node: DatanodeInfo) -> LocatedBlock {
    LocatedBlock {
        b: block,
        locs: vec![node],
        ..LocatedBlock::default()
    }
}

async fn bad_blocks(client: &RpcClient, block: LocatedBlock) -> Result<(), RpcError> {
    let request = ReportBadBlocksRequest {
        blocks: vec![block],
    };
    let answer: Result<ReportBadBlocksResponse, _> = client.call("reportBadBlocks", &request).await;
    answer.map(|_| ())
}

#[cfg(test)]
mod tests {
    use hayloft_wire::proto::datanode::ErrorReportCode;

    use super::{ErrorReport, ErrorReports, NOTICES_MAX};

    fn notice(message: String) -> ErrorReport {
        ErrorReport::Error {
            code: ErrorReportCode::Notify,
            message,
        }
    }

    #[test]
    fn each_notice_waits_once_and_not_without_limit() {
        let mut error_reports = ErrorReports::default();
        assert!(error_reports.add(notice("a".to_owned())));
        assert!(error_reports.add(notice("a".to_owned())));
        assert_eq!(error_reports.first(), Some(notice("a".to_owned())));
        error_reports.done();
        assert_eq!(error_reports.first(), None);
        for n in 0..NOTICES_MAX {
            error_reports.waiting.push_back(notice(n.to_string()));
        }
        assert!(!error_reports.add(notice("one more".to_owned())));
    }
}
