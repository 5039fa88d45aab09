//! The next node of a pipeline: connecting, asking it, and what it says.

use hayloft_wire::ids::StorageType;
use hayloft_wire::proto::datatransfer::OpWriteBlock;
use hayloft_wire::proto::hdfs::DatanodeInfo;
use hayloft_wire::transfer::{BlockOpResponse, Status, WriteRequest};

use super::super::conn::Conn;
use super::super::error::XferError;
use super::super::peer;
use super::super::settings::Settings;

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
    message.storage_id = ids.next().or(Some(String::new()));
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
    /// There is nobody behind, or nobody who failed.
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
    settings: &Settings,
    next: &DatanodeInfo,
    message: &OpWriteBlock,
    wait_for_answer: bool,
) -> Result<(Conn, SetUp), XferError> {
    let hops = message.targets.len() + 1;
    let mut conn = peer::connect(settings, &next.id, hops).await?;
    peer::request(&conn, message).await?;
    if !wait_for_answer {
        return Ok((conn, SetUp::fine()));
    }
    let response = peer::response(&mut conn).await?;
    let set_up = SetUp {
        status: response.outcome(),
        first_bad_link: response.first_bad_link().to_owned(),
    };
    Ok((conn, set_up))
}
