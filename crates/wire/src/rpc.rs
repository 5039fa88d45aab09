//! Hadoop RPC, version 9, as client and as server: connection header, frames, headers, answers.
//!
//! ```text
//! connection  "hrpc", version (9), service class, authentication (0 none, 0xDF SASL)
//! frame       int32 length of the rest
//! request     RpcRequestHeader, then RequestHeader, then the message, each preceded by its length
//! response    RpcResponseHeader, then on success the message, each preceded by its length
//! ```
//!
//! Call ids below zero mark what is no call: see [`CALL_CONTEXT`] and its neighbours.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::frame::{self, FrameError};
use crate::limits::MAX_RPC_HEADER_BYTES;
use crate::proto::rpc as pb;

pub use crate::proto::rpc::{
    IpcConnectionContext, RequestHeader, RpcErrorCode, RpcRequestHeader, RpcResponseHeader,
    RpcSasl, RpcStatus, SaslAuth, SaslState,
};

pub mod names;

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

/// How a connection authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthProtocol {
    /// Not at all: the connection context names the user.
    None,
    /// A SASL exchange comes first.
    Sasl,
}

impl AuthProtocol {
    const fn code(self) -> u8 {
        match self {
            AuthProtocol::None => 0,
            AuthProtocol::Sasl => 0xDF,
        }
    }
}

/// First bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionHeader {
    /// Class of service; 0 for all of HDFS.
    pub service_class: u8,
    /// How the connection authenticates.
    pub auth: AuthProtocol,
}

/// Why bytes are not acceptable RPC.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
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
        "the peer announced a frame of {announced_bytes} bytes; 1 to {limit_bytes} are accepted (ipc.maximum.data.length)"
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

impl RpcError {
    /// What to tell the peer before closing.
    #[must_use]
    pub const fn code(&self) -> RpcErrorCode {
        match self {
            RpcError::Version(_) => RpcErrorCode::FatalVersionMismatch,
            RpcError::Auth(_) => RpcErrorCode::FatalUnauthorized,
            RpcError::Header(_) => RpcErrorCode::FatalInvalidRpcHeader,
            RpcError::Frame(_) => RpcErrorCode::FatalDeserializingRequest,
            RpcError::Http | RpcError::Magic(_) | RpcError::FrameLength { .. } => {
                RpcErrorCode::FatalUnknown
            }
        }
    }
}

impl ConnectionHeader {
    /// The bytes of the header.
    #[must_use]
    pub fn encode(self) -> [u8; CONNECTION_HEADER_BYTES] {
        let [m0, m1, m2, m3] = MAGIC;
        [
            m0,
            m1,
            m2,
            m3,
            RPC_VERSION,
            self.service_class,
            self.auth.code(),
        ]
    }

    /// Takes the header from the front of `buf`; `Ok(None)`: incomplete. What cannot become a header
    /// is refused as soon as it shows.
    pub fn decode(buf: &mut BytesMut) -> Result<Option<ConnectionHeader>, RpcError> {
        let Some(magic) = buf.first_chunk::<4>() else {
            return Ok(None);
        };
        if *magic != MAGIC {
            let http = [b"GET ", b"POST", b"HEAD", b"PUT "].contains(&magic);
            return Err(if http {
                RpcError::Http
            } else {
                RpcError::Magic(*magic)
            });
        }
        match buf.get(4) {
            Some(&RPC_VERSION) => {}
            Some(&version) => return Err(RpcError::Version(version)),
            None => return Ok(None),
        }
        let (Some(&service_class), Some(&auth)) = (buf.get(5), buf.get(6)) else {
            return Ok(None);
        };
        let auth = [AuthProtocol::None, AuthProtocol::Sasl]
            .into_iter()
            .find(|a| a.code() == auth)
            .ok_or(RpcError::Auth(auth))?;
        buf.advance(CONNECTION_HEADER_BYTES);
        Ok(Some(ConnectionHeader {
            service_class,
            auth,
        }))
    }
}

/// Takes a frame (without its length) from the front of `buf`; `Ok(None)`: incomplete. Room for the
/// rest is made in step with what arrives.
pub fn decode_frame(buf: &mut BytesMut, limit_bytes: usize) -> Result<Option<Bytes>, RpcError> {
    const LENGTH_BYTES: usize = 4;
    let Some(length) = buf.first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let announced_bytes = i32::from_be_bytes(*length);
    let len = usize::try_from(announced_bytes)
        .ok()
        .filter(|len| (1..=limit_bytes).contains(len))
        .ok_or(RpcError::FrameLength {
            announced_bytes,
            limit_bytes,
        })?;
    if buf.len() < LENGTH_BYTES + len {
        frame::reserve_for(buf, LENGTH_BYTES + len);
        return Ok(None);
    }
    buf.advance(LENGTH_BYTES);
    Ok(Some(buf.split_to(len).freeze()))
}

/// A frame of a client, as a server takes it.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// User and protocol of the connection.
    Context(IpcConnectionContext),
    /// Sign of life.
    Ping,
    /// A step of authentication, or a wrapped frame.
    Sasl(Box<RpcRequestHeader>, RpcSasl),
    /// A call.
    Call(Box<Call>),
}

/// A call, its message not yet decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Header of the frame.
    pub header: RpcRequestHeader,
    /// Protocol and method.
    pub request: RequestHeader,
    /// The method's message; decode it with [`frame::decode`].
    pub message: Bytes,
}

/// A frame that cannot be served, with what an answer needs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{error}")]
pub struct BadRequest {
    /// The header, when it could be read.
    pub header: Option<Box<RpcRequestHeader>>,
    /// What is wrong.
    #[source]
    pub error: RpcError,
}

/// Takes a client's frame apart.
pub fn parse_request(frame: Bytes) -> Result<Incoming, BadRequest> {
    let mut rest = frame;
    let header: RpcRequestHeader =
        frame::decode_part(&mut rest, MAX_RPC_HEADER_BYTES).map_err(|source| BadRequest {
            header: None,
            error: source.into(),
        })?;
    match parse_body(&header, &mut rest) {
        Ok(Body::Context(context)) => Ok(Incoming::Context(context)),
        Ok(Body::Ping) => Ok(Incoming::Ping),
        Ok(Body::Sasl(sasl)) => Ok(Incoming::Sasl(Box::new(header), sasl)),
        Ok(Body::Call(request, message)) => Ok(Incoming::Call(Box::new(Call {
            header,
            request,
            message,
        }))),
        Err(error) => Err(BadRequest {
            header: Some(Box::new(header)),
            error,
        }),
    }
}

enum Body {
    Context(IpcConnectionContext),
    Ping,
    Sasl(RpcSasl),
    Call(RequestHeader, Bytes),
}

fn parse_body(header: &RpcRequestHeader, rest: &mut Bytes) -> Result<Body, RpcError> {
    if header.client_id.len() > CLIENT_ID_BYTES {
        return Err(RpcError::Header("the client id is longer than 16 bytes"));
    }
    if header.rpc_op != Some(pb::RpcOperation::RpcFinalPacket.into()) {
        return Err(RpcError::Header("the operation is no final packet"));
    }
    if header.rpc_kind != Some(pb::RpcKind::RpcProtocolBuffer.into()) {
        return Err(RpcError::Header("the kind is no protocol buffer"));
    }
    match header.call_id {
        CALL_CONTEXT => Ok(Body::Context(frame::decode_part(
            rest,
            MAX_RPC_HEADER_BYTES,
        )?)),
        CALL_PING => Ok(Body::Ping),
        CALL_SASL => Ok(Body::Sasl(frame::decode_part(rest, usize::MAX)?)),
        call_id if call_id < 0 => Err(RpcError::Header("a negative call id of no meaning")),
        _ => {
            let request = frame::decode_part(rest, MAX_RPC_HEADER_BYTES)?;
            let message = frame::take_part(rest, usize::MAX, "method's message")?;
            Ok(Body::Call(request, message))
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

/// Header of a call; ids count up from 0 on a connection, `retry_count` is 0 on the first attempt.
#[must_use]
pub fn call_header(
    call_id: i32,
    client_id: [u8; CLIENT_ID_BYTES],
    retry_count: i32,
) -> RpcRequestHeader {
    RpcRequestHeader {
        retry_count: Some(retry_count),
        ..special_header(call_id, &client_id)
    }
}

/// Frame of a call.
#[must_use]
pub fn encode_call(
    header: &RpcRequestHeader,
    protocol: names::Protocol,
    method: &str,
    message: &impl prost::Message,
) -> Bytes {
    let mut builder = FrameBuilder::new(header);
    builder.push(&RequestHeader {
        method_name: method.to_owned(),
        declaring_class_protocol_name: protocol.name.to_owned(),
        client_protocol_version: protocol.version,
    });
    builder.push(message);
    builder.finish()
}

/// Frame of the connection context: first frame of a client, after SASL if there is any.
#[must_use]
pub fn encode_context(
    client_id: [u8; CLIENT_ID_BYTES],
    user: Option<pb::UserInformation>,
    protocol: names::Protocol,
) -> Bytes {
    let mut builder = FrameBuilder::new(&special_header(CALL_CONTEXT, &client_id));
    let protocol = Some(protocol.name.to_owned());
    builder.push(&IpcConnectionContext {
        user_info: user,
        protocol,
    });
    builder.finish()
}

/// Frame of a ping.
#[must_use]
pub fn encode_ping(client_id: [u8; CLIENT_ID_BYTES]) -> Bytes {
    FrameBuilder::new(&special_header(CALL_PING, &client_id)).finish()
}

/// Frame of a SASL message of a client.
#[must_use]
pub fn encode_sasl_request(sasl: &RpcSasl) -> Bytes {
    let mut builder = FrameBuilder::new(&special_header(CALL_SASL, &[]));
    builder.push(sasl);
    builder.finish()
}

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
pub fn parse_response(frame: Bytes) -> Result<Response, RpcError> {
    let mut rest = frame;
    let header: RpcResponseHeader = frame::decode_part(&mut rest, MAX_RPC_HEADER_BYTES)?;
    let status = RpcStatus::try_from(header.status)
        .map_err(|_| RpcError::Header("a status of no meaning"))?;
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
/// [`parse_request`]'s and [`ConnectionHeader::decode`]'s errors.
#[must_use]
pub fn encode_fatal(header: Option<&RpcRequestHeader>, error: &RpcError) -> Bytes {
    let unknown = special_header(CALL_AUTHORIZATION_FAILED, &[]);
    let class_name = match error {
        RpcError::Version(_) => names::RPC_VERSION_MISMATCH,
        RpcError::Auth(_) => names::ACCESS_CONTROL_EXCEPTION,
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

    /// A server's answer to `NEGOTIATE` when it authenticates nobody: success at once, which tells
    /// the client to go on without SASL.
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
