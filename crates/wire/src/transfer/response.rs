//! Answers to operations, and what statuses and stages mean.

use bytes::BytesMut;

use super::{BlockOpResponse, Stage, Status};
use crate::checksum::DataChecksum;
use crate::frame::{self, FrameError};
use crate::limits::MAX_OP_RESPONSE_BYTES;
use crate::proto::datatransfer as pb;

/// Takes the answer to a request from the front of `buf`; `Ok(None)`: incomplete.
pub fn decode_response(buf: &mut BytesMut) -> Result<Option<BlockOpResponse>, FrameError> {
    frame::decode_delimited(buf, MAX_OP_RESPONSE_BYTES)
}

/// Takes what a client says at the end of a complete read; `Ok(None)`: incomplete.
pub fn decode_client_read_status(
    buf: &mut BytesMut,
) -> Result<Option<pb::ClientReadStatus>, FrameError> {
    frame::decode_delimited(buf, MAX_OP_RESPONSE_BYTES)
}

impl BlockOpResponse {
    /// A bare status.
    #[must_use]
    pub fn of(status: Status) -> Self {
        BlockOpResponse {
            status: status.into(),
            ..BlockOpResponse::default()
        }
    }

    /// Success without more.
    #[must_use]
    pub fn success() -> Self {
        BlockOpResponse::of(Status::Success)
    }

    /// An unsuccessful status with its explanation.
    #[must_use]
    pub fn error(status: Status, message: impl Into<String>) -> Self {
        BlockOpResponse {
            message: Some(message.into()),
            ..BlockOpResponse::of(status)
        }
    }

    /// Start of a read reply: the checksum of the packets and the offset of the first chunk.
    #[must_use]
    pub fn read(checksum: DataChecksum, chunk_offset: u64) -> Self {
        BlockOpResponse {
            read_op_checksum_info: Some(pb::ReadOpChecksumInfo {
                checksum: checksum.into(),
                chunk_offset,
            }),
            ..BlockOpResponse::success()
        }
    }

    /// Answer of a pipeline's set-up: `first_bad_link` is empty on success, else names the first
    /// node that failed.
    #[must_use]
    pub fn pipeline(status: Status, first_bad_link: impl Into<String>) -> Self {
        BlockOpResponse {
            first_bad_link: Some(first_bad_link.into()),
            ..BlockOpResponse::of(status)
        }
    }

    /// The status, an unknown number counting as an error.
    #[must_use]
    pub fn outcome(&self) -> Status {
        Status::from_wire(self.status)
    }
}

impl Status {
    /// Converts a wire value; an unknown one is an error like any other.
    #[must_use]
    pub fn from_wire(value: i32) -> Self {
        Status::try_from(value).unwrap_or(Status::Error)
    }

    /// Whether the status is sent out of band, between acknowledgements.
    #[must_use]
    pub const fn is_oob(self) -> bool {
        matches!(
            self,
            Status::OobRestart | Status::OobReserved1 | Status::OobReserved2 | Status::OobReserved3
        )
    }
}

impl Stage {
    /// Whether a DataNode copies a replica to add a node to a pipeline.
    #[must_use]
    pub const fn is_transfer(self) -> bool {
        matches!(self, Stage::TransferRbw | Stage::TransferFinalized)
    }
}
