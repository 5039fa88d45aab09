//! Data transfer operations: requests as server and as client, and their answers.
//!
//! - `op`: codes of the operations
//! - `response`: answers to operations, and what statuses and stages mean
//!
//! A request is a version (two bytes, big-endian), an operation code (one byte) and a message
//! preceded by its length. An answer is one such message. One operation at a time runs on a
//! connection.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::checksum::{ChecksumError, DataChecksum};
use crate::frame::{self, FrameError};
use crate::ids::{ExtendedBlock, IdError, StorageType};
use crate::limits::{MAX_OP_BYTES, MAX_TARGETS};
use crate::proto::datatransfer as pb;
use crate::proto::hdfs::{self, ExtendedBlock as WireBlock};

pub use crate::proto::datatransfer::{BlockConstructionStage as Stage, BlockOpResponse, Status};

mod op;
mod response;

pub use op::Op;
pub use response::{decode_client_read_status, decode_response};

/// Version of the data transfer protocol since Hadoop 2.
pub const DATA_TRANSFER_VERSION: u16 = 28;

/// First four bytes of a connection that starts with a SASL handshake.
pub const SASL_MAGIC: u32 = 0xDEAD_BEEF;

/// Bytes before the operation's message: version and code.
const OP_PREFIX_BYTES: usize = 3;

/// Why a request cannot be served. The connection is out of step afterwards: close it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// The peer wants a SASL handshake where a plain request was expected.
    #[error(
        "the peer started a SASL handshake (0xDEADBEEF) on a connection without one; compare \
            dfs.data.transfer.protection and dfs.encrypt.data.transfer on both sides"
    )]
    Sasl,
    /// Another version, or no data transfer at all.
    #[error(
        "the peer speaks data transfer version {0}; only {DATA_TRANSFER_VERSION} is spoken here"
    )]
    Version(u16),
    /// No operation has this code.
    #[error("unknown data transfer operation {0}")]
    UnknownOp(u8),
    /// An operation that Apache's DataNode does not serve either.
    #[error("operation {} is not served", .0.name())]
    Unserved(Op),
    /// The message cannot be read.
    #[error("bad {} request: {source}", .op.name())]
    Frame {
        /// The operation.
        op: Op,
        /// What is wrong with it.
        source: FrameError,
    },
    /// The block is impossible.
    #[error("bad {} request: {source}", .op.name())]
    Block {
        /// The operation.
        op: Op,
        /// What is wrong with it.
        source: IdError,
    },
    /// The checksum is impossible.
    #[error("bad {} request: {source}", .op.name())]
    Checksum {
        /// The operation.
        op: Op,
        /// What is wrong with it.
        source: ChecksumError,
    },
    /// More targets, tokens or types than any pipeline has.
    #[error("bad {} request: {count} entries in {list}; at most {MAX_TARGETS} are \
        accepted", .op.name())]
    TooMany {
        /// The operation.
        op: Op,
        /// Name of the list.
        list: &'static str,
        /// Its length.
        count: usize,
    },
    /// A stage number of no stage.
    #[error("WRITE_BLOCK names the unknown stage {0}")]
    Stage(i32),
}

/// Message of an operation.
pub trait OpMessage: crate::schema::WireMessage {
    /// The operation that the message belongs to.
    const OP: Op;
}

macro_rules! op_messages {
    ($($message:ident => $op:ident),* $(,)?) => {
        $(impl OpMessage for pb::$message { const OP: Op = Op::$op; })*
    };
}
op_messages! {
    OpWriteBlock => WriteBlock,
    OpReadBlock => ReadBlock,
    OpReplaceBlock => ReplaceBlock,
    OpCopyBlock => CopyBlock,
    OpBlockChecksum => BlockChecksum,
    OpTransferBlock => TransferBlock,
    OpRequestShortCircuitAccess => RequestShortCircuitFds,
    ReleaseShortCircuitAccessRequest => ReleaseShortCircuitFds,
    ShortCircuitShmRequest => RequestShortCircuitShm,
    OpBlockGroupChecksum => BlockGroupChecksum,
    OpCustom => Custom,
}

/// A request with its block checked.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockRequest<M> {
    /// The block it is about.
    pub block: ExtendedBlock,
    /// The message as received.
    pub message: M,
}

/// WRITE_BLOCK with its parts checked.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteRequest {
    /// The block; its length is what the writer believes it to be.
    pub block: ExtendedBlock,
    /// Stage of the pipeline.
    pub stage: Stage,
    /// Checksum that the packets will carry.
    pub checksum: DataChecksum,
    /// Type of the storage to write to.
    pub storage_type: StorageType,
    /// The message as received; its target lists are those of the hops after this one.
    pub message: pb::OpWriteBlock,
}

/// A request whose block, checksum, stage and list lengths have been checked.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "Hadoop's own names")]
pub enum OpRequest {
    WriteBlock(Box<WriteRequest>),
    ReadBlock(Box<BlockRequest<pb::OpReadBlock>>),
    ReplaceBlock(Box<BlockRequest<pb::OpReplaceBlock>>),
    CopyBlock(Box<BlockRequest<pb::OpCopyBlock>>),
    BlockChecksum(Box<BlockRequest<pb::OpBlockChecksum>>),
    TransferBlock(Box<BlockRequest<pb::OpTransferBlock>>),
    RequestShortCircuitFds(Box<BlockRequest<pb::OpRequestShortCircuitAccess>>),
    ReleaseShortCircuitFds(pb::ReleaseShortCircuitAccessRequest),
    RequestShortCircuitShm(pb::ShortCircuitShmRequest),
    BlockGroupChecksum(Box<BlockRequest<pb::OpBlockGroupChecksum>>),
    Custom(pb::OpCustom),
}

impl OpRequest {
    /// The operation.
    #[must_use]
    pub const fn op(&self) -> Op {
        match self {
            OpRequest::WriteBlock(_) => Op::WriteBlock,
            OpRequest::ReadBlock(_) => Op::ReadBlock,
            OpRequest::ReplaceBlock(_) => Op::ReplaceBlock,
            OpRequest::CopyBlock(_) => Op::CopyBlock,
            OpRequest::BlockChecksum(_) => Op::BlockChecksum,
            OpRequest::TransferBlock(_) => Op::TransferBlock,
            OpRequest::RequestShortCircuitFds(_) => Op::RequestShortCircuitFds,
            OpRequest::ReleaseShortCircuitFds(_) => Op::ReleaseShortCircuitFds,
            OpRequest::RequestShortCircuitShm(_) => Op::RequestShortCircuitShm,
            OpRequest::BlockGroupChecksum(_) => Op::BlockGroupChecksum,
            OpRequest::Custom(_) => Op::Custom,
        }
    }
}

/// Takes a request from the front of `buf`. `Ok(None)`: incomplete, read more. A wrong version or
/// code is found as soon as its bytes are there.
pub fn decode_request(buf: &mut BytesMut) -> Result<Option<OpRequest>, OpError> {
    let Some(version) = buf.first_chunk::<2>() else {
        return Ok(None);
    };
    let version = u16::from_be_bytes(*version);
    if u32::from(version) == SASL_MAGIC >> 16 {
        return Err(OpError::Sasl);
    }
    if version != DATA_TRANSFER_VERSION {
        return Err(OpError::Version(version));
    }
    let Some(&code) = buf.get(2) else {
        return Ok(None);
    };
    let op = Op::from_code(code).ok_or(OpError::UnknownOp(code))?;
    if op == Op::ReadMetadata {
        return Err(OpError::Unserved(op));
    }
    let frame_error = |source| OpError::Frame { op, source };
    let Some(len) =
        frame::delimited_len(&buf[OP_PREFIX_BYTES..], MAX_OP_BYTES).map_err(frame_error)?
    else {
        frame::reserve_for(buf, OP_PREFIX_BYTES + crate::varint::MAX_LEN);
        return Ok(None);
    };
    if buf.len() < OP_PREFIX_BYTES + len {
        frame::reserve_for(buf, OP_PREFIX_BYTES + len);
        return Ok(None);
    }
    buf.advance(OP_PREFIX_BYTES);
    let mut message = buf.split_to(len).freeze();
    let body = frame::take_part(&mut message, MAX_OP_BYTES, op.name()).map_err(frame_error)?;
    decode_body(op, body).map(Some)
}

fn decode_body(op: Op, body: Bytes) -> Result<OpRequest, OpError> {
    Ok(match op {
        Op::WriteBlock => OpRequest::WriteBlock(Box::new(write_request(message(body)?)?)),
        Op::ReadBlock => OpRequest::ReadBlock(with_block(body, |m: &pb::OpReadBlock| {
            &m.header.base_header
        })?),
        Op::ReplaceBlock => {
            OpRequest::ReplaceBlock(with_block(body, |m: &pb::OpReplaceBlock| &m.header)?)
        }
        Op::CopyBlock => OpRequest::CopyBlock(with_block(body, |m: &pb::OpCopyBlock| &m.header)?),
        Op::BlockChecksum => {
            OpRequest::BlockChecksum(with_block(body, |m: &pb::OpBlockChecksum| &m.header)?)
        }
        Op::TransferBlock => {
            let request = with_block(body, |m: &pb::OpTransferBlock| &m.header.base_header)?;
            let message = &request.message;
            bounded(op, "targets", message.targets.len())?;
            bounded(
                op,
                "target storage types",
                message.target_storage_types.len(),
            )?;
            bounded(op, "target storage ids", message.target_storage_ids.len())?;
            OpRequest::TransferBlock(request)
        }
        Op::RequestShortCircuitFds => OpRequest::RequestShortCircuitFds(with_block(
            body,
            |m: &pb::OpRequestShortCircuitAccess| &m.header,
        )?),
        Op::ReleaseShortCircuitFds => OpRequest::ReleaseShortCircuitFds(message(body)?),
        Op::RequestShortCircuitShm => OpRequest::RequestShortCircuitShm(message(body)?),
        Op::BlockGroupChecksum => {
            let request = with_block(body, |m: &pb::OpBlockGroupChecksum| &m.header)?;
            bounded(op, "datanodes", request.message.datanodes.datanodes.len())?;
            bounded(op, "block tokens", request.message.block_tokens.len())?;
            bounded(op, "block indices", request.message.block_indices.len())?;
            OpRequest::BlockGroupChecksum(request)
        }
        Op::Custom => OpRequest::Custom(message(body)?),
        Op::ReadMetadata => return Err(OpError::Unserved(op)),
    })
}

fn message<M: OpMessage>(body: Bytes) -> Result<M, OpError> {
    frame::decode(body).map_err(|source| OpError::Frame { op: M::OP, source })
}

fn with_block<M: OpMessage>(
    body: Bytes,
    header: impl Fn(&M) -> &pb::BaseHeader,
) -> Result<Box<BlockRequest<M>>, OpError> {
    let message: M = message(body)?;
    let block = checked_block(M::OP, &header(&message).block)?;
    Ok(Box::new(BlockRequest { block, message }))
}

fn checked_block(op: Op, block: &WireBlock) -> Result<ExtendedBlock, OpError> {
    ExtendedBlock::try_from(block).map_err(|source| OpError::Block { op, source })
}

fn bounded(op: Op, list: &'static str, count: usize) -> Result<(), OpError> {
    if count > MAX_TARGETS {
        Err(OpError::TooMany { op, list, count })
    } else {
        Ok(())
    }
}

fn write_request(message: pb::OpWriteBlock) -> Result<WriteRequest, OpError> {
    let op = Op::WriteBlock;
    bounded(op, "targets", message.targets.len())?;
    bounded(
        op,
        "target storage types",
        message.target_storage_types.len(),
    )?;
    bounded(op, "target storage ids", message.target_storage_ids.len())?;
    bounded(op, "target pinnings", message.target_pinnings.len())?;
    Ok(WriteRequest {
        block: checked_block(op, &message.header.base_header.block)?,
        stage: Stage::try_from(message.stage).map_err(|_| OpError::Stage(message.stage))?,
        checksum: DataChecksum::try_from(&message.requested_checksum)
            .map_err(|source| OpError::Checksum { op, source })?,
        storage_type: StorageType::from_wire(message.storage_type),
        message,
    })
}

/// Appends a request, as a client of another DataNode.
pub fn encode_request<M: OpMessage>(message: &M, out: &mut BytesMut) {
    out.put_u16(DATA_TRANSFER_VERSION);
    out.put_u8(M::OP.code());
    frame::encode_delimited(message, out);
}

/// Header of an operation.
#[must_use]
pub fn base_header(block: &ExtendedBlock, token: crate::proto::security::Token) -> pb::BaseHeader {
    pb::BaseHeader {
        block: block.into(),
        token: Some(token),
        trace_info: None,
    }
}

/// Header of an operation with the client's name, empty for a DataNode.
#[must_use]
pub fn client_header(
    block: &ExtendedBlock,
    token: crate::proto::security::Token,
    client_name: &str,
) -> pb::ClientOperationHeader {
    pb::ClientOperationHeader {
        base_header: base_header(block, token),
        client_name: client_name.to_owned(),
    }
}

impl hdfs::DatanodeId {
    /// `ip:port` of the data transfer service, as it appears in messages and `firstBadLink`.
    #[must_use]
    pub fn xfer_addr(&self) -> String {
        format!("{}:{}", self.ip_addr, self.xfer_port)
    }

    /// `ip:port` of its HTTPS service, or its HTTP service without one: how reports about peers
    /// name a node.
    #[must_use]
    pub fn info_addr(&self) -> String {
        let secure = self.info_secure_port.filter(|port| *port != 0);
        format!("{}:{}", self.ip_addr, secure.unwrap_or(self.info_port))
    }
}

#[cfg(test)]
#[path = "transfer_tests.rs"]
mod tests;
