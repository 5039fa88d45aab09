//! Frames there and back between our client and our server side, and what either must refuse.

use proptest::prelude::*;

use super::*;
use crate::limits::MAX_RPC_FRAME_BYTES;
use crate::proto::clientdatanode::GetReplicaVisibleLengthResponse;
use crate::proto::hdfs_server::{VersionRequest, VersionResponse};

const CLIENT_ID: [u8; CLIENT_ID_BYTES] = [7; CLIENT_ID_BYTES];

fn one_frame(bytes: &[u8]) -> Bytes {
    let mut buf = BytesMut::from(bytes);
    let frame = decode_frame(&mut buf, MAX_RPC_FRAME_BYTES)
        .expect("valid")
        .expect("complete");
    assert!(buf.is_empty());
    frame
}

#[test]
fn connection_header_is_hadoops() {
    let header = ConnectionHeader {
        service_class: 0,
        auth: AuthProtocol::Sasl,
    };
    assert_eq!(header.encode(), *b"hrpc\x09\x00\xdf");
    for end in 0..CONNECTION_HEADER_BYTES {
        let mut part = BytesMut::from(&header.encode()[..end]);
        assert_eq!(ConnectionHeader::decode(&mut part), Ok(None));
    }
    assert_eq!(
        ConnectionHeader::decode(&mut BytesMut::from(&header.encode()[..])),
        Ok(Some(header))
    );
}

#[test]
fn strangers_are_told_apart() {
    let refuse =
        |bytes: &[u8]| ConnectionHeader::decode(&mut BytesMut::from(bytes)).expect_err("refused");
    assert_eq!(refuse(b"GET / HTTP/1.1"), EncodedRpcError::Http);
    assert_eq!(
        refuse(b"\x16\x03\x01\x02"),
        EncodedRpcError::Magic([0x16, 3, 1, 2])
    );
    assert_eq!(refuse(b"hrpc\x08"), EncodedRpcError::Version(8));
    assert_eq!(refuse(b"hrpc\x09\x00\x01"), EncodedRpcError::Auth(1));
}

#[test]
fn call_there_and_back() {
    let header = call_header(5, CLIENT_ID, 0);
    let frame = encode_call(
        &header,
        names::DATANODE_PROTOCOL,
        "versionRequest",
        &VersionRequest {},
    );
    let Ok(IncomingFrame::Call(call)) = parse_request(one_frame(&frame)) else {
        panic!("a call")
    };
    assert_eq!(call.header, header);
    assert_eq!(call.request.method_name, "versionRequest");
    assert_eq!(
        call.request.declaring_class_protocol_name,
        names::DATANODE_PROTOCOL.name
    );
    assert_eq!(
        frame::decode::<VersionRequest>(call.message),
        Ok(VersionRequest {})
    );
}

#[test]
fn what_is_no_call_is_recognised() {
    let user = crate::proto::rpc::UserInformation {
        effective_user: Some("hdfs".into()),
        real_user: None,
    };
    let frame = encode_context(CLIENT_ID, Some(user.clone()), names::DATANODE_PROTOCOL);
    let Ok(IncomingFrame::Context(context)) = parse_request(one_frame(&frame)) else {
        panic!("a context")
    };
    assert_eq!(context.user_info, Some(user));
    assert_eq!(
        parse_request(one_frame(&encode_ping(CLIENT_ID))),
        Ok(IncomingFrame::Ping)
    );
    let sasl = RpcSasl::step(SaslState::Initiate, &b"abc"[..]);
    let Ok(IncomingFrame::Sasl(header, read)) =
        parse_request(one_frame(&encode_sasl_request(&sasl)))
    else {
        panic!("a SASL message")
    };
    assert_eq!((header.call_id, read), (CALL_SASL, sasl));
}

#[test]
fn answers_there_and_back() {
    let request = call_header(9, CLIENT_ID, 0);
    let message = GetReplicaVisibleLengthResponse { length: 42 };
    let response = parse_response(one_frame(&encode_success(&request, &message))).expect("valid");
    assert_eq!(response.call_id(), 9);
    let body = response.outcome.expect("success");
    assert_eq!(
        frame::decode::<GetReplicaVisibleLengthResponse>(body),
        Ok(message)
    );

    let frame = encode_error(
        &request,
        RpcErrorCode::ErrorApplication,
        names::IO_EXCEPTION,
        "disk\n\tat x",
    );
    let error = parse_response(one_frame(&frame))
        .expect("valid")
        .outcome
        .expect_err("error");
    assert_eq!(error.class_name, names::IO_EXCEPTION);
    assert_eq!(error.summary(), "disk");
    assert!(!error.is_fatal);

    let frame = encode_fatal(None, &EncodedRpcError::Version(8));
    let response = parse_response(one_frame(&frame)).expect("valid");
    assert_eq!(response.call_id(), CALL_AUTHORIZATION_FAILED);
    assert!(response.outcome.expect_err("error").is_fatal);
}

#[test]
fn sasl_answer_has_the_unsigned_call_id() {
    let frame = one_frame(&encode_sasl_response(&RpcSasl::simple_only()));
    let response = parse_response(frame).expect("valid");
    assert_eq!(response.header.call_id, 4_294_967_263);
    assert_eq!(response.call_id(), CALL_SASL);
}

#[test]
fn lying_frame_lengths_are_refused() {
    for announced in [0, -1, i32::MIN, i32::MAX] {
        let mut buf = BytesMut::from(&announced.to_be_bytes()[..]);
        assert!(decode_frame(&mut buf, 1 << 20).is_err(), "{announced}");
    }
    let mut buf = BytesMut::from(&(1i32 << 27).to_be_bytes()[..]);
    assert_eq!(decode_frame(&mut buf, MAX_RPC_FRAME_BYTES), Ok(None));
    assert!(
        buf.capacity() <= 4 * frame::MIN_RESERVE_BYTES,
        "promises buy no memory"
    );
}

#[test]
fn a_missing_answer_is_an_error() {
    let request = call_header(1, CLIENT_ID, 0);
    let frame = one_frame(&encode_success(&request, &VersionRequest {}));
    let mut cut = frame.clone();
    cut.truncate(frame.len() - 1);
    assert!(parse_response(cut).is_err());
    let body = parse_response(frame)
        .expect("valid")
        .outcome
        .expect("success");
    assert!(
        frame::decode::<VersionResponse>(body).is_err(),
        "required field is absent"
    );
}

#[test]
fn headers_that_hadoop_refuses_are_refused() {
    let refuse = |header: &RpcRequestHeader| {
        let frame = encode_call(header, names::DATANODE_PROTOCOL, "m", &VersionRequest {});
        let bad = parse_request(one_frame(&frame)).expect_err("refused");
        assert_eq!(bad.header.as_deref(), Some(header));
        assert_eq!(bad.error.code(), RpcErrorCode::FatalInvalidRpcHeader);
    };
    let good = call_header(1, CLIENT_ID, 0);
    refuse(&RpcRequestHeader {
        rpc_op: None,
        ..good.clone()
    });
    refuse(&RpcRequestHeader {
        rpc_kind: None,
        ..good.clone()
    });
    refuse(&RpcRequestHeader {
        rpc_op: Some(2),
        ..good.clone()
    });
    refuse(&RpcRequestHeader {
        call_id: -7,
        ..good.clone()
    });
    refuse(&RpcRequestHeader {
        client_id: Bytes::from_static(&[0; 17]),
        ..good
    });
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _any_outcome = ConnectionHeader::decode(&mut BytesMut::from(&bytes[..]));
        let _any_outcome = decode_frame(&mut BytesMut::from(&bytes[..]), 1000);
        let _any_outcome = parse_request(Bytes::from(bytes.clone()));
        let _any_outcome = parse_response(Bytes::from(bytes));
    }

    #[test]
    fn flipped_bytes_never_panic(at in any::<prop::sample::Index>(), value: u8) {
        let header = call_header(5, CLIENT_ID, 0);
        let frame =
            encode_call(&header, names::DATANODE_PROTOCOL, "versionRequest", &VersionRequest {});
        let mut bytes = frame.to_vec();
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok(Some(frame)) = decode_frame(&mut BytesMut::from(&bytes[..]), 1000) {
            let _any_outcome = parse_request(frame.clone());
            let _any_outcome = parse_response(frame);
        }
    }
}
