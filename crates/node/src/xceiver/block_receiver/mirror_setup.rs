//! The next node of a pipeline: connecting, asking it, and what it says.

use hayloft_wire::ids::{PoolId, StorageType};
use hayloft_wire::proto::datatransfer::OpWriteBlock;
use hayloft_wire::proto::hdfs::DatanodeInfo;
use hayloft_wire::proto::security::Token;
use hayloft_wire::transfer::{BlockOpResponse, Status, WriteRequest};

use crate::xceiver::context::Xceivers;
use crate::xceiver::error::XferError;
use crate::xceiver::net::conn::Conn;
use crate::xceiver::net::connect_to_node::{self, NodeForBlock};
use crate::xceiver::settings::Settings;

/// The request as the next node gets it: without itself in the lists of targets, its own storage
/// and pinning in the scalar fields. `None` when this node is the last one.
#[must_use]
pub fn next_hop(request: &WriteRequest) -> Option<(DatanodeInfo, OpWriteBlock)> {
    let mut message = request.message.clone();
    let mut targets = message.targets.into_iter();
    let next = targets.next()?;
    message.targets = targets.collect();
    let mut types = message.target_storage_types.into_iter();
    message.storage_type = Some(types.next().unwrap_or(StorageType::Disk.into()));
    message.target_storage_types = types.collect();
    let mut ids = message.target_storage_ids.into_iter();
    message.storage_id = ids.next();
    message.target_storage_ids = ids.collect();
    let mut pinnings = message.target_pinnings.into_iter();
    message.pinning = Some(pinnings.next().unwrap_or(false));
    message.target_pinnings = pinnings.collect();
    Some((next, message))
}

/// What the pipeline behind this node answered to its set-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetUp {
    /// Success, or why not.
    pub status: Status,
    /// The node that failed; empty on success.
    pub first_bad_link: String,
}

impl SetUp {
    /// There is no mirror, or none that failed.
    #[must_use]
    pub fn fine() -> Self {
        Self {
            status: Status::Success,
            first_bad_link: String::new(),
        }
    }

    /// The answer for the node or client before this one.
    #[must_use]
    pub fn response(&self) -> BlockOpResponse {
        BlockOpResponse::pipeline(self.status, self.first_bad_link.clone())
    }
}

/// Connects to the next node and passes the request on.
///
/// # Errors
/// The node could not be reached or did not answer.
pub async fn open(
    x: &Xceivers,
    settings: &Settings,
    pool: &PoolId,
    (next, message): (&DatanodeInfo, &OpWriteBlock),
    wait_for_answer: bool,
) -> Result<(Conn, SetUp), XferError> {
    let hops = message.targets.len() + 1;
    let no_token = Token::default();
    let token = message.header.base_header.token.as_ref();
    let to = NodeForBlock {
        node: &next.id,
        pool,
        token: token.unwrap_or(&no_token),
    };
    let mut conn = connect_to_node::connect(x, settings, to, hops).await?;
    connect_to_node::request(&conn, message).await?;
    if !wait_for_answer {
        return Ok((conn, SetUp::fine()));
    }
    let response = connect_to_node::response(&mut conn).await?;
    let set_up = SetUp {
        status: response.outcome(),
        first_bad_link: response.first_bad_link().to_owned(),
    };
    Ok((conn, set_up))
}

#[cfg(test)]
mod tests {
    use hayloft_wire::checksum::{ChecksumKind, DataChecksum};
    use hayloft_wire::ids::{Block, ExtendedBlock};
    use hayloft_wire::proto::hdfs::DatanodeId;
    use hayloft_wire::transfer::Stage;

    use super::*;

    fn node(port: u32) -> DatanodeInfo {
        DatanodeInfo {
            id: DatanodeId {
                xfer_port: port,
                ..DatanodeId::default()
            },
            ..DatanodeInfo::default()
        }
    }

    fn request(message: OpWriteBlock) -> WriteRequest {
        WriteRequest {
            block: ExtendedBlock::new(PoolId::new("BP-1").expect("valid"), Block::new(1, 2, 3)),
            stage: Stage::PipelineSetupCreate,
            checksum: DataChecksum::new(ChecksumKind::Crc32c, 512).expect("valid"),
            storage_type: StorageType::Ssd,
            message,
        }
    }

    #[test]
    fn each_hop_takes_itself_off_the_lists() {
        let message = OpWriteBlock {
            targets: vec![node(1), node(2)],
            storage_type: Some(StorageType::Ssd.into()),
            target_storage_types: vec![StorageType::Archive.into(), StorageType::Disk.into()],
            storage_id: Some("mine".to_owned()),
            target_storage_ids: vec!["a".to_owned(), "b".to_owned()],
            pinning: Some(true),
            target_pinnings: vec![false, true],
            ..OpWriteBlock::default()
        };
        let (next, message) = next_hop(&request(message)).expect("two more");
        assert_eq!(next.id.xfer_port, 1);
        assert_eq!(message.targets, [node(2)]);
        assert_eq!(message.storage_type, Some(StorageType::Archive.into()));
        assert_eq!(message.target_storage_types, [i32::from(StorageType::Disk)]);
        assert_eq!(
            (
                message.storage_id.as_deref(),
                &message.target_storage_ids[..]
            ),
            (Some("a"), &["b".to_owned()][..])
        );
        assert_eq!(
            (message.pinning, &message.target_pinnings[..]),
            (Some(false), &[true][..])
        );
        let (last, message) = next_hop(&request(message)).expect("one more");
        assert_eq!((last.id.xfer_port, message.targets.len()), (2, 0));
        assert_eq!(
            (message.storage_id.as_deref(), message.pinning),
            (Some("b"), Some(true))
        );
        assert!(next_hop(&request(message)).is_none());
    }

    #[test]
    fn short_lists_leave_the_defaults() {
        let message = OpWriteBlock {
            targets: vec![node(1)],
            storage_type: Some(StorageType::Ssd.into()),
            storage_id: Some("mine".to_owned()),
            pinning: Some(true),
            ..OpWriteBlock::default()
        };
        let (_, message) = next_hop(&request(message)).expect("one more");
        assert_eq!(message.storage_type, Some(StorageType::Disk.into()));
        assert_eq!((message.storage_id, message.pinning), (None, Some(false)));
    }
}
