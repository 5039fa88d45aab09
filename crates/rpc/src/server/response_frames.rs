//! Response frames: what the server puts on the wire.

use bytes::{BufMut, Bytes, BytesMut};
use hayloft_wire::rpc::{self, RPC_VERSION, RpcErrorCode, RpcRequestHeader, names};

use super::fault::RpcFault;

/// Call id of an answer to what was not recognised as a call.
pub(super) const CALL_UNKNOWN: i32 = rpc::CALL_AUTHORIZATION_FAILED;

/// Header of a message outside of calls, for answering it.
pub(super) fn out_of_band(call_id: i32) -> RpcRequestHeader {
    RpcRequestHeader {
        call_id,
        retry_count: Some(-1),
        ..RpcRequestHeader::default()
    }
}

/// A frame that carries a refusal or failure.
pub(super) fn failure(call: &RpcRequestHeader, fault: &RpcFault) -> Bytes {
    rpc::encode_error(call, fault.code, &fault.class, &fault.message)
}

/// What a client that speaks another RPC version gets. From version 9 on the answer is a frame of
/// today. Versions 3 to 8 and 2 get the answers of their time, so that old clients say "version
/// mismatch" instead of hanging. Anything else gets nothing.
pub(super) fn version_mismatch(client_version: i8) -> Option<Bytes> {
    let message = format!(
        "Server IPC version {RPC_VERSION} cannot communicate with client version {client_version}"
    );
    let mut out = BytesMut::new();
    match client_version {
        9.. => {
            let fault = RpcFault::fatal(
                RpcErrorCode::FatalVersionMismatch,
                names::RPC_VERSION_MISMATCH,
                message,
            );
            return Some(failure(&out_of_band(CALL_UNKNOWN), &fault));
        }
        3..=8 => {
            out.put_i32(CALL_UNKNOWN);
            out.put_i32(-1); // "fatal" of that time
        }
        2 => {
            out.put_i32(0);
            out.put_u8(1); // "this is an error"
        }
        _ => return None,
    }
    put_writable_string(&mut out, names::RPC_VERSION_MISMATCH);
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
