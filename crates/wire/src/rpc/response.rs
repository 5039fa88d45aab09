//! Frames of servers: made by a server, taken apart by a client.

use bytes::Bytes;

use super::{
    CALL_AUTHORIZATION_FAILED, CALL_SASL, EncodedRpcError, FrameBuilder, RPC_VERSION, RpcErrorCode,
    RpcRequestHeader, RpcResponseHeader, RpcSasl, RpcStatus, names, special_header,
};
use crate::frame;
use crate::limits::MAX_RPC_HEADER_BYTES;

/// A server's frame, as a client takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The header; [`Response::call_id`] for the call that it answers.
    pub header: RpcResponseHeader,
    /// The message of a successful call ([`frame::decode`] it), else what went wrong.
    pub outcome: Result<Bytes, RemoteError>,
}

impl Response {
    /// Id of the call.
    #[must_use]
    pub const fn call_id(&self) -> i32 {
        self.header.call_id.cast_signed()
    }
}

/// An exception of the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{class_name}: {message}")]
pub struct RemoteError {
    /// Java class of the exception; see [`names`].
    pub class_name: String,
    /// Its message; Hadoop appends a stack trace to it.
    pub message: String,
    /// Detail, when given.
    pub detail: Option<RpcErrorCode>,
    /// Whether the server closes the connection.
    pub is_fatal: bool,
}

impl RemoteError {
    /// The first line of the message, without the stack trace.
    #[must_use]
    pub fn summary(&self) -> &str {
        self.message.lines().next().unwrap_or_default()
    }
}

/// Takes a server's frame apart.
pub fn parse_response(frame: Bytes) -> Result<Response, EncodedRpcError> {
    let mut rest = frame;
    let header: RpcResponseHeader = frame::decode_part(&mut rest, MAX_RPC_HEADER_BYTES)?;
    let status = RpcStatus::try_from(header.status)
        .map_err(|_| EncodedRpcError::Header("a status of no meaning"))?;
    let outcome = match status {
        RpcStatus::Success => Ok(frame::take_part(&mut rest, usize::MAX, "method's answer")?),
        RpcStatus::Error | RpcStatus::Fatal => Err(RemoteError {
            class_name: header.exception_class_name().to_owned(),
            message: header.error_msg().to_owned(),
            detail: header
                .error_detail
                .and_then(|code| RpcErrorCode::try_from(code).ok()),
            is_fatal: status == RpcStatus::Fatal,
        }),
    };
    Ok(Response { header, outcome })
}

fn response_header(request: &RpcRequestHeader, status: RpcStatus) -> RpcResponseHeader {
    RpcResponseHeader {
        call_id: request.call_id.cast_unsigned(),
        status: status.into(),
        server_ipc_version_num: Some(u32::from(RPC_VERSION)),
        client_id: Some(request.client_id.clone()),
        retry_count: Some(request.retry_count()),
        ..RpcResponseHeader::default()
    }
}

/// Frame of a successful answer.
#[must_use]
pub fn encode_success(request: &RpcRequestHeader, message: &impl prost::Message) -> Bytes {
    let mut builder = FrameBuilder::new(&response_header(request, RpcStatus::Success));
    builder.push(message);
    builder.finish()
}

/// Frame of a successful answer whose message is encoded already, its length before it (as
/// [`frame::delimited`] makes it).
#[must_use]
pub fn encode_success_delimited(request: &RpcRequestHeader, message: &[u8]) -> Bytes {
    let mut builder = FrameBuilder::new(&response_header(request, RpcStatus::Success));
    builder.0.extend_from_slice(message);
    builder.finish()
}

/// Frame of an exception. Codes from `FATAL_UNKNOWN` upwards tell the client that the connection
/// ends; close it then.
#[must_use]
pub fn encode_error(
    request: &RpcRequestHeader,
    code: RpcErrorCode,
    class_name: &str,
    message: &str,
) -> Bytes {
    let is_fatal = code >= RpcErrorCode::FatalUnknown;
    let status = if is_fatal {
        RpcStatus::Fatal
    } else {
        RpcStatus::Error
    };
    FrameBuilder::new(&RpcResponseHeader {
        exception_class_name: Some(class_name.to_owned()),
        error_msg: Some(message.to_owned()),
        error_detail: Some(code.into()),
        ..response_header(request, status)
    })
    .finish()
}

/// Frame that ends a connection whose client could not be understood: the answer to
/// [`parse_request`](super::parse_request)'s and
/// [`ConnectionHeader::decode`](super::ConnectionHeader::decode)'s errors.
#[must_use]
pub fn encode_fatal(header: Option<&RpcRequestHeader>, error: &EncodedRpcError) -> Bytes {
    let unknown = special_header(CALL_AUTHORIZATION_FAILED, &[]);
    let class_name = match error {
        EncodedRpcError::Version(_) => names::RPC_VERSION_MISMATCH,
        EncodedRpcError::Auth(_) => names::ACCESS_CONTROL_EXCEPTION,
        _ => names::RPC_SERVER_EXCEPTION,
    };
    encode_error(
        header.unwrap_or(&unknown),
        error.code(),
        class_name,
        &error.to_string(),
    )
}

/// Frame of a SASL message of a server.
#[must_use]
pub fn encode_sasl_response(sasl: &RpcSasl) -> Bytes {
    encode_success(&special_header(CALL_SASL, &[]), sasl)
}
