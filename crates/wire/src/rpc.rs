//! Hadoop RPC, version 9, as client and as server: connection header, frames, headers, answers.
//!
//! - `connection`: the start of a connection, and frames
//! - `names`: names that travel as text in RPC: protocols and Java exceptions
//! - `request`: frames of clients: taken apart by a server, made by a client
//! - `response`: frames of servers: made by a server, taken apart by a client
//!
//! ```text
//! connection  "hrpc", version (9), service class, authentication (0 none, 0xDF SASL)
//! frame       int32 length of the rest
//! request     RpcRequestHeader, then RequestHeader, then the message, each preceded by its length
//! response    RpcResponseHeader, then on success the message, each preceded by its length
//! ```
//!
//! Call ids below zero mark what is no call: see [`CALL_CONTEXT`] and its neighbours.

use bytes::{BufMut, Bytes, BytesMut};

use crate::frame::{self, FrameError};
use crate::proto::rpc as pb;

pub use crate::proto::rpc::{
    IpcConnectionContext, RequestHeader, RpcErrorCode, RpcRequestHeader, RpcResponseHeader,
    RpcSasl, RpcStatus, SaslAuth, SaslState,
};

mod connection;
pub mod names;
mod request;
mod response;

pub use connection::{AuthProtocol, ConnectionHeader, decode_frame};
pub use request::{
    BadRequest, IncomingCall, IncomingFrame, call_header, encode_call, encode_context, encode_ping,
    encode_sasl_request, parse_request,
};
pub use response::{
    RemoteError, Response, encode_error, encode_fatal, encode_sasl_response, encode_success,
    encode_success_delimited, parse_response,
};

/// Start of every connection.
pub const MAGIC: [u8; 4] = *b"hrpc";

/// Version of the RPC itself.
pub const RPC_VERSION: u8 = 9;

/// Bytes of the connection header.
pub const CONNECTION_HEADER_BYTES: usize = 7;

/// Bytes of a client id.
pub const CLIENT_ID_BYTES: usize = 16;

/// Call id of the answer to an unsuccessful authentication.
pub const CALL_AUTHORIZATION_FAILED: i32 = -1;

/// Call id of nothing.
pub const CALL_INVALID: i32 = -2;

/// Call id of the connection context, which has no answer.
pub const CALL_CONTEXT: i32 = -3;

/// Call id of a ping, which has no answer.
pub const CALL_PING: i32 = -4;

/// Call id of SASL messages, both ways.
pub const CALL_SASL: i32 = -33;

/// Retry count of what is no call.
const NO_RETRY: i32 = -1;

/// Why bytes are not acceptable RPC.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodedRpcError {
    /// The peer speaks HTTP.
    #[error("the peer sent an HTTP request to an RPC port")]
    Http,
    /// The peer speaks something else.
    #[error("the peer sent {0:02x?} where an RPC connection starts with \"hrpc\"")]
    Magic([u8; 4]),
    /// Another version of the RPC.
    #[error("the peer speaks RPC version {0}; only {RPC_VERSION} is spoken here")]
    Version(u8),
    /// An unknown way of authentication.
    #[error("the peer wants the unknown authentication {0:#04x}")]
    Auth(u8),
    /// A negative or excessive frame length.
    #[error(
        "the peer announced a frame of {announced_bytes} bytes; 1 to {limit_bytes} are accepted \
            (ipc.maximum.data.length)"
    )]
    FrameLength {
        /// The length announced.
        announced_bytes: i32,
        /// Limit of this place.
        limit_bytes: usize,
    },
    /// A header that is none.
    #[error("bad RPC header: {0}")]
    Header(&'static str),
    /// A part of a frame that cannot be read.
    #[error("bad RPC frame: {0}")]
    Frame(#[from] FrameError),
}

impl EncodedRpcError {
    /// What to tell the peer before closing.
    #[must_use]
    pub const fn code(&self) -> RpcErrorCode {
        match self {
            EncodedRpcError::Version(_) => RpcErrorCode::FatalVersionMismatch,
            EncodedRpcError::Auth(_) => RpcErrorCode::FatalUnauthorized,
            EncodedRpcError::Header(_) => RpcErrorCode::FatalInvalidRpcHeader,
            EncodedRpcError::Frame(_) => RpcErrorCode::FatalDeserializingRequest,
            EncodedRpcError::Http
            | EncodedRpcError::Magic(_)
            | EncodedRpcError::FrameLength { .. } => RpcErrorCode::FatalUnknown,
        }
    }
}

/// Puts parts into one frame, each preceded by its length.
struct FrameBuilder(BytesMut);

impl FrameBuilder {
    fn new(header: &impl prost::Message) -> Self {
        let mut builder = FrameBuilder(BytesMut::from(&[0; 4][..]));
        builder.push(header);
        builder
    }

    fn push(&mut self, message: &impl prost::Message) {
        frame::encode_delimited(message, &mut self.0);
    }

    /// A frame above 2 GiB cannot be expressed; its length is then one that every peer refuses.
    fn finish(mut self) -> Bytes {
        let len = i32::try_from(self.0.len() - 4).unwrap_or(i32::MAX);
        let mut length = &mut self.0[..4];
        length.put_i32(len);
        self.0.freeze()
    }
}

fn special_header(call_id: i32, client_id: &[u8]) -> RpcRequestHeader {
    RpcRequestHeader {
        rpc_kind: Some(pb::RpcKind::RpcProtocolBuffer.into()),
        rpc_op: Some(pb::RpcOperation::RpcFinalPacket.into()),
        call_id,
        client_id: Bytes::copy_from_slice(client_id),
        retry_count: Some(NO_RETRY),
        ..RpcRequestHeader::default()
    }
}

impl RpcSasl {
    /// A step with a token.
    #[must_use]
    pub fn step(state: SaslState, token: impl Into<Bytes>) -> Self {
        RpcSasl {
            state: state.into(),
            token: Some(token.into()),
            ..RpcSasl::default()
        }
    }

    /// A server's answer to `NEGOTIATE` when it authenticates no client: success at once, which
    /// tells the client to go on without SASL.
    #[must_use]
    pub fn simple_only() -> Self {
        RpcSasl {
            version: Some(0),
            state: SaslState::Success.into(),
            ..RpcSasl::default()
        }
    }

    /// A server's answer to `NEGOTIATE`: the methods on offer.
    #[must_use]
    pub fn offer(auths: Vec<SaslAuth>) -> Self {
        RpcSasl {
            version: Some(0),
            state: SaslState::Negotiate.into(),
            token: None,
            auths,
        }
    }
}

#[cfg(test)]
#[path = "rpc_tests.rs"]
mod tests;
