//! Response frames: what the server puts on the wire.

use bytes::{BufMut, Bytes, BytesMut};
use hayloft_wire::frame;
use hayloft_wire::proto::rpc::{RpcErrorCode, RpcResponseHeader, RpcSasl, RpcStatus};
use prost::Message;

use super::fault::{RpcFault, java};

/// Version of the Hadoop RPC framing that is spoken here.
pub(super) const RPC_VERSION: u8 = 9;
/// Call id of SASL messages.
pub(super) const CALL_SASL: i32 = -33;
/// Call id of the connection context.
pub(super) const CALL_CONTEXT: i32 = -3;
/// Call id of a ping.
pub(super) const CALL_PING: i32 = -4;
/// Call id of an answer to something that was not recognised as a call.
pub(super) const CALL_INVALID: i32 = -1;

/// Which call an answer belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallRef {
    pub(super) call_id: i32,
    pub(super) retry_count: i32,
    pub(super) client_id: Bytes,
}

impl CallRef {
    /// A message outside of calls.
    pub(super) fn out_of_band(call_id: i32) -> Self {
        Self {
            call_id,
            retry_count: -1,
            client_id: Bytes::new(),
        }
    }

    fn header(&self, status: RpcStatus) -> RpcResponseHeader {
        RpcResponseHeader {
            call_id: self.call_id.cast_unsigned(),
            status: status as i32,
            server_ipc_version_num: Some(u32::from(RPC_VERSION)),
            client_id: Some(self.client_id.clone()),
            retry_count: Some(self.retry_count),
            ..RpcResponseHeader::default()
        }
    }
}

/// A frame that carries an answer, already length-delimited.
pub(super) fn success(call: &CallRef, answer: &[u8]) -> Bytes {
    framed(&call.header(RpcStatus::Success), answer)
}

/// A frame that carries a refusal or failure.
pub(super) fn failure(call: &CallRef, fault: &RpcFault) -> Bytes {
    let header = RpcResponseHeader {
        exception_class_name: Some(fault.class.clone().into_owned()),
        error_msg: Some(fault.message.clone()),
        error_detail: Some(fault.code as i32),
        ..call.header(fault.status())
    };
    framed(&header, &[])
}

/// A frame that carries a step of the SASL exchange.
pub(super) fn sasl(message: &RpcSasl) -> Bytes {
    success(&CallRef::out_of_band(CALL_SASL), &frame::delimited(message))
}

/// What a client that speaks another RPC version gets. From version 9 on the answer is a frame of
/// today; versions 3 to 8 and 2 get the answers of their time, so that old clients say "version
/// mismatch" instead of hanging; anything else gets nothing.
pub(super) fn version_mismatch(client_version: i8) -> Option<Bytes> {
    let message = format!(
        "Server IPC version {RPC_VERSION} cannot communicate with client version {client_version}"
    );
    let mut out = BytesMut::new();
    match client_version {
        9.. => {
            let fault = RpcFault::fatal(
                RpcErrorCode::FatalVersionMismatch,
                java::VERSION_MISMATCH,
                message,
            );
            return Some(failure(&CallRef::out_of_band(CALL_INVALID), &fault));
        }
        3..=8 => {
            out.put_i32(CALL_INVALID);
            out.put_i32(-1); // "fatal" of that time
        }
        2 => {
            out.put_i32(0);
            out.put_u8(1); // "this is an error"
        }
        _ => return None,
    }
    put_writable_string(&mut out, java::VERSION_MISMATCH);
    put_writable_string(&mut out, &message);
    Some(out.freeze())
}

/// What a web browser gets that was pointed at this port.
pub(super) const HTTP_REFUSAL: &[u8] =
    b"HTTP/1.1 404 Not Found\r\nContent-type: text/plain\r\n\r\n\
It looks like you are making an HTTP request to a Hadoop IPC port. \
This is not the correct port for the web interface on this daemon.\r\n";

fn put_writable_string(out: &mut BytesMut, text: &str) {
    out.put_i32(i32::try_from(text.len()).expect("our own short texts"));
    out.put_slice(text.as_bytes());
}

fn framed(header: &RpcResponseHeader, answer: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(4 + 5 + header.encoded_len() + answer.len());
    out.put_u32(0);
    frame::encode_delimited(header, &mut out);
    out.extend_from_slice(answer);
    let length = u32::try_from(out.len() - 4).expect("answers stay far below 4 GiB");
    out[..4].copy_from_slice(&length.to_be_bytes());
    out.freeze()
}
