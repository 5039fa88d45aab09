//! Frames of clients: taken apart by a server, made by a client.

use bytes::Bytes;

use super::{
    CALL_CONTEXT, CALL_PING, CALL_SASL, CLIENT_ID_BYTES, EncodedRpcError, FrameBuilder,
    IpcConnectionContext, RequestHeader, RpcRequestHeader, RpcSasl, names, special_header,
};
use crate::frame;
use crate::limits::MAX_RPC_HEADER_BYTES;
use crate::proto::rpc as pb;

/// A frame of a client, as a server takes it.
#[derive(Clone, Debug, PartialEq)]
pub enum IncomingFrame {
    /// User and protocol of the connection.
    Context(IpcConnectionContext),
    /// Sign of life.
    Ping,
    /// A step of authentication, or a wrapped frame.
    Sasl(Box<RpcRequestHeader>, RpcSasl),
    /// A call.
    Call(Box<IncomingCall>),
}

/// A call, its message not yet decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct IncomingCall {
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
    pub error: EncodedRpcError,
}

/// Takes a client's frame apart.
pub fn parse_request(frame: Bytes) -> Result<IncomingFrame, BadRequest> {
    let mut rest = frame;
    let header: RpcRequestHeader =
        frame::decode_part(&mut rest, MAX_RPC_HEADER_BYTES).map_err(|source| BadRequest {
            header: None,
            error: source.into(),
        })?;
    match parse_body(&header, &mut rest) {
        Ok(Body::Context(context)) => Ok(IncomingFrame::Context(context)),
        Ok(Body::Ping) => Ok(IncomingFrame::Ping),
        Ok(Body::Sasl(sasl)) => Ok(IncomingFrame::Sasl(Box::new(header), sasl)),
        Ok(Body::Call(request, message)) => Ok(IncomingFrame::Call(Box::new(IncomingCall {
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

fn parse_body(header: &RpcRequestHeader, rest: &mut Bytes) -> Result<Body, EncodedRpcError> {
    if header.client_id.len() > CLIENT_ID_BYTES {
        return Err(EncodedRpcError::Header(
            "the client id is longer than 16 bytes",
        ));
    }
    if header.rpc_op != Some(pb::RpcOperation::RpcFinalPacket.into()) {
        return Err(EncodedRpcError::Header("the operation is no final packet"));
    }
    if header.rpc_kind != Some(pb::RpcKind::RpcProtocolBuffer.into()) {
        return Err(EncodedRpcError::Header("the kind is no protocol buffer"));
    }
    match header.call_id {
        CALL_CONTEXT => Ok(Body::Context(frame::decode_part(
            rest,
            MAX_RPC_HEADER_BYTES,
        )?)),
        CALL_PING => Ok(Body::Ping),
        CALL_SASL => Ok(Body::Sasl(frame::decode_part(rest, usize::MAX)?)),
        call_id if call_id < 0 => Err(EncodedRpcError::Header("a negative call id of no meaning")),
        _ => {
            let request = frame::decode_part(rest, MAX_RPC_HEADER_BYTES)?;
            let message = frame::take_part(rest, usize::MAX, "method's message")?;
            Ok(Body::Call(request, message))
        }
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
