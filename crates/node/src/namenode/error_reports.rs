//! Bad blocks and errors that a NameNode is to be told of, beside the reports.

use std::collections::{HashSet, VecDeque};

use hayloft_wire::proto::datanode::{
    DatanodeRegistration, ErrorReportCode, ErrorReportRequest, ErrorReportResponse,
    ReportBadBlocksRequest, ReportBadBlocksResponse,
};
use hayloft_wire::proto::hdfs::{DatanodeInfo, ExtendedBlock, LocatedBlock, StorageType};

use hayloft_rpc::{RpcClient, RpcError};

/// Notices that wait for one NameNode, at most: all replicas that clients meet on a dying disk
/// within seconds. Further ones are dropped, the scanners or readers will come across the same
/// trouble again.
const NOTICES_MAX: usize = 10_000;
/// Bad blocks that are told in one call, at most.
const BLOCKS_A_CALL: usize = 100;

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
    /// The bad replicas among them: block id, generation stamp, storage.
    bad: HashSet<(u64, u64, String)>,
}

impl ErrorReport {
    /// What tells a bad replica of this node from others.
    fn key(&self) -> Option<(u64, u64, String)> {
        match self {
            Self::BadBlock { block, storage, .. } => {
                Some((block.block_id, block.generation_stamp, storage.clone()))
            }
            _ => None,
        }
    }
}

impl ErrorReports {
    /// Adds a notice unless it waits already. False: dropped, because too many wait.
    pub(super) fn add(&mut self, notice: ErrorReport) -> bool {
        let key = notice.key();
        let known = match &key {
            Some(key) => self.bad.contains(key),
            None => self
                .waiting
                .iter()
                .any(|w| w.key().is_none() && *w == notice),
        };
        if known {
            return true;
        }
        if self.waiting.len() >= NOTICES_MAX {
            return false;
        }
        self.bad.extend(key);
        self.waiting.push_back(notice);
        true
    }

    /// The oldest, with the bad replicas behind it that can be told in the same call; they stay
    /// until [`ErrorReports::done`].
    pub(super) fn first(&self) -> Vec<ErrorReport> {
        let bad = |notice: &&ErrorReport| notice.key().is_some();
        let some: Vec<_> = self
            .waiting
            .iter()
            .take(BLOCKS_A_CALL)
            .take_while(bad)
            .collect();
        match some.is_empty() {
            true => self.waiting.front().cloned().into_iter().collect(),
            false => some.into_iter().cloned().collect(),
        }
    }

    /// Removes the oldest `count`.
    pub(super) fn done(&mut self, count: usize) {
        for notice in self.waiting.drain(..count.min(self.waiting.len())) {
            if let Some(key) = notice.key() {
                self.bad.remove(&key);
            }
        }
    }
}

/// Tells the NameNode. `Err`: it was not reached, tell it again. An exception from the NameNode
/// counts as told: it would be the same the next time.
pub(super) async fn send(
    client: &RpcClient,
    registration: &DatanodeRegistration,
    notices: Vec<ErrorReport>,
) -> Result<(), RpcError> {
    let mut blocks = Vec::new();
    let mut outcome = Ok(());
    for notice in notices {
        match notice {
            ErrorReport::Error { code, message } => {
                let request = ErrorReportRequest {
                    registartion: registration.clone(),
                    error_code: i32::from(code).cast_unsigned(),
                    msg: message,
                };
                let answer: Result<ErrorReportResponse, _> =
                    client.call("errorReport", &request).await;
                outcome = answer.map(|_| ());
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
                blocks.push(LocatedBlock {
                    storage_types: vec![storage_type.into()],
                    storage_ids: vec![storage],
                    ..located(block, node)
                });
            }
            ErrorReport::RemoteBadBlock { block, node } => blocks.push(located(block, *node)),
        }
    }
    if !blocks.is_empty() {
        let request = ReportBadBlocksRequest { blocks };
        let answer: Result<ReportBadBlocksResponse, _> =
            client.call("reportBadBlocks", &request).await;
        outcome = answer.map(|_| ());
    }
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

#[cfg(test)]
mod tests {
    use hayloft_wire::proto::datanode::ErrorReportCode;

    use hayloft_wire::proto::hdfs::{ExtendedBlock, StorageType};

    use super::{BLOCKS_A_CALL, ErrorReport, ErrorReports, NOTICES_MAX};

    fn notice(message: String) -> ErrorReport {
        ErrorReport::Error {
            code: ErrorReportCode::Notify,
            message,
        }
    }

    fn bad(id: u64) -> ErrorReport {
        ErrorReport::BadBlock {
            block: ExtendedBlock {
                block_id: id,
                generation_stamp: 1001,
                ..ExtendedBlock::default()
            },
            storage: "DS-1".to_owned(),
            storage_type: StorageType::Disk,
        }
    }

    #[test]
    fn each_notice_waits_once_and_not_without_limit() {
        let mut error_reports = ErrorReports::default();
        assert!(error_reports.add(notice("a".to_owned())));
        assert!(error_reports.add(notice("a".to_owned())));
        assert_eq!(error_reports.first(), [notice("a".to_owned())]);
        error_reports.done(1);
        assert!(error_reports.first().is_empty());
        for n in 0..NOTICES_MAX {
            error_reports.waiting.push_back(notice(n.to_string()));
        }
        assert!(!error_reports.add(notice("one more".to_owned())));
    }

    #[test]
    fn bad_blocks_are_told_together() {
        let mut error_reports = ErrorReports::default();
        error_reports.add(notice("a".to_owned()));
        for id in (0..150).chain(0..150) {
            assert!(error_reports.add(bad(id)));
        }
        error_reports.add(notice("b".to_owned()));
        let mut calls = Vec::new();
        loop {
            let some = error_reports.first();
            if some.is_empty() {
                break;
            }
            calls.push(some.len());
            error_reports.done(some.len());
        }
        assert_eq!(calls, [1, BLOCKS_A_CALL, 50, 1]);
        assert!(error_reports.bad.is_empty());
    }
}
